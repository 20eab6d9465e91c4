"""Reads Markdown: its blocks with their places, and its code and comments.

It follows CommonMark where it matters here: fences of backticks or tildes, code spans, indented code
outside lists, comments that begin a line and comments within one. A fence may be closed at any depth,
because people who indent one forget to indent its end. Every text takes time in proportion to its length.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

_PREFIX: Final = re.compile(r"(?:[ \t]*(?:>|[-*+][ \t]|\d{1,9}[.)][ \t]))*[ \t]*")
_QUOTED: Final = re.compile(r"(?:[ \t]*>)*[ \t]*")
_FENCE: Final = re.compile(r"(`{3,})[^`\n]*$|(~{3,})", re.MULTILINE)
_ENDING: Final = re.compile(r"(`{3,}|~{3,})[ \t\r]*$", re.MULTILINE)
_OWN_LINE: Final = re.compile(r"[ \t]*(?:[-*+][ \t]|\d{1,9}[.)][ \t]|#{1,6}[ \t]|>|\|)")
_LIST: Final = re.compile(r"[ \t]*(?:>[ \t]*)*(?:[-*+]|\d{1,9}[.)])[ \t]")
_SPECIAL: Final = re.compile(r"[`~<]")
_BLANK: Final = re.compile(r"(?:[^\S\n]*\n)+|[^\S\n]+\Z")
_INDENTED: Final = re.compile(r"(?: {4}| {0,3}\t)")
_TOKENS: Final = re.compile(r"`+|<!--")
_CLOSE: Final = "-->"
_EMPTY: Final = ("<!-->", "<!--->")
_GONE: Final = "\0"
"""Stands for a comment while lines are put together; no text that is read here holds one."""
_ONLY_GONE: Final = re.compile(r"^[ \t]*(?:\0[ \t]*)+(?:\n|\Z)", re.MULTILINE)
_LETTER: Final = re.compile(r"[^\r\n]")
_HEADING: Final = re.compile(r"[ ]{0,3}(#{1,6})[ \t]+(.*?)[ \t#]*")
_ITEM: Final = re.compile(r"[ \t]*(?:>[ \t]*)*(?:[-*+•]|\d{1,3}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
_QUOTE: Final = re.compile(r"[ \t]*(?:>[ \t]*)+")
_RULE: Final = re.compile(r"[ \t]*(?:[-*_=][ \t]*){3,}|[ \t|:-]+")


class MarkdownBlock(msgspec.Struct, frozen=True):
    """A heading, a paragraph, a list item, a table row or a line of code."""

    form: Literal["prose", "heading", "row", "code"]
    start: int
    end: int  # Its place in the text, without the marks of a list or a quotation before it
    text: str  # Its lines without those marks, joined by a space
    under: str  # The heading above it; empty for a heading
    level: int = 0  # The number of signs of a heading


def split_blocks(text: str) -> Iterator[MarkdownBlock]:
    """The blocks of a text in their order. A fence that is never closed runs to the end."""
    under, fence, at = "", "", 0
    prose: list[MarkdownBlock] = []
    for line in text.split("\n"):
        end = at + len(line)
        before, fence = fence, _follow_fence(fence, text, at, end)
        lead = None if before or fence else _ITEM.match(line)
        heading = None if before or fence else _HEADING.fullmatch(line)
        blank = not line.strip() or (not before and _RULE.fullmatch(line) is not None)
        row = line.lstrip().startswith("|")
        if prose and (lead or heading or before or fence or blank or row):
            yield _join_lines(prose)
            prose = []
        if heading:
            under = heading[2].strip()
            yield MarkdownBlock("heading", at, end, under, "", len(heading[1]))
        elif before != fence or blank:
            pass
        elif fence or row:
            yield MarkdownBlock("code" if fence else "row", at, end, line.strip(), under)
        else:
            lead = lead or _QUOTE.match(line)
            said = line[lead.end() if lead else 0 :]
            start = end - len(said.lstrip())
            prose.append(MarkdownBlock("prose", start, start + len(said.strip()), said.strip(), under))
        at = end + 1
    if prose:
        yield _join_lines(prose)


def _join_lines(lines: list[MarkdownBlock]) -> MarkdownBlock:
    first, text = lines[0], " ".join(line.text for line in lines)
    return MarkdownBlock("prose", first.start, lines[-1].end, text, first.under)


def find_heading_level(line: str) -> int:
    """The number of signs of a heading; 0 for every other line."""
    heading = _HEADING.fullmatch(line)
    return len(heading[1]) if heading else 0


def has_open_fence(text: str) -> bool:
    """True if a text ends within a fence."""
    fence, at = "", 0
    for line in text.split("\n"):
        fence = _follow_fence(fence, text, at, at + len(line))
        at += len(line) + 1
    return bool(fence)


def _follow_fence(fence: str, text: str, at: int, end: int) -> str:
    """The fence that is open after a line."""
    if fence:
        ending = _ENDING.match(text, _after(_QUOTED, text, at, end), end)
        closes = ending and ending[1][0] == fence[0] and len(ending[1]) >= len(fence)
        return "" if closes else fence
    opened = _FENCE.match(text, _after(_PREFIX, text, at, end), end)
    return (opened[1] or opened[2]) if opened else ""


class MarkdownPiece(NamedTuple):
    kind: Literal["text", "code", "comment"]
    start: int
    end: int


def split_pieces(text: str, *, loose: bool = False) -> list[MarkdownPiece]:
    """The whole text, cut where its kind changes; put together again it is the same text.

    `loose` takes a fence that is never closed for text, else it would hide everything that is added
    later, and indented lines too.
    """
    return list(_MarkdownCutter(text, loose).pieces())


def blank_out_code(text: str) -> str:
    """The same text with code blanked out, every other character where it was."""
    if "`" not in text and "~~~" not in text:
        return text
    cut = split_pieces(text, loose=True)
    return "".join(
        _LETTER.sub(" ", text[p.start : p.end]) if p.kind == "code" else text[p.start : p.end] for p in cut
    )


def remove_comments(text: str, cut: Sequence[MarkdownPiece]) -> str:
    """The text without its comments; a line that held nothing else goes with them."""
    if not any(piece.kind == "comment" for piece in cut):
        return text
    kept = "".join(_GONE if p.kind == "comment" else text[p.start : p.end] for p in cut)
    return _ONLY_GONE.sub("", kept).replace(_GONE, "")


def find_unclosed_comment(text: str, cut: Sequence[MarkdownPiece]) -> int | None:
    """The line in which a comment begins that has no end, if there is one."""
    last = cut[-1] if cut else None
    if not last or last.kind != "comment" or text.startswith(_EMPTY, last.start):
        return None
    closed = text.endswith(_CLOSE, last.start + 4, last.end)
    return None if closed else text.count("\n", 0, last.start) + 1


class _MarkdownCutter:
    """Goes through the lines once; a paragraph is looked into when its end has come."""

    def __init__(self, text: str, loose: bool) -> None:
        self._text, self._loose = text, loose
        self._paragraph = -1
        self._plain = True  # Nothing in the paragraph so far can begin code or a comment
        self._fence = ""
        self._fences = True  # False behind a fence that is never closed and counts as text
        self._in_list = False
        self._after_blank = True

    def pieces(self) -> Iterator[MarkdownPiece]:
        at, text = 0, self._text
        while at < len(text):
            end = text.find("\n", at) + 1 or len(text)
            if not self._fence and (blank := _BLANK.match(text, at)):
                yield from self._flushed(at)
                end, self._after_blank = blank.end(), True
                yield MarkdownPiece("text", at, end)
            elif self._is_code(at, end, plain := not _SPECIAL.search(text, at, end)):
                yield from self._flushed(at)
                yield MarkdownPiece("code", at, end)
                self._after_blank = True
            elif not plain and (comment := self._comment(at, end)):
                yield from self._flushed(at)
                if comment.start > at:
                    yield MarkdownPiece("text", at, comment.start)
                yield comment
                end, self._after_blank = comment.end, False
            else:
                yield from self._line(at, end)
                self._plain = self._plain and plain
            at = end
        yield from self._flushed(at)

    def _line(self, at: int, end: int) -> Iterator[MarkdownPiece]:
        line = self._text[at:end]
        if _LIST.match(line):
            self._in_list = True
        elif line.startswith("#") or (self._after_blank and not line[0].isspace()):
            self._in_list = False
        if _OWN_LINE.match(line):
            yield from self._flushed(at)
        if self._paragraph < 0:
            self._paragraph = at
        self._after_blank = False

    def _is_code(self, at: int, end: int, plain: bool) -> bool:
        text = self._text
        if self._fence:
            self._fence = _follow_fence(self._fence, text, at, end)
            return True
        if not self._loose and self._after_blank and not self._in_list and _INDENTED.match(text, at, end):
            return True
        if plain or not self._fences:
            return False
        self._fence = _follow_fence("", text, at, end)
        if self._fence and self._loose and not _is_closed(self._fence, text, end):
            self._fence, self._fences = "", False
        return bool(self._fence)

    def _comment(self, at: int, end: int) -> MarkdownPiece | None:
        """A comment that begins a line runs to its end, over whatever lies between.

        Without an end it runs to the end of the file, as it does wherever such a file is shown.
        """
        text, start = self._text, _after(_PREFIX, self._text, at, end)
        if not text.startswith("<!--", start):
            return None
        stop = _comment_end(text, start, len(text))
        if not stop and text[at:start].strip():
            return None  # in a list or a quotation it would end there: the paragraph decides
        return MarkdownPiece("comment", start, stop or len(text))

    def _flushed(self, end: int) -> Iterator[MarkdownPiece]:
        start, self._paragraph = self._paragraph, -1
        plain, self._plain = self._plain, True
        if 0 <= start < end:
            yield from ([MarkdownPiece("text", start, end)] if plain else _inline(self._text, start, end))


def _is_closed(fence: str, text: str, at: int) -> bool:
    ending = rf"^{_QUOTED.pattern}{re.escape(fence)}{fence[0]}*[ \t\r]*$"
    return re.compile(ending, re.MULTILINE).search(text, at) is not None


def _after(pattern: re.Pattern[str], text: str, at: int, end: int) -> int:
    found = pattern.match(text, at, end)
    return found.end() if found else at


def _comment_end(text: str, start: int, limit: int) -> int:
    """The end of the comment that begins here; 0: none before the limit."""
    if short := next((one for one in _EMPTY if text.startswith(one, start)), ""):
        return start + len(short)
    close = text.find(_CLOSE, start + 4, limit)
    return close + len(_CLOSE) if close >= 0 else 0


def _is_escaped(text: str, at: int) -> bool:
    before = at
    while before and text[before - 1] == "\\":
        before -= 1
    return (at - before) % 2 == 1


def _inline(text: str, start: int, end: int) -> Iterator[MarkdownPiece]:
    """Code spans and comments within a paragraph; what begins first counts."""
    tokens = [found.span() for found in _TOKENS.finditer(text, start, end)]
    runs: dict[int, list[int]] = {}
    for a, b in tokens:
        if text[a] == "`":
            runs.setdefault(b - a, []).append(a)
    at, last_close = start, text.rfind(_CLOSE, start, end)
    for first, b in tokens:
        if first < at:
            continue
        a, stop = first + _is_escaped(text, first), 0  # within code a backslash is a letter
        if a < b and text[a] == "`":
            same = runs.get(b - a, [])
            later = bisect_right(same, a)
            stop = same[later] + b - a if later < len(same) else 0
        elif text.startswith("<", a) and a < last_close:
            stop = _comment_end(text, a, end)
        if stop:
            if a > at:
                yield MarkdownPiece("text", at, a)
            yield MarkdownPiece("code" if text[a] == "`" else "comment", a, stop)
            at = stop
    if at < end:
        yield MarkdownPiece("text", at, end)
