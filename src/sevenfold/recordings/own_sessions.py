"""Reads the transcripts that Sevenfold itself writes, without locking or mending them.

A sub-agent in the file of the session that called it becomes a session of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import asdict, replace

from sevenfold.core.messages import Block, Message, ToolResult
from sevenfold.core.transcript import (
    Entry,
    Id,
    Mark,
    Pin,
    Replace,
    Reply,
    Results,
    Undo,
    Unknown,
    Unthink,
    check_format,
    decode_entry,
)
from sevenfold.layers.l4_compaction.digest import TAG as DIGEST
from sevenfold.layers.shared.boundary import COMPACTIONS, STANDS_FOR, parse_boundary, record_name
from sevenfold.recordings.reader import (
    RecordedThread,
    describe_left_out,
    drop_impossible_usage,
    get_text,
    make_times_monotonic,
    parse_object,
    repair_line,
)
from sevenfold.recordings.recorded_session import (
    RecordedClearing,
    RecordedCompaction,
    RecordedEvent,
    RecordedSession,
    RecordedThoughtDrop,
    SessionReader,
)
from sevenfold.storage.jsonl import iterate_lines

FORMAT: Final = "sevenfold"
FORK: Final = "fork"  # The kind of an agent, and the author of what it needs before it is asked
RULE_LAYERS: Final = frozenset({"PayOut", "Snip", "Collapse", "Digest"})
"""Layers that ask no model for what they put in place of others. `Compaction` may write a digest, too."""
_LOOKED_AT: Final = 5  # Lines by which one of our files is told from others


_encode: Final = msgspec.json.Encoder().encode
_strict = msgspec.json.Decoder(Entry).decode


class _EntryKind(msgspec.Struct):
    type: str


class _OwnLine(msgspec.Struct):
    id: int
    at: float
    what: _EntryKind


class OwnRecordedSession(RecordedSession, frozen=True):
    """A session of ours, with the facts that only our files have."""

    interactive: bool | None = None  # True if a person talked in it; None if the file does not say
    one_shot: bool = False  # True if one question was asked and no more
    forked: bool = False  # True for an agent that went on from the conversation of its session


class OwnReader:
    """The `SessionReader` of this format."""

    format = FORMAT

    def recognises(self, head: bytes) -> bool:
        for line in head.split(b"\n")[:_LOOKED_AT]:
            try:
                msgspec.json.decode(line, type=_OwnLine)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            return True
        return False

    def read(self, source: Path | bytes) -> RecordedSession:
        reading = _OwnParse()
        entries: list[tuple[int, Entry]] = []
        for number, line in iterate_lines(source, reading.thread.problems):
            try:
                last = entries[-1][1].at if entries else 0.0
                entry, dropped = _entry(line, len(entries), last)
            except ValueError as error:
                reading.thread.add_problem(number, str(error))
                continue
            for field in dropped:
                reading.thread.add_problem(number, describe_left_out(field))
            check_format(entry)
            entries.append((number, entry))
        undone: set[int] = set()
        for _, entry in reversed(entries):  # one that was itself undone undoes nothing
            if isinstance(entry.what, Undo) and entry.id not in undone:
                undone |= entry.what.ids
        for number, entry in entries:
            reading.take(number, entry, undone)
        return _name_replies(reading.make_session(), (entry for _, entry in entries))


_fits: type[SessionReader] = OwnReader


def _entry(line: bytes, next_id: int, last: float) -> tuple[Entry, list[str]]:
    """The entry of a line, and what had to be left out of it. `last`: the time of the one before."""
    entry: Entry | None = None
    try:
        entry = decode_entry(line, next_id)
        if not isinstance(entry.what, Unknown):
            return entry, []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    lost: list[str] = []
    try:
        record = parse_object(line, lost)
        if type(record.get("at")) not in (int, float):
            record["at"], lost[:] = last, ["at"]
        line, dropped = repair_line(msgspec.json.encode(record), _strict)
    except ValueError:
        if entry is None:
            raise
        return entry, []  # a record of some later kind
    return _strict(line), [*lost, *dropped]


class _OwnParse:
    def __init__(self) -> None:
        self.thread = RecordedThread(FORMAT)
        self._about: dict[str, object] = {}
        self._undone: list[RecordedEvent] = []
        self._compacted_by = ""  # The layer that compacted, until the model is asked again
        self._visible: list[tuple[int, str]] = []
        """What the model saw, in order: its id in the file, which edits name, and its id here."""
        self._replies: set[str] = set()  # Those among them that a model gave
        self._records: set[str] = set()  # Names of the records of messages that stand for others

    def take(self, line: int, entry: Entry, undone: set[int]) -> None:
        if entry.id in undone:
            self.thread.skipped["undone"] += 1
            if isinstance(entry.what, Reply):
                self._undone.append(RecordedEvent(str(entry.id), None, line, entry.at, entry.what))
            return
        match entry.what:
            case Reply() as reply:
                self._reply(line, entry, reply)
            case Message() as message:
                self._message(line, entry, message)
            case Replace() as edit:
                self._replaced(line, entry, edit)
            case Results(shown):
                ids = tuple(self.thread.resolve_id(id) for id in shown)
                clearing = RecordedClearing(ids, entry.by)
                self.thread.add_change(clearing, line, entry.at, uuid=str(entry.id))
            case Pin(payload={"type": "cache_edits", "delete": [*deleted]}):
                ids = tuple(self.thread.resolve_id(str(id)) for id in deleted)
                clearing = RecordedClearing(ids, entry.by, in_cache=True)
                self.thread.add_change(clearing, line, entry.at, uuid=str(entry.id))
            case Unthink(first, last):
                self._unthought(line, entry, first, last)
            case Mark("session", dict() as about):
                self._about = about
            case Mark("compacted", value) if (known := parse_boundary(value)) is not None:
                self.thread.add_asked(known.model, known.usage)
            case Mark(name) if name.startswith(STANDS_FOR):
                self._records.add(name)
            case _:
                self.thread.skipped[type(entry.what).__name__.lower()] += 1

    def _reply(self, line: int, entry: Entry, reply: Reply) -> None:
        if not reply.message.content:
            return
        self._compacted_by = ""
        model = reply.model or get_text(self._about.get("model"))
        self.thread.end_reply()
        for block in reply.message.content:
            self.thread.add_block(block, line, entry.at, model=model, uuid=str(entry.id))
        self.thread.add_usage(reply.usage)
        self._replies.add(str(entry.id))
        self._visible.append((entry.id, str(entry.id)))

    def _message(self, line: int, entry: Entry, message: Message) -> None:
        self._visible.append((entry.id, str(entry.id)))
        # What the layer adds behind its summary restores what is still needed: nobody said it.
        if self._compacted_by and entry.by == self._compacted_by and self.thread.add_restored(message):
            return
        if entry.by == FORK:
            self.thread.skipped["answers to calls of the session"] += 1
            return
        rest: list[Block] = [b for b in message.content if not isinstance(b, ToolResult)]
        for result in message.results:
            self.thread.add_result(result, line, entry.at)
        if message.results:
            self.thread.add_beside(rest, message.results[-1].tool_use_id)
        elif rest:
            self.thread.add_message(rest, line, entry.at, meta=entry.by != "user", uuid=str(entry.id))

    def _replaced(self, line: int, entry: Entry, edit: Replace) -> None:
        """What a layer replaces is a compaction; a caller's change of its own words is not replayed."""
        ids = [id for id, _ in self._visible]
        if edit.first not in ids or edit.last not in ids:
            self.thread.skipped[f"folded by {entry.by}"] += 1
            return
        first, end = ids.index(edit.first), len(ids) - ids[::-1].index(edit.last)
        kept = [uuid for _, uuid in self._visible[end:]]
        if entry.by not in COMPACTIONS:
            self.thread.skipped[f"changed by {entry.by}"] += 1
            self._visible[first:end] = [(entry.id, uuid) for _, uuid in self._visible[first:end]]
            return
        named = (message for message in edit.by if record_name(message) in self._records)
        summary = next(named, edit.by[0] if edit.by else Message("user", ()))
        compaction = RecordedCompaction(
            entry.by,
            summary=summary,
            kept_from=kept[0] if kept else "",
            replaced_from=self._visible[first][1] if first else "",
            restored=tuple(message for message in edit.by if message is not summary),
            asked=entry.by not in RULE_LAYERS and not summary.text.startswith(f"<{DIGEST}>"),
        )
        self.thread.add_change(compaction, line, entry.at, uuid=str(entry.id))
        self._visible[first:end] = [(entry.id, str(entry.id))] if edit.by else []
        self._compacted_by = entry.by

    def _unthought(self, line: int, entry: Entry, first: Id, last: Id | None) -> None:
        ids = [id for id, _ in self._visible]
        if first not in ids or (last is not None and last not in ids):
            return
        end = len(ids) if last is None else len(ids) - ids[::-1].index(last)
        replies = [uuid for _, uuid in self._visible[ids.index(first) : end] if uuid in self._replies]
        if replies:
            change = RecordedThoughtDrop(replies[0], replies[-1])
            self.thread.add_change(change, line, entry.at, uuid=str(entry.id))

    def make_session(self) -> RecordedSession:
        id, root = get_text(self._about.get("id")), get_text(self._about.get("root"))
        agent = self._about.get("agent")
        if agent:
            id, own = get_text(self._about.get("session")), id
        size = self._about.get("window")
        known = asdict(
            self.thread.make_session(
                session=id, folder=root, windows=(size,) if isinstance(size, int) and size > 0 else ()
            )
        ) | {"undone": tuple(self._undone)}
        if not agent:
            said, one_shot = self._about.get("interactive"), self._about.get("oneShot") is True
            person = said if isinstance(said, bool) else None
            return OwnRecordedSession(**known, interactive=person, one_shot=one_shot)
        forked = isinstance(agent, dict) and agent.get("kind") == FORK
        # An agent is asked by a session, never by a person.
        return OwnRecordedSession(**known | {"agent": own}, interactive=False, forked=forked)


def _name_replies(recorded: RecordedSession, entries: Iterable[Entry]) -> RecordedSession:
    """Name each reply by a digest of all that the file has up to it, what was undone included.

    A copy begins with the same lines, so it has the same names, whatever is undone in either file later.
    """
    names, digest = dict[str, str](), b""
    for entry in entries:
        if isinstance(entry.what, Message | Reply):
            digest = blake2b(digest + _encode((entry.at, entry.what)), digest_size=16).digest()
            names[str(entry.id)] = digest.hex()

    def name(said: RecordedEvent) -> RecordedEvent:
        return replace(said, request_id=names[said.uuid]) if isinstance(said.what, Reply) else said

    said, undone = (tuple(map(name, events)) for events in (recorded.entries, recorded.undone))
    return replace(recorded, entries=said, undone=undone)


def has_agents(recorded: RecordedSession) -> bool:
    return any(_answered(said) for said in recorded.sidechains.values())


def iterate_sessions(recorded: RecordedSession) -> Iterator[RecordedSession]:
    """The session itself, where the file has it, and the conversations of its sub-agents.

    What is wrong with the file is told with the first.
    """
    told = recorded.problems
    if recorded.entries:
        yield recorded
        told = ()
    for agent, said in recorded.sidechains.items():
        if not _answered(said):
            continue
        alone = replace(
            recorded,
            agent=agent,
            entries=said,
            tip=said[-1].uuid,
            title="",
            continues="",
            sidechains={},
            undone=(),
            problems=told,
        )
        yield make_times_monotonic(drop_impossible_usage(alone))
        told = ()


def _answered(said: tuple[RecordedEvent, ...]) -> bool:
    return any(isinstance(one.what, Reply) for one in said)
