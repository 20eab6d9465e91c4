"""Message threads through the proxy: the client sends what is new, the layers still see all of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from benchmarks.proxy.scripted import Json, ScriptedClient, client_of, make_output, proxy_to, script_calls
from sevenfold.proxy.server import Proxy
from sevenfold.simulator import ManualClock, Simulator, parse_steps

pytestmark = pytest.mark.anyio
BETA = {"anthropic-beta": "message-threads-2026-08-12"}


@dataclass
class ThreadedClient(ScriptedClient):
    """Continues a thread by the id of the last reply; begins another one if it is gone."""

    previous: str = ""
    sent: int = 0  # Messages that the provider holds

    def body(self) -> Json:
        whole = {**super().body(), "thread": {"type": "create"}}
        if not self.previous:
            return whole
        new = {**whole, "messages": whole["messages"][self.sent :]}
        del new["system"], new["tools"]
        return {**new, "thread": {"type": "continue", "previous_message_id": self.previous}}

    async def send(self) -> Json:
        response = await self.post(json.dumps(self.body()).encode())
        if response.status_code == 404:
            assert response.json()["error"]["details"]["error_code"] == "thread_not_found"
            self.previous = ""
            return await self.send()
        assert response.is_success, response.text
        reply: Json = response.json()
        self.previous, self.sent = reply["id"], len(self.messages) + 1
        return reply


def make_client(plain: ScriptedClient) -> ThreadedClient:
    return ThreadedClient(plain.http, stream=False, headers=BETA)


def add_calls(sim: Simulator, count: int) -> None:
    sim.api.script.extend(parse_steps("\n".join(map(json.dumps, script_calls(count)))))


async def run_direct(calls: int) -> Simulator:
    async with Simulator(clock=ManualClock()) as sim, client_of(sim.url) as plain:
        add_calls(sim, calls)
        await make_client(plain).ask("Make the reports.")
    return sim


async def run_through(calls: int, folder: Path) -> tuple[Simulator, Proxy, ThreadedClient, list[str]]:
    clock, log = ManualClock(), list[str]()
    async with (
        Simulator(clock=clock) as sim,
        proxy_to(sim.url, folder, clock, log) as proxy,
        client_of(proxy.url) as plain,
    ):
        add_calls(sim, calls)
        client = make_client(plain)
        await client.ask("Make the reports.")
    return sim, proxy, client, log


async def test_where_nothing_fires_the_threads_are_the_providers(tmp_path: Path) -> None:
    direct = await run_direct(6)
    through, proxy, _, log = await run_through(6, tmp_path)

    assert msgspec.to_builtins(list(through.ledger.rows)) == msgspec.to_builtins(list(direct.ledger.rows))
    assert proxy.receipt.totals.sent == proxy.receipt.totals.received
    assert log == []


async def test_a_clear_begins_another_thread_and_the_client_goes_on_with_that(tmp_path: Path) -> None:
    direct = await run_direct(40)
    through, proxy, client, log = await run_through(40, tmp_path)

    rows = list(proxy.receipt.rows)
    whole = [row for row in rows[1:] if row.sent > row.received]
    assert len(whole) == proxy.receipt.totals.breaks > 0
    assert through.ledger.total.requests == direct.ledger.total.requests == 41
    assert through.ledger.total.errors == 0
    assert through.ledger.total.cost < direct.ledger.total.cost
    assert proxy.receipt.totals.unexplained == 0
    assert log == []
    held = through.api.threads.find_conversation(client.previous)
    assert len(held) == len(client.messages)
    cleared = [at for at, message in enumerate(held) if message != client.messages[at]]
    assert len(cleared) > 10
    assert all("(cleared: " in held[at]["content"][0]["content"] for at in cleared)


async def test_a_large_result_is_stored_before_it_enters_the_thread(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        Simulator(clock=clock) as sim,
        proxy_to(sim.url, tmp_path, clock) as proxy,
        client_of(proxy.url) as plain,
    ):
        add_calls(sim, 2)
        client = make_client(plain)
        client.run = lambda name, given: make_output(str(given["command"]), 60_000)
        await client.ask("Make the reports.")
        held = sim.api.threads.find_conversation(client.previous)

    assert "<persisted-output>" in held[2]["content"][0]["content"]
    assert all(row.sent < row.received for row in list(proxy.receipt.rows)[1:])


async def test_a_thread_that_a_new_process_does_not_know_goes_to_the_provider(tmp_path: Path) -> None:
    clock, log = ManualClock(), list[str]()
    async with Simulator(clock=clock) as sim:
        async with proxy_to(sim.url, tmp_path, clock) as proxy, client_of(proxy.url) as first:
            add_calls(sim, 2)
            client = make_client(first)
            await client.ask("Make the reports.")
        add_calls(sim, 1)
        async with proxy_to(sim.url, tmp_path, clock, log) as proxy, client_of(proxy.url) as second:
            client.http = second.http
            await client.ask("One more.")
            clock.advance(301)
            add_calls(sim, 1)
            await client.ask("And one more.")

    assert [bool(row.passed) for row in proxy.receipt.rows] == [True, True, True, False, False]
    assert [row.status for row in proxy.receipt.rows] == [200, 200, 404, 200, 200]
    assert len(log) == 3
