"""Conversations in the Messages format, as the anthropic SDK takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from sevenfold.context.formats import (
    MARK,
    Asked,
    Format,
    Spoken,
    Written,
    fresh,
    mended,
    plain,
    snapshot,
    unmarked,
)
from sevenfold.errors import Mistake
from sevenfold.messages import (
    Block,
    Json,
    Message,
    Role,
    Text,
    ToolResult,
    message_to_wire,
    parse_block,
    to_wire,
)
from sevenfold.models.anthropic import MARKS, betas, markable, marked_parts, marks, max_tokens
from sevenfold.models.anthropic_stream import usage_of
from sevenfold.models.capabilities import wire_name
from sevenfold.request import Frame, Request, Ttl, sendable
from sevenfold.transcript import Reply

ROLES: Final[dict[str, tuple[Role, str]]] = {
    "user": ("user", "user"),
    "assistant": ("assistant", "model"),
    "system": ("user", "system"),
}
CACHED: Final = frozenset(
    {
        "betas",
        "container",
        "context_management",
        "mcp_servers",
        "output_config",
        "speed",
        "thinking",
        "tool_choice",
    }
)
"""Parameters of a request on which the provider's cache depends, in whole or in part."""
MANAGEMENT: Final = "context_management"
BETA_HEADER: Final = "anthropic-beta"
_encode = msgspec.json.Encoder(order="sorted").encode


class AnthropicFormat:
    """Implements `formats.Format`."""

    is_messages_api = True

    def leading(self, messages: Sequence[Any]) -> int:
        return 0  # the system prompt is not among the messages

    def spoken(self, message: Json, where: str) -> Spoken:
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or role not in ROLES:
            raise Mistake(f"{where} has the role {role!r}: it must be 'user' or 'assistant'")
        if isinstance(content, str):
            return Spoken(ROLES[role][0], (Text(content),), ROLES[role][1])
        if not isinstance(content, list) or not all(isinstance(b, dict) for b in content):
            raise Mistake(f"{where} has no content: give a text, or a list of blocks")
        return Spoken(ROLES[role][0], tuple(map(parse_block, content)), ROLES[role][1])

    # --- messages out -----------------------------------------------------------------------------------

    def rewritten(
        self, message: Json, before: Sequence[Block], after: Sequence[Block | None]
    ) -> Json | None:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        kept = [
            wire if new is old else _instead(wire, new)
            for wire, old, new in zip(blocks, before, after, strict=True)
            if new is not None
        ]
        return {**message, "content": kept} if kept else None

    def told(self, message: Message) -> list[Json]:
        said = sendable(message)
        return [fresh(message_to_wire(said))] if said.content else []

    # --- the request ------------------------------------------------------------------------------------

    def frame(self, asked: Asked, ttl: Ttl) -> Frame:
        params = {key: value for key, value in asked.params.items() if key in CACHED}
        return Frame(
            asked.model,
            tuple(_part(mended(block)) for block in _system(asked.system)),
            tuple(mended(tool) for tool in _tools(asked.tools)),
            mended(plain(params, "params")),
            ttl,
        )

    def request(self, asked: Asked, request: Request, written: Written, most: int) -> Json:
        frame, mark = request.frame, MARKS[request.frame.ttl]
        before = MARKS[frame.head_ttl]
        places, room = marks(request)
        for at in places:
            _mark(written.messages, written.ends[at - 1] if at else 0, written.ends[at], mark)
        out: Json = {"model": wire_name(frame.model), "max_tokens": max_tokens(request, most)}
        if system := _system(asked.system):
            for at in marked_parts(len(system), room):
                if markable(parse_block(system[at])):
                    system[at] = {**system[at], MARK: dict(before)}
            out["system"] = system
        if asked.tools:
            out["tools"] = [
                tool if _is_ready(tool) else _tool(tool, "tools") for tool in asked.tools
            ]
        out["messages"] = written.messages
        out.update({key: value for key, value in asked.params.items() if key != MARK})
        return _with_betas(out, frame, asked)

    # --- the reply --------------------------------------------------------------------------------------

    def reply(self, response: Json) -> Reply | None:
        content = response.get("content")
        if not isinstance(content, list) or not all(isinstance(b, dict) for b in content):
            return None
        managed = response.get(MANAGEMENT) or {}
        notes = {"message_id": response.get("id"), **(response.get("diagnostics") or {})}
        return Reply(
            Message("assistant", tuple(map(parse_block, content))),
            usage_of(response.get("usage") or {}),
            str(response.get("stop_reason") or "end_turn"),
            tuple(managed.get("applied_edits") or ()),
            str(response.get("model") or ""),
            {name: value for name, value in notes.items() if value},
        )

    def tool(self, schema: Json) -> Json:
        return snapshot(schema)  # type: ignore[no-any-return]


def _instead(wire: Json, new: Block) -> Json:
    """A block of the caller with what is shown in its place; all its other fields stay."""
    if not isinstance(new, ToolResult):
        return fresh(to_wire(new))  # type: ignore[no-any-return]
    content = new.content
    shown = content if isinstance(content, str) else fresh([to_wire(block) for block in content])
    return {**wire, "content": shown}


def _mark(messages: list[Any], first: int, last: int, mark: Json) -> None:
    """Put a mark on the last block that can carry one, in a copy of its message."""
    for at in range(last - 1, first - 1, -1):
        content = messages[at]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [*content]
        for i in range(len(blocks) - 1, -1, -1):
            if markable(parse_block(blocks[i])):
                blocks[i] = {**blocks[i], MARK: dict(mark)}
                messages[at] = {**messages[at], "content": blocks}
                return


def _system(system: Any) -> list[Json]:
    """The blocks of a system prompt, however it was given, without marks."""
    if not system:
        return []
    if isinstance(system, str):
        return [{"type": "text", "text": system}]
    blocks = plain(system, "system")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise Mistake("system must be a text or a list of text blocks")
    return [unmarked(block) for block in blocks]


def _part(block: Json) -> str:
    """What the frame keeps of a block: its text, or all of it where there is more."""
    if block.keys() == {"type", "text"} and isinstance(block["text"], str):
        return block["text"]
    return str(_encode(block), "utf-8")


def _tools(tools: Any) -> Iterator[Json]:
    for n, tool in enumerate(tools or ()):
        yield _tool(tool, f"tools[{n}]")


def _is_ready(tool: Any) -> bool:
    return type(tool) is dict and MARK not in tool


def _tool(tool: Any, where: str) -> Json:
    told = plain(tool, where)
    if not isinstance(told, dict):
        raise Mistake(f"{where} is a {type(tool).__name__}: give each tool as an object")
    return unmarked(told)


def _with_betas(out: Json, frame: Frame, asked: Asked) -> Json:
    """With what we add to the request beyond the SDK's own parameters, and the header it needs."""
    ours: Json = {}
    if MANAGEMENT in frame.params and MANAGEMENT not in asked.params:
        ours[MANAGEMENT] = snapshot(frame.params[MANAGEMENT])
    needed = betas(Frame(frame.model, params=ours))
    if "betas" in asked.params:  # for `client.beta.messages`, which takes them as parameters
        given = list(asked.params["betas"] or ())
        return {**out, **ours, "betas": [*given, *(b for b in needed if b not in given)]}
    if ours:
        out["extra_body"] = {**ours, **(out.get("extra_body") or {})}
    if needed:
        headers = dict(out.get("extra_headers") or {})
        name = next((key for key in headers if key.lower() == BETA_HEADER), BETA_HEADER)
        given = [part.strip() for part in str(headers.get(name, "")).split(",") if part.strip()]
        headers[name] = ",".join([*given, *(beta for beta in needed if beta not in given)])
        out["extra_headers"] = headers
    return out


_check: type[Format] = AnthropicFormat
