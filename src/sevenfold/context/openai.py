"""Conversations in the chat-completions format, as the openai SDK and its many relatives take them."""

from __future__ import annotations

from collections.abc import Sequence
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
from sevenfold.core.errors import Mistake
from sevenfold.core.messages import Block, Json, Message, Text, ToolResult
from sevenfold.core.request import Frame, Request, Ttl
from sevenfold.core.transcript import Reply
from sevenfold.models.capabilities import to_wire_name
from sevenfold.models.openai_wire import (
    THOUGHT_FIELDS,
    decode_assistant,
    decode_content,
    decode_tool,
    encode_message,
    parse_usage,
    read_stop,
)

INSTRUCTIONS: Final = frozenset({"system", "developer"})
ROLES: Final = (*sorted(INSTRUCTIONS), "user", "assistant", "tool", "function")
CACHED: Final = frozenset({"functions", "response_format"})  # The provider's cache depends on them
_decode = msgspec.json.Decoder().decode


class OpenAiFormat:
    """Implements `formats.WireFormat`."""

    is_messages_api = False  # the cache of this API keeps by itself what it has seen
    has_reply_items = False

    def count_leading(self, messages: Sequence[Any]) -> int:
        roles = (m.get("role") if isinstance(m, dict) else getattr(m, "role", None) for m in messages)
        return sum(1 for _ in takewhile(INSTRUCTIONS.__contains__, roles))

    def decode_message(self, message: Json, where: str) -> SpokenMessage:
        role = message.get("role")
        if role not in ROLES:
            raise Mistake(f"{where} has the role {role!r}: it must be one of {', '.join(ROLES)}")
        if role == "assistant":
            return SpokenMessage("assistant", tuple(decode_assistant(message, where)), "model")
        blocks = tuple(decode_content(message.get("content"), where))
        if role != "tool":
            by = "system" if role in INSTRUCTIONS else "tools" if role == "function" else "user"
            return SpokenMessage("user", blocks, by)
        id = message.get("tool_call_id")
        if not isinstance(id, str):
            raise Mistake(f"{where} has no tool_call_id: name the call that it answers")
        content = message.get("content")
        shown = content if isinstance(content, str) else blocks
        return SpokenMessage("user", (ToolResult(id, shown),), "tools")

    def rewrite_message(
        self, message: Json, before: Sequence[Block], after: Sequence[Block | None]
    ) -> Json | None:
        out = dict(message)
        if any(new is None for new in after):
            for name in THOUGHT_FIELDS:
                out.pop(name, None)
        for old, new in zip(before, after, strict=True):
            if new is not old and isinstance(new, ToolResult):
                out["content"] = new.content
                if not isinstance(new.content, str):
                    out["content"] = "\n\n".join(b.text for b in new.content if isinstance(b, Text))
        return out

    def encode_message(self, message: Message) -> list[Json]:
        return _decode(b"[" + encode_message(message) + b"]")  # type: ignore[no-any-return]

    def make_frame(self, asked: CallerRequest, ttl: Ttl) -> Frame:
        tools = (_tool(read_tool(tool, f"tools[{n}]")) for n, tool in enumerate(asked.tools or ()))
        return make_frame(asked, read_instructions(asked), tools, CACHED, ttl)

    def make_request(
        self, asked: CallerRequest, request: Request, written: WrittenMessages, most: int
    ) -> Json:
        first = [{"role": "system", "content": asked.system}] if asked.system else []
        leading = [to_plain_json(message, "messages") for message in asked.leading]
        out: Json = {"model": to_wire_name(request.frame.model)}
        if asked.tools:
            out["tools"] = [t if type(t) is dict else to_plain_json(t, "tools") for t in asked.tools]
        out["messages"] = [*first, *leading, *written.messages]
        return {**out, **asked.params}

    def decode_reply(self, response: Json) -> Reply | None:
        choices = response.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return None
        choice: Json = choices[0]
        said = {"role": "assistant", **(choice.get("message") or {})}
        message = Message("assistant", self.decode_message(said, "the response").blocks)
        return Reply(
            message,
            parse_usage(response.get("usage") or {}),
            read_stop(choice.get("finish_reason"), bool(message.tool_uses)),
            model=str(response.get("model") or ""),
            diagnostics={"message_id": response["id"]} if response.get("id") else {},
        )

    def read_reply_messages(self, response: Json) -> list[Json]:
        return [response["choices"][0]["message"]]

    def encode_tool(self, schema: Json) -> Json:
        function = {"name": schema["name"], "description": schema["description"]}
        function["parameters"] = copy_value(schema["input_schema"])
        return {"type": "function", "function": function}


def _tool(tool: Json) -> Json:
    """A definition as our frame has it, with the name where the ledger looks for it."""
    function = tool.get("function")
    if not isinstance(function, dict):
        return {"name": str(tool.get("type")), **tool}
    extra = {k: v for k, v in function.items() if k not in ("name", "description", "parameters")}
    return {**decode_tool(function), "extra": extra}


_check: type[WireFormat] = OpenAiFormat
