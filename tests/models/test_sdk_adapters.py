"""The official SDKs as the road to a model: same request, same reply, same errors as our own client's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest
from models import asking
from models.asking import (
    KEY,
    ask,
    block,
    call,
    chunk,
    collect,
    counted,
    replied,
    request_of,
    started,
    text_block,
    use_block,
)
from models.served import Canned, Served, json_body, serving, sse

from sevenfold.core.errors import (
    BadReply,
    BadRequest,
    KeyRefused,
    ModelFailure,
    ModelNotFound,
    Overloaded,
    PromptTooLong,
    RateLimited,
    Unreachable,
)
from sevenfold.core.messages import Opaque, Text, ToolUse
from sevenfold.core.protocols import Model
from sevenfold.core.transcript import Reply
from sevenfold.models.anthropic import AnthropicSdk
from sevenfold.models.anthropic_wire import encode_body as messages_body
from sevenfold.models.jsontext import decode_json
from sevenfold.models.openai import OpenAiSdk
from sevenfold.models.openai_wire import encode_body as chat_body

pytestmark = [pytest.mark.anyio, pytest.mark.real]
DONE = "[DONE]"
MODEL = "claude-opus-5-5"
SAID = replied(text_block(0, "Hel", "lo"), use_block(1, '{"p":', " 1}"), stop="tool_use")
CHAT: list[Any] = [
    chunk({"content": "Hel"}),
    chunk({"content": "lo"}),
    chunk(call('{"p": 1}', id="a", name="Read")),
    chunk(finish="tool_calls"),
    counted(100, 5, prompt_tokens_details={"cached_tokens": 60}),
    DONE,
]


def static_check() -> tuple[type[Model], ...]:
    return (AnthropicSdk, OpenAiSdk)


@asynccontextmanager
async def by_sdk(*script: Canned) -> AsyncIterator[tuple[Served, AnthropicSdk, OpenAiSdk]]:
    async with serving(*script) as server:
        first = anthropic.AsyncAnthropic(api_key=KEY, base_url=server.url)
        second = openai.AsyncOpenAI(api_key=KEY, base_url=f"{server.url}/v1")
        try:
            yield server, AnthropicSdk(first, MODEL), OpenAiSdk(second, "local")
        finally:
            await first.close()
            await second.close()


def without_ids(reply: Any) -> Any:
    assert isinstance(reply, Reply)
    return reply.message, reply.usage, reply.stop, reply.model, reply.diagnostics


async def test_anthropics_sdk_sends_and_hears_what_our_client_does() -> None:
    thinking = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "s"},
    )
    new = block(1, {"type": "brand_new", "x": [1, None]}, {"type": "brand_new_delta", "y": "z"})
    events = [*replied(thinking, new)[:-2], *text_block(2, "é"), *SAID[-2:]]
    request = request_of(
        "hi",
        model=MODEL,
        params={"betas": ["one"], "thinking": {"type": "adaptive"}, "new_field": {"a": None}},
        breakpoints=(0,),
        source="fork",
    )
    async with by_sdk(Canned(sse(*events), headers={"request-id": "req_1"})) as (server, sdk, _):
        theirs = await collect(sdk, request)
        ours = await collect(asking.anthropic(server, MODEL), request)
    assert without_ids(theirs[-1]) == without_ids(ours[-1])
    assert theirs[:-1] == ours[:-1]
    assert isinstance(theirs[1], Opaque)
    assert decode_json(theirs[1].raw) == {"type": "brand_new", "x": [1, None], "y": "z"}
    first, second = server.asked
    assert first.json == second.json == decode_json(messages_body(request))
    for header in ("anthropic-beta", "x-sevenfold-source"):
        assert first.headers[header] == second.headers[header]


async def test_openais_sdk_sends_and_hears_what_our_client_does() -> None:
    request = request_of("hi", model="openai:local", params={"seed": 1, "top_k": 4}, max_tokens=9)
    async with by_sdk(Canned(sse(*CHAT), headers={"x-request-id": "req_1"})) as (server, _, sdk):
        theirs = await collect(sdk, request)
        ours = await collect(asking.openai(server), request)
    assert theirs == ours
    assert theirs[2:4] == [Text("Hello"), ToolUse("a", "Read", {"p": 1})]
    first, second = server.asked
    assert first.json == second.json == decode_json(chat_body(request))


async def test_the_words_come_as_they_are_spoken() -> None:
    async with by_sdk(Canned(sse(*SAID)), Canned(sse(*CHAT))) as (_, one, two):
        for sdk in (one, two):
            items = await collect(sdk, request_of(model=MODEL))
            assert items[:3] == ["Hel", "lo", Text("Hello")]
            assert isinstance(items[3], ToolUse)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, {"error": {"type": "invalid_request_error", "message": "bad field"}}, BadRequest),
        (
            400,
            {
                "error": {
                    "type": "invalid_request_error",
                    "message": "prompt is too long: 9 tokens > 8 maximum",
                }
            },
            PromptTooLong,
        ),
        (401, {"error": {"type": "authentication_error", "message": f"bad {KEY}"}}, KeyRefused),
        (403, {"error": {"type": "permission_error", "message": "no"}}, KeyRefused),
        (404, {"error": {"type": "not_found_error", "message": "model: x"}}, ModelNotFound),
        (413, {"error": {"type": "request_too_large", "message": "too big"}}, PromptTooLong),
        (422, {"detail": "odd"}, BadRequest),
        (429, {"error": {"type": "rate_limit_error", "message": "slow down"}}, RateLimited),
        (500, {"error": {"type": "api_error", "message": "broke"}}, Overloaded),
        (503, None, Overloaded),
        (529, {"error": {"type": "overloaded_error", "message": "busy"}}, Overloaded),
    ],
)
async def test_every_refusal_goes_through_the_same_map(
    status: int, body: Any, expected: type[ModelFailure]
) -> None:
    refused = json_body(body, status, **{"retry-after": "3"})
    async with by_sdk(refused) as (server, one, two):
        for sdk in (one, two):
            with pytest.raises(expected) as caught:
                await ask(sdk, request_of(model=MODEL))
            assert KEY not in str(caught.value)
            if expected in (RateLimited, Overloaded):
                assert caught.value.retry_after == 3.0
        assert len(server.asked) == 2, "the SDKs must not try again by themselves"


async def test_an_error_in_mid_stream_is_one_of_ours() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "busy now"}}
    chat = {"error": {"type": "server_error", "message": "busy now"}}
    script = (
        Canned(sse(started(), *text_block(0, "so far"), error)),
        Canned(sse(chunk({"content": "so far"}), chat)),
    )
    async with by_sdk(*script) as (_, one, two):
        for sdk in (one, two):
            items: list[Any] = []
            with pytest.raises(Overloaded, match="busy now"):
                await collect(sdk, request_of(model=MODEL), items)
            assert items[0] == "so far"


@pytest.mark.parametrize("canned", [{"cut": True}, {"framing": "close"}, {}])
async def test_a_cut_stream_is_unreachable(canned: dict[str, Any]) -> None:
    script = (Canned(sse(*SAID[:-2]), **canned), Canned(sse(*CHAT[:2]), **canned))
    async with by_sdk(*script) as (_, one, two):
        for sdk in (one, two):
            with pytest.raises(Unreachable, match="cut"):
                await ask(sdk, request_of(model=MODEL))


async def test_an_event_that_is_not_json_is_a_bad_reply() -> None:
    odd = Canned(sse(started()) + b"event: content_block_start\ndata: {nope\n\n")
    async with by_sdk(odd, Canned(sse(CHAT[0], "{nope"))) as (_, one, two):
        for sdk in (one, two):
            with pytest.raises(BadReply):
                await ask(sdk, request_of(model=MODEL))


async def test_a_port_where_nothing_listens_is_unreachable() -> None:
    async with by_sdk(Canned()) as (_, one, two):
        pass
    first = anthropic.AsyncAnthropic(api_key=KEY, base_url="http://127.0.0.1:9")
    second = openai.AsyncOpenAI(api_key=KEY, base_url="http://127.0.0.1:9/v1")
    async with first, second:
        for sdk in (AnthropicSdk(first, MODEL), OpenAiSdk(second, "m")):
            with pytest.raises(Unreachable, match="nothing listens at 127"):
                await ask(sdk, request_of(model=MODEL))
    assert one.name == MODEL
    assert two.capabilities.window == 200_000


async def test_a_client_without_credentials_is_told_so() -> None:
    async with serving(Canned()) as server:
        client = anthropic.AsyncAnthropic(base_url=server.url, api_key="x")
        client.api_key = None
        async with client:
            with pytest.raises(KeyRefused, match="no credentials"):
                await ask(AnthropicSdk(client, MODEL), request_of(model=MODEL))


async def test_leaving_early_leaves_nothing_open() -> None:
    async with by_sdk(Canned(sse(*SAID)), Canned(sse(*CHAT))) as (_, one, two):
        for sdk in (one, two):
            stream = sdk.stream(request_of(model=MODEL))
            assert await anext(stream) == "Hel"
            await stream.aclose()


async def test_the_siblings_of_the_clients_take_the_same_road() -> None:
    script = (Canned(sse(*SAID)), Canned(sse(*CHAT)))
    async with serving(*script) as server:
        vertex = anthropic.AsyncAnthropicVertex(
            access_token="t", project_id="p", region="r", base_url=server.url
        )
        azure = openai.AsyncAzureOpenAI(api_key=KEY, azure_endpoint=server.url, api_version="2026-01-01")
        async with vertex, azure:
            for sdk in (AnthropicSdk(vertex, MODEL), OpenAiSdk(azure, "gpt-5")):
                reply = await ask(sdk, request_of(model=MODEL))
                assert reply.message.text == "Hello"
    first, second = server.asked
    assert first.target.endswith(f"/models/{MODEL}:streamRawPredict")
    assert first.json["messages"][0]["content"][0]["text"] == "hello"
    assert "model" not in first.json
    assert second.target.startswith(f"/openai/deployments/{MODEL}/chat/completions")
    assert second.headers["api-key"] == KEY
