"""Replies in the Messages format, streamed over a real socket."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import anyio
import pytest
from models.asking import (
    KEY,
    anthropic,
    ask,
    block,
    collect,
    ended,
    replied,
    request_of,
    started,
    text_block,
    use_block,
)
from models.served import Canned, json_body, serving, sse

from sevenfold.core.errors import BadReply, BadRequest, Overloaded, PromptTooLong, Unreachable
from sevenfold.core.messages import Opaque, RedactedThinking, Text, Thinking, ToolUse, encode_block
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply
from sevenfold.models.jsontext import decode_json

pytestmark = pytest.mark.anyio


async def streamed(*events: Any, more: bytes = b"", **canned: Any) -> list[Any]:
    async with serving(Canned(sse(*events) + more, **canned)) as server:
        return await collect(anthropic(server), request_of())


async def test_text_comes_in_pieces_then_as_a_block_then_in_the_reply() -> None:
    items = await streamed(*replied(text_block(0, "Hel", "lo")), headers={"request-id": "req_9"})
    assert items[:3] == ["Hel", "lo", Text("Hello")]
    reply = items[3]
    assert isinstance(reply, Reply)
    assert (reply.message.text, reply.stop, reply.model) == ("Hello", "end_turn", "claude-served")
    assert reply.diagnostics == {"request_id": "req_9", "message_id": "msg_1"}


async def test_a_stream_cut_into_single_bytes_reads_the_same() -> None:
    events = replied(text_block(0, "Größe ", "🙂"), use_block(1, '{"file"', ': "a"}'), stop="tool_use")
    assert await streamed(*events, piece=1) == await streamed(*events)


async def test_every_usage_field_is_counted_and_the_last_word_wins() -> None:
    first = started(
        input_tokens=10,
        cache_creation_input_tokens=300,
        cache_read_input_tokens=2_000,
        cache_creation={"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 100},
    )
    last = {"output_tokens": 55, "input_tokens": 12, "cache_read_input_tokens": None}
    items = await streamed(first, *text_block(0, "x"), *ended(usage=last))
    usage = Usage(input=12, cache_write=300, cache_read=2_000, output=55, cache_write_1h=100)
    assert items[-1].usage == usage


async def test_odd_usage_counts_as_nothing() -> None:
    items = await streamed(
        started(input_tokens="many", cache_read_input_tokens=-4, cache_creation="x"),
        *text_block(0, "x"),
        *ended(output=3),
    )
    assert items[-1].usage == Usage(output=3)


async def test_thinking_keeps_its_signature_and_is_not_streamed_as_text() -> None:
    items = await streamed(
        *replied(
            block(
                0,
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "hm "},
                {"type": "thinking_delta", "thinking": "yes", "estimated_tokens": 3},
                {"type": "signature_delta", "signature": "c2ln"},
            ),
            block(1, {"type": "redacted_thinking", "data": "abc"}),
            text_block(2, "So."),
        )
    )
    assert items[:4] == [Thinking("hm yes", "c2ln"), RedactedThinking("abc"), "So.", Text("So.")]


async def test_a_tool_use_is_whole_when_its_block_ends() -> None:
    items = await streamed(
        *replied(use_block(0, "", '{"path": "a', '.py"}'), text_block(1, "ok"), stop="tool_use")
    )
    assert items[0] == ToolUse("toolu_1", "Read", {"path": "a.py"})
    assert items[-1].stop == "tool_use"


async def test_a_tool_without_input_is_called_with_nothing() -> None:
    items = await streamed(*replied(use_block(0), stop="tool_use"))
    assert items[0] == ToolUse("toolu_1", "Read", {})


async def test_a_tool_use_cut_before_its_input_came_is_not_called() -> None:
    items = await streamed(*replied(text_block(0, "I read"), use_block(1), stop="max_tokens"))
    assert items[-1].message.content == (Text("I read"),)
    assert not any(isinstance(item, ToolUse) for item in items)


async def test_half_an_input_is_dropped_when_the_reply_was_cut_at_its_length() -> None:
    items = await streamed(*replied(text_block(0, "x"), use_block(1, '{"pa'), stop="max_tokens"))
    assert items[-1].message.content == (Text("x"),)
    assert items[-1].stop == "max_tokens"


@pytest.mark.parametrize("written", ['{"pa', "[1, 2]", "nothing", '"text"'])
async def test_an_input_that_is_no_object_is_a_bad_reply(written: str) -> None:
    with pytest.raises(BadReply, match="Read"):
        await streamed(*replied(use_block(0, written), stop="tool_use"))


async def test_unknown_fields_of_known_blocks_ride_along() -> None:
    citation = {"type": "char_location", "cited_text": "x"}
    items = await streamed(
        *replied(
            block(
                0,
                {"type": "text", "text": "", "citations": []},
                {"type": "text_delta", "text": "said"},
                {"type": "citations_delta", "citation": citation},
            ),
            block(1, {"type": "tool_use", "id": "t", "name": "n", "input": {}, "caller": {"a": 1}}),
            stop="tool_use",
        )
    )
    assert items[1] == Text("said", extra={"citations": [citation]})
    assert items[2] == ToolUse("t", "n", {}, extra={"caller": {"a": 1}})


async def test_an_unknown_block_keeps_its_very_bytes() -> None:
    raw = '{"type": "web_search_tool_result", "n": 1.50, "content": [{"u":"\\u00e9"}]}'
    start = f'{{"type": "content_block_start", "index": 0, "content_block": {raw}}}'
    stop = {"type": "content_block_stop", "index": 0}
    items = await streamed(started(), start, stop, *ended(), framing="chunked")
    assert items[0] == Opaque("web_search_tool_result", raw)


async def test_an_unknown_block_is_merged_with_its_deltas() -> None:
    items = await streamed(
        *replied(
            block(
                0,
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                {"type": "input_json_delta", "partial_json": '{"query":'},
                {"type": "input_json_delta", "partial_json": '"x"}'},
            ),
            block(
                1,
                {"type": "compaction", "content": None},
                {"type": "compaction_delta", "content": "all ", "encrypted_content": None},
                {"type": "compaction_delta", "content": "of it", "encrypted_content": "e"},
            ),
            block(2, {"type": "new", "list": [1]}, {"type": "new_delta", "list": [2], "n": 3}),
            stop="pause_turn",
        )
    )
    told = [decode_json(bytes(encode_block(item))) for item in items[:3]]  # type: ignore[arg-type]
    assert told == [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
        {"type": "compaction", "content": "all of it", "encrypted_content": "e"},
        {"type": "new", "list": [1, 2], "n": 3},
    ]
    assert items[-1].stop == "pause_turn"


async def test_pings_and_events_invented_later_are_passed_over() -> None:
    events = replied(text_block(0, "x"))
    odd = [{"type": "ping"}, {"type": "sparkle", "index": 0, "delta": 4}]
    assert await streamed(events[0], *odd, *events[1:]) == await streamed(*events)


async def test_blank_text_is_no_block() -> None:
    items = await streamed(*replied(text_block(0, "\n\n"), text_block(1), use_block(2, "{}")))
    assert items[-1].message.content == (ToolUse("toolu_1", "Read", {}),)


async def test_context_edits_and_other_notes_are_in_the_reply() -> None:
    edit = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8, "cleared_input_tokens": 50_000}
    head = started()
    head["message"]["diagnostics"] = {"cache_miss_reason": {"type": "tools_changed"}}
    tail = ended(
        context_management={"applied_edits": [edit]},
        delta={"stop_reason": "refusal", "stop_details": {"type": "refusal"}},
        usage={"output_tokens": 2, "iterations": [{"type": "message"}]},
    )
    reply = (await streamed(head, *text_block(0, "x"), *tail))[-1]
    assert reply.applied == (edit,)
    assert reply.stop == "refusal"
    assert reply.diagnostics["cache_miss_reason"] == {"type": "tools_changed"}
    assert reply.diagnostics["stop_details"] == {"type": "refusal"}
    assert reply.diagnostics["iterations"] == [{"type": "message"}]


async def test_a_reply_that_is_not_streamed_is_taken_too() -> None:
    message = {
        "id": "msg_2",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "t", "name": "Read", "input": {"p": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    async with serving(json_body(message)) as server:
        items = await collect(anthropic(server), request_of())
    assert items[:3] == ["Hi", Text("Hi"), ToolUse("t", "Read", {"p": 1})]
    assert isinstance(items[3], Reply)
    assert (items[3].stop, items[3].usage) == ("tool_use", Usage(input=3, output=4))


async def test_a_server_that_forgets_to_close_a_block_is_understood() -> None:
    opened = text_block(0, "Hi")[:-1]
    items = await streamed(started(), *opened, *ended())
    assert items[-1].message.text == "Hi"


async def test_without_a_stop_reason_the_blocks_say_why_it_stopped() -> None:
    assert (await streamed(*replied(use_block(0, "{}"), stop=None)))[-1].stop == "tool_use"
    assert (await streamed(*replied(text_block(0, "x"), stop=None)))[-1].stop == "end_turn"


async def test_half_characters_become_whole_ones() -> None:
    raw = '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\\ud83d"}}'
    opened, _, closed = text_block(0, "x")
    items = await streamed(started(), opened, raw, closed, *ended())
    items[-1].message.text.encode("utf-8")
    assert items[-1].message.text.startswith("a")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("overloaded_error", Overloaded),
        ("api_error", Overloaded),
        ("invalid_request_error", BadRequest),
        ("brand_new_error", Overloaded),
    ],
)
async def test_an_error_in_mid_stream_is_one_of_ours(kind: str, expected: type[Exception]) -> None:
    error = {"type": "error", "error": {"type": kind, "message": "Something happened"}}
    async with serving(Canned(sse(started(), *text_block(0, "so far"), error))) as server:
        items: list[Any] = []
        with pytest.raises(expected, match="Something happened"):
            await collect(anthropic(server), request_of(), items)
    assert items == ["so far", Text("so far")]


async def test_an_error_event_without_the_usual_envelope_is_an_error_still() -> None:
    with pytest.raises(Overloaded, match="No room"):
        await streamed(started(), more=b'event: error\ndata: {"message": "No room"}\n\n')


async def test_an_error_that_comes_with_200_is_an_error_still() -> None:
    said = {"error": {"code": 400, "type": "exceed_context_size_error", "message": "the request exceeds"}}
    said["error"] |= {"n_prompt_tokens": 14_429, "n_ctx": 8_192}
    async with serving(json_body(said)) as server:
        with pytest.raises(PromptTooLong) as caught:
            await ask(anthropic(server))
    assert (caught.value.tokens, caught.value.limit) == (14_429, 8_192)


@pytest.mark.parametrize(
    "events",
    [
        ["not json at all"],
        ["[1, 2]"],
        ["{}}"],
        [started(), "{"],
        [started(), {"type": "content_block_delta", "index": 4, "delta": {"type": "text_delta"}}],
        [started(), {"type": "content_block_start", "index": 0, "content_block": 7}],
        [{"type": "message_start", "message": "no"}],
        [started(), {"type": "message_delta", "delta": [], "usage": 7}],
        ["[" * 100_000],
    ],
)
async def test_what_is_not_the_protocol_is_a_bad_reply(events: list[Any]) -> None:
    with pytest.raises(BadReply, match=r"127\.0\.0\.1"):
        await streamed(*events)


async def test_json_that_is_no_reply_and_a_web_page_are_bad_replies() -> None:
    for canned in (
        json_body({"hello": "world"}),
        json_body({"content": [1]}),
        Canned(b"{broken", kind="application/json"),
        Canned(b"<!doctype html><p>Log in</p>", kind="text/html"),
    ):
        async with serving(canned) as server:
            with pytest.raises(BadReply) as caught:
                await ask(anthropic(server))
            assert caught.value.retryable == (canned.body == b"{broken")


async def test_a_stream_that_just_ends_was_cut() -> None:
    events = replied(text_block(0, "x"))
    for framing in ("chunked", "close"):
        with pytest.raises(Unreachable, match="cut"):
            await streamed(*events[:-1], framing=framing)
    with pytest.raises(Unreachable, match="cut"):
        await streamed(*events[:-1], cut=True)
    with pytest.raises(Unreachable, match="cut"):
        await streamed()


async def test_one_connection_serves_many_requests() -> None:
    async with serving(Canned(sse(*replied(text_block(0, "x"))))) as server:
        model = anthropic(server)
        for _ in range(3):
            await ask(model)
        assert (len(server.asked), server.connections) == (3, 1)


async def test_a_closed_model_can_be_asked_again() -> None:
    async with serving(Canned(sse(*replied(text_block(0, "x"))))) as server:
        model = anthropic(server)
        await ask(model)
        await model.close()
        await model.close()
        assert (await ask(model)).message.text == "x"


async def test_leaving_a_stream_early_leaves_nothing_open() -> None:
    async with serving(Canned(sse(*replied(text_block(0, "a", "b", "c"))))) as server:
        model = anthropic(server)
        stream = model.stream(request_of())
        assert await anext(stream) == "a"
        await stream.aclose()
        assert (await ask(model)).message.text == "abc"


async def test_a_cancelled_stream_ends_at_once_and_the_model_goes_on() -> None:
    slow = Canned(sse(*replied(text_block(0, "so far"))[:3]), hang=True)
    async with serving(slow, Canned(sse(*replied(text_block(0, "x"))))) as server:
        model = anthropic(server)
        items: list[Any] = []
        with anyio.CancelScope() as scope:
            async with aclosing(model.stream(request_of())) as stream:
                async for item in stream:
                    items.append(item)
                    scope.cancel()
        assert items == ["so far"]
        assert (await ask(model)).message.text == "x"


async def test_silence_longer_than_allowed_is_a_cut() -> None:
    slow = Canned(sse(*replied(text_block(0, "so far"))[:3]), hang=True)
    async with serving(slow) as server:
        with pytest.raises(Unreachable, match="silent"):
            await ask(anthropic(server, read_timeout=0.05))


async def test_a_server_that_keeps_the_line_open_after_the_end_is_not_waited_for() -> None:
    async with serving(Canned(sse(*replied(text_block(0, "x"))), hang=True)) as server:
        assert (await ask(anthropic(server))).message.text == "x"


async def test_many_requests_at_once_do_not_mix() -> None:
    script = [Canned(sse(*replied(text_block(0, str(i)))), piece=7) for i in range(8)]
    async with serving(*script) as server:
        model = anthropic(server)
        said: set[str] = set()

        async def one() -> None:
            said.add((await ask(model)).message.text)

        async with anyio.create_task_group() as tasks:
            for _ in script:
                tasks.start_soon(one)
    assert said == {str(i) for i in range(8)}


async def test_the_key_and_the_betas_go_into_headers_and_nothing_else() -> None:
    async with serving(Canned(sse(*replied(text_block(0, "x"))))) as server:
        model = anthropic(server, name="claude-sonnet-4-5[1m]", headers={"X-Team": "blue"})
        request = request_of(
            model="claude-sonnet-4-5[1m]",
            params={"betas": ["one"], "context_management": {"edits": [{"type": "compact_20260112"}]}},
            source="fork:notes",
        )
        await collect(model, request)
        await ask(anthropic(server, anthropic_token="t-1"))
    asked, other = server.asked
    assert asked.target == "/v1/messages"
    assert asked.headers["x-api-key"] == KEY
    assert asked.headers["anthropic-version"] == "2023-06-01"
    assert asked.headers["x-team"] == "blue"
    assert asked.headers["x-sevenfold-source"] == "fork:notes"
    assert asked.headers["anthropic-beta"] == (
        "one,context-1m-2025-08-07,context-management-2025-06-27,compact-2026-01-12"
    )
    assert asked.json["model"] == "claude-sonnet-4-5"
    assert KEY.encode() not in asked.body
    assert other.headers["authorization"] == "Bearer t-1"
    assert "x-api-key" not in other.headers


async def test_the_provider_is_asked_why_its_cache_missed_where_it_can_tell() -> None:
    async with serving(Canned(sse(*replied(text_block(0, "x"))))) as server:
        model = anthropic(server, diagnostics=True)
        for source in ("main", "main", "fork"):
            await collect(model, request_of(source=source))
        await ask(anthropic(server))
    asked = [one.json.get("diagnostics", "not asked") for one in server.asked]
    assert asked == [
        {"previous_message_id": None},
        {"previous_message_id": "msg_1"},
        {"previous_message_id": None},
        "not asked",
    ]
