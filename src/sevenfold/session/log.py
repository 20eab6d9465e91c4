"""A transcript on disk: begun at the first word, resumed to the same bytes, never half a pair.

Makes a conversation whole again after lines of its transcript were lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.core.errors import FromTheFuture, SessionNotFound, StorageFailure
from sevenfold.core.events import Emit, Notice
from sevenfold.core.messages import THOUGHTS, Block, Json, Message, ToolResult, user
from sevenfold.core.protocols import Clock
from sevenfold.core.request import Frame
from sevenfold.core.tokens import Calibration
from sevenfold.core.transcript import (
    FORMAT,
    Entry,
    Mark,
    PlacedMessage,
    Replace,
    Reply,
    Transcript,
    Undo,
    Unknown,
    Unthink,
    View,
    What,
)
from sevenfold.layers.shared.idle_gaps import EDGES, GapCounts
from sevenfold.storage.files import write_atomic
from sevenfold.storage.jsonl import JsonlLog, read_log
from sevenfold.storage.results import ResultStore
from sevenfold.streaming import answer_interrupted_calls

MENDED: Final = "mended"
"""The mark that holds the places of losses that were dealt with: the user is told once."""
BY: Final = "resume"
_KIND: Final = (
    rb'(?s)^.{0,200}?"what":\s*\{"type":\s*"(message|reply|results|replace|unthink|undo|pin|mark)"'
)
_AGAIN: Final = "what was taken out is shown again, so the next request is paid for anew"
_MEANING: Final = {
    "message": "what was said there is not shown",
    "reply": "what the model said there is not shown",
    "results": _AGAIN,
    "replace": _AGAIN,
    "unthink": _AGAIN,
    "undo": _AGAIN,
    "pin": "a change of the provider's cache is forgotten, so the next request is paid for anew",
    "mark": "what was noted there is forgotten",
    "": "what it held is not known",
}


class LostRecord(msgspec.Struct, frozen=True):
    """A record that is not there any more."""

    line: int  # Of the file, from 1: the damaged one, or the one before which something is missing
    kind: str  # The kind of the record, if it can still be seen
    before: int  # The number of the readable entry that comes next
    why: str
    missing: int = 0  # The number of records that are missing altogether

    @property
    def place(self) -> str:
        return f"the place before line {self.line}" if self.missing else f"line {self.line}"

    @property
    def edits(self) -> bool:
        return self.kind in ("results", "replace", "unthink", "undo")

    @property
    def meaning(self) -> str:
        return f"{self.line}: {self.why}; {_MEANING[self.kind]}"


class TranscriptRepair(msgspec.Struct, frozen=True):
    """Entries to write, each with its author, and notices for the user."""

    writes: tuple[tuple[str, What], ...] = ()
    told: tuple[str, ...] = ()


def repair_transcript(
    log: Transcript,
    lines: bytes,
    find: Callable[[str], Path | None] = lambda use_id: None,
    name: str = "transcript",
) -> TranscriptRepair:
    """The entries that make the view of this log valid again; none when nothing was lost.

    `lines` is what the log was loaded from, `find` says where the whole result of a tool use is stored.
    Tool uses at the very end without an answer are left to the resumed session, unless it is known that
    their results were lost.
    """
    noted = log.view.marks.get(MENDED)
    known = set(map(str, noted)) if isinstance(noted, list) else set()
    losses = _losses(log, lines)
    new = [loss for loss in losses if loss.place not in known]
    if not new and _sound(log):
        return TranscriptRepair()
    work = _PairRepair(log, losses, find)
    edits = work.edits()
    mark = [(BY, Mark(MENDED, sorted(known | {loss.place for loss in new})))] if new else []
    told = [f"{name}:{loss.meaning}" for loss in new]
    told += [f"{name}: {text}" for text in (*_unapplied(log, new), *work.told)]
    return TranscriptRepair((*edits, *_unthinking(log, edits, new), *mark), tuple(told))


def _sound(log: Transcript) -> bool:
    """True if a provider takes the view, once what is open at the end is answered."""
    asked: set[str] = set()
    roles: list[str] = []
    for placed in log.view:
        if asked != {result.tool_use_id for result in placed.message.results}:
            return False
        asked = {use.id for use in placed.message.tool_uses}
        roles.append(placed.message.role)
    # Two answers in a row may be meant so; where a record makes no sense, it may have stood between.
    twice = ("assistant", "assistant") in pairwise(roles) and any(map(_unknown, log.entries))
    return not twice and roles[:1] != ["assistant"]


# --- what was lost ------------------------------------------------------------------------------------


def _losses(log: Transcript, lines: bytes) -> list[LostRecord]:
    """Lines that could not be read, damaged ones that could, and places where records are missing."""
    gaps = any(entry.id != at for at, entry in enumerate(log.entries))
    if not log.problems and not gaps and not any(map(_unknown, log.entries)):
        return []
    unread = {problem.line: problem.why for problem in log.problems}
    found: list[LostRecord] = []
    at, next_id, passed = 0, 0, 0
    for number, line in enumerate(lines.split(b"\n"), 1):
        if not line.strip():
            continue
        if number in unread:
            why = f"this line cannot be read and was passed over ({unread[number]})"
            found.append(LostRecord(number, _kind(line), at, why))
            passed += 1
            continue
        entry = log.entries[at]
        if (missing := entry.id - next_id - passed) > 0:
            why = f"{missing:,} record{'s are' if missing > 1 else ' is'} missing before this line"
            found.append(LostRecord(number, "", at, why, missing))
        if _unknown(entry) and (kind := _kind(line)):
            found.append(LostRecord(number, kind, at, "this line is damaged and was passed over"))
        at, next_id, passed = at + 1, max(next_id, entry.id + 1), 0
    return found


def _unknown(entry: Entry) -> bool:
    return isinstance(entry.what, Unknown)


def _kind(line: bytes) -> str:
    """The kind of the record; a line that is only partly damaged still says so."""
    found = re.match(_KIND, line)
    return found[1].decode() if found else ""


def _unapplied(log: Transcript, losses: Sequence[LostRecord]) -> list[str]:
    """Edits that can be read, but not what they begin or end at."""
    if not losses:
        return []
    here = {entry.id for entry in log.entries}
    edits = [e.what for e in log.entries if isinstance(e.what, Replace)]
    n = sum(edit.first not in here or edit.last not in here for edit in edits)
    return [f"edits that began or ended at what is lost ({n:,}) no longer apply; {_AGAIN}"] if n else []


def _unthinking(
    log: Transcript, edits: Sequence[tuple[str, What]], new: Sequence[LostRecord]
) -> list[tuple[str, What]]:
    """Thinking after a loss was made on something else, and models that sign it refuse it."""
    if any(isinstance(what, Undo) for _, what in edits):  # all of it was said again, without
        return []
    after = log.preview(*(what for _, what in edits if isinstance(what, Replace)))
    first = _first_change(log.view, after)
    if any(loss.edits for loss in new):
        first = 0
    for loss in new:
        if loss.kind in ("message", "reply", ""):
            later = {e.id for e in log.entries[loss.before :] if isinstance(e.what, Message | Reply)}
            first = min(first, next((i for i, p in enumerate(after) if p.id in later), first))
    for i in range(first, len(after)):
        if any(isinstance(block, THOUGHTS) for block in after[i].message.content):
            return [(BY, Unthink(after[i].id))]
    return []


def _first_change(before: View, after: View) -> int:
    for i, (a, b) in enumerate(zip(before, after, strict=False)):
        if a != b:
            return i
    return min(len(before), len(after))


# --- making it whole ----------------------------------------------------------------------------------


class _PairRepair:
    """Goes through a view once and gives every half pair its other half."""

    def __init__(
        self, log: Transcript, losses: Sequence[LostRecord], find: Callable[[str], Path | None]
    ) -> None:
        self._log, self._losses, self._find = log, losses, find
        self._at = {entry.id: at for at, entry in enumerate(log.entries)}
        self._asking: list[Message] = []
        """The messages among which the open uses stand, so that an answer can follow them."""
        self._open: dict[str, None] = {}
        self._last: PlacedMessage | None = None
        self._role = ""
        self._answered = self._dropped = self._noted = 0

    @property
    def told(self) -> list[str]:
        counts = {
            "tool calls answered as lost": self._answered,
            "results without their call left out": self._dropped,
            "notes put where something is missing": self._noted,
        }
        parts = [f"{what}: {n:,}" for what, n in counts.items() if n]
        return [f"the conversation was made whole again ({'; '.join(parts)})"] if parts else []

    def edits(self) -> list[tuple[str, What]]:
        groups = [(id, list(g)) for id, g in groupby(self._log.view, key=lambda p: p.id)]
        made: list[tuple[list[PlacedMessage], list[Message]]] = []
        for _, group in groups:
            messages: list[Message] = []
            for placed in group:
                self._take(placed, messages)
            made.append((group, messages))
        changed = [pair for pair in made if [p.message for p in pair[0]] != pair[1]]
        end = self._end()
        if changed and len({id for id, _ in groups}) < len(groups):  # damaged ids, said twice
            return [*self._anew(made), *end]
        return [(g[0].by, Replace(g[0].id, g[0].id, tuple(m))) for g, m in changed] + end

    def _take(self, placed: PlacedMessage, into: list[Message]) -> None:
        message = placed.message
        answered = [r.tool_use_id for r in message.results if r.tool_use_id in self._open]
        if self._open and not answered:
            self._asking.append(Message("user", self._lost(list(self._open), placed)))
            self._open, self._role = {}, "user"
        message = self._fitting(placed, message, answered)
        if message.role == "assistant" and self._role != "user":
            into.append(self._note(placed))
        into.append(message)
        self._open = dict.fromkeys(use.id for use in message.tool_uses)
        self._asking, self._last, self._role = into, placed, message.role

    def _fitting(self, placed: PlacedMessage, message: Message, answered: list[str]) -> Message:
        """The message with an answer for every open use, and without any other."""
        kept: list[Block] = []
        wanted = dict.fromkeys(answered)
        for block in message.content:
            if isinstance(block, ToolResult):
                if block.tool_use_id not in wanted:
                    self._dropped += 1
                    continue
                del wanted[block.tool_use_id]
            kept.append(block)
        missing = [id for id in self._open if id not in answered]
        if not missing and len(kept) == len(message.content):
            return message
        content = (*self._lost(missing, placed), *kept)
        return Message(message.role, content) if content else self._note(placed)

    def _end(self) -> list[tuple[str, What]]:
        """Uses at the end: answered here only if something is lost behind them."""
        if not self._open or not self._place(None):
            return []
        return [(BY, Message("user", self._lost(list(self._open), None)))]

    def _anew(self, made: list[tuple[list[PlacedMessage], list[Message]]]) -> Iterator[tuple[str, What]]:
        """Takes everything back and says it again, where ids cannot be trusted."""
        yield BY, Undo(frozenset(e.id for e in self._log.entries if not isinstance(e.what, Mark)))
        for group, messages in made:
            for message in messages:
                kept = tuple(b for b in message.content if not isinstance(b, THOUGHTS))
                yield group[0].by, Message(message.role, kept)

    def _lost(self, ids: Sequence[str], upcoming: PlacedMessage | None) -> tuple[ToolResult, ...]:
        self._answered += len(ids)
        where = self._where(upcoming)
        return tuple(ToolResult(id, self._answer(id, where), True) for id in ids)

    def _answer(self, id: str, where: str) -> str:
        path = self._find(id)
        kept = f" All of it is in {path}." if path else ""
        unknown = "Whether the call worked is not known."
        return f"[the result of this call cannot be shown: {where}. {unknown}{kept}]"

    def _note(self, upcoming: PlacedMessage) -> Message:
        self._noted += 1
        return user(f"[something that was said here cannot be shown: {self._where(upcoming)}]")

    def _where(self, upcoming: PlacedMessage | None) -> str:
        place = self._place(upcoming)
        return f"{place} of the transcript is damaged" if place else "it is not in the transcript"

    def _place(self, upcoming: PlacedMessage | None) -> str:
        """The place of a loss between the message before and this one."""
        after = self._at.get(self._last.id, -1) if self._last else -1
        until = len(self._log.entries) if upcoming is None else self._at.get(upcoming.id, -1)
        places = (loss.place for loss in self._losses if after < loss.before <= until)
        return next(places, "")


RESULTS: Final = "tool-results"  # The folder of a session's whole tool results
HEAD: Final = 65_536  # The first record says which format it is; this much of the file holds it


class TranscriptFile:
    """One session's file. Nothing is created before there is something to keep."""

    def __init__(self, path: Path, clock: Clock, emit: Emit) -> None:
        self.path = path
        self._emit = emit
        self._log: JsonlLog | None = None
        self.transcript = Transcript(clock.now, self._write)

    def _write(self, lines: bytes) -> None:
        if self._log is None:
            self._log = JsonlLog(self.path)
        self._log.append(lines)

    @property
    def begun(self) -> bool:
        return self._log is not None

    def begin(self, about: Json, frame: Frame, calibration: Calibration | None) -> None:
        """Write down what a later resume needs to send the very same bytes."""
        marks = [Mark("session", {"format": FORMAT, **about}), make_frame_mark(frame)]
        if calibration is not None:
            marks.append(Mark("calibration", msgspec.to_builtins(calibration)))
        self.transcript.add(*marks, by="session")

    def branch(self, view: View, clock: Clock) -> None:
        """Go on from another conversation's view; only what is added from here on is in this file."""
        self.transcript = Transcript.on(view, clock.now, self._write)

    def resume(self, clock: Clock) -> Frame | None:
        """Read it back, mend what a crash left open, and return the frame it was sent with."""
        lines = self.load(clock)
        self._mend(lines)
        if unanswered := answer_interrupted_calls(self.transcript.view):
            self.transcript.add(unanswered, by="resume")
        return self.frame()

    def load(self, clock: Clock) -> bytes:
        """Read it back as it is; returns its lines."""
        if not self.path.is_file():
            raise SessionNotFound(
                f"there is no session {self.path.stem} in {self.path.parent}; "
                "'sevenfold sessions' lists those that are"
            )
        try:
            Transcript.load(read_log(self.path, HEAD), clock.now)
        except FromTheFuture as error:  # before it is opened, so that it is not touched
            raise FromTheFuture(f"{self.path}: {error}") from None
        self._log = JsonlLog(self.path, create=False)
        lines = self._log.read()
        self.transcript = Transcript.load(lines, clock.now, self._write)
        if self._log.repaired:
            self._emit(Notice(self._log.repaired, "warning"))
        return lines

    def _mend(self, lines: bytes) -> None:
        """Make the view whole where lines were lost, and say what that means."""
        store = ResultStore(lambda: self.path.with_suffix("") / RESULTS)
        mending = repair_transcript(self.transcript, lines, store.find, self.path.name)
        for by, writes in groupby(mending.writes, key=lambda write: write[0]):
            self.transcript.add(*(what for _, what in writes), by=by)
        for text in mending.told:
            self._emit(Notice(text, "warning"))

    def frame(self) -> Frame | None:
        """The frame that the last request of this transcript was sent with, if it can be read."""
        stored = self.transcript.view.marks.get("frame")
        try:
            return msgspec.convert(stored, Frame) if stored else None
        except msgspec.ValidationError as error:
            text = f"{self.path.name}: the stored system prompt and tools are damaged ({error}); "
            self._emit(Notice(text + "the session goes on with those of now", "warning"))
            self.transcript.add(Mark("frame", None), by="resume")
            return None

    def sync(self) -> None:
        if self._log:
            self._log.sync()

    def close(self) -> None:
        if self._log:
            self._log.close()
            self._log = None


def make_frame_mark(frame: Frame) -> Mark:
    return Mark("frame", msgspec.to_builtins(frame))


class IdleGapFile:
    """`<home>/gaps.json`. A file that cannot be read or written costs accuracy, nothing else."""

    def __init__(self, home: Path, clock: Clock) -> None:
        self._path, self._clock = home / "gaps.json", clock
        self._opened = clock.now()
        self._before: GapCounts | None = None
        self._new = GapCounts()

    def gaps(self) -> GapCounts:
        """The gaps of this user, the last minutes included."""
        if self._before is None:
            self._before = self._kept()
        return self._before + self._new

    def spoke(self, replied_at: float | None) -> None:
        """The user speaks; the last reply came then. One from before this session says nothing."""
        if replied_at is not None and replied_at >= self._opened:
            self._new = self._new.after(self._clock.now() - replied_at)

    def leave(self) -> None:
        """The session ends. If the user ever came back in it, this time they did not."""
        if not self._new.seen:
            return
        try:
            write_atomic(self._path, msgspec.json.encode(self._kept() + self._new.leaving()))
        except StorageFailure:
            return
        self._before, self._new = None, GapCounts()

    def _kept(self) -> GapCounts:
        try:
            kept = msgspec.json.decode(self._path.read_bytes(), type=GapCounts)
        except (OSError, msgspec.DecodeError):
            return GapCounts()
        sound = len(kept.counts) == len(EDGES) and min(kept.counts) >= 0 <= kept.left
        return kept if sound else GapCounts()


MOST_EVIDENCE: Final = 200_000.0
"""In tokens: what a session starts with must not outweigh what it sees itself."""


class CalibrationFile:
    """`<home>/calibration.json`. A file that cannot be read or written costs accuracy, nothing else."""

    def __init__(self, home: Path) -> None:
        self._path = home / "calibration.json"

    def of(self, model: str) -> Calibration | None:
        return self._all().get(model)

    def keep(self, model: str, learned: Calibration) -> None:
        evidence = max(learned.tt, learned.jj)
        if not evidence:
            return
        share = min(1.0, MOST_EVIDENCE / evidence)
        shrunk = Calibration(*(value * share for value in msgspec.structs.astuple(learned)))
        try:
            write_atomic(self._path, msgspec.json.encode({**self._all(), model: shrunk}))
        except StorageFailure:
            return

    def _all(self) -> dict[str, Calibration]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Calibration])
        except (OSError, msgspec.DecodeError):
            return {}
