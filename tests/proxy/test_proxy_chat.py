"""Chat completions through the proxy: another wire, the same promises."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from benchmarks.proxy.scripted import Json, make_output, proxy_to
from sevenfold.loopback import HttpAnswer, HttpCall, LoopbackServer
from sevenfold.proxy.receipt import Receipt
from sevenfold.simulator import ManualClock, Simulator, parse_steps

pytestmark = pytest.mark.anyio
KEY = {"authorization": "Bearer any"}
TOOL = {"type": "function", "function": {"name": "shell", "description": "Runs.", "parameters": {}}}


async def converse(url: str, rounds: int, stream: bool) -> list[Json]:
    messages: list[Json] = [
        {"role": "system", "content": "You are an agent. " * 200},
        {"role": "user", "content": "Make the reports."},
    ]
    async with httpx.AsyncClient(base_url=url, headers=KEY, trust_env=False, timeout=60) as http:
        for _ in range(rounds + 1):
            body = {"model": "gpt-5.5", "messages": messages, "tools": [TOOL], "stream": stream}
            if stream:
                body["stream_options"] = {"include_usage": True}
            answer = await http.post("/v1/chat/completions", json=body)
            assert answer.is_success, answer.text
            said = read_chunks(answer.text) if stream else answer.json()["choices"][0]["message"]
            messages.append(said)
            for call in said.get("tool_calls") or ():
                command = json.loads(call["function"]["arguments"])["command"]
                result = {"role": "tool", "tool_call_id": call["id"], "content": make_output(command)}
                messages.append(result)
    return messages


def read_chunks(text: str) -> Json:
    said: Json = {"role": "assistant", "content": None}
    for line in text.splitlines():
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line.removeprefix("data: "))["choices"]:
            delta = choice["delta"]
            if delta.get("content"):
                said["content"] = (said["content"] or "") + delta["content"]
            for call in delta.get("tool_calls") or ():
                if "id" in call:
                    said.setdefault("tool_calls", []).append(
                        {k: v for k, v in call.items() if k != "index"}
                    )
                else:
                    arguments = call["function"]["arguments"]
                    said["tool_calls"][-1]["function"]["arguments"] += arguments
    return said


def add_calls(sim: Simulator, count: int) -> None:
    calls = [
        {"type": "tool_use", "name": "shell", "input": {"command": f"report {n}"}} for n in range(count)
    ]
    steps = [*({"reply": {"content": [call]}} for call in calls), {"reply": {"text": "done"}}]
    sim.api.script.extend(parse_steps("\n".join(map(json.dumps, steps))))


async def run_both(folder: Path, rounds: int, stream: bool) -> tuple[Simulator, Simulator, Receipt]:
    clock = ManualClock()
    async with Simulator(clock=clock) as direct:
        add_calls(direct, rounds)
        await converse(direct.url, rounds, stream)
    async with Simulator(clock=clock) as through, proxy_to(through.url, folder, clock) as proxy:
        add_calls(through, rounds)
        await converse(proxy.url, rounds, stream)
    return direct, through, proxy.receipt


def list_rows(sim: Simulator) -> Any:
    return msgspec.to_builtins(list(sim.ledger.rows))


@pytest.mark.parametrize("stream", [True, False])
async def test_where_nothing_fires_the_ledger_is_the_same(tmp_path: Path, stream: bool) -> None:
    direct, through, receipt = await run_both(tmp_path, 4, stream)

    assert list_rows(through) == list_rows(direct)
    assert receipt.totals.usage.total > 0
    assert receipt.totals.cost == receipt.totals.direct_cost == pytest.approx(direct.ledger.total.cost)


async def test_old_results_are_cleared_to_a_folder_of_ours(tmp_path: Path) -> None:
    direct, through, receipt = await run_both(tmp_path, 40, False)

    assert through.ledger.total.cost < direct.ledger.total.cost
    assert receipt.totals.unexplained == receipt.totals.passed == 0
    assert receipt.totals.cost == pytest.approx(through.ledger.total.cost)
    assert receipt.totals.direct_cost == pytest.approx(direct.ledger.total.cost, rel=0.05)
    kept = (tmp_path / "home" / "proxy").glob("*/results/cleared*")
    assert any(make_output("report 1") in path.read_text("utf-8") for path in kept)


async def test_a_compressed_reply_goes_on_as_it_is_and_is_read_from_a_copy(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
    choice = {"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
    reply = {
        "id": "1",
        "model": "gpt-5.5",
        "object": "chat.completion",
        "choices": [choice],
        "usage": usage,
    }
    packed = gzip.compress(json.dumps(reply).encode())

    async def answer(call: HttpCall) -> HttpAnswer:
        assert call.headers["accept-encoding"] == "gzip"
        return HttpAnswer(200, {"content-type": "application/json", "content-encoding": "gzip"}, packed)

    async with LoopbackServer(answer) as server, proxy_to(server.url, tmp_path, ManualClock()) as proxy:
        body = {"model": "gpt-5.5", "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}
        async with (
            httpx.AsyncClient(trust_env=False) as http,
            http.stream("POST", f"{proxy.url}/chat/completions", json=body) as response,
        ):
            raw = b"".join([chunk async for chunk in response.aiter_raw()])

    assert raw == packed
    assert proxy.receipt.totals.usage.output == 3
