"""The openai SDK in a loop of its own, against the simulator: nothing that was sent changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from context.conversing import Json

from sevenfold.context.context import Context
from sevenfold.core.events import Event, Sending, Stored
from sevenfold.simulator import ManualClock, Simulator, parse_steps, run_in_thread

openai = pytest.importorskip("openai")
pytestmark = pytest.mark.real

SYSTEM: Json = {"role": "system", "content": "You look things up. " * 100}
HUGE = "".join(f"line {n}: {n * n}\n" for n in range(12_000))[:200_000]
LOOK_UP: Json = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks something up.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
    },
}
STEPS = 20


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with run_in_thread(clock=ManualClock()) as simulator:
        uses = [
            [
                {"type": "tool_use", "name": "look_up", "input": {"what": f"{n} {i}"}}
                for i in range(1 + n % 3)
            ]
            for n in range(STEPS - 1)
        ]
        lines = [json.dumps({"reply": {"content": blocks}}) for blocks in uses]
        simulator.api.script.extend(parse_steps("\n".join([*lines, '{"reply": {"text": "done"}}'])))
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{sim.url}/v1", api_key="any", max_retries=0) as made:
        yield made


@pytest.mark.parametrize("as_objects", [True, False])
@pytest.mark.parametrize("model", ["gpt-5.4", "openai:gpt-4.1"])
def test_twenty_steps_with_a_huge_result_keep_every_prefix(
    sim: Simulator, client: Any, tmp_path: Path, model: str, as_objects: bool
) -> None:
    events: list[Event] = []
    with Context(model, format="openai", environ={"HOME": str(tmp_path)}) as ctx:
        ctx.subscribe(events.append)
        history: list[Any] = [SYSTEM, {"role": "user", "content": "find out"}]
        for n in range(STEPS):
            response = client.chat.completions.create(**ctx.prepare(history, tools=[LOOK_UP]))
            ctx.record(response)
            message = response.choices[0].message
            history.append(message if as_objects else message.to_dict())
            for call in message.tool_calls or ():
                text = HUGE if n == 6 else f"what was found about {n}. " * 30
                history.append({"role": "tool", "tool_call_id": call.id, "content": text})

        assert history[-1]["content"] == "done" if not as_objects else history[-1].content == "done"
        rows = list(sim.ledger.rows)
        assert [row.status for row in rows] == [200] * STEPS
        for row in rows[1:]:
            assert row.shared is not None
            assert row.shared.blocks == row.shared.of_blocks, row.shared.diverged
        assert all(Path(e.path).read_text("utf-8") == HUGE for e in events if isinstance(e, Stored))
        assert len([e for e in events if isinstance(e, Stored)]) == 1
        assert all(not e.lost for e in events if isinstance(e, Sending))
        assert ctx.ledger.total.cost == pytest.approx(sim.ledger.total.cost)
        assert len(ctx.view) == 2 * STEPS


def test_a_stream_that_the_caller_put_together_is_recorded(
    sim: Simulator, client: Any, tmp_path: Path
) -> None:
    with Context("gpt-5.4", format="openai", environ={"HOME": str(tmp_path)}) as ctx:
        history: list[Any] = [SYSTEM, {"role": "user", "content": "find out"}]
        request = ctx.prepare(history, tools=[LOOK_UP], stream=True)
        call = {"id": "", "name": "", "arguments": ""}
        usage: Json = {}
        for chunk in client.chat.completions.create(**request, stream_options={"include_usage": True}):
            usage = chunk.usage.to_dict() if chunk.usage else usage
            for choice in chunk.choices:
                for piece in choice.delta.tool_calls or ():
                    call["id"] += piece.id or ""
                    call["name"] += piece.function.name or ""
                    call["arguments"] += piece.function.arguments or ""
        function = {"name": call["name"], "arguments": call["arguments"]}
        calls = [{"id": call["id"], "type": "function", "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
        ctx.record({"choices": [{"message": message}], "usage": usage, "model": "gpt-5.4"})
        history += [message, {"role": "tool", "tool_call_id": call["id"], "content": "42"}]
        client.chat.completions.create(**ctx.prepare(history, tools=[LOOK_UP]))

    shared = sim.ledger[-1].shared
    assert shared is not None
    assert shared.blocks == shared.of_blocks
    assert ctx.ledger.total.usage.output > 0
