"""Snapshots of an agent's memory in a project, and how they are merged into the user's own memory.

A snapshot is a folder `.sevenfold/agent-memory-snapshots/<type>` with memories and `snapshot.json`, which
holds its time: `{"updatedAt": "2026-03-01T09:00:00Z"}`. Every text passes the guard; one with a rule or
something about the user is held for the user's word. A memory that the user has changed stays, with the
new text in a file beside it. The last snapshot taken over is recorded in `.snapshot-synced.json` in the
memory folder.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.core.errors import Refused, SevenfoldError, StorageFailure
from sevenfold.core.protocols import Clock
from sevenfold.memory.backend import HEAD, ConcurrentWrite, is_topic
from sevenfold.memory.errors import Guarded
from sevenfold.memory.folder import files as reaching
from sevenfold.memory.folder.agent_folders import SNAPSHOTS, find_project_folder, make_folder_name
from sevenfold.memory.folder.changes import apply_changes
from sevenfold.memory.folder.files import MemoryFiles, OpenFolder
from sevenfold.memory.folder.folder import FolderTransaction, digest_bytes
from sevenfold.memory.folder.names import INDEX_NAME, TEAM, make_file_key
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.merge import choose_side
from sevenfold.memory.store import MemoryStore
from sevenfold.memory.topic_file import change_topic, read_topic


class SnapshotMerge(msgspec.Struct, frozen=True):
    """The result of a merge, file by file."""

    new: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()  # Files that hold the new text of a memory that the user has changed
    removed: tuple[str, ...] = ()
    """The snapshot no longer has them, and the user had not changed them; `undo` restores them."""
    left: tuple[str, ...] = ()  # Files that the user has removed; they do not come back
    refused: tuple[str, ...] = ()  # `file: why` for each that the guard refused
    there: bool = False  # `initialise` found memories, so nothing was done

    @property
    def said(self) -> str:
        """The result as a sentence."""
        parts = [
            f"{len(self.new)} new" if self.new else "",
            f"{len(self.replaced)} replaced" if self.replaced else "",
            f"{len(self.removed)} removed" if self.removed else "",
            f"kept yours and put the new text beside it: {', '.join(self.beside)}" if self.beside else "",
            f"held back: {'; '.join(self.refused)}" if self.refused else "",
        ]
        return "; ".join(filter(None, parts)) or "nothing had to change"


class SnapshotMerger:
    """One merge, under the write lock of the folder."""

    def __init__(self, desk: FolderTransaction, known: Mapping[str, str], date: str) -> None:
        """`known` are the digests of the texts that were taken over last."""
        self._desk, self._known, self._date = desk, known, date
        self._author = Author("team", reason=f"snapshot of {date}")
        self._changes: dict[str, bytes | None] = {}
        self._refused: list[str] = []
        self.held: set[str] = set()  # The refused files. A name that looks like a secret is not shown.
        self._done: dict[str, list[str]] = {}

    def merge(self, texts: Mapping[str, bytes]) -> SnapshotMerge:
        """Merge these files; the index is only taken if the user has none."""
        for file, data in texts.items():
            if file != INDEX_NAME:
                self._merge(file, data)
        for file, was in self._known.items():
            if file not in texts and file in self._desk.ledger.rows and self._digest(file) == was:
                self._changes[file] = None
                self._note("removed", file)
        index = texts.get(INDEX_NAME) if INDEX_NAME not in self._desk.ledger.rows else None
        index = None if index is None else self._drop_held_lines(index)
        if index is not None and self._passes(INDEX_NAME, index, b""):
            self._changes[INDEX_NAME] = index
        if self._changes:
            apply_changes(self._desk, self._changes, self._author, f"took over a snapshot of {self._date}")
        return SnapshotMerge(
            new=self._noted("new"),
            replaced=self._noted("replaced"),
            beside=self._noted("beside"),
            removed=self._noted("removed"),
            left=self._noted("left"),
            refused=tuple(self._refused),
        )

    def _noted(self, done: str) -> tuple[str, ...]:
        return tuple(self._done.get(done, ()))

    def _note(self, done: str, file: str) -> None:
        self._done.setdefault(done, []).append(file)

    def _merge(self, file: str, data: bytes) -> None:
        theirs, was = digest_bytes(data), self._known.get(file)
        if not (name := self._desk.gate.check(file.encode(), "team")).passed:
            self.held.add(file)
            self._refused.append(f"a file, for its name: {name.explanation}")
            return
        if file not in self._desk.ledger.rows:
            if was is not None:
                self._note("left", file)
            elif make_file_key(file) in self._desk.listing.taken:
                self._hold(file, "another file differs from it only in case")
            else:
                self._put("new", file, data, b"")
            return
        side = choose_side(was, self._digest(file), theirs)
        if side == "theirs":
            self._put("replaced", file, data, self._read(file))
        elif side is None:
            self._put_beside(file, data)

    def _put(self, done: str, file: str, data: bytes, old: bytes) -> None:
        if self._passes(file, data, old):
            self._changes[file] = data
            self._note(done, file)

    def _put_beside(self, file: str, data: bytes) -> None:
        """Write the new text to another file, as a memory of another name."""
        if not self._passes(file, data, b""):
            return
        topic = read_topic(data, file)
        new = change_topic(topic, name=f"{topic.name} (snapshot of {self._date})")
        path = PurePosixPath(file)
        for count in range(1, 100):
            more = f"-{count}" if count > 1 else ""
            beside = path.with_name(f"{path.stem}-snapshot-{self._date}{more}.md").as_posix()
            if beside in self._desk.ledger.rows and self._digest(beside) == digest_bytes(new):
                return
            if make_file_key(beside) not in self._desk.listing.taken and beside not in self._changes:
                self._changes[beside] = new
                self._note("beside", beside)
                return
        self._hold(file, "there are too many copies of it; merge them")

    def _drop_held_lines(self, index: bytes) -> bytes:
        """The index without the lines about memories that were held."""
        links = [f"({file})".encode() for file in self.held]
        lines = index.splitlines(keepends=True)
        return b"".join(line for line in lines if not any(link in line for link in links))

    def _pass_wall(self, file: str, data: bytes, old: bytes) -> None:
        """Hold what is a rule or says something of the user: the user said nothing of a snapshot."""
        from sevenfold.memory.guard.user_words import SpokenWords
        from sevenfold.memory.guard.wall import NO_SOURCES, judge_write, make_held_verdict

        def known() -> SpokenWords:
            taken = [read_topic(text, name) for name, text in self._changes.items() if text is not None]
            return SpokenWords.of_texts(f"{one.name}\n{one.description}" for one in taken)

        judged = judge_write(file, data, old, NO_SOURCES, known if file == INDEX_NAME else None)
        if judged.findings:
            self._desk.gate.hold(file, data, self._author, make_held_verdict(judged.findings))

    def _passes(self, file: str, data: bytes, old: bytes) -> bool:
        try:
            data.decode("utf-8")
            self._desk.gate.let_pass(file, data, old, self._author)
            self._pass_wall(file, data, old)
        except UnicodeDecodeError:
            return self._hold(file, "it is not text in UTF-8")
        except Guarded as no:
            return self._hold(file, no.explanation)
        except SevenfoldError as no:  # the quarantine is full, or cannot be written
            return self._hold(file, str(no))
        return True

    def _hold(self, file: str, why: str) -> bool:
        self.held.add(file)
        self._refused.append(f"{file}: {why}")
        return False

    def _digest(self, file: str) -> str:
        """The digest of a file here; empty for one that is too large to be a memory."""
        data = self._read(file)
        return digest_bytes(data) if len(data) <= HEAD else ""

    def _read(self, file: str) -> bytes:
        data, stamp = self._desk.at.read(file, HEAD + 1)
        if stamp != self._desk.stamp(file):
            raise ConcurrentWrite
        return data


Action: TypeAlias = Literal["initialise", "update", "nothing"]

HEAD_FILE: Final = "snapshot.json"
MARKER: Final = ".snapshot-synced.json"
MOST_FILES: Final = 200  # Memories of a snapshot: as many as an index has lines
MOST_BYTES: Final = 2_000_000
_LARGEST_HEAD: Final = 1 << 16
_LARGEST_MARKER: Final = 1 << 20
_AHEAD: Final = 86_400.0  # Seconds that a snapshot may be ahead of our clock


class SnapshotOffer(msgspec.Struct, frozen=True):
    """The action to take for a snapshot."""

    action: Action
    updated: str = ""  # The time of the snapshot, as it says itself
    said: str = ""  # A text for the user: an offer, or a problem


class _SnapshotHead(msgspec.Struct, frozen=True):
    updated: str = msgspec.field(name="updatedAt")


class SnapshotMarker(msgspec.Struct, frozen=True, omit_defaults=True):
    """The snapshot that was taken over last, with the digests of its texts."""

    updated: str = msgspec.field(name="updatedAt", default="")
    files: dict[str, str] = {}


class _DamagedSnapshot(Exception):
    """A snapshot that cannot be used; the message says why."""


class AgentSnapshots:
    """The snapshot of one project for one kind of agent, and the user's memory for that kind."""

    def __init__(self, kind: str, store: MemoryStore, tree: Path, clock: Clock, *, trusted: bool) -> None:
        """`store` is the agent's memory in the scope `user`. Without `trusted` no snapshot is read."""
        self._kind, self._store, self._tree = kind, store, tree
        self._clock, self._trusted = clock, trusted
        self._local = MemoryFiles(store.path_of())

    def look(self) -> SnapshotOffer:
        """The action to take. Never raises: a problem is put into words, with the action `nothing`."""
        try:
            with self._opened() as at:
                head = self._head(at)
                marker = self._marker()
                if marker is None and self._nothing_local():
                    return SnapshotOffer("initialise", head.updated)
                if marker is not None and not _newer(head.updated, marker.updated):
                    return SnapshotOffer("nothing", head.updated)
                if not self._changes(self._texts(at), marker or SnapshotMarker()):
                    return SnapshotOffer("nothing", head.updated)
        except FileNotFoundError:
            return SnapshotOffer("nothing")
        except (_DamagedSnapshot, SevenfoldError) as error:
            return SnapshotOffer("nothing", said=str(error))
        return SnapshotOffer(
            "update",
            head.updated,
            f"the project brings a newer memory for the agent {self._kind!r}, of {_day(head.updated)}; "
            "nothing of yours is overwritten if you take it",
        )

    def initialise(self) -> SnapshotMerge:
        """Copy the snapshot if the user has no memories; `Refused` if it is damaged."""
        return self._take(only_if_empty=True)

    def accept(self) -> SnapshotMerge:
        """Merge the snapshot into the user's memory; `Refused` if it is damaged."""
        return self._take(only_if_empty=False)

    def decline(self) -> None:
        """Change nothing, and do not offer this snapshot again."""
        try:
            with self._opened() as at:
                head = self._head(at)
        except FileNotFoundError:
            return
        except _DamagedSnapshot as error:
            raise Refused(str(error)) from error
        self._mark(SnapshotMarker(head.updated, (self._marker() or SnapshotMarker()).files))

    # --- inside ---------------------------------------------------------------------------------------

    def _take(self, *, only_if_empty: bool) -> SnapshotMerge:
        try:
            with self._opened() as at:
                head, texts = self._head(at), self._texts(at)
        except FileNotFoundError:
            return SnapshotMerge()
        except _DamagedSnapshot as error:
            raise Refused(str(error)) from error
        marker = self._marker() or SnapshotMarker()

        def work(desk: FolderTransaction) -> tuple[SnapshotMerge, set[str]]:
            if only_if_empty and any(map(is_topic, desk.ledger.rows)):
                return SnapshotMerge(there=True), set()
            merge = SnapshotMerger(desk, marker.files, _day(head.updated))
            return merge.merge(texts), merge.held

        taken, held = self._store.changing(work)
        if not taken.there:
            known = {file: digest_bytes(data) for file, data in texts.items() if file not in held}
            self._mark(SnapshotMarker(head.updated, known))
        return taken

    def _opened(self) -> AbstractContextManager[OpenFolder]:
        """The snapshot's folder; `FileNotFoundError` if there is none or it is not trusted."""
        if not self._trusted:
            raise FileNotFoundError
        folder, _ = find_project_folder(self._tree, SNAPSHOTS, make_folder_name(self._kind))
        return MemoryFiles(folder).opened()

    def _head(self, at: OpenFolder) -> _SnapshotHead:
        """The head of the snapshot, with a valid time."""
        path = at.real / HEAD_FILE
        if at.stamp(HEAD_FILE) is None:
            raise FileNotFoundError
        data, _ = at.read(HEAD_FILE, _LARGEST_HEAD)
        try:
            head = msgspec.json.decode(data, type=_SnapshotHead)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _DamagedSnapshot(_bad(path, "it is not JSON with a text 'updatedAt'")) from error
        when = _moment(head.updated)
        if when is None:
            raise _DamagedSnapshot(_bad(path, "its 'updatedAt' is no date such as 2026-03-01T09:00:00Z"))
        if when > self._clock.now() + _AHEAD:
            raise _DamagedSnapshot(_bad(path, f"its 'updatedAt', {head.updated[:40]}, is yet to come"))
        return head

    def _texts(self, at: OpenFolder) -> dict[str, bytes]:
        """The memories of the snapshot and its index; `_DamagedSnapshot` if it is too large."""
        found = at.list()
        files = [file for file in sorted(found.files) if _counts(file)]
        if odd := next(iter(found.odd), None):
            raise _DamagedSnapshot(_bad(at.real / odd.file, odd.why))
        if len(files) > MOST_FILES + 1:
            why = f"it holds {len(files):,} files, and {MOST_FILES} are the most"
            raise _DamagedSnapshot(_bad(at.real, why))
        total = sum(found.files[file].size for file in files)
        large = [file for file in files if found.files[file].size > HEAD]
        if large or total > MOST_BYTES:
            where = at.real / large[0] if large else at.real
            why = f"it is larger than {HEAD if large else MOST_BYTES:,} bytes"
            raise _DamagedSnapshot(_bad(where, why))
        return {file: at.read(file, HEAD)[0] for file in files}

    def _marker(self) -> SnapshotMarker | None:
        """The snapshot taken over last; None if there was none, an empty one if the record is damaged."""
        try:
            with self._local.opened() as at:
                if at.stamp(MARKER) is None:
                    return None
                data, _ = at.read(MARKER, _LARGEST_MARKER)
            return msgspec.json.decode(data, type=SnapshotMarker)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return SnapshotMarker()

    def _mark(self, marker: SnapshotMarker) -> None:
        data = msgspec.json.format(msgspec.json.encode(marker), indent=1) + b"\n"
        try:
            with self._local.opened(make=True) as at, at.alone(), at.folder("") as folder:
                name = MARKER if folder is not None else str(at.real / MARKER)
                known = reaching.read_stamp(name, folder)
                reaching.replace_file(name, folder, data, known, lasting=True)
        except (OSError, ConcurrentWrite) as error:
            raise StorageFailure(
                f"{self._store.path_of(MARKER)} could not be written: {error}; what was taken over will "
                "be offered again"
            ) from error

    def _nothing_local(self) -> bool:
        return not self._store.listing().topics and not self._store.index_text().strip()

    def _changes(self, texts: Mapping[str, bytes], marker: SnapshotMarker) -> bool:
        """True if taking it would change something."""
        mine = {topic.file: digest_bytes(topic.data) for topic in self._store.topics()}
        theirs = {file: digest_bytes(data) for file, data in texts.items() if file != INDEX_NAME}
        known = marker.files
        gone = [file for file in known if file not in theirs and mine.get(file) == known[file]]
        new = [f for f, one in theirs.items() if choose_side(known.get(f), mine.get(f), one) != "ours"]
        return bool(gone or new)


def _counts(file: str) -> bool:
    """True for the index and memories; not for other indexes, daily logs and files of a team."""
    return file == INDEX_NAME or (is_topic(file) and not file.startswith(TEAM))


def _bad(path: Path, why: str) -> str:
    return f"the snapshot is not used: {path}: {why}; mend it, or remove it"


def _moment(text: str) -> float | None:
    try:
        moment = datetime.datetime.fromisoformat(text.strip())
        return moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def _day(text: str) -> str:
    return datetime.datetime.fromtimestamp(_moment(text) or 0.0, datetime.UTC).strftime("%Y-%m-%d")


def _newer(one: str, than: str) -> bool:
    known = _moment(than)
    return known is None or (_moment(one) or 0.0) > known
