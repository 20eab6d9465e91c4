"""The anthropic SDK in a loop of its own, against the simulator: nothing that was sent changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from context.conversing import MODEL, Json

from sevenfold.context.context import Context
from sevenfold.core.events import CacheBroke, Cleared, Event, Sending, Stored
from sevenfold.simulator import ManualClock, Simulator, parse_steps, run_in_thread

anthropic = pytest.importorskip("anthropic")
pytestmark = pytest.mark.real

SYSTEM = "You look things up and answer in one sentence. " * 40
HUGE = "".join(f"line {n}: {n * n}\n" for n in range(12_000))[:200_000]
LOOK_UP: Json = {
    "name": "look_up",
    "description": "Looks something up.",
    "input_schema": {"type": "object", "properties": {"what": {"type": "string"}}},
}
STEPS = 20


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with run_in_thread(clock=ManualClock()) as simulator:
        calls = [
            {
                "thinking": "hm",
                "content": [{"type": "tool_use", "name": "look_up", "input": {"what": str(n)}}],
            }
            for n in range(STEPS - 1)
        ]
        lines = [json.dumps({"reply": call}) for call in calls]
        simulator.api.script.extend(parse_steps("\n".join([*lines, '{"reply": {"text": "done"}}'])))
        yield simulator


@pytest.fixture
def client(sim: Simulator) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=sim.url, api_key="any", max_retries=0) as made:
        yield made


def answer(use: Any, n: int) -> Json:
    text = HUGE if n == 6 else f"what was found about {n}. " * 30
    return {"type": "tool_result", "tool_use_id": use.id, "content": text}


def context(folder: Path, **more: Any) -> tuple[Context, list[Event]]:
    ctx = Context(MODEL, environ={"HOME": str(folder)}, **more)
    events: list[Event] = []
    ctx.subscribe(events.append)
    return ctx, events


def converse(ctx: Context, client: Any, history: list[Any], as_objects: bool = True) -> Any:
    """A caller's loop, until the model calls no tool."""
    for n in range(1, STEPS + 1):
        request = ctx.prepare(history, system=SYSTEM, tools=[LOOK_UP])
        response = client.messages.create(**request)
        ctx.record(response)
        content = response.content if as_objects else response.to_dict()["content"]
        history.append({"role": "assistant", "content": content})
        uses = [block for block in response.content if block.type == "tool_use"]
        if not uses:
            return response
        history.append({"role": "user", "content": [answer(use, n) for use in uses]})
    return None


def assert_each_extends_the_one_before(sim: Simulator) -> None:
    rows = list(sim.ledger.rows)
    assert [row.status for row in rows] == [200] * len(rows)
    for row in rows[1:]:
        assert row.shared is not None
        assert row.shared.blocks == row.shared.of_blocks, row.shared.diverged


@pytest.mark.parametrize("as_objects", [True, False])
def test_twenty_steps_with_a_huge_result_keep_every_prefix(
    sim: Simulator, client: Any, tmp_path: Path, as_objects: bool
) -> None:
    with context(tmp_path)[0] as ctx:
        events: list[Event] = []
        ctx.subscribe(events.append)
        history: list[Any] = [{"role": "user", "content": "find out"}]

        assert converse(ctx, client, history, as_objects).content[0].text == "done"

        assert len(sim.ledger) == STEPS
        assert_each_extends_the_one_before(sim)
        assert all(row.tokens.cache_read for row in list(sim.ledger.rows)[4:])
        [stored] = [e for e in events if isinstance(e, Stored)]
        kept = Path(stored.path).read_bytes()
        assert hashlib.sha256(kept).digest() == hashlib.sha256(HUGE.encode()).digest()
        assert not [e for e in events if isinstance(e, CacheBroke)]
        assert all(not e.lost for e in events if isinstance(e, Sending))
        assert ctx.ledger.total.cost == pytest.approx(sim.ledger.total.cost)
    assert not Path(stored.path).exists(), "what was only for this process is gone with it"


def test_streams_and_parsed_final_messages_are_recorded_too(
    sim: Simulator, client: Any, tmp_path: Path
) -> None:
    ctx, _ = context(tmp_path)
    history: list[Any] = [{"role": "user", "content": "find out"}]
    for n in range(3):
        with client.messages.stream(**ctx.prepare(history, system=SYSTEM, tools=[LOOK_UP])) as stream:
            final = stream.get_final_message()
        ctx.record(final)
        history.append({"role": "assistant", "content": final.content})
        uses = [block for block in final.content if block.type == "tool_use"]
        history.append({"role": "user", "content": [answer(use, n) for use in uses]})
    assert_each_extends_the_one_before(sim)
    assert len(ctx.view) == 6
    ctx.close()


def test_the_beta_client_takes_what_we_add_as_parameters(
    sim: Simulator, client: Any, tmp_path: Path
) -> None:
    ctx, _ = context(tmp_path, settings={"micro": {"policy": "plain"}})
    history: list[Any] = [{"role": "user", "content": "find out"}]
    request = ctx.prepare(history, tools=[LOOK_UP], betas=["mine-2026-01-01"])
    assert request["betas"] == ["mine-2026-01-01", "context-management-2025-06-27"]
    response = client.beta.messages.create(**request)
    ctx.record(response)
    assert ctx.view[-1].message.tool_uses
    ctx.close()


def test_what_the_provider_cleared_by_itself_is_recorded(
    sim: Simulator, client: Any, tmp_path: Path
) -> None:
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": 100},
        "keep": {"type": "tool_uses", "value": 1},
    }
    ctx, events = context(tmp_path)
    history: list[Any] = [{"role": "user", "content": "find out"}]
    for n in range(4):
        request = ctx.prepare(
            history,
            tools=[LOOK_UP],
            betas=["context-management-2025-06-27"],
            context_management={"edits": [edit]},
        )
        response = client.beta.messages.create(**request)
        ctx.record(response)
        history.append({"role": "assistant", "content": response.content})
        uses = [block for block in response.content if block.type == "tool_use"]
        history.append({"role": "user", "content": [answer(use, n) for use in uses]})
    assert [e.by for e in events if isinstance(e, Cleared)] == ["provider", "provider"]
    assert sim.ledger[-1].applied_edits
    ctx.close()


@pytest.mark.anyio
async def test_the_asynchronous_client_in_a_running_loop(tmp_path: Path) -> None:
    async with Simulator(clock=ManualClock()) as sim:
        sim.api.script.extend(parse_steps('{"reply": {"text": "yes"}, "times": 3}'))
        async with anthropic.AsyncAnthropic(base_url=sim.url, api_key="any") as client:
            with context(tmp_path)[0] as ctx:
                history: list[Any] = [{"role": "user", "content": "hello"}]
                for _ in range(3):
                    response = await client.messages.create(**ctx.prepare(history, system=SYSTEM))
                    ctx.record(response)
                    await ctx.rest()
                    history.append({"role": "assistant", "content": response.content})
                    history.append({"role": "user", "content": "and?"})
                assert_each_extends_the_one_before(sim)


def test_the_loop_in_the_reference_is_one_that_the_sdk_takes(
    sim: Simulator, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[2] / "docs/reference/library.md"
    blocks = page.read_text(encoding="utf-8").split("```python\n")[1:]
    [block] = [text.split("```")[0] for text in blocks if "ctx.record(response)" in text]
    names = {"Context": Context, "client": client, "system": SYSTEM, "tools": [LOOK_UP]}
    names["messages"] = [{"role": "user", "content": "look everything up"}]
    monkeypatch.chdir(tmp_path)

    exec(block, names)

    names["ctx"].close()
    assert names["ctx"].ledger.total.requests == 1
