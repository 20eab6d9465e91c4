"""The Messages format: a request as bytes with its cache marks, and what a reply says."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sevenfold.core.messages import THOUGHTS, Block, Json, Message, Opaque, Text, encode_block, parse_block
from sevenfold.core.request import Frame, Request, Ttl, encode_view, strip_unsigned_thinking
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply
from sevenfold.models.capabilities import (
    BINDING_BETA,
    LONG,
    LONG_BETA,
    find_capabilities,
    is_thinking_dropped,
    to_wire_name,
)
from sevenfold.models.threads import ThreadStep, encode_messages

MOST_MARKS: Final = 4
MARKS: Final[dict[Ttl, Json]] = {"5m": {"type": "ephemeral"}, "1h": {"type": "ephemeral", "ttl": "1h"}}
CONTEXT_BETA: Final = "context-management-2025-06-27"
COMPACT_BETA: Final = "compact-2026-01-12"
ON_DEMAND_BETA: Final = "compact-2026-09-04"

_OURS: Final = frozenset({
    "betas", "diagnostics", "effort", "max_tokens", "messages", "model", "output_config", "stream",
    "system", "tools",
})  # fmt: skip
"""Parameters that are not passed on as they are."""
_encode = msgspec.json.Encoder().encode


def encode_body(
    request: Request,
    *,
    max_output: int | None = None,
    diagnostics: Json | None = None,
    thread: ThreadStep | None = None,
) -> bytes:
    """The bytes that are sent for this request; in a thread, without what the provider holds."""
    frame = request.frame
    held = thread.held if thread else 0
    head: Json = {
        "model": to_wire_name(frame.model),
        "max_tokens": choose_max_tokens(request, max_output or find_capabilities(frame.model).max_output),
        "stream": True,
        **_params(frame),
    }
    if thread:
        head["thread"] = thread.field
    if frame.tools and not held:
        # A tool's own cache mark must live as long as the marks behind it.
        longer = {"cache_control": MARKS["1h"]} if frame.head_ttl == "1h" else {}
        head["tools"] = [{**tool, **longer} if "cache_control" in tool else tool for tool in frame.tools]
    at, system_marks = place_marks(request)
    system: list[Json] = [{"type": "text", "text": part} for part in frame.system if part.strip()]
    for place in choose_marked_parts(len(system), system_marks):
        system[place]["cache_control"] = MARKS[frame.head_ttl]
    if system and not held:
        head["system"] = system
    tail = b',"diagnostics":' + _encode(diagnostics) if diagnostics else b""
    return enclose_messages(_encode(head), _messages(request, at, held), tail)


def enclose_messages(head: bytes, messages: list[bytes], tail: bytes = b"") -> bytes:
    """An object with its messages: one join, as a conversation may be megabytes and copies cost time."""
    whole = messages or [b""]
    whole[0] = head[:-1] + b',"messages":[' + whole[0]
    whole[-1] += b"]" + tail + b"}"
    return b",".join(whole)


def collect_betas(frame: Frame) -> list[str]:
    """The `anthropic-beta` header: the betas asked for, and those that other parameters need."""
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
    if is_thinking_dropped(frame.params):
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


def choose_max_tokens(request: Request, most: int) -> int:
    """The longest reply to ask for, of at most `most` tokens: thinking counts, and must leave room."""
    asked = min(request.max_tokens or most, most)
    budget = (request.frame.params.get("thinking") or {}).get("budget_tokens")
    if isinstance(budget, int) and asked <= budget:
        return min(most, asked + budget)
    return asked


def _messages(request: Request, at: list[int], held: int) -> list[bytes]:
    view = request.view
    wires = encode_messages(view)[held:]
    mark = b',"cache_control":' + _encode(MARKS[request.frame.ttl])
    plain = encode_view(view)
    for i in at:
        if i >= held:
            pinned = wires[i - held].removeprefix(plain[i])
            wires[i - held] = _marked(plain[i], view[i].message, mark) + pinned
    return wires


# --- cache marks --------------------------------------------------------------------------------------


def place_marks(request: Request) -> tuple[list[int], int]:
    """The messages that carry a mark, and the number of marks left for the system prompt."""
    frame, view = request.frame, request.view
    room = MOST_MARKS - sum("cache_control" in part for part in (*frame.tools, frame.params))
    wanted = {view.where(id) for id in request.breakpoints} - {None}
    places = sorted({i for at in wanted if (i := _markable_at(request, at)) is not None})
    for_messages = max(0, room - 1) if frame.system else max(0, room)
    kept = places[-for_messages:] if for_messages else []
    return kept, room - len(kept)


def choose_marked_parts(parts: int, room: int) -> set[int]:
    """The parts of the system prompt that carry a mark, `room` at most: the last, then the first."""
    return set([parts - 1, 0][: max(0, room)]) if parts else set()


def _markable_at(request: Request, at: int | None) -> int | None:
    """This message, or the nearest before it that can carry a mark."""
    while at is not None and at >= 0:
        if any(map(is_markable, request.view[at].message.content)):
            return at
        at -= 1
    return None


def is_markable(block: Block) -> bool:
    """True if the block may carry a cache mark: not thinking, not empty text, not an unknown block."""
    if isinstance(block, Text):
        return bool(block.text.strip())
    return not isinstance(block, (*THOUGHTS, Opaque))


def _marked(wire: bytes, message: Message, mark: bytes) -> bytes:
    """The same bytes with a mark spliced into the last block that can carry one."""
    end = len(wire) - len(b"]}")
    for block in reversed(strip_unsigned_thinking(message).content):
        if is_markable(block):
            return wire[: end - 1] + mark + wire[end - 1 :]
        end -= len(_encode(encode_block(block))) + 1
    return wire


# --- the reply ----------------------------------------------------------------------------------------


def decode_reply(response: Json) -> Reply | None:
    """A whole reply; None if the response is not in this format."""
    content = response.get("content")
    if not isinstance(content, list) or not all(isinstance(b, dict) for b in content):
        return None
    managed = response.get("context_management") or {}
    notes = {"message_id": response.get("id"), **(response.get("diagnostics") or {})}
    return Reply(
        Message("assistant", tuple(map(parse_block, content))),
        parse_usage(response.get("usage") or {}),
        str(response.get("stop_reason") or "end_turn"),
        tuple(managed.get("applied_edits") or ()),
        str(response.get("model") or ""),
        {name: value for name, value in notes.items() if value},
    )


def parse_usage(counted: Json) -> Usage:
    """The tokens that the provider counted; a missing or odd number counts as 0."""
    detail = counted.get("cache_creation")
    hour = detail.get("ephemeral_1h_input_tokens") if isinstance(detail, dict) else 0
    written = to_whole_number(counted.get("cache_creation_input_tokens"))
    return Usage(
        input=to_whole_number(counted.get("input_tokens")),
        cache_write=written,
        cache_read=to_whole_number(counted.get("cache_read_input_tokens")),
        output=to_whole_number(counted.get("output_tokens")),
        cache_write_1h=min(written, to_whole_number(hour)),
    )


def to_whole_number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and 0 < value < 2**53 else 0
