"""What goes to the model: a frame that does not change, and a view.

A fork is the same frame, the same view, one message more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.errors import PromptTooLong
from sevenfold.messages import Json, Message, Thinking, message_to_wire
from sevenfold.tokens import Pressure, Size, Thresholds, byte_length
from sevenfold.transcript import Id, Mark, View

Ttl: TypeAlias = Literal["5m", "1h"]
TTL_SECONDS: Final[dict[Ttl, float]] = {"5m": 300.0, "1h": 3600.0}
KEPT_WARM: Final = "kept_warm"
"""The mark that says until when the provider keeps the prefix although nobody has spoken."""
_encode = msgspec.json.Encoder().encode


def kept_until(view: View, until: float) -> Mark:
    """The mark for a request beside the conversation that has read its prefix in this silence."""
    return Mark(KEPT_WARM, {"since": view.replied_at, "until": until})


class Frame(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cache-safe parameters: everything before and around the messages."""

    model: str
    system: tuple[str, ...] = ()
    """The first part is the same for everyone; the rest belongs to this session."""
    tools: tuple[Json, ...] = ()
    params: Json = {}
    """Thinking, betas, context management, effort: what changes the cache when it changes."""
    ttl: Ttl = "5m"
    system_ttl: Ttl | None = None
    """How long what stands before the messages is to be kept; None: as long as they are."""

    @property
    def head_ttl(self) -> Ttl:
        """Never shorter than what stands behind it: providers refuse that."""
        return "1h" if "1h" in (self.ttl, self.system_ttl) else "5m"

    @property
    def size(self) -> Size:
        return Size(sum(byte_length(part) for part in self.system), len(_encode(self.tools)))

    @property
    def tokens(self) -> int:
        """An estimate, needed until the first reply says how large it really is."""
        return self.size.tokens()


class Request(msgspec.Struct, frozen=True):
    frame: Frame
    view: View
    warm: View | None = None
    """The view as it stood before this pass of edits: what the provider still has in its cache."""
    breakpoints: tuple[Id, ...] = ()
    """After which messages the provider is asked to keep the prefix."""
    max_tokens: int = 0
    """The most the model may answer; 0: as much as it can."""
    source: str = "main"
    """Who asks: the main conversation, a fork of some kind, an agent. The ledger counts by it."""


def pressure_of(
    request: Request, thresholds: Thresholds, now: float, refused: PromptTooLong | None = None
) -> Pressure:
    """How full the window would be, and how long nobody has spoken."""
    view, frame = request.view, request.frame
    idle = max(0.0, now - view.replied_at) if view.replied_at is not None else 0.0
    tokens = view.tokens + (frame.tokens if view.reported is None else 0)
    kept = view.marks.get(KEPT_WARM)
    until = kept.get("until") if isinstance(kept, dict) else None
    warm = idle < TTL_SECONDS[frame.ttl] or (isinstance(until, int | float) and now < until)
    if refused is None:
        return Pressure(tokens, thresholds, idle, warm=warm)
    full = max(tokens, thresholds.window)
    return Pressure(full, thresholds, idle, True, warm, refused.over)


def encode_message(message: Message) -> bytes:
    """A message in the Messages format, without cache marks."""
    return _encode(message_to_wire(sendable(message)))


def sendable(message: Message) -> Message:
    """Without thinking that nobody signed: it came from another kind of model, and is refused."""
    if not any(isinstance(b, Thinking) and not b.signature for b in message.content):
        return message
    kept = (b for b in message.content if not isinstance(b, Thinking) or b.signature)
    return Message(message.role, tuple(kept))


def encoded(
    view: View, form: str = "messages", encode: Callable[[Message], bytes] = encode_message
) -> list[bytes]:
    """The wire bytes of each message of a view; only what is new is worked out."""
    known: list[bytes] = view.buffer.encoded.setdefault(form, [])
    known.extend(encode(view[i].message) for i in range(len(known), len(view)))
    return known if len(known) == len(view) else known[: len(view)]


def prefix(request: Request) -> list[bytes]:
    """What "byte for byte" compares: tools, system, then messages and pins; no cache marks.

    One request extends another when the other's list is the beginning of its list.
    """
    frame = request.frame
    head = {"model": frame.model, "params": frame.params, "tools": frame.tools}
    out = [_encode(head), _encode(frame.system)]
    messages = encoded(request.view)
    if not request.view.pins:
        return out + messages
    pins = pinned(request.view)
    for placed, wire in zip(request.view, messages, strict=True):
        out.append(wire)
        out.extend(pins.get(placed.id, ()))
    return out


def pinned(view: View) -> dict[Id, list[bytes]]:
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
