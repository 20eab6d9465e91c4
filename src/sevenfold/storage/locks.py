"""One process at a time: for files that are read, changed and written again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sevenfold.storage.files import CLOEXEC, NOFOLLOW, PRIVATE_FILE, make_private_dir, make_storage_failure

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def hold_file_lock(file: Path) -> Iterator[None]:
    """Waits until nobody else is at it. The lock is a file beside it; the system lets go of it with us."""
    make_private_dir(file.parent)
    lock = file.with_name(f"{file.name}.lock")
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | NOFOLLOW | CLOEXEC, PRIVATE_FILE)
    except OSError as error:
        raise make_storage_failure(error, lock, "locked") from error
    try:
        if fcntl is not None:
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
