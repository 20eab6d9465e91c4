"""Opening, reading and replacing one file relative to a folder that is already open.

The tools under `files.py`: plain functions on folder descriptors. `at` is the open folder, or None
where the system cannot open relative to one; then names are whole paths that were checked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.storage.files import (
    BINARY,
    CLOEXEC,
    NOFOLLOW,
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    write_all,
)

UNFINISHED: Final = ".memory-writing-"
"""Only written under the lock: one that is found there was left by a process that died."""
CAN_HOLD: Final = (
    {os.open, os.mkdir, os.stat, os.unlink, os.rename, os.link} <= os.supports_dir_fd
    and os.scandir in os.supports_fd
    and NOFOLLOW != 0
    and hasattr(os, "O_DIRECTORY")
)
"""Whether this system can open a file relative to an open folder."""
FOLDER: Final[int] = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | NOFOLLOW | CLOEXEC
READ: Final[int] = os.O_RDONLY | NOFOLLOW | CLOEXEC | BINARY | getattr(os, "O_NONBLOCK", 0)
_PASS: Final[int] = FOLDER | getattr(os, "O_PATH", getattr(os, "O_SEARCH", 0))
_NEW: Final[int] = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC | BINARY
_NO_LINKS: Final = frozenset([errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK])
_TRIES: Final = 5


class Stamp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a file system says about a file without reading it; another stamp: look again."""

    modified: int
    changed: int
    size: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        return cls(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


class Overtaken(Exception):
    """The file is not what it was when it was read: read it again before writing."""


def walk(real: Path, make: bool) -> int:
    """Open a folder by its real path, one component at a time: none of them may be a link now."""
    at = os.open(real.anchor, _PASS)
    try:
        for left, part in zip(range(len(real.parts) - 2, -1, -1), real.parts[1:], strict=True):
            new = step(part, at, _PASS if left else FOLDER, make)
            os.close(at)
            at = new
    except BaseException:
        os.close(at)
        raise
    return at


def step(name: str, at: int, flags: int, make: bool) -> int:
    try:
        return os.open(name, flags, dir_fd=at)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):  # another process made it just now
        os.mkdir(name, PRIVATE_FOLDER, dir_fd=at)
        sync(at)
    return os.open(name, flags, dir_fd=at)


def walk_by_path(real: Path, make: bool) -> None:
    """The same by paths: what is there must be its own real path."""
    if make:
        missing = [at for at in (real, *real.parents) if not os.path.lexists(at)]
        for folder in reversed(missing):
            folder.mkdir(PRIVATE_FOLDER, exist_ok=True)
    if not stat.S_ISDIR(real.lstat().st_mode):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if os.path.normcase(os.path.realpath(real)) != os.path.normcase(real):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def steady(fd: int, limit: int) -> tuple[bytes, Stamp]:
    """What is in the file, read again when it was being written meanwhile."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.ELOOP, "it is no regular file")
    for _ in range(_TRIES):
        before = Stamp.of(found)
        data = b""
        while len(data) < limit and (more := os.pread(fd, limit - len(data), len(data))):
            data += more
        found = os.fstat(fd)
        if Stamp.of(found) == before:
            break
    return data, Stamp.of(found)


def stamp(name: str, at: int | None) -> Stamp | None:
    try:
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.ELOOP, "it is no regular file")
    return Stamp.of(found)


def replaced(
    name: str,
    at: int | None,
    data: bytes,
    expected: Stamp | None,
    lasting: bool,
    modified: float | None = None,
) -> Stamp:
    temporary = f"{UNFINISHED}{secrets.token_hex(8)}"
    if at is None:
        temporary = os.fspath(Path(name).with_name(temporary))
    if stamp(name, at) != expected:  # before anything is written: most of the time it is known here
        raise Overtaken
    try:
        inode = _written(temporary, at, data, lasting)
        if modified is not None:
            _aged(temporary, at, modified)
        _put_in_place(temporary, name, at, expected)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=at)
        raise
    if lasting:
        sync(at)
    now = stamp(name, at)
    if now is None or now.inode != inode:  # somebody replaced ours at once
        raise Overtaken
    return now


def _written(temporary: str, at: int | None, data: bytes, lasting: bool) -> int:
    fd = os.open(temporary, _NEW, PRIVATE_FILE, dir_fd=at)
    try:
        write_all(fd, data)
        if hasattr(os, "fchmod"):
            os.fchmod(fd, PRIVATE_FILE)
        if lasting:
            os.fsync(fd)
        return os.fstat(fd).st_ino
    finally:
        os.close(fd)


def _aged(temporary: str, at: int | None, modified: float) -> None:
    """Give a file another time; a file system that knows no such time keeps now."""
    with contextlib.suppress(OSError, OverflowError, ValueError):
        os.utime(temporary, (modified, modified), dir_fd=at, follow_symlinks=at is None)


def _put_in_place(temporary: str, name: str, at: int | None, expected: Stamp | None) -> None:
    """A new file never covers one that came meanwhile; an old one is looked at a last time."""
    if expected is None:
        try:
            os.link(temporary, name, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
        except FileExistsError:
            raise Overtaken from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        else:
            os.unlink(temporary, dir_fd=at)
            return
    if stamp(name, at) != expected:
        raise Overtaken
    os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)


def sync(at: int | None) -> None:
    """Make what changed in an open folder last, where folders can be synced."""
    if at is None:
        return
    fd = os.open(".", FOLDER, dir_fd=at)  # what was only passed cannot be synced
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(fd)
