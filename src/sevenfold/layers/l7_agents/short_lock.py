"""A lock that is waited for a short while and no longer: whoever holds a mailbox needs milliseconds."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sevenfold.errors import StorageFailure
from sevenfold.storage.files import CLOEXEC, NOFOLLOW, PRIVATE_FILE, failure, make_private_dir

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

RETRIES: Final = 10
SHORTEST: Final = 0.005
LONGEST: Final = 0.1
"""Seconds between two tries, at the least and at the most."""


class Busy(StorageFailure):
    """Somebody else has it at the moment."""


@contextmanager
def held(file: Path, sleep: Callable[[float], object], retries: int = RETRIES) -> Iterator[None]:
    """Nobody else changes this file while the block runs; `Busy` when that cannot be had soon.

    The lock is a file beside it, and the system lets go of it with the process.
    """
    make_private_dir(file.parent, nofollow=True)
    lock = file.with_name(f"{file.name}.lock")
    fd = opened(lock)
    try:
        for attempt in range(retries + 1):
            if taken(fd, lock):
                break
            if attempt == retries:
                raise Busy(f"{file} is being changed by another process; try again in a moment")
            sleep(pause(attempt))
        yield
    finally:
        os.close(fd)


def pause(attempt: int, chance: Callable[[], float] = random.random) -> float:
    """Seconds before the next try: longer each time, and not the same for all who wait."""
    longest = min(LONGEST, SHORTEST * 2.0 ** (attempt + 1))
    return SHORTEST + (longest - SHORTEST) * chance()


def opened(lock: Path) -> int:
    """The file of a lock, open; closing it lets go of the lock."""
    try:
        return os.open(lock, os.O_RDWR | os.O_CREAT | NOFOLLOW | CLOEXEC, PRIVATE_FILE)
    except OSError as error:
        raise failure(error, lock, "locked") from error


def taken(fd: int, lock: Path) -> bool:
    """Whether the lock was to be had at this moment."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EINTR):
            return False
        raise failure(error, lock, "locked") from error
    return True
