"""Everything that happens, as values. One union feeds log, terminal, dashboard and telemetry.

Who is told what happens: a session and a `Context` say everything that they do to their audience.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import msgspec

from sevenfold.core.messages import Message, ToolResult, ToolUse
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import What


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
    shared: int  # Tokens of the beginning that are the same as in the request before
    lost: int  # Tokens that were sent before and will have to be paid for again
    why: str
    cost: float  # The cost of the loss, in the currency of the price table; 0 where no price is known
    expected: bool
    """True if a layer announced this break, a rule of the provider brings it, or nothing was sent yet."""


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
    cost: float | None = None  # In the currency of the price table; None where no price is known
    model: str = ""
    source: str = "main"


class ToolStarted(Event, frozen=True):
    """A tool begins."""

    use: ToolUse


class Acted(Event, frozen=True):
    """The results of a batch of tools are written."""

    results: tuple[ToolResult, ...]


class Stored(Event, frozen=True):
    """A tool result went to disk whole; the view shows its beginning and where it is."""

    use_id: str
    tool: str
    path: str
    characters: int
    tokens: int  # Tokens that the view was spared, estimated
    why: str = ""


class Cleared(Event, frozen=True):
    """Old tool results left the view, each of them on disk; what that saves and what it costs."""

    by: str  # The rule: cost, plain, cache edit
    use_ids: tuple[str, ...]
    tokens: int  # Freed, estimated
    rewritten: int  # Tokens behind the first change, which the provider has to write to its cache again
    saving: float  # The expected saving in the rest of the session, in base-price input tokens
    price: float  # The cost of the break itself, in the same unit; 0 when the cache was cold anyway
    why: str  # The decision in words


class ReadAgain(Event, frozen=True):
    """The model asked again for something that had been cleared."""

    tool: str
    what: str
    tokens: int
    times: int  # Times that this has happened in the session


class Surfaced(Event, frozen=True):
    """Memories were attached to what the user said."""

    names: tuple[str, ...]
    files: tuple[str, ...]
    bytes: int
    selector: str
    milliseconds: float


class Remembered(Event, frozen=True):
    """A memory was saved, changed or removed: which, by whom, and how to look at it or undo it."""

    name: str
    path: str
    action: str  # created, updated, merged or removed
    revision: str
    by: str  # user, agent, extraction, dream, team or other


class Denied(Event, frozen=True):
    """A tool was not allowed to run."""

    use: ToolUse
    reason: str


class Added(Event, frozen=True):
    """The changes of a layer are written."""

    by: str
    whats: tuple[What, ...]


class Declined(Event, frozen=True):
    """A layer handed back something that does not apply any more; nothing was written."""

    by: str
    whats: tuple[What, ...]


class Forked(Event, frozen=True):
    """A model was asked something beside the conversation, mostly on the prefix of the last request."""

    kind: str
    steps: int
    usage: Usage
    hit_rate: float  # The part of what was sent that came from the provider's cache
    denied: int = 0
    seconds: float = 0.0


class SideWorkChosen(Event, frozen=True):
    """Side work is asked for the cheaper way: by a fork, or by a lean request to the small model."""

    kind: str
    way: Literal["fork", "lean"]
    model: str  # The small model, or another that the lean request goes to
    why: str
    fork: float | None = None  # The expected price of a fork; None: it was not compared
    lean: float | None = None


class AgentStarted(Event, frozen=True):
    """A conversation beside the main one begins, or is taken up again."""

    id: str
    name: str
    kind: str  # The definition it follows, or `fork`
    description: str = ""
    background: bool = False
    depth: int = 1


class AgentEnded(Event, frozen=True):
    """An agent has nothing more to do, for now."""

    id: str
    name: str
    kind: str
    status: str  # done, failed, stopped or idle
    said: str = ""
    steps: int = 0
    usage: Usage = Usage()
    seconds: float = 0.0


class Mail(Event, frozen=True):
    """A message between agents was delivered; it is never the user's word."""

    sender: str
    summary: str
    id: str


class Compacted(Event, frozen=True):
    """The older part of the view has been replaced: by what, why, and what came of it."""

    by: str  # summary, digest, notes, ..., as in the boundary
    trigger: str
    tokens_before: int
    tokens_after: int
    fidelity: float | None = None
    """The share of what was said that can still be found; None where it was not measured."""
    seconds: float = 0.0
    usage: Usage = Usage()  # The usage of asking for it


class Progress(Event, frozen=True):
    """Background work says how it is going."""

    by: str
    said: str
    done: bool = False
    outcome: str = ""  # The outcome, where it can be told apart: `completed`, `waiting` or `killed`


class Failed(Event, frozen=True):
    """A layer or a piece of background work failed; the turn went on without it."""

    by: str
    cause: str


class Repaired(Event, frozen=True):
    """An answer to background work was not in the form that was asked for, and was used all the same."""

    by: str
    what: str


class Retrying(Event, frozen=True):
    """A request failed and will be sent again."""

    cause: str
    attempt: int
    wait: float
    beside: bool = False  # True for a request beside the conversation, of a fork or an agent


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


EARLY: Final = 100  # Events that wait for the first subscriber


class EventSource:
    """Something that can be listened to."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Event], object]] = []
        self._early: deque[Event] = deque(maxlen=EARLY)
        self._overhearing: list[Callable[[Event], object]] = []

    def subscribe(self, subscriber: Callable[[Event], object]) -> Callable[[], None]:
        """Be told everything that happens; returns how to stop being told.

        The first to subscribe is also told what happened before, at the opening for instance.
        """
        self._subscribers.append(subscriber)
        while self._early:
            subscriber(self._early.popleft())
        return partial(self._subscribers.remove, subscriber)

    def overhear(self, listener: Callable[[Event], object]) -> None:
        """Be told everything from now on. The first subscriber still gets the early events."""
        self._overhearing.append(listener)

    def emit(self, event: Event) -> None:
        for listener in self._overhearing:
            listener(event)
        if not self._subscribers:
            self._early.append(event)
        for subscriber in tuple(self._subscribers):
            subscriber(event)


def get_label(layer: object) -> str:
    """The layer's name in transcripts and events: its `label`, which stays when the class is renamed."""
    label = getattr(layer, "label", None) or getattr(layer, "__name__", None)
    return label if isinstance(label, str) else type(layer).__name__
