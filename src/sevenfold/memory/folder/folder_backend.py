"""The default backend: memories are markdown files in one folder, everything else lies in another.

<folder>                    the memories
<state>/history             their revisions: a bare git repository
<state>/seen.json           the ledger, with pending.json
<state>/quarantine          texts that the guard held back
<state>/dream-journal       the files of a dream that is being written
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sevenfold.core.errors import StorageFailure
from sevenfold.memory.backend import MemoryBackend, OpenMemories, RevisionLog, StateRecords
from sevenfold.memory.folder.files import MemoryFiles, OpenFolder
from sevenfold.storage.files import (
    PRIVATE_FILE,
    make_private_dir,
    make_storage_failure,
    read_head,
    read_if_there,
    sync_folder,
    write_atomic,
)
from sevenfold.storage.locks import hold_file_lock

if TYPE_CHECKING:
    from sevenfold.memory.folder.folder import AgentFolder
    from sevenfold.settings.place import MemoryPlace

HISTORY: Final = "history"


class FolderBackend(MemoryFiles):
    """Memories in `folder`, revisions and records in `state`. Nothing is made before the first write."""

    def __init__(self, folder: Path, state: Path) -> None:
        super().__init__(folder)
        self._given, self.local = folder, state

    @classmethod
    def at(cls, place: MemoryPlace | AgentFolder) -> FolderBackend:
        return cls(place.folder, place.state)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FolderBackend):
            return NotImplemented
        return (self._given, self.local) == (other._given, other.local)

    def __hash__(self) -> int:
        return hash((self._given, self.local))

    def path_of(self, file: str = "") -> Path:
        return self._given / file

    def exists(self, folder: str = "") -> bool:
        path = self._given / folder
        return path.is_dir() and not (folder and path.is_symlink())

    def revisions(self, tell: Callable[[str], None]) -> RevisionLog:
        from sevenfold.memory.history.history import MemoryHistory

        return MemoryHistory(self.local / HISTORY, tell)

    def state(self, name: str) -> StateFolder:
        return StateFolder(self.local / name)


class StateFolder:
    """Records that are files in one folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def path_of(self, name: str) -> Path:
        return self._path / name

    def exists(self) -> bool:
        return os.path.lexists(self._path)

    def sizes(self) -> dict[str, int]:
        found = dict[str, int]()
        try:
            for path in self._path.iterdir():
                with contextlib.suppress(FileNotFoundError):  # another process removed it just now
                    found[path.name] = path.lstat().st_size
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise make_storage_failure(error, self._path, "listed") from error
        return found

    def read(self, name: str, limit: int) -> bytes | None:
        return read_if_there(self._path / name, limit, nofollow=True)

    def read_head(self, name: str, limit: int) -> bytes | None:
        try:
            return read_head(self._path / name, limit, nofollow=True)
        except StorageFailure as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                return None
            raise

    def write(self, name: str, data: bytes, *, lasting: bool = True) -> None:
        path = self._path / name
        if lasting:
            make_private_dir(self._path, nofollow=True)
            return write_atomic(path, data, nofollow=True)
        new = self._path / f".{name}-{secrets.token_hex(4)}"
        try:
            make_private_dir(self._path)
            new.touch(PRIVATE_FILE)
            new.write_bytes(data)
            new.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink()
            raise make_storage_failure(error, path) from error

    def rename(self, name: str, new: str) -> None:
        try:
            (self._path / name).rename(self._path / new)
            sync_folder(self._path)
        except OSError as error:
            raise make_storage_failure(error, self._path / name, "renamed") from error

    def remove(self, name: str) -> None:
        try:
            (self._path / name).unlink()
            sync_folder(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise make_storage_failure(error, self._path / name, "removed") from error

    def clear(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)

    def lock(self) -> AbstractContextManager[object]:
        return hold_file_lock(self._path / self._path.name)


_backend: type[MemoryBackend] = FolderBackend
_memories: type[OpenMemories] = OpenFolder
_records: type[StateRecords] = StateFolder
