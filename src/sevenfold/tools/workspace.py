"""The workspace that the tools of a session share: project, working folder, files seen, processes.

It opens ordinary files only, so that pipes, devices and /proc never block us.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import anyio
import msgspec
from anyio.abc import Process

from sevenfold.core.protocols import Clock, ToolFailed
from sevenfold.core.tokens import REFERENCE_WINDOW
from sevenfold.tools.paths import is_secret_file, make_absolute, resolve_path, suggest_similar
from sevenfold.tools.processes import MOST_KEPT, TERM_GRACE, end_groups, is_group_alive


class SeenFile(msgspec.Struct, frozen=True):
    """The state of a file when the model last read or wrote it."""

    at: float
    size: int
    modified: int  # Nanoseconds, as the file system has it
    digest: str = ""  # Empty for a very large file; then size and time are compared

    def is_same(self, now: SeenFile) -> bool:
        if self.digest and now.digest:
            return self.digest == now.digest
        return (self.size, self.modified) == (now.size, now.modified)


class FileKeeper(Protocol):
    """Keeps special files, such as memories."""

    def is_kept(self, path: Path) -> bool:
        """True if this file, given by its real path, is one of them."""
        ...

    def replace_write(self, path: Path, data: bytes) -> str | None:
        """Do something else than to write the file, and describe it; None: the file is to be written."""
        ...

    def before_write(self, path: Path, data: bytes) -> bytes:
        """The bytes to write; raises `ToolFailed` if they may not be written there."""
        ...

    def after_write(self, path: Path) -> str:
        """Note the write; returns a remark for the model, or an empty text."""
        ...

    def make_remark(self, path: Path) -> str:
        """A remark for the model when it reads the file, or an empty text."""
        ...


class _NoKeeper:
    def is_kept(self, path: Path) -> bool:
        return False

    def replace_write(self, path: Path, data: bytes) -> str | None:
        return None

    def before_write(self, path: Path, data: bytes) -> bytes:
        return data

    def after_write(self, path: Path) -> str:
        return ""

    def make_remark(self, path: Path) -> str:
        return ""


@dataclass(slots=True)
class Workspace:
    """Mutable, one per session. Nothing here is read from the process's own environment."""

    root: Path  # The project folder
    home: Path
    environment: Mapping[str, str]  # The environment of commands
    outputs: Path  # The folder for the output of background commands; made when first needed
    clock: Clock
    trusted: bool = False
    """True if the user trusts this folder: only then may git run what its files say, unasked."""
    seen: dict[Path, SeenFile] = field(default_factory=dict)  # By real path, least recently used first
    background: list[Process] = field(default_factory=list)  # Commands that were started in the background
    leftovers: set[int] = field(default_factory=set)
    """Process groups of commands that ended and left something running."""
    hidden: Callable[[Path], bool] = is_secret_file  # Files that a search over a folder leaves out
    keeper: FileKeeper = field(default_factory=_NoKeeper)  # The keeper of special files
    most_output: int = MOST_KEPT
    """Most bytes of a command's output held in memory; more if long results are stored."""
    window: int = REFERENCE_WINDOW
    """The window of the current model in tokens: a page of a file is a part of it."""
    project: Path | None = None
    """The folder that the user's rules were written for, if `root` is a work tree."""
    _cwd: Path = field(init=False)

    def __post_init__(self) -> None:
        self.root = resolve_path(self.root)
        self._cwd = self.root

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders that a restricting rule is relative to: it also holds in a copy of the project."""
        return (self.root,) if self.project is None else (self.root, self.project)

    @property
    def cwd(self) -> Path:
        """The working folder, with links followed; `cd` moves it."""
        return self._cwd

    @cwd.setter
    def cwd(self, folder: Path) -> None:
        self._cwd = resolve_path(folder)

    def locate(self, text: str) -> Path:
        """The absolute path that the model means; links are not followed yet."""
        return make_absolute(text, self.cwd, self.home)

    def format_path(self, path: Path) -> str:
        """The shortest form of a path that every tool understands."""
        if path == self.cwd:
            return "."
        return str(path.relative_to(self.cwd) if path.is_relative_to(self.cwd) else path)

    def remember(self, path: Path, seen: SeenFile) -> None:
        self.seen.pop(path, None)
        self.seen[path] = seen

    @property
    def search_path(self) -> str:
        return make_search_path(self.environment)

    def find_program(self, name: str) -> str | None:
        return find_program(name, self.environment)

    async def close(self) -> None:
        """End everything that still runs."""
        background, self.background = self.background, []
        leftovers, self.leftovers = self.leftovers, set()
        if not background and not leftovers:
            return
        await end_groups({process.pid for process in background} | leftovers)
        with anyio.CancelScope(shield=True), anyio.move_on_after(TERM_GRACE):
            for process in background:
                await process.wait()

    def forget_ended(self) -> None:
        """Forget processes that have ended: their numbers may be reused soon."""
        self.background = [p for p in self.background if is_group_alive(p.pid)]
        self.leftovers = {group for group in self.leftovers if is_group_alive(group)}


def make_search_path(environment: Mapping[str, str]) -> str:
    """PATH without relative folders: a project must not bring its own `ls`."""
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if Path(folder).is_absolute())


def find_program(name: str, environment: Mapping[str, str]) -> str | None:
    """The path of a program in this environment."""
    return shutil.which(name, path=make_search_path(environment))


LARGEST_DIGEST: Final = 64 << 20  # A larger file (bytes) is compared by its size and time alone
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
    """Open a file for reading; raises `ToolFailed` for anything but an ordinary file."""
    shown, target = workspace.format_path(path), resolve_path(path)
    if any(target.is_relative_to(folder) for folder in _SYSTEM):
        raise ToolFailed(f"{shown} belongs to the system and is no ordinary file; use Bash for it")
    try:
        _check_kind(shown, target.stat().st_mode)
        fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC | _NONBLOCK)
    except FileNotFoundError:
        raise ToolFailed(f"{shown} does not exist{_suggest_path(workspace, path)}") from None
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
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise ToolFailed(f"{shown} is {kind}, not an ordinary file; it is not opened")


def _suggest_path(workspace: Workspace, path: Path) -> str:
    """A hint on the file that may be meant."""
    if path.is_symlink():
        return f": the link leads to {path.readlink()}, and nothing is there"
    if path.is_relative_to(workspace.cwd) and workspace.cwd != workspace.root:
        moved = workspace.root / path.relative_to(workspace.cwd)
        if moved.exists():
            return f" in {workspace.cwd}; did you mean {moved}?"
    return suggest_similar(path)


def describe_binary(head: bytes) -> str:
    """The kind of a binary file in words, from its first bytes."""
    if head[4:8] == b"ftyp":
        return "a video or an HEIC/AVIF image"
    if head[257:262] == b"ustar":
        return "a tar archive"
    return next((kind for magic, kind in _MAGIC if head.startswith(magic)), "binary data")


def format_size(size: int) -> str:
    """A number of bytes for people."""
    for limit, unit in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if size >= limit:
            return f"{size / limit:.1f} {unit}"
    return f"{size:,} bytes"


def look_at_file(file: BinaryIO, at: float) -> SeenFile:
    """The state of an open file."""
    state = os.fstat(file.fileno())
    digest = ""
    if state.st_size <= LARGEST_DIGEST:
        file.seek(0)
        running, left = hashlib.blake2b(digest_size=16), state.st_size
        while left > 0 and (chunk := file.read(min(left, _CHUNK))):  # it may be growing
            running.update(chunk)
            left -= len(chunk)
        digest = running.hexdigest()
    return SeenFile(at, state.st_size, state.st_mtime_ns, digest)


def check_unchanged(workspace: Workspace, path: Path, now: SeenFile, doing: str) -> None:
    """Raise `ToolFailed` if the model has not seen the file in its present state."""
    before = workspace.seen.get(resolve_path(path))
    shown = workspace.format_path(path)
    if before is None:
        raise ToolFailed(f"{shown} has not been read in this session; Read it before {doing} it")
    if not before.is_same(now):
        raise ToolFailed(f"{shown} has changed since it was read; Read it again before {doing} it")
