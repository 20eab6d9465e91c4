"""The transcript: an append-only log of messages and edits, and the view worked out from it.

    log     Entry(id, at, by, what, source)     what = Message | Reply | Edit | Pin | Mark
    view    Placed(id, message, by), pins, marks, size

Ids are places in this log. Messages have none; a view shows each message beside its id, which is how
a layer says "the last message covered".

The records of a transcript: what was said, and what was done to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from sevenfold.core.errors import FromTheFuture
from sevenfold.core.messages import THOUGHTS, Json, Message, ToolResult
from sevenfold.core.tokens import Calibration, MessageSize, Usage, add_sizes, measure_message

Id: TypeAlias = int
FORMAT: Final = 1  # Version of the log. A higher one is refused before anything is read or written.


class Reply(msgspec.Struct, frozen=True, tag="reply", omit_defaults=True):
    """A reply of the model, with its usage, stop reason, and what the server changed."""

    message: Message
    usage: Usage = Usage()
    stop: str = "end_turn"
    applied: tuple[Json, ...] = ()  # Context edits the provider reports to have made
    model: str = ""
    diagnostics: Json = {}  # More that the provider said about this reply: request id, cache diagnostics

    @property
    def cut_short(self) -> bool:
        """True if it ran into its length limit in the middle of its words."""
        return self.stop == "max_tokens" and not self.message.tool_uses


class Results(msgspec.Struct, frozen=True, tag="results"):
    """Edit: show these instead of these tool results, by tool-use id."""

    shown: dict[str, str]


class Replace(msgspec.Struct, frozen=True, tag="replace"):
    """Edit: put `by` in place of the messages from `first` to `last`."""

    first: Id
    last: Id
    by: tuple[Message, ...]


class Unthink(msgspec.Struct, frozen=True, tag="unthink", omit_defaults=True):
    """Edit: drop the thinking blocks of every message from `first` to `last`, or to the end."""

    first: Id
    last: Id | None = None


class Undo(msgspec.Struct, frozen=True, tag="undo"):
    """Edit: work the view out as if these entries had never been (rewind, expand)."""

    ids: frozenset[Id]


Edit: TypeAlias = Results | Replace | Unthink | Undo


class Pin(msgspec.Struct, frozen=True, tag="pin", omit_defaults=True):
    """Goes into the request after message `after`, for ever; the view does not show it."""

    after: Id
    payload: Json
    frees: int = 0


class Mark(msgspec.Struct, frozen=True, tag="mark"):
    """A value that a layer wants to find again, also after a resume. The last one per name counts."""

    name: str
    value: Any


class Unknown(msgspec.Struct, frozen=True, tag="unknown"):
    """A record of a kind we do not know: it stays in the file and changes nothing."""

    raw: bytes


What: TypeAlias = Message | Reply | Results | Replace | Unthink | Undo | Pin | Mark | Unknown


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    id: Id
    at: float
    what: What
    by: str = ""  # The author: "user", "model", "tools", or the layer that handed it back
    source: str = ""  # Fingerprint of the caller's own message that this stands for (`Context`)


class Problem(msgspec.Struct, frozen=True):
    """A line of a file that could not be read, and why. It stays in the file."""

    line: int
    why: str


def decode_entry(line: bytes, next_id: Id) -> Entry:
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError:
        head = _head_decoder.decode(line)  # JSON it is, so a record of some later kind
        id = next_id if head.id is None else head.id
        return Entry(id, head.at, Unknown(line), head.by)


class _EntryHead(msgspec.Struct):
    id: Id | None = None
    at: float = 0.0
    by: str = ""


def check_format(entry: Entry) -> None:
    if isinstance(entry.what, Mark) and entry.what.name == "session":
        value = entry.what.value
        version = value.get("format") if isinstance(value, dict) else None
        if isinstance(version, int) and version > FORMAT:
            raise FromTheFuture(
                f"this transcript has format {version} and this version of Sevenfold reads up to "
                f"{FORMAT}: upgrade with 'pip install -U sevenfold'; the file was not touched"
            )


encode_entry = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Entry)
_head_decoder = msgspec.json.Decoder(_EntryHead)


class PlacedMessage(msgspec.Struct, frozen=True):
    """A message in a view: what was said, its place in the log, who said it, how big it is."""

    id: Id
    message: Message
    by: str
    size: MessageSize


class _MessageBuffer:
    """Placed messages that only grow, and where each id and each tool result stands."""

    __slots__ = ("encoded", "items", "results", "where")

    def __init__(self, items: Iterable[PlacedMessage] = ()) -> None:
        self.items: list[PlacedMessage] = []
        self.where: dict[Id, int] = {}
        self.results: dict[str, tuple[int, ...]] = {}
        self.encoded: dict[str, list[bytes]] = {}
        """Wire bytes by format, aligned with `items`: what was sent once is sent as the same bytes."""
        for placed in items:
            self.add(placed)

    def add(self, placed: PlacedMessage) -> None:
        self.where[placed.id] = at = len(self.items)
        self.items.append(placed)
        for block in placed.message.content:
            if type(block) is ToolResult:
                self.results[block.tool_use_id] = (*self.results.get(block.tool_use_id, ()), at)

    def keeping(self, items: list[PlacedMessage]) -> _MessageBuffer:
        """A new buffer of these; the bytes of what stands before the first difference are kept."""
        new = _MessageBuffer(items)
        same = 0
        for old, now in zip(self.items, items, strict=False):
            if old is not now and old != now:
                break
            same += 1
        new.encoded = {name: known[:same] for name, known in self.encoded.items()}
        return new

    def instead(self, changed: dict[int, PlacedMessage], length: int) -> _MessageBuffer:
        """A new buffer with other messages in the same places, answering the same tool uses."""
        if len(self.items) > length:
            return self.keeping([changed.get(i, self.items[i]) for i in range(length)])
        new = _MessageBuffer()
        new.items, new.where = self.items.copy(), self.where.copy()
        new.results = self.results.copy()
        for at, placed in changed.items():
            new.items[at] = placed
        first = min(changed, default=length)
        new.encoded = {name: known[:first] for name, known in self.encoded.items()}
        return new


class ReportedUsage(msgspec.Struct, frozen=True):
    """The usage of the last reply, the size of the view right after it, and the reply's id."""

    tokens: int
    size: MessageSize
    id: Id


class View(msgspec.Struct, frozen=True, eq=False):
    """The messages that the model sees: a frozen window on a buffer that only grows, without copies."""

    buffer: Any = msgspec.field(default_factory=_MessageBuffer)
    length: int = 0
    size: MessageSize = MessageSize()
    pins: tuple[Pin, ...] = ()
    marks: dict[str, Any] = {}
    reported: ReportedUsage | None = None
    replied_at: float | None = None
    calibration: Calibration = Calibration()
    edited: bool = False
    """True if an edit was made since the last reply, so that its usage no longer compares."""

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[PlacedMessage]:
        return iter(self.buffer.items[: self.length])

    def __getitem__(self, i: int) -> PlacedMessage:
        if not -self.length <= i < self.length:
            raise IndexError(i)
        placed: PlacedMessage = self.buffer.items[i if i >= 0 else self.length + i]
        return placed

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, View)
            and (self.pins, self.marks) == (other.pins, other.marks)
            and list(self) == list(other)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(p.message for p in self)

    def where(self, id: Id) -> int | None:
        at = self.buffer.where.get(id)
        return at if at is not None and at < self.length else None

    def _first_of(self, id: Id) -> int | None:
        """The place where the messages of this entry begin; those of one edit share its id."""
        at = self.where(id)
        while at and self[at - 1].id == id:
            at -= 1
        return at

    def result_at(self, tool_use_id: str) -> int | None:
        """The place of the result of this tool use."""
        places: Sequence[int] = self.buffer.results.get(tool_use_id, ())
        if places and places[-1] < self.length:
            return places[-1]
        return next((at for at in reversed(places) if at < self.length), None)

    def since(self, id: Id | None) -> Sequence[PlacedMessage]:
        """The messages after this one; all of them when it is not in the view any more."""
        at = None if id is None else self.where(id)
        return cast(Sequence[PlacedMessage], self.buffer.items[0 if at is None else at + 1 : self.length])

    def upto(self, length: int) -> View:
        """Its first so many messages, as they were sent then; what was counted since is not known."""
        gone = add_sizes(p.size for p in self.buffer.items[length : self.length])
        kept = replace(self, length=length, size=self.size - gone, reported=None)
        shown = tuple(p for p in self.pins if kept.where(p.after) is not None)
        return kept if shown == self.pins else replace(kept, pins=shown)

    @property
    def tokens(self) -> int:
        """The last reported usage, plus an estimate of what came or went since."""
        if self.reported is None:
            return self.calibration.tokens(self.size)
        usage, then = self.reported.tokens, self.reported.size
        freed = sum(p.frees for p in self.pins if p.after > self.reported.id)
        change = self.calibration.tokens(self.size - then)
        if change < 0:  # what left was part of `usage`: scale to it, or a cut goes below nothing
            change = int(change * min(1.0, usage / max(1, self.calibration.tokens(then))))
        return max(0, usage + change - freed)

    def after(self, entry: Entry) -> View:
        match entry.what:
            case Message() as message:
                return self._append(entry.id, message, entry.by)
            case Reply() as reply:
                return self._replied(entry, reply)
            case Results(shown):
                return self._showing(shown)
            case Replace(first, last, by):
                return self._replaced(entry, first, last, by)
            case Unthink(first, last):
                return self._unthought(first, last)
            case Pin() as pin:
                return replace(self, pins=(*self.pins, pin))
            case Mark(name, value):
                return self._marked(name, value)
            case Unknown():
                return self
            case Undo():
                raise TypeError("an undo is worked out by the transcript")

    def _append(self, id: Id, message: Message, by: str, **changed: Any) -> View:
        """The view with one message more, and with these fields `changed`."""
        buffer = self.buffer if len(self.buffer.items) == self.length else self._own_buffer()
        size = measure_message(message)
        buffer.add(PlacedMessage(id, message, by, size))
        return replace(self, buffer=buffer, length=self.length + 1, size=self.size + size, **changed)

    def _own_buffer(self) -> _MessageBuffer:
        return cast(_MessageBuffer, self.buffer).keeping(list(self))

    def _replied(self, entry: Entry, reply: Reply) -> View:
        learned = self.calibration
        if self.reported and not self.edited and reply.usage.prompt:
            came = self.size - self.reported.size
            learned = learned.learn(came, reply.usage.prompt - self.reported.tokens)
        grown = self._append(entry.id, reply.message, "model", replied_at=entry.at, calibration=learned)
        if not reply.usage.total:
            return grown
        reported = ReportedUsage(reply.usage.total, grown.size, entry.id)
        return replace(grown, reported=reported, edited=False)

    def _showing(self, shown: dict[str, str]) -> View:
        items, new = cast(_MessageBuffer, self.buffer).items, dict[int, PlacedMessage]()
        for use in shown:
            if (at := self.result_at(use)) is not None and at not in new:
                new[at] = _placed(items[at], _with_results(items[at].message, shown))
        came, went = add_sizes([p.size for p in new.values()]), add_sizes([items[at].size for at in new])
        buffer = self.buffer.instead(new, self.length)
        return replace(self, buffer=buffer, size=self.size + came - went, edited=True)

    def _replaced(self, entry: Entry, first: Id, last: Id, by: tuple[Message, ...]) -> View:
        a, b = self._first_of(first), self.where(last)
        if a is None or b is None or b < a:
            return self
        old = list(self)
        gone = {p.id for p in old[a : b + 1]}
        new = [PlacedMessage(entry.id, m, entry.by, measure_message(m)) for m in by]
        pins = tuple(p for p in self.pins if p.after not in gone)
        return self._with([*old[:a], *new, *old[b + 1 :]], pins)

    def _unthought(self, first: Id, last: Id | None) -> View:
        if (at := self._first_of(first)) is None:
            return self
        found = None if last is None else self.where(last)
        end, old = len(self) if found is None else found + 1, list(self)
        return self._with([*old[:at], *map(_without_thinking, old[at:end]), *old[end:]], self.pins)

    def _marked(self, name: str, value: Any) -> View:
        marked = replace(self, marks={**self.marks, name: value})
        if name == "calibration":  # a prior from earlier sessions, or a new model's
            return replace(marked, calibration=msgspec.convert(value, Calibration))
        return marked

    def _with(self, placed: list[PlacedMessage], pins: tuple[Pin, ...]) -> View:
        size = add_sizes(p.size for p in placed)
        buffer = self.buffer.keeping(placed)
        return replace(self, buffer=buffer, length=len(placed), size=size, pins=pins, edited=True)


def _placed(old: PlacedMessage, message: Message) -> PlacedMessage:
    return PlacedMessage(old.id, message, old.by, measure_message(message))


def _with_results(message: Message, shown: dict[str, str]) -> Message:
    content = list(message.content)
    for at, block in enumerate(content):
        if isinstance(block, ToolResult) and block.tool_use_id in shown:
            content[at] = replace(block, content=shown[block.tool_use_id])
    return Message(message.role, tuple(content))


def _without_thinking(placed: PlacedMessage) -> PlacedMessage:
    if not any(isinstance(b, THOUGHTS) for b in placed.message.content):
        return placed
    kept = tuple(b for b in placed.message.content if not isinstance(b, THOUGHTS))
    return _placed(placed, Message(placed.message.role, kept))


class Transcript:
    """The log. `write` is where a batch of lines goes to disk, in one write."""

    def __init__(self, now: Callable[[], float], write: Callable[[bytes], object] | None = None) -> None:
        self.entries: list[Entry] = []
        self.view = self._base = View()
        self.problems: list[Problem] = []
        self._now, self._write, self._next = now, write, 0

    def add(self, *whats: What, by: str = "user", source: str = "") -> list[Id]:
        """Append a batch: all of it or, after a crash, a prefix that is still a valid log."""
        at = self._now()
        new = [Entry(self._next + i, at, what, by, source) for i, what in enumerate(whats)]
        if self._write:
            self._write(b"".join(encode_entry(e) + b"\n" for e in new))
        for entry in new:
            self._take(entry)
        return [e.id for e in new]

    def make_undo(self, what: What | None) -> tuple[Undo, ...]:
        """The undo of this, if it is the last entry; else nothing."""
        if what is None or not self.entries or (last := self.entries[-1]).what is not what:
            return ()
        return (Undo(frozenset({last.id})),)

    def _take(self, entry: Entry) -> None:
        self.view = self._view_after(entry)
        self.entries.append(entry)
        self._next = max(self._next, entry.id + 1)

    def _view_after(self, entry: Entry) -> View:
        if isinstance(entry.what, Undo):
            return _replayed(self._base, [*self.entries, entry])
        return self.view.after(entry)

    def preview(self, *edits: Edit) -> View:
        """The view as it would be after these edits; nothing is written."""
        view, new = self.view, list[Entry]()
        for i, edit in enumerate(edits):
            new.append(Entry(self._next + i, 0.0, edit))
            undo = isinstance(edit, Undo)
            view = _replayed(self._base, [*self.entries, *new]) if undo else view.after(new[-1])
        return view

    @classmethod
    def load(
        cls, lines: bytes, now: Callable[[], float], write: Callable[[bytes], object] | None = None
    ) -> Transcript:
        """Read a log back. A line that cannot be read is a problem to report, never the end."""
        new = cls(now, write)
        for number, line in enumerate(lines.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                entry = decode_entry(line, new._next)
                check_format(entry)
                new._take(entry)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                new.problems.append(Problem(number, str(error)))
        return new

    @classmethod
    def on(
        cls, view: View, now: Callable[[], float], write: Callable[[bytes], object] | None = None
    ) -> Transcript:
        """A child on this view: shares every byte; only what it adds is its own to write."""
        child = cls(now, write)
        child.view = child._base = replace(view, buffer=view._own_buffer())
        child._next = max((p.id for p in view), default=-1) + 1
        return child


def _replayed(base: View, entries: Sequence[Entry]) -> View:
    undone: set[Id] = set()
    for e in reversed(entries):
        if isinstance(e.what, Undo) and e.id not in undone:
            undone |= e.what.ids
    view = base
    for e in entries:
        if e.id not in undone and not isinstance(e.what, Undo):
            view = view.after(e)
    shown = tuple(p for p in view.pins if view.where(p.after) is not None)
    return view if shown == view.pins else replace(view, pins=shown)
