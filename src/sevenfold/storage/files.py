"""Reads and writes whole files. After a crash there is the old file or the new one, never half of one.

Each error of the disk becomes a `StorageFailure`: one sentence with the path and the fix. The `OSError`
is its `__cause__`. The last functions say which paths are acceptable as a place to write.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import unicodedata
from pathlib import Path
from typing import Final, Self

from sevenfold.core.errors import SettingsError, StorageFailure

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
TEMPORARY: Final = ".writing-"  # Prefix of a temporary file; a crash may leave one behind

NOFOLLOW: Final[int] = getattr(os, "O_NOFOLLOW", 0)
CLOEXEC: Final[int] = getattr(os, "O_CLOEXEC", 0)
BINARY: Final[int] = getattr(os, "O_BINARY", 0)
_NONBLOCK: Final[int] = getattr(os, "O_NONBLOCK", 0)
_CHUNK: Final = 1 << 20

_WHY: Final[dict[int, str]] = {
    errno.ENOSPC: "the disk is full; free some space and try again",
    errno.EDQUOT: "your disk quota is used up; free some space and try again",
    errno.EFBIG: "the file would be larger than this system allows; raise 'ulimit -f'",
    errno.EROFS: "the file system is read-only; mount it writable, or use another folder",
    errno.EACCES: "permission denied; give this user access to it with chmod or chown",
    errno.EPERM: "the system does not permit it; check its owner and its attributes",
    errno.ELOOP: "it is or contains a symbolic link that is not followed; use the real path",
    errno.EMLINK: "it is or contains a symbolic link that is not followed; use the real path",
    errno.ENOENT: "it does not exist; check the path",
    errno.ENOTDIR: "a part of the path is a file where a folder is needed; move that file away",
    errno.EISDIR: "it is a folder where a file is needed; move that folder away",
    errno.EEXIST: "something is there already; move it away",
    errno.ENAMETOOLONG: "the path is too long for this file system; use a shorter one",
    errno.EMFILE: "too many files are open; close some, or raise 'ulimit -n'",
    errno.ENFILE: "too many files are open on this machine; close some programs",
    errno.EIO: "the disk reported an error; check the disk and try again",
}


def make_storage_failure(
    error: OSError, path: str | os.PathLike[str], done: str = "written"
) -> StorageFailure:
    """The error in words for people: the path, the cause and the fix."""
    why = _WHY.get(error.errno or 0) or f"{(error.strerror or str(error)).lower()}; check the path"
    if error.errno == errno.ENOENT and done == "written":
        why = "its folder does not exist; make the folder first"
    new = StorageFailure(f"{os.fspath(path)} could not be {done}: {why}")
    new.__cause__ = error
    return new


def make_private_dir(path: Path, *, nofollow: bool = False) -> Path:
    """Make a folder and the folders above it, each new one for this user alone."""
    try:
        _target(path, nofollow)
        missing = []
        at = path
        while not at.is_dir():
            missing.append(at)
            if at.parent == at:
                break
            at = at.parent
        for folder in reversed(missing):
            _make_dir(folder)
    except OSError as error:
        raise make_storage_failure(error, path, "made") from error
    return path


def _make_dir(folder: Path) -> None:
    try:
        folder.mkdir(PRIVATE_FOLDER)
    except FileExistsError:
        if not folder.is_dir():  # a file is in the way; a folder that another process made is fine
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        return
    sync_folder(folder.parent)


def write_atomic(
    path: Path, data: bytes, mode: int | None = PRIVATE_FILE, *, nofollow: bool = False
) -> None:
    """Replace a file by these bytes, all or nothing, and on the disk when this returns.

    A symbolic link is written through, so that it stays a link; with `nofollow` it is refused.
    `mode=None` keeps the mode of the file that is there, or takes the one new files get.
    """
    try:
        _replace(_target(path, nofollow), data, mode)
    except OSError as error:
        raise make_storage_failure(error, path) from error


def _target(path: Path, nofollow: bool) -> Path:
    if not path.is_symlink():
        return path
    if nofollow:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return Path(os.path.realpath(path))


def _replace(target: Path, data: bytes, mode: int | None) -> None:
    if target.is_dir():  # checked first, so that the message is the same on all systems
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if mode is None:
        with contextlib.suppress(FileNotFoundError):
            mode = stat.S_IMODE(target.stat().st_mode)
    with TemporaryFile(target.parent, mode=mode) as new:
        new.write(data)
        new.move_to(target)


class TemporaryFile:
    """A file that is written under a name of its own and then moved to its place, all or nothing.

        with TemporaryFile(folder) as new:
            new.write(data)
            new.move_to(folder / "name")          without this, it is removed at the end of the block

    With `dir_fd` all names are relative to that open folder. Raises `OSError`.
    """

    def __init__(
        self,
        folder: str | Path = "",
        *,
        dir_fd: int | None = None,
        prefix: str = TEMPORARY,
        mode: int | None = PRIVATE_FILE,
    ) -> None:
        """`mode=None` gives it the mode that new files get."""
        self.name = os.path.join(folder, f"{prefix}{os.urandom(8).hex()}")  # noqa: PTH118 - many are made
        self._dir_fd, self._mode = dir_fd, mode
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC | BINARY
        self.fd = os.open(self.name, flags, 0o666 if mode is None else PRIVATE_FILE, dir_fd=dir_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        if self.name:
            with contextlib.suppress(OSError):
                os.unlink(self.name, dir_fd=self._dir_fd)

    def write(self, data: bytes | memoryview) -> None:
        write_all(self.fd, data)

    def finish(self, *, sync: bool = True) -> None:
        """Close the file; with `sync`, its bytes are on the disk when this returns."""
        try:
            if self._mode is not None and hasattr(os, "fchmod"):
                os.fchmod(self.fd, self._mode)
            if sync:
                os.fsync(self.fd)
        finally:
            os.close(self.fd)
            self.fd = -1

    def move_to(self, target: str | Path, *, sync: bool = True) -> None:
        """Give the file its name, in place of a file that has it; with `sync` that survives a power cut."""
        if self.fd >= 0:
            self.finish(sync=sync)
        os.replace(self.name, target, src_dir_fd=self._dir_fd, dst_dir_fd=self._dir_fd)
        self.name = ""
        if sync:
            sync_folder(Path(target).parent, self._dir_fd)


def write_new(
    path: Path, data: bytes, mode: int = PRIVATE_FILE, *, dir_fd: int | None = None, sync: bool = True
) -> bool:
    """Write a new file; False if something has that name, even a dangling link.

    With `dir_fd` the file is the one of that name in an open folder.
    """
    name = path if dir_fd is None else path.name
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC | BINARY
    try:
        fd = os.open(name, flags, mode, dir_fd=dir_fd)
    except FileExistsError:
        return False
    except OSError as error:
        raise make_storage_failure(error, path) from error
    try:
        _write_and_close(fd, data, sync=sync)
        if sync:
            sync_folder(path.parent if dir_fd is None else ".", dir_fd)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=dir_fd)
        raise make_storage_failure(error, path) from error
    return True


def append_synced(path: Path, data: bytes) -> None:
    """Add bytes to a file, on the disk when this returns. Raises `OSError`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | NOFOLLOW | CLOEXEC | BINARY
    _write_and_close(os.open(path, flags, PRIVATE_FILE), data)
    sync_folder(path.parent)


def _write_and_close(fd: int, data: bytes, *, sync: bool = True) -> None:
    try:
        write_all(fd, data)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def read_bounded(path: Path, limit: int, *, nofollow: bool = False) -> bytes:
    """The bytes of a file; `StorageFailure` if it is larger than `limit`, a device or a pipe."""
    data = read_head(path, limit + 1, nofollow=nofollow)
    if len(data) > limit:
        raise StorageFailure(
            f"{path} could not be read: it is larger than {limit:,} bytes; make it smaller"
        )
    return data


def read_if_there(path: Path, limit: int, *, nofollow: bool = False) -> bytes | None:
    """The bytes of a file; None if there is no such file."""
    try:
        return read_bounded(path, limit, nofollow=nofollow)
    except StorageFailure as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return None
        raise


def read_head(path: Path, limit: int, *, nofollow: bool = False) -> bytes:
    """At most the first `limit` bytes of a file; never waits on a pipe or a device."""
    flags = os.O_RDONLY | CLOEXEC | BINARY | _NONBLOCK | (NOFOLLOW if nofollow else 0)
    try:
        fd = os.open(_target(path, nofollow), flags)
        try:
            return _read(fd, limit)
        finally:
            os.close(fd)
    except OSError as error:
        raise make_storage_failure(error, path, "read") from error


def _read(fd: int, limit: int) -> bytes:
    kind = os.fstat(fd).st_mode
    if stat.S_ISDIR(kind):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(kind):
        raise OSError(errno.EINVAL, "it is a pipe or a device and not a file")
    parts = []
    left = limit
    while left > 0 and (part := os.read(fd, min(left, _CHUNK))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write every byte: the system may take only a part at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_folder(folder: str | Path, dir_fd: int | None = None) -> None:
    """Make a new name in a folder survive a power cut, where the system can do that."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | CLOEXEC, dir_fd=dir_fd)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(fd)


SHORTEST: Final = 3
_DRIVE_ROOT: Final = r"[A-Za-z]:[\\/]*"


def check_folder_setting(text: str, what: str, user_home: Path) -> Path:
    """The absolute path of a folder that a setting names; `what` is the setting's name.

    The disk is not read. `~/x` is expanded; the home folder itself and what is above it are refused,
    and so are relative paths, roots of drives, network shares and NULs.
    """
    given = unicodedata.normalize("NFC", text)
    if "\0" in given:
        raise _refusal(what, text, "it contains a NUL character")
    if given.startswith(("//", "\\\\")):
        raise _refusal(what, text, "network paths are not allowed")
    expanded = given
    if given == "~" or given.startswith(("~/", "~\\")):
        expanded = os.path.normpath(user_home / given[2:])
    normal = os.path.normpath(expanded)
    if not Path(normal).is_absolute():
        raise _refusal(what, text, "it is not an absolute path")
    if user_home.is_relative_to(normal):
        raise _refusal(what, text, "it is your home folder or a folder above it")
    if len(normal) < SHORTEST or re.fullmatch(_DRIVE_ROOT, normal):
        raise _refusal(what, text, "it is too close to the root of the file system")
    return Path(normal)


def _refusal(what: str, text: str, why: str) -> SettingsError:
    return SettingsError(f"{what} cannot be {text!r}: {why}; give the absolute path of a folder of its own")
