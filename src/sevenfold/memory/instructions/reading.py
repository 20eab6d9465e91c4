"""Reads a text file that somebody else may have put there: only an ordinary one, only so much of it.

The real path of a file is worked out and judged first; then the file is opened by that path with no
link followed on the way, so that what was judged is what is read.
"""

from __future__ import annotations

import codecs
import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.storage.files import BINARY, CLOEXEC, NOFOLLOW, failure

_PATH: Final[int] = getattr(os, "O_PATH", 0)
_DIRECTORY: Final[int] = getattr(os, "O_DIRECTORY", 0)
_NOFOLLOW_ANY: Final[int] = getattr(os, "O_NOFOLLOW_ANY", 0)
_NONBLOCK: Final[int] = getattr(os, "O_NONBLOCK", 0)
_CHUNK: Final = 1 << 20
_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Content(msgspec.Struct, frozen=True):
    """A file that was read: its bytes, and which file it is under whatever name."""

    data: bytes
    identity: tuple[int, int]


class Decoded(msgspec.Struct, frozen=True):
    text: str
    mended: bool = False
    """Some bytes were no characters and stand as replacement characters."""


def read(real: Path, limit: int) -> Content | str:
    """The file at this real path, or the reason why it cannot be taken."""
    try:
        mode = os.lstat(real).st_mode
        if not stat.S_ISREG(mode):
            return "it is a folder" if stat.S_ISDIR(mode) else "it is no ordinary file"
        fd = _open(real)
        try:
            return _read(fd, limit)
        finally:
            os.close(fd)
    except OSError as error:
        return str(failure(error, real, "read")).partition("could not be read: ")[2]


def _read(fd: int, limit: int) -> Content | str:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        return "it is no ordinary file"
    parts, left = [], limit + 1
    while found.st_size <= limit and left > 0 and (part := os.read(fd, min(left, _CHUNK))):
        parts.append(part)
        left -= len(part)
    if found.st_size > limit or left <= 0:
        return f"it is larger than {limit:,} bytes; make it smaller"
    return Content(b"".join(parts), (found.st_dev, found.st_ino))


def _open(real: Path) -> int:
    flags = os.O_RDONLY | CLOEXEC | BINARY | _NONBLOCK
    if _NOFOLLOW_ANY:
        return os.open(real, flags | _NOFOLLOW_ANY)
    if not _PATH:
        return os.open(real, flags | NOFOLLOW)
    way = _PATH | _DIRECTORY | CLOEXEC | NOFOLLOW
    folder = os.open(real.anchor, way)
    try:
        for name in real.parts[1:-1]:
            inner = os.open(name, way, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(real.name, flags | NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)


def decode(data: bytes) -> Decoded | str:
    """The text of a file whatever editor wrote it, lines ended by a newline alone, or why not."""
    if data.startswith(_UTF16):
        encoding = "utf-16"
    elif b"\0" in data:
        return "it is not a text file"
    else:
        encoding = "utf-8-sig"
    try:
        text, mended = data.decode(encoding), False
    except UnicodeDecodeError:
        text, mended = data.decode(encoding, "replace"), True
    if "\0" in text:
        return "it is not a text file"
    return Decoded(text.replace("\r\n", "\n").replace("\r", "\n"), mended)
