"""Rich conversations and every converter between our messages and a wire, for the golden files.

Run as a program, it writes the files of `golden/` anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from models.asking import TOOL, request_of, view_of

from sevenfold.context.anthropic import AnthropicFormat
from sevenfold.context.formats import CallerRequest, WireFormat, WrittenMessages
from sevenfold.context.openai import OpenAiFormat
from sevenfold.core.errors import SevenfoldError
from sevenfold.core.messages import (
    Block,
    Document,
    Image,
    Json,
    Message,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    assistant,
    user,
)
from sevenfold.core.request import Frame, Request
from sevenfold.core.transcript import Pin, Transcript
from sevenfold.models import anthropic_wire, openai_wire
from sevenfold.models.anthropic import map_anthropic_error
from sevenfold.models.anthropic_stream import AnthropicAssembly
from sevenfold.models.failures import ProviderInfo
from sevenfold.models.openai import map_openai_error
from sevenfold.models.openai_stream import OpenAiAssembly
from sevenfold.models.sse import SseParser
from sevenfold.offline import encode_reply, parse_body
from sevenfold.recordings.codex import CodexReader
from sevenfold.recordings.messages import MessagesReader
from sevenfold.simulator import Api, ApiOutcome
from sevenfold.simulator.chat_completions import ChatCompletions, to_messages_request
from sevenfold.simulator.server import ManualClock, iterate_chat_events, iterate_message_events

GOLDEN = Path(__file__).parent / "golden"
PNG = {"type": "base64", "media_type": "image/png", "data": "aGk="}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
PLAIN = {"type": "text", "media_type": "text/plain", "data": "a plain document"}
URL = {"type": "url", "url": "https://example.org/a.png"}
OPAQUE = Opaque("server_tool_use", '{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}')
LONG_ID = "toolu_" + "x" * 60
ODD: Json = {
    "s": 'a "quoted" \n line',
    "n": 1.5,
    "big": 2**60,
    "none": None,
    "list": [1, {"k": "ü"}],
    "": "",
}

CONVERSATION = (
    user("What is in README.md? 你好 🙂"),
    Message(
        "assistant",
        (
            Thinking("I should look.", "sig-1"),
            RedactedThinking("encrypted"),
            Thinking("nobody signed this"),
            Text("I look."),
            ToolUse("toolu_1", "Read", {"file_path": "README.md"}),
            ToolUse(LONG_ID, "Grep", ODD, {"caller": {"type": "direct"}}),
            ToolUse("toolu_3", "Empty", {}),
        ),
    ),
    Message(
        "user",
        (
            ToolResult("toolu_1", "# Title\n"),
            ToolResult(LONG_ID, (Text("two"), Image(PNG), Text("parts"), Document(PLAIN)), True),
            ToolResult("toolu_3", (), False, {"note": 1}),
            Text("and this", {"citations": None}),
            Image(URL),
            Image({"type": "file", "file_id": "f1"}),
            Document(PDF, {"title": "paper"}),
            Document(PLAIN),
        ),
    ),
    assistant(OPAQUE, Text("  "), Text("Done.", {"citations": [{"url": "u"}]})),
    Message("user", (ToolResult("toolu_gone", ""), OPAQUE)),
    assistant(Thinking("only thinking", "sig-2")),
    Message("user", (Text("first"), Text("second"))),
    assistant(ToolUse("u9", "Bash", {"command": "ls"}), Text("after the call")),
    Message("user", (ToolResult("u9", (Image(PNG),)), Text("   "))),
)
PARAMS: tuple[Json, ...] = (
    {},
    {
        "temperature": 0.5,
        "effort": "high",
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    },
    {
        "thinking": {"type": "enabled", "budget_tokens": 2_000},
        "tool_choice": {"type": "tool", "name": "Read"},
    },
    {"output_config": {"effort": "low", "format": "x"}, "tool_choice": "auto", "betas": ["b-1"]},
    {"context_management": {"edits": [{"type": "compact_20260112"}]}, "tool_choice": {"type": "none"}},
    {"compaction": {"type": "x"}, "tool_choice": {"type": "function", "function": {"name": "f"}}},
)


def requests() -> list[Request]:
    server_tool = {"type": "web_search_20250305", "name": "web_search"}
    marked = {**TOOL, "name": "Marked", "cache_control": {"type": "ephemeral"}}
    out = [
        request_of(*CONVERSATION, params=params, tools=tools, max_tokens=most, breakpoints=(0, 3, 5, 8))
        for params, tools, most in zip(
            PARAMS,
            [(TOOL,), (TOOL, server_tool), (TOOL, marked), (), (TOOL,), (marked,)],
            [0, 1_000, 1_500, 100, 0, 7],
            strict=True,
        )
    ]
    out.append(request_of("hello", model="openai:gpt-5", max_tokens=9, ttl="1h", breakpoints=(0,)))
    out.append(request_of("hello", model="anthropic:claude-opus-4-6[1m]", system_ttl="1h", tools=(marked,)))
    transcript = Transcript(lambda: 0.0)
    for message in CONVERSATION:
        transcript.add(message, by="model" if message.role == "assistant" else "user")
    transcript.add(Pin(2, {"type": "cache_edits", "delete": ["toolu_1", "toolu_unknown"]}))
    out.append(Request(Frame("claude-sonnet-4-5", ("one", "", "two")), transcript.view, breakpoints=(2, 8)))
    return out


CALLS: list[Any] = [
    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1, "b": "\\u00fc"}'}},
    {"id": "c2", "type": "function", "function": {"name": "f", "arguments": ""}},
    {"id": "c3", "type": "function", "function": {"name": "f", "arguments": None}},
    {"id": "c4", "type": "function", "function": {"name": "f"}},
    {"id": "c5", "type": "function", "function": {"name": "f", "arguments": "{broken"}},
    {"id": "c6", "type": "function", "function": {"name": "f", "arguments": "[1, 2]"}},
    {"id": "c7", "type": "function", "function": {"name": "f", "arguments": '"text"'}},
    {"id": "c8", "type": "function", "function": {"name": "f", "arguments": {"already": "an object"}}},
    {"id": "c9", "type": "function", "function": {"name": "f", "arguments": 5}},
    {"id": "c10", "type": "function", "function": {"name": "f", "arguments": '{"half": "\\ud83d"}'}},
    {"id": "c11", "type": "function", "function": {"name": "f", "arguments": '{"nan": NaN}'}},
    {"id": "c12", "type": "custom", "custom": {"name": "grammar", "input": "free text"}},
    {"id": None, "function": {"name": "f", "arguments": "   "}},
    {"id": "c14", "function": {"arguments": "{}"}},
    {"id": "c15"},
    "not an object",
]
PARTS: list[Any] = [
    {"type": "text", "text": "a text"},
    {"type": "text", "text": ""},
    {"type": "text"},
    {"type": "refusal", "refusal": "no"},
    {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
    {"type": "image_url", "image_url": {}},
    {"type": "input_image", "image_url": "https://example.org/a.png"},
    {"type": "input_text", "text": "in"},
    {"type": "output_text", "text": "out"},
    {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
    {"type": "file", "file": {"file_id": "f"}},
    {"type": "tool_result", "tool_use_id": "c1", "content": "inside"},
    "a bare text",
    "",
    7,
]
CHAT: list[Json] = [
    {"role": "system", "content": "rules"},
    {"role": "developer", "content": [{"type": "text", "text": "more rules"}]},
    {"role": "user", "content": "hello"},
    {"role": "user", "content": PARTS[:2] + PARTS[4:5]},
    {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": CALLS[:3]},
    {"role": "tool", "tool_call_id": "c1", "content": "result"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "a"}, PARTS[0]]},
    {"role": "tool", "tool_call_id": "c3", "content": ""},
    {"role": "assistant", "content": "said", "refusal": "not that", "audio": {"id": "x"}},
    {"role": "assistant", "content": "", "function_call": {"name": "old", "arguments": '{"a": 1}'}},
    {"role": "function", "name": "old", "content": "of old"},
    {"role": "assistant", "content": [{"type": "text", "text": "parts"}], "reasoning": "r"},
    {"role": "system", "content": "in between"},
    {"role": "user", "content": []},
    {"role": "user"},
    *({"role": "assistant", "content": None, "tool_calls": [call]} for call in CALLS),
    *({"role": "user", "content": [part]} for part in PARTS),
    {"role": "assistant", "tool_calls": [{**CALLS[0], "id": f"q{n}"} for n in range(len(PARTS))]},
    *({"role": "tool", "tool_call_id": f"q{n}", "content": [part]} for n, part in enumerate(PARTS)),
    {"role": "tool", "content": "no id"},
    {"role": "user", "content": 5},
    {"role": "robot", "content": "x"},
]
BLOCKS: list[Any] = [
    {"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}},
    {"type": "text", "text": "t", "citations": [1]},
    {"type": "text"},
    {"type": "thinking", "thinking": "t", "signature": "s"},
    {"type": "thinking", "thinking": "t"},
    {"type": "redacted_thinking", "data": "d"},
    {"type": "tool_use", "id": "u", "name": "n", "input": ODD},
    {"type": "tool_use", "id": "u", "name": "n", "input": "not an object"},
    {"type": "tool_use", "id": 3, "name": "n", "input": {}},
    {"type": "tool_result", "tool_use_id": "u"},
    {"type": "tool_result", "tool_use_id": "u", "content": "x", "is_error": True},
    {
        "type": "tool_result",
        "tool_use_id": "u",
        "content": [{"type": "image", "source": PNG}, {"type": "new"}],
    },
    {"type": "tool_result", "tool_use_id": "u", "content": None, "is_error": None},
    {"type": "tool_result"},
    {"type": "image", "source": PNG, "cache_control": {"type": "ephemeral"}},
    {"type": "document", "source": PDF, "title": "t"},
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}},
    {"type": "compaction", "content": "summary"},
    {"no": "type"},
]
MESSAGES: list[Json] = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": BLOCKS[:9]},
    {"role": "user", "content": BLOCKS[9:]},
    {"role": "system", "content": "in between"},
    {"role": "user", "content": []},
    {"role": "user"},
    {"role": "robot", "content": "x"},
    {"role": "user", "content": ["a bare text"]},
    *({"role": "user", "content": [block]} for block in BLOCKS),
]


def tell(value: Any) -> Any:
    """A result as JSON: bytes as text, values of ours with their tags."""
    return msgspec.to_builtins(value, enc_hook=lambda v: bytes(v).decode("utf-8", "backslashreplace"))


def attempt(call: Callable[..., Any], *given: Any) -> Any:
    """What it returns, or our error that it raises."""
    try:
        return tell(call(*given))
    except SevenfoldError as error:
        return f"{type(error).__name__}: {error}"


# --- ours to the wire ---------------------------------------------------------------------------------


def anthropic_bodies() -> Any:
    asked = {"previous_message_id": "msg_0"}
    bodies = [anthropic_wire.encode_body(request).decode() for request in requests()]
    betas = [anthropic_wire.collect_betas(request.frame) for request in requests()]
    return {
        "bodies": bodies,
        "betas": betas,
        "asks": anthropic_wire.encode_body(requests()[0], diagnostics=asked).decode(),
    }


def openai_bodies() -> Any:
    return {
        "bodies": [openai_wire.encode_body(request).decode() for request in requests()],
        "official": [openai_wire.encode_body(request, official=True).decode() for request in requests()],
        "messages": [openai_wire.encode_message(message).decode() for message in CONVERSATION],
    }


# --- a caller's dicts -----------------------------------------------------------------------------------


def told_by(format: WireFormat, messages: list[Json]) -> Any:
    """Each message as it is read, and written again with its results shown otherwise."""
    out = []
    for message in messages:
        read = attempt(format.decode_message, message, "messages[0]")
        out.append([message, read, attempt(rewrite, format, message)])
    return out


def rewrite(format: WireFormat, message: Json) -> Any:
    before = format.decode_message(message, "messages[0]").blocks
    after: list[Block | None] = []
    for block in before:
        if isinstance(block, ToolResult):
            after.append(msgspec.structs.replace(block, content="(cleared)"))
        else:
            after.append(None if isinstance(block, Thinking) else block)
    return format.rewrite_message(message, before, after)


def caller_request(format: WireFormat, asked: CallerRequest, written: list[Json]) -> Any:
    frame = format.make_frame(asked, "1h")
    view = view_of(*CONVERSATION[: len(written)])
    request = Request(frame, view, breakpoints=(0, 1, 2), max_tokens=50)
    ends = WrittenMessages([*written], range(1, len(written) + 1))
    return {"frame": tell(frame), "request": tell(format.make_request(asked, request, ends, 4_096))}


def context_anthropic() -> Any:
    format = AnthropicFormat()
    tools = [{"name": "f", "input_schema": {}, "cache_control": {"type": "ephemeral"}}, {"name": "g"}]
    system = [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": " "},
    ]
    manage = {"context_management": {"edits": []}, "temperature": 1, "thinking": {"type": "adaptive"}}
    written = [{"role": "user", "content": "hello"}, *MESSAGES[1:3]]
    asked = [
        CallerRequest("claude-sonnet-5", (), "be brief", tools, {"betas": ["x"]}),
        CallerRequest("claude-sonnet-5[1m]", (), system, None, manage),
        CallerRequest(
            "anthropic:claude-opus-4-5", (), None, (), {"extra_headers": {"Anthropic-Beta": "a, b"}}
        ),
    ]
    replies: list[Json] = [
        {
            "id": "msg_1",
            "content": BLOCKS[:9],
            "usage": {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 5},
            "stop_reason": "tool_use",
            "model": "m",
            "context_management": {"applied_edits": [{"type": "e"}]},
        },
        {"content": []},
        {"content": "text"},
        {"choices": []},
    ]
    return {
        "spoken": told_by(format, MESSAGES),
        "told": [tell(format.encode_message(message)) for message in CONVERSATION],
        "requests": [caller_request(format, one, written) for one in asked],
        "replies": [tell(format.decode_reply(reply)) for reply in replies],
        "tool": format.encode_tool(TOOL),
    }


def context_openai() -> Any:
    format = OpenAiFormat()
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
    tools = [{"type": "function", "function": function}, {"type": "custom", "custom": {"name": "g"}}]
    asked = [
        CallerRequest("gpt-5", tuple(CHAT[:2]), "be brief", tools, {"temperature": 1}),
        CallerRequest("openai:gpt-4o", (), None, None, {"response_format": {"type": "json_object"}}),
    ]
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    said = [CHAT[4], CHAT[8], *({"content": None, "tool_calls": [call]} for call in CALLS), None]
    replies: list[Json] = [
        {"id": "x", "model": "m", "usage": usage, "choices": [{"message": one, "finish_reason": stop}]}
        for one in said
        for stop in ("stop", "length")
    ]
    return {
        "leading": [format.count_leading(CHAT), format.count_leading(CHAT[2:]), format.count_leading([])],
        "spoken": told_by(format, CHAT),
        "told": [tell(format.encode_message(message)) for message in CONVERSATION],
        "requests": [caller_request(format, one, CHAT[2:5]) for one in asked],
        "replies": [attempt(format.decode_reply, reply) for reply in [*replies, {"choices": []}]],
        "tool": format.encode_tool(TOOL),
    }


# --- recorded sessions ----------------------------------------------------------------------------------


def recorded() -> Any:
    usages: list[Json] = [
        {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
        {
            "input_tokens": 3,
            "output_tokens": 4,
            "cache_read_input_tokens": 5,
            "cache_creation_input_tokens": 6,
        },
        {"input_tokens": "odd"},
    ]
    charged = [{"role": "assistant", "content": "x", "usage": usage} for usage in usages]
    mixed = [{"role": "user", "content": BLOCKS}, {"role": "assistant", "content": BLOCKS, "model": "m"}]
    lines = b"\n".join(msgspec.json.encode(message) for message in [*CHAT, *charged, *mixed])
    whole = msgspec.json.encode({"model": "gpt-4o", "messages": CHAT[:12]})
    codex: list[Json] = [
        {"type": "session_meta", "payload": {"id": "s", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/p"}},
        {"type": "response_item", "payload": {"type": "message", "role": "user", "content": PARTS}},
        *(
            {
                "type": "response_item",
                "payload": {"type": "function_call", "name": "f", "call_id": f"c{n}", **given},
            }
            for n, given in enumerate(
                [{"arguments": '{"a": 1}'}, {"arguments": "{broken"}, {"arguments": ""}, {}]
            )
        ),
        {
            "type": "response_item",
            "payload": {"type": "function_call_output", "call_id": "c0", "output": "x"},
        },
    ]
    rollout = b"\n".join(
        msgspec.json.encode({"timestamp": "2026-01-01T00:00:00Z", **record}) for record in codex
    )
    return {
        "lines": tell(MessagesReader().read(lines)),
        "whole": tell(MessagesReader().read(whole)),
        "codex": tell(CodexReader().read(rollout)),
    }


# --- the simulator --------------------------------------------------------------------------------------


def chat_bodies() -> list[Json]:
    """Bodies that the API takes: every call is answered, and no value has a wrong type."""
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    bodies: list[Json] = [
        {"messages": CHAT[:8], "tools": [{"type": "function", "function": function}, {"type": "custom"}]},
        {"messages": CHAT[8:13], "stop": "x", "max_tokens": 5, "tool_choice": "required"},
        {
            "messages": CHAT[:3],
            "stop": ["a"],
            "max_completion_tokens": 6,
            "stream": True,
            "tool_choice": "none",
        },
        {"messages": CHAT[:3], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"messages": [CHAT[2], {"role": "user", "content": PARTS[:5]}]},
        {"messages": [CHAT[2], CHAT[3]], "tool_choice": "auto"},
    ]
    for call in CALLS[:7] + CALLS[9:11]:
        answer = {"role": "tool", "tool_call_id": call["id"], "content": [PARTS[0], PARTS[4]]}
        bodies.append({"messages": [CHAT[2], {"role": "assistant", "tool_calls": [call]}, answer]})
    return [{"model": "gpt-4o", **body} for body in bodies]


def simulated() -> Any:
    content = [BLOCKS[1], BLOCKS[3], {"type": "tool_use", "name": "n", "input": ODD}]
    api = Api(
        ManualClock(), replies=lambda body: [*content, {"type": "tool_use", "name": "e", "input": {}}]
    )
    chat, out = ChatCompletions(api), []
    for body in chat_bodies():
        pending = chat.prepare(body)
        outcome = (
            pending if isinstance(pending, ApiOutcome) else chat.finish(pending, chat.reply_to(pending))
        )
        streamed = [
            b"".join(iterate_chat_events(outcome.body, include_usage=usage)).decode()
            for usage in (True, False)
            if outcome.status == 200
        ]
        out.append([outcome.status, tell(outcome.body), streamed])
    message: Json = {
        "id": "msg_1",
        "content": [*BLOCKS[1:2], *BLOCKS[3:4], *BLOCKS[5:7], *BLOCKS[16:18]],
        "usage": {"input_tokens": 9, "output_tokens": 4, "service_tier": "standard"},
        "stop_reason": "end_turn",
        "stop_sequence": None,
    }
    refused = [CALLS[7], CALLS[8], "not an object"]  # before anything is converted
    well_formed = [
        message
        for message in CHAT
        if message.get("content") != 5 and not any(c in refused for c in message.get("tool_calls", ()))
    ]
    events = [message, {**message, "context_management": {"applied_edits": []}}]
    return {
        "requests": [tell(to_messages_request(body)) for body in chat_bodies()],
        "odd": [tell(to_messages_request({"model": "m", "messages": [m]})) for m in well_formed],
        "completions": out,
        "events": [b"".join(iterate_message_events(one)).decode() for one in events],
    }


# --- the offline engine ---------------------------------------------------------------------------------


def offline_wire() -> Any:
    read = {"name": "Read", "description": "Reads.", "input_schema": {"type": "object"}}
    bodies: list[Json] = [
        {"messages": [*MESSAGES, {"role": "user", "content": "What is in README.md?"}]},
        {"messages": CHAT, "system": "be brief", "tools": [read, {"name": "D", "defer_loading": True}, {}]},
        {
            "messages": MESSAGES[:1],
            "system": [{"type": "text", "text": "a"}],
            "tool_choice": {"type": "none"},
        },
        {"messages": MESSAGES[:1], "tools": [read], "tool_choice": {"type": "any"}, "max_tokens": 50},
        {"messages": [{"role": "user", "content": "Read README.md"}], "tools": [read]},
        {},
    ]
    return [{"parsed": tell(parse_body(body)), "reply": encode_reply(body)} for body in bodies]


# --- streams --------------------------------------------------------------------------------------------


def sse_of(records: list[Any], named: bool) -> bytes:
    out = b""
    for record in records:
        if named:
            out += f"event: {record['type']}\n".encode()
        out += b"data: " + msgspec.json.encode(record) + b"\r\n\r\n"
    return out if named else out + b"data: [DONE]\n\n"


def streams() -> Any:
    who = ProviderInfo("the server", "host", "KEY", "URL", True)
    started: Json = {
        "type": "message_start",
        "message": {"id": "m1", "model": "m", "usage": {"input_tokens": 3}},
    }
    deltas: list[Json] = [
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "hel"},
        {"type": "text_delta", "text": "lo"},
        {"type": "thinking", "thinking": ""},
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "sig"},
        {"type": "tool_use", "id": "u", "name": "n", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"a": '},
        {"type": "input_json_delta", "partial_json": '"\\u00fc"}'},
        {"type": "brand_new", "x": [1.50]},
    ]
    records, index = [started], -1
    for delta in deltas:
        if str(delta["type"]).endswith("_delta"):
            records.append({"type": "content_block_delta", "index": index, "delta": delta})
            continue
        if index >= 0:
            records.append({"type": "content_block_stop", "index": index})
        index += 1
        records.append({"type": "content_block_start", "index": index, "content_block": delta})
    records += [
        {"type": "content_block_stop", "index": index},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]
    first = AnthropicAssembly(who, map_anthropic_error, "m")
    given = [first.feed(event) for event in SseParser().feed(sse_of(records, True))]
    out: Json = {"anthropic": [tell(given), tell(first.reply("req"))], "openai": []}
    for call in CALLS[:12]:
        function = call.get("function") or {}
        chunks: list[Json] = [
            {"id": "c", "choices": [{"delta": {"role": "assistant", "reasoning_content": "hm"}}]},
            {"choices": [{"delta": {"content": "hello"}}]},
            {
                "choices": [
                    {"delta": {"tool_calls": [{"index": 0, "id": call["id"], "function": function}]}}
                ]
            },
            {"choices": [{"delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}},
        ]
        second = OpenAiAssembly(who, map_openai_error, view_of(user("x")), "m")
        wire = SseParser().feed(sse_of(chunks, False))
        fed = attempt(lambda feed, events: [feed(event) for event in events], second.feed, wire)
        end = attempt(second.finish)
        out["openai"].append([fed, end, tell(second.reply("req"))])
    return out


CONVERTERS: dict[str, Callable[[], Any]] = {
    "anthropic_bodies": anthropic_bodies,
    "openai_bodies": openai_bodies,
    "context_anthropic": context_anthropic,
    "context_openai": context_openai,
    "recorded": recorded,
    "simulated": simulated,
    "offline_wire": offline_wire,
    "streams": streams,
}


def write_golden(name: str) -> str:
    """The text of a golden file. Floats and the order of fields are part of it."""
    return json.dumps(CONVERTERS[name](), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name in CONVERTERS:
        (GOLDEN / f"{name}.json").write_text(write_golden(name), encoding="utf-8")
