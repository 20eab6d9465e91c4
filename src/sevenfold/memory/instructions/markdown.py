"""Tells the text of a Markdown file from its code and its comments.

A mention in code is an example and a comment in code is code, so both must be known before either is
looked for. This follows CommonMark where it matters here: fences of backticks or tildes, code spans,
indented code outside lists, comments that begin a line and comments within one. A fence may be
closed at any depth, because people who indent one forget to indent its end. Every text takes time in
proportion to its length.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

_PREFIX: Final = re.compile(r"(?:[ \t]*(?:>|[-*+][ \t]|\d{1,9}[.)][ \t]))*[ \t]*")
_QUOTED: Final = re.compile(r"(?:[ \t]*>)*[ \t]*")
_FENCE: Final = re.compile(r"(`{3,})[^`\n]*$|(~{3,})", re.MULTILINE)
_ENDING: Final = re.compile(r"(`{3,}|~{3,})[ \t]*$", re.MULTILINE)
_OWN_LINE: Final = re.compile(r"[ \t]*(?:[-*+][ \t]|\d{1,9}[.)][ \t]|#{1,6}[ \t]|>|\|)")
_LIST: Final = re.compile(r"[ \t]*(?:>[ \t]*)*(?:[-*+]|\d{1,9}[.)])[ \t]")
_SPECIAL: Final = re.compile(r"[`~<]")
_BLANK: Final = re.compile(r"(?:[^\S\n]*\n)+|[^\S\n]+\Z")
_INDENTED: Final = re.compile(r"(?: {4}| {0,3}\t)")
_TOKENS: Final = re.compile(r"\\[`<]|`+|<!--")
_CLOSE: Final = "-->"
_EMPTY: Final = ("<!-->", "<!--->")
_GONE: Final = "\0"
"""Stands for a comment while lines are put together; no text that is read here holds one."""
_ONLY_GONE: Final = re.compile(r"^[ \t]*(?:\0[ \t]*)+(?:\n|\Z)", re.MULTILINE)


class MarkdownPiece(NamedTuple):
    kind: Literal["text", "code", "comment"]
    start: int
    end: int


def split_pieces(text: str) -> list[MarkdownPiece]:
    """The whole text, cut where its kind changes; put together again it is the same text."""
    return list(_MarkdownCutter(text).pieces())


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
    if text.endswith(_CLOSE, last.start + 4, last.end):
        return None
    return text.count("\n", 0, last.start) + 1


class _MarkdownCutter:
    """Goes through the lines once; a paragraph is looked into when its end has come."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._paragraph = -1
        self._plain = True
        """Nothing in the paragraph so far can begin code or a comment."""
        self._fence = ""
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
            if found := _ENDING.match(text, _after(_QUOTED, text, at, end), end):
                mark = found[1]
                if mark[0] == self._fence[0] and len(mark) >= len(self._fence):
                    self._fence = ""
            return True
        if self._after_blank and not self._in_list and _INDENTED.match(text, at, end):
            return True
        if plain:
            return False
        if found := _FENCE.match(text, _after(_PREFIX, text, at, end), end):
            self._fence = found[1] or found[2]
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


def _after(pattern: re.Pattern[str], text: str, at: int, end: int) -> int:
    found = pattern.match(text, at, end)
    return found.end() if found else at


def _comment_end(text: str, start: int, limit: int) -> int:
    """Where the comment that begins here is over; 0: nowhere before the limit."""
    for short in _EMPTY:
        if text.startswith(short, start):
            return start + len(short)
    close = text.find(_CLOSE, start + 4, limit)
    return close + len(_CLOSE) if close >= 0 else 0


def _inline(text: str, start: int, end: int) -> Iterator[MarkdownPiece]:
    """Code spans and comments within a paragraph; what begins first counts."""
    tokens = [m.span() for m in _TOKENS.finditer(text, start, end) if text[m.start()] != "\\"]
    runs: dict[int, list[int]] = {}
    for a, b in tokens:
        if text[a] == "`":
            runs.setdefault(b - a, []).append(a)
    at, last_close = start, text.rfind(_CLOSE, start, end)
    for a, b in tokens:
        if a < at:
            continue
        if text[a] == "`":
            same = runs[b - a]
            later = bisect_right(same, a)
            stop = same[later] + b - a if later < len(same) else 0
        else:
            stop = _comment_end(text, a, end) if a < last_close else 0
        if stop:
            if a > at:
                yield MarkdownPiece("text", at, a)
            yield MarkdownPiece("code" if text[a] == "`" else "comment", a, stop)
            at = stop
    if at < end:
        yield MarkdownPiece("text", at, end)
