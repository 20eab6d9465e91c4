"""The SQLite file beside a memory folder: revisions, quarantine, and the journal of a dream.

Every piece of work is one transaction, so a process that dies leaves the state before or after it. Commits
reach the disk with the next checkpoint: after a power cut the history steps back to a whole revision.
`lasting` work is on the disk when it returns. Removed rows are overwritten.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from sevenfold.core.errors import StorageFailure
from sevenfold.storage.files import CLOEXEC, NOFOLLOW, PRIVATE_FILE, make_private_dir, make_storage_failure

VERSION: Final = 1
ASIDE: Final = ".damaged-"  # Suffix of a history that was set aside
_BESIDE: Final = ("", "-wal", "-shm", "-journal")
_WAIT: Final = 30.0  # Seconds for another process that writes
_SCHEMA: Final = """
create table revision(number integer primary key autoincrement, id text not null unique, at real not null,
    kind text not null, session text not null, reason text not null, summary text not null,
    found integer not null, first integer, last integer, file blob, redo integer);
create table change(file blob not null, number integer not null, action text not null, digest blob,
    depth integer not null, data blob, unique(file, number));
create index change_number on change(number);
create table record(room text not null, name text not null, data blob not null, primary key(room, name));
create table unfinished(work text primary key);
"""
_WHY: Final = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space and try again",
    sqlite3.SQLITE_READONLY: "it is read-only; give this user write access to it and to its folder",
    sqlite3.SQLITE_PERM: "permission denied; give this user access to it with chmod or chown",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check the owner and the rights of its folder",
    sqlite3.SQLITE_BUSY: "another process has been writing for too long; try again",
    sqlite3.SQLITE_LOCKED: "another process has been writing for too long; try again",
    sqlite3.SQLITE_IOERR: (
        "the disk reported an error, or the file would be larger than this system allows; check the disk "
        "and 'ulimit -f', and try again"
    ),
}
_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class DamagedHistory(StorageFailure, kind="damaged_history"):
    """The file is no database, or a damaged one."""


class EarlierHistory(Protocol):
    """The history that an earlier version kept in another form."""

    def exists(self) -> bool: ...

    def carry_over(self, db: sqlite3.Connection) -> None:
        """Fill a new file, in the transaction that makes it."""

    def remove(self, db: sqlite3.Connection | None) -> tuple[str, ...]:
        """Remove what the file has now; without `db` all of it. Returns the names of what was removed."""


class HistoryFile:
    """One such file, opened on first use; threads take turns."""

    def __init__(self, path: Path, earlier: EarlierHistory | None = None) -> None:
        self.path, self.earlier = path, earlier
        self._turn = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._close: Callable[[], object] = lambda: None
        self._inode: tuple[int, int] | None = None

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection | None]:
        """A connection that sees one state of the file; None if there is no history yet."""
        with self._turn, self._explain("read"):
            db = self._connect(make=self._has_past())
            if db is None:
                yield None
                return
            db.execute("begin")
            try:
                yield db
            finally:
                if db.in_transaction:
                    db.rollback()

    @contextmanager
    def write(self, *, lasting: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are all made, or none of them."""
        with self._turn, self._explain("written"):
            db = self._connect(make=True)
            assert db is not None
            db.execute(f"pragma synchronous = {'full' if lasting else 'normal'}")
            db.execute("begin immediate")
            try:
                yield db
                db.commit()
            finally:
                if db.in_transaction:
                    db.rollback()

    def erase_removed(self) -> None:
        """Leave nothing of removed rows in the file or beside it. Others who read delay it."""
        with self._turn, self._explain("written"):
            if (db := self._connect(make=False)) is None:
                return
            db.execute("vacuum")
            (busy, *_) = db.execute("pragma wal_checkpoint(truncate)").fetchone()
            if not busy:
                db.execute("delete from unfinished where work = 'erase'")

    def flush(self) -> None:
        """Bring what was written into the file itself; removed rows are overwritten there."""
        with self._turn, self._explain("written"):
            if (db := self._connect(make=False)) is not None:
                db.execute("pragma wal_checkpoint(truncate)")

    def close(self) -> None:
        with self._turn:
            self._close()
            self._db = None

    def set_aside(self, at: float) -> str:
        """Rename a damaged file; returns a sentence for the user."""
        self.close()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(max(0.0, at)))
        aside = self.path.with_name(f"{self.path.name}{ASIDE}{stamp}")
        number = 1
        while os.path.lexists(aside):
            number += 1
            aside = self.path.with_name(f"{self.path.name}{ASIDE}{stamp}-{number}")
        try:
            for ending in _BESIDE:
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{self.path}{ending}").rename(f"{aside}{ending}")
        except OSError as error:
            raise make_storage_failure(error, self.path, "moved") from error
        return (
            f"The history of the memories in {self.path} was damaged: it was set aside as {aside.name}, "
            "and a new one begins; the memories themselves are as they were."
        )

    def _connect(self, *, make: bool) -> sqlite3.Connection | None:
        inode = _inode(self.path)
        if self._db is not None and inode == self._inode:
            return self._db
        self.close()
        if inode is None:
            if not make:
                return None
            self._make()
        elif not self.path.is_file() or self.path.is_symlink():
            raise DamagedHistory(f"{self.path} is no file; move it away and a new history begins")
        db = self._open()
        version = db.execute("pragma user_version").fetchone()[0]
        if version > VERSION:
            db.close()
            raise StorageFailure(
                f"{self.path} was written by a newer version of Sevenfold; update this one"
            )
        if version == 0 and not make:
            db.close()
            return None
        if version == 0:
            self._fill(db)
        if self.earlier is not None and self._has_past():
            self.earlier.remove(db)
        self._close = weakref.finalize(self, db.close)
        self._db, self._inode = db, _inode(self.path)
        return db

    def _has_past(self) -> bool:
        return self.earlier is not None and self.earlier.exists()

    def _make(self) -> None:
        make_private_dir(self.path.parent)
        flags = os.O_CREAT | os.O_RDWR | NOFOLLOW | CLOEXEC
        try:
            os.close(os.open(self.path, flags, PRIVATE_FILE))
        except OSError as error:
            raise make_storage_failure(error, self.path) from error

    def _open(self) -> sqlite3.Connection:
        try:
            return self._attach("rw")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                raise
            return self._attach("ro&immutable=1")  # on a disk that cannot be written nobody changes it

    def _attach(self, mode: str) -> sqlite3.Connection:
        address = f"{self.path.absolute().as_uri()}?mode={mode}"
        db = sqlite3.connect(
            address, uri=True, timeout=_WAIT, isolation_level=None, check_same_thread=False
        )
        try:
            db.execute("pragma secure_delete = on")
            if mode == "rw":
                db.execute("pragma journal_mode = wal")
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _fill(self, db: sqlite3.Connection) -> None:
        try:
            db.execute("begin immediate")
            if db.execute("pragma user_version").fetchone()[0] == 0:  # no other process was faster
                for statement in _SCHEMA.split(";"):
                    db.execute(statement)
                if self.earlier is not None:
                    self.earlier.carry_over(db)
                db.execute(f"pragma user_version = {VERSION}")
            db.commit()
        except BaseException:
            db.close()
            raise

    @contextmanager
    def _explain(self, done: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            whole = getattr(error, "sqlite_errorcode", 0)
            code = whole & 0xFF  # the rest says more about the same cause
            if code in _DAMAGE or whole == sqlite3.SQLITE_IOERR_SHORT_READ:
                raise DamagedHistory(
                    f"the history in {self.path} is damaged: {error}; copy the file back from a backup, "
                    "or move it away and a new history begins"
                ) from error
            raise StorageFailure(f"{self.path} could not be {done}: {_WHY.get(code, error)}") from error


def remove_set_aside(path: Path) -> tuple[str, ...]:
    """Remove the damaged histories that were set aside; returns their names."""
    found = sorted(path.parent.glob(f"{path.name}{ASIDE}*"))
    for aside in found:
        try:
            if aside.is_dir() and not aside.is_symlink():  # it had been in the way of the history
                shutil.rmtree(aside)
            else:
                aside.unlink(missing_ok=True)
        except OSError as error:
            raise make_storage_failure(error, aside, "removed") from error
    return tuple(aside.name for aside in found if not aside.name.endswith(_BESIDE[1:]))


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise make_storage_failure(error, path, "read") from error
    return found.st_dev, found.st_ino
