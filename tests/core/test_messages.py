"""Blocks to and from the wire: what we know is understood, what we do not know is kept."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sevenfold.core.messages import (
    Block,
    Document,
    Image,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    encode_block,
    make_wire_message,
    parse_block,
    parse_message,
    user,
)

PAIRS: list[tuple[dict[str, Any], Block]] = [
    ({"type": "text", "text": "hi"}, Text("hi")),
    ({"type": "thinking", "thinking": "hm", "signature": "s"}, Thinking("hm", "s")),
    ({"type": "redacted_thinking", "data": "x"}, RedactedThinking("x")),
    (
        {"type": "tool_use", "id": "1", "name": "Read", "input": {"a": [1.5, None]}},
        ToolUse("1", "Read", {"a": [1.5, None]}),
    ),
    ({"type": "tool_result", "tool_use_id": "1", "content": "ok"}, ToolResult("1", "ok")),
    (
        {"type": "tool_result", "tool_use_id": "1", "content": "no", "is_error": True},
        ToolResult("1", "no", True),
    ),
    (
        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "a"}]},
        ToolResult("1", (Text("a"),)),
    ),
    ({"type": "image", "source": {"type": "base64"}}, Image({"type": "base64"})),
    ({"type": "document", "source": {}, "title": "t"}, Document({}, {"title": "t"})),
    (
        {"type": "tool_use", "id": "1", "name": "Read", "input": {}, "caller": {"type": "direct"}},
        ToolUse("1", "Read", {}, {"caller": {"type": "direct"}}),
    ),
]


@pytest.mark.parametrize(("wire", "block"), PAIRS)
def test_a_known_block_is_understood_and_sent_back_as_it_came(wire: dict[str, Any], block: Block) -> None:
    assert parse_block(wire) == block
    assert parse_block(msgspec.json.encode(wire)) == block
    assert encode_block(block) == wire


@pytest.mark.parametrize(
    "wire",
    [
        {"type": "tool_use", "id": 5, "name": "Read", "input": {}},
        {"type": "tool_result", "tool_use_id": 5, "content": [{"type": "text", "text": "a"}]},
        {"type": "text"},
        {"type": "server_tool_use", "id": "1"},
        {"no": "type"},
        "just a text",
        [1, 2],
        None,
    ],
)
def test_what_has_no_shape_we_know_is_kept_as_it_is(wire: Any) -> None:
    block = parse_block(msgspec.json.encode(wire))

    assert isinstance(block, Opaque)
    assert msgspec.json.decode(block.raw) == wire
    assert isinstance(parse_block(wire), Opaque)


def test_a_null_is_as_good_as_nothing() -> None:
    wire = {"type": "tool_result", "tool_use_id": "1", "content": "ok", "is_error": None}
    assert parse_block(wire) == ToolResult("1", "ok")
    assert parse_block({**wire, "content": None}) == ToolResult("1", "")


def test_odd_things_inside_a_result_are_kept() -> None:
    wire = {"type": "tool_result", "tool_use_id": "1", "content": ["text", {"type": "new"}]}
    assert parse_block(wire) == ToolResult("1", (Opaque("", '"text"'), Opaque("new", '{"type":"new"}')))


def test_cache_marks_are_not_part_of_what_was_said() -> None:
    marked = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    assert parse_block(marked) == Text("hi")


def test_content_may_be_a_text_a_list_or_bytes() -> None:
    assert parse_message("user", "hi") == user("hi")
    assert parse_message("user", [{"type": "text", "text": "hi"}]) == user("hi")
    assert parse_message("user", b'[{"type":"text","text":"hi"}]') == user("hi")
    assert make_wire_message(user("hi"))["content"] == [{"type": "text", "text": "hi"}]


def test_half_a_character_becomes_a_question_mark() -> None:
    assert user("a\ud800b").text == "a?b"
