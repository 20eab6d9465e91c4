"""The bytes of a request in the chat-completions format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from models.asking import TOOL, request_of
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
from sevenfold.core.transcript import Transcript
from sevenfold.models import ModelAccess
from sevenfold.models.openai import OpenAiModel
from sevenfold.models.openai_wire import encode_body, make_call_id

PNG = Image({"type": "base64", "media_type": "image/png", "data": "AAAA"})
SHOWN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def sent(*messages: Message | str, official: bool = False, **fields: Any) -> Any:
    fields.setdefault("model", "openai:m")
    return json.loads(encode_body(request_of(*messages, **fields), official=official))


def told(*messages: Message) -> Any:
    return sent(*messages, system=())["messages"]


def test_a_request_has_the_shape_that_the_provider_documents() -> None:
    function = {"name": "Read", "parameters": {"type": "object"}, "description": "Reads a file."}
    assert sent("hi", params={"temperature": 0}) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "tools": [{"type": "function", "function": function}],
        "messages": [
            {"role": "system", "content": "static\n\nof this session"},
            {"role": "user", "content": "hi"},
        ],
    }


def test_what_only_the_other_format_knows_is_left_out() -> None:
    params = {
        "betas": ["b"],
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": []},
        "effort": "high",
        "seed": 7,
    }
    out = sent("hi", params=params, tools=({"type": "web_search_20250305", "name": "w"},), system=("",))
    assert set(out) == {"model", "stream", "stream_options", "reasoning_effort", "seed", "messages"}
    assert out["reasoning_effort"] == "high"
    assert sent("hi", params={"output_config": {"effort": "low"}})["reasoning_effort"] == "low"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        (
            {"type": "tool", "name": "Read"},
            {"tool_choice": {"type": "function", "function": {"name": "Read"}}},
        ),
        ("required", {"tool_choice": "required"}),
        (
            {"type": "auto", "disable_parallel_tool_use": True},
            {"tool_choice": "auto", "parallel_tool_calls": False},
        ),
        (None, {}),
    ],
)
def test_how_tools_are_chosen_is_translated(choice: Any, expected: dict[str, Any]) -> None:
    out = sent("hi", params={"tool_choice": choice})
    assert {k: v for k, v in out.items() if k in ("tool_choice", "parallel_tool_calls")} == expected


@pytest.mark.parametrize(
    ("model", "official", "expected"),
    [
        ("openai:gpt-4o", True, "max_completion_tokens"),
        ("openai:gpt-5-mini", False, "max_completion_tokens"),
        ("openai:o3-mini", False, "max_completion_tokens"),
        ("openai:o4-mini-2025-04-16", False, "max_completion_tokens"),
        ("openai:llama3.1", False, "max_tokens"),
        ("openai:gpt-4o", False, "max_tokens"),
        ("openai:olmo", False, "max_tokens"),
        ("openai:gpt-oss-20b", False, "max_tokens"),
    ],
)
def test_the_limit_has_the_name_that_the_server_knows(model: str, official: bool, expected: str) -> None:
    out = sent("hi", model=model, official=official, max_tokens=77)
    assert {k: v for k, v in out.items() if "max" in k} == {expected: 77}


def test_without_a_limit_the_server_decides() -> None:
    assert not any("max" in key for key in sent("hi"))


def test_a_tool_loop_is_told_in_the_words_of_this_format() -> None:
    out = told(
        user("look"),
        assistant(
            Thinking("hm", "s"), Text("I look."), ToolUse("a", "Read", {"p": "é"}), ToolUse("b", "Read", {})
        ),
        Message("user", (ToolResult("a", "out"), ToolResult("b", "", True), Text("and?"))),
        assistant(Text("Done."), Text("Really.")),
    )
    calls = [
        {"id": "a", "type": "function", "function": {"name": "Read", "arguments": '{"p":"é"}'}},
        {"id": "b", "type": "function", "function": {"name": "Read", "arguments": "{}"}},
    ]
    assert out == [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "out"},
        {"role": "tool", "tool_call_id": "b", "content": "[failed] (no output)"},
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": "Done.\n\nReally."},
    ]


def test_a_call_without_words_has_no_content() -> None:
    (out,) = told(assistant(ToolUse("a", "Read", {})))
    assert out["content"] is None


def test_images_stand_in_user_messages_also_those_of_results() -> None:
    (said,) = told(Message("user", (Text("see"), PNG, Image({"type": "url", "url": "http://x"}))))
    assert said["content"] == [
        {"type": "text", "text": "see"},
        SHOWN,
        {"type": "image_url", "image_url": {"url": "http://x"}},
    ]
    results = (ToolResult("a", (PNG,)), ToolResult("b", (Text("with text"), PNG)), ToolResult("c", "x"))
    out = told(Message("user", results))
    assert [m["role"] for m in out] == ["tool", "tool", "tool", "user"]
    assert [m["content"] for m in out] == ["(see the image below)", "with text", "x", [SHOWN, SHOWN]]


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (Document({"type": "text", "media_type": "text/plain", "data": "its text"}), "its text"),
        (Document({"type": "base64", "media_type": "application/pdf", "data": "x"}), "application/pdf"),
        (Image({"type": "file", "file_id": "f"}), "an image that cannot be shown"),
        (OPAQUE, "'new'"),
    ],
)
def test_what_cannot_be_shown_is_named(block: Block, words: str) -> None:
    (out,) = told(Message("user", (block,)))
    assert words in out["content"]
    (inside,) = told(Message("user", (ToolResult("a", (block,)),)))[:1]
    assert inside["role"] == "tool"


def test_thinking_is_not_sent_back_and_a_message_of_nothing_else_is_not_sent_at_all() -> None:
    request = request_of("a", assistant(Thinking("hm"), RedactedThinking("x")), "b", system=(), model="m")
    assert [m["content"] for m in json.loads(encode_body(request))["messages"]] == ["a", "b"]


def test_a_long_id_is_shortened_the_same_way_for_call_and_result() -> None:
    long = "toolu_" + "x" * 60
    use, result = told(assistant(ToolUse(long, "Read", {})), Message("user", (ToolResult(long, "x"),)))
    assert use["tool_calls"][0]["id"] == result["tool_call_id"] == make_call_id(long)
    assert len(make_call_id(long)) <= 40
    assert make_call_id("short") == "short"


def test_kept_bytes_are_sent_and_never_written_again() -> None:
    request = request_of("one", system=())
    encode_body(request)
    encode_view(request.view, "chat")[0] = b'{"role":"user","content":"kept"}'
    assert json.loads(encode_body(request))["messages"] == [{"role": "user", "content": "kept"}]


@given(frames, conversations, conversations)
def test_a_longer_conversation_extends_the_bytes_before_it(
    frame: Frame, before: list[Message], more: list[Message]
) -> None:
    transcript = Transcript(lambda: 0.0)
    transcript.add(*before)
    first = encode_body(Request(frame, transcript.view))
    transcript.add(*more)
    second = encode_body(Request(frame, transcript.view))
    assert second.startswith(first.removesuffix(b"]}"))
    head, said = json.loads(first), json.loads(second)
    assert said["messages"][: len(head["messages"])] == head["messages"]
    assert len(frame.tools) == len(said.get("tools", ()))
    assert all(tool["function"]["name"] == TOOL["name"] for tool in said.get("tools", ()))


@pytest.mark.anyio
async def test_a_request_is_encoded_when_the_stream_is_read_and_not_before() -> None:
    model = OpenAiModel("openai:m", ModelAccess(openai_base_url="http://127.0.0.1:1/v1"))
    stream = model.stream(request_of(params={"odd": object()}))
    with pytest.raises(TypeError, match="type object"):
        await anext(stream)
