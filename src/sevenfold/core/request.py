"""A request to the model: a frame that does not change, and a view.

A fork is the same frame, the same view, one message more.

What must hold of every view; one small function per rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.core.errors import PromptTooLong
from sevenfold.core.messages import THOUGHTS, Json, Message, Thinking, make_wire_message
from sevenfold.core.tokens import MessageSize, Pressure, Thresholds, count_bytes
from sevenfold.core.transcript import (
    Edit,
    Id,
    Mark,
    Pin,
    Replace,
    Results,
    Transcript,
    Undo,
    Unthink,
    View,
    What,
)

Ttl: TypeAlias = Literal["5m", "1h"]
TTL_SECONDS: Final[dict[Ttl, float]] = {"5m": 300.0, "1h": 3600.0}
KEPT_WARM: Final = "kept_warm"
"""The mark with the time until which the provider keeps the prefix in this silence."""
_encode = msgspec.json.Encoder().encode


def make_kept_until_mark(view: View, until: float) -> Mark:
    """The mark for a request beside the conversation that has read its prefix in this silence."""
    return Mark(KEPT_WARM, {"since": view.replied_at, "until": until})


class Frame(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cache-safe parameters: everything before and around the messages."""

    model: str
    system: tuple[str, ...] = ()
    """The first part is the same for everyone; the rest belongs to this session."""
    tools: tuple[Json, ...] = ()
    params: Json = {}  # Thinking, betas, context management, effort: what changes the cache when it changes
    ttl: Ttl = "5m"
    system_ttl: Ttl | None = None
    """Cache lifetime of tools and system prompt; None: the same as for messages."""

    @property
    def head_ttl(self) -> Ttl:
        """Never shorter than what stands behind it: providers refuse that."""
        return "1h" if "1h" in (self.ttl, self.system_ttl) else "5m"

    @property
    def size(self) -> MessageSize:
        return MessageSize(sum(count_bytes(part) for part in self.system), len(_encode(self.tools)))

    @property
    def tokens(self) -> int:
        """An estimate, needed until the first reply says how large it really is."""
        return self.size.tokens()


class Request(msgspec.Struct, frozen=True):
    frame: Frame
    view: View
    warm: View | None = None
    """The view as it stood before this pass of edits: what the provider still has in its cache."""
    breakpoints: tuple[Id, ...] = ()  # After which messages the provider is asked to keep the prefix
    max_tokens: int = 0  # The most the model may answer; 0: as much as it can
    source: str = "main"
    """The sender: the main conversation, a kind of fork, an agent. The ledger counts by it."""
    sent: Id | None = None  # The end of the last request, if the view was cut to what the provider has

    @property
    def tokens(self) -> int:
        """The whole context: what the provider reported last has the frame in it."""
        return self.view.tokens + (self.frame.tokens if self.view.reported is None else 0)


def measure_pressure(
    request: Request, thresholds: Thresholds, now: float, refused: PromptTooLong | None = None
) -> Pressure:
    """Measures how full the window would be, and the silence of the user so far."""
    view = request.view
    idle = max(0.0, now - view.replied_at) if view.replied_at is not None else 0.0
    tokens = request.tokens
    warm = is_warm(request, now)
    if refused is None:
        return Pressure(tokens, thresholds, idle, warm=warm)
    full = max(tokens, thresholds.window)
    return Pressure(full, thresholds, idle, True, warm, refused.over)


def is_warm(request: Request, now: float) -> bool:
    """True while the provider keeps the prefix: since the last reply, or since it was kept warm."""
    view = request.view
    kept = view.marks.get(KEPT_WARM)
    until = kept.get("until") if isinstance(kept, dict) else None
    idle = now - view.replied_at if view.replied_at is not None else 0.0
    return idle < TTL_SECONDS[request.frame.ttl] or (isinstance(until, int | float) and now < until)


def encode_message(message: Message) -> bytes:
    """A message in the Messages format, without cache marks."""
    return _encode(make_wire_message(strip_unsigned_thinking(message)))


def strip_unsigned_thinking(message: Message) -> Message:
    """Without unsigned thinking: it came from another kind of model, and is refused."""
    if not any(type(b) is Thinking and not b.signature for b in message.content):
        return message
    kept = (b for b in message.content if not isinstance(b, Thinking) or b.signature)
    return Message(message.role, tuple(kept))


def encode_view(
    view: View, form: str = "messages", encode: Callable[[Message], bytes] = encode_message
) -> list[bytes]:
    """The wire bytes of each message of a view; only what is new is worked out."""
    known: list[bytes] = view.buffer.encoded.setdefault(form, [])
    known.extend(encode(view[i].message) for i in range(len(known), len(view)))
    return known if len(known) == len(view) else known[: len(view)]


def encode_prefix(request: Request) -> list[bytes]:
    """The parts that "byte for byte" compares: tools, system, then messages and pins; no cache marks.

    One request extends another when the other's list is the beginning of its list.
    """
    frame = request.frame
    head = {"model": frame.model, "params": frame.params, "tools": frame.tools}
    out = [_encode(head), _encode(frame.system)]
    messages = encode_view(request.view)
    if not request.view.pins:
        return out + messages
    pins = collect_pins(request.view)
    for placed, wire in zip(request.view, messages, strict=True):
        out.append(wire)
        out.extend(pins.get(placed.id, ()))
    return out


def collect_pins(view: View) -> dict[Id, list[bytes]]:
    """The bytes of the pins behind each message. A deletion names only results that are there still."""
    pins: dict[Id, list[bytes]] = {}
    for pin in view.pins:
        payload, ids = pin.payload, pin.payload.get("delete")
        if isinstance(ids, list):
            left = [id for id in ids if view.result_at(id) is not None]
            payload = {**payload, "delete": left} if left else {}
        if payload:
            pins.setdefault(pin.after, []).append(_encode(payload))
    return pins


def has_paired_tools(view: View) -> bool:
    """Every tool use is answered in the next message, and nothing else is."""
    open_uses: set[str] = set()
    for placed in view:
        answered = {r.tool_use_id for r in placed.message.results}
        if open_uses != answered:
            return False
        open_uses = {u.id for u in placed.message.tool_uses}
    return not open_uses


def find_open_uses(view: View) -> tuple[str, ...]:
    """The tool uses of the last message, which nothing has answered yet."""
    return tuple(u.id for u in view[-1].message.tool_uses) if len(view) else ()


def complete_changes(
    handed: Sequence[What], log: Transcript, binds_thinking: bool
) -> tuple[What, ...] | None:
    """Completes the changes of a layer for writing; None when they may not be written.

    It must refer to what is there and split no pair. An edit before thinking that is bound to its
    prefix takes that thinking along, unless a tool loop still needs it.
    """
    view = log.view
    if not all(is_applicable(what, view) for what in handed):
        return None
    edits = tuple(what for what in handed if isinstance(what, Edit))
    moves = any(isinstance(edit, Replace | Undo) for edit in edits)
    if not edits or not (moves or binds_thinking):
        return tuple(handed)  # what is shown in place of a result splits no pair
    after = log.preview(*edits)
    if moves and has_paired_tools(view) and not has_paired_tools(after):
        return None
    first = find_unbound_thinking(view, after) if binds_thinking else None
    if first is None:
        return tuple(handed)
    if is_loop_broken(after, first):
        return None
    # Thinking goes first: a crash in the middle of the write leaves none on a prefix that has changed.
    return (Unthink(first), *handed) if view.where(first) is not None else (*handed, Unthink(first))


def is_applicable(what: What, view: View) -> bool:
    """True if what it refers to is still in the view."""
    match what:
        case Results(shown):
            return all(view.result_at(use) is not None for use in shown)
        case Pin(after):
            return view.where(after) is not None
        case Replace(first, last):
            a, b = view.where(first), view.where(last)
            return a is not None and b is not None and a <= b
        case _:
            return True


def find_unbound_thinking(before: View, after: View) -> Id | None:
    """The first message from which thinking is no longer bound to the prefix it was made on."""
    same = 0
    for a, b in zip(before, after, strict=False):
        if a is not b and a != b:
            break
        same += 1
    if same == len(before):
        return None
    for i in range(same, len(after)):
        if any(isinstance(b, THOUGHTS) for b in after[i].message.content):
            return after[i].id
    return None


def find_open_loop(view: View) -> int:
    """The place where a tool loop begins that is still going on; the end of the view if there is none."""
    at, in_loop = len(view), False
    while at > 0 and view[at - 1].by != "user":
        at -= 1
        message = view[at].message
        if message.role == "assistant" and not in_loop and not message.tool_uses:
            return len(view)
        in_loop = in_loop or message.role == "assistant"
    return at if in_loop else len(view)


def is_in_open_loop(view: View) -> bool:
    """True if the model has called tools and not answered the user yet."""
    for at in range(len(view) - 1, -1, -1):
        if view[at].by == "user" or view[at].message.role == "assistant":
            return bool(view[at].message.tool_uses)
    return False


def is_loop_broken(after: View, first: Id) -> bool:
    """True if dropping thinking from `first` on would reach into a tool loop still going on."""
    return find_last_loop_thinking(after) >= (after.where(first) or 0)


def find_last_loop_thinking(view: View) -> int:
    """The place of the last thinking in a tool loop that is still going on; -1 if there is none.

    Where thinking is bound to its prefix, nothing before it may change until the loop ends.
    """
    items = view.buffer.items  # a loop may be a thousand messages long
    at = len(view) if is_in_open_loop(view) else 0
    while at > 0 and items[at - 1].by != "user":
        at -= 1
        for block in items[at].message.content:
            if isinstance(block, THOUGHTS):
                return at
    return -1


def is_safe_cut(view: View, at: int) -> bool:
    """True if the view may be cut before position `at` without splitting a use from its result."""
    return at <= 0 or at >= len(view) or not view[at].message.results
