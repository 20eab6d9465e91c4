"""One sync at a time for each folder, also among processes; who waits can be told to stop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sevenfold.memory.team.values import GitFailed
from sevenfold.storage.files import CLOEXEC, NOFOLLOW, PRIVATE_FILE, failure, make_private_dir

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PATIENCE: Final = 240.0
"""Seconds; a sync that hangs is ended by its own limits before."""
_LOOK: Final = 0.02


@contextmanager
def in_turn(lock: Path, stopped: Callable[[], bool]) -> Iterator[None]:
    """Waits until no other sync goes on. The system lets go of the lock when we die."""
    make_private_dir(lock.parent)
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | NOFOLLOW | CLOEXEC, PRIVATE_FILE)
    except OSError as error:
        raise failure(error, lock, "locked") from error
    until = time.monotonic() + PATIENCE
    try:
        while not _taken(fd):
            if stopped() or time.monotonic() > until:
                raise GitFailed(
                    "another sync of this team memory goes on; try again when it is done"
                )
            time.sleep(_LOOK)
        yield
    finally:
        os.close(fd)


def _taken(fd: int) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
