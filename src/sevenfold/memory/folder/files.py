"""The files of a memory folder, reached so that no link and no race can lead outside of it.

The folder is opened once for each piece of work, component by component and never through a symbolic
link; everything below is opened relative to what is already open. A folder that is swapped for a link
meanwhile is `Refused`. Where the system cannot do that, real paths are compared instead.

    with MemoryFiles(folder).opened() as at:
        data, stamp = at.read("a.md")
        at.write("a.md", data + b"more", expected=stamp)      ConcurrentWrite if the file changed
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.memory.backend import (
    HEAD,
    ConcurrentWrite,
    FileStamp,
    FolderListing,
    MemoryBackend,
    OpenMemories,
    RevisionLog,
    StateRecords,
    UnusedFile,
)
from sevenfold.memory.folder.names import (
    DEEPEST,
    ENDING,
    TEAM,
    check_file_path,
    explain_bad_file,
    explain_bad_part,
    format_name,
)
from sevenfold.storage.files import (
    BINARY,
    CLOEXEC,
    NOFOLLOW,
    PRIVATE_FOLDER,
    TemporaryFile,
    make_private_dir,
    make_storage_failure,
    read_head,
    read_if_there,
    sync_folder,
    write_atomic,
)
from sevenfold.storage.locks import hold_file_lock, hold_lock

if TYPE_CHECKING:
    from sevenfold.memory.folder.agent_folders import AgentFolder
    from sevenfold.memory.history.database import HistoryFile
    from sevenfold.settings.place import MemoryPlace

UNFINISHED: Final = ".memory-writing-"
"""The beginning of temporary names. They are written under the lock: any other is of a dead process."""
CAN_HOLD: Final = (
    {os.open, os.mkdir, os.stat, os.unlink, os.rename, os.link} <= os.supports_dir_fd
    and os.scandir in os.supports_fd
    and NOFOLLOW != 0
    and hasattr(os, "O_DIRECTORY")
)
"""True if this system can open a file relative to an open folder."""
FOLDER: Final[int] = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | NOFOLLOW | CLOEXEC
READ: Final[int] = os.O_RDONLY | NOFOLLOW | CLOEXEC | BINARY | getattr(os, "O_NONBLOCK", 0)
_PASS: Final[int] = FOLDER | getattr(os, "O_PATH", getattr(os, "O_SEARCH", 0))
_NO_LINKS: Final = frozenset([errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK])
_TRIES: Final = 5


def open_real_folder(real: Path, make: bool) -> int:
    """Open a folder by its real path, one component at a time: none of them may be a link now."""
    at = os.open(real.anchor, _PASS)
    try:
        for left, part in zip(range(len(real.parts) - 2, -1, -1), real.parts[1:], strict=True):
            new = open_component(part, at, _PASS if left else FOLDER, make)
            os.close(at)
            at = new
    except BaseException:
        os.close(at)
        raise
    return at


def open_component(name: str, at: int, flags: int, make: bool) -> int:
    try:
        return os.open(name, flags, dir_fd=at)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):  # another process made it just now
        os.mkdir(name, PRIVATE_FOLDER, dir_fd=at)
        sync_open_folder(at)
    return os.open(name, flags, dir_fd=at)


def check_real_folder(real: Path, make: bool) -> None:
    """The same by paths: what is there must be its own real path."""
    if make:
        missing = [at for at in (real, *real.parents) if not os.path.lexists(at)]
        for folder in reversed(missing):
            folder.mkdir(PRIVATE_FOLDER, exist_ok=True)
    if not stat.S_ISDIR(real.lstat().st_mode):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if os.path.normcase(os.path.realpath(real)) != os.path.normcase(real):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def read_steady(fd: int, limit: int) -> tuple[bytes, FileStamp]:
    """The content of a file, read again if it was written meanwhile."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.ELOOP, "it is no regular file")
    for _ in range(_TRIES):
        before = FileStamp.of(found)
        data = b""
        while len(data) < limit and (more := os.pread(fd, limit - len(data), len(data))):
            data += more
        found = os.fstat(fd)
        if FileStamp.of(found) == before:
            break
    return data, FileStamp.of(found)


def read_stamp(name: str, at: int | None) -> FileStamp | None:
    try:
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.ELOOP, "it is no regular file")
    return FileStamp.of(found)


def replace_file(
    name: str,
    at: int | None,
    data: bytes,
    expected: FileStamp | None,
    lasting: bool,
    modified: float | None = None,
) -> FileStamp:
    """Replace a file if it still has the stamp `expected` (None: there is none); returns the new stamp."""
    if read_stamp(name, at) != expected:  # before anything is written: most of the time it is known here
        raise ConcurrentWrite
    folder = Path(name).parent if at is None else ""
    with TemporaryFile(folder, dir_fd=at, prefix=UNFINISHED) as new:
        new.write(data)
        inode = os.fstat(new.fd).st_ino
        new.finish(sync=lasting)
        if modified is not None:  # a file system that knows no such time keeps now
            with contextlib.suppress(OSError, OverflowError, ValueError):
                os.utime(new.name, (modified, modified), dir_fd=at, follow_symlinks=at is None)
        if expected is not None or not _link_new(new.name, name, at):
            if read_stamp(name, at) != expected:
                raise ConcurrentWrite
            new.move_to(name, sync=False)
    if lasting:
        sync_open_folder(at)
    now = read_stamp(name, at)
    if now is None or now.inode != inode:  # another program replaced ours at once
        raise ConcurrentWrite
    return now


def _link_new(temporary: str, name: str, at: int | None) -> bool:
    """Give a new file its name, never in place of another; False where the system has no links."""
    try:
        os.link(temporary, name, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
    except FileExistsError:
        raise ConcurrentWrite from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True


def sync_open_folder(at: int | None) -> None:
    """Make what changed in an open folder last, where folders can be synced."""
    if at is not None:
        sync_folder(".", at)


LOCK: Final = ".memory"
"""The write lock is `.memory.lock` in the folder: the same that `hold_file_lock(folder / ".memory")`
takes.
"""


class MemoryFiles:
    """Opens one memory folder. Links above it are the user's own and are followed once."""

    def __init__(self, folder: Path, *, hold: bool = CAN_HOLD) -> None:
        self.folder = Path(os.path.normpath(folder.absolute()))
        self.real = Path(os.path.realpath(self.folder.parent)) / self.folder.name
        self._hold = hold

    @contextmanager
    def opened(self, *, make: bool = False) -> Iterator[OpenFolder]:
        """The folder, open; `FileNotFoundError` when it is not there and not to be made."""
        fd = None
        try:
            if self._hold:
                fd = open_real_folder(self.real, make)
            else:
                check_real_folder(self.real, make)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not make:
                raise
            _raise(error, self.folder, "opened")
        try:
            yield OpenFolder(fd, self.real)
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
                f"{format_name(text)} is refused: it holds '..' or a NUL, or is no absolute path; "
                "give the plain path of the file"
            )
        for root in (self.folder, self.real):
            if path.is_relative_to(root) and path != root:
                return path.relative_to(root).as_posix()
        raise Refused(f"{format_name(text)} is refused: it is not inside {self.folder}")


class OpenFolder:
    """A memory folder that is open. Every file is named by its path below it."""

    def __init__(self, fd: int | None, real: Path) -> None:
        self.fd, self.real = fd, real

    def read(self, file: str, limit: int = HEAD) -> tuple[bytes, FileStamp]:
        """The first bytes of a regular file, and its stamp, which tells whether there is more."""
        try:
            with self._above(file) as (at, name):
                fd = os.open(name, READ, dir_fd=at)
            try:
                return read_steady(fd, limit)
            finally:
                os.close(fd)
        except OSError as error:
            _raise(error, self.real / file, "read")

    def stamp(self, file: str) -> FileStamp | None:
        """The stamp of a file; None when there is none; `Refused` when it is a link or a pipe."""
        try:
            with self._above(file) as (at, name):
                return read_stamp(name, at)
        except FileNotFoundError:
            return None
        except OSError as error:
            _raise(error, self.real / file, "read")

    def write(
        self,
        file: str,
        data: bytes,
        expected: FileStamp | None,
        *,
        lasting: bool = True,
        modified: float | None = None,
    ) -> FileStamp:
        """Replace a file, all or nothing, if it still is what was `expected` (None: not there).

        `modified` is the time it gets, in seconds; None: now.
        """
        check_file_path(file, index=True)
        try:
            with self._above(file, make=True) as (at, name):
                return replace_file(name, at, data, expected, lasting, modified)
        except OSError as error:
            _raise(error, self.real / file, "written")

    def remove(self, file: str, expected: FileStamp) -> None:
        """Remove a file if it still is what was `expected`; folders that become empty go with it."""
        try:
            with self._above(file) as (at, name):
                if read_stamp(name, at) != expected:
                    raise ConcurrentWrite
                os.unlink(name, dir_fd=at)
                sync_open_folder(at)
            self._prune(file)
        except OSError as error:
            _raise(error, self.real / file, "removed")

    def sweep(self, names: Iterable[str]) -> None:
        """Remove what dead processes left unfinished; only under the lock."""
        for each in names:
            with contextlib.suppress(OSError, Refused), self._above(each) as (at, name):
                os.unlink(name, dir_fd=at)

    def list(self) -> FolderListing:
        """Everything below the folder."""
        found = _ListedFiles()
        waiting = [("", 0)]
        while waiting:
            folder, depth = waiting.pop()
            for inner in _scan(self, folder, found):
                found.folders.append(inner)
                if depth < DEEPEST:
                    waiting.append((inner, depth + 1))
                else:
                    found.odd.append(UnusedFile(inner, "it is too deep; move it up"))
        return FolderListing(found.files, tuple(found.odd), tuple(found.unfinished), tuple(found.folders))

    def make_folder(self, folder: str) -> None:
        with self.folder(folder, make=True):
            pass

    def versions(self, folders: Iterable[str]) -> dict[str, int]:
        """The time in nanoseconds at which something last came into each folder, or went."""
        times = dict[str, int]()
        for name in folders:
            try:
                with self.folder(name) as place:
                    found = (self.real / name).stat() if place is None else os.fstat(place)
            except (OSError, Refused):
                times[name] = 0
            else:
                times[name] = found.st_mtime_ns
        return times

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the write lock of the folder during the block; waits as long as it takes."""
        path = self.real / f"{LOCK}.lock"
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(hold_lock(path, dir_fd=self.fd))
            except StorageFailure as error:
                if isinstance(error.__cause__, OSError):
                    _raise(error.__cause__, path, "locked")
                raise
            yield

    @contextmanager
    def folder(self, name: str, *, make: bool = False) -> Iterator[int | None]:
        """A folder below this one (empty: this one itself), open; None where it was only checked."""
        parts = name.split("/") if name else []
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise Refused(f"{format_name(name)} is refused: it is no plain path in a memory folder")
        if self.fd is None:
            check_real_folder(self.real.joinpath(*parts), make)
            yield None
            return
        at = os.dup(self.fd)
        try:
            for part in parts:
                new = open_component(part, at, FOLDER, make)
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
            raise Refused(f"{format_name(file)} is refused: it is no plain path of a memory file")
        with self.folder(folder, make=make) as at:
            yield at, os.fspath(self.real / file) if at is None else name

    def _prune(self, file: str) -> None:
        """Remove folders that became empty."""
        while "/" in file:
            file = file.rpartition("/")[0]
            if f"{file}/" == TEAM:
                return  # it is there because there is a team
            with contextlib.suppress(OSError), self._above(file) as (at, name):
                os.rmdir(name, dir_fd=at)
                continue
            return


def _raise(error: OSError, path: Path, done: str) -> NoReturn:
    """Raises `Refused` for a link or a pipe in the way, else `StorageFailure`."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK, errno.ENXIO, errno.EISDIR):
        raise Refused(
            f"{path} is refused: it is, or is reached through, something that is not a plain folder "
            "or file (a symbolic link, a pipe, a device); remove that"
        ) from error
    raise make_storage_failure(error, path, done) from error


MOST: Final = 250_000  # The most files that are listed; the rest is reported as unused


class _ListedFiles:
    def __init__(self) -> None:
        self.files: dict[str, FileStamp] = {}
        self.odd: list[UnusedFile] = []
        self.unfinished: list[str] = []
        self.folders: list[str] = []
        self.more = False


def _scan(at: OpenFolder, folder: str, found: _ListedFiles) -> list[str]:
    """Note the files of one folder; returns the folders in it."""
    inside = f"{folder}/" if folder else ""
    try:
        with (
            at.folder(folder) as place,
            os.scandir(at.real / folder if place is None else place) as entries,
        ):
            return [inner for entry in entries if (inner := _note(entry, inside, found))]
    except Refused:  # it was swapped for a link just now
        found.odd.append(UnusedFile(folder or ".", "it is no folder any more"))
    except OSError as error:
        found.odd.append(UnusedFile(folder or ".", f"it cannot be listed: {error.strerror}"))
    return []


def _note(entry: os.DirEntry[str], inside: str, found: _ListedFiles) -> str:
    """Note one entry; returns its path when it is a folder to look into."""
    name = entry.name
    file = inside + name
    if name[0] == ".":
        if name.startswith(UNFINISHED):
            found.unfinished.append(file)
        return ""
    try:
        seen = entry.stat(follow_symlinks=False)
    except OSError:  # it went away just now
        return ""
    if not stat.S_ISREG(seen.st_mode):
        return _note_other(file, seen.st_mode, found)
    if not name.endswith(ENDING):
        return ""  # pictures and the like are the user's own
    if why := explain_bad_file(file, True):
        found.odd.append(UnusedFile(file, f"{why}; rename it"))
    elif len(found.files) < MOST:
        found.files[file] = FileStamp.of(seen)
    elif not found.more:
        found.more = True
        found.odd.append(UnusedFile(file, f"there are more than {MOST:,} files; the rest is left out"))
    return ""


def _note_other(file: str, mode: int, found: _ListedFiles) -> str:
    name = file.rpartition("/")[2]
    if stat.S_ISDIR(mode):
        if not (why := explain_bad_part(name)):
            return file
        found.odd.append(UnusedFile(file, f"{why}; rename the folder"))
    elif stat.S_ISLNK(mode):
        found.odd.append(
            UnusedFile(file, "it is a symbolic link, which is not followed; put the file here")
        )
    elif name.endswith(ENDING):
        found.odd.append(UnusedFile(file, "it is a pipe, a socket or a device and no file; remove it"))
    return ""


HISTORY: Final = "history.sqlite"


class FolderBackend(MemoryFiles):
    """Memories in `folder`, revisions and records in `state`. Nothing is made before the first write.

    The ledger is a file: it can be made again, and it is read at every recall. Other records are in the
    history file.
    """

    def __init__(self, folder: Path, state: Path) -> None:
        super().__init__(folder)
        self._given, self.local = folder, state
        self._history: HistoryFile | None = None

    @classmethod
    def at(cls, place: MemoryPlace | AgentFolder) -> FolderBackend:
        return cls(place.folder, place.state)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FolderBackend):
            return NotImplemented
        return (self._given, self.local) == (other._given, other.local)

    def __hash__(self) -> int:
        return hash((self._given, self.local))

    def path_of(self, file: str = "") -> Path:
        return self._given / file

    def exists(self, folder: str = "") -> bool:
        path = self._given / folder
        return path.is_dir() and not (folder and path.is_symlink())

    def revisions(self, tell: Callable[[str], None]) -> RevisionLog:
        from sevenfold.memory.history.history import MemoryHistory

        return MemoryHistory(self.open_history(), tell)

    def state(self, name: str) -> StateRecords:
        if not name:
            return StateFolder(self.local)
        return RecordRows(self.local, name, self.open_history)

    def close(self) -> None:
        if self._history is not None:
            self._history.close()

    def open_history(self) -> HistoryFile:
        """The file with the revisions and records; one that an earlier version left is carried over."""
        from sevenfold.memory.history.carry_over import EarlierFolders
        from sevenfold.memory.history.database import HistoryFile

        if self._history is None:
            self._history = HistoryFile(self.local / HISTORY, EarlierFolders(self.local))
        return self._history


class StateFolder:
    """Records that are files in one folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def path_of(self, name: str) -> Path:
        return self._path / name

    def exists(self) -> bool:
        return os.path.lexists(self._path)

    def sizes(self) -> dict[str, int]:
        found = dict[str, int]()
        try:
            for path in self._path.iterdir():
                with contextlib.suppress(FileNotFoundError):  # another process removed it just now
                    found[path.name] = path.lstat().st_size
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise make_storage_failure(error, self._path, "listed") from error
        return found

    def read(self, name: str, limit: int) -> bytes | None:
        return read_if_there(self._path / name, limit, nofollow=True)

    def read_head(self, name: str, limit: int) -> bytes | None:
        try:
            return read_head(self._path / name, limit, nofollow=True)
        except StorageFailure as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                return None
            raise

    def write(self, name: str, data: bytes, *, lasting: bool = True) -> None:
        path = self._path / name
        if lasting:
            make_private_dir(self._path, nofollow=True)
            return write_atomic(path, data, nofollow=True)
        try:
            make_private_dir(self._path)
            with TemporaryFile(self._path) as new:
                new.write(data)
                new.move_to(path, sync=False)
        except OSError as error:
            raise make_storage_failure(error, path) from error

    def rename(self, name: str, new: str) -> None:
        try:
            (self._path / name).rename(self._path / new)
            sync_folder(self._path)
        except OSError as error:
            raise make_storage_failure(error, self._path / name, "renamed") from error

    def remove(self, name: str) -> None:
        try:
            (self._path / name).unlink()
            sync_folder(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise make_storage_failure(error, self._path / name, "removed") from error

    def clear(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)

    def lock(self) -> AbstractContextManager[object]:
        return hold_file_lock(self._path / self._path.name)


REPOSITORY: Final = "history"
ROOMS: Final = ("quarantine", "dream-journal")
"""The folders in which earlier versions kept revisions and records."""
_MARK: Final = ".kept"


def has_earlier_folders(state: Path) -> bool:
    """True if an earlier version left something that is not carried over yet."""
    return any((state / name).is_dir() for name in (REPOSITORY, *ROOMS))


def mark_room(state: Path, room: str) -> None:
    """Note that the room may have records."""
    mark = state / f"{room}{_MARK}"
    try:
        make_private_dir(state)
        mark.touch(0o600)
    except OSError as error:
        raise make_storage_failure(error, mark) from error


class RecordRows:
    """Records that are rows of the history file, in one room: the quarantine, or the journal of a dream.

    A room that has records has an empty file beside the history, so that a program that starts sees
    without opening the history that nothing waits.
    """

    def __init__(self, state: Path, room: str, open_history: Callable[[], HistoryFile]) -> None:
        self._state, self._room, self._open = state, room, open_history
        self._mark = state / f"{room}{_MARK}"

    def path_of(self, name: str) -> Path:
        return self._state / self._room / name

    def exists(self) -> bool:
        return bool(self.sizes())

    def sizes(self) -> dict[str, int]:
        if not self._may_exist():
            return {}
        with self._open().read() as db:
            rows = db and db.execute("select name, length(data) from record where room = ?", (self._room,))
            return dict(rows or ())

    def read(self, name: str, limit: int) -> bytes | None:
        data = self.read_head(name, limit + 1)
        if data is not None and len(data) > limit:
            raise StorageFailure(f"{self.path_of(name)} is larger than {limit:,} bytes; it is not read")
        return data

    def read_head(self, name: str, limit: int) -> bytes | None:
        if not self._may_exist():
            return None
        with self._open().read() as db:
            query = "select substr(data, 1, ?) from record where room = ? and name = ?"
            row = db and db.execute(query, (limit, self._room, name)).fetchone()
            return bytes(row[0]) if row else None

    def write(self, name: str, data: bytes, *, lasting: bool = True) -> None:
        mark_room(self._state, self._room)
        with self._open().write(lasting=lasting) as db:
            db.execute("replace into record values (?, ?, ?)", (self._room, name, data))

    def rename(self, name: str, new: str) -> None:
        with self._open().write(lasting=True) as db:
            query = "update or replace record set name = ? where room = ? and name = ?"
            if db.execute(query, (new, self._room, name)).rowcount == 0:
                raise StorageFailure(f"{self.path_of(name)} could not be renamed: it does not exist")

    def remove(self, name: str) -> None:
        self._delete("delete from record where room = ? and name = ?", self._room, name)

    def clear(self) -> None:
        with contextlib.suppress(StorageFailure):
            self._delete("delete from record where room = ?", self._room)
            self._mark.unlink(missing_ok=True)

    def lock(self) -> AbstractContextManager[object]:
        return hold_file_lock(self._state / self._room)

    def _may_exist(self) -> bool:
        return self._mark.exists() or has_earlier_folders(self._state)

    def _delete(self, query: str, *given: str) -> None:
        if not self._may_exist():
            return
        history = self._open()
        with history.write(lasting=True) as db:
            db.execute(query, given)
        history.flush()  # the text may have been a secret


_backend: type[MemoryBackend] = FolderBackend
_memories: type[OpenMemories] = OpenFolder
_records: type[StateRecords] = StateFolder
_rows: type[StateRecords] = RecordRows
