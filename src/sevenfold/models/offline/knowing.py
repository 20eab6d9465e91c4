"""What is known already: the memories that a directive lists, and whether something new is among them."""

from __future__ import annotations

import re
from html import unescape
from typing import Final

import msgspec

from sevenfold.models.offline.learning import about

ALIKE: Final = 0.6
CLOSE: Final = 0.5
"""The share of their words from which on two statements are, or may be, about the same."""
KNOWN: Final = 0.85
"""The share of its words that stand in a memory from which on a statement is no news."""

_MANIFEST: Final = re.compile(
    r'<manifest folder="(?P<folder>[^"\n]+)">\n?(?P<lines>.*?)</manifest>', re.DOTALL
)
_LINE: Final = re.compile(
    r"- \[(?P<type>[\w-]+)\] (?P<file>.+?\.md) \((?P<day>[^()\n]*)\): (?P<text>.*)"
)
_SINCE: Final = re.compile(r'<since entry="(\d{1,9})"\s*/>')
_SESSION: Final = re.compile(r'<session id="([^"\n]*)"(?: date="([^"\n]*)")?')
_NUMBER: Final = re.compile(r"\d[\d.,:/-]*\d|\d")
_TURNED: Final = re.compile(
    r"\b(?:not|never|no|don['’]?t|doesn['’]?t|isn['’]?t|can['’]?t|cannot|without|stop|avoid|hates?"
    r"|dislikes?)\b|不|别|没|勿|讨厌",
    re.IGNORECASE,
)
_SUBJECT: Final = re.compile(
    r"(?P<subject>the user['’]s .{2,60}?|(?:the |our |their )?[\w' -]{3,60}?)\s+"
    r"(?:is|are|was|will be|moved|starts?|begins?|ends?|has moved|got moved|were)\b"
    r"|the user (?P<does>lives|works|is from|is based|uses|goes by)\b"
    r"|(?P<zh>用户的?\S{2,8}?|\S{2,12}?)(?:是|定在|改到|推迟到|提前到|安排在|为|在)",
    re.IGNORECASE,
)


class Known(msgspec.Struct, frozen=True):
    """A memory as the manifest lists it."""

    type: str
    file: str
    description: str


class Asked(msgspec.Struct, frozen=True):
    """What a directive to look back says besides its words."""

    folder: str
    known: tuple[Known, ...]
    since: int
    session: str
    date: str


def asked_in(body: str) -> Asked | None:
    """The machine-readable part of a directive; None when it has none."""
    found = _MANIFEST.search(body)
    if found is None:
        return None
    lines = (_LINE.fullmatch(line.strip()) for line in found["lines"].split("\n"))
    since, session = _SINCE.search(body), _SESSION.search(body)
    return Asked(
        unescape(found["folder"]),
        tuple(Known(one["type"], one["file"], one["text"]) for one in lines if one),
        int(since[1]) if since else 0,
        unescape(session[1]) if session else "",
        (session[2] or "") if session else "",
    )


def shared(one: str, other: str) -> float:
    """How much two texts are about the same, from 0 to 1."""
    left, right = about(one), about(other)
    both = len(left & right)
    return both / len(left | right) if both else 0.0


def is_known(statement: str, text: str) -> bool:
    """Whether a text says this already: its words, its numbers, and yes or no."""
    said = about(statement)
    there = len(said & about(text))
    numbers = set(_NUMBER.findall(statement)) <= set(_NUMBER.findall(text))
    same_way = bool(_TURNED.search(statement)) == bool(_TURNED.search(text))
    return bool(said) and there >= KNOWN * len(said) and numbers and same_way


def is_news(statement: str, description: str) -> bool:
    """Whether this says something else about what a memory is about."""
    if shared(statement, description) >= ALIKE:
        return True
    one, other = _subject(statement), _subject(description)
    return bool(one) and one == other


def may_be_known(statement: str, known: Known) -> bool:
    """Whether it is worth reading the memory."""
    return shared(statement, known.description) >= CLOSE or is_news(statement, known.description)


def _subject(text: str) -> frozenset[str]:
    """What a statement is about that has one value at a time: a weight, a deadline, a place to live."""
    found = _SUBJECT.match(text)
    if found is None:
        return frozenset()
    if found["does"]:
        return frozenset({found["does"].lower()})
    return about(found["subject"] or found["zh"] or "")
