"""Our clients against the simulated provider: its cache, its checks and its faults, over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from models.asking import KEY, TOOL, collect

from sevenfold.cache.prefix import choose_breakpoints
from sevenfold.core.errors import (
    BadReply,
    KeyRefused,
    ModelFailure,
    Overloaded,
    PromptTooLong,
    RateLimited,
    Unreachable,
)
from sevenfold.core.messages import Message, ToolResult, ToolUse, user
from sevenfold.core.request import Frame, Request
from sevenfold.core.transcript import Pin, Reply, Transcript
from sevenfold.models import ModelAccess
from sevenfold.models.anthropic import AnthropicModel
from sevenfold.models.openai import OpenAiModel
from sevenfold.simulator import ManualClock, Script, Simulator, parse_steps

pytestmark = pytest.mark.anyio
MODEL = "claude-opus-4-8"
FRAME = Frame(MODEL, ("rule " * 3_000, "session " * 1_500), (TOOL,))
CALL = '{"reply": {"content": [{"type": "tool_use", "id": "t%d", "name": "Read", "input": {"p": %d}}]}}'


@asynccontextmanager
async def simulated(
    steps: str = "", window: int | None = None, **fields: Any
) -> AsyncIterator[tuple[Simulator, AnthropicModel]]:
    script = Script(parse_steps(steps)) if steps else None
    async with Simulator(clock=ManualClock(), script=script, window=window) as sim:
        fields.setdefault("anthropic_key", KEY)
        model = AnthropicModel(MODEL, ModelAccess(anthropic_base_url=sim.url, **fields))
        try:
            yield sim, model
        finally:
            await model.close()


async def step(model: AnthropicModel, transcript: Transcript, frame: Frame = FRAME) -> Reply:
    request = Request(frame, transcript.view, breakpoints=choose_breakpoints(transcript.view))
    reply = (await collect(model, request))[-1]
    assert isinstance(reply, Reply)
    transcript.add(reply, by="model")
    return reply


async def test_a_tool_loop_reads_from_the_cache_what_it_wrote_a_step_before() -> None:
    script = "\n".join(CALL % (i, i) for i in range(4))
    async with simulated(script, diagnostics=True) as (sim, model):
        transcript = Transcript(lambda: 0.0)
        transcript.add(user("look around " * 50))
        replies = []
        for _ in range(4):
            replies.append(await step(model, transcript))
            (use,) = replies[-1].message.tool_uses
            assert isinstance(use, ToolUse)
            transcript.add(Message("user", (ToolResult(use.id, "a line\n" * 200),)), by="tools")
        rows = sim.ledger.as_json()["requests"]
    assert replies[0].usage.cache_read == 0
    for before, after in pairwise(replies):
        assert after.usage.cache_read == before.usage.cache_read + before.usage.cache_write
        assert after.usage.input < 20
        assert "cache_miss_reason" not in after.diagnostics, "nothing diverged"
    assert {row["source"] for row in rows} == {"main"}
    assert [row["breakpoints"] for row in rows] == [3, 3, 3, 3]


async def test_an_hour_is_written_as_an_hour() -> None:
    async with simulated() as (_, model):
        transcript = Transcript(lambda: 0.0)
        transcript.add(user("hello"))
        frame = Frame(MODEL, FRAME.system, FRAME.tools, ttl="1h")
        usage = (await step(model, transcript, frame)).usage
    assert usage.cache_write == usage.cache_write_1h > 1_000


async def test_the_provider_says_what_broke_the_prefix() -> None:
    async with simulated(diagnostics=True) as (_, model):
        transcript = Transcript(lambda: 0.0)
        transcript.add(user("hello"))
        await step(model, transcript)
        transcript.add(user("more"))
        changed = Frame(MODEL, ("another rule " * 3_000,), FRAME.tools)
        reply = await step(model, transcript, changed)
    assert reply.diagnostics["cache_miss_reason"]["type"] == "system_changed"


async def test_pins_and_context_edits_are_taken() -> None:
    management = {
        "edits": [
            {
                "type": "clear_tool_uses_20250919",
                "trigger": {"type": "input_tokens", "value": 1_000},
                "keep": {"type": "tool_uses", "value": 0},
            }
        ]
    }
    async with simulated(CALL % (1, 1)) as (_, model):
        transcript = Transcript(lambda: 0.0)
        transcript.add(user("look"))
        await step(model, transcript)
        (at,) = transcript.add(Message("user", (ToolResult("t1", "x " * 4_000),)), by="tools")
        edited = Frame(MODEL, FRAME.system, FRAME.tools, {"context_management": management})
        reply = await step(model, transcript, edited)
        assert reply.applied
        transcript.add(Pin(at, {"type": "cache_edits", "delete": ["t1"]}))
        transcript.add(user("go on"))
        assert (await step(model, transcript)).message.text


@pytest.mark.parametrize(
    ("script", "expected", "wait"),
    [
        ('{"error": {"status": 429, "retry_after": 4}}', RateLimited, 4.0),
        ('{"error": {"status": 529}}', Overloaded, None),
        ('{"error": {"status": 500}}', Overloaded, None),
        ('{"error": {"type": "overloaded_error", "after_events": 3}}', Overloaded, None),
        ('{"cut": {"after_events": 3}}', Unreachable, None),
        ('{"cut": {"after_events": 0}}', Unreachable, None),
        ('{"malformed": true}', BadReply, None),
        ('{"malformed": {"after_events": 2}}', BadReply, None),
    ],
)
async def test_every_fault_of_a_script_is_one_of_our_errors(
    script: str, expected: type[ModelFailure], wait: float | None
) -> None:
    async with simulated(script) as (_, model):
        transcript = Transcript(lambda: 0.0)
        transcript.add(user("hello"))
        with pytest.raises(expected) as caught:
            await step(model, transcript)
        assert caught.value.retry_after == wait
        assert (await step(model, transcript)).message.text


async def test_a_wrong_key_and_a_full_window_are_told() -> None:
    transcript = Transcript(lambda: 0.0)
    transcript.add(user("hello"))
    async with simulated(anthropic_key="sk-wrong") as (_, model):
        with pytest.raises(KeyRefused):
            await step(model, transcript)
    async with simulated(window=2_000) as (_, model):
        with pytest.raises(PromptTooLong) as caught:
            await step(model, transcript)
    assert caught.value.limit == 2_000
    assert caught.value.tokens
    assert caught.value.tokens > 2_000


async def test_the_chat_format_holds_a_conversation_too() -> None:
    async with Simulator(clock=ManualClock()) as sim:
        model = OpenAiModel("openai:gpt-5", ModelAccess(openai_base_url=f"{sim.url}/v1", openai_key=KEY))
        transcript = Transcript(lambda: 0.0)
        transcript.add(user("hello " * 2_000))
        frame = Frame("openai:gpt-5", FRAME.system, FRAME.tools)
        replies = []
        for _ in range(2):
            reply = (await collect(model, Request(frame, transcript.view)))[-1]
            assert isinstance(reply, Reply)
            replies.append(reply)
            transcript.add(reply, by="model")
            transcript.add(user("and then?"))
        await model.close()
    assert all(reply.message.text for reply in replies)
    assert replies[1].usage.cache_read > 1_000
