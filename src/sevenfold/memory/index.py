"""MEMORY.md, the index: one line for each memory, `- [Title](file.md) — hook`.

People write in it too: headings, prose, another order, another bullet. Only pointers are ever added or
removed here, every other line stays as it is, byte for byte.

    reconciled(text, topics)      pointers for what is there, none for what is gone, nothing twice
    over_limit(text)              why a writer may not write it like this; empty when it is fine
    loaded(text, modified)        what a session sees: all of it, or a cut that says what is missing
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, Protocol

import msgspec

from sevenfold.memory.folder.naming import key
from sevenfold.memory.index_limits import CHARACTERS, HOOK, INDEX, LINES, loaded, over_limit
from sevenfold.memory.index_rows import (
    Index,
    Pointer,
    Row,
    pointers_of,
    read_index,
    rows_of,
    separator,
)
from sevenfold.memory.links import Link, target
from sevenfold.memory.topics.frontmatter import line_break, whole
from sevenfold.memory.topics.reading import shortened

__all__ = [
    "CHARACTERS",
    "HOOK",
    "INDEX",
    "LINES",
    "Index",
    "Pointed",
    "Pointer",
    "loaded",
    "missing",
    "over_limit",
    "pointer_line",
    "read_index",
    "reconciled",
]

TITLE: Final = 80
SHORTEST_HOOK: Final = 20
_BULLET: Final = re.compile(r"[ \t]*([-*+])[ \t]")
_ITEM: Final = re.compile(r"\s*(?:[-*+•|#>]|\d{1,3}[.)])")


class Pointed(Protocol):
    """What a pointer is made from; a `Topic` is one."""

    @property
    def file(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...


class _Known(msgspec.Struct, frozen=True):
    """The files there are, by every way a link may name them."""

    files: dict[str, str]
    names: dict[str, str]

    def file(self, link: Link, *, by_name: bool) -> str | None:
        if not by_name:
            return self.files.get(key(link.file))
        return self.names.get(key(link.file)) or self.files.get(key(f"{link.file}.md"))


def reconciled(text: str, topics: Iterable[Pointed], also: Collection[str] = ()) -> str:
    """The index with a pointer for every topic, none to a file that is gone, and nothing said twice.

    `also` are files that exist and may be pointed to but need no pointer here (another index has it).
    The text is returned as it is when nothing has to change. It may be over the limit: ask `over_limit`.
    """
    topics = list(topics)
    known = _known([(one.file, one.name) for one in topics], also)
    kept: list[str] = []
    seen: dict[str, list[Pointer]] = {}
    for row in rows_of(text):
        files = [known.file(link, by_name=row.by_name) for link in row.links]
        said = [(file, one) for file, one in zip(files, pointers_of(row), strict=True) if file]
        if row.pointing and (
            not said or all(_repeats(one, seen.get(file, [])) for file, one in said)
        ):
            continue
        for file, one in said:
            seen.setdefault(file, []).extend([one] if row.pointing else [])
        kept.append(row.text if None not in files or not row.pointing else _without(row, files))
    return _with("".join(kept), [one for one in topics if one.file not in seen])


def _repeats(pointer: Pointer, earlier: list[Pointer]) -> bool:
    """Whether it says no more than an earlier one; a file may be listed under two headings by hand."""
    return any(
        not pointer.hook
        or pointer.hook == one.hook
        or pointer.title.casefold() == one.title.casefold()
        for one in earlier
    )


def missing(text: str, files: Iterable[str], names: Iterable[tuple[str, str]] = ()) -> list[str]:
    """Which of these files the index does not point to: only they have to be read.

    `names` are (file, name) pairs, for indexes that point with `[[name]]`.
    """
    files = list(files)
    known = _known(names, files)
    found = {known.file(link, by_name=row.by_name) for row in rows_of(text) for link in row.links}
    return [file for file in files if file not in found]


def pointer_line(topic: Pointed, bullet: str = "-") -> str:
    """The line for one memory, at most `HOOK` characters unless its title and file alone are longer."""
    title = shortened(_harmless(topic.name).replace("[", "(").replace("]", ")"), TITLE)
    start = f"{bullet} [{title}]({target(topic.file)})"
    hook = _harmless(topic.description)
    room = HOOK - len(start) - len(" — ")
    return f"{start} — {shortened(hook, max(room, SHORTEST_HOOK))}" if hook else start


def _harmless(text: str) -> str:
    """A text of ours must not look like a link or like code to whoever reads the line again."""
    plain = whole(text).replace("`", "'").replace("](", "] (").replace("[[", "[").replace("]]", "]")
    return " ".join(plain.split())


def _known(pairs: Iterable[tuple[str, str]], also: Iterable[str]) -> _Known:
    files = {key(file): file for file in also}
    names: dict[str, str] = {}
    for file, name in pairs:
        files[key(file)] = file
        names.setdefault(key(name), file)
    return _Known(files, names)


def _without(row: Row, files: list[str | None]) -> str:
    """The line without its dead links, each with what belongs to it."""
    text = row.text
    for at in reversed(range(len(row.links))):
        if files[at] is not None:
            continue
        link = row.links[at]
        if at + 1 < len(row.links):
            text = text[: link.start] + text[row.links[at + 1].start :]
        else:
            before = row.links[at - 1].end
            bare = not separator(row.text[before : link.start])
            ending = row.text[len(row.text.rstrip("\r\n")) :]
            text = (
                text[:before] + text[link.end :]
                if bare
                else text[: link.start].rstrip(" \t,;·|/+&、，；") + ending
            )
    return text


def _with(text: str, topics: list[Pointed]) -> str:
    """The text with these pointers at its end, in its own style."""
    if not topics:
        return text
    nl = line_break(text)
    lines = text.rstrip().splitlines()
    bullets = [
        found[1] for row in rows_of(text) if row.pointing and (found := _BULLET.match(row.text))
    ]
    last = lines[-1].lstrip("\ufeff") if lines else ""
    if last and not text.endswith(("\n", "\r")):
        text += nl
    if last and lines[-1] == text.splitlines()[-1] and _ITEM.match(last) is None:
        text += nl  # prose: a list begins behind a blank line
    bullet = bullets[-1] if bullets else "-"
    return text + "".join(pointer_line(topic, bullet) + nl for topic in topics)
