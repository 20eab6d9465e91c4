"""The proxy costs nothing where no layer acts, saves where one does, and its receipt says how much."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.proxy import scripted
from benchmarks.proxy.scripted import (
    SESSION,
    Json,
    client_of,
    make_output,
    proxy_to,
    script_calls,
    use_tool,
)
from sevenfold.proxy.receipt import Receipt
from sevenfold.simulator import ManualClock, Simulator, parse_steps

pytestmark = pytest.mark.anyio


def add_steps(sim: Simulator, steps: list[Json]) -> None:
    sim.api.script.extend(parse_steps("\n".join(map(json.dumps, steps))))


def list_rows(sim: Simulator) -> list[Json]:
    return [msgspec.to_builtins(row) for row in sim.ledger.rows]


async def run_direct(steps: list[Json], **more: Any) -> Simulator:
    async with Simulator(clock=ManualClock()) as sim, client_of(sim.url, **more) as client:
        add_steps(sim, steps)
        await client.ask("Make the reports.")
    return sim


async def run_through(steps: list[Json], folder: Path, **more: Any) -> tuple[Simulator, Receipt]:
    clock = ManualClock()
    async with (
        Simulator(clock=clock) as sim,
        proxy_to(sim.url, folder, clock) as proxy,
        client_of(proxy.url, **more) as client,
    ):
        add_steps(sim, steps)
        await client.ask("Make the reports.")
    return sim, proxy.receipt


@pytest.mark.parametrize("stream", [True, False])
async def test_where_nothing_fires_the_ledger_is_the_same_number_by_number(
    tmp_path: Path, stream: bool
) -> None:
    direct = await run_direct(script_calls(8), stream=stream)
    through, receipt = await run_through(script_calls(8), tmp_path, stream=stream)

    assert list_rows(through) == list_rows(direct)
    assert receipt.totals.sent == receipt.totals.received
    assert receipt.totals.usage == receipt.totals.direct
    assert receipt.totals.cost == receipt.totals.direct_cost == pytest.approx(direct.ledger.total.cost)


async def test_sixty_one_requests_of_tool_output_cost_four_fifths_at_most(tmp_path: Path) -> None:
    direct = await run_direct(script_calls(60))
    through, receipt = await run_through(script_calls(60), tmp_path)

    totals = receipt.totals
    assert through.ledger.total.requests == direct.ledger.total.requests == 61
    assert through.ledger.total.cost <= 0.8 * direct.ledger.total.cost
    assert totals.unexplained == totals.passed == totals.failed == 0
    assert totals.breaks == len([row for row in through.ledger.rows if row.shared and row.shared.diverged])
    assert all("layer 2" in found.why for found in receipt.breaks)
    assert totals.cost == pytest.approx(through.ledger.total.cost)
    assert totals.direct_cost == pytest.approx(direct.ledger.total.cost, rel=0.02)
    assert totals.sent < 0.6 * totals.received


async def test_what_was_cleared_lies_where_claude_code_may_read_it(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        Simulator(clock=clock) as sim,
        proxy_to(sim.url, tmp_path, clock) as proxy,
        client_of(proxy.url) as client,
    ):
        add_steps(sim, script_calls(30))
        await client.ask("Make the reports.")
        cleared = next(row for row in proxy.receipt.rows if row.sent < row.received)
        results = tmp_path / "claude" / "projects" / "-work" / SESSION / "tool-results"
        (kept,) = results.iterdir()
        again = {"file_path": str(kept)}
        add_steps(sim, [{"reply": use_tool("Read", **again)}, {"reply": {"text": "read"}}])
        client.run = lambda name, given: Path(given["file_path"]).read_text("utf-8")
        await client.ask("What did report 3 say?")

    assert "layer 2 cleared" in cleared.acts[0]
    assert make_output("report 3") in client.messages[-2]["content"][0]["content"]
    assert not proxy.receipt.totals.unexplained


async def test_a_client_without_file_tools_loses_nothing(tmp_path: Path) -> None:
    tools = [{"name": "report", "description": "Makes a report.", "input_schema": {"type": "object"}}]
    steps = [{"reply": use_tool("report", command=f"report {n}")} for n in range(30)]
    steps.append({"reply": {"text": "done"}})

    _, receipt = await run_through(steps, tmp_path, more={"tools": tools})

    assert receipt.totals.requests == 31
    assert receipt.totals.sent == receipt.totals.received
    assert receipt.totals.usage == receipt.totals.direct


async def test_requests_without_tools_pass_and_are_not_of_the_conversation(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        Simulator(clock=clock) as sim,
        proxy_to(sim.url, tmp_path, clock) as proxy,
        client_of(proxy.url) as client,
    ):
        add_steps(sim, script_calls(2))
        await client.ask("Make the reports.")
        body = client.body() | {"messages": [{"role": "user", "content": "A title, please."}]}
        del body["tools"]
        answer = await client.post(json.dumps(body).encode())
        counted = await client.http.post(
            "/v1/messages/count_tokens",
            json={k: v for k, v in body.items() if k in ("model", "messages")},
            headers={"x-api-key": "any"},
        )

    assert answer.headers["x-sevenfold"] == "unchanged"
    assert [row.conversation != "" for row in proxy.receipt.rows] == [True, True, True, False]
    assert counted.json()["input_tokens"] > 0


async def test_the_receipt_is_at_an_address_and_in_one_line(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        Simulator(clock=clock) as sim,
        proxy_to(sim.url, tmp_path, clock) as proxy,
        client_of(proxy.url) as client,
    ):
        add_steps(sim, script_calls(30))
        await client.ask("Make the reports.")
        told = (await client.http.get("/sevenfold/ledger")).json()
        missing = await client.http.get("/sevenfold/other")

    assert told["totals"]["requests"] == len(told["rows"]) == 31
    assert told["breaks"][0]["why"].startswith("layer 2 cleared")
    assert re.fullmatch(
        r"31 requests; sent [\d.]+ MB instead of [\d.]+ MB; \$[\d.]+ instead of \$[\d.]+ "
        r"\(-[\d.]+%, simulated\); 1 cache break, 0 unexplained; [\d.]+ ms added \(median\)",
        proxy.receipt.describe(),
    )
    assert "layer: layer 2 cleared" in proxy.receipt.describe_whole()
    assert missing.status_code == 404
    assert len(sim.ledger) == 31


async def test_the_receipt_says_where_the_client_alone_would_have_compacted(tmp_path: Path) -> None:
    _, short = await run_through(script_calls(10), tmp_path / "short", more={"model": "claude-sonnet-4-5"})
    _, receipt = await run_through(script_calls(44), tmp_path, more={"model": "claude-sonnet-4-5"})

    overfull = [row for row in receipt.rows if row.overfull]
    assert not short.totals.overfull
    assert "would not have fit" not in short.describe()
    assert receipt.totals.overfull == len(overfull) > 1
    assert all(row.direct.prompt > 200_000 > row.usage.prompt for row in overfull)
    assert overfull == list(receipt.rows)[-len(overfull) :]
    assert f"simulated; {len(overfull)} would not have fit, so alone the client" in receipt.describe()
    assert receipt.as_json()["totals"]["overfull"] == len(overfull)  # type: ignore[index]


async def test_a_large_result_is_stored_at_once_and_the_mark_of_the_client_stays(tmp_path: Path) -> None:
    def run(name: str, given: Json) -> str:
        return make_output(str(given["command"]), 60_000)

    direct = await run_direct(script_calls(3), run=run)
    through, receipt = await run_through(script_calls(3), tmp_path, run=run)

    assert [row.breakpoints for row in through.ledger.rows] == [
        row.breakpoints for row in direct.ledger.rows
    ]
    assert all(row.acts[0].startswith("layer 1 stored") for row in list(receipt.rows)[1:])
    assert receipt.totals.breaks == 0
    assert through.ledger.total.cost < direct.ledger.total.cost


async def test_a_window_that_is_full_of_words_is_compacted_by_a_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no layer may clear: only the digest, which asks no model, keeps such a session going."""
    monkeypatch.setattr(scripted, "MODEL", "claude-sonnet-4-5")
    clock = ManualClock()
    async with (
        Simulator(clock=clock) as sim,
        proxy_to(sim.url, tmp_path, clock) as proxy,
        client_of(proxy.url) as client,
    ):
        add_steps(sim, [{"reply": {"text": f"Answer {number}."}} for number in range(15)])
        for number in range(15):
            await client.ask(f"Question {number}. " + f"word{number} and more words here. " * 2_300)

    totals, told = proxy.receipt.totals, msgspec.json.decode(msgspec.json.encode(proxy.receipt.as_json()))
    assert (totals.requests, totals.failed, totals.passed, totals.unexplained) == (15, 0, 0, 0)
    assert totals.sent < totals.received
    assert {one["why"] for one in told["breaks"]} == {
        "the older part of the conversation was replaced by a digest"
    }
    assert len(sim.ledger.rows) == 15, "no request of its own"
