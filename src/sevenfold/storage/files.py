"""Whole files, written so that a crash leaves the old one or the new one, never half of one.

Whatever the disk says no to becomes a `StorageFailure`: one sentence with the path and the fix. The
`OSError` behind it is its `__cause__`.

Which paths are acceptable as a place to write, and whether one lies inside another.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import unicodedata
from pathlib import Path
from typing import Final

from sevenfold.core.errors import Refused, SettingsError, StorageFailure

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
TEMPORARY: Final = ".writing-"
"""How the name of a file begins that is not finished yet; a crash may leave one behind."""

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
    """The sentence for people: what could not be done to which path, why, and the fix."""
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
        if not folder.is_dir():  # a file stands there; had another process made it, all is well
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
        target = _target(path, nofollow)
        _replace(target, data, _mode_of(target) if mode is None else mode)
    except OSError as error:
        raise make_storage_failure(error, path) from error


def _target(path: Path, nofollow: bool) -> Path:
    if not path.is_symlink():
        return path
    if nofollow:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return Path(os.path.realpath(path))


def _replace(target: Path, data: bytes, mode: int | None) -> None:
    if target.is_dir():  # said before anything is written, in the same words everywhere
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    temporary = target.parent / f"{TEMPORARY}{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC | BINARY
    fd = os.open(temporary, flags, 0o666 if mode is None else PRIVATE_FILE)
    try:
        try:
            write_all(fd, data)
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(fd, mode)
            os.fsync(fd)
        finally:
            os.close(fd)
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(target.parent)


def _mode_of(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None


def write_new(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> bool:
    """Write a file that is not there yet; False when something is there, even a dangling link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC | BINARY
    try:
        fd = os.open(path, flags, mode)
    except FileExistsError:
        return False
    except OSError as error:
        raise make_storage_failure(error, path) from error
    try:
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        raise make_storage_failure(error, path) from error
    return True


def read_bounded(path: Path, limit: int, *, nofollow: bool = False) -> bytes:
    """A file's bytes; a file larger than `limit`, or a device or pipe, is refused."""
    data = read_head(path, limit + 1, nofollow=nofollow)
    if len(data) > limit:
        raise StorageFailure(
            f"{path} could not be read: it is larger than {limit:,} bytes; make it smaller"
        )
    return data


def read_if_there(path: Path, limit: int, *, nofollow: bool = False) -> bytes | None:
    """The same, or None when there is no such file."""
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


def write_all(fd: int, data: bytes) -> None:
    """Write every byte: the system may take only a part at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_folder(folder: Path) -> None:
    """Make a new name in a folder last. Where folders cannot be synced there is nothing to do."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | CLOEXEC)
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
    """A folder that somebody configured, as an absolute path; `what` is the setting's name.

    No file is looked at. `~/x` is expanded; the home folder itself and what is above it are refused,
    and so are relative paths, roots of drives, network shares and NULs.
    """
    given = unicodedata.normalize("NFC", text)
    if why := _unacceptable(given):
        raise _refusal(what, text, why)
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


def _unacceptable(given: str) -> str:
    if "\0" in given:
        return "it contains a NUL character"
    if given.startswith(("//", "\\\\")):
        return "network paths are not allowed"
    return ""


def _refusal(what: str, text: str, why: str) -> SettingsError:
    return SettingsError(f"{what} cannot be {text!r}: {why}; give the absolute path of a folder of its own")


def resolve_inside(path: Path, root: Path) -> Path:
    """The real path of `path`, which must lie inside `root`; `Refused` when that is not certain.

    Compared by component after every link is followed; a link that leads nowhere or in a circle is
    refused, because what it will lead to is not known yet.
    """
    if "\0" in str(path) or ".." in path.parts:
        raise Refused(f"{str(path)!r} is refused: it contains '..' or a NUL; give a plain path")
    full = path if path.is_absolute() else root / path
    for link in (full, *full.parents):
        if link.is_symlink() and not link.exists():
            raise Refused(f"{link} is refused: it is a link that leads nowhere; remove it")
    real = Path(os.path.realpath(full))
    if not real.is_relative_to(os.path.realpath(root)):
        raise Refused(f"{path} is refused: it is not inside {root}")
    return real
