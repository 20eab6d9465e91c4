"""The chat completions API on the same simulated provider."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from sevenfold.core.tokens import Usage
from sevenfold.models.openai_wire import decode_arguments, decode_tool, decode_tool_choice, encode_call
from sevenfold.simulator.cache import to_blocks
from sevenfold.simulator.errors import ApiError, Json, make_invalid_request
from sevenfold.simulator.openai_endpoint import (
    OpenAiEndpoint,
    PendingChat,
    convert_body,
    make_output_config,
)
from sevenfold.simulator.script import ScriptReply

FINISH: Final = {"tool_use": "tool_calls", "max_tokens": "length"}
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
"""Strict, as a provider is: what is not JSON by the letter stays a text."""


class ChatCompletions(OpenAiEndpoint):
    """Answers chat completions."""

    address = "/v1/chat/completions"

    def to_messages_request(self, body: Any, key: str) -> Json:
        _check(body)
        return to_messages_request(body)

    def encode_reply(self, pending: PendingChat, reply: ScriptReply, number: int, usage: Usage) -> Json:
        return _completion(pending, reply, f"chatcmpl-sim-{number:06d}", usage)


def _completion(pending: PendingChat, reply: ScriptReply, completion_id: str, usage: Usage) -> Json:
    texts = [b["text"] for b in reply.content if b["type"] == "text"]
    calls = [encode_call(b["id"], b["name"], b["input"]) for b in reply.content if b["type"] == "tool_use"]
    message: Json = {"role": "assistant", "content": "".join(texts) or None, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    finish = FINISH.get(reply.stop_reason or "", "stop")
    details: Json = {"cached_tokens": usage.cache_read, "audio_tokens": 0}
    if usage.cache_write:
        details["cache_write_tokens"] = usage.cache_write
    return {
        "id": completion_id,
        "object": "chat.completion",
        "created": int(pending.opened.at),
        "model": pending.model,
        "system_fingerprint": "fp_sim",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.output,
            "total_tokens": usage.total,
            "prompt_tokens_details": details,
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
            **reply.usage,
        },
    }


# --- the request -----------------------------------------------------------------------------------------


class _ChatFunction(msgspec.Struct):
    name: str = ""
    arguments: str | None = None
    parameters: dict[str, Any] | None = None


class _ChatCall(msgspec.Struct):
    id: str
    function: _ChatFunction | None = None


class _ChatImage(msgspec.Struct):
    url: str


class _ChatPart(msgspec.Struct):
    type: str
    text: str | None = None
    image_url: _ChatImage | None = None


class _ChatMessage(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[_ChatPart] | None = None
    tool_calls: list[_ChatCall] | None = None
    tool_call_id: str | None = None


class _ChatTool(msgspec.Struct):
    type: str = "function"
    function: _ChatFunction | None = None


class _ChatBody(msgspec.Struct):
    """The fields we read, and their types. Others may be anything."""

    model: str
    messages: Annotated[list[_ChatMessage], msgspec.Meta(min_length=1)]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    tools: list[_ChatTool] | None = None
    n: int | None = None


def _check(body: Any) -> None:
    checked = convert_body(body, _ChatBody)
    if checked.n not in (None, 1):
        said = f"Invalid value for 'n': {checked.n}. Only one choice is simulated: leave it out, or give 1."
        raise ApiError(400, said, param="n", code="unsupported_value")
    open_calls: list[str] = []
    for i, message in enumerate(checked.messages):
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                raise make_invalid_request(
                    f"Invalid parameter: messages[{i}] with role 'tool' must be a response to a "
                    "preceding message with 'tool_calls'."
                )
            open_calls.remove(message.tool_call_id)
            continue
        _all_answered(open_calls)
        open_calls = [call.id for call in message.tool_calls or ()]
    _all_answered(open_calls)


def _all_answered(open_calls: list[str]) -> None:
    if open_calls:
        raise make_invalid_request(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to "
            "each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(open_calls)
        )


def to_messages_request(body: Json) -> Json:
    """The same request as the Messages API would have it."""
    system: list[Json] = []
    messages: list[Json] = []
    for message in body["messages"]:
        role, blocks = _converted(message)
        if role == "system" and not messages:
            system.extend(blocks)
        elif messages and messages[-1]["role"] == role:
            messages[-1]["content"].extend(blocks)
        else:
            messages.append({"role": role, "content": blocks})
    stop = body.get("stop") or []
    return {
        "model": body["model"],
        "max_tokens": body.get("max_completion_tokens") or body.get("max_tokens"),
        "stop_sequences": [stop] if isinstance(stop, str) else stop,
        "stream": bool(body.get("stream")),
        "tools": [_tool(tool) for tool in body.get("tools") or () if isinstance(tool, dict)],
        "tool_choice": decode_tool_choice(body.get("tool_choice")),
        **make_output_config(_read_format(body.get("response_format")), "response_format"),
        "system": system,
        "messages": messages,
    }


def _read_format(given: Any) -> Any:
    """The format as the Messages API has it, without the name around its schema."""
    inner = given.get("json_schema") if isinstance(given, dict) else None
    return {**given, "schema": inner.get("schema")} if isinstance(inner, dict) else given


def _converted(message: Json) -> tuple[str, list[Json]]:
    role: str = message["role"]
    blocks = _parts(message.get("content"))
    if role == "tool":
        return "user", [
            {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": blocks}
        ]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        given = {"id": call.get("id"), "name": function.get("name", "")}
        input = decode_arguments(function.get("arguments"), decode=_decode_object)
        blocks.append({"type": "tool_use", **given, "input": input})
    return {"developer": "system", "function": "user"}.get(role, role), blocks


def _parts(content: Any) -> list[Json]:
    out = []
    for block in to_blocks(content):
        url = (block.get("image_url") or {}).get("url") if block["type"] == "image_url" else None
        out.append({"type": "image", "source": {"type": "url", "url": url}} if url else block)
    return out


def _tool(tool: Json) -> Json:
    function = tool.get("function")
    return decode_tool(function) if isinstance(function, dict) else tool
