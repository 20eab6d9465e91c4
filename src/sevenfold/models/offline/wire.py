"""The offline engine behind the Messages API: the body of a request in, content blocks out.

It takes whatever any client sends. What does not have the shape it knows is passed over.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from sevenfold.messages import (
    Block,
    Image,
    Json,
    Message,
    Opaque,
    Text,
    ToolResult,
    ToolUse,
    message_to_wire,
    whole_characters,
)
from sevenfold.models.offline.forced import insisted, smallest_call
from sevenfold.models.offline.reply import RULES, Rules, answer
from sevenfold.models.offline.view import Conversation


def reply_to_wire(body: Json, rules: Rules = RULES) -> list[Json]:
    """The content blocks of the reply to a Messages API request."""
    blocks = answer(read_body(body), rules)
    content: list[Json] = message_to_wire(Message("assistant", blocks))["content"]
    wanted = insisted(body)
    names = [tool["name"] for tool in wanted]
    if not names or any(block.get("name") in names for block in content):
        return [b for b in content if not names or b.get("name", names[0]) in names]
    place = blake2b(repr(body.get("messages")).encode("utf-8", "backslashreplace"), digest_size=6)
    return [{**smallest_call(wanted[0]), "id": f"toolu_off_{place.hexdigest()}_0"}]


def read_body(body: Json) -> Conversation:
    """What a request body says, as far as it can be understood."""
    messages: list[Message] = []
    added: set[int] = set()
    for item in _list(body.get("messages")):
        if not isinstance(item, dict):
            continue
        role = item.get("role")
        if role not in ("user", "assistant"):
            added.add(len(messages))  # a system or developer message: not a person's words
        blocks = tuple(_blocks(item.get("content")))
        messages.append(Message("assistant" if role == "assistant" else "user", blocks))
    system = "\n\n".join(b.text for b in _blocks(body.get("system")) if isinstance(b, Text))
    room = most if isinstance(most := body.get("max_tokens"), int) else 0
    tools = _tools(body)
    told = {
        tool["name"]: str(tool.get("description", ""))
        for tool in _list(body.get("tools"))
        if isinstance(tool, dict) and isinstance(tool.get("name"), str) and tool["name"] in tools
    }
    return Conversation(tuple(messages), tools, system, frozenset(added), room, told)


def _tools(body: Json) -> dict[str, Json]:
    """The tools that may be called: not those a client defers, and none where it forbids them."""
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "none":
        return {}
    return {
        tool["name"]: schema if isinstance(schema := tool.get("input_schema"), dict) else {}
        for tool in _list(body.get("tools"))
        if isinstance(tool, dict)
        and isinstance(tool.get("name"), str)
        and not tool.get("defer_loading")
    }


def _blocks(content: Any) -> list[Block]:
    if isinstance(content, str):
        return [Text(whole_characters(content))]
    return [_block(item) for item in _list(content) if isinstance(item, dict)]


def _block(item: Json) -> Block:
    match item:
        case {"type": "text", "text": str(text)}:
            return Text(whole_characters(text))
        case {"type": "tool_use", "id": str(id), "name": str(name), "input": dict(args)}:
            return ToolUse(id, name, args)
        case {"type": "tool_result", "tool_use_id": str(id)}:
            return ToolResult(id, tuple(_blocks(item.get("content"))), bool(item.get("is_error")))
        case {"type": "image" | "document"}:
            return Image({})
    return Opaque(str(item.get("type", "")), "{}")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
