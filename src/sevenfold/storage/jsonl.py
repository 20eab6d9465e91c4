"""JSON lines on disk: a log that one process appends to, and readers for the files of others.

Opening a log locks it and repairs a last line that a crash left incomplete. Lines survive the death of the
process once `append` has returned, and a power cut once `sync` has.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.core.errors import SessionBusy, SessionNotFound
from sevenfold.core.transcript import Problem
from sevenfold.storage.files import (
    BINARY,
    CLOEXEC,
    NOFOLLOW,
    PRIVATE_FILE,
    append_synced,
    make_private_dir,
    make_storage_failure,
    read_head,
    sync_folder,
    write_all,
)
from sevenfold.storage.locks import has_name, try_lock

_CHUNK: Final = 1 << 16
_APPENDING: Final = os.O_CREAT | os.O_APPEND | NOFOLLOW | CLOEXEC | BINARY


class JsonlLog:
    """An open log. Only one process has it open at a time; reading needs no lock (`read_log`)."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        self.repaired: str | None = None  # The repair that was made on opening, in words for people
        if create:
            make_private_dir(path.parent)
        self._fd = self._open(create)
        try:
            self._hold()
        except BaseException:  # not `close`: the holder's file is not ours to remove
            os.close(self._fd)
            raise
        try:
            self._length = self._mend()
        except BaseException:
            self.close()
            raise

    def _open(self, create: bool) -> int:
        flags = _APPENDING if create else _APPENDING & ~os.O_CREAT
        try:
            fd = os.open(self.path, os.O_RDWR | flags, PRIVATE_FILE)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not create:
                raise self._gone() from error
            raise make_storage_failure(error, self.path, "opened") from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise make_storage_failure(OSError(errno.EINVAL, "it is not a file"), self.path, "opened")
        return fd

    @property
    def _holder(self) -> Path:
        """The file that names the process with the lock, for people; the lock itself is on the log."""
        return self.path.with_name(self.path.name + ".lock")

    def _hold(self) -> None:
        if not _lock(self._fd):
            who = _pid_in(self._holder)
            raise SessionBusy(
                f"{self.path} is being written by {f'process {who}' if who else 'another process'}; "
                "close that one first, or start a new session"
            )
        # A process that removes a log holds its lock, so from here on it stays.
        if not has_name(self._fd, self.path):
            raise self._gone()
        with contextlib.suppress(OSError):  # not worth failing for
            fd = os.open(self._holder, os.O_WRONLY | os.O_TRUNC | _APPENDING, PRIVATE_FILE)
            with os.fdopen(fd, "wb") as file:
                file.write(b"%d\n" % os.getpid())

    def _gone(self) -> SessionNotFound:
        return SessionNotFound(
            f"{self.path} was removed while it was being opened; 'sevenfold sessions' lists those there are"
        )

    def _mend(self) -> int:
        """Make the log end with a whole line; returns its length."""
        try:
            size = os.fstat(self._fd).st_size
            if size == 0:
                sync_folder(self.path.parent)
                return 0
            filled = _without_nuls(self._fd, size)
            start = _last_line_start(self._fd, filled)
            length = filled if start == filled else self._mend_line(start, filled)
            if size > filled:
                os.ftruncate(self._fd, length)
                note = f"{size - filled:,} empty bytes at the end removed"
                self.repaired = f"{self.repaired}; {note}" if self.repaired else note
            if self.repaired:
                os.fsync(self._fd)
        except OSError as error:
            raise make_storage_failure(error, self.path, "repaired") from error
        return length

    def _mend_line(self, start: int, end: int) -> int:
        fragment = _read_at(self._fd, end - start, start)
        if _is_object(fragment):
            os.ftruncate(self._fd, end)
            write_all(self._fd, b"\n")
            self.repaired = "the end of the last line was missing and was added"
            return end + 1
        torn = self.path.with_name(self.path.name + ".torn")
        append_synced(torn, fragment + b"\n")
        os.ftruncate(self._fd, start)
        self.repaired = f"a last line of {len(fragment):,} bytes was torn and was moved to {torn.name}"
        return start

    def append(self, lines: bytes) -> None:
        """Add whole lines in one write: all of them, or none and a `StorageFailure`."""
        if not lines.endswith(b"\n"):
            raise ValueError("a log takes whole lines, each with its newline")
        fd = self._opened()
        try:
            self._trim()  # in case an earlier failure could not be cleaned up
            write_all(fd, lines)
        except BaseException as error:  # also an interrupt: the caller must not find half of them
            with contextlib.suppress(OSError):
                self._trim()
            if isinstance(error, OSError):
                raise make_storage_failure(error, self.path) from error
            raise
        self._length += len(lines)

    def _trim(self) -> None:
        if os.fstat(self._fd).st_size > self._length:
            os.ftruncate(self._fd, self._length)

    def sync(self) -> None:
        """Return when everything appended so far would survive a power cut."""
        try:
            os.fsync(self._opened())
        except OSError as error:
            raise make_storage_failure(error, self.path) from error

    def read(self) -> bytes:
        fd = self._opened()
        try:
            return _read_at(fd, self._length, 0)
        except OSError as error:
            raise make_storage_failure(error, self.path, "read") from error

    def close(self) -> None:
        """Close the log and release its lock. Nothing is buffered, so nothing can fail to be written."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            self._holder.unlink()
        os.close(self._fd)
        self._fd = -1

    def _opened(self) -> int:
        if self._fd < 0:
            raise ValueError(f"{self.path} is closed")
        return self._fd

    def __enter__(self) -> JsonlLog:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


@contextlib.contextmanager
def hold_closed_log(path: Path) -> Iterator[None]:
    """Keep other processes from opening this log during the block; `SessionBusy` if one has it open.

    Also `SessionBusy` where the file system has no locks.
    """
    try:
        fd = os.open(path, os.O_RDWR | NOFOLLOW | CLOEXEC | BINARY)
    except OSError as error:
        raise make_storage_failure(error, path, "opened") from error
    try:
        if not _lock(fd, certain=True):
            raise SessionBusy(f"{path} is open in another session; close that one first")
        if not has_name(fd, path):
            gone = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            raise make_storage_failure(gone, path, "opened")
        yield
    finally:
        os.close(fd)


def _lock(fd: int, *, certain: bool = False) -> bool:
    try:
        return try_lock(fd)
    except OSError as error:
        # Some network file systems have no locks; a session there is better than none.
        return error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL) and not certain


def read_log(path: Path, limit: int = 1 << 31) -> bytes:
    """The whole lines of a log that may be open; takes no lock and repairs nothing."""
    data = read_head(path, limit, nofollow=True)
    end = data.rfind(b"\n") + 1
    rest = data[end:].rstrip(b"\0")
    return data[:end] + rest + b"\n" if _is_object(rest) else data[:end]


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _pid_in(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_bytes()[:20])
    return None


def _without_nuls(fd: int, size: int) -> int:
    """The size without the zeros that some file systems leave at the end after a crash."""
    while size > 0:
        start = max(0, size - _CHUNK)
        kept = _read_at(fd, size - start, start).rstrip(b"\0")
        if kept:
            return start + len(kept)
        size = start
    return 0


def _last_line_start(fd: int, end: int) -> int:
    """The position after the last newline before `end`."""
    at = end
    while at > 0:
        start = max(0, at - _CHUNK)
        found = _read_at(fd, at - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        at = start
    return 0


def _read_at(fd: int, length: int, offset: int) -> bytes:
    os.lseek(fd, offset, os.SEEK_SET)  # appending does not depend on where this is
    parts = []
    while length > 0 and (part := os.read(fd, min(length, 1 << 24))):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


LONGEST_LINE: Final = 64 << 20  # A longer line is skipped: no record is that large, and memory is bounded
_GZIP: Final = b"\x1f\x8b"
_GZIP_BITS: Final = 31  # The largest window, and a head and a checksum of gzip around it
_PIECE: Final = 1 << 18
BOM: Final = b"\xef\xbb\xbf"


def iterate_lines(source: Path | bytes, problems: list[Problem]) -> Iterator[tuple[int, bytes]]:
    """Each line that is not blank, with its number; unreadable ones are added to `problems`."""
    number = 0
    try:
        with open_source(source) as file:
            while line := file.readline(LONGEST_LINE):
                number += 1
                if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                    while (part := file.readline(1 << 20)) and not part.endswith(b"\n"):
                        pass
                    problems.append(Problem(number, f"longer than {LONGEST_LINE:,} bytes: skipped"))
                    continue
                if number == 1:
                    line = line.removeprefix(BOM)
                if line := line.strip(b" \t\r\n\0"):
                    yield number, line
    except (EOFError, zlib.error) as error:
        problems.append(Problem(number + 1, f"the compressed file is damaged from here on: {error}"))
    except OSError as error:
        name = source if isinstance(source, Path) else "the data"
        raise make_storage_failure(error, name, "read") from error


@contextlib.contextmanager
def open_source(source: Path | bytes) -> Iterator[io.BufferedIOBase]:
    """A file, or the data itself, for reading; unpacked if it is gzipped."""
    raw = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb", buffering=0)
    with io.BufferedReader(raw) as plain:
        if plain.peek(2).startswith(_GZIP):
            yield io.BufferedReader(_UnpackedPieces(plain), _PIECE)
        else:
            yield plain


class _UnpackedPieces(io.RawIOBase):
    """Hands on what a gzipped file unpacks, in large pieces: the module gzip unpacks a few kilobytes."""

    def __init__(self, packed: io.BufferedIOBase) -> None:
        self._packed, self._rest = packed, b""
        self._member = zlib.decompressobj(_GZIP_BITS)  # A file may have several, one after the other

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = b""
        while not part:
            packed, self._rest = self._rest or self._packed.read(_CHUNK), b""
            if not packed and not self._member.eof:
                raise EOFError("it ends in the middle")
            if not packed:
                return 0
            if self._member.eof:
                if not (packed := packed.lstrip(b"\0")):
                    continue
                self._member = zlib.decompressobj(_GZIP_BITS)
            part = self._member.decompress(packed, len(buffer))
            self._rest = self._member.unconsumed_tail or self._member.unused_data
        buffer[: len(part)] = part
        return len(part)
