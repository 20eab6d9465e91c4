"""The memory folder while it is open and ours alone, with what was last known about its files.

What of the memory folder was seen last, so that only what changed is read again. Which files a
memory folder holds, without reading them: names, stamps, and what is odd about some. What the user
is to be told about the memory folder: each sentence once, and not under its lock. The parts of a
memory folder that have an index of their own: one's own memories, and the team's. Where the memory
of a kind of agent lies: with the user, with the project, or with this machine alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake, Refused, StorageFailure
from sevenfold.core.events import Emit, Notice
from sevenfold.memory.folder.files import HEAD, UNFINISHED, FileStamp, OpenFolder
from sevenfold.memory.folder.folder_history import NONE, FolderHistory
from sevenfold.memory.folder.names import (
    DEEPEST,
    ENDING,
    INDEX_NAME,
    LOGS,
    TEAM,
    explain_bad_file,
    explain_bad_part,
    format_name,
    make_file_key,
)
from sevenfold.memory.guard.gate import GuardGate
from sevenfold.memory.history.revisions import Author
from sevenfold.storage.files import PRIVATE_FILE, make_private_dir, write_new
from sevenfold.storage.places import make_path_slug

if TYPE_CHECKING:
    from sevenfold.memory.topic_file import Topic

SEEN: Final = "seen.json"
PENDING: Final = "pending.json"
UNKNOWN: Final = "?"
"""The revision of a ledger that belongs to none: everything is to be compared."""
SETTLED: Final = 100_000_000
"""Nanoseconds after which a file cannot change any more without its stamp changing: file systems count
time in steps, and two writes within one step may look the same."""
_FORMAT: Final = 2
_TOKEN: Final = 16
_TIMES: Final = 1_000
"""Texts that are gone whose time is known."""


A_SECRET: Final = "it holds a secret"
"""Why a file is neither in the history nor in the index."""


class FileRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One file as it was seen last."""

    stamp: FileStamp | None
    digest: str
    name: str = ""
    held: str = ""
    """Why it is not in the history; empty when it is."""


class FolderLedger(msgspec.Struct):
    """All rows, and the revision they belong to."""

    head: str = UNKNOWN
    rows: dict[str, FileRow] = {}
    full: set[str] = set()
    """The parts of the folder that hold memories for which their index has no room."""
    purged: str | None = None
    """The newest revision after a purge, which itself is none; None: nothing was purged."""
    format: int = _FORMAT
    times: dict[str, int] = {}
    """When texts that are gone had been written, by their digest: one that comes back is as old again."""

    def copy(self) -> FolderLedger:
        return FolderLedger(self.head, dict(self.rows), set(self.full), self.purged, times=dict(self.times))

    def gone(self, row: FileRow) -> None:
        """A text is replaced or removed."""
        if row.stamp is not None and row.digest:
            self.times.pop(row.digest, None)
            self.times[row.digest] = row.stamp.modified
            while len(self.times) > _TIMES:
                del self.times[next(iter(self.times))]


class PendingWrite(msgspec.Struct, frozen=True):
    """What is about to be written, by whom: file to digest, empty for a removal.

    It counts as long as no revision followed the one that was the newest then.
    """

    head: str
    author: Author
    summary: str
    digests: dict[str, str]


class LedgerFile:
    """The ledger of one folder; only touched under the folder's lock.

    Nothing here fails: a state folder that cannot be written costs time, not memories.
    """

    def __init__(self, state: Path) -> None:
        self.state = state
        self._kept: tuple[bytes, FolderLedger] | None = None

    def load(self) -> FolderLedger:
        """The ledger; an empty one that belongs to no revision when it cannot be read."""
        with (
            contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError),
            (self.state / SEEN).open("rb") as file,
        ):
            token = file.readline(_TOKEN + 1)
            if self._kept is None or self._kept[0] != token:
                ledger = msgspec.json.decode(file.read(), type=FolderLedger)
                if ledger.format != _FORMAT:
                    return FolderLedger()
                self._kept = (token, ledger)
            return self._kept[1].copy()
        return FolderLedger()

    def save(self, ledger: FolderLedger) -> None:
        """Keep it for the next time. A power cut may cost it, never anything else."""
        token = secrets.token_hex(_TOKEN // 2).encode("ascii") + b"\n"
        if _put(self.state / SEEN, token + msgspec.json.encode(ledger)):
            self._kept = (token, ledger.copy())
        else:
            self.forget()

    def forget(self) -> None:
        """The next one compares everything with the history."""
        self._kept = None
        with contextlib.suppress(OSError):
            (self.state / SEEN).unlink()

    def announce(self, pending: PendingWrite) -> None:
        _put(self.state / PENDING, msgspec.json.encode(pending))

    def announced(self, head: str) -> PendingWrite | None:
        """What was about to be written when this was the newest revision."""
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            data = (self.state / PENDING).read_bytes()
            pending = msgspec.json.decode(data, type=PendingWrite)
            return pending if pending.head == head else None
        return None

    def withdraw(self) -> None:
        """Leave no note behind, not even a name."""
        with contextlib.suppress(OSError):
            (self.state / PENDING).unlink()


def digest_bytes(data: bytes) -> str:
    """Short, and the same for the same bytes only."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def read_file_clock() -> int:
    """Now, in the nanoseconds of the clock that stamps files: that of the machine, whatever ours says."""
    return int(SystemClock().now() * 1e9)


def is_settled(stamp: FileStamp, now: int) -> bool:
    """Whether another change of this file would have to show in its stamp."""
    return abs(now - stamp.changed) > SETTLED


def _put(path: Path, data: bytes) -> bool:
    """All or nothing, but without waiting for the disk; False when it could not be written."""
    new = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        make_private_dir(path.parent)
        new.touch(PRIVATE_FILE)
        new.write_bytes(data)
        new.replace(path)
    except (OSError, StorageFailure):
        with contextlib.suppress(OSError):
            new.unlink()
        return False
    return True


MOST: Final = 250_000
"""Files that are listed; whatever is beyond is odd, and said."""
_AN_INDEX: Final = f"/{INDEX_NAME}"
_A_LOG: Final = f"{LOGS}/"


class UnusedFile(msgspec.Struct, frozen=True):
    """Something in the folder that is not used, and why."""

    file: str
    why: str


class FolderListing(msgspec.Struct, frozen=True):
    """What is in the folder."""

    files: dict[str, FileStamp] = {}
    """Every markdown file: topic files, indexes and daily logs."""
    odd: tuple[UnusedFile, ...] = ()
    unfinished: tuple[str, ...] = ()
    """What processes that died left behind."""
    folders: tuple[str, ...] = ()

    @property
    def taken(self) -> set[str]:
        """The keys of every name in use, whatever it is that has it."""
        return {
            make_file_key(file) for file in (*self.files, *self.folders, *(odd.file for odd in self.odd))
        }

    @property
    def topics(self) -> list[str]:
        """The topic files in order: not the indexes, not the daily logs."""
        return sorted(file for file in self.files if is_topic(file))


def is_topic(file: str) -> bool:
    """Whether a file of the folder is a memory: no index, no daily log."""
    return not (file.endswith(_AN_INDEX) or file.startswith(_A_LOG) or file == INDEX_NAME)


def list_folder(at: OpenFolder) -> FolderListing:
    """Everything below the folder."""
    found = _ListedFiles()
    waiting: list[tuple[str, int]] = [("", 0)]
    while waiting:
        folder, depth = waiting.pop()
        for inner in _scan(at, folder, found):
            found.folders.append(inner)
            if depth < DEEPEST:
                waiting.append((inner, depth + 1))
            else:
                found.odd.append(UnusedFile(inner, "it is too deep; move it up"))
    return FolderListing(found.files, tuple(found.odd), tuple(found.unfinished), tuple(found.folders))


class _ListedFiles:
    def __init__(self) -> None:
        self.files: dict[str, FileStamp] = {}
        self.odd: list[UnusedFile] = []
        self.unfinished: list[str] = []
        self.folders: list[str] = []
        self.more = False


def _scan(at: OpenFolder, folder: str, found: _ListedFiles) -> list[str]:
    """Note the files of one folder; returns the folders in it."""
    inside = f"{folder}/" if folder else ""
    try:
        with (
            at.folder(folder) as place,
            os.scandir(at.real / folder if place is None else place) as entries,
        ):
            return [inner for entry in entries if (inner := _note(entry, inside, found))]
    except Refused:  # it was swapped for a link just now
        found.odd.append(UnusedFile(folder or ".", "it is no folder any more"))
    except OSError as error:
        found.odd.append(UnusedFile(folder or ".", f"it cannot be listed: {error.strerror}"))
    return []


def _note(entry: os.DirEntry[str], inside: str, found: _ListedFiles) -> str:
    """Note one entry; returns its path when it is a folder to look into."""
    name = entry.name
    file = inside + name
    if name[0] == ".":
        if name.startswith(UNFINISHED):
            found.unfinished.append(file)
        return ""
    try:
        seen = entry.stat(follow_symlinks=False)
    except OSError:  # it went away just now
        return ""
    if not stat.S_ISREG(seen.st_mode):
        return _note_other(file, seen.st_mode, found)
    if not name.endswith(ENDING):
        return ""  # pictures and the like are the user's own
    if why := explain_bad_file(file, True):
        found.odd.append(UnusedFile(file, f"{why}; rename it"))
    elif len(found.files) < MOST:
        found.files[file] = FileStamp(seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino)
    elif not found.more:
        found.more = True
        found.odd.append(UnusedFile(file, f"there are more than {MOST:,} files; the rest is left out"))
    return ""


def _note_other(file: str, mode: int, found: _ListedFiles) -> str:
    name = file.rpartition("/")[2]
    if stat.S_ISDIR(mode):
        if not (why := explain_bad_part(name)):
            return file
        found.odd.append(UnusedFile(file, f"{why}; rename the folder"))
    elif stat.S_ISLNK(mode):
        found.odd.append(
            UnusedFile(file, "it is a symbolic link, which is not followed; put the file here")
        )
    elif name.endswith(ENDING):
        found.odd.append(UnusedFile(file, "it is a pipe, a socket or a device and no file; remove it"))
    return ""


RECORDED: Final = HEAD
"""Bytes of the largest file that is looked through and kept in the history; others are only listed."""

Action = Literal["created", "updated", "merged", "removed"]


class Saved(msgspec.Struct, frozen=True):
    """What became of one memory."""

    name: str
    path: Path
    revision: str
    """Empty when nothing changed, or the history could not be written."""
    action: Action


@dataclass(slots=True)
class FolderTransaction:
    """One piece of work under the lock."""

    at: OpenFolder
    folder: Path
    ledgers: LedgerFile
    past: FolderHistory
    gate: GuardGate
    now: float
    say: Callable[[str], None]
    listing: FolderListing
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
        """From now on this is what is known of a file; None: it is gone."""
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

    def record(self, files: Mapping[str, bytes | None], author: Author, summary: str) -> str:
        """Put into the history what these files are now; empty when that is not possible."""
        found = self.ledger.head == "" and author.kind == "other"
        revision = self.past.record(
            None if found else files, lambda: self.whole(files), author, summary, self.now
        )
        head = self.past.head(self.now)
        sure = revision is not None or head == NONE
        self.ledger.head = head if sure and not self.past.mended else UNKNOWN
        self.past.mended = False
        self.dirty = True
        return revision or ""

    def whole(self, files: Mapping[str, bytes | None]) -> dict[str, bytes]:
        """All that belongs into a history that begins now: these files and every other one."""
        found = {file: data for file, data in files.items() if data is not None}
        for file, row in self.ledger.rows.items():
            if file not in files and not row.held:
                with contextlib.suppress(StorageFailure, Refused):
                    found[file] = self.at.read(file, RECORDED)[0]
        return found

    def holding(self, file: str, index: bytes) -> str:
        """Why an index that we are about to write stays out of the history; empty: it does not.

        Lines that were harmless apart can become a secret when what stood between them goes.
        """
        from sevenfold.memory.guard.secrets import find_secrets

        row = self.ledger.rows.get(file)
        if row and row.held:
            return row.held
        return A_SECRET if find_secrets(index.decode("utf-8", "replace")) else ""

    def settle(self) -> None:
        """Keep what is known now. What was not recorded is compared again the next time."""
        if self.dirty:
            self.ledgers.save(self.ledger)
            self.dirty = False


def read_memory_name(file: str, data: bytes) -> str:
    """The name of the memory in a topic file; the index and the logs have none."""
    from sevenfold.memory.topic_file import read_topic

    return read_topic(data, file).name if is_topic(file) else ""


class DeferredNotices:
    """Sentences that wait until the folder is free again: a listener may want to read it."""

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


ARCHIVE: Final = "archive/"
"""What a dream took out of the index because it is stale; recall still finds it."""


class FolderPart(msgspec.Struct, frozen=True):
    """One of them. A file has one name in the memory folder, and another in its part's index."""

    folder: str
    """Empty, or with a slash at its end."""

    @property
    def index(self) -> str:
        return f"{self.folder}{INDEX_NAME}"

    def holds(self, file: str) -> bool:
        """Whether a file of the memory folder is in this part."""
        return file.startswith(self.folder) and (bool(self.folder) or not file.startswith(TEAM))

    def lists(self, file: str) -> bool:
        """Whether a file should have a line in this part's index."""
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
    """Whether a file should have a line in the index of one's own memories."""
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
    """Whether it is about a person and lies with the team."""
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
"""What git is told to leave alone in the folders that lie in a project."""


class AgentFolder(msgspec.Struct, frozen=True):
    """The memory folder of one kind of agent in one scope. Nothing is made before
    `prepare_agent_folder`.
    """

    scope: AgentScope
    folder: Path
    state: Path
    """Where its history and its quarantine are kept: never in the project."""
    note: str = ""
    """What the user should be told once."""


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
    """Where this memory is. `state_home` is our own home, also where `home` is shared with others.

    Only for a trusted workspace, unless the scope is `user`: what lies in a project is its owner's word.
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
    """The kind of agent whose memory is in this folder, as folders spell it; empty for any other."""
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
    """Make the folder. In a project, git is told which files in it are nobody else's concern."""
    make_private_dir(place.folder, nofollow=True)
    above = place.folder.parent
    if above.parent.name == OWN_SCOPES and above.name in _NOT_COMMITTED and place.scope != "user":
        write_new(above / ".gitignore", _NOT_COMMITTED[above.name], 0o644)


def find_state_folder(folder: Path, home: Path) -> Path:
    """Where the history of an agent's memory is kept, below our own home.

    The slug alone would be the same for `a-b` and `a_b`, and their histories one.
    """
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return home / STATE / f"{make_path_slug(folder)}-{digest}"
