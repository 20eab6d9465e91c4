"""The bytes of a request in the Messages format, and the cache marks in them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.asking import TOOL, remove_cache_marks, request_of, view_of
from models.drawing import OPAQUE, conversations, frames

from sevenfold.core.messages import (
    Block,
    Document,
    Image,
    Message,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    assistant,
    user,
)
from sevenfold.core.request import Frame, Request, encode_view
from sevenfold.core.transcript import Pin, Transcript
from sevenfold.models.anthropic_wire import collect_betas, encode_body

EPHEMERAL = {"type": "ephemeral"}


def sent(request: Request, **fields: Any) -> Any:
    return json.loads(encode_body(request, **fields))


def marked(value: Any) -> int:
    return json.dumps(value).count('"cache_control"')


def test_a_request_has_the_shape_that_the_provider_documents() -> None:
    request = request_of("hi", params={"temperature": 1, "metadata": {"user_id": "u"}})
    assert remove_cache_marks(sent(request)) == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 64_000,
        "stream": True,
        "temperature": 1,
        "metadata": {"user_id": "u"},
        "tools": [TOOL],
        "system": [{"type": "text", "text": "static"}, {"type": "text", "text": "of this session"}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    }


def test_what_is_not_there_is_not_sent() -> None:
    request = request_of("hi", system=("", "  "), tools=(), params={"tool_choice": {"type": "any"}})
    assert set(sent(request)) == {"model", "max_tokens", "stream", "messages"}


def test_no_parameter_can_take_the_place_of_the_conversation() -> None:
    request = request_of("hi", params={"messages": [], "system": "x", "stream": False, "model": "y"})
    out = sent(request)
    assert out["messages"]
    assert (out["stream"], out["model"]) == (True, "claude-sonnet-4-5")
    assert encode_body(request).count(b'"messages"') == 1


@pytest.mark.parametrize(
    ("asked", "thinking", "expected"),
    [
        (0, None, 64_000),
        (8_000, None, 8_000),
        (900_000, None, 64_000),
        (8_000, {"type": "enabled", "budget_tokens": 4_000}, 8_000),
        (8_000, {"type": "enabled", "budget_tokens": 10_000}, 18_000),
        (60_000, {"type": "enabled", "budget_tokens": 62_000}, 64_000),
        (8_000, {"type": "adaptive"}, 8_000),
    ],
)
def test_the_reply_has_room_beside_the_thinking(asked: int, thinking: Any, expected: int) -> None:
    params = {"thinking": thinking} if thinking else {}
    assert sent(request_of("hi", params=params, max_tokens=asked))["max_tokens"] == expected


def test_effort_goes_into_the_output_settings() -> None:
    assert sent(request_of("hi", params={"effort": "high"}))["output_config"] == {"effort": "high"}
    both = {"effort": "low", "output_config": {"format": {"type": "json_schema"}}}
    assert sent(request_of("hi", params=both))["output_config"] == {
        "format": {"type": "json_schema"},
        "effort": "low",
    }


@pytest.mark.parametrize(
    ("model", "params", "expected"),
    [
        ("claude-opus-4-5", {}, []),
        ("claude-opus-4-5", {"betas": ["b", "a", "b"]}, ["b", "a"]),
        ("claude-opus-4-5[1m]", {}, ["context-1m-2025-08-07"]),
        (
            "claude-opus-4-6",
            {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
            ["context-management-2025-06-27"],
        ),
        (
            "claude-opus-4-6",
            {"context_management": {"edits": [{"type": "compact_20260112"}]}},
            ["context-management-2025-06-27", "compact-2026-01-12"],
        ),
        ("claude-opus-5-5", {"compaction": {"type": "summarize"}}, ["compact-2026-09-04"]),
        (
            "claude-opus-5-5",
            {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}},
            ["thinking-binding-controls-2026-08-01"],
        ),
    ],
)
def test_each_feature_brings_its_beta_header(
    model: str, params: dict[str, Any], expected: list[str]
) -> None:
    assert collect_betas(Frame(model, params=params)) == expected
    assert "betas" not in sent(request_of("hi", model=model, params=params))


# --- marks --------------------------------------------------------------------------------------------


def test_first_and_last_part_of_the_system_and_the_last_message_are_marked() -> None:
    request = request_of("hi", system=("a", "b", "c"), breakpoints=(0,))
    out = sent(request)
    assert ["cache_control" in part for part in out["system"]] == [True, False, True]
    assert out["messages"][0]["content"][0]["cache_control"] == EPHEMERAL
    assert marked(out) == 3


def test_a_system_of_one_part_has_one_mark() -> None:
    assert marked(sent(request_of("hi", system=("a",)))) == 1
    assert marked(sent(request_of("hi", system=()))) == 0


def test_an_hour_is_asked_for_in_every_mark() -> None:
    out = sent(request_of("hi", ttl="1h", breakpoints=(0,)))
    assert json.dumps(out).count('{"type": "ephemeral", "ttl": "1h"}') == 3


def test_what_stands_before_the_messages_may_be_kept_longer_and_never_shorter() -> None:
    hour = {"type": "ephemeral", "ttl": "1h"}
    out = sent(request_of("hi", system_ttl="1h", breakpoints=(0,)))
    assert [part["cache_control"] for part in out["system"]] == [hour, hour]
    assert out["messages"][0]["content"][0]["cache_control"] == EPHEMERAL

    out = sent(request_of("hi", ttl="1h", system_ttl="5m", breakpoints=(0,)))
    assert [part["cache_control"] for part in out["system"]] == [hour, hour]


def test_a_mark_on_a_tool_is_kept_as_long_as_what_stands_behind_it() -> None:
    marked_tool = {**TOOL, "cache_control": EPHEMERAL}
    hour = {"type": "ephemeral", "ttl": "1h"}
    out = sent(request_of("hi", tools=(marked_tool, TOOL), system_ttl="1h"))
    assert [tool.get("cache_control") for tool in out["tools"]] == [hour, None]
    out = sent(request_of("hi", tools=(marked_tool, TOOL)))
    assert [tool.get("cache_control") for tool in out["tools"]] == [EPHEMERAL, None]


def test_there_are_never_more_than_four_marks_and_the_static_one_goes_first() -> None:
    said = [user(str(i)) for i in range(6)]
    three = sent(request_of(*said, breakpoints=(1, 3, 5)))
    assert ["cache_control" in part for part in three["system"]] == [False, True]
    assert marked(three) == 4
    five = sent(request_of(*said, breakpoints=(0, 1, 2, 3, 5)))
    assert [marked(m) for m in five["messages"]] == [0, 0, 1, 1, 0, 1]
    assert marked(five) == 4


def test_marks_of_the_users_own_are_counted() -> None:
    tool = {**TOOL, "cache_control": EPHEMERAL}
    out = sent(request_of("a", "b", "c", tools=(tool,), breakpoints=(0, 1, 2)))
    assert marked(out) == 4
    automatic = sent(request_of("a", params={"cache_control": EPHEMERAL}, breakpoints=(0,)))
    assert marked(automatic) == 4


@pytest.mark.parametrize(
    ("blocks", "at"),
    [
        ((Text("a"), Text("b")), 1),
        ((Text("a"), Text("")), 0),
        ((Text("a"), Text(" \n")), 0),
        ((Text("ä"), Thinking("hm", "s"), RedactedThinking("r"), OPAQUE), 0),
        ((Thinking("hm", "s"), ToolUse("t", "n", {"a": "}]}"})), 1),
        ((Image({"type": "url", "url": "u"}), Thinking("x", "y")), 0),
        ((Document({"type": "url", "url": "u"}),), 0),
        ((ToolResult("t", "out"), ToolResult("u", (Text("x"),))), 1),
    ],
)
def test_a_mark_goes_on_the_last_block_that_may_carry_one(blocks: tuple[Block, ...], at: int) -> None:
    message = Message("user", blocks)
    out = sent(request_of(message, breakpoints=(0,)))["messages"][0]["content"]
    assert [i for i, b in enumerate(out) if "cache_control" in b] == [at]
    plain = sent(request_of(message))["messages"][0]["content"]
    assert remove_cache_marks(out) == plain


def test_a_message_that_cannot_be_marked_leaves_its_mark_to_the_one_before() -> None:
    request = request_of("hi", assistant(Thinking("hm", "s"), OPAQUE), breakpoints=(1,))
    assert [marked(m) for m in sent(request)["messages"]] == [1, 0]
    alone = request_of(assistant(OPAQUE), breakpoints=(0,))
    assert marked(sent(alone)["messages"]) == 0


def test_a_mark_for_a_message_that_has_left_the_view_is_forgotten() -> None:
    assert marked(sent(request_of("hi", breakpoints=(77,)))["messages"]) == 0


def test_a_pin_is_a_user_message_after_its_own_and_carries_no_mark() -> None:
    transcript = Transcript(lambda: 0.0)
    transcript.add(Message("user", (ToolResult("t", "read"),)), user("two"))
    edits = {"type": "cache_edits", "delete": ["t"]}
    transcript.add(Pin(0, edits), Pin(1, edits), Pin(0, edits))
    request = Request(Frame("claude-opus-4-5"), transcript.view, breakpoints=(0,))
    out = sent(request)["messages"]
    assert [m["content"][0]["type"] for m in out] == [
        "tool_result",
        "cache_edits",
        "cache_edits",
        "text",
        "cache_edits",
    ]
    assert {m["role"] for m in out} == {"user"}
    assert [marked(m) for m in out] == [1, 0, 0, 0, 0]


def test_a_deletion_names_only_results_that_are_still_there() -> None:
    """A compaction may have taken some of them; a provider refuses what it does not know."""
    transcript = Transcript(lambda: 0.0)
    transcript.add(Message("user", (ToolResult("here", "read"),)), user("two"))
    transcript.add(Pin(0, {"type": "cache_edits", "delete": ["gone", "here"]}))
    transcript.add(Pin(1, {"type": "cache_edits", "delete": ["gone"]}))
    out = sent(Request(Frame("claude-opus-4-5"), transcript.view))["messages"]
    assert [m["content"][0]["type"] for m in out] == ["tool_result", "cache_edits", "text"]
    assert out[1]["content"][0]["delete"] == ["here"]


def test_diagnostics_stand_behind_the_messages() -> None:
    asked = {"previous_message_id": None}
    request = request_of("hi")
    assert sent(request, diagnostics=asked)["diagnostics"] == asked
    assert encode_body(request, diagnostics=asked).startswith(encode_body(request)[:-1])


# --- the bytes are ours -------------------------------------------------------------------------------


def test_kept_bytes_are_sent_and_never_written_again() -> None:
    request = request_of("one", "two")
    known = encode_view(request.view)
    known[0] = b'{"role":"user","content":[{"type":"text","text":"kept as it was"}]}'
    assert sent(request)["messages"][0]["content"][0]["text"] == "kept as it was"


def test_blocks_we_do_not_know_are_sent_as_the_bytes_they_came_in() -> None:
    assert OPAQUE.raw.encode() in encode_body(request_of(assistant(OPAQUE), breakpoints=(0,)))


def canonical(request: Request) -> tuple[str, list[str]]:
    """Everything before the messages, and each message: without marks, as canonical JSON."""
    value = remove_cache_marks(sent(request))
    said = value.pop("messages")
    write = msgspec.json.Encoder(order="deterministic").encode
    return write(value).decode(), [write(m).decode() for m in said]


@given(frames, conversations, conversations, st.data())
def test_a_longer_conversation_extends_the_request_before_it(
    frame: Frame, before: list[Message], more: list[Message], data: st.DataObject
) -> None:
    transcript = Transcript(lambda: 0.0)
    transcript.add(*before)
    places = st.lists(st.integers(0, 12), max_size=5).map(tuple)
    first = Request(frame, transcript.view, breakpoints=data.draw(places))
    head, said = canonical(first)
    transcript.add(*more)
    second = Request(frame, transcript.view, breakpoints=data.draw(places))
    later_head, later = canonical(second)
    assert later_head == head
    assert later[: len(said)] == said
    assert len(later) == len(before) + len(more)
    unmarked = encode_body(Request(Frame(frame.model, (), frame.tools, frame.params), first.view))
    extended = encode_body(Request(Frame(frame.model, (), frame.tools, frame.params), second.view))
    assert extended.startswith(unmarked.removesuffix(b"]}"))


@given(frames, conversations, st.lists(st.integers(0, 6), max_size=6))
def test_marks_never_change_what_is_said_nor_are_there_more_than_four(
    frame: Frame, said: list[Message], places: list[int]
) -> None:
    request = Request(frame, view_of(*said), breakpoints=tuple(places))
    with_marks, without = sent(request), remove_cache_marks(sent(Request(frame, request.view)))
    assert remove_cache_marks(with_marks) == without
    assert marked(with_marks) <= 4
