"""The Responses API through the proxy, as Codex and openai-agents speak it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from benchmarks.proxy.scripted import Json, make_output, proxy_to
from sevenfold.proxy.receipt import Receipt
from sevenfold.simulator import ManualClock, Simulator, parse_steps

pytestmark = pytest.mark.anyio
KEY = {"authorization": "Bearer any", "session-id": "s1"}
TOOL = {
    "type": "function",
    "name": "exec_command",
    "description": "Runs.",
    "parameters": {"type": "object"},
}


async def converse(url: str, rounds: int, stream: bool) -> None:
    items: list[Json] = [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Make the reports."}],
        }
    ]
    async with httpx.AsyncClient(base_url=url, headers=KEY, trust_env=False, timeout=60) as http:
        for _ in range(rounds + 1):
            body = {"model": "gpt-5.5", "instructions": "You are an agent. " * 200, "input": items}
            answer = await http.post("/v1/responses", json={**body, "tools": [TOOL], "stream": stream})
            assert answer.is_success, answer.text
            output = read_output(answer, stream)
            items += output
            for call in output:
                if call["type"] == "function_call":
                    command = json.loads(call["arguments"])["cmd"]
                    result = {"type": "function_call_output", "call_id": call["call_id"]}
                    items.append({**result, "output": make_output(command)})


def read_output(answer: httpx.Response, stream: bool) -> Any:
    if not stream:
        return answer.json()["output"]
    lines = [line for line in answer.text.splitlines() if line.startswith("data: {")]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    return next(e["response"]["output"] for e in events if e["type"] == "response.completed")


def add_calls(sim: Simulator, count: int) -> None:
    calls = [
        {"type": "tool_use", "name": "exec_command", "input": {"cmd": f"report {n}"}} for n in range(count)
    ]
    steps = [*({"reply": {"content": [call]}} for call in calls), {"reply": {"text": "done"}}]
    sim.api.script.extend(parse_steps("\n".join(map(json.dumps, steps))))


async def run_both(folder: Path, rounds: int, stream: bool) -> tuple[Simulator, Simulator, Receipt]:
    clock, log = ManualClock(), list[str]()
    async with Simulator(clock=clock) as direct:
        add_calls(direct, rounds)
        await converse(direct.url, rounds, stream)
    async with Simulator(clock=clock) as through, proxy_to(through.url, folder, clock, log) as proxy:
        add_calls(through, rounds)
        await converse(proxy.url, rounds, stream)
    assert log == []
    return direct, through, proxy.receipt


@pytest.mark.parametrize("stream", [True, False])
async def test_where_nothing_fires_the_ledger_is_the_same(tmp_path: Path, stream: bool) -> None:
    direct, through, receipt = await run_both(tmp_path, 4, stream)

    rows = [msgspec.to_builtins(list(sim.ledger.rows)) for sim in (direct, through)]
    assert rows[0] == rows[1]
    assert receipt.totals.sent == receipt.totals.received
    assert receipt.totals.cost == receipt.totals.direct_cost == pytest.approx(direct.ledger.total.cost)


async def test_old_results_are_cleared(tmp_path: Path) -> None:
    direct, through, receipt = await run_both(tmp_path, 40, True)

    assert through.ledger.total.cost < direct.ledger.total.cost
    assert receipt.totals.unexplained == receipt.totals.passed == 0
    assert receipt.totals.cost == pytest.approx(through.ledger.total.cost)
    assert receipt.totals.direct_cost == pytest.approx(direct.ledger.total.cost, rel=0.05)


async def test_a_conversation_that_the_server_holds_goes_through(tmp_path: Path) -> None:
    clock, log = ManualClock(), list[str]()
    body: Json = {"model": "gpt-5.5", "input": [{"role": "user", "content": "hi"}], "tools": [TOOL]}
    async with (
        Simulator(clock=clock) as sim,
        proxy_to(sim.url, tmp_path, clock, log) as proxy,
        httpx.AsyncClient(base_url=proxy.url, headers=KEY, trust_env=False) as http,
    ):
        await http.post("/responses", json={**body, "previous_response_id": "resp_1"})
        await http.post("/responses", json={**body, "input": "only words"})

    assert [row.conversation for row in proxy.receipt.rows] == ["", ""]
    assert [row.sent == row.received for row in proxy.receipt.rows] == [True, True]
    assert log == ["passed through as it came: the body is not a request that we know"]
