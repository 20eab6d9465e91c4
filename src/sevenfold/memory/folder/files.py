"""The files of a memory folder, reached so that no link and no race can lead outside of it.

The folder is opened once for each piece of work, component by component and never through a symbolic
link; everything below is opened relative to what is already open. Whoever swaps a folder for a link
meanwhile gets `Refused`. Where the system cannot do that, real paths are compared instead.

    with MemoryFiles(folder).opened() as at:
        data, stamp = at.read("a.md")
        at.write("a.md", data + b"more", expected=stamp)      Overtaken when someone was faster
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

from sevenfold.errors import Refused
from sevenfold.memory.folder import reaching
from sevenfold.memory.folder.naming import TEAM, checked_file, shown
from sevenfold.memory.folder.reaching import CAN_HOLD, Overtaken, Stamp
from sevenfold.storage.files import CLOEXEC, NOFOLLOW, PRIVATE_FILE, failure
from sevenfold.storage.locking import alone

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK: Final = ".memory"
"""The write lock is `.memory.lock` in the folder: the same that `alone(folder / ".memory")` takes."""
HEAD: Final = 250_000
"""Bytes of the largest memory that is written, and so many are read of one that is larger."""


class MemoryFiles:
    """The way into one memory folder. The links above it are the user's own and are followed once."""

    def __init__(self, folder: Path, *, hold: bool = CAN_HOLD) -> None:
        self.folder = Path(os.path.normpath(folder.absolute()))
        self.real = Path(os.path.realpath(self.folder.parent)) / self.folder.name
        self._hold = hold

    @contextmanager
    def opened(self, *, make: bool = False) -> Iterator[Opened]:
        """The folder, open; `FileNotFoundError` when it is not there and not to be made."""
        fd = None
        try:
            if self._hold:
                fd = reaching.walk(self.real, make)
            else:
                reaching.walk_by_path(self.real, make)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not make:
                raise
            _raise(error, self.folder, "opened")
        try:
            yield Opened(fd, self.real)
        finally:
            if fd is not None:
                os.close(fd)

    def file_of(self, path: Path) -> str:
        """The file that an absolute path means, relative to the folder; `Refused` when it is outside.

        Only names are compared here: what is opened later is checked again on the way.
        """
        text = os.fspath(path)
        if "\0" in text or ".." in path.parts or not path.is_absolute():
            raise Refused(
                f"{shown(text)} is refused: it holds '..' or a NUL, or is no absolute path; "
                "give the plain path of the file"
            )
        for root in (self.folder, self.real):
            if path.is_relative_to(root) and path != root:
                return path.relative_to(root).as_posix()
        raise Refused(f"{shown(text)} is refused: it is not inside {self.folder}")


class Opened:
    """A memory folder that is open. Every file is named by its path below it."""

    def __init__(self, fd: int | None, real: Path) -> None:
        self.fd, self.real = fd, real

    def read(self, file: str, limit: int = HEAD) -> tuple[bytes, Stamp]:
        """The first bytes of a regular file, and its stamp, which tells whether there is more."""
        try:
            with self._above(file) as (at, name):
                fd = os.open(name, reaching.READ, dir_fd=at)
            try:
                return reaching.steady(fd, limit)
            finally:
                os.close(fd)
        except OSError as error:
            _raise(error, self.real / file, "read")

    def stamp(self, file: str) -> Stamp | None:
        """The stamp of a file; None when there is none; `Refused` when it is a link or a pipe."""
        try:
            with self._above(file) as (at, name):
                return reaching.stamp(name, at)
        except FileNotFoundError:
            return None
        except OSError as error:
            _raise(error, self.real / file, "read")

    def write(
        self,
        file: str,
        data: bytes,
        expected: Stamp | None,
        *,
        lasting: bool = True,
        modified: float | None = None,
    ) -> Stamp:
        """Replace a file, all or nothing, if it still is what was `expected` (None: not there).

        `modified` is the time it gets, in seconds; None: now.
        """
        checked_file(file, index=True)
        try:
            with self._above(file, make=True) as (at, name):
                return reaching.replaced(name, at, data, expected, lasting, modified)
        except OSError as error:
            _raise(error, self.real / file, "written")

    def remove(self, file: str, expected: Stamp) -> None:
        """Remove a file if it still is what was `expected`; folders that become empty go with it."""
        try:
            with self._above(file) as (at, name):
                if reaching.stamp(name, at) != expected:
                    raise Overtaken
                os.unlink(name, dir_fd=at)
                reaching.sync(at)
            self._prune(file)
        except OSError as error:
            _raise(error, self.real / file, "removed")

    def sweep(self, names: Iterable[str]) -> None:
        """Remove what dead processes left unfinished; only under the lock."""
        for each in names:
            with contextlib.suppress(OSError, Refused), self._above(each) as (at, name):
                os.unlink(name, dir_fd=at)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Waits until nobody else writes here. The system lets go of the lock when we die."""
        if self.fd is None or fcntl is None:
            with alone(self.real / LOCK):
                yield
            return
        fd = self._locked()
        try:
            yield
        finally:
            os.close(fd)

    def _locked(self) -> int:
        """The lock, taken on the file that has its name now: it may have been removed meanwhile."""
        name = f"{LOCK}.lock"
        flags = os.O_RDWR | os.O_CREAT | NOFOLLOW | CLOEXEC
        while True:
            try:
                fd = os.open(name, flags, PRIVATE_FILE, dir_fd=self.fd)
            except OSError as error:
                _raise(error, self.real / name, "locked")
            fcntl.flock(fd, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                named = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
                if named.st_ino == os.fstat(fd).st_ino:
                    return fd
            os.close(fd)

    @contextmanager
    def folder(self, name: str, *, make: bool = False) -> Iterator[int | None]:
        """A folder below this one (empty: this one itself), open; None where it was only checked."""
        parts = name.split("/") if name else []
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise Refused(f"{shown(name)} is refused: it is no plain path in a memory folder")
        if self.fd is None:
            reaching.walk_by_path(self.real.joinpath(*parts), make)
            yield None
            return
        at = os.dup(self.fd)
        try:
            for part in parts:
                new = reaching.step(part, at, reaching.FOLDER, make)
                os.close(at)
                at = new
            yield at
        finally:
            os.close(at)

    @contextmanager
    def _above(self, file: str, *, make: bool = False) -> Iterator[tuple[int | None, str]]:
        """The open folder that holds a file, and its name there; a whole path where none is open."""
        folder, _, name = file.rpartition("/")
        if name in ("", ".", "..") or "\0" in name:
            raise Refused(f"{shown(file)} is refused: it is no plain path of a memory file")
        with self.folder(folder, make=make) as at:
            yield at, os.fspath(self.real / file) if at is None else name

    def _prune(self, file: str) -> None:
        """A folder of ours without files says nothing; one with anything in it stays."""
        while "/" in file:
            file = file.rpartition("/")[0]
            if f"{file}/" == TEAM:
                return  # it is there because there is a team
            with contextlib.suppress(OSError), self._above(file) as (at, name):
                os.rmdir(name, dir_fd=at)
                continue
            return


def _raise(error: OSError, path: Path, done: str) -> NoReturn:
    """A link or a pipe in the way is an attack or an accident, but no trouble with the disk."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK, errno.ENXIO, errno.EISDIR):
        raise Refused(
            f"{path} is refused: it is, or is reached through, something that is not a plain folder "
            "or file (a symbolic link, a pipe, a device); remove that"
        ) from error
    raise failure(error, path, done) from error
