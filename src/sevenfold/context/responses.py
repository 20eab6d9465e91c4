"""Conversations as items of the Responses API, as the openai SDK takes them in `responses.create`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, Final

import msgspec

from sevenfold.context.formats import (
    CallerRequest,
    SpokenMessage,
    WireFormat,
    WrittenMessages,
    copy_value,
    make_frame,
    read_instructions,
    read_tool,
    to_plain_json,
)
from sevenfold.core.messages import Block, Image, Json, Message, Opaque, Text, ToolResult, ToolUse
from sevenfold.core.request import Frame, Request, Ttl
from sevenfold.core.transcript import Reply
from sevenfold.models.capabilities import to_wire_name
from sevenfold.models.responses_wire import (
    INSTRUCTIONS,
    MESSAGE,
    OfferedTool,
    decode_item,
    iterate_tools,
    parse_usage,
    read_kind,
)

CACHED: Final = frozenset({"text"})  # The provider's cache depends on it
SERVER_HISTORY: Final = ("previous_response_id", "conversation")
_encode = msgspec.json.Encoder().encode


class ResponsesFormat:
    """Implements `formats.WireFormat`: messages are the items of `input`, `system` is `instructions`."""

    is_messages_api = False  # the cache of this API keeps by itself what it has seen
    has_reply_items = True

    def count_leading(self, messages: Sequence[Any]) -> int:
        return sum(1 for _ in takewhile(_is_instruction, messages))

    def decode_message(self, message: Json, where: str) -> SpokenMessage:
        item = decode_item(message, where)
        return SpokenMessage(item.role, item.blocks, item.by)

    def rewrite_message(
        self, message: Json, before: Sequence[Block], after: Sequence[Block | None]
    ) -> Json | None:
        out = dict(message)
        for old, new in zip(before, after, strict=True):
            if new is not old and isinstance(new, ToolResult):
                out["output"] = _join_texts(new)
        return out

    def encode_message(self, message: Message) -> list[Json]:
        return list(_encode_items(message))

    def make_frame(self, asked: CallerRequest, ttl: Ttl) -> Frame:
        given = [read_tool(tool, f"tools[{n}]") for n, tool in enumerate(asked.tools or ())]
        return make_frame(asked, read_instructions(asked), map(_tool, iterate_tools(given)), CACHED, ttl)

    def make_request(
        self, asked: CallerRequest, request: Request, written: WrittenMessages, most: int
    ) -> Json:
        out: Json = {"model": to_wire_name(request.frame.model)}
        if asked.system:
            out["instructions"] = asked.system
        if asked.tools:
            out["tools"] = [t if type(t) is dict else to_plain_json(t, "tools") for t in asked.tools]
        leading = [to_plain_json(item, "messages") for item in asked.leading]
        out["input"] = [*leading, *written.messages]
        return {**out, **asked.params}

    def pass_request(self, asked: CallerRequest, items: list[Any]) -> Json:
        """The caller's request as it is."""
        head = {"instructions": asked.system, "tools": asked.tools}
        given = {name: value for name, value in head.items() if value}
        return {"model": to_wire_name(asked.model), **given, "input": items, **asked.params}

    def decode_reply(self, response: Json) -> Reply | None:
        output = response.get("output")
        if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
            return None
        items = [decode_item(item, "the response") for item in output]
        message = Message("assistant", tuple(block for item in items for block in item.blocks))
        stop = "tool_use" if message.tool_uses else "end_turn"
        return Reply(
            message,
            parse_usage(response.get("usage") or {}),
            "max_tokens" if response.get("status") == "incomplete" else stop,
            model=str(response.get("model") or ""),
            diagnostics={"message_id": response["id"]} if response.get("id") else {},
        )

    def read_reply_messages(self, response: Json) -> list[Json]:
        output: list[Json] = response["output"]
        return output

    def encode_tool(self, schema: Json) -> Json:
        tool = {"type": "function", "name": schema["name"], "description": schema["description"]}
        return {**tool, "parameters": copy_value(schema["input_schema"]), "strict": False}


def find_server_history(params: Json) -> list[str]:
    """The parameters by which the server adds a history that we do not see."""
    return [name for name in SERVER_HISTORY if params.get(name)]


def _is_instruction(item: Any) -> bool:
    told = to_plain_json(item, "messages")
    return isinstance(told, dict) and read_kind(told) == MESSAGE and told.get("role") in INSTRUCTIONS


def _tool(tool: OfferedTool | Json) -> Json:
    """A definition as our frame has it, with the name where the ledger looks for it."""
    return tool.definition if isinstance(tool, OfferedTool) else {"name": str(tool.get("type")), **tool}


def _join_texts(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return result.content
    return "\n\n".join(block.text for block in result.content if isinstance(block, Text))


def _encode_items(message: Message) -> Iterator[Json]:
    """Our own messages: text is said, calls and their outputs are items of their own."""
    for block in message.content:
        match block:
            case Text(text):
                yield {"role": message.role, "content": text}
            case Image({"url": str(url)}):
                yield {"role": message.role, "content": [{"type": "input_image", "image_url": url}]}
            case ToolUse(id, name, input):
                arguments = str(_encode(input), "utf-8")
                yield {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}
            case ToolResult(id):
                yield {"type": "function_call_output", "call_id": id, "output": _join_texts(block)}
            case Opaque(_, raw):
                yield msgspec.json.decode(raw)


_check: type[WireFormat] = ResponsesFormat
