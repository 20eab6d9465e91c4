"""Opens ordinary files only, and knows what they look like: pipes, devices and /proc never block us."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

from sevenfold.protocols import ToolFailed
from sevenfold.tools.paths import real, similar
from sevenfold.tools.workspace import Seen, Workspace

LARGEST_DIGEST: Final = 64 << 20
"""Beyond this size a file is known by its size and time alone."""
_SYSTEM: Final = (Path("/proc"), Path("/sys"))
_CHUNK: Final = 1 << 20
_NONBLOCK: Final[int] = getattr(os, "O_NONBLOCK", 0)

_MAGIC: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x7fELF", "a program (ELF)"),
    (b"MZ", "a Windows program"),
    (b"\xca\xfe\xba\xbe", "a Java class or macOS program"),
    (b"\xcf\xfa\xed\xfe", "a macOS program"),
    (b"PK\x03\x04", "a zip archive (or an Office document, a wheel, a jar)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\x00asm", "a WebAssembly module"),
    (b"OggS", "an Ogg file"),
    (b"ID3", "an MP3 file"),
    (b"RIFF", "a RIFF file (sound or video)"),
    (b"PAR1", "a Parquet file"),
    (b"\x80\x04", "a Python pickle"),
    (b"BM", "a bitmap image"),
)


def open_ordinary(workspace: Workspace, path: Path) -> BinaryIO:
    """The file, open for reading; anything but an ordinary file is refused, with what it is."""
    shown, target = workspace.shown(path), real(path)
    if any(target.is_relative_to(folder) for folder in _SYSTEM):
        raise ToolFailed(f"{shown} belongs to the system and is no ordinary file; use Bash for it")
    try:
        _check_kind(shown, target.stat().st_mode)
        fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC | _NONBLOCK)
    except FileNotFoundError:
        raise ToolFailed(f"{shown} does not exist{_elsewhere(workspace, path)}") from None
    file = os.fdopen(fd, "rb")
    try:
        _check_kind(shown, os.fstat(fd).st_mode)  # it may have been swapped in between
    except ToolFailed:
        file.close()
        raise
    return file


def _check_kind(shown: str, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise ToolFailed(f"{shown} is a folder; list it with Glob, or with ls in Bash")
    if not stat.S_ISREG(mode):
        kind = (
            "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        )
        raise ToolFailed(f"{shown} is {kind}, not an ordinary file; it is not opened")


def _elsewhere(workspace: Workspace, path: Path) -> str:
    """Where the file may be instead."""
    if path.is_symlink():
        return f": the link leads to {path.readlink()}, and nothing is there"
    if path.is_relative_to(workspace.cwd) and workspace.cwd != workspace.root:
        moved = workspace.root / path.relative_to(workspace.cwd)
        if moved.exists():
            return f" in {workspace.cwd}; did you mean {moved}?"
    return similar(path)


def kind_of(head: bytes) -> str:
    """What a binary file is, from its first bytes, in words."""
    if head[4:8] == b"ftyp":
        return "a video or an HEIC/AVIF image"
    if head[257:262] == b"ustar":
        return "a tar archive"
    return next((kind for magic, kind in _MAGIC if head.startswith(magic)), "binary data")


def size_of(size: int) -> str:
    """A number of bytes for people."""
    for limit, unit in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if size >= limit:
            return f"{size / limit:.1f} {unit}"
    return f"{size:,} bytes"


def look(file: BinaryIO, at: float) -> Seen:
    """What the open file looks like now."""
    state = os.fstat(file.fileno())
    digest = ""
    if state.st_size <= LARGEST_DIGEST:
        file.seek(0)
        running, left = hashlib.blake2b(digest_size=16), state.st_size
        while left > 0 and (chunk := file.read(min(left, _CHUNK))):  # it may be growing
            running.update(chunk)
            left -= len(chunk)
        digest = running.hexdigest()
    return Seen(at, state.st_size, state.st_mtime_ns, digest)


def check_unchanged(workspace: Workspace, path: Path, now: Seen, doing: str) -> None:
    """Refuse to change what the model has not seen as it is."""
    before = workspace.seen.get(real(path))
    shown = workspace.shown(path)
    if before is None:
        raise ToolFailed(f"{shown} has not been read in this session; Read it before {doing} it")
    if not before.still(now):
        raise ToolFailed(f"{shown} has changed since it was read; Read it again before {doing} it")
