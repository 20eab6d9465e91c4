"""The locks of mailboxes, held for milliseconds, and of work trees, held while git runs."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import anyio

from sevenfold.core.errors import StorageFailure
from sevenfold.storage.files import make_private_dir
from sevenfold.storage.locks import hold_lock_async, take_lock

RETRIES: Final = 10
SHORTEST: Final = 0.005
LONGEST: Final = 0.1  # Seconds between two tries, at the least and at the most


class Busy(StorageFailure, kind="busy"):
    """Somebody else has it at the moment."""


@contextmanager
def hold_mail_lock(file: Path, sleep: Callable[[float], object], retries: int = RETRIES) -> Iterator[None]:
    """Hold the lock of a mail file, `<file>.lock` beside it; `Busy` after this many more tries."""
    make_private_dir(file.parent, nofollow=True)
    lock = file.with_name(f"{file.name}.lock")
    attempt = 0
    while (fd := take_lock(lock, wait=0.0)) is None:
        if attempt == retries:
            raise Busy(f"{file} is being changed by another process; try again in a moment")
        sleep(choose_retry_delay(attempt))
        attempt += 1
    try:
        yield
    finally:
        os.close(fd)


def choose_retry_delay(attempt: int, chance: Callable[[], float] = random.random) -> float:
    """Seconds before the next try: longer each time, and random, so that processes do not collide again."""
    longest = min(LONGEST, SHORTEST * 2.0 ** (attempt + 1))
    return SHORTEST + (longest - SHORTEST) * chance()


class WorktreeLock:
    """Lets one task at a time add or remove work trees of a folder: git fails when several do."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._file, self._seconds = folder.with_name(f"{folder.name}.lock"), seconds
        self._here = anyio.Lock()

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        """Hold the lock during the block; `StorageFailure` if it cannot be had in time."""
        async with self._here, hold_lock_async(self._file, wait=self._seconds) as held:
            if not held:
                raise StorageFailure(
                    f"{self._file} is held by another process for more than {self._seconds:.0f} seconds; "
                    "look what it waits for, or try again later"
                )
            yield
