"""Takes one instruction file with what it includes (`@path`): whole and within the limits, or says why not.

Another person may have written the file: only ordinary files are read, and only so much of each. Inside
the project every text may be read, outside it only what the user allows.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

import msgspec

from sevenfold.core.messages import strip_half_characters
from sevenfold.storage.files import BINARY, CLOEXEC, NOFOLLOW, make_storage_failure

if TYPE_CHECKING:
    from sevenfold.memory.text.markdown import MarkdownPiece

_PATH: Final[int] = getattr(os, "O_PATH", 0)
_DIRECTORY: Final[int] = getattr(os, "O_DIRECTORY", 0)
_NOFOLLOW_ANY: Final[int] = getattr(os, "O_NOFOLLOW_ANY", 0)
_NONBLOCK: Final[int] = getattr(os, "O_NONBLOCK", 0)
_CHUNK: Final = 1 << 20
_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class FileContent(msgspec.Struct, frozen=True):
    """A file that was read: its bytes, and which file it is under whatever name."""

    data: bytes
    identity: tuple[int, int]


class DecodedText(msgspec.Struct, frozen=True):
    text: str
    mended: bool = False  # Some bytes were no characters and stand as replacement characters


def read_content(real: Path, limit: int) -> FileContent | str:
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
        return str(make_storage_failure(error, real, "read")).partition("could not be read: ")[2]


def _read(fd: int, limit: int) -> FileContent | str:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        return "it is no ordinary file"
    parts, left = [], limit + 1
    while found.st_size <= limit and left > 0 and (part := os.read(fd, min(left, _CHUNK))):
        parts.append(part)
        left -= len(part)
    if found.st_size > limit or left <= 0:
        return f"it is larger than {limit:,} bytes; make it smaller"
    return FileContent(b"".join(parts), (found.st_dev, found.st_ino))


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


def decode_text(data: bytes) -> DecodedText | str:
    """The text of a file whatever editor wrote it, lines ended by a newline alone, or why not."""
    encoding = "utf-16" if data.startswith(_UTF16) else "utf-8-sig"
    try:
        text, mended = data.decode(encoding), False
    except UnicodeDecodeError:
        text, mended = data.decode(encoding, "replace"), True
    if "\0" in text:
        return "it is not a text file"
    return DecodedText(text.replace("\r\n", "\n").replace("\r", "\n"), mended)


_ENDINGS: Final = """
    md mdx mdc markdown txt text rst adoc asciidoc org tex log csv tsv diff patch
    json jsonc json5 yaml yml toml ini cfg conf properties xml html htm css scss less svg
    sql graphql gql proto prisma feature sol tf gradle cmake mk make nix lock
    py pyi js jsx mjs cjs ts tsx mts cts vue svelte rb rake gemspec podspec go rs java kt kts scala
    swift m mm c h cc cpp cxx hpp cs fs vb php pl pm lua r jl ex exs erl hrl clj cljs hs ml mli elm
    dart zig nim el lisp vim sh bash zsh fish ps1 bat cmd j2 tmpl template example sample
"""
_NAMES: Final = """
    readme license licence copying notice authors contributors contributing changelog changes history
    news todo version makefile dockerfile containerfile justfile procfile gemfile rakefile brewfile
    vagrantfile jenkinsfile taskfile codeowners .gitignore .gitattributes .editorconfig .dockerignore
    .prettierrc .eslintrc .nvmrc .tool-versions .python-version
"""
TEXT: Final = frozenset(f".{ending}" for ending in _ENDINGS.split())
"""Endings of files that may be included."""
TEXT_NAMES: Final = frozenset(_NAMES.split())  # Names without an ending that may be included, in any case
SPECIAL: Final = ("/proc", "/sys", "/dev", "/run/secrets", "/var/run/secrets")
"""Folders whose files are no plain files, or hold what only running programs should see."""
OUTSIDE: Final = (
    "it is outside the project, and this folder is not trusted; if you know where it comes from, "
    "run 'sevenfold trust'"
)
SECRET: Final = "files of this name usually hold keys or passwords, and those are never included"
_SHARED_MEMORY: Final = Path("/dev/shm")


class ProjectBorder(msgspec.Struct, frozen=True):
    """The project's edge, and what is never taken."""

    root: Path  # The project's folder, every link followed
    trusted: bool
    forbidden: Callable[[Path], bool]
    own: tuple[Path, ...] = ()  # Folders that are the user's or the machine's, every link followed

    def inside(self, real: Path) -> bool:
        return real.is_relative_to(self.root)

    def refusal(self, asked: Path, real: Path, *, free: bool) -> str:
        """The reason why a file may not be read; empty: it may. `free`: its place does not matter."""
        special = any(real.is_relative_to(place) for place in SPECIAL)
        if special and not real.is_relative_to(_SHARED_MEMORY):
            return "it is no ordinary file"
        if self.secret(asked) or self.secret(real):
            return SECRET
        return "" if free or self.trusted or self.inside(real) else OUTSIDE

    def secret(self, path: Path) -> bool:
        """Judged by its place in the project: where the project itself lies says nothing."""
        return self.forbidden(path.relative_to(self.root) if self.inside(path) else path)

    def frees(self, real: Path, *, free: bool) -> bool:
        """True if a file may itself include from anywhere: the user's may, the project's may not."""
        return free and (not self.inside(real) or any(real.is_relative_to(o) for o in self.own))


def is_text_name(path: Path) -> bool:
    return path.suffix.lower() in TEXT or path.name.lower() in TEXT_NAMES


def normalise_path(path: Path) -> Path:
    """The path with `..` taken at its word. Nothing on the disk is touched."""
    return Path(os.path.normpath(path))


_MENTION: Final = re.compile(
    r"""
    (?<![A-Za-z0-9_.+%/@\\`-])@          # not after a letter: that is an e-mail address
    ((?:\\[ ]|[^\s\\@`<>"|，。；：、！？）】」』”’])
     (?:\\[ ]|[^\s`<>"|，。；：、！？）】」』”’]){0,1023})
    """,
    re.VERBOSE,
)
_TRAILING: Final = ".,;:!?)]}'*_"


def find_mentions(text: str, cut: Sequence[MarkdownPiece]) -> Iterator[tuple[str, ...]]:
    """For each mention outside code and comments the paths it may mean, the likeliest first."""
    for kind, start, end in cut:
        at = text.find("@", start, end) if kind == "text" else -1
        for found in _MENTION.finditer(text, at, end) if at >= 0 else ():
            # As written, without the punctuation of the sentence around it, without `#section`.
            mention = found[1].replace("\\ ", " ")
            bare = mention.rstrip(_TRAILING)
            yield tuple(dict.fromkeys(filter(None, (mention, bare, bare.partition("#")[0]))))


Kind: TypeAlias = Literal["managed", "user", "project", "local", "included", "rule"]

LONG: Final = 40_000  # Characters of one file from which on the user is warned; it is loaded all the same
NAMED: Final = 5  # Files that are named in one warning; the others are counted
_LONGEST_SHOWN: Final = 200
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


class Instruction(msgspec.Struct, frozen=True):
    """The text of one file that tells the model how to work."""

    path: Path
    kind: Kind
    text: str
    paths: tuple[str, ...] = ()  # Of a rule: the globs of the files it is for. Empty: for all.
    why: str = ""  # Its source in words: the owner, or the file that included it


class Instructions(msgspec.Struct, frozen=True):
    """The instructions a conversation opens with, lowest priority first, and those that wait for a file."""

    always: tuple[Instruction, ...] = ()
    conditional: tuple[Instruction, ...] = ()
    warnings: tuple[str, ...] = ()  # Sentences for the user: what was left out, and why


class TouchedInstructions(msgspec.Struct, frozen=True):
    """The instructions found because a file was touched."""

    instructions: tuple[Instruction, ...] = ()
    warnings: tuple[str, ...] = ()


class InstructionLimits(msgspec.Struct, frozen=True):
    """Limits. What is over a limit is left out, and the user is told."""

    characters: int = 400_000  # Of all files of a session together
    file_bytes: int = 1 << 20  # Of one file; a larger one is not read
    all_bytes: int = 2 << 20  # Read from disk in all, also for what is not shown in the end
    files: int = 1_000  # Files opened
    rules: int = 500  # Rule files of one folder
    names: int = 20_000  # Names in one folder of rules; in a fuller one none is looked at
    folders: int = 200  # Folders within one folder of rules
    depth: int = 5  # The longest chain of includes
    mentions: int = 200  # `@path` mentions of one file that are looked up
    lookups: int = 2_000  # The same of all files together
    globs: int = 2_000  # Globs of all rules that wait for a file, `{a,b}` counted as two
    warnings: int = 20  # Remarks about single files


class SuspiciousText(Protocol):
    """Something in a text that the user should look at."""

    @property
    def what(self) -> str: ...
    @property
    def where(self) -> str: ...


class InstructionWarnings:
    """Sentences for the user: each once, no more than can be read, and none hidden by a flood of others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left_out: dict[str, dict[str, None]] = {}
        self._said: dict[str, None] = {}

    def leave_out(self, path: Path | str, why: str, by: Path | None = None) -> None:
        """A file was not loaded; those left out for the same reason share a sentence."""
        asked = f" (asked for by {format_path(by)})" if by else ""
        self._left_out.setdefault(why, {})[format_path(path) + asked] = None

    def add(self, text: str) -> None:
        self._said[text] = None

    def drain(self) -> tuple[str, ...]:
        """The notices since the last time."""
        said: list[str] = []
        for why, paths in self._left_out.items():
            more = f" and {len(paths) - NAMED:,} more" if len(paths) > NAMED else ""
            said.append(f"not loaded: {', '.join(list(paths)[:NAMED])}{more}: {why}")
        said += list(self._said)[: self._most]
        if (rest := len(self._said) - self._most) > 0:
            said.append(f"there are {rest:,} more warnings of this kind about instruction files")
        self._left_out, self._said = {}, {}
        return tuple(said)


def format_path(path: Path | str) -> str:
    """A path as it may stand in a sentence: a hostile name cannot break the line or hide in it."""
    text = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in _INVISIBLE else c
        for c in strip_half_characters(str(path))
    )
    if len(text) <= _LONGEST_SHOWN:
        return text
    half = _LONGEST_SHOWN // 2
    return f"{text[:half]}…{text[-half:]}"


_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL})


class InstructionSource(msgspec.Struct, frozen=True):
    """A file that is to be taken, and in what capacity."""

    path: Path
    kind: Kind
    why: str
    level: str  # Copies within one level count as one file
    free: bool = False  # The user's own: it may be anywhere, and include from anywhere
    start: Path | None = None  # Of a rule: the folder its globs begin at
    by: Path | None = None  # The file that includes it


class CleanedInstruction(msgspec.Struct, frozen=True):
    """A file's text as it will be shown, and which files it mentions."""

    source: InstructionSource
    real: Path
    identity: tuple[int, int]
    copy: tuple[str, bytes]
    text: str
    mentioned: tuple[tuple[str, ...], ...]
    paths: tuple[str, ...] = ()


class InstructionReader:
    """The instructions taken so far in a session. Asked for a file, it answers with what is new."""

    def __init__(
        self,
        border: ProjectBorder,
        user_home: Path,
        limits: InstructionLimits,
        suspicious: Callable[[str], Sequence[SuspiciousText]] | None,
        already: Sequence[str],
    ) -> None:
        self.warnings = InstructionWarnings(limits.warnings)
        self.taken: dict[str, None] = dict.fromkeys(already)
        """Real paths of the files that are in the conversation."""
        self._border, self._user_home, self._limits = border, user_home, limits
        self._suspicious = suspicious
        self._identities: set[tuple[int, int]] = set()
        self._copies: set[tuple[str, bytes]] = set()
        self._characters = self._bytes = self._files = self._lookups = 0

    # --- one file -----------------------------------------------------------------------------------

    def clean(self, source: InstructionSource) -> CleanedInstruction | None:
        """The file without comments and, for a rule, without its head; None: it is not to be taken."""
        real = self._resolved(source.path, source.by)
        if real is None or str(real) in self.taken:
            return None
        content = self._content(source, real)
        decoded = content if isinstance(content, str) else decode_text(content.data)
        if isinstance(content, str) or isinstance(decoded, str):
            self._leave_out(source, str(decoded))
            return None
        # Only comments and the head of a rule can make it smaller: what cannot fit is not looked through.
        room = self._limits.characters
        if not source.start and "<!--" not in decoded.text:
            room -= self._characters
        if len(decoded.text) > room:
            self._leave_out(source, self._too_much)
            return None
        if decoded.mended:
            self.warnings.add(
                f"{format_path(source.path)} is not UTF-8 throughout; what could not be read is shown as "
                "\N{REPLACEMENT CHARACTER}. Save it as UTF-8"
            )
        return self._cleaned(source, real, content, decoded.text)

    @property
    def _too_much(self) -> str:
        return f"all instructions together would exceed {self._limits.characters:,} characters"

    def _content(self, source: InstructionSource, real: Path) -> FileContent | str:
        limits = self._limits
        if why := self._border.refusal(source.path, real, free=source.free):
            return why
        if self._files >= limits.files:
            return f"{limits.files:,} instruction files were read before"
        if self._bytes >= limits.all_bytes:
            return f"{limits.all_bytes:,} bytes of instruction files were read before"
        self._files += 1
        content = read_content(real, limits.file_bytes)
        if isinstance(content, FileContent):
            self._bytes += len(content.data)
        return content

    def _cleaned(
        self, source: InstructionSource, real: Path, content: FileContent, text: str
    ) -> CleanedInstruction:
        from sevenfold.memory.instructions.rules import parse_rule_head
        from sevenfold.memory.text.markdown import find_unclosed_comment, remove_comments, split_pieces

        paths: tuple[str, ...] = ()
        if source.start:
            head = parse_rule_head(text)
            paths, text = head.paths, head.text
            if head.problem:
                self.warnings.add(f"{format_path(source.path)}: {head.problem}")
        cut = split_pieces(text)
        if line := find_unclosed_comment(text, cut):
            self.warnings.add(
                f"{format_path(source.path)}: the comment that begins in line {line} has no end, so the "
                "rest of the file is left out; close it with -->"
            )
        mentioned: list[tuple[str, ...]] = []
        for readings in find_mentions(text, cut):
            if len(mentioned) == self._limits.mentions:
                self.warnings.add(
                    f"{format_path(source.path)}: only its first {len(mentioned):,} @ "
                    "mentions are looked at"
                )
                break
            mentioned.append(readings)
        # The same bytes in one place say the same, unless they speak of files by where they stand.
        level = f"{source.level}\0{source.path.parent}" if mentioned or paths else source.level
        copy = level, hashlib.sha256(content.data).digest()
        clean = remove_comments(text, cut).strip("\n")
        return CleanedInstruction(source, real, content.identity, copy, clean, tuple(mentioned), paths)

    # --- with what it includes ------------------------------------------------------------------------

    def include(self, cleaned: CleanedInstruction, above: tuple[Path, ...] = ()) -> list[Instruction]:
        """A cleaned file as an instruction, with its includes behind it."""
        source = cleaned.source
        copied = cleaned.identity in self._identities or cleaned.copy in self._copies
        if copied or str(cleaned.real) in self.taken:
            return []
        if self._characters + len(cleaned.text) > self._limits.characters:
            self._leave_out(source, self._too_much)
            return []
        self._characters += len(cleaned.text)
        self.taken[str(cleaned.real)] = None
        self._identities.add(cleaned.identity)
        self._copies.add(cleaned.copy)
        found = []
        if cleaned.text.strip():
            self._remark(source, cleaned.text)
            found.append(Instruction(source.path, source.kind, cleaned.text, cleaned.paths, source.why))
        above = (*above, cleaned.real)
        free = self._border.frees(cleaned.real, free=source.free)
        why = f"included by {format_path(source.path)}"
        for path in self._included(cleaned, above, free=free or self._border.trusted):
            included = InstructionSource(path, "included", why, source.level, free, by=source.path)
            if next_one := self.clean(included):
                found += self.include(next_one, above)
        return found

    def _remark(self, source: InstructionSource, text: str) -> None:
        if len(text) > LONG:
            self.warnings.add(
                f"{format_path(source.path)} has {len(text):,} characters; over {LONG:,} it costs much and "
                "is followed less well. Split it into rules with paths"
            )
        if self._suspicious and not source.free:
            found = [f"{one.what} ({one.where})" for one in self._suspicious(text)[:3]]
            if found:
                self.warnings.add(
                    f"{format_path(source.path)} holds text you should look at: "
                    f"{format_path('; '.join(found))}"
                )

    # --- which file a mention means ---------------------------------------------------------------------

    def _included(
        self, cleaned: CleanedInstruction, above: tuple[Path, ...], *, free: bool
    ) -> Iterator[Path]:
        """The files that are mentioned and may be taken; of the others the user is told."""
        by = cleaned.source.path
        for readings in cleaned.mentioned:
            for reading in readings:
                if self._lookups >= self._limits.lookups:
                    why = f"{self._lookups:,} @ mentions were looked up before"
                    self.warnings.leave_out(f"what {format_path(by)} includes", why)
                    return
                self._lookups += 1
                path = by.parent / reading
                if reading == "~" or reading.startswith("~/"):
                    path = normalise_path(self._user_home / reading[2:].lstrip("/"))
                if why := self._out_of_reach(path, reading, free=free):
                    self.warnings.leave_out(path, why, by)
                    break
                real = self._resolved(path, by)
                if real is None:
                    continue
                path = _tidy(path, real)
                if self._wanted(path, real, above, by):
                    yield path
                break

    def _out_of_reach(self, path: Path, reading: str, *, free: bool) -> str:
        """Judged by the words alone: a folder that is not trusted cannot make us touch another."""
        if reading.startswith("//"):
            return "it is on another machine"
        plain = normalise_path(path)
        if free or self._border.inside(plain):
            return ""
        if reading.startswith("/") and not os.path.lexists(Path(*plain.parts[:2])):
            return ""  # `@/components` is how some projects write their own folders
        return SECRET if self._border.secret(plain) else OUTSIDE

    def _wanted(self, path: Path, real: Path, above: tuple[Path, ...], by: Path) -> bool:
        why = ""
        if real in above:
            why = "it is included in a circle"
        elif real.is_dir() or str(real) in self.taken:
            return False
        elif self._border.secret(path) or self._border.secret(real):
            why = SECRET
        elif not is_text_name(real):
            why = "it is not a text file"
        elif len(above) > self._limits.depth:
            why = f"it is more than {self._limits.depth} includes deep"
        if why:
            self.warnings.leave_out(path, why, by)
        return not why

    def _resolved(self, path: Path, by: Path | None) -> Path | None:
        try:
            return Path(os.path.realpath(path, strict=True))
        except OSError as error:
            if error.errno not in _ABSENT:
                self.warnings.leave_out(path, (error.strerror or str(error)).lower(), by)
            elif not by and error.errno == errno.ENOENT and path.is_symlink():
                self.warnings.leave_out(path, "it is a link that leads nowhere")
            return None

    def _leave_out(self, source: InstructionSource, why: str) -> None:
        self.warnings.leave_out(source.path, why, source.by)


def _tidy(path: Path, real: Path) -> Path:
    """The path without `..`, unless that would be another file because a link stands before it."""
    plain = normalise_path(path)
    return plain if os.path.realpath(plain) == str(real) else path
