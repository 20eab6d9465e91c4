"""Where the frontmatter of a memory file begins and ends, and what it says.

Lenient on purpose: a memory with a flaw in its first lines is still a memory. YAML is read as YAML;
what is not quite YAML is read line by line; a block that was never closed ends where the prose begins.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from sevenfold.memory.topics.entries import Entry, line_end
from sevenfold.memory.topics.loose_yaml import indent, key_in, read_loose
from sevenfold.memory.topics.strict_yaml import NotYaml, read_strict

LONGEST: Final = 64 * 1024
"""Characters in which the closing line is looked for."""

_OPENING: Final = re.compile(r"\ufeff?(?:[ \t]*(?:\r\n|\n|\r))*---[ \t]*(?:\r\n|\n|\r|\Z)")
_HEADING: Final = re.compile(r"#{1,6}[ \t]")
_HALVES: Final = re.compile("[\x00\ud800-\udfff]")
_BREAK: Final = re.compile(r"\r\n|\n|\r")


class Frontmatter(msgspec.Struct, frozen=True):
    """The block at the top of a file; the places are offsets into the file's text."""

    start: int
    end: int
    """The lines between the two `---`."""
    body: int
    """Where the body begins, behind the closing line."""
    closed: bool
    entries: tuple[Entry, ...] = ()
    why: str = ""
    """Why a strict YAML reader would refuse it; empty when it would not."""


class _Line(msgspec.Struct, frozen=True):
    text: str
    at: int
    after: int


def find_frontmatter(text: str) -> Frontmatter | None:
    """The frontmatter of a text, or None when it has none; never raises."""
    opening = _OPENING.match(text)
    if opening is None:
        return None
    start = opening.end()
    lines, closing = _until_closing(text, start)
    if closing is not None and not _swallows_a_heading(lines):
        found = _read(text, start, closing)
        if not found.why or not _begins_body(lines):
            return found if _fits(lines) else None
    lines = _without_prose(lines)
    if not lines or not _fits(lines):
        return None
    return _read(text, start, _Line("", lines[-1].after, lines[-1].after), closed=False)


def whole(text: str) -> str:
    """The text without NULs and halves of characters, which stand for bytes that are no UTF-8."""
    return _HALVES.sub("\ufffd", text)


def line_break(text: str) -> str:
    """How this text ends its lines."""
    found = _BREAK.search(text)
    return found.group() if found else "\n"


def _read(text: str, start: int, closing: _Line, *, closed: bool = True) -> Frontmatter:
    """What a block says, and why it is not YAML, if it is not."""
    block = whole(text[start : closing.at])
    why = ""
    try:
        entries = read_strict(block)
    except NotYaml as no:
        entries = read_loose(block)
        line = no.line + len(_BREAK.findall(text, 0, start))
        why = f"{no} (line {line})" if no.line else str(no)
    moved = tuple(one.moved(start) for one in entries)
    return Frontmatter(start, closing.at, closing.after, closed, moved, why)


def _until_closing(text: str, at: int) -> tuple[list[_Line], _Line | None]:
    lines: list[_Line] = []
    limit = min(len(text), at + LONGEST)
    while at < limit:
        after = line_end(text, at)
        line = _Line(text[at:after].rstrip("\r\n"), at, after)
        if line.text.rstrip() in {"---", "..."}:
            return lines, line
        lines.append(line)
        at = after
    return lines, None


def _fits(lines: list[_Line]) -> bool:
    """Whether these lines can be frontmatter at all: the first that says something has a key."""
    for line in lines:
        if line.text.strip() and line.text.lstrip()[0] != "#":
            return key_in(line.text) is not None
    return not any(line.text.strip() for line in lines)


def _begins_body(lines: list[_Line]) -> bool:
    """Whether prose stands between the two `---`: then the first was never closed."""
    blank = True
    for line in lines:
        if blank and line.text.strip() and not _belongs(line.text):
            return True
        blank = not line.text.strip()
    return False


def _belongs(line: str) -> bool:
    return indent(line) > 0 or line[:1] in {"#", "-"} or key_in(line) is not None


def _swallows_a_heading(lines: list[_Line]) -> bool:
    """A heading is a comment to YAML. Between blank lines, or with no key after it, it begins the body."""
    blank = keys = heading = False
    for line in lines:
        empty = not line.text.strip()
        if heading and empty:
            return True
        if key_in(line.text):
            keys, heading = True, False
        elif blank and keys and _HEADING.match(line.text):
            heading = True
        blank = empty
    return heading


def _without_prose(lines: list[_Line]) -> list[_Line]:
    """The first lines, up to the first that is blank or has no key, as far as they can be a block."""
    kept: list[_Line] = []
    for line in lines:
        inside = key_in(line.text) or (kept and indent(line.text) and line.text.strip())
        if not inside:
            break
        kept.append(line)
    return kept
