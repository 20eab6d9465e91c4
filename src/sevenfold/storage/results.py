"""Whole tool results on disk: one file each, read back and compared before anyone is told its path.

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
from typing import Any, BinaryIO, Final

import msgspec

from sevenfold.core.errors import StorageFailure
from sevenfold.core.messages import Block, encode_block, strip_half_characters
from sevenfold.storage.files import (
    BINARY,
    CLOEXEC,
    NOFOLLOW,
    PRIVATE_FILE,
    make_private_dir,
    make_storage_failure,
    sync_folder,
    write_all,
)

TEXT: Final = ".txt"
BLOCKS: Final = ".json"
LONGEST_ID: Final = 80
"""Characters of an id that is used as it is."""
_SHOWN: Final = 40
"""Characters kept of an id that is not."""
_HASH: Final = 16
_TRIES: Final = 20
"""Names tried for one content before somebody must be playing tricks."""
_CHUNK: Final = 1 << 20
_PLAIN: Final = rf"[A-Za-z0-9_][A-Za-z0-9_-]{{0,{LONGEST_ID - 1}}}"
_RESERVED: Final = frozenset(
    ["con", "prn", "aux", "nul"] + [f"{port}{n}" for port in ("com", "lpt") for n in range(10)]
)
_IN_FOLDER: Final = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
_NONBLOCK: Final[int] = getattr(os, "O_NONBLOCK", 0)
_WRITING: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC | BINARY
_READING: Final = os.O_RDONLY | NOFOLLOW | CLOEXEC | BINARY | _NONBLOCK


class ResultStore:
    """The tool results of one conversation. The folder is asked for each time: it may change."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._where = folder
        self._kept: dict[str, Path] = {}

    @property
    def folder(self) -> Path:
        return self._where()

    def keep(self, use_id: str, content: str | tuple[Block, ...], *, lasting: bool = True) -> Path:
        """Write the whole content; the path is good when this returns. The same again: the same path.

        `lasting=False` does not wait for the disk: for what is also in the transcript.
        Raises `StorageFailure` with the reason and the fix; then nothing of it is left behind.
        """
        kind, data = encode_content(content)
        folder = self.folder
        for name in _names(use_id, kind, data):
            path = folder / name
            if _created(folder, name, data, lasting):
                _verify(folder, name, data)
            elif not _holds(path, data):  # taken by something else; that stays as it is
                continue
            self._kept[use_id] = path
            return path
        raise StorageFailure(
            f"{folder} could not take another result: the names for it are taken by other files; "
            "move them away"
        )

    def find(self, use_id: str) -> Path | None:
        """Where the result of this id is; of several, the one kept last."""
        folder = self.folder
        kept = self._kept.get(use_id)
        if kept is not None and kept.parent == folder and self.owns(kept):
            return kept
        return max(self._named(make_file_stem(use_id)), key=_written, default=None)

    def owns(self, path: Path) -> bool:
        """Whether this is a result in this store: a file right in its folder, no link to one."""
        folder = self.folder
        try:
            inside = path.parent == folder or path.parent.samefile(folder)
            regular = stat.S_ISREG(path.lstat().st_mode)
        except (OSError, ValueError):
            return False
        return inside and regular and path.suffix in (TEXT, BLOCKS) and not folder.is_symlink()

    def open(self, path: Path) -> BinaryIO:
        """A result to read from. Raises `StorageFailure` for everything that is not one of ours."""
        if not self.owns(path):
            raise StorageFailure(
                f"{path} could not be read: it is no tool result of this conversation; check the path"
            )
        try:
            return os.fdopen(_opened(self.folder, path.name, _READING), "rb")
        except OSError as error:
            raise make_storage_failure(error, path, "read") from error

    def _named(self, stem: str) -> list[Path]:
        """Read from the folder and not asked for by name: where case does not count in names, it
        still counts in ids.
        """
        try:
            return [
                path
                for path in self.folder.iterdir()
                if path.name.partition(".")[0] == stem and self.owns(path)
            ]
        except OSError:
            return []


def encode_content(content: str | tuple[Block, ...]) -> tuple[str, bytes]:
    """The ending and the bytes of the file that holds this content."""
    if isinstance(content, str):
        return TEXT, strip_half_characters(content).encode("utf-8")
    wire = [encode_block(block) for block in content]
    try:
        return BLOCKS, msgspec.json.encode(wire)
    except UnicodeEncodeError:  # half a character somewhere inside
        text = json.dumps(wire, ensure_ascii=False, default=_raw)
        return BLOCKS, text.encode("utf-8", "replace")


def _raw(value: Any) -> Any:
    return json.loads(bytes(value))


def make_file_stem(use_id: str) -> str:
    """How the name of a file for this id begins: never too long, never meaning something else.

    What follows it begins with a dot, which no stem holds: one id never finds another's files.
    """
    if re.fullmatch(_PLAIN, use_id) and use_id.lower() not in _RESERVED:
        return use_id
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", use_id[:_SHOWN]).strip("-") or "id"
    digest = hashlib.sha256(use_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{plain}={digest[:_HASH]}"


def _names(use_id: str, kind: str, data: bytes) -> Iterator[str]:
    """The names this content may have, in order: they depend on the id and the content alone."""
    stem = make_file_stem(use_id)
    yield stem + kind
    digest = hashlib.sha256(data).hexdigest()[:_HASH]
    yield f"{stem}.{digest}{kind}"
    for n in range(2, _TRIES):
        yield f"{stem}.{digest}.{n}{kind}"


def _created(folder: Path, name: str, data: bytes, lasting: bool) -> bool:
    """Write a new file of this name; False when something has the name already."""
    fd = _create(folder, name)
    if fd is None:
        return False
    try:
        try:
            write_all(fd, data)
            if lasting:
                os.fsync(fd)
        finally:
            os.close(fd)
        if lasting:
            sync_folder(folder)
    except OSError as error:
        _remove(folder, name)
        raise make_storage_failure(error, folder / name) from error
    return True


def _create(folder: Path, name: str) -> int | None:
    for again in (True, False):
        make_private_dir(folder, nofollow=True)
        try:
            return _opened(folder, name, _WRITING)
        except FileExistsError:
            return None
        except FileNotFoundError as error:  # the folder went away just now
            if not again:
                raise make_storage_failure(error, folder / name) from error
        except OSError as error:
            raise make_storage_failure(error, folder / name) from error
    return None


def _opened(folder: Path, name: str, flags: int) -> int:
    """Open a file in the folder itself: one that was replaced by a link a moment ago is refused."""
    with _inside(folder) as at:
        return os.open(folder / name if at is None else name, flags, PRIVATE_FILE, dir_fd=at)


def _remove(folder: Path, name: str) -> None:
    with contextlib.suppress(OSError), _inside(folder) as at:
        os.unlink(folder / name if at is None else name, dir_fd=at)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[int | None]:
    """The folder, held open; None where the system cannot do that."""
    if not _IN_FOLDER:
        yield None
        return
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | NOFOLLOW | CLOEXEC)
    try:
        yield at
    finally:
        os.close(at)


def _verify(folder: Path, name: str, data: bytes) -> None:
    if not _holds(folder / name, data):
        _remove(folder, name)
        raise StorageFailure(
            f"{folder / name} could not be kept: what was read back is not what was written; check the disk"
        )


def _holds(path: Path, data: bytes) -> bool:
    """Whether a plain file is there with exactly these bytes. They are compared, not their hashes:
    that is as certain as can be, and the cost is one reading.
    """
    try:
        fd = os.open(path, _READING)
    except OSError:
        return False
    try:
        return _equal(fd, data)
    except OSError:
        return False
    finally:
        os.close(fd)


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
