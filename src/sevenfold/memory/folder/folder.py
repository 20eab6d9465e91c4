"""One piece of work on the memory folder (`FolderTransaction`), and the ledger of its files.

Also the parts of a folder with an index of their own (the user's and the team's), notices that wait
until the lock is free, and the history of a folder. Every write goes on without a history: if the disk
refuses, the user is told once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections import ChainMap
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake, Refused, StorageFailure
from sevenfold.core.events import Emit, Notice
from sevenfold.memory.backend import (
    HEAD,
    FileStamp,
    FolderListing,
    OpenMemories,
    RevisionLog,
    StateRecords,
    is_topic,
)
from sevenfold.memory.folder.names import INDEX_NAME, TEAM, make_file_key
from sevenfold.memory.guard.gate import GuardGate
from sevenfold.memory.history.revisions import Author, TakenRevisions

if TYPE_CHECKING:
    from sevenfold.memory.topic_file import Topic

NONE: Final = "-"  # Stands for the newest revision if the history cannot be read

T = TypeVar("T")


class FolderHistory:
    """The history, opened on first use. `record` and `head` need the write lock."""

    def __init__(
        self, open_log: Callable[[Callable[[str], None]], RevisionLog], say: Callable[[str], None]
    ) -> None:
        self._open = open_log
        self.mended = False  # True after a repair: the history may have lost revisions then
        self._say = say
        self._history: RevisionLog | None = None

    def ask(self, work: Callable[[RevisionLog], T]) -> T:
        """The answer of the history. Raises `StorageFailure` if there is none."""
        if self._history is None:
            self._history = self._open(self._mended)
        return work(self._history)

    def head(self, at: float) -> str:
        """The newest revision; empty if there is none, `NONE` if the history cannot be read."""
        try:
            try:
                newest = self.ask(lambda history: history.log(limit=1))
            except StorageFailure:
                if said := self.ask(lambda history: history.mend(at)):
                    self._mended(said)
                newest = self.ask(lambda history: history.log(limit=1))
        except StorageFailure as error:
            self._without(error)
            return NONE
        return newest[0].id if newest else ""

    def files(self, revision: str) -> dict[str, bytes]:
        """All files at a revision; none if there is no such revision."""
        return self._try(lambda history: history.at(revision), {}) if revision not in ("", NONE) else {}

    def file(self, revision: str, name: str) -> bytes | None:
        """One file at a revision; None if there is no such file or revision."""
        if revision in ("", NONE):
            return None
        return self._try(lambda history: history.file_at(revision, name), None)

    def record(
        self,
        changed: Mapping[str, bytes | None] | None,
        whole: Callable[[], Mapping[str, bytes]],
        author: Author,
        summary: str,
        at: float,
        takes_back: TakenRevisions | None = None,
    ) -> str | None:
        """The new revision's id, empty if nothing was new; None if it could not be written.

        Without `changed` it is the whole folder as it was found, with an unknown past.
        """

        def record(history: RevisionLog) -> str:
            revision = history.record(whole, author, summary, at, changed=changed, takes_back=takes_back)
            return revision.id if revision else ""

        return self._try(record, None)

    def _try(self, work: Callable[[RevisionLog], T], otherwise: T) -> T:
        try:
            return self.ask(work)
        except StorageFailure as error:
            self._without(error)
            return otherwise

    def _mended(self, sentence: str) -> None:
        self.mended = True
        self._say(sentence)

    def _without(self, error: StorageFailure) -> None:
        self._say(f"Memories are saved, but without history: {error}")


SEEN: Final = "seen.json"
CHANGED: Final = "seen-changes.json"
PENDING: Final = "pending.json"
UNKNOWN: Final = "?"  # The revision of a ledger that belongs to none: everything is to be compared
SETTLED: Final = 100_000_000
"""Nanoseconds after which a file cannot change any more without its stamp changing: file systems count
time in steps, and two writes within one step may look the same."""
_FORMAT: Final = 3
_TOKEN: Final = 17  # Bytes of the first line of the ledger, which is another after each write
_LARGEST: Final = 1 << 30
_TIMES: Final = 1_000  # The most times of replaced texts that are kept
_CHANGES: Final = 256  # Rows that changed since the ledger was written whole; with more it is again
FEW: Final = 500  # Files that are all looked at before every write
SHARE: Final = 0.1  # The part of the time that may go into looks at more files than that


A_SECRET: Final = "it holds a secret"  # The reason that keeps a file out of history and index


class FileRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One file as it was seen last."""

    stamp: FileStamp | None
    digest: str
    name: str = ""
    held: str = ""  # The reason it is not in the history; empty if it is
    core: str = ""  # The digest of what the memory states: two with the same one are about the same


class FolderLedger(msgspec.Struct):
    """All rows, and the revision they belong to."""

    head: str = UNKNOWN
    rows: dict[str, FileRow] = {}
    purged: str | None = None
    """The newest revision after a purge, which itself is none; None: nothing was purged."""
    format: int = _FORMAT
    times: dict[str, int] = {}
    """Times of replaced texts by their digest: a text that comes back gets its old time."""
    folders: dict[str, int] = {}
    """The versions of all folders after the last look or write; `""` is the top."""
    odd: list[str] = []  # Names in the folder that are no memories and cannot be used for one
    looked: float = 0.0  # The time of the last look at all files
    took: float = 0.0  # Seconds that look took

    def gone(self, row: FileRow) -> None:
        """A text is replaced or removed."""
        if row.stamp is not None and row.digest:
            self.times.pop(row.digest, None)
            self.times[row.digest] = row.stamp.modified
            while len(self.times) > _TIMES:
                del self.times[next(iter(self.times))]


class PendingWrite(msgspec.Struct, frozen=True):
    """A write that is about to happen: its author, and a digest for each file (empty: removal).

    It counts until a revision follows `head`. Without a summary the files are named.
    """

    head: str
    author: Author
    summary: str
    digests: dict[str, str]
    at: float = 0.0  # When it was made, if that was elsewhere; 0: now


class LedgerChanges(msgspec.Struct, frozen=True):
    """The changes of a ledger since it was last written whole; None for a row that went."""

    base: str  # The first line of the ledger they belong to
    head: str
    purged: str | None
    rows: dict[str, FileRow | None]
    times: dict[str, int]
    folders: dict[str, int]
    odd: list[str]
    looked: float
    took: float

    def apply(self, ledger: FolderLedger) -> None:
        ledger.head, ledger.purged = self.head, self.purged
        ledger.folders, ledger.odd = self.folders, self.odd
        ledger.looked, ledger.took = self.looked, self.took
        for file, row in self.rows.items():
            if row is None:
                ledger.rows.pop(file, None)
            else:
                ledger.rows[file] = row
        ledger.times |= self.times


class LedgerLookup:
    """Finds files of a ledger by their names and by what they state, without walking through all."""

    def __init__(self, rows: Mapping[str, FileRow]) -> None:
        self.keys: dict[str, set[str]] = {}  # By `make_file_key` of the file
        self._names: dict[str, set[str]] = {}
        self._cores: dict[str, set[str]] = {}
        for file, row in rows.items():
            self.put(file, None, row)

    def put(self, file: str, old: FileRow | None, new: FileRow | None) -> None:
        """A row came, went or changed."""
        for row, is_there in ((old, False), (new, True)):
            if row is not None:
                _note(self.keys, make_file_key(file), file, is_there)
                _note(self._names, make_file_key(row.name), file, is_there)
                _note(self._cores, row.core, file, is_there)

    def list_named(self, name: str) -> set[str]:
        """The files of memories with this name, whatever its case."""
        return self._names.get(make_file_key(name), set())

    def list_stating(self, core: str) -> set[str]:
        """The files of memories that state this."""
        return self._cores.get(core, set())


def _note(known: dict[str, set[str]], key: str, file: str, is_there: bool) -> None:
    if not key:
        return
    if is_there:
        known.setdefault(key, set()).add(file)
    elif key in known:
        known[key].discard(file)
        if not known[key]:
            del known[key]


class _KeptLedger(msgspec.Struct):
    """A ledger as it is on the disk."""

    tokens: tuple[bytes | None, bytes | None]
    ledger: FolderLedger
    purged: str | None  # `purged` and `times` of the last whole one
    times: dict[str, int]
    changed: set[str]  # The files that changed since
    lookup: LedgerLookup | None = None


class LedgerFile:
    """The ledger of one folder; only touched under the folder's lock.

    It is written whole now and then, and its changes since after each write. Nothing here raises: a ledger
    that cannot be written costs time, not memories.
    """

    def __init__(self, state: StateRecords) -> None:
        self._state = state
        self._kept: _KeptLedger | None = None
        self._lent: _KeptLedger | None = None

    def load(self) -> FolderLedger:
        """The ledger; an empty one that belongs to no revision when it cannot be read.

        The caller may change it. It is read anew unless `keep` or `save` gives it back.
        """
        kept, self._kept, self._lent = self._kept, None, None
        with contextlib.suppress(StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
            tokens = self._state.read_head(SEEN, _TOKEN), self._state.read_head(CHANGED, _TOKEN)
            if kept is None or kept.tokens != tokens:
                kept = self._read()
            self._lent = kept
            return kept.ledger if kept else FolderLedger()
        return FolderLedger()

    def _read(self) -> _KeptLedger | None:
        if (data := self._state.read(SEEN, _LARGEST)) is None:
            return None
        ledger = msgspec.json.decode(data[_TOKEN:], type=FolderLedger)
        if ledger.format != _FORMAT:
            return None
        kept = _KeptLedger((data[:_TOKEN], None), ledger, ledger.purged, dict(ledger.times), set())
        if more := self._state.read(CHANGED, _LARGEST):
            changes = msgspec.json.decode(more[_TOKEN:], type=LedgerChanges)
            if changes.base.encode() == data[:_TOKEN]:
                changes.apply(ledger)
                kept.changed.update(changes.rows)
            kept.tokens = data[:_TOKEN], more[:_TOKEN]
        return kept

    def lookup(self, ledger: FolderLedger) -> LedgerLookup:
        """Finds files of a ledger that `load` gave; `FolderTransaction.know` keeps it in step."""
        kept = self._lent.lookup if self._lent is not None and self._lent.ledger is ledger else None
        return kept or LedgerLookup(ledger.rows)

    def keep(self, ledger: FolderLedger, lookup: LedgerLookup) -> None:
        """Give back a ledger that did not change."""
        if self._lent is not None and self._lent.ledger is ledger:
            self._kept, self._lent.lookup = self._lent, lookup

    def save(self, ledger: FolderLedger, changed: Collection[str], lookup: LedgerLookup) -> None:
        """Keep the ledger for the next run. A power cut may lose it, and nothing else."""
        kept = self._lent if self._lent is not None and self._lent.ledger is ledger else None
        try:
            if kept is None or kept.purged != ledger.purged or len(kept.changed) + len(changed) > _CHANGES:
                kept = self._write_whole(ledger)
            else:
                self._write_changes(kept, changed)
        except StorageFailure:
            self.forget()
        else:
            kept.lookup = lookup
            self._kept = self._lent = kept

    def _write_whole(self, ledger: FolderLedger) -> _KeptLedger:
        token = _make_token()
        self._state.write(SEEN, token + msgspec.json.encode(ledger), lasting=False)
        self._state.remove(CHANGED)
        return _KeptLedger((token, None), ledger, ledger.purged, dict(ledger.times), set())

    def _write_changes(self, kept: _KeptLedger, changed: Collection[str]) -> None:
        ledger, token = kept.ledger, _make_token()
        files = kept.changed.union(changed)
        changes = LedgerChanges(
            (kept.tokens[0] or b"").decode(),
            ledger.head,
            ledger.purged,
            {file: ledger.rows.get(file) for file in files},
            {digest: at for digest, at in ledger.times.items() if kept.times.get(digest) != at},
            ledger.folders,
            ledger.odd,
            ledger.looked,
            ledger.took,
        )
        self._state.write(CHANGED, token + msgspec.json.encode(changes), lasting=False)
        kept.tokens, kept.changed = (kept.tokens[0], token), files

    def forget(self) -> None:
        """Remove the ledger: the next run compares everything with the history."""
        self._kept = self._lent = None
        with contextlib.suppress(StorageFailure):
            self._state.remove(SEEN)
            self._state.remove(CHANGED)

    def announce(self, pending: PendingWrite) -> None:
        with contextlib.suppress(StorageFailure):
            self._state.write(PENDING, msgspec.json.encode(pending), lasting=False)

    def announced(self, head: str) -> PendingWrite | None:
        """The write that was announced when `head` was the newest revision."""
        with contextlib.suppress(StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
            data = self._state.read(PENDING, _LARGEST) or b""
            pending = msgspec.json.decode(data, type=PendingWrite)
            return pending if pending.head == head else None
        return None

    def withdraw(self) -> None:
        """Remove the announcement, so that not even a name is left."""
        with contextlib.suppress(StorageFailure):
            self._state.remove(PENDING)


RECALLS: Final = "recalls.json"
_MOST_RECALLS: Final = 400  # The newest that are kept: an index has room for half of them


def _make_token() -> bytes:
    return os.urandom(_TOKEN // 2).hex().encode("ascii") + b"\n"


class RecallTimes:
    """The last recall of each memory, by file, in seconds. `note` is called from any thread.

    A memory that was recalled lately keeps its line in the index. Losing the times costs it that and
    nothing else, so nothing here raises and nothing waits for the disk.
    """

    def __init__(self, state: StateRecords) -> None:
        self._state = state
        self._new: dict[str, float] = {}
        self._one = threading.Lock()

    def note(self, files: Iterable[str], at: float) -> None:
        """Note a recall; it is written by `save`, when there is time."""
        with self._one:
            self._new |= dict.fromkeys(files, at)

    def load(self) -> dict[str, float]:
        """All times that are known, those of other processes too."""
        with self._one:
            return self._load()

    def _load(self) -> dict[str, float]:
        with contextlib.suppress(StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
            data = self._state.read(RECALLS, _LARGEST)
            return (msgspec.json.decode(data, type=dict[str, float]) if data else {}) | self._new
        return dict(self._new)

    def save(self) -> None:
        """Write what was noted since, if anything was."""
        with self._one:
            if self._new:
                self._write(self._load())
                self._new.clear()

    def forget(self, file: str) -> None:
        """Remove all that is known of a file."""
        with self._one:
            known = self._load()
            self._new.pop(file, None)
            if known.pop(file, None) is not None:
                self._write(known)

    def _write(self, times: dict[str, float]) -> None:
        newest = sorted(times.items(), key=lambda one: -one[1])[:_MOST_RECALLS]
        with contextlib.suppress(StorageFailure):
            self._state.write(RECALLS, msgspec.json.encode(dict(newest)), lasting=False)


def digest_bytes(data: bytes) -> str:
    """A short digest of these bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def read_file_clock() -> int:
    """Now in nanoseconds, by the machine's clock that stamps files."""
    return int(SystemClock().now() * 1e9)


def is_settled(stamp: FileStamp, now: int) -> bool:
    """True if another change of this file would show in its stamp."""
    return abs(now - stamp.changed) > SETTLED


RECORDED: Final = HEAD
"""Bytes of the largest file that is looked through and kept in the history; others are only listed."""

Action = Literal["created", "updated", "merged", "removed"]


class Saved(msgspec.Struct, frozen=True):
    """The result of a change of one memory."""

    name: str
    path: Path
    revision: str  # Empty when nothing changed, or the history could not be written
    action: Action
    held: str = ""  # If a part of it waits for the user's word: the sentence that says so


@dataclass(slots=True)
class FolderTransaction:
    """One piece of work under the lock."""

    at: OpenMemories
    folder: Path
    ledgers: LedgerFile
    past: FolderHistory
    gate: GuardGate
    now: float
    say: Callable[[str], None]
    recalls: RecallTimes
    ledger: FolderLedger
    lookup: LedgerLookup
    dirty: bool = False
    changed: set[str] = field(default_factory=set)  # The files whose rows changed
    found: FolderListing | None = None
    indexes: dict[str, bytes] = field(default_factory=dict)  # The indexes as they were read here

    @property
    def listing(self) -> FolderListing:
        """Everything below the folder, listed on first use."""
        if self.found is None:
            self.found = self.at.list()
        return self.found

    def is_unchanged(self) -> bool:
        """True if there are many files, all were looked at just now, and none came or went since.

        A change inside an old file is not seen here. It is seen when that file is written, and by the next
        look, which is due in a fraction of a second: nobody edits a file and saves a memory that fast.
        """
        ledger = self.ledger
        if len(ledger.rows) <= FEW or not 0 <= (self.now - ledger.looked) * SHARE <= ledger.took:
            return False
        if any(self.at.stamp(part.index) != self.stamp(part.index) for part in PARTS):
            return False
        return self.at.versions(ledger.folders) == ledger.folders

    def look(self) -> None:
        """List all files, and note when."""
        began = time.perf_counter()
        versions = self.at.versions(["", *self.ledger.folders])
        self.found = self.at.list()
        known = {name: at for name, at in versions.items() if not name or name in self.found.folders}
        self.ledger.folders = {**self.at.versions(self.found.folders), **known}
        self.ledger.odd = [one.file for one in self.found.odd]
        self.ledger.looked, self.ledger.took = self.now, time.perf_counter() - began

    def list_named(self, name: str, part: FolderPart, *, exact: bool = True) -> dict[str, str]:
        """The names of the memories of a part that are called this, by file; not `exact`: in any case."""
        rows = self.ledger.rows
        found = {file: rows[file].name for file in self.lookup.list_named(name) if part.holds(file)}
        return {file: one for file, one in found.items() if is_topic(file) and (one == name or not exact)}

    @property
    def taken_keys(self) -> Container[str]:
        """The `make_file_key`s of all names in use."""
        others = (*self.ledger.folders, *self.ledger.odd)
        return ChainMap(self.lookup.keys, {make_file_key(one): {one} for one in others})

    @property
    def names(self) -> dict[str, str]:
        """The name of the memory in each topic file."""
        return {file: row.name for file, row in self.ledger.rows.items() if is_topic(file)}

    def stamp(self, file: str) -> FileStamp | None:
        """The stamp under which a file was last read here; None when it is not there."""
        row = self.ledger.rows.get(file)
        return row.stamp if row else None

    def know(self, file: str, row: FileRow | None) -> None:
        """Put the row of a file into the ledger; None: the file is gone."""
        self.dirty = True
        self.changed.add(file)
        old = self.ledger.rows.get(file)
        self.lookup.put(file, old, row)
        if old is not None and is_topic(file) and (row is None or row.digest != old.digest):
            self.ledger.gone(old)
        if row is None:
            self.ledger.rows.pop(file, None)
        else:
            self.ledger.rows[file] = row

    def write(self, file: str, data: bytes, *, held: str = "", modified: float | None = None) -> None:
        """Write a file that still is what it was when it was last read here.

        `modified`: when it was written first, where that was not now.
        """
        stamp = self.at.write(file, data, self.stamp(file), modified=modified)
        self.know(file, make_file_row(file, data, stamp, held))

    def remove(self, file: str) -> None:
        """Remove a file that still is what it was when it was last read here."""
        if (stamp := self.stamp(file)) is not None:
            self.at.remove(file, stamp)
        self.know(file, None)

    def record(
        self,
        files: Mapping[str, bytes | None],
        author: Author,
        summary: str,
        takes_back: TakenRevisions | None = None,
        at: float = 0.0,
    ) -> str:
        """Record these files; returns the revision, empty if it could not be written. `at` 0 is now."""
        found = self.ledger.head == "" and author.kind == "other"
        revision = self.past.record(
            None if found else files, lambda: self.whole(files), author, summary, at or self.now, takes_back
        )
        head = self.past.head(self.now)
        sure = revision is not None or head == NONE
        self.ledger.head = head if sure and not self.past.mended else UNKNOWN
        self.past.mended = False
        self.dirty = True
        return revision or ""

    def whole(self, files: Mapping[str, bytes | None]) -> dict[str, bytes]:
        """All files of a history that begins now: these and the rest."""
        found = {file: data for file, data in files.items() if data is not None}
        for file, row in self.ledger.rows.items():
            if file not in files and not row.held:
                with contextlib.suppress(StorageFailure, Refused):
                    found[file] = self.at.read(file, RECORDED)[0]
        return found

    def holding(self, file: str, index: bytes) -> str:
        """The reason that keeps an index we write out of the history; empty: none.

        Lines that were harmless apart can become a secret when what stood between them goes.
        """
        from sevenfold.memory.guard.secrets import find_secrets

        row = self.ledger.rows.get(file)
        if row and row.held:
            return row.held
        new = find_new_lines(self.indexes.get(file, b""), index).decode("utf-8", "replace")
        return A_SECRET if find_secrets(new) else ""

    def settle(self) -> None:
        """Save the ledger if it changed."""
        if not self.dirty:
            self.ledgers.keep(self.ledger, self.lookup)
            return
        if self.ledger.folders:
            touched = {parent for file in self.changed for parent in list_parents(file)}
            versions = self.at.versions(touched)
            self.ledger.folders |= versions
            for name in [name for name in touched if not versions[name]]:
                del self.ledger.folders[name]  # it became empty and went
        self.ledgers.save(self.ledger, self.changed, self.lookup)
        self.changed, self.dirty = set(), False


def list_parents(file: str) -> list[str]:
    """The folders above a file, up to the top."""
    parts = file.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts) + 1)]


_NEAR: Final = 12  # Lines around a new one that are looked at with it: a token may be broken over so many


def find_new_lines(old: bytes, new: bytes) -> bytes:
    """The lines of a text that have other neighbours than before, with some around them."""
    before, lines = [b"", *old.splitlines(), b""], [b"", *new.splitlines(), b""]
    known = set(pairwise(before))
    fresh = [at for at, pair in enumerate(pairwise(lines)) if pair not in known]
    near = {at + more for at in fresh for more in range(1 - _NEAR, _NEAR + 1)}
    return b"\n".join(line for at, line in enumerate(lines) if at in near)


def make_file_row(file: str, data: bytes, stamp: FileStamp | None, held: str = "") -> FileRow:
    """The row of a file with these bytes; a secret gives away neither its name nor what it states."""
    if not is_topic(file) or held == A_SECRET:
        return FileRow(stamp, digest_bytes(data), "", held)
    from sevenfold.memory.similarity import digest_statement
    from sevenfold.memory.topic_file import read_topic

    topic = read_topic(data, file)
    return FileRow(stamp, digest_bytes(data), topic.name, held, digest_statement(topic))


def read_memory_name(file: str, data: bytes) -> str:
    """The name of the memory in a topic file; the index and the logs have none."""
    from sevenfold.memory.topic_file import read_topic

    return read_topic(data, file).name if is_topic(file) else ""


class DeferredNotices:
    """Notices that wait until the folder's lock is free: a listener may read the folder."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._waiting: list[str] = []
        self._said: set[str] = set()

    def say(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self._waiting.append(sentence)

    def tell(self) -> None:
        while self._waiting:
            self._emit(Notice(self._waiting.pop(0), "warning"))


ARCHIVE: Final = "archive/"  # Memories that a dream took out of the index as stale; recall still finds them


class FolderPart(msgspec.Struct, frozen=True):
    """A part with its own index, in which files are named relative to the part."""

    folder: str  # Empty, or with a slash at its end

    @property
    def index(self) -> str:
        return f"{self.folder}{INDEX_NAME}"

    def holds(self, file: str) -> bool:
        """True if a file of the memory folder is in this part."""
        return file.startswith(self.folder) and (bool(self.folder) or not file.startswith(TEAM))

    def lists(self, file: str) -> bool:
        """True if this part's index should list the file."""
        return is_topic(file) and self.holds(file) and not self.inner(file).startswith(ARCHIVE)

    def inner(self, file: str) -> str:
        """The file as the index of this part calls it."""
        return file.removeprefix(self.folder)

    def outer(self, inner: str) -> str:
        """The file as the memory folder calls it."""
        return f"{self.folder}{inner}"


OWN: Final = FolderPart("")
SHARED: Final = FolderPart(TEAM)
PARTS: Final = (OWN, SHARED)
INDEXES: Final = tuple(part.index for part in PARTS)


def find_part(file: str) -> FolderPart:
    """The part that a file of the memory folder is in."""
    return SHARED if SHARED.holds(file) else OWN


def is_listed(file: str) -> bool:
    """True if the index of the user's own memories should list this file."""
    return OWN.lists(file)


def check_team(folders: Collection[str]) -> None:
    """`Mistake` with what to do when there is no team memory."""
    if TEAM.rstrip("/") not in folders:
        raise Mistake(
            "there is no team memory here: 'sevenfold team init REMOTE' makes one and 'sevenfold team "
            "join REMOTE' brings in that of others; until then save it as your own"
        )


def check_private(data: bytes | None, file: str) -> None:
    """`Refused` when this would share with the team what is known about a person."""
    from sevenfold.memory.topic_file import read_topic

    if data is not None and SHARED.holds(file) and is_personal(read_topic(data, file)):
        raise Refused(
            f"{file} is refused: a memory of type 'user' is about a person and is never shared with the "
            "team; save it as your own, outside team/, or give it another type if it is a rule or a "
            "fact of the project"
        )


def is_personal(topic: Topic) -> bool:
    """True for a memory about a person in the team's part."""
    return topic.type == "user" and SHARED.lists(topic.file)


MEMORY: Final = "agent-memory"
LOCAL: Final = "agent-memory-local"


def find_agent_kind(folder: Path) -> str:
    """The kind of agent whose memory this folder is, as folders spell it; empty for other folders."""
    return folder.name if folder.parent.name in (MEMORY, LOCAL) else ""
