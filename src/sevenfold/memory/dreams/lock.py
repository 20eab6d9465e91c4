"""One dream at a time: `.consolidate-lock` in the memory folder, which other programs know too.

Its body is the number of the process that dreams, empty when none does. Its time is that of the last
dream, or of the beginning of the current one. It blocks others while that process lives, for an hour at
most. The time before is kept in `<state>/dream-lock.json` and put back after a failure or a crash.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.core.errors import StorageFailure
from sevenfold.core.protocols import Clock
from sevenfold.memory.folder.files import UNFINISHED, MemoryFiles, OpenFolder
from sevenfold.storage.files import (
    BINARY,
    CLOEXEC,
    NOFOLLOW,
    TemporaryFile,
    make_private_dir,
    make_storage_failure,
    read_if_there,
    write_atomic,
)

_LARGEST: Final = (1 << 31) - 1


class LockProcess(msgspec.Struct, frozen=True):
    """A process by its number and the moment it began, where the system tells that."""

    pid: int
    began: str = ""

    def lives(self) -> bool:
        """True if it is this very process that has the number now."""
        same = not self.began or read_process_start(self.pid) in ("", self.began)  # numbers are reused
        return is_alive(self.pid) and same


def read_current_process() -> LockProcess:
    return LockProcess(os.getpid(), read_process_start(os.getpid()))


def is_alive(pid: int) -> bool:
    """True if some process has this number; one that has ended and was not buried yet does not count."""
    if not 0 < pid <= _LARGEST:
        return False
    if sys.platform == "win32":  # there the question itself would end the process
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return _status(pid)[:1] not in (["Z"], ["X"])


def read_process_start(pid: int) -> str:
    """The start of a process in the counting of this system; empty where that is not known."""
    status = _status(pid)
    return f"{_boot()}:{status[19]}" if len(status) > 19 else ""


def _status(pid: int) -> list[str]:
    """The fields behind the name, which may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii", "replace").strip()
    except OSError:
        return ""


LOCK: Final = ".consolidate-lock"
RECORD: Final = "dream-lock.json"
STALE: Final = 3600.0  # Seconds after which a lock blocks no longer, whoever holds it
_LONGEST: Final = 64
_FLAGS: Final[int] = NOFOLLOW | CLOEXEC | BINARY
_NONBLOCK: Final[int] = getattr(os, "O_NONBLOCK", 0)


class DreamLockBusy(msgspec.Struct, frozen=True):
    """Somebody else dreams."""

    pid: int
    since: float

    def __str__(self) -> str:
        return f"process {self.pid} is dreaming in this folder; wait for it, or end it"


class _LockRecord(msgspec.Struct, frozen=True):
    """The holder of the lock, its time, and the time before it; None: there was no file."""

    holder: LockProcess
    stamp: int
    before: int | None


class _LockStat(msgspec.Struct, frozen=True):
    pid: int
    modified: int


class DreamLock:
    """The lock of one memory folder."""

    def __init__(self, folder: Path, state: Path, clock: Clock, *, stale: float = STALE) -> None:
        self.path = folder / LOCK
        self._files = MemoryFiles(folder)
        self._record = state / RECORD
        self._clock, self._stale = clock, stale

    def acquire(self) -> HeldDreamLock | DreamLockBusy:
        """Take it, or say who has it. Among many who try at once exactly one gets it."""
        me = read_current_process()
        with self._alone(make=True) as at:
            before = self._put_back(at)
            if before is not None and (busy := self._busy(before)) is not None:
                return busy
            old = before.modified if before else None
            stamp = self._write(at, me.pid, lambda stamp: _LockRecord(me, stamp, old))
            seen = _read(at)  # a program that knows no other lock may have written at the same time
            if seen != _LockStat(me.pid, stamp):
                return DreamLockBusy(seen.pid if seen else 0, self._clock.now())
        return HeldDreamLock(self, stamp)

    def holder(self) -> DreamLockBusy | None:
        """The process that dreams now; None when there is none."""
        try:
            with self._files.opened() as at:
                seen = _read(at)
        except FileNotFoundError:
            return None
        return self._busy(seen) if seen else None

    def settle(self) -> None:
        """Set the time of the lock back to what it was if the dream that holds it has died."""
        try:
            with self._alone() as at:
                self._put_back(at)
        except FileNotFoundError:
            return

    def last(self) -> float | None:
        """The time of the last dream: one look at the disk; None when there was none."""
        try:
            return self.path.lstat().st_mtime
        except OSError:
            return None

    def touch(self, held: HeldDreamLock) -> bool:
        """Set its time to now, for a dream that takes long; False when it is not ours any more."""
        with self._alone() as at:
            record = self._recorded()
            if not self.has(held, at) or record is None:
                return False
            me, before = record.holder, record.before
            held.stamp = self._write(at, me.pid, lambda stamp: _LockRecord(me, stamp, before))
        return True

    def has(self, held: HeldDreamLock, at: OpenFolder | None = None) -> bool:
        """True if the lock is still the one that was acquired."""
        if at is not None:
            return _read(at) == _LockStat(os.getpid(), held.stamp)
        try:
            with self._files.opened() as opened:
                return self.has(held, opened)
        except FileNotFoundError:
            return False

    def release(self, held: HeldDreamLock, *, done: bool) -> None:
        """Done: the time is now. Not done: the time is what it was, or the file goes."""
        try:
            with self._alone() as at:
                record = self._recorded()
                if not self.has(held, at):
                    return  # it took so long that another one has it
                if done:
                    _write(at, None, int(self._clock.now() * 1e9))
                elif record is not None:
                    _restore(at, record.before)
                self._forget()
        except FileNotFoundError:  # the whole folder is gone
            self._forget()

    # --- inside ---------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self, *, make: bool = False) -> Iterator[OpenFolder]:
        with self._files.opened(make=make) as at, at.alone():
            yield at

    def _busy(self, seen: _LockStat) -> DreamLockBusy | None:
        young = abs(self._clock.now() - seen.modified / 1e9) < self._stale
        if not young or not is_alive(seen.pid):
            return None
        record = self._recorded()
        ours = record is not None and (record.holder.pid, record.stamp) == (seen.pid, seen.modified)
        if ours and record and not record.holder.lives():
            return None  # its number was given to another process
        return DreamLockBusy(seen.pid, seen.modified / 1e9)

    def _put_back(self, at: OpenFolder) -> _LockStat | None:
        """The lock as it should be: what a dead or too slow dream of ours set is taken back."""
        seen, record = _read(at), self._recorded()
        if seen is None or record is None:
            return seen
        if (record.holder.pid, record.stamp) != (seen.pid, seen.modified) or self._busy(seen):
            return seen
        _restore(at, record.before)
        self._forget()
        return _read(at)

    def _recorded(self) -> _LockRecord | None:
        with contextlib.suppress(StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
            data = read_if_there(self._record, 1 << 16, nofollow=True)
            return msgspec.json.decode(data, type=_LockRecord) if data is not None else None
        return None

    def _write(self, at: OpenFolder, pid: int, record: Callable[[int], _LockRecord]) -> int:
        """Put a process into it. What is needed to take that back is on the disk before."""

        def note(stamp: int) -> None:
            make_private_dir(self._record.parent)
            write_atomic(self._record, msgspec.json.encode(record(stamp)), nofollow=True)

        return _write(at, pid, int(self._clock.now() * 1e9), note)

    def _forget(self) -> None:
        with contextlib.suppress(OSError):
            self._record.unlink()


class HeldDreamLock:
    """The lock while it is ours."""

    def __init__(self, lock: DreamLock, stamp: int) -> None:
        self._lock, self.stamp = lock, stamp

    def ours(self) -> bool:
        """True if no other process took it: to be asked before the commit."""
        return self._lock.has(self)

    def touch(self) -> bool:
        return self._lock.touch(self)

    def done(self) -> None:
        """The dream is over and saved: now is the time of the last one."""
        self._lock.release(self, done=True)

    def give_back(self) -> None:
        """It failed or was stopped: as if it had never begun."""
        self._lock.release(self, done=False)


def is_credible_time(at: float, now: float, stale: float = STALE) -> bool:
    """True if a time can be right: one that lies far ahead was set by a wrong clock."""
    return at - now <= stale


def _read(at: OpenFolder) -> _LockStat | None:
    """The holder and its time; None when there is no lock, or it is no file."""
    with at.folder("") as folder:
        try:
            fd = os.open(_name(at, folder), os.O_RDONLY | _FLAGS | _NONBLOCK, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise make_storage_failure(error, at.real / LOCK, "read") from error
    try:
        body = os.read(fd, _LONGEST).strip()
        pid = int(body) if body.isdigit() else 0
        return _LockStat(pid, os.fstat(fd).st_mtime_ns)
    except OSError as error:
        raise make_storage_failure(error, at.real / LOCK, "read") from error
    finally:
        os.close(fd)


def _write(
    at: OpenFolder, pid: int | None, stamp: int, first: Callable[[int], None] = lambda stamp: None
) -> int:
    """The body and the time, both at once; None: nobody. `first` is told the time that the disk keeps."""
    try:
        with (
            at.folder("") as folder,
            TemporaryFile("" if folder is not None else at.real, dir_fd=folder, prefix=UNFINISHED) as new,
        ):
            new.write(b"" if pid is None else str(pid).encode("ascii"))
            new.finish(sync=False)
            os.utime(new.name, ns=(stamp, stamp), dir_fd=folder)
            kept = os.stat(new.name, dir_fd=folder, follow_symlinks=False).st_mtime_ns
            first(kept)
            new.move_to(_name(at, folder), sync=False)
            return kept
    except OSError as error:
        raise make_storage_failure(error, at.real / LOCK) from error


def _restore(at: OpenFolder, before: int | None) -> None:
    if before is not None:
        _write(at, None, before)
        return
    with contextlib.suppress(FileNotFoundError), at.folder("") as folder:
        os.unlink(_name(at, folder), dir_fd=folder)


def _name(at: OpenFolder, folder: int | None) -> str:
    return LOCK if folder is not None else os.fspath(at.real / LOCK)
