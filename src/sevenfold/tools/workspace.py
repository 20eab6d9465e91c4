"""The workspace that the tools of a session share: project, working folder, files seen, processes.

It opens ordinary files only, so that pipes, devices and /proc never block us.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import shutil
import stat
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import anyio
import msgspec

from sevenfold.core.protocols import Clock, ToolFailed
from sevenfold.core.tokens import REFERENCE_WINDOW
from sevenfold.storage.walk import translate_glob
from sevenfold.tools.permission_settings import SandboxUse
from sevenfold.tools.processes import (
    MOST_KEPT,
    TERM_GRACE,
    ChildProcess,
    GroupWatch,
    end_groups,
    is_group_alive,
)

_SECRET_NAME: Final = r"""(?ix)
      \.env(?!\.(?:example|sample|template|dist|defaults)$)(?:\..*)?    # .env, .env.local
    | .*\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)
    | id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?(?!.*\.pub$).*
    | [._]netrc | \.pgpass | \.npmrc | \.pypirc | \.htpasswd | \.git-credentials | \.boto
    | (?:application_default_)?credentials(?:\.(?:json|ya?ml|toml|ini|db|csv|xml))?
    | secrets?\.(?:json|ya?ml|toml|ini|env)
    | service[-_]account.*\.json
    """
_SECRET_FOLDERS: Final = frozenset({".ssh", ".aws", ".gnupg", ".kube", ".azure", ".docker", "gcloud"})
_PROTECTED_FOLDERS: Final = frozenset(
    {".git", ".hg", ".svn", ".sevenfold", ".claude", ".vscode", ".idea", ".husky", ".devcontainer"}
)
_PROTECTED_NAMES: Final = frozenset(
    {".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv"}
    | {".zprofile", ".zlogin", ".envrc", ".gitconfig", ".gitmodules", ".mcp.json", ".git"}
)
_MOST_NEIGHBOURS: Final = 5_000


def make_absolute(text: str, cwd: Path, home: Path) -> Path:
    """The path as asked for, made absolute; links and `..` are left for `resolve_path` to follow."""
    if "\0" in text:
        raise ToolFailed("a path cannot hold a NUL character; write it without")
    if not text.strip():
        raise ToolFailed("the path is empty; name a file or a folder")
    if text == "~" or text.startswith("~/"):
        return home / text[2:]
    return cwd / text


def resolve_path(path: Path) -> Path:
    """The path that this one leads to when every link is followed, whether anything is there or not.

    A link that may not be read (`/proc/1/cwd`) is taken for a file: nothing is opened but what comes out.
    """
    try:
        return Path(os.path.realpath(path))
    except OSError:
        return normalise_path(path)


def normalise_path(path: Path) -> Path:
    """The path with `..` taken at its word, as a reader would understand it."""
    return Path(os.path.normpath(path))


def is_inside(path: Path, folder: Path) -> bool:
    """True if the path leads into the folder, compared by component after following links."""
    return resolve_path(path).is_relative_to(resolve_path(folder))


def is_secret_file(path: Path) -> bool:
    """True if a file of this name usually holds keys, passwords or tokens."""
    if any(part.lower() in _SECRET_FOLDERS for part in path.parts):
        return True
    return bool(re.fullmatch(_SECRET_NAME, path.name))


def is_protected(path: Path) -> bool:
    """True if changing this could make other programs run something later, or open a door to us."""
    if any(part.lower() in _PROTECTED_FOLDERS for part in path.parts):
        return True
    return path.name.lower() in _PROTECTED_NAMES or is_secret_file(path)


def suggest_similar(path: Path) -> str:
    """`; did you mean …?` with the names nearby that look like this one, or nothing."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry, _ in zip(entries, range(_MOST_NEIGHBOURS), strict=False)]
    except OSError:
        return ""
    near = [name for name in names if name.lower() == path.name.lower()]
    near += [name for name in names if name not in near and Path(name).stem == path.stem]
    near += difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    found = list(dict.fromkeys(near))[:3]
    return f"; did you mean {' or '.join(found)}?" if found else ""


_WILD: Final = r"[*?\[\]{}\\]"
_SPECIAL: Final = r"([*?\[\]{}\\])"


class ResolvedPath(msgspec.Struct, frozen=True):
    """A path as it was asked for, and where it really leads."""

    asked: Path
    real: Path

    @classmethod
    def of(cls, path: Path) -> ResolvedPath:
        return cls(normalise_path(path), resolve_path(path))


def is_pattern_match(about: str, place: ResolvedPath, root: Path, home: Path, *, loose: bool) -> bool:
    """True if the rule's pattern means this place."""
    paths = (place.asked, place.real) if loose else (place.real,)
    patterns = _patterns(about, str(root), str(home), loose)
    return any(p.fullmatch(_normal(str(path), loose)) for path in paths for p in patterns)


@lru_cache(maxsize=1024)
def _patterns(about: str, root: str, home: str, loose: bool) -> tuple[re.Pattern[str], ...]:
    folder, glob, resolves = _anchored(about, Path(root), Path(home), loose)
    below = glob.endswith(("/**", "/")) or glob == "**" or not re.search(_WILD, glob.rpartition("/")[2])
    glob = "" if glob == "**" else glob.removesuffix("/**").rstrip("/")
    starts = {(resolve_path(folder), glob)}
    if resolves:
        starts = {_resolved(folder, glob)}
    if loose:
        starts.add((folder, glob))
    return tuple(_compiled(start, rest, below or loose, loose) for start, rest in starts)


def _anchored(about: str, root: Path, home: Path, loose: bool) -> tuple[Path, str, bool]:
    """The start of the pattern, the rest, and whether links in it are the user's own."""
    if about.startswith("//"):
        return Path("/"), about.lstrip("/"), True
    if about == "~" or about.startswith("~/"):
        return home, about[2:], True
    if about.startswith(("/", "./", "../")):
        folder, glob = root, about.removeprefix("./").removeprefix("/")
        while glob.startswith("../"):
            folder, glob = folder.parent, glob[3:]
        return folder, glob, False
    if "/" in about.rstrip("/"):
        return root, about, False
    return (Path("/") if loose else root), f"**/{about}", False


def _resolved(folder: Path, glob: str) -> tuple[Path, str]:
    """The same with links followed as far as the pattern is plain."""
    parts = glob.split("/")
    plain = next((i for i, part in enumerate(parts) if re.search(_WILD, part)), len(parts))
    return resolve_path(folder.joinpath(*parts[:plain])), "/".join(parts[plain:])


def _compiled(folder: Path, glob: str, below: bool, loose: bool) -> re.Pattern[str]:
    start = "" if folder == Path("/") else re.escape(_normal(str(folder), loose))
    rest = f"/{translate_glob(_normal(glob, loose))}" if glob else ""
    return re.compile(f"{start}{rest}{'(?:/.*)?' if below else ''}", re.DOTALL)


def _normal(text: str, loose: bool) -> str:
    """Some file systems take names for the same that differ in case or in how accents are written."""
    text = unicodedata.normalize("NFC", text)
    return text.casefold() if loose else text


def make_path_pattern(path: Path, root: Path, *, below: bool = False) -> str:
    """The text of a pattern that means exactly this path, or this folder and all below it."""
    if path == root:
        return "/**"
    tail = "/**" if below else ""
    start = "/" if path.is_relative_to(root) else "//"
    rest = os.path.relpath(path, root) if start == "/" else str(path).lstrip("/")
    return start + re.sub(_SPECIAL, r"\\\1", rest) + tail


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
    background: list[ChildProcess] = field(default_factory=list)  # Commands started in the background
    leftovers: set[int] = field(default_factory=set)
    """Process groups of commands that ended and left something running."""
    watch: GroupWatch = field(default_factory=GroupWatch)  # Ends all of them if our own process is killed
    approved: set[str] = field(default_factory=set)
    """Ids of calls that the user or a rule has allowed: their commands run outside the sandbox."""
    sandbox: SandboxUse = "unasked"
    """The commands that run in the sandbox, where the system has one."""
    readable: tuple[Path, ...] = ()
    """Folders outside the project that may be read without a question."""
    writable: tuple[Path, ...] = ()
    """Folders outside the project that count as part of it."""
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
        if background or leftovers:
            await end_groups({process.pid for process in background} | leftovers)
            with anyio.CancelScope(shield=True), anyio.move_on_after(TERM_GRACE):
                for process in background:
                    await process.wait()
        for group in {process.pid for process in background} | leftovers:
            self.watch.remove(group)

    def forget_ended(self) -> None:
        """Forget processes that have ended: their numbers may be reused soon."""
        before = {process.pid for process in self.background} | self.leftovers
        self.background = [p for p in self.background if p.returncode is None or is_group_alive(p.pid)]
        self.leftovers = {group for group in self.leftovers if is_group_alive(group)}
        for group in before - {process.pid for process in self.background} - self.leftovers:
            self.watch.remove(group)


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
