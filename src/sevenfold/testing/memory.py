"""A memory backend made of dictionaries, for tests and for programs that keep nothing."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake, Refused, StorageFailure
from sevenfold.memory.backend import (
    HEAD,
    ConcurrentWrite,
    FileStamp,
    FolderListing,
    MemoryBackend,
    OpenMemories,
    RevisionLog,
    StateRecords,
)
from sevenfold.memory.history.revisions import (
    Author,
    Revision,
    RevisionChange,
    TakenRevisions,
    classify_change,
    describe_changes,
)


class InMemoryFiles:
    """Files in a dictionary. Each write gives a file a stamp that no file had before."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, FileStamp]] = {}
        self._folders: set[str] = set()
        self._lock, self._writes = threading.RLock(), 0

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._lock:
            yield

    def list(self) -> FolderListing:
        folders = self._folders | {name.rpartition("/")[0] for name in self.files} - {""}
        return FolderListing({name: one[1] for name, one in self.files.items()}, folders=tuple(folders))

    def read(self, file: str, limit: int = HEAD) -> tuple[bytes, FileStamp]:
        if file not in self.files:
            raise StorageFailure(
                f"{file} could not be read: there is no such file"
            ) from FileNotFoundError()
        data, stamp = self.files[file]
        return data[:limit], stamp

    def stamp(self, file: str) -> FileStamp | None:
        return self.files[file][1] if file in self.files else None

    def write(
        self, file: str, data: bytes, expected: FileStamp | None, *, modified: float | None = None
    ) -> FileStamp:
        if self.stamp(file) != expected:
            raise ConcurrentWrite
        self._writes += 1
        at = SystemClock().now() if modified is None else modified
        self.files[file] = data, FileStamp(int(at * 1e9), self._writes, len(data), self._writes)
        return self.files[file][1]

    def remove(self, file: str, expected: FileStamp) -> None:
        if self.stamp(file) != expected:
            raise ConcurrentWrite
        self._writes += 1
        del self.files[file]

    def make_folder(self, folder: str) -> None:
        self._folders.add(folder)

    def sweep(self, names: Iterable[str]) -> None:
        """Nothing: no write is ever left unfinished."""

    def versions(self, folders: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(folders, self._writes)


class InMemoryRevisions:
    """Every revision with a copy of all files."""

    def __init__(self) -> None:
        self._revisions: list[tuple[Revision, dict[str, bytes]]] = []

    def record(
        self,
        files: Mapping[str, bytes] | Callable[[], Mapping[str, bytes]],
        author: Author,
        summary: str,
        at: float,
        changed: Mapping[str, bytes | None] | None = None,
        takes_back: TakenRevisions | None = None,
    ) -> Revision | None:
        old = self._revisions[-1][1] if self._revisions else {}
        if changed is None or not self._revisions:
            new = dict(files() if callable(files) else files)
        else:
            new = {file: data for file, data in {**old, **changed}.items() if data is not None}
        changes = tuple(
            RevisionChange(file, classify_change(was, now)) for file, was, now in _compare(old, new)
        )
        if not changes:
            return None
        id = hashlib.sha1(f"{len(self._revisions)} {at} {summary}".encode()).hexdigest()[:12]
        number, found = len(self._revisions) + 1, not self._revisions and author.kind == "other"
        summary = summary or describe_changes(changes)
        revision = Revision(id, at, author, summary, changes, number, takes_back, found)
        self._revisions.append((revision, new))
        return revision

    def log(self, file: str | None = None, limit: int = 50) -> list[Revision]:
        newest = (revision for revision, _ in reversed(self._revisions))
        return [one for one in newest if file is None or file in {c.file for c in one.files}][:limit]

    def at(self, revision: str) -> dict[str, bytes]:
        return dict(self._revisions[self._find(revision)][1])

    def file_at(self, revision: str, file: str) -> bytes | None:
        return self.at(revision).get(file)

    def diff(self, older: str | None, newer: str = "last", file: str | None = None) -> str:
        from sevenfold.memory.history.diff import make_unified_diff

        compared = _compare(self.at(older) if older else {}, self.at(newer))
        return "".join(make_unified_diff(*one) for one in compared if file in (None, one[0]))

    def changes(self, revision: str = "last", file: str | None = None) -> str:
        before = self._find(revision) - 1
        return self.diff(self._revisions[before][0].id if before >= 0 else None, revision, file)

    def find(self, revision: str) -> Revision:
        return self._revisions[self._find(revision)][0]

    def purge(self, *names: str, at: float = 0.0) -> None:
        def without(one: Revision) -> Revision:
            files = tuple(c for c in one.files if c.file not in names)
            return msgspec.structs.replace(one, files=files, takes_back=None)

        kept = [
            (without(one), {file: data for file, data in files.items() if file not in names})
            for one, files in self._revisions
        ]
        left = [one for one in kept if one[0].files]
        self._revisions = [
            (msgspec.structs.replace(one, number=number), files)
            for number, (one, files) in enumerate(left, 1)
        ]

    def mend(self, at: float) -> str:
        return ""

    def _find(self, text: str) -> int:
        back = text.removeprefix("HEAD~") if text.startswith("HEAD~") else "0" if text == "last" else ""
        ids = [revision.id for revision, _ in self._revisions]
        found = [n for n, id in enumerate(ids) if id.startswith(text)]
        if back.isdigit():
            found = [len(ids) - 1 - int(back)] if int(back) < len(ids) else []
        if len(found) != 1:
            raise Mistake(f"there is no revision {text!r}: see the list of revisions for their ids")
        return found[0]


def _compare(
    old: Mapping[str, bytes], new: Mapping[str, bytes]
) -> Iterator[tuple[str, bytes | None, bytes | None]]:
    for file in sorted({*old, *new}):
        if old.get(file) != new.get(file):
            yield file, old.get(file), new.get(file)


class InMemoryRecords:
    """Records in a dictionary."""

    def __init__(self, name: str = "") -> None:
        self._name, self._records, self._lock = name, dict[str, bytes](), threading.RLock()

    def path_of(self, name: str) -> Path:
        return Path(self._name) / name

    def exists(self) -> bool:
        return bool(self._records)

    def sizes(self) -> dict[str, int]:
        return {name: len(data) for name, data in self._records.items()}

    def read(self, name: str, limit: int) -> bytes | None:
        data = self._records.get(name)
        if data is not None and len(data) > limit:
            raise StorageFailure(f"{name} could not be read: it is larger than {limit:,} bytes")
        return data

    def read_head(self, name: str, limit: int) -> bytes | None:
        data = self._records.get(name)
        return data if data is None else data[:limit]

    def write(self, name: str, data: bytes, *, lasting: bool = True) -> None:
        self._records[name] = data

    def rename(self, name: str, new: str) -> None:
        if name not in self._records:
            raise StorageFailure(f"{name} could not be renamed: there is no such record")
        self._records[new] = self._records.pop(name)

    def remove(self, name: str) -> None:
        self._records.pop(name, None)

    def clear(self) -> None:
        self._records.clear()

    @contextmanager
    def lock(self) -> Iterator[None]:
        with self._lock:
            yield


class InMemoryBackend:
    """Memories that end with the process. The search index lies in a temporary folder."""

    def __init__(self, files: OpenMemories | None = None) -> None:
        """`files` keeps the files in your own way."""
        self.files, self._revisions = files or InMemoryFiles(), InMemoryRevisions()
        self._records: dict[str, InMemoryRecords] = {}
        self.local = Path(tempfile.mkdtemp(prefix="sevenfold-"))
        weakref.finalize(self, shutil.rmtree, self.local, ignore_errors=True)

    def path_of(self, file: str = "") -> Path:
        return self.local / "memory" / file

    def file_of(self, path: Path) -> str:
        if ".." in path.parts or self.path_of() not in path.parents:
            raise Refused(f"{path} is refused: it is not inside {self.path_of()}")
        return path.relative_to(self.path_of()).as_posix()

    def exists(self, folder: str = "") -> bool:
        return not folder or folder in self.files.list().folders

    @contextmanager
    def opened(self, *, make: bool = False) -> Iterator[OpenMemories]:
        yield self.files

    def revisions(self, tell: Callable[[str], None]) -> InMemoryRevisions:
        return self._revisions

    def close(self) -> None:
        return

    def state(self, name: str) -> InMemoryRecords:
        return self._records.setdefault(name, InMemoryRecords(name))


_backend: type[MemoryBackend] = InMemoryBackend
_files: type[OpenMemories] = InMemoryFiles
_revisions: type[RevisionLog] = InMemoryRevisions
_records: type[StateRecords] = InMemoryRecords
