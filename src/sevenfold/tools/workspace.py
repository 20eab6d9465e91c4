"""What the tools of one session share: the project, the working folder, what was read, what runs.

Opens ordinary files only, and knows what they look like: pipes, devices and /proc never block us.
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
    """What a file looked like when the model last read or wrote it."""

    at: float
    size: int
    modified: int
    """Nanoseconds, as the file system has it."""
    digest: str = ""
    """Empty for a file too large to be worth it; then size and time have to do."""

    def still(self, now: SeenFile) -> bool:
        if self.digest and now.digest:
            return self.digest == now.digest
        return (self.size, self.modified) == (now.size, now.modified)


class FileKeeper(Protocol):
    """Looks after files that are more than files: memory, for instance."""

    def keeps(self, path: Path) -> bool:
        """Whether this file, given by its real path, is one of them."""
        ...

    def instead(self, path: Path, data: bytes) -> str | None:
        """Does what is meant where no file is to be written, and says what; None: it is to be written."""
        ...

    def before_write(self, path: Path, data: bytes) -> bytes:
        """What is to be written; raises `ToolFailed` when this may not be written there."""
        ...

    def after_write(self, path: Path) -> str:
        """Takes note of it. What the model should know about that, or nothing."""
        ...

    def remark(self, path: Path) -> str:
        """What to say to whoever reads the file, or nothing."""
        ...


class _NoKeeper:
    def keeps(self, path: Path) -> bool:
        return False

    def instead(self, path: Path, data: bytes) -> str | None:
        return None

    def before_write(self, path: Path, data: bytes) -> bytes:
        return data

    def after_write(self, path: Path) -> str:
        return ""

    def remark(self, path: Path) -> str:
        return ""


@dataclass(slots=True)
class Workspace:
    """Mutable, one per session. Nothing here is read from the process's own environment."""

    root: Path
    """The project folder."""
    home: Path
    environment: Mapping[str, str]
    """What commands get to see."""
    outputs: Path
    """Where the output of background commands goes; made when first needed."""
    clock: Clock
    trusted: bool = False
    """Whether the user trusts this folder: only then may git do what its files say, unasked."""
    seen: dict[Path, SeenFile] = field(default_factory=dict)
    """By real path, least recently used first."""
    background: list[Process] = field(default_factory=list)
    """Commands that were started in the background."""
    leftovers: set[int] = field(default_factory=set)
    """Process groups of commands that ended and left something running."""
    hidden: Callable[[Path], bool] = is_secret_file
    """Files that a search over a folder leaves out."""
    keeper: FileKeeper = field(default_factory=_NoKeeper)
    """Of files that are more than files."""
    most_output: int = MOST_KEPT
    """Bytes of a command's output held in memory; more is worth it where long results are stored."""
    window: int = REFERENCE_WINDOW
    """Tokens that the model of the moment has room for: a page of a file is a part of it."""
    project: Path | None = None
    """The folder that the user's rules were written for, where that is not `root`: of a work tree."""
    _cwd: Path = field(init=False)

    def __post_init__(self) -> None:
        self.root = resolve_path(self.root)
        self._cwd = self.root

    @property
    def roots(self) -> tuple[Path, ...]:
        """Where a rule that takes away may begin: a copy of the project is no way round it."""
        return (self.root,) if self.project is None else (self.root, self.project)

    @property
    def cwd(self) -> Path:
        """Where commands run and relative paths begin; `cd` moves it. Links in it are followed."""
        return self._cwd

    @cwd.setter
    def cwd(self, folder: Path) -> None:
        self._cwd = resolve_path(folder)

    def locate(self, text: str) -> Path:
        """The absolute path that the model means; links are not followed yet."""
        return make_absolute(text, self.cwd, self.home)

    def shown(self, path: Path) -> str:
        """The path as short as it can be and still be understood by every tool."""
        if path == self.cwd:
            return "."
        return str(path.relative_to(self.cwd) if path.is_relative_to(self.cwd) else path)

    def remember(self, path: Path, seen: SeenFile) -> None:
        self.seen.pop(path, None)
        self.seen[path] = seen

    @property
    def search_path(self) -> str:
        return make_search_path(self.environment)

    def program(self, name: str) -> str | None:
        return find_program(name, self.environment)

    async def close(self) -> None:
        """End everything that still runs."""
        background, self.background = self.background, []
        leftovers, self.leftovers = self.leftovers, set()
        await end_groups({process.pid for process in background} | leftovers)
        with anyio.CancelScope(shield=True), anyio.move_on_after(TERM_GRACE):
            for process in background:
                await process.wait()

    def forget_ended(self) -> None:
        """Let go of what has ended by itself: its number may soon be somebody else's."""
        self.background = [p for p in self.background if is_group_alive(p.pid)]
        self.leftovers = {group for group in self.leftovers if is_group_alive(group)}


def make_search_path(environment: Mapping[str, str]) -> str:
    """PATH without folders that depend on where we are: a project must not bring its own `ls`."""
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if Path(folder).is_absolute())


def find_program(name: str, environment: Mapping[str, str]) -> str | None:
    """Where a program is, for whoever is given this environment."""
    return shutil.which(name, path=make_search_path(environment))


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
    shown, target = workspace.shown(path), resolve_path(path)
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
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise ToolFailed(f"{shown} is {kind}, not an ordinary file; it is not opened")


def _elsewhere(workspace: Workspace, path: Path) -> str:
    """Where the file may be instead."""
    if path.is_symlink():
        return f": the link leads to {path.readlink()}, and nothing is there"
    if path.is_relative_to(workspace.cwd) and workspace.cwd != workspace.root:
        moved = workspace.root / path.relative_to(workspace.cwd)
        if moved.exists():
            return f" in {workspace.cwd}; did you mean {moved}?"
    return suggest_similar(path)


def describe_binary(head: bytes) -> str:
    """What a binary file is, from its first bytes, in words."""
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
    return SeenFile(at, state.st_size, state.st_mtime_ns, digest)


def check_unchanged(workspace: Workspace, path: Path, now: SeenFile, doing: str) -> None:
    """Refuse to change what the model has not seen as it is."""
    before = workspace.seen.get(resolve_path(path))
    shown = workspace.shown(path)
    if before is None:
        raise ToolFailed(f"{shown} has not been read in this session; Read it before {doing} it")
    if not before.still(now):
        raise ToolFailed(f"{shown} has changed since it was read; Read it again before {doing} it")
