"""Chat completions over a real socket, with the habits of the servers that speak this format."""

from __future__ import annotations

from typing import Any

import pytest
from models.asking import KEY, ask, call, chunk, collect, counted, openai, request_of
from models.served import Canned, json_body, serving, sse

from sevenfold.core.errors import BadReply, BadRequest, Overloaded, PromptTooLong, Unreachable
from sevenfold.core.messages import Message, Text, Thinking, ToolResult, ToolUse, assistant
from sevenfold.core.request import Request
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply

pytestmark = pytest.mark.anyio
DONE = "[DONE]"


async def streamed(*events: Any, request: Request | None = None, **canned: Any) -> list[Any]:
    async with serving(Canned(sse(*events), **canned)) as server:
        return await collect(openai(server), request or request_of())


def uses(items: list[Any]) -> list[ToolUse]:
    return [item for item in items if isinstance(item, ToolUse)]


async def test_text_comes_in_pieces_then_as_a_block_then_in_the_reply() -> None:
    items = await streamed(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk(finish="stop"),
        counted(100, 5, prompt_tokens_details={"cached_tokens": 64}),
        DONE,
        headers={"x-request-id": "req_3"},
    )
    assert items[:3] == ["Hel", "lo", Text("Hello")]
    assert items[3] == Reply(
        assistant(Text("Hello")),
        Usage(input=36, cache_read=64, output=5),
        "end_turn",
        model="served",
        diagnostics={"request_id": "req_3", "message_id": "chatcmpl-1"},
    )


async def test_the_request_goes_to_the_right_place_with_the_key_in_its_header() -> None:
    async with serving(Canned(sse(chunk({"content": "x"}, "stop"), DONE))) as server:
        await collect(openai(server), request_of(model="openai:qwen", source="fork"))
        await ask(openai(server, openai_key=""))
    first, second = server.asked
    assert first.target == "/v1/chat/completions"
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert first.headers["x-sevenfold-source"] == "fork"
    assert first.json["model"] == "qwen"
    assert "authorization" not in second.headers


async def test_calls_are_put_together_by_their_index() -> None:
    items = await streamed(
        chunk({"content": "I look."}),
        chunk(call("", index=0, id="a", name="Read")),
        chunk(call('{"p"', index=0)),
        chunk(call(": 1}", index=0)),
        chunk(call('{"p": 2}', index=1, id="b", name="Write")),
        chunk(finish="tool_calls"),
        DONE,
    )
    assert items[:4] == [
        "I look.",
        Text("I look."),
        ToolUse("a", "Read", {"p": 1}),
        ToolUse("b", "Write", {"p": 2}),
    ]
    assert items[-1].stop == "tool_use"


async def test_a_call_is_handed_out_when_the_next_begins() -> None:
    events = [
        chunk(call("{}", index=0, id="a", name="Read")),
        chunk(call("", index=1, id="b", name="Read")),
    ]
    async with serving(Canned(sse(*events), framing="close")) as server:
        items: list[Any] = []
        with pytest.raises(Unreachable):
            await collect(openai(server), request_of(), items)
    assert items == [ToolUse("a", "Read", {})]


async def test_a_server_that_gives_every_call_the_index_nought_is_understood() -> None:
    items = await streamed(
        chunk(call('{"n": 1}', index=0, id="a", name="Read")),
        chunk(call('{"n": 2}', index=0, id="b", name="Read")),
        chunk(finish="stop"),
        DONE,
    )
    assert uses(items) == [ToolUse("a", "Read", {"n": 1}), ToolUse("b", "Read", {"n": 2})]
    assert items[-1].stop == "tool_use"


async def test_calls_without_index_and_without_id_are_told_apart() -> None:
    items = await streamed(
        chunk(call({"n": 1}, index=None, id="", name="Read")),
        chunk(call({"n": 2}, index=None, id="", name="Read")),
        chunk(finish="tool_calls"),
        DONE,
    )
    assert [use.input for use in uses(items)] == [{"n": 1}, {"n": 2}]
    assert len({use.id for use in uses(items)}) == 2


async def test_calls_that_come_together_in_one_piece_are_told_apart() -> None:
    both = {"tool_calls": [*call("{}", id="a", name="R", index=None)["tool_calls"]] * 1}
    both["tool_calls"] += call('{"x": 1}', id="b", name="W", index=None)["tool_calls"]
    items = await streamed(chunk(both), chunk(finish="tool_calls"), DONE)
    assert uses(items) == [ToolUse("a", "R", {}), ToolUse("b", "W", {"x": 1})]


async def test_name_and_id_repeated_in_every_piece_make_one_call() -> None:
    items = await streamed(
        chunk(call('{"a"', id="x", name="Read")),
        chunk(call(": 1", id="x", name="Read")),
        chunk(call("}", id="x", name="Read")),
        chunk(finish="tool_calls"),
        DONE,
    )
    assert uses(items) == [ToolUse("x", "Read", {"a": 1})]


async def test_missing_and_repeated_ids_become_unique_and_always_the_same() -> None:
    earlier: list[Message | str] = [
        "look",
        assistant(ToolUse("call_0", "Read", {})),
        Message("user", (ToolResult("call_0", "x"),)),
    ]
    events = [
        chunk(call("{}", index=0, id="call_0", name="Read")),
        chunk(call("{}", index=1, id="", name="Read")),
        chunk(call("{}", index=2, id="twice", name="Read")),
        chunk(call("{}", index=3, id="twice", name="Read")),
        chunk(finish="tool_calls"),
        DONE,
    ]
    items = await streamed(*events, request=request_of(*earlier))
    ids = [use.id for use in uses(items)]
    assert ids == ["call_3_0", "call_3_1", "twice", "call_3_3"]
    again = await streamed(*events, request=request_of(*earlier))
    assert [use.id for use in uses(again)] == ids


async def test_a_call_without_arguments_is_called_with_nothing() -> None:
    items = await streamed(chunk(call(None, id="a", name="Read")), chunk(finish="tool_calls"), DONE)
    assert uses(items) == [ToolUse("a", "Read", {})]


@pytest.mark.parametrize("written", ["", '{"pa', None])
async def test_a_call_cut_at_the_length_limit_is_dropped(written: str | None) -> None:
    items = await streamed(
        chunk({"content": "I"}), chunk(call(written, id="a", name="Read")), chunk(finish="length"), DONE
    )
    assert items[-1].message.content == (Text("I"),)
    assert items[-1].stop == "max_tokens"


@pytest.mark.parametrize("written", ['{"pa', "[1]", "no"])
async def test_arguments_that_are_no_object_are_a_bad_reply(written: str) -> None:
    with pytest.raises(BadReply, match="Read"):
        await streamed(chunk(call(written, id="a", name="Read")), chunk(finish="tool_calls"), DONE)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_becomes_thinking_without_a_signature(field: str) -> None:
    items = await streamed(
        chunk({field: "hm "}), chunk({field: "so", "content": ""}), chunk({"content": "Yes."}, "stop"), DONE
    )
    assert items[:3] == [Thinking("hm so"), "Yes.", Text("Yes.")]


async def test_content_in_parts_is_read() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    parts = [thought, {"type": "text", "text": "Yes."}]
    items = await streamed(chunk({"content": parts}, "stop"), DONE)
    assert items[:3] == [Thinking("hm"), "Yes.", Text("Yes.")]


async def test_words_after_a_call_are_a_block_of_their_own() -> None:
    items = await streamed(
        chunk({"content": "a"}),
        chunk(call("{}", id="x", name="Read")),
        chunk({"reasoning": "hm"}),
        chunk({"content": "b"}),
        chunk(finish="stop"),
        DONE,
    )
    blocks = (Text("a"), ToolUse("x", "Read", {}), Thinking("hm"), Text("b"))
    assert items[-1].message.content == blocks


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("something_new", "end_turn"),
    ],
)
async def test_why_it_stopped_is_said_in_our_words(finish: str, stop: str) -> None:
    assert (await streamed(chunk({"content": "x"}, finish), DONE))[-1].stop == stop


async def test_a_refusal_is_text_and_a_refusal() -> None:
    items = await streamed(chunk({"refusal": "I will not."}), chunk(finish="stop"), DONE)
    assert items[0] == "I will not."
    assert items[-1].stop == "refusal"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ({"prompt_tokens": 10, "completion_tokens": 2}, Usage(input=10, output=2)),
        ({"prompt_tokens": 10, "prompt_tokens_details": None}, Usage(input=10)),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 4}, Usage(input=6, cache_read=4)),
        ({"prompt_tokens": 10, "cached_tokens": 4}, Usage(input=6, cache_read=4)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 99}}, Usage(cache_read=10)),
        (
            {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 5}},
            Usage(input=2, cache_read=3, cache_write=5),
        ),
        ("lots", Usage()),
    ],
)
async def test_usage_is_read_where_there_is_some(usage: Any, expected: Usage) -> None:
    last = {**chunk(), "choices": [], "usage": usage}
    assert (await streamed(chunk({"content": "x"}, "stop"), last, DONE))[-1].usage == expected
    beside = chunk({"content": "x"}, "stop", usage=usage)
    assert (await streamed(beside, DONE))[-1].usage == expected


async def test_an_end_without_done_is_an_end_when_it_was_said_why() -> None:
    items = await streamed(chunk({"content": "x"}, "stop"), framing="close")
    assert items[-1].message.text == "x"


async def test_a_stream_that_just_ends_was_cut() -> None:
    for canned in ({"framing": "close"}, {"cut": True}, {}):
        with pytest.raises(Unreachable, match="cut"):
            await streamed(chunk({"content": "x"}), **canned)
    with pytest.raises(Unreachable, match="cut"):
        await streamed(chunk({"content": "x"}), DONE)


async def test_a_completion_that_is_not_streamed_is_taken_too() -> None:
    function = {"name": "Read", "arguments": '{"p": 1}'}
    message = {
        "role": "assistant",
        "content": "Hi",
        "tool_calls": [{"id": "a", "type": "function", "function": function}],
    }
    whole = {
        "id": "c",
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    async with serving(json_body(whole)) as server:
        items = await collect(openai(server), request_of())
    assert items[:3] == ["Hi", Text("Hi"), ToolUse("a", "Read", {"p": 1})]
    assert isinstance(items[3], Reply)
    assert items[3].usage == Usage(input=3, output=4)


async def test_chunks_without_choices_and_comments_are_passed_over() -> None:
    filtered: dict[str, Any] = {"choices": [], "prompt_filter_results": []}
    body = b": keep-alive\n\n" + sse(filtered, chunk({"content": "x"}, "stop"), DONE)
    async with serving(Canned(body)) as server:
        assert (await ask(openai(server))).message.text == "x"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"message": "The server is busy", "type": "server_error"}, Overloaded),
        ({"message": "maximum context length is 10 tokens", "code": 400}, PromptTooLong),
        ({"message": "bad image", "type": "BadRequestError", "code": 400}, BadRequest),
        ("out of memory", Overloaded),
    ],
)
async def test_an_error_in_mid_stream_is_one_of_ours(error: Any, expected: type[Exception]) -> None:
    async with serving(Canned(sse(chunk({"content": "so far"}), {"error": error}))) as server:
        items: list[Any] = []
        with pytest.raises(expected):
            await collect(openai(server), request_of(), items)
    assert items == ["so far"]


async def test_the_error_field_of_older_servers_is_an_error() -> None:
    body = sse(chunk({"content": "x"})) + b'error: {"code": 500, "message": "slot broke"}\n\n'
    async with serving(Canned(body)) as server:
        with pytest.raises(Overloaded, match="slot broke"):
            await ask(openai(server))


@pytest.mark.parametrize(
    "events",
    [
        ["not json"],
        ["[]"],
        [{"choices": 7}],
        [{"choices": ["no"]}],
        [chunk({"tool_calls": 4})],
        [chunk({"tool_calls": [4]})],
        [
            chunk(call("{}", index=0, id="a", name="R")),
            chunk(call("{}", index=1, id="b", name="R")),
            chunk(call("x", index=0)),
        ],
        [chunk(call("{}", id="a")), chunk(finish="tool_calls"), DONE],
    ],
)
async def test_what_is_not_the_protocol_is_a_bad_reply(events: list[Any]) -> None:
    with pytest.raises(BadReply):
        await streamed(*events)


async def test_json_that_is_no_reply_is_a_bad_reply() -> None:
    async with serving(json_body({"object": "list", "data": []})) as server:
        with pytest.raises(BadReply, match="OPENAI_BASE_URL"):
            await ask(openai(server))


async def test_blank_text_is_no_block() -> None:
    items = await streamed(
        chunk({"content": "\n"}), chunk(call("{}", id="a", name="R")), chunk(finish="tool_calls"), DONE
    )
    assert items[-1].message.content == (ToolUse("a", "R", {}),)


async def test_one_connection_serves_many_requests() -> None:
    async with serving(Canned(sse(chunk({"content": "x"}, "stop"), DONE))) as server:
        model = openai(server)
        for _ in range(3):
            await ask(model)
        assert (len(server.asked), server.connections) == (3, 1)
