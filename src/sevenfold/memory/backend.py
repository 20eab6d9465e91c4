"""The seam between a memory store and the place that keeps its memories.

    store = MemoryStore(FolderBackend(folder, state), clock)      markdown files, revisions in SQLite
    store = MemoryStore(InMemoryBackend(), clock)                 sevenfold.testing: dictionaries

A backend keeps files (`OpenMemories`), their revisions (`RevisionLog`) and the store's own records
(`StateRecords`: ledger, quarantine, journal of a dream). A file is named by its path below the memory
folder, such as `team/a.md`. `examples/own_backend.py` shows a small one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import msgspec

from sevenfold.core.errors import Mistake
from sevenfold.memory.folder.names import INDEX_NAME, LOGS, make_file_key
from sevenfold.memory.history.revisions import Author, Revision, TakenRevisions

if TYPE_CHECKING:
    from sevenfold.memory.store import MemoryStore
    from sevenfold.settings.place import MemoryPlace

SHARED_BY: Final = "backend.json"
"""A file in the state folder that names the package which keeps the memories, as `{"kind": NAME}`."""
BACKENDS: Final = "sevenfold.backends"  # The group of entry points where a package says how it opens them
HEAD: Final = 250_000
"""Bytes of the largest memory that is written, and so many are read of one that is larger."""
_AN_INDEX: Final = f"/{INDEX_NAME}"
_A_LOG: Final = f"{LOGS}/"


class FileStamp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Identifies one state of a file without reading it: a file with another stamp has changed.

    `modified` and `changed` are nanoseconds. `inode` is any number that differs for a new file.
    """

    modified: int
    changed: int
    size: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileStamp:
        return cls(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


class ConcurrentWrite(Exception):
    """The file changed after it was read: read it again before writing."""


class UnusedFile(msgspec.Struct, frozen=True):
    """A file or folder that is not used, and the reason."""

    file: str
    why: str


class FolderListing(msgspec.Struct, frozen=True):
    """The content of a memory folder."""

    files: dict[str, FileStamp] = {}  # Every markdown file: topic files, indexes and daily logs
    odd: tuple[UnusedFile, ...] = ()
    unfinished: tuple[str, ...] = ()  # Temporary files that dead processes left
    folders: tuple[str, ...] = ()

    @property
    def taken(self) -> set[str]:
        """The keys of all names in use, of files and folders alike."""
        return {
            make_file_key(file) for file in (*self.files, *self.folders, *(odd.file for odd in self.odd))
        }

    @property
    def topics(self) -> list[str]:
        """The topic files in order: not the indexes, not the daily logs."""
        return sorted(file for file in self.files if is_topic(file))


def is_topic(file: str) -> bool:
    """True for the file of a memory; False for an index or a daily log."""
    return not (file.endswith(_AN_INDEX) or file.startswith(_A_LOG) or file == INDEX_NAME)


class OpenMemories(Protocol):
    """The files of a backend during one piece of work."""

    def alone(self) -> AbstractContextManager[None]:
        """Waits for the write lock; every write happens under it."""

    def list(self) -> FolderListing: ...

    def read(self, file: str, limit: int = HEAD) -> tuple[bytes, FileStamp]:
        """The first bytes of a file and its stamp. Raises `StorageFailure` if it cannot be read.

        The failure of a file that is not there has a `FileNotFoundError` as its cause.
        """

    def stamp(self, file: str) -> FileStamp | None:
        """The stamp of a file; None if there is no such file."""

    def write(
        self, file: str, data: bytes, expected: FileStamp | None, *, modified: float | None = None
    ) -> FileStamp:
        """Replace a file, all or nothing. Raises `ConcurrentWrite` unless its stamp is `expected`.

        `expected` is None for a new file. `modified` is the time the file gets, in seconds; None: now.
        """

    def remove(self, file: str, expected: FileStamp) -> None:
        """Remove a file. Raises `ConcurrentWrite` unless its stamp is `expected`."""

    def make_folder(self, folder: str) -> None: ...

    def sweep(self, names: Iterable[str]) -> None:
        """Remove the temporary files that `list` reported as unfinished."""

    def versions(self, folders: Iterable[str]) -> dict[str, int]:
        """A number for each folder (`""`: the top) that changes when a file in it comes or goes."""


class RevisionLog(Protocol):
    """All revisions of the files. `record`, `purge` and `mend` are called under the write lock.

    A revision is named by the beginning of its id, by `last`, or by `HEAD~2` for two before the last.
    Methods raise `Mistake` for a revision that does not exist.
    """

    def record(
        self,
        files: Mapping[str, bytes] | Callable[[], Mapping[str, bytes]],
        author: Author,
        summary: str,
        at: float,
        changed: Mapping[str, bytes | None] | None = None,
        takes_back: TakenRevisions | None = None,
    ) -> Revision | None:
        """Keep all `files` as a new revision; None if nothing changed.

        With `changed` (None for a removed file) only these are compared, unless it is the first revision.
        A revision of an undo or a redo says with `takes_back` what it takes back.
        """

    def log(self, file: str | None = None, limit: int = 50) -> list[Revision]:
        """The newest revisions first; with `file` those that changed it."""

    def at(self, revision: str) -> dict[str, bytes]:
        """All files right after a revision."""

    def file_at(self, revision: str, file: str) -> bytes | None:
        """One file right after a revision; None if it was not there."""

    def diff(self, older: str | None, newer: str = "last", file: str | None = None) -> str:
        """The changes between two revisions as a unified diff; `older=None` is before the first."""

    def changes(self, revision: str = "last", file: str | None = None) -> str:
        """The changes of one revision as a unified diff."""

    def find(self, revision: str) -> Revision:
        """A revision by its name."""

    def purge(self, *names: str, at: float = 0.0) -> object:
        """Remove files from every revision."""

    def mend(self, at: float) -> str:
        """Repair a damaged history; returns a sentence for the user, empty if nothing was wrong."""


class StateRecords(Protocol):
    """Small named records of the store. They survive the process and can be lost without losing memories.

    Methods raise `StorageFailure`.
    """

    def exists(self) -> bool:
        """True once a record was written and until `clear`."""

    def sizes(self) -> dict[str, int]:
        """The bytes of each record."""

    def read(self, name: str, limit: int) -> bytes | None:
        """A record; None if there is none. Fails for one larger than `limit` bytes."""

    def read_head(self, name: str, limit: int) -> bytes | None:
        """The first bytes of a record; None if there is none."""

    def write(self, name: str, data: bytes, *, lasting: bool = True) -> None:
        """Replace a record, all or nothing; if `lasting` it survives a power cut from now on."""

    def rename(self, name: str, new: str) -> None: ...

    def remove(self, name: str) -> None:
        """Remove a record, if it is there."""

    def clear(self) -> None:
        """Remove all records."""

    def lock(self) -> AbstractContextManager[object]:
        """Waits until no other process holds this lock."""

    def path_of(self, name: str) -> Path:
        """A path that names a record in messages."""


class MemoryBackend(Protocol):
    """The place that keeps the memories of one store. Backends of the same memories are equal."""

    @property
    def local(self) -> Path:
        """A folder on this machine for what is no memory: search index, dreams at work, team repository."""

    def path_of(self, file: str = "") -> Path:
        """The path of a file (`""`: of the memory folder) for messages and file tools.

        A backend that keeps no files answers with a path below `local`.
        """

    def file_of(self, path: Path) -> str:
        """The file at an absolute path. Raises `Refused` for a path outside the memory folder."""

    def exists(self, folder: str = "") -> bool:
        """True if the memory folder, or a folder in it, is there."""

    def opened(self, *, make: bool = False) -> AbstractContextManager[OpenMemories]:
        """Open the files. Raises `FileNotFoundError` if there are none yet, unless `make` is set."""

    def revisions(self, tell: Callable[[str], None]) -> RevisionLog:
        """The history. `tell` takes a sentence for the user after a repair."""

    def close(self) -> None:
        """Let go of open files; whoever uses the backend again opens them again."""

    def state(self, name: str) -> StateRecords:
        """The records under one name: `""` the ledger, `quarantine`, `dream-journal`."""


@runtime_checkable
class SharedBackend(MemoryBackend, Protocol):
    """A backend whose memories others change too."""

    def follow(self, store: MemoryStore) -> None:
        """Bring the changes of others into the store, in the background, until `close`."""


def open_backend(place: MemoryPlace) -> MemoryBackend:
    """The backend of a place: its folder, or what the package opens that keeps its memories."""
    from sevenfold.memory.folder.files import FolderBackend

    named = place.state / SHARED_BY
    if not named.exists():
        return FolderBackend.at(place)
    from importlib.metadata import entry_points

    kind = msgspec.json.decode(named.read_bytes(), type=dict[str, Any]).get("kind")
    found = [*entry_points(group=BACKENDS, name=str(kind))]
    if not found:
        raise Mistake(
            f"{named} names {kind!r}, which no installed package knows; install it, or remove the file"
        )
    backend: MemoryBackend = found[0].load()(place)
    return backend


def start_following(store: MemoryStore) -> None:
    """Let changes of others come in while the store is open."""
    if isinstance(store.backend, SharedBackend):
        store.backend.follow(store)
