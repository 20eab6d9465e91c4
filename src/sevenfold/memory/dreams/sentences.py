"""Cuts a markdown text into list items and paragraphs, and those into sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

_HEADING: Final = re.compile(r"[ ]{0,3}(#{1,6})[ \t]+(.*?)[ \t#]*")
_ITEM: Final = re.compile(r"[ \t]*(?:>[ \t]*)*(?:[-*+•]|\d{1,3}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
_QUOTE: Final = re.compile(r"[ \t]*(?:>[ \t]*)+")
_FENCE: Final = re.compile(r"[ \t]*(`{3,}|~{3,})")
_RULE: Final = re.compile(r"[ \t]*(?:[-*_=][ \t]*){3,}|[ \t|:-]+")
_END: Final = re.compile(
    r"(?<=[.!?])[\"'”’)\]*_]{0,3}\s+(?=[\"'“‘(\[*_`]{0,3}[A-Z0-9])|(?<=[。！？；])"
)
_ABBREVIATED: Final = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx|no|nr|dr|mr|mrs|ms|st)\.$", re.I)


class Block(msgspec.Struct, frozen=True):
    """A paragraph, a list item, a table row or a line of code, and the heading it stands under."""

    text: str
    under: str


def blocks_of(body: str) -> Iterator[Block]:
    """The blocks of a text in their order; a heading with nothing under it is one too."""
    reader = _Reader()
    for line in body.split("\n"):
        yield from reader.line(line)
    yield from reader.end()


class _Reader:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._under, self._level = "", 0
        self._bare = False
        self._fence = ""

    def line(self, line: str) -> Iterator[Block]:
        if fence := _FENCE.match(line):
            yield from self._closed()
            if not self._fence:
                self._fence = fence[1]
            elif fence[1].startswith(self._fence):
                self._fence = ""
        elif self._fence:
            yield from self._alone(line.strip())
        elif heading := _HEADING.fullmatch(line):
            if len(heading[1]) > self._level:  # a part of what the one above announces
                yield from self._closed()
            else:
                yield from self.end()
            self._level, self._under, self._bare = len(heading[1]), heading[2].strip(), True
        elif not line.strip() or _RULE.fullmatch(line):
            yield from self._closed()
        elif line.lstrip().startswith("|"):
            yield from self._alone(line.strip(" \t|"))
        else:
            lead = _ITEM.match(line)
            if lead:
                yield from self._closed()
            lead = lead or _QUOTE.match(line)
            self._lines.append(line[lead.end() if lead else 0 :].strip())

    def end(self) -> Iterator[Block]:
        yield from self._closed()
        if self._bare and self._under:
            yield Block(self._under, "")
        self._bare = False

    def _alone(self, text: str) -> Iterator[Block]:
        yield from self._closed()
        self._lines = [text] if text else []
        yield from self._closed()

    def _closed(self) -> Iterator[Block]:
        if self._lines:
            self._bare = False
            yield Block(" ".join(self._lines), self._under)
            self._lines = []


def sentences_of(text: str) -> list[str]:
    """The sentences of a block; where in doubt, two are one."""
    found: list[str] = []
    start = 0
    for end in _END.finditer(text):
        if not _ABBREVIATED.search(text[start : end.start()]):
            found.append(text[start : end.end()].strip())
            start = end.end()
    found.append(text[start:].strip())
    return [one for one in found if one]
