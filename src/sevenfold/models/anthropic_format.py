"""A request in the Messages format: the bytes, the cache marks in them, and the beta features they need.

The bytes of a message are worked out once and kept with the view; a request is put together by joining
them. Messages come last, so that a longer conversation extends the bytes of a shorter one.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sevenfold.messages import (
    THOUGHTS,
    Block,
    Json,
    Message,
    Opaque,
    Text,
    to_wire,
)
from sevenfold.models.capabilities import BINDING_BETA, LONG, LONG_BETA, capabilities, wire_name
from sevenfold.request import Frame, Request, Ttl, encoded, pinned, sendable

MOST_MARKS: Final = 4
MARKS: Final[dict[Ttl, Json]] = {
    "5m": {"type": "ephemeral"},
    "1h": {"type": "ephemeral", "ttl": "1h"},
}
CONTEXT_BETA: Final = "context-management-2025-06-27"
COMPACT_BETA: Final = "compact-2026-01-12"
ON_DEMAND_BETA: Final = "compact-2026-09-04"

_OURS: Final = frozenset(
    {
        "betas",
        "diagnostics",
        "effort",
        "max_tokens",
        "messages",
        "model",
        "output_config",
        "stream",
        "system",
        "tools",
    }
)
"""Parameters that are not passed on as they are."""
_encode = msgspec.json.Encoder().encode


def body(
    request: Request, *, max_output: int | None = None, diagnostics: Json | None = None
) -> bytes:
    """The bytes that are sent for this request."""
    frame = request.frame
    head: Json = {
        "model": wire_name(frame.model),
        "max_tokens": max_tokens(request, max_output or capabilities(frame.model).max_output),
        "stream": True,
        **_params(frame),
    }
    if frame.tools:
        head["tools"] = [_kept_as_long(tool, frame) for tool in frame.tools]
    at, system_marks = marks(request)
    system = _system(frame, system_marks)
    if system:
        head["system"] = system
    tail = b',"diagnostics":' + _encode(diagnostics) if diagnostics else b""
    return enclosed(_encode(head), _messages(request, at), tail)


def enclosed(head: bytes, messages: list[bytes], tail: bytes = b"") -> bytes:
    """An object with its messages: one join, as a conversation may be megabytes and copies cost time."""
    whole = messages or [b""]
    whole[0] = head[:-1] + b',"messages":[' + whole[0]
    whole[-1] += b"]" + tail + b"}"
    return b",".join(whole)


def betas(frame: Frame) -> list[str]:
    """What the `anthropic-beta` header must say: what was asked for, and what the rest needs."""
    found = list(frame.params.get("betas") or ())
    if frame.model.endswith(LONG):
        found.append(LONG_BETA)
    management = frame.params.get("context_management")
    if management:
        found.append(CONTEXT_BETA)
        edits = management.get("edits") or () if isinstance(management, dict) else ()
        if any(str(edit.get("type", "")).startswith("compact_") for edit in edits):
            found.append(COMPACT_BETA)
    if frame.params.get("compaction"):
        found.append(ON_DEMAND_BETA)
    if (frame.params.get("thinking") or {}).get("block_binding"):
        found.append(BINDING_BETA)
    return list(dict.fromkeys(found))


def _params(frame: Frame) -> Json:
    params = {k: v for k, v in frame.params.items() if k not in _OURS}
    config = dict(frame.params.get("output_config") or {})
    if frame.params.get("effort"):
        config["effort"] = frame.params["effort"]
    if config:
        params["output_config"] = config
    if not frame.tools:
        params.pop("tool_choice", None)
    return params


def max_tokens(request: Request, most: int) -> int:
    """The longest reply to ask for, of at most `most` tokens: thinking counts, and must leave room."""
    asked = min(request.max_tokens or most, most)
    thinking = request.frame.params.get("thinking") or {}
    budget = thinking.get("budget_tokens")
    if isinstance(budget, int) and asked <= budget:
        return min(most, asked + budget)
    return asked


def _system(frame: Frame, room: int) -> list[Json]:
    """The parts of the system prompt, with so many marks at most."""
    parts: list[Json] = [{"type": "text", "text": part} for part in frame.system if part.strip()]
    for at in marked_parts(len(parts), room):
        parts[at]["cache_control"] = MARKS[frame.head_ttl]
    return parts


def _kept_as_long(tool: Json, frame: Frame) -> Json:
    """A mark of the caller's own on a tool: nothing that is kept longer may stand behind it."""
    if "cache_control" in tool and frame.head_ttl == "1h":
        return {**tool, "cache_control": MARKS["1h"]}
    return tool


def _messages(request: Request, at: list[int]) -> list[bytes]:
    view = request.view
    wires = list(encoded(view))
    mark = b',"cache_control":' + _encode(MARKS[request.frame.ttl])
    for i in at:
        wires[i] = _marked(wires[i], view[i].message, mark)
    if not view.pins:
        return wires
    for after, payloads in pinned(view).items():
        if (place := view.where(after)) is not None:
            for payload in payloads:
                wires[place] += b',{"role":"user","content":[' + payload + b"]}"
    return wires


# --- cache marks --------------------------------------------------------------------------------------


def marks(request: Request) -> tuple[list[int], int]:
    """Which messages carry a mark, and how many are left for the system prompt."""
    frame, view = request.frame, request.view
    room = MOST_MARKS - sum("cache_control" in tool for tool in frame.tools)
    room -= "cache_control" in frame.params
    wanted = {view.where(id) for id in request.breakpoints} - {None}
    places = sorted({i for at in wanted if (i := _markable_at(request, at)) is not None})
    for_messages = max(0, room - 1) if frame.system else max(0, room)
    kept = places[-for_messages:] if for_messages else []
    return kept, room - len(kept)


def marked_parts(parts: int, room: int) -> set[int]:
    """Which parts of the system prompt carry a mark, of `room` at most: the last, then the first."""
    return set([parts - 1, 0][: max(0, room)]) if parts else set()


def _markable_at(request: Request, at: int | None) -> int | None:
    """This message, or the nearest before it that can carry a mark."""
    while at is not None and at >= 0:
        if any(map(markable, request.view[at].message.content)):
            return at
        at -= 1
    return None


def markable(block: Block) -> bool:
    """Providers refuse marks on thinking and on empty text; of unknown blocks we cannot tell."""
    if isinstance(block, Text):
        return bool(block.text.strip())
    return not isinstance(block, (*THOUGHTS, Opaque))


def _marked(wire: bytes, message: Message, mark: bytes) -> bytes:
    """The same bytes with a mark spliced into the last block that can carry one."""
    end = len(wire) - len(b"]}")
    for block in reversed(sendable(message).content):
        if markable(block):
            return wire[: end - 1] + mark + wire[end - 1 :]
        end -= len(_encode(to_wire(block))) + 1
    return wire


def without_marks(value: Any) -> Any:
    """JSON without its cache marks: what two requests are compared by."""
    if isinstance(value, dict):
        return {k: without_marks(v) for k, v in value.items() if k != "cache_control"}
    if isinstance(value, list):
        return [without_marks(v) for v in value]
    return value
