"""One piece of work on the memory folder (`FolderTransaction`), and the ledger of its files.

Also the parts of a folder with an index of their own (the user's and the team's), notices that wait
until the lock is free, the memory folders of agents, and the history of a folder, without which every
write goes on: if a library is missing or the disk refuses, the user is told once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

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
from sevenfold.memory.folder.names import INDEX_NAME, TEAM, explain_bad_file, format_name
from sevenfold.memory.guard.gate import GuardGate
from sevenfold.memory.history.revisions import Author, TakenRevisions
from sevenfold.storage.files import make_private_dir, write_new
from sevenfold.storage.places import make_path_slug

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
        try:
            if self._history is None:
                self._history = self._open(self._mended)
            return work(self._history)
        except ImportError as error:
            raise StorageFailure(
                f"the history of memories cannot be kept, because a library is missing ({error}); "
                "install pygit2"
            ) from error

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
PENDING: Final = "pending.json"
UNKNOWN: Final = "?"  # The revision of a ledger that belongs to none: everything is to be compared
SETTLED: Final = 100_000_000
"""Nanoseconds after which a file cannot change any more without its stamp changing: file systems count
time in steps, and two writes within one step may look the same."""
_FORMAT: Final = 3
_TOKEN: Final = 17  # Bytes of the first line of the ledger, which is another after each write
_LARGEST: Final = 1 << 30
_TIMES: Final = 1_000  # The most times of replaced texts that are kept


A_SECRET: Final = "it holds a secret"  # The reason that keeps a file out of history and index


class FileRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One file as it was seen last."""

    stamp: FileStamp | None
    digest: str
    name: str = ""
    held: str = ""  # The reason it is not in the history; empty if it is


class FolderLedger(msgspec.Struct):
    """All rows, and the revision they belong to."""

    head: str = UNKNOWN
    rows: dict[str, FileRow] = {}
    purged: str | None = None
    """The newest revision after a purge, which itself is none; None: nothing was purged."""
    format: int = _FORMAT
    times: dict[str, int] = {}
    """Times of replaced texts by their digest: a text that comes back gets its old time."""

    def copy(self) -> FolderLedger:
        return FolderLedger(self.head, dict(self.rows), self.purged, times=dict(self.times))

    def gone(self, row: FileRow) -> None:
        """A text is replaced or removed."""
        if row.stamp is not None and row.digest:
            self.times.pop(row.digest, None)
            self.times[row.digest] = row.stamp.modified
            while len(self.times) > _TIMES:
                del self.times[next(iter(self.times))]


class PendingWrite(msgspec.Struct, frozen=True):
    """A write that is about to happen: its author, and a digest for each file (empty: removal).

    It counts until a revision follows `head`.
    """

    head: str
    author: Author
    summary: str
    digests: dict[str, str]


class LedgerFile:
    """The ledger of one folder; only touched under the folder's lock.

    Nothing here raises: a ledger that cannot be written costs time, not memories.
    """

    def __init__(self, state: StateRecords) -> None:
        self._state = state
        self._kept: tuple[bytes, FolderLedger] | None = None

    def load(self) -> FolderLedger:
        """The ledger; an empty one that belongs to no revision when it cannot be read."""
        with contextlib.suppress(StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
            token = self._state.read_head(SEEN, _TOKEN)
            if token is None:
                return FolderLedger()
            if self._kept is None or self._kept[0] != token:
                data = self._state.read(SEEN, _LARGEST) or b""
                ledger = msgspec.json.decode(data[_TOKEN:], type=FolderLedger)
                if ledger.format != _FORMAT:
                    return FolderLedger()
                self._kept = (token, ledger)
            return self._kept[1].copy()
        return FolderLedger()

    def save(self, ledger: FolderLedger) -> None:
        """Keep the ledger for the next run. A power cut may lose it, and nothing else."""
        token = secrets.token_hex(_TOKEN // 2).encode("ascii") + b"\n"
        try:
            self._state.write(SEEN, token + msgspec.json.encode(ledger), lasting=False)
        except StorageFailure:
            self.forget()
        else:
            self._kept = (token, ledger.copy())

    def forget(self) -> None:
        """Remove the ledger: the next run compares everything with the history."""
        self._kept = None
        with contextlib.suppress(StorageFailure):
            self._state.remove(SEEN)

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
    listing: FolderListing
    recalls: RecallTimes
    ledger: FolderLedger = field(default_factory=FolderLedger)
    dirty: bool = False

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
        old = self.ledger.rows.get(file)
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
        self.know(file, FileRow(stamp, digest_bytes(data), read_memory_name(file, data), held))

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
    ) -> str:
        """Record these files; returns the revision, empty if it could not be written."""
        found = self.ledger.head == "" and author.kind == "other"
        revision = self.past.record(
            None if found else files, lambda: self.whole(files), author, summary, self.now, takes_back
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
        return A_SECRET if find_secrets(index.decode("utf-8", "replace")) else ""

    def settle(self) -> None:
        """Save the ledger if it changed."""
        if self.dirty:
            self.ledgers.save(self.ledger)
            self.dirty = False


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


def filter_names(part: FolderPart, names: Mapping[str, str]) -> dict[str, str]:
    """Of the names of all memories, by file, those in one part."""
    return {file: name for file, name in names.items() if part.holds(file)}


def check_team(listing: FolderListing) -> None:
    """`Mistake` with what to do when there is no team memory."""
    if TEAM.rstrip("/") not in listing.folders:
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


AgentScope: TypeAlias = Literal["user", "project", "local"]

OWN_SCOPES: Final = ".sevenfold"
OTHER: Final = ".claude"
MEMORY: Final = "agent-memory"
LOCAL: Final = "agent-memory-local"
SNAPSHOTS: Final = "agent-memory-snapshots"
STATE: Final = "memory-state"
"""The folder of what belongs to a memory and is not memory: history, quarantine."""
_NOT_COMMITTED: Final = {MEMORY: b".memory.lock\n.memory-writing-*\n", LOCAL: b"*\n"}
"""The `.gitignore` of agent memory folders in a project."""


class AgentFolder(msgspec.Struct, frozen=True):
    """The memory folder of one kind of agent in one scope. Nothing is made before
    `prepare_agent_folder`.
    """

    scope: AgentScope
    folder: Path
    state: Path  # The folder of its history and quarantine: never in the project
    note: str = ""  # A warning for the user


def make_folder_name(kind: str) -> str:
    """The name of a folder for a kind of agent; `Refused` with the reason when there can be none."""
    name = unicodedata.normalize("NFC", kind).replace(":", "-")
    why = "it holds a slash" if "/" in name else explain_bad_file(f"{name}/x.md")
    if why:
        raise Refused(
            f"an agent called {format_name(kind)} can have no memory: {why}; give it a plain name"
        )
    return name


def find_agent_folder(
    kind: str, scope: AgentScope, *, home: Path, tree: Path, state_home: Path
) -> AgentFolder:
    """The folder of an agent's memory. `state_home` is our own home, even if `home` is shared.

    Call it only in a trusted workspace, unless the scope is `user`.
    """
    name, note = make_folder_name(kind), ""
    if scope == "user":
        folder = resolve_unlinked(home, MEMORY, name)
    else:
        folder, note = find_project_folder(tree, MEMORY if scope == "project" else LOCAL, name)
    return AgentFolder(scope, folder, find_state_folder(folder, state_home), note)


def list_agent_folders(home: Path, tree: Path | None, state_home: Path) -> Iterator[AgentFolder]:
    """The agent memories that there are, also of kinds that are no longer defined.

    Without `tree` those of the user alone: a project that is not trusted is not looked into.
    """
    ways: list[tuple[AgentScope, Path, tuple[str, ...]]] = [("user", home, (MEMORY,))]
    if tree is not None:
        whose = (OWN_SCOPES, OTHER)
        ways += [("project", tree, (at, MEMORY)) for at in whose]
        ways += [("local", tree, (at, LOCAL)) for at in whose]
    for scope, root, parts in ways:
        try:
            folders = sorted(resolve_unlinked(root, *parts).iterdir())
        except (OSError, Refused):
            continue
        for folder in folders:
            if folder.is_dir() and not folder.is_symlink() and not folder.name.startswith("."):
                yield AgentFolder(scope, folder, find_state_folder(folder, state_home))


def find_agent_kind(folder: Path) -> str:
    """The kind of agent whose memory this folder is, as folders spell it; empty for other folders."""
    return folder.name if folder.parent.name in (MEMORY, LOCAL) else ""


def find_project_folder(tree: Path, what: str, name: str) -> tuple[Path, str]:
    """The folder in a project: ours, or the other program's where only that one is there."""
    ours, theirs = (resolve_unlinked(tree, at, what, name) for at in (OWN_SCOPES, OTHER))
    if not theirs.is_dir():
        return ours, ""
    if not ours.is_dir():
        return theirs, ""
    return ours, f"{theirs} is not used: {ours} is there too; merge them and remove one"


def resolve_unlinked(root: Path, *parts: str) -> Path:
    """The real path of a folder below `root`; `Refused` when any part below is a symbolic link."""
    at = Path(os.path.realpath(root))
    for part in parts:
        at /= part
        if at.is_symlink():
            raise Refused(f"{at} is refused: it is a symbolic link; put the folder itself there")
    return at


def prepare_agent_folder(place: AgentFolder) -> None:
    """Make the folder. In a project a `.gitignore` leaves out our lock and temporary files."""
    make_private_dir(place.folder, nofollow=True)
    above = place.folder.parent
    if above.parent.name == OWN_SCOPES and above.name in _NOT_COMMITTED and place.scope != "user":
        write_new(above / ".gitignore", _NOT_COMMITTED[above.name], 0o644)


def find_state_folder(folder: Path, home: Path) -> Path:
    """The folder for the history of an agent's memory, below our own home.

    The slug alone would be the same for `a-b` and `a_b`, and their histories one.
    """
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return home / STATE / f"{make_path_slug(folder)}-{digest}"
