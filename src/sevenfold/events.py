"""What happens, as values. One union feeds log, terminal, dashboard and telemetry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from sevenfold.messages import Message, ToolResult, ToolUse
from sevenfold.tokens import Usage
from sevenfold.transcript import What


class Event(msgspec.Struct, frozen=True, tag=True, tag_field="event"):
    """Something that happened. Every event below is one."""


class Started(Event, frozen=True):
    """A session is open: new, resumed, or after a clear."""

    session: str
    model: str
    source: str
    messages: int = 0


class Asked(Event, frozen=True):
    """The user said something and a turn begins."""

    text: str


class Delta(Event, frozen=True):
    """A piece of the reply, as it is streamed."""

    text: str


class Sending(Event, frozen=True):
    """A request is about to go out: what of the last prefix it keeps, loses, why, at what price."""

    source: str
    tokens: int
    shared: int
    """Tokens of the beginning that are the same as in the request before."""
    lost: int
    """Tokens that were sent before and will have to be paid for again."""
    why: str
    cost: float
    """What the loss costs, in the currency of the price table; 0 where no price is known."""
    expected: bool
    """Whether a layer announced this break, or nothing is known to compare with."""


class CacheBroke(Event, frozen=True):
    """The provider read less from its cache than it should have."""

    source: str
    before: int
    after: int
    why: str
    cost: float
    expected: bool


class Replied(Event, frozen=True):
    """A reply is complete and written."""

    message: Message
    usage: Usage
    stop: str
    seconds: float = 0.0
    cost: float | None = None
    """In the currency of the price table; None where no price is known."""
    model: str = ""
    source: str = "main"


class ToolStarted(Event, frozen=True):
    """A tool begins."""

    use: ToolUse


class Acted(Event, frozen=True):
    """The results of a batch of tools are written."""

    results: tuple[ToolResult, ...]


class Denied(Event, frozen=True):
    """A tool was not allowed to run."""

    use: ToolUse
    reason: str


class Added(Event, frozen=True):
    """What a layer handed back is written."""

    by: str
    whats: tuple[What, ...]


class Declined(Event, frozen=True):
    """A layer handed back something that does not apply any more; nothing was written."""

    by: str
    whats: tuple[What, ...]


class Progress(Event, frozen=True):
    """Background work says how it is going."""

    by: str
    said: str
    done: bool = False


class Failed(Event, frozen=True):
    """A layer or a piece of background work failed; the turn went on without it."""

    by: str
    cause: str


class Retrying(Event, frozen=True):
    """A request failed and will be sent again."""

    cause: str
    attempt: int
    wait: float


class HookRan(Event, frozen=True):
    """A user hook ran: what it was for, how it ended, what it said."""

    hook: str
    command: str
    outcome: str
    message: str = ""


class Notice(Event, frozen=True):
    """Something the user should know, once."""

    text: str
    level: str = "info"


class Ended(Event, frozen=True):
    """A turn is over."""

    stop: str
    steps: int
    usage: Usage
    seconds: float = 0.0


class Closed(Event, frozen=True):
    """The session is closed."""

    session: str
    reason: str


Emit: TypeAlias = Callable[[Event], Any]
