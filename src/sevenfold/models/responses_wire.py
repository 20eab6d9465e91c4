"""Items of the Responses API as our blocks: one item is one message of one role.

Calls of functions and of custom tools, and their outputs, are tool uses and tool results. Every other item
(reasoning, searches, shells, compactions, what is new) is one block of the model that nobody looks into:
it is never cleared, and never torn from the items of the model before and after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec

from sevenfold.core.errors import Mistake
from sevenfold.core.messages import Block, Image, Json, Opaque, Role, Text, ToolResult, ToolUse
from sevenfold.core.tokens import Usage
from sevenfold.models.anthropic_wire import to_whole_number
from sevenfold.models.openai_wire import decode_arguments, decode_tool

MESSAGE: Final = "message"
CALLS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
"""Kinds of calls, and the field with what the tool is called with."""
OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
INSTRUCTIONS: Final = frozenset({"system", "developer"})
TEXTS: Final = frozenset({"input_text", "output_text", "text"})
NAMESPACE: Final = "__"  # Between a namespace and a name, as in `mcp__server__tool`
CUSTOM_INPUT: Final[Json] = {
    "type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"],
}  # fmt: skip

Author: TypeAlias = Literal["user", "model", "tools", "system"]
_ROLES: Final[dict[str, tuple[Role, Author]]] = {
    "user": ("user", "user"),
    "assistant": ("assistant", "model"),
    "system": ("user", "system"),
    "developer": ("user", "system"),
}
_encode = msgspec.json.Encoder().encode


class ResponseItem(msgspec.Struct, frozen=True):
    """One item as we understand it."""

    role: Role
    blocks: tuple[Block, ...]
    by: Author


def read_kind(item: Json) -> str:
    """The type of an item; a message may come without one."""
    kind = item.get("type")
    return kind if isinstance(kind, str) else MESSAGE if "role" in item else ""


def decode_item(item: Json, where: str) -> ResponseItem:
    """The blocks of an item. A `Mistake` about a shape we cannot read says `where` it stands."""
    kind = read_kind(item)
    if kind == MESSAGE:
        role = item.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise Mistake(f"{where} has the role {role!r}: it must be one of {', '.join(_ROLES)}")
        return ResponseItem(
            _ROLES[role][0], tuple(_decode_parts(item.get("content"), where)), _ROLES[role][1]
        )
    if kind in CALLS:
        return ResponseItem("assistant", (_decode_call(item, kind, where),), "model")
    if kind in OUTPUTS:
        given = item.get("output")
        shown = given if isinstance(given, str) else tuple(_decode_parts(given, where))
        return ResponseItem("user", (ToolResult(_read_call_id(item, where), shown),), "tools")
    if not kind:
        raise Mistake(f"{where} has no type: give an item of the Responses API")
    return ResponseItem("assistant", (Opaque(kind, str(_encode(item), "utf-8")),), "model")


def _decode_call(item: Json, kind: str, where: str) -> ToolUse:
    name, given = item.get("name"), item.get(CALLS[kind])
    if not isinstance(name, str) or not name:
        raise Mistake(f"{where} is a call without the name of a tool")
    input = {"input": given} if kind == "custom_tool_call" else decode_arguments(given)
    return ToolUse(_read_call_id(item, where), join_name(item.get("namespace"), name), input)


def _read_call_id(item: Json, where: str) -> str:
    id = item.get("call_id")
    if not isinstance(id, str) or not id:
        raise Mistake(f"{where} has no call_id: name the call")
    return id


def _decode_parts(content: Any, where: str) -> Iterator[Block]:
    if isinstance(content, str):
        yield Text(content)
        return
    if not isinstance(content, list):
        raise Mistake(f"{where} has content that is neither a text nor a list of parts")
    for part in content:
        match part:
            case {"type": str(kind), "text": str(text)} if kind in TEXTS:
                yield Text(text)
            case {"type": "refusal", "refusal": str(text)}:
                yield Text(text)
            case {"type": "input_image", "image_url": str(url)}:
                yield Image({"type": "url", "url": url})
            case dict():
                yield Opaque(str(part.get("type", "")), str(_encode(part), "utf-8"))
            case _:
                raise Mistake(f"{where} has a part that is no object")


# --- tools ----------------------------------------------------------------------------------------------


def join_name(namespace: Any, name: str) -> str:
    """The name of a tool in a namespace, as other formats have it."""
    return f"{namespace}{NAMESPACE}{name}" if isinstance(namespace, str) and namespace else name


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool that the model may call by name, with its definition as the Messages API has it."""

    definition: Json
    kind: str  # "function" or "custom"
    name: str
    namespace: str | None = None


def iterate_tools(tools: Any) -> Iterator[OfferedTool | Json]:
    """Yields tools that are called by name, those of a namespace one by one, and all others as they are."""
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        inner = tool.get("tools")
        if tool.get("type") == "namespace" and isinstance(inner, list):
            for one in inner:
                if isinstance(one, dict):
                    yield _offer(one, str(tool.get("name") or ""))
        else:
            yield _offer(tool, None)


def _offer(tool: Json, namespace: str | None) -> OfferedTool | Json:
    kind, name = tool.get("type"), tool.get("name")
    if kind not in ("function", "custom") or not isinstance(name, str):
        return tool
    definition = {**decode_tool(tool), "name": join_name(namespace, name)}
    if kind == "custom":
        definition["input_schema"] = CUSTOM_INPUT
    if tool.get("defer_loading"):
        definition["defer_loading"] = True
    return OfferedTool(definition, kind, name, namespace)


# --- the reply ------------------------------------------------------------------------------------------


def parse_usage(counted: Json) -> Usage:
    """Here the prompt includes what came from the cache and what was written; with us it does not."""
    details = counted.get("input_tokens_details")
    details = details if isinstance(details, dict) else {}
    prompt = to_whole_number(counted.get("input_tokens"))
    cached = min(prompt, to_whole_number(details.get("cached_tokens")))
    written = min(prompt - cached, to_whole_number(details.get("cache_write_tokens")))
    return Usage(
        input=prompt - cached - written,
        cache_write=written,
        cache_read=cached,
        output=to_whole_number(counted.get("output_tokens")),
    )
