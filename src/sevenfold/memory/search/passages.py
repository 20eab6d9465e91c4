"""A memory cut into the pieces that are scored: a long text is found by its best place.

A piece is a run of whole paragraphs or of short turns of a conversation, up to a size; a paragraph that is
longer is cut at a line, a sentence or a space. Where the text is a conversation of a user and an assistant,
no piece holds both, and what the assistant said counts for less: it is long, and it says many things that
are true of nobody here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

SIZE: Final = 300
"""Characters a piece has at most."""
MOST: Final = 96
"""Pieces a text has at most: what lies behind them is found by the words of the whole text."""
ASSISTANT: Final = 0.5
"""What a piece counts that an assistant said."""

_BREAK: Final = re.compile(
    r"\n\s*\n|\n(?=#{1,6} )|\n(?=[*_]{0,2}[^\W\d][\w .'-]{0,30}[*_]{0,2}[:：]\s)"
)
"""Between paragraphs, before a heading, before a line that somebody says (`Anna: …`)."""
_SENTENCE: Final = re.compile(r"\n|(?<=[.!?;]) |(?<=[。！？；])")
_USER: Final = "user|human|用户|用戶"
_OTHER: Final = "assistant|ai|bot|model|chatgpt|claude|助手|助理"
_ROLE: Final = re.compile(
    rf"(?mi)^[^\w\n]{{0,8}}({_USER}|{_OTHER})\b(?:[ \t]*\([^)\n]{{0,40}}\))?[^\w\n]{{0,4}}(?:[:：\]]|$)"
    rf'|(?:\{{\s*)?"role"\s*:\s*"({_USER}|{_OTHER})"'
)
"""Where a turn begins: `user: …`, `**Assistant:** …`, `## User`, `[assistant] …`, `"role": "user"`."""


class Passage(msgspec.Struct, frozen=True):
    """A piece of a text: from `start` up to `end`, in characters, and how much it counts."""

    start: int
    end: int
    text: str
    weight: float = 1.0


def passages(text: str, *, size: int = SIZE, most: int = MOST) -> list[Passage]:
    """The pieces of this text in their order; an empty text has none."""
    found: list[Passage] = []
    for begin, finish, weight in _turns(text):
        for start, end in _packed(text, begin, finish, size):
            if text[start:end].strip():
                found.append(Passage(start, end, text[start:end], weight))
            if len(found) == most:
                return found
    return found


def _turns(text: str) -> Iterator[tuple[int, int, float]]:
    """The turns of a conversation with an assistant; anything else is one turn."""
    starts = [(match.start(), (match[1] or match[2]).lower()) for match in _ROLE.finditer(text)]
    users = set(_USER.split("|"))
    voices = {who in users for _, who in starts}
    if voices != {True, False}:
        yield 0, len(text), 1.0
        return
    if starts[0][0] > 0:
        yield 0, starts[0][0], 1.0
    ends = [at for at, _ in starts[1:]] + [len(text)]
    for (start, who), end in zip(starts, ends, strict=True):
        yield start, end, 1.0 if who in users else ASSISTANT


def _packed(text: str, begin: int, finish: int, size: int) -> Iterator[tuple[int, int]]:
    """Neighbouring parts together, as long as they fit."""
    start = end = begin
    for first, last in _parts(text, begin, finish, size):
        if last - start > size and end > start:
            yield start, end
            start = first
        end = last
    if end > start:
        yield start, end


def _parts(text: str, begin: int, finish: int, size: int) -> Iterator[tuple[int, int]]:
    """Paragraphs and lines of speech, none longer than `size`."""
    cuts = [match.end() for match in _BREAK.finditer(text, begin, finish)]
    for start, end in zip([begin, *cuts], [*cuts, finish], strict=True):
        at = start
        while end - at > size:
            cut = _last_cut(text, at, at + size)
            yield at, cut
            at = cut
        if end > at:
            yield at, end


def _last_cut(text: str, start: int, end: int) -> int:
    """The best place to end a piece: after a sentence, else after a word, else right here."""
    cuts = [match.end() for match in _SENTENCE.finditer(text, start + 1, end)]
    if cuts:
        return cuts[-1]
    space = text.rfind(" ", start + 1, end)
    return space + 1 if space > start else end
