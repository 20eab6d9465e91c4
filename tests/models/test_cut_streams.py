"""A stream may be cut at any byte: what was handed out is a beginning, and the error is one of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Protocol

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.asking import (
    anthropic,
    block,
    call,
    chunk,
    collect,
    counted,
    openai,
    replied,
    request_of,
    text_block,
    use_block,
    view_of,
)
from models.served import Canned, serving, sse

from sevenfold.core.errors import ModelFailure, Unreachable
from sevenfold.core.messages import Block
from sevenfold.core.transcript import Reply
from sevenfold.models import anthropic_stream, openai_stream
from sevenfold.models.anthropic import map_anthropic_error
from sevenfold.models.failures import ProviderInfo
from sevenfold.models.http import HttpReply
from sevenfold.models.openai import map_openai_error as chat_mapped
from sevenfold.models.sse import SseEvent

pytestmark = pytest.mark.anyio
WHO = ProviderInfo("Anthropic", "host", "KEY", "URL")

MESSAGES = sse(
    *replied(
        block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "signature_delta", "signature": "c2ln"},
        ),
        text_block(1, "Grüße ", "🙂", " bye"),
        use_block(2, '{"path": ', '"a.py"}'),
        block(3, {"type": "new", "x": 1}),
        use_block(4, id="toolu_2"),
        stop="tool_use",
    )
)
CHAT = sse(
    chunk({"reasoning_content": "hm"}),
    chunk({"content": "Grüße "}),
    chunk({"content": "🙂"}),
    chunk(call('{"path": ', id="a", name="Read")),
    chunk(call('"a.py"}')),
    chunk(call("{}", index=1, id="b", name="Read")),
    chunk(finish="tool_calls"),
    counted(),
    "[DONE]",
)


class Assembles(Protocol):
    @property
    def complete(self) -> bool: ...
    def feed(self, event: SseEvent) -> list[str | Block]: ...


def of_messages() -> Assembles:
    return anthropic_stream.AnthropicAssembly(WHO, map_anthropic_error)


def of_chat() -> Assembles:
    return openai_stream.OpenAiAssembly(WHO, chat_mapped, view_of())


async def assembled(make: Callable[[], Assembles], body: bytes) -> tuple[list[str | Block], bool]:
    """What comes out of these bytes, sent in one piece over a connection that then ends."""

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    answer, assembly = HttpReply(WHO, httpx.Response(200, content=pieces())), make()
    out = [item async for event in answer.events() for item in assembly.feed(event)]
    return out, assembly.complete


@pytest.mark.parametrize(("make", "body"), [(of_messages, MESSAGES), (of_chat, CHAT)])
async def test_cut_at_every_byte_a_beginning_comes_out(make: Callable[[], Assembles], body: bytes) -> None:
    whole, complete = await assembled(make, body)
    assert complete
    assert len(whole) > 4
    longest = 0
    for end in range(len(body)):
        got, _ = await assembled(make, body[:end])
        assert got == whole[: len(got)]
        assert len(got) >= longest, "a longer stream never gives less"
        longest = len(got)


@pytest.mark.parametrize("framing", ["chunked", "close"])
@pytest.mark.parametrize(("client", "body"), [(anthropic, MESSAGES), (openai, CHAT)])
async def test_cut_on_a_real_socket_it_is_unreachable(
    client: Callable[..., Any], body: bytes, framing: str
) -> None:
    places = [*range(0, len(body) - 60, 61), len(body) // 2]
    script = [Canned(body[:end], framing=framing, cut=True) for end in places]
    async with serving(Canned(body), *script) as server:
        model = client(server)
        whole = await collect(model, request_of())
        assert isinstance(whole[-1], Reply)
        for _ in places:
            got: list[Any] = []
            try:
                await collect(model, request_of(), got)
            except Unreachable:
                assert got == whole[: len(got)]
            else:  # the reason for the stop had come; only the accounts were still missing
                assert client is openai
                assert got[-1].message == whole[-1].message


@given(st.data())
async def test_damaged_bytes_give_a_beginning_or_one_of_our_errors(data: st.DataObject) -> None:
    make, body = data.draw(st.sampled_from([(of_messages, MESSAGES), (of_chat, CHAT)]))
    at = data.draw(st.integers(0, len(body) - 1))
    junk = data.draw(st.binary(max_size=6))
    skip = data.draw(st.integers(0, 40))
    with suppress(ModelFailure):
        got, _ = await assembled(make, body[:at] + junk + body[at + skip :])
        assert all(isinstance(item, str | Block) for item in got)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
known = st.sampled_from(
    ["type", "index", "delta", "content_block", "message", "usage", "choices", "tool_calls", "error"]
)
kinds = st.sampled_from(
    [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "text_delta",
        "input_json_delta",
        "text",
        "tool_use",
    ]
)
odd_events = st.dictionaries(
    known | st.sampled_from(["finish_reason", "content", "function", "text", "name", "id", "input"]),
    st.recursive(
        json_values | kinds | st.integers(0, 2),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(known, inner, max_size=4),
        max_leaves=8,
    ),
    max_size=5,
)


@given(st.lists(odd_events, max_size=6))
def test_events_of_any_shape_give_blocks_or_one_of_our_errors(events: list[dict[str, Any]]) -> None:
    messages = anthropic_stream.AnthropicAssembly(WHO, map_anthropic_error)
    chat = openai_stream.OpenAiAssembly(WHO, chat_mapped, view_of())
    for assembly in (messages, chat):
        with suppress(ModelFailure):
            got = [item for event in events for item in assembly.take(event)]
            assert all(isinstance(item, str | Block) for item in got)
            assert assembly.reply().message.role == "assistant"
