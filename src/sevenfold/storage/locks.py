"""File locks, with which processes take turns. This is the only module that calls `flock`.

    with hold_file_lock(file): ...                waits for the lock file beside `file`
    with hold_lock(path, wait=5.0) as held: ...   `held` is False if another process kept it for 5 s
    fd = take_lock(path, wait=0.0)                None if it is busy; `os.close(fd)` releases it

The system releases a lock when its holder closes the file or dies. A lock file may be removed and made
anew between opening and locking it. So each lock is checked: it counts only while its file has its name.
"""

from __future__ import annotations

import errno
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from sevenfold.storage.files import CLOEXEC, NOFOLLOW, PRIVATE_FILE, make_private_dir, make_storage_failure

LOOK: Final = 0.01  # Seconds between two tries for a lock that another process has
_BUSY: Final = frozenset([errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EINTR])

if sys.platform == "win32":
    import msvcrt

    def try_lock(fd: int, *, block: bool = False) -> bool:
        """Lock an open file; False if another process has it. `block` waits as long as it takes."""
        while True:
            os.lseek(fd, 0x7FFFFFFE, os.SEEK_SET)  # far behind the end, so that reading stays possible
            try:
                msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
            except OSError:
                if not block:
                    return False
                time.sleep(LOOK)
            else:
                return True

else:
    import fcntl

    def try_lock(fd: int, *, block: bool = False) -> bool:
        """Lock an open file; False if another process has it. `block` waits as long as it takes."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if block else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise
        return True


def has_name(fd: int, path: str | Path, dir_fd: int | None = None) -> bool:
    """True if an open file still is the one at `path`; False if that was removed, replaced or hidden."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, dir_fd=dir_fd, follow_symlinks=False))
    except OSError:
        return False


def take_lock(
    path: Path,
    *,
    wait: float | None = None,
    cancel: Callable[[], bool] | None = None,
    flags: int = os.O_CREAT,
    dir_fd: int | None = None,
) -> int | None:
    """Lock a file and return its descriptor; None after `wait` seconds or when `cancel` says so.

    Without `wait` it takes as long as it takes. With `dir_fd` the file is the one of that name in an open
    folder. Raises `StorageFailure` for a file that cannot be opened, such as a symbolic link.
    """
    until = math.inf if wait is None else time.monotonic() + wait
    block = wait is None and cancel is None
    while (fd := _try_path(path, flags, dir_fd, block=block)) is None:
        if (cancel is not None and cancel()) or time.monotonic() >= until:
            return None
        time.sleep(LOOK)
    return fd


def _try_path(path: Path, flags: int, dir_fd: int | None, *, block: bool) -> int | None:
    name = path if dir_fd is None else path.name
    try:
        while True:
            fd = os.open(name, os.O_RDWR | flags | NOFOLLOW | CLOEXEC, PRIVATE_FILE, dir_fd=dir_fd)
            mine = named = False
            try:
                mine = try_lock(fd, block=block)
                named = mine and has_name(fd, name, dir_fd)
            finally:
                if not named:
                    os.close(fd)
            if named:
                return fd
            if not mine:
                return None
    except OSError as error:
        raise make_storage_failure(error, path, "locked") from error


@contextmanager
def hold_lock(
    path: Path,
    *,
    wait: float | None = None,
    cancel: Callable[[], bool] | None = None,
    dir_fd: int | None = None,
) -> Iterator[bool]:
    """Hold a lock during the block; False if it was not to be had (see `take_lock`)."""
    if dir_fd is None:
        make_private_dir(path.parent)
    fd = take_lock(path, wait=wait, cancel=cancel, dir_fd=dir_fd)
    try:
        yield fd is not None
    finally:
        if fd is not None:
            os.close(fd)


@asynccontextmanager
async def hold_lock_async(path: Path, *, wait: float) -> AsyncIterator[bool]:
    """Hold a lock during the block, and let other tasks run while waiting for it."""
    import anyio

    make_private_dir(path.parent)
    fd = None
    with anyio.move_on_after(wait):
        while (fd := take_lock(path, wait=0.0)) is None:  # noqa: ASYNC110 - flock has no event
            await anyio.sleep(LOOK)
    try:
        yield fd is not None
    finally:
        if fd is not None:
            os.close(fd)


def hold_file_lock(file: Path) -> AbstractContextManager[bool]:
    """Hold the lock of a file, `<file>.lock` beside it, for reading, changing and writing that file."""
    return hold_lock(file.with_name(f"{file.name}.lock"))
