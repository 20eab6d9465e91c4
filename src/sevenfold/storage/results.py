"""Whole tool results on disk: one file each, read back and compared before its path is returned.

    <folder>/<tool-use id>.txt                  a text; `.json` for an array of blocks
    <folder>/<tool-use id>.<hash>.txt           the id came again with other content
    <folder>/<what is plain of it>=<hash>.txt   an id that cannot be the name of a file

Nothing here is overwritten or reached through a symbolic link.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from sevenfold.core.errors import StorageFailure
from sevenfold.core.messages import Block, encode_block, strip_half_characters
from sevenfold.storage.files import (
    BINARY,
    CLOEXEC,
    NOFOLLOW,
    make_private_dir,
    make_storage_failure,
    write_new,
)

TEXT: Final = ".txt"
BLOCKS: Final = ".json"
LONGEST_ID: Final = 80  # Characters of an id that is used as it is
_SHOWN: Final = 40  # Characters kept of an id that is not
_HASH: Final = 16
_TRIES: Final = 20  # Names tried for one content; if all are taken, another program interferes
_CHUNK: Final = 1 << 20
_PLAIN: Final = rf"[A-Za-z0-9_][A-Za-z0-9_-]{{0,{LONGEST_ID - 1}}}"
_RESERVED: Final = frozenset(
    ["con", "prn", "aux", "nul"] + [f"{port}{n}" for port in ("com", "lpt") for n in range(10)]
)
_IN_FOLDER: Final = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
_NONBLOCK: Final[int] = getattr(os, "O_NONBLOCK", 0)
_READING: Final = os.O_RDONLY | NOFOLLOW | CLOEXEC | BINARY | _NONBLOCK


class ResultStore:
    """The tool results of one conversation. `folder` is called each time: it may change."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._where = folder
        self._kept: dict[str, Path] = {}

    @property
    def folder(self) -> Path:
        return self._where()

    def keep(self, use_id: str, content: str | tuple[Block, ...], *, lasting: bool = True) -> Path:
        """Write the whole content and return its path. The same content again gives the same path.

        `lasting=False` does not wait for the disk: for content that is also in the transcript.
        After a `StorageFailure` nothing of it is left behind.
        """
        kind, data = encode_content(content)
        folder = self.folder
        for name in _names(use_id, kind, data):
            path = folder / name
            if _created(folder, name, data, lasting):
                if not _holds(path, data):
                    with contextlib.suppress(OSError), _inside(folder) as at:
                        os.unlink(path if at is None else name, dir_fd=at)
                    raise StorageFailure(
                        f"{path} could not be kept: what was read back is not what was written; "
                        "check the disk"
                    )
            elif not _holds(path, data):  # taken by something else; that stays as it is
                continue
            self._kept[use_id] = path
            return path
        raise StorageFailure(
            f"{folder} could not take another result: the names for it are taken by other files; "
            "move them away"
        )

    def find(self, use_id: str) -> Path | None:
        """The file with the result of this id; of several, the newest."""
        folder = self.folder
        kept = self._kept.get(use_id)
        if kept is not None and kept.parent == folder and self.owns(kept):
            return kept
        return max(self._named(make_file_stem(use_id)), key=_written, default=None)

    def owns(self, path: Path) -> bool:
        """True for a result in this store: a file right in its folder, not a link."""
        folder = self.folder
        try:
            inside = path.parent == folder or path.parent.samefile(folder)
            regular = stat.S_ISREG(path.lstat().st_mode)
        except (OSError, ValueError):
            return False
        return inside and regular and path.suffix in (TEXT, BLOCKS) and not folder.is_symlink()

    def open(self, path: Path) -> BinaryIO:
        """Open a result for reading; `StorageFailure` for any other file."""
        if not self.owns(path):
            raise StorageFailure(
                f"{path} could not be read: it is no tool result of this conversation; check the path"
            )
        try:
            with _inside(self.folder) as at:
                fd = os.open(self.folder / path.name if at is None else path.name, _READING, dir_fd=at)
            return os.fdopen(fd, "rb")
        except OSError as error:
            raise make_storage_failure(error, path, "read") from error

    def _named(self, stem: str) -> list[Path]:
        """The files of a stem. The folder is listed: some file systems ignore case, and ids do not."""
        try:
            named = [path for path in self.folder.iterdir() if path.name.partition(".")[0] == stem]
            return [path for path in named if self.owns(path)]
        except OSError:
            return []


def encode_content(content: str | tuple[Block, ...]) -> tuple[str, bytes]:
    """The ending and the bytes of the file that holds this content."""
    if isinstance(content, str):
        return TEXT, strip_half_characters(content).encode("utf-8")
    wire = [encode_block(block) for block in content]
    try:
        return BLOCKS, msgspec.json.encode(wire)
    except UnicodeEncodeError:  # an unpaired surrogate
        text = json.dumps(wire, ensure_ascii=False, default=lambda raw: json.loads(bytes(raw)))
        return BLOCKS, text.encode("utf-8", "replace")


def make_file_stem(use_id: str) -> str:
    """The first part of the file names of an id: short, and safe as a file name.

    A dot follows it, and no stem holds a dot: one id never finds the files of another.
    """
    if re.fullmatch(_PLAIN, use_id) and use_id.lower() not in _RESERVED:
        return use_id
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", use_id[:_SHOWN]).strip("-") or "id"
    digest = hashlib.sha256(use_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{plain}={digest[:_HASH]}"


def _names(use_id: str, kind: str, data: bytes) -> Iterator[str]:
    """The names that this content may have, in order. They depend on id and content only."""
    stem = make_file_stem(use_id)
    yield stem + kind
    digest = hashlib.sha256(data).hexdigest()[:_HASH]
    yield f"{stem}.{digest}{kind}"
    for n in range(2, _TRIES):
        yield f"{stem}.{digest}.{n}{kind}"


def _created(folder: Path, name: str, data: bytes, lasting: bool) -> bool:
    """Write a new file; False if the name is taken."""
    for again in (True, False):
        make_private_dir(folder, nofollow=True)
        try:
            with _inside(folder) as at:
                return write_new(folder / name, data, dir_fd=at, sync=lasting)
        except StorageFailure as error:
            failure = error
        except OSError as error:
            failure = make_storage_failure(error, folder / name)
        # A folder that was removed just now is made anew.
        if not again or not isinstance(failure.__cause__, FileNotFoundError):
            raise failure
    return False


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[int | None]:
    """The open folder; None where the system cannot do that."""
    if not _IN_FOLDER:
        yield None
        return
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | NOFOLLOW | CLOEXEC)
    try:
        yield at
    finally:
        os.close(at)


def _holds(path: Path, data: bytes) -> bool:
    """True if there is a plain file with exactly these bytes."""
    try:
        fd = os.open(path, _READING)
        try:
            return _equal(fd, data)
        finally:
            os.close(fd)
    except OSError:
        return False


def _equal(fd: int, data: bytes) -> bool:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size != len(data):
        return False
    at = 0
    while part := os.read(fd, _CHUNK):
        if data[at : at + len(part)] != part:
            return False
        at += len(part)
    return at == len(data)


def _written(path: Path) -> int:
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return 0
