"""The folder of the search index: files that never change, and one list of those that count.

A change is a new file and then a new list, put in place in one step: a process killed in between leaves
files that nobody lists, and the next writer sweeps them away. Readers take no lock. Writers wait for each
other, but not for ever: who cannot write keeps what it made in memory and answers from there.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.errors import StorageFailure
from sevenfold.memory.search.arrays import Array, Damaged, read_arrays, write_arrays
from sevenfold.storage.files import (
    BINARY,
    CLOEXEC,
    NOFOLLOW,
    PRIVATE_FILE,
    TEMPORARY,
    make_private_dir,
    write_all,
)

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FORMAT: Final = 1
"""Of the whole folder; another one is made anew from the memory files."""
_LIST: Final = "index.json"
WRITING: Final = "lock"
EMBEDDING: Final = "lock-vectors"
"""Locks: for whoever changes the list, and for whoever makes the vectors."""
_STAYS: Final = {_LIST, WRITING, EMBEDDING}
_NAME: Final = re.compile(r"[a-z]+-[0-9a-f]{16}")
_STEP: Final = 0.01
"""Seconds between two looks at a lock that somebody else has."""


class Contents(msgspec.Struct, frozen=True):
    """What counts, oldest first, and what it was made with."""

    made: str
    """Of the code that cuts texts into passages and words: other code, other index."""
    segments: tuple[str, ...] = ()
    embedder: str = ""
    vectors: tuple[str, ...] = ()
    format: int = FORMAT


class Shelf:
    """Files by name, a list of those that count, a lock for those who change it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def raw(self) -> bytes:
        """The list as it stands on the disk, to see whether it is another one; empty without one."""
        try:
            return (self.folder / _LIST).read_bytes()
        except OSError:
            return b""

    @contextmanager
    def alone(self, wait: float, lock: str = WRITING) -> Iterator[bool]:
        """True while nobody else has this lock; False when it was not to be had in this time.

        Raises `OSError` where there can be no lock, on a read-only disk for example.
        """
        try:
            make_private_dir(self.folder)
        except StorageFailure as error:
            raise error.__cause__ or OSError(errno.EIO, str(error)) from error
        flags = os.O_RDWR | os.O_CREAT | NOFOLLOW | CLOEXEC
        fd = os.open(self.folder / lock, flags, PRIVATE_FILE)
        try:
            yield _locked(fd, wait)
        finally:
            os.close(fd)

    def put(self, kind: str, about: bytes, arrays: Mapping[str, Array]) -> str:
        """A new file with these arrays; its name. Not listed yet."""
        name = f"{kind}-{secrets.token_hex(8)}"
        write_arrays(self.folder / name, about, arrays)
        return name

    def get(self, name: str) -> tuple[bytes, dict[str, Array]]:
        """Raises `Damaged`, or `OSError` when it is not there."""
        if not _NAME.fullmatch(name):
            raise Damaged(f"{name} is not a name we give")
        return read_arrays(self.folder / name)

    def enter(self, contents: Contents) -> None:
        """From now on this counts and nothing else."""
        temporary = self.folder / f"{TEMPORARY}{_LIST}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NOFOLLOW | CLOEXEC | BINARY
        fd = os.open(temporary, flags, PRIVATE_FILE)
        try:
            write_all(fd, signed(contents))
        finally:
            os.close(fd)
        temporary.replace(self.folder / _LIST)

    def sweep(self, contents: Contents) -> list[Path]:
        """Remove every file that does not count; those that would not go. Only while alone."""
        keep = {*_STAYS, *contents.segments, *contents.vectors}
        left: list[Path] = []
        for path in list(self.folder.iterdir()):
            if path.name not in keep:
                try:
                    path.unlink()
                except OSError:  # still open, where open files cannot go; or a folder
                    left.append(path)
        return left


def listed(raw: bytes) -> Contents | None:
    """What a list says; None when it is missing, damaged or of another format."""
    check, _, body = raw.partition(b"\n")
    if check != _check(body):
        return None
    try:
        contents = msgspec.json.decode(body, type=Contents)
    except msgspec.DecodeError:
        return None
    return contents if contents.format == FORMAT else None


def signed(contents: Contents) -> bytes:
    """The list as it stands on the disk."""
    body = msgspec.json.encode(contents)
    return _check(body) + b"\n" + body


def _check(body: bytes) -> bytes:
    return b"%08x" % zlib.crc32(body)


def _locked(fd: int, wait: float) -> bool:
    if fcntl is None:
        return True
    end = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        else:
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(_STEP)
