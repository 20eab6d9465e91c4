"""The chat-completions format: our messages as bytes that stay the same, and what is read of theirs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from sevenfold.core.errors import Mistake
from sevenfold.core.messages import (
    THOUGHTS,
    Block,
    Document,
    Image,
    Json,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from sevenfold.core.request import Frame, Request, encode_view
from sevenfold.core.tokens import Usage
from sevenfold.models.anthropic_wire import enclose_messages, to_whole_number
from sevenfold.models.capabilities import find_family, to_wire_name
from sevenfold.models.jsontext import decode_json_object

STOPS: Final = {
    "stop": "end_turn", "tool_calls": "tool_use", "function_call": "tool_use", "length": "max_tokens",
    "max_tokens": "max_tokens", "model_length": "max_tokens", "content_filter": "refusal",
}  # fmt: skip
THOUGHT_FIELDS: Final = ("reasoning_content", "reasoning")
FORM: Final = "chat"
LONGEST_ID: Final = 40  # Longer ids of tool calls are refused
_OURS: Final = frozenset({
    "betas", "compaction", "context_management", "effort", "max_tokens", "messages", "model",
    "output_config", "stream", "thinking", "tool_choice", "tools",
})  # fmt: skip
"""Parameters that are translated, or that only the other format knows."""
_REASONING: Final = ("o1", "o3", "o4", "gpt-5", "gpt-6")
_encode = msgspec.json.Encoder().encode


def encode_body(request: Request, *, official: bool = False) -> bytes:
    """The bytes that are sent for this request; `official` says that OpenAI itself is asked."""
    frame = request.frame
    head: Json = {
        "model": to_wire_name(frame.model),
        "stream": True,
        "stream_options": {"include_usage": True},
        **_params(frame),
    }
    if request.max_tokens:
        # Reasoning models refuse the old name; servers that copy the format may not know the new one.
        found = find_family(frame.model)
        new = official or (found is not None and found.prefix.startswith(_REASONING))
        head["max_completion_tokens" if new else "max_tokens"] = request.max_tokens
    if tools := [_tool(tool) for tool in frame.tools if "input_schema" in tool]:
        head["tools"] = tools
        head.update(_tool_choice(frame.params.get("tool_choice")))
    system = "\n\n".join(part for part in frame.system if part.strip())
    first = [_encode({"role": "system", "content": system})] if system else []
    said = [wire for wire in encode_view(request.view, FORM, encode_message) if wire]
    return enclose_messages(_encode(head), [*first, *said])


def _params(frame: Frame) -> Json:
    params = {k: v for k, v in frame.params.items() if k not in _OURS}
    config = frame.params.get("output_config") or {}
    if effort := frame.params.get("effort") or config.get("effort"):
        params["reasoning_effort"] = effort
    return params


def _tool(tool: Json) -> Json:
    function = {"name": tool.get("name"), "parameters": tool["input_schema"]}
    if tool.get("description"):
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


def _tool_choice(choice: Any) -> Json:
    if not isinstance(choice, dict):
        return {"tool_choice": choice} if choice else {}
    out: Json = {"tool_choice": {"any": "required", "none": "none"}.get(choice.get("type", ""), "auto")}
    if choice.get("type") == "tool":
        out["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    elif choice.get("type") == "function":
        out["tool_choice"] = choice
    if choice.get("disable_parallel_tool_use"):
        out["parallel_tool_calls"] = False
    return out


# --- messages -----------------------------------------------------------------------------------------


def encode_message(message: Message) -> bytes:
    """The objects that stand for this message, joined by commas; nothing when nothing of it can be said."""
    told = _assistant(message) if message.role == "assistant" else _user(message)
    return b",".join(_encode(one) for one in told)


def _assistant(message: Message) -> list[Json]:
    uses = message.tool_uses
    said = _text(b for b in message.content if not isinstance(b, ToolUse))
    if not said and not uses:
        return []
    out: Json = {"role": "assistant", "content": said or None}
    if uses:
        out["tool_calls"] = [encode_call(make_call_id(use.id), use.name, use.input) for use in uses]
    return [out]


def encode_call(id: str, name: str, input: Json) -> Json:
    function = {"name": name, "arguments": _encode(input).decode("utf-8")}
    return {"id": id, "type": "function", "function": function}


def _user(message: Message) -> list[Json]:
    """Results first, each a message of its own, as they must follow the calls; then the rest."""
    out: list[Json] = []
    rest: list[Block] = []
    for block in message.content:
        if isinstance(block, ToolResult):
            out.append(_result(block))
            rest += _pictures(block)
        else:
            rest.append(block)
    parts = [part for block in rest if (part := _part(block)) is not None]
    if all(part["type"] == "text" for part in parts):
        text = "\n\n".join(part["text"] for part in parts)
        return [*out, {"role": "user", "content": text}] if text else out
    return [*out, {"role": "user", "content": parts}]


def _result(result: ToolResult) -> Json:
    said = result.content if isinstance(result.content, str) else ""
    said = said or _text(b for b in _inside(result) if not isinstance(b, Image))
    if not said:
        said = "(see the image below)" if _pictures(result) else "(no output)"
    if result.is_error:
        said = f"[failed] {said}"
    return {"role": "tool", "tool_call_id": make_call_id(result.tool_use_id), "content": said}


def _inside(result: ToolResult) -> tuple[Block, ...]:
    return () if isinstance(result.content, str) else result.content


def _pictures(result: ToolResult) -> list[Block]:
    return [block for block in _inside(result) if isinstance(block, Image)]


def _text(blocks: Iterable[Block]) -> str:
    parts = [part for block in blocks if (part := _part(block)) is not None]
    return "\n\n".join(part["text"] for part in parts if part["type"] == "text")


def _part(block: Block) -> Json | None:
    match block:
        case Text(text):
            return {"type": "text", "text": text} if text.strip() else None
        case Image({"type": "base64", "data": str(data)} as source):
            url = f"data:{source.get('media_type', 'image/png')};base64,{data}"
            return {"type": "image_url", "image_url": {"url": url}}
        case Image({"type": "url", "url": str(url)}):
            return {"type": "image_url", "image_url": {"url": url}}
        case Image():
            return {"type": "text", "text": "[an image that cannot be shown here]"}
        case Document({"type": "text", "data": str(data)}):
            return {"type": "text", "text": data}
        case Document(source):
            named = source.get("media_type") or source.get("type") or "unknown"
            return {"type": "text", "text": f"[a document ({named}) that cannot be shown here]"}
        case Opaque(kind):
            return {"type": "text", "text": f"[a block of type {kind!r} that cannot be shown here]"}
        case ToolUse(_, name):
            return {"type": "text", "text": f"[a call of {name}]"}
        case _ if isinstance(block, THOUGHTS):
            return None
    return {"type": "text", "text": block.text}


def make_call_id(id: str) -> str:
    """An id that every server takes; the same one for a call and its result."""
    short = len(id) <= LONGEST_ID
    return id if short else "call_" + hashlib.sha256(id.encode("utf-8")).hexdigest()[:24]


# --- what comes from others ---------------------------------------------------------------------------


def decode_assistant(message: Json, where: str) -> Iterator[Block]:
    """The blocks of a reply. A `Mistake` about a shape we cannot read says `where` it stands."""
    if thought := find_thought(message):
        yield Thinking(thought)
    yield from decode_content(message.get("content"), where)
    if isinstance(refusal := message.get("refusal"), str) and refusal:
        yield Text(refusal)
    for name in ("audio", "function_call"):
        if message.get(name):
            yield Opaque(name, _to_text({"type": name, name: message[name]}))
    for call in message.get("tool_calls") or ():
        yield _decode_call(call, where)


def decode_content(content: Any, where: str) -> Iterator[Block]:
    """The blocks of a message's content, a text or a list of parts."""
    if isinstance(content, str):
        if content:
            yield Text(content)
        return
    if not isinstance(content, list | None):
        raise Mistake(f"{where} has content that is neither a text nor a list of parts")
    for part in content or ():
        match part:
            case (
                str(text) | {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}
            ):
                yield Text(text)
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                yield Image({"type": "url", "url": url})
            case dict():
                yield Opaque(str(part.get("type", "")), _to_text(part))
            case _:
                raise Mistake(f"{where} has a part that is no object")


def _decode_call(call: Any, where: str) -> ToolUse:
    if not isinstance(call, dict):
        raise Mistake(f"{where} has a tool call that is no object")
    match call:
        case {"custom": {"name": str(name), "input": given}}:
            return ToolUse(str(call.get("id") or ""), name, {"input": given})
        case {"function": {"name": str(name)} as function}:
            return ToolUse(str(call.get("id") or ""), name, decode_arguments(function.get("arguments")))
    raise Mistake(f"{where} has a tool call without the name of a function")


def _to_text(value: Any) -> str:
    return str(_encode(value), "utf-8")


def decode_arguments(
    given: object, unread: str = "arguments", decode: Callable[[str], Json] = decode_json_object
) -> Json:
    """The input of a call: JSON inside a text. Anything but an object is kept under the name `unread`."""
    if isinstance(given, dict):  # as Ollama has it
        return given
    if given is None or given == "":
        return {}
    try:
        return decode(given) if isinstance(given, str) else {unread: given}
    except ValueError:  # a model's slip: it is kept as it came, and measured
        return {unread: given}


def decode_tool(function: Json) -> Json:
    """The definition of a function as our frame has it."""
    return {
        "name": function.get("name"),
        "description": function.get("description", ""),
        "input_schema": function.get("parameters") or {},
    }


def decode_tool_choice(choice: Any) -> Json | None:
    """The tools that may or must be called, in the words of the Messages API."""
    match choice:
        case "none" | "auto":
            return {"type": choice}
        case "required":
            return {"type": "any"}
        case {"type": "function", "function": {"name": str(name)}}:
            return {"type": "tool", "name": name}
    return None


def find_thought(message: Json) -> str:
    """The thinking in a message or a delta: servers name the field differently."""
    found = (message.get(name) for name in THOUGHT_FIELDS)
    return next((text for text in found if isinstance(text, str) and text), "")


def read_stop(finish_reason: Any, has_calls: bool) -> str:
    """Our word for the reason a reply ended; some servers say "stop" whatever they stopped for."""
    stop = STOPS.get(str(finish_reason), "end_turn")
    return "tool_use" if has_calls and stop == "end_turn" else stop


def parse_usage(counted: Json) -> Usage:
    """Here the prompt includes what came from the cache; with us it does not."""
    details = counted.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    prompt = to_whole_number(counted.get("prompt_tokens"))
    cached = details.get("cached_tokens") or counted.get("cached_tokens")
    read = min(prompt, to_whole_number(cached or counted.get("prompt_cache_hit_tokens")))
    written = min(prompt - read, to_whole_number(details.get("cache_write_tokens")))
    return Usage(
        input=prompt - read - written,
        cache_write=written,
        cache_read=read,
        output=to_whole_number(counted.get("completion_tokens")),
    )
