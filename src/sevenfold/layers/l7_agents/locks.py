"""A lock that is waited for a short while and no longer: whoever holds a mailbox needs milliseconds.

One at a time: git loses its way when several work trees are added or removed together.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import anyio

from sevenfold.core.errors import StorageFailure
from sevenfold.storage.files import CLOEXEC, NOFOLLOW, PRIVATE_FILE, make_private_dir, make_storage_failure

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

RETRIES: Final = 10
SHORTEST: Final = 0.005
LONGEST: Final = 0.1
"""Seconds between two tries, at the least and at the most."""


class Busy(StorageFailure, kind="busy"):
    """Somebody else has it at the moment."""


@contextmanager
def hold_lock(file: Path, sleep: Callable[[float], object], retries: int = RETRIES) -> Iterator[None]:
    """Nobody else changes this file while the block runs; `Busy` when that cannot be had soon.

    The lock is a file beside it, and the system lets go of it with the process.
    """
    make_private_dir(file.parent, nofollow=True)
    lock = file.with_name(f"{file.name}.lock")
    fd = open_lock_file(lock)
    try:
        for attempt in range(retries + 1):
            if try_lock(fd, lock):
                break
            if attempt == retries:
                raise Busy(f"{file} is being changed by another process; try again in a moment")
            sleep(choose_retry_delay(attempt))
        yield
    finally:
        os.close(fd)


def choose_retry_delay(attempt: int, chance: Callable[[], float] = random.random) -> float:
    """Seconds before the next try: longer each time, and not the same for all who wait."""
    longest = min(LONGEST, SHORTEST * 2.0 ** (attempt + 1))
    return SHORTEST + (longest - SHORTEST) * chance()


def open_lock_file(lock: Path) -> int:
    """The file of a lock, open; closing it lets go of the lock."""
    try:
        return os.open(lock, os.O_RDWR | os.O_CREAT | NOFOLLOW | CLOEXEC, PRIVATE_FILE)
    except OSError as error:
        raise make_storage_failure(error, lock, "locked") from error


def try_lock(fd: int, lock: Path) -> bool:
    """Whether the lock was to be had at this moment."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EINTR):
            return False
        raise make_storage_failure(error, lock, "locked") from error
    return True


LOOK: Final = 0.02
"""Seconds between two tries for what another process has."""


class WorktreeLock:
    """For the work trees of one folder."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._file, self._seconds = folder.with_name(f"{folder.name}.lock"), seconds
        self._here = anyio.Lock()

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        """Nobody else adds or removes one; `StorageFailure` when that cannot be had in time."""
        async with self._here:
            make_private_dir(self._file.parent)
            fd = open_lock_file(self._file)
            try:
                await self._wait(fd)
                yield
            finally:
                os.close(fd)

    async def _wait(self, fd: int) -> None:
        try:
            with anyio.fail_after(self._seconds):
                while not try_lock(fd, self._file):  # noqa: ASYNC110 - a lock of the system has no event
                    await anyio.sleep(LOOK)
        except TimeoutError:
            raise StorageFailure(
                f"{self._file} is held by another process for more than {self._seconds:.0f} seconds; "
                "look what it waits for, or try again later"
            ) from None
