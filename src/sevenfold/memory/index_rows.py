"""The lines of an index: which of them are pointers to memories, and which a person wrote.

A pointer is a list item or table row that begins with a link to a markdown file in the folder, or such
a link at the start of a line with only a hook behind it. Links elsewhere in a line are mentions.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from sevenfold.memory.links import Link, file_links, name_links, without_code

_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_ITEM: Final = re.compile(
    r"\ufeff?[ \t]*(?:>[ \t]*)?(?:[-*+•]|\d{1,3}[.)]|\|)[ \t]*(?:\[[ xX]\][ \t]*)?[^\w\s\[\]()#]{0,4}[ \t]*"
)
_BARE: Final = re.compile(r"\ufeff?[ \t]*(?:\*\*|__|\*|_)?")
_HOOK: Final = re.compile(r"(?:\*\*|__|\*|_)?[ \t]*(?:[—–:：|-].*|[ \t]*)", re.DOTALL)
_SEPARATORS: Final = " \t,;·|/+&*_、，；和"
_LEAD: Final = " \t—–-:：|*_"


class Pointer(msgspec.Struct, frozen=True):
    """A link from the index to a memory."""

    file: str
    title: str
    hook: str
    line: int
    """Counted from 1."""


class Index(msgspec.Struct, frozen=True):
    """An index as it stands."""

    lines: tuple[str, ...]
    """Every line, with its line break."""
    pointers: tuple[Pointer, ...]
    mentions: tuple[Pointer, ...]
    """Links in the middle of hand-written lines: they count as pointing, and are never removed."""


class Row(msgspec.Struct, frozen=True):
    """A line, with the indented text that continues it if it is a pointer."""

    text: str
    number: int
    count: int
    links: tuple[Link, ...]
    pointing: bool
    by_name: bool
    """Whether it points with `[[name]]` and not with a file."""


def read_index(text: str) -> Index:
    """Every line of an index, and where it points; never raises."""
    pointers: list[Pointer] = []
    mentions: list[Pointer] = []
    for row in rows_of(text):
        (pointers if row.pointing else mentions).extend(pointers_of(row))
    return Index(tuple(_LINE.findall(text)), tuple(pointers), tuple(mentions))


def pointers_of(row: Row) -> list[Pointer]:
    """The links of a row, each with what is said about it."""
    found: list[Pointer] = []
    end = len(row.text)
    for link in reversed(row.links):
        hook = row.text[link.end : end].strip().strip(_LEAD).strip()
        found.append(Pointer(link.file, link.title, hook, row.number))
        end = link.start
    return found[::-1]


def rows_of(text: str) -> list[Row]:
    """The lines of an index, in order; joined, they are the text again."""
    lines, plain = _LINE.findall(text), _LINE.findall(without_code(text))
    rows: list[Row] = []
    at = 0
    while at < len(lines):
        files = file_links(plain[at])
        links = files or name_links(plain[at])
        pointing = bool(links) and _points(plain[at], links)
        count = 1
        while pointing and at + count < len(lines) and _continues(plain[at], plain[at + count]):
            count += 1
        whole = "".join(lines[at : at + count])
        rows.append(Row(whole, at + 1, count, tuple(links), pointing, not files))
        at += count
    return rows


def separator(text: str) -> bool:
    """Whether more than a separator stands between two links of one line."""
    return bool(text.strip(_SEPARATORS)) and text.strip().casefold() not in {"and", "und", "or"}


def _points(line: str, links: list[Link]) -> bool:
    before = line[: links[0].start]
    if _ITEM.fullmatch(before):
        return True
    behind = line[links[-1].end :].rstrip("\r\n")
    return _BARE.fullmatch(before) is not None and _HOOK.fullmatch(behind) is not None


def _continues(pointer: str, line: str) -> bool:
    """Whether a line is indented text below a pointer: part of the same list item."""
    stripped = line.strip()
    if not stripped or stripped[0] in "-*+•|#>`~" or stripped[0].isdigit() or "](" in line:
        return False
    return _depth(line) > _depth(pointer) + 1


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" \t\ufeff"))
