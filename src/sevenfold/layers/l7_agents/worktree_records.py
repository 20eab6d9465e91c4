"""Which work trees there are, and whether somebody is in one: a file for each, locked while it is used.

The system lets go of the lock when the process dies, so that what a crash left behind can be told from
what another session is working in right now.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.errors import Mistake, StorageFailure
from sevenfold.storage.files import (
    CLOEXEC,
    NOFOLLOW,
    PRIVATE_FILE,
    failure,
    make_private_dir,
    write_all,
)

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

ENDING: Final = ".json"
BRANCHES: Final = "sevenfold/"
"""How the branches of agents begin."""
_LARGEST: Final = 1 << 16
_ID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,99}")


class Worktree(msgspec.Struct, frozen=True):
    """A folder with files of its own, on a branch of its own."""

    id: str
    path: Path
    branch: str
    began: str
    """The commit that it was made from."""
    ready: bool = True
    """False while it is being made: nobody has worked in it."""
    told: bool = False
    """Whether somebody was told that it stays."""


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    branch: str
    began: str
    ready: bool
    told: bool = False


def checked_id(id: str) -> str:
    """The id, if it can name a folder and a branch."""
    if not _ID.fullmatch(id) or id.endswith((".", ".lock", ENDING)):
        raise Mistake(
            f"{id[:60]!r} cannot name a work tree: use letters, digits, '-', '_' and single dots"
        )
    return id


class Records:
    """The files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: dict[str, int] = {}

    def begin(self, id: str, began: str) -> Worktree:
        """Write down a new one and hold it; `Mistake` when the id is taken."""
        worktree = Worktree(id, self.folder / id, f"{BRANCHES}{id}", began, ready=False)
        make_private_dir(self.folder)
        if os.path.lexists(worktree.path) or (fd := self._created(id)) is None:
            raise Mistake(
                f"there is a work tree {worktree.path} already; give the agent another id, or remove it "
                f"with 'git worktree remove {worktree.path}'"
            )
        self._held[id] = fd
        try:
            self._write(fd, worktree)
        except StorageFailure:
            self.forget(id)
            raise
        return worktree

    def made(self, worktree: Worktree) -> Worktree:
        """From now on somebody works in it."""
        ready = msgspec.structs.replace(worktree, ready=True)
        self._write(self._held[worktree.id], ready)
        return ready

    def told(self, worktree: Worktree) -> None:
        """Somebody knows now that it stays. Only for one that is held."""
        if not worktree.told:
            self._write(self._held[worktree.id], msgspec.structs.replace(worktree, told=True))

    def holds(self, id: str) -> bool:
        """Whether it is held here."""
        return id in self._held

    def hold(self, id: str) -> bool:
        """Take one that nobody is in; False when somebody is, here or elsewhere, or it is not there."""
        if id in self._held:
            return False
        fd = self._opened(id)
        if fd is None:
            return False
        self._held[id] = fd
        return True

    def read(self, id: str) -> Worktree | None:
        """What is written down; None when it is damaged. Only for one that is held."""
        data = os.pread(self._held[id], _LARGEST, 0)
        try:
            record = msgspec.json.decode(data, type=_Record)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        path = self.folder / id
        return Worktree(id, path, record.branch, record.began, record.ready, record.told)

    def let_go(self, id: str) -> None:
        """Somebody else may have it now."""
        if (fd := self._held.pop(id, None)) is not None:
            os.close(fd)

    def forget(self, id: str) -> None:
        """It is no more."""
        with contextlib.suppress(OSError):  # one that stays is found empty-handed the next time
            self._path(id).unlink()
        self.let_go(id)

    def ids(self) -> list[str]:
        """Of all that are written down, in order; somebody may be in them."""
        try:
            names = sorted(path.name for path in self.folder.iterdir())
        except OSError:
            return []
        ids = (name.removesuffix(ENDING) for name in names if name.endswith(ENDING))
        return [id for id in ids if _ID.fullmatch(id)]

    def _path(self, id: str) -> Path:
        return self.folder / f"{id}{ENDING}"

    def _created(self, id: str) -> int | None:
        """A new file, locked before anybody can take it for one that was left behind."""
        while True:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC
                fd = os.open(self._path(id), flags, PRIVATE_FILE)
            except FileExistsError:
                return None
            except OSError as error:
                raise failure(error, self._path(id)) from error
            if self._locked(fd, id, wait=True):
                return fd

    def _opened(self, id: str) -> int | None:
        try:
            fd = os.open(self._path(id), os.O_RDWR | NOFOLLOW | CLOEXEC)
        except OSError:
            return None
        return fd if self._locked(fd, id, wait=False) else None

    def _locked(self, fd: int, id: str, *, wait: bool) -> bool:
        """Lock a file that still has its name; it is closed when that cannot be had."""
        if fcntl is None:  # nobody can tell whether somebody is in it
            if not wait:
                os.close(fd)
            return wait
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            named = self._path(id).lstat()
            if named.st_ino == os.fstat(fd).st_ino:
                return True
        except OSError:
            pass
        os.close(fd)
        return False

    def _write(self, fd: int, worktree: Worktree) -> None:
        record = _Record(worktree.branch, worktree.began, worktree.ready, worktree.told)
        data = msgspec.json.encode(record) + b"\n"
        try:
            os.lseek(fd, 0, os.SEEK_SET)
            write_all(fd, data)
            os.ftruncate(fd, len(data))
            os.fsync(fd)
        except OSError as error:
            raise failure(error, self._path(worktree.id)) from error
