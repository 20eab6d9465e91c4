"""Takes one instruction file with what it includes: once, whole, within the limits, or says why not."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.memory.instructions.border import OUTSIDE, SECRET, Border, is_text_name, lexical
from sevenfold.memory.instructions.markdown import pieces, unclosed, without_comments
from sevenfold.memory.instructions.mentions import mentions
from sevenfold.memory.instructions.reading import Content, decode, read
from sevenfold.memory.instructions.rules import read_head
from sevenfold.memory.instructions.values import (
    LONG,
    Instruction,
    Kind,
    Limits,
    Suspicion,
    Warnings,
    shown,
)

_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL})


class Source(msgspec.Struct, frozen=True):
    """A file that is to be taken, and in what capacity."""

    path: Path
    kind: Kind
    why: str
    level: str
    """Copies within one level count as one file."""
    free: bool = False
    """The user's own: it may be anywhere, and include from anywhere."""
    start: Path | None = None
    """Of a rule: the folder its globs begin at."""
    by: Path | None = None
    """The file that includes it."""


class Cleaned(msgspec.Struct, frozen=True):
    """A file's text as it will be shown, and which files it mentions."""

    source: Source
    real: Path
    identity: tuple[int, int]
    copy: tuple[str, bytes]
    text: str
    mentioned: tuple[tuple[str, ...], ...]
    paths: tuple[str, ...] = ()


class Taking:
    """What was taken so far in a session. Asked for a file, it answers with what is new."""

    def __init__(
        self,
        border: Border,
        user_home: Path,
        limits: Limits,
        suspicious: Callable[[str], Sequence[Suspicion]] | None,
        already: Sequence[str],
    ) -> None:
        self.warnings = Warnings(limits.warnings)
        self.taken: dict[str, None] = dict.fromkeys(already)
        """Real paths of the files that are in the conversation."""
        self._border, self._user_home, self._limits = border, user_home, limits
        self._suspicious = suspicious
        self._identities: set[tuple[int, int]] = set()
        self._copies: set[tuple[str, bytes]] = set()
        self._characters = self._bytes = self._files = self._lookups = 0

    # --- one file -----------------------------------------------------------------------------------

    def clean(self, source: Source) -> Cleaned | None:
        """The file without comments and, for a rule, without its head; None: it is not to be taken."""
        real = self._resolved(source.path, source.by)
        if real is None or str(real) in self.taken:
            return None
        content = self._content(source, real)
        if isinstance(content, str):
            self._leave_out(source, content)
            return None
        decoded = decode(content.data)
        if isinstance(decoded, str):
            self._leave_out(source, decoded)
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
                f"{shown(source.path)} is not UTF-8 throughout; what could not be read is shown as "
                "\N{REPLACEMENT CHARACTER}. Save it as UTF-8"
            )
        return self._cleaned(source, real, content, decoded.text)

    @property
    def _too_much(self) -> str:
        return f"all instructions together would exceed {self._limits.characters:,} characters"

    def _content(self, source: Source, real: Path) -> Content | str:
        limits = self._limits
        if why := self._border.refusal(source.path, real, free=source.free):
            return why
        if self._files >= limits.files:
            return f"{limits.files:,} instruction files were read before"
        if self._bytes >= limits.all_bytes:
            return f"{limits.all_bytes:,} bytes of instruction files were read before"
        self._files += 1
        content = read(real, limits.file_bytes)
        if isinstance(content, Content):
            self._bytes += len(content.data)
        return content

    def _cleaned(self, source: Source, real: Path, content: Content, text: str) -> Cleaned:
        paths: tuple[str, ...] = ()
        if source.start:
            head = read_head(text)
            paths, text = head.paths, head.text
            if head.problem:
                self.warnings.add(f"{shown(source.path)}: {head.problem}")
        cut = pieces(text)
        if line := unclosed(text, cut):
            self.warnings.add(
                f"{shown(source.path)}: the comment that begins in line {line} has no end, so the "
                "rest of the file is left out; close it with -->"
            )
        mentioned: list[tuple[str, ...]] = []
        for readings in mentions(text, cut):
            if len(mentioned) == self._limits.mentions:
                self.warnings.add(
                    f"{shown(source.path)}: only its first {len(mentioned):,} @ mentions are looked at"
                )
                break
            mentioned.append(readings)
        # The same bytes in one place say the same, unless they speak of files by where they stand.
        level = f"{source.level}\0{source.path.parent}" if mentioned or paths else source.level
        copy = level, hashlib.sha256(content.data).digest()
        clean = without_comments(text, cut).strip("\n")
        return Cleaned(source, real, content.identity, copy, clean, tuple(mentioned), paths)

    # --- with what it includes ------------------------------------------------------------------------

    def take(self, source: Source) -> list[Instruction]:
        """The file and, after it, what it includes; nothing when it is there already or refused."""
        cleaned = self.clean(source)
        return self.include(cleaned) if cleaned else []

    def include(self, cleaned: Cleaned, above: tuple[Path, ...] = ()) -> list[Instruction]:
        """A cleaned file as an instruction, with its includes behind it."""
        source = cleaned.source
        if not self._is_new(cleaned):
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
            found.append(
                Instruction(source.path, source.kind, cleaned.text, cleaned.paths, source.why)
            )
        above = (*above, cleaned.real)
        free = self._border.frees(cleaned.real, free=source.free)
        why = f"included by {shown(source.path)}"
        for path in self._included(cleaned, above, free=free or self._border.trusted):
            included = Source(path, "included", why, source.level, free, by=source.path)
            if next_one := self.clean(included):
                found += self.include(next_one, above)
        return found

    def _is_new(self, cleaned: Cleaned) -> bool:
        return not (
            str(cleaned.real) in self.taken
            or cleaned.identity in self._identities
            or cleaned.copy in self._copies
        )

    def _remark(self, source: Source, text: str) -> None:
        if len(text) > LONG:
            self.warnings.add(
                f"{shown(source.path)} has {len(text):,} characters; over {LONG:,} it costs much and "
                "is followed less well. Split it into rules with paths"
            )
        if self._suspicious and not source.free:
            found = [f"{one.what} ({one.where})" for one in self._suspicious(text)[:3]]
            if found:
                self.warnings.add(
                    f"{shown(source.path)} holds text you should look at: {shown('; '.join(found))}"
                )

    # --- which file a mention means ---------------------------------------------------------------------

    def _included(self, cleaned: Cleaned, above: tuple[Path, ...], *, free: bool) -> Iterator[Path]:
        """The files that are mentioned and may be taken; of the others the user is told."""
        by = cleaned.source.path
        for readings in cleaned.mentioned:
            for reading in readings:
                if self._lookups >= self._limits.lookups:
                    why = f"{self._lookups:,} @ mentions were looked up before"
                    self.warnings.leave_out(f"what {shown(by)} includes", why)
                    return
                self._lookups += 1
                path = self._meant(by, reading)
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

    def _meant(self, by: Path, reading: str) -> Path:
        if reading == "~" or reading.startswith("~/"):
            return lexical(self._user_home / reading[2:].lstrip("/"))
        return by.parent / reading

    def _out_of_reach(self, path: Path, reading: str, *, free: bool) -> str:
        """Judged by the words alone: a folder that is not trusted cannot make us touch another."""
        if reading.startswith("//"):
            return "it is on another machine"
        plain = lexical(path)
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
        """Where the path leads, if anything is there."""
        try:
            return Path(os.path.realpath(path, strict=True))
        except OSError as error:
            if error.errno not in _ABSENT:
                why = (error.strerror or str(error)).lower()
                self.warnings.leave_out(path, why, by)
            elif not by and error.errno == errno.ENOENT and path.is_symlink():
                self.warnings.leave_out(path, "it is a link that leads nowhere")
            return None

    def _leave_out(self, source: Source, why: str) -> None:
        self.warnings.leave_out(source.path, why, source.by)


def _tidy(path: Path, real: Path) -> Path:
    """The path without `..`, unless that would be another file because a link stands before it."""
    plain = lexical(path)
    return plain if os.path.realpath(plain) == str(real) else path
