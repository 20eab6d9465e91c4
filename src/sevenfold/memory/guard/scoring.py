"""Adds up the signs of an attack that stand close together, by the table in `signals.toml`."""

from __future__ import annotations

import functools
import itertools
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

TABLE: Final = Path(__file__).with_name("signals.toml")

_SPACE: Final = r"(?:[\s*_`\"'“”‘’>#,，-]{1,6})"
"""What a space in a pattern stands for: emphasis, quotes and line breaks do not change what is said."""
_CLASS_OR_SPACE: Final = re.compile(r"\[(?:\\.|[^\]\\])*\]|\\\\|\\ | ")
_DENIED: Final = re.compile(
    r"(?:\b(?:not|never|n.t|cannot|avoid|without|refuses? to|must not|prevents?|forbidden to|instead of|"
    r"rather than|no|nor|stop|stops|catch(?:es)?|detects?|rejects?|blocks?|against|attempts? to|tries to)"
    r"|不要|不得|禁止|切勿|不能|别|防止|避免|拒绝|检测|尝试)[\s`\"'*]{0,3}$"
)
_MENTIONED: Final = re.compile(
    r"(?:e\.g\.|for example|such as|phrases?|like|contain(?:s|ing)?|payloads?|injections?|attacks?|"
    r"detect\w*|strings?|patterns?|examples?|例如|比如|攻击|注入|样例|检测)[^.\n]{0,40}[\"'`“‘「(]+[^\"'`“”「」\n]{0,60}$"
)
_BEFORE: Final = 90
_WHO: Final = re.compile(r"[\s:]")
_CHINESE: Final = re.compile("[\u4e00-\u9fff]")
SUPPORTING: Final = 3.0
"""A sign that weighs less counts only beside one that weighs this much."""
_MOST: Final = 40
"""Matches of one sign that are looked at."""


class Signal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table."""

    name: str
    weight: float
    said: str
    words: tuple[str, ...]
    patterns: tuple[str, ...]
    denied: bool = False


class _Table(msgspec.Struct, frozen=True):
    window: int
    thresholds: dict[str, float]
    signal: tuple[Signal, ...]


class Hit(msgspec.Struct, frozen=True):
    """A sign at a place."""

    name: str
    said: str
    weight: float
    at: int


class Passage(msgspec.Struct, frozen=True):
    """The signs that stand together, and what they come to."""

    score: float
    hits: tuple[Hit, ...]


NOTHING: Final = Passage(0.0, ())


@functools.cache
def table() -> _Table:
    return msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), _Table)


class _Looked(msgspec.Struct, frozen=True):
    """A row made ready: what to look for in one script."""

    row: Signal
    words: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]


@functools.cache
def _ready(chinese: bool) -> tuple[_Looked, ...]:
    """The rows for texts with or without Chinese, those that only support others last."""
    out = []
    for row in table().signal:
        words, patterns = (
            tuple(one for one in some if chinese or not _CHINESE.search(one))
            for some in (row.words, row.patterns)
        )
        if words and patterns:
            ready = tuple(re.compile(_spaced(pattern)) for pattern in patterns)
            out.append(_Looked(row, words, ready))
    return tuple(sorted(out, key=lambda one: one.row.weight < SUPPORTING))


def _spaced(pattern: str) -> str:
    """The pattern with its spaces written out; inside brackets a space is a space."""
    return _CLASS_OR_SPACE.sub(lambda part: _SPACE if part[0] == " " else part[0], pattern)


def threshold(source: str) -> float:
    """What a passage from this source must reach to be held back: "web:https://…" counts as "web"."""
    limits = table().thresholds
    return limits.get(_WHO.split(source.strip().lower(), 1)[0], limits[""])


def hits(text: str) -> list[Hit]:
    """Every sign in a text in lower case without disguises; none when there are only supporting ones."""
    out: list[Hit] = []
    for one in _ready(not text.isascii() and _CHINESE.search(text) is not None):
        if one.row.weight < SUPPORTING and not out:
            break
        for word in one.words:
            if word in text:
                out += _hits(one, text)
                break
    return out


def _hits(one: _Looked, text: str) -> Iterator[Hit]:
    for pattern in one.patterns:
        for match in itertools.islice(pattern.finditer(text), _MOST):
            if weight := _weight(one.row, text, match.start()):
                yield Hit(one.row.name, one.row.said, weight, match.start())


def _weight(row: Signal, text: str, at: int) -> float:
    """Nothing when it is denied, half when it is only quoted as an example."""
    before = text[max(0, at - _BEFORE) : at]
    if row.denied and _DENIED.search(before):
        return 0.0
    return row.weight / 2 if _MENTIONED.search(before) else row.weight


def worst(found: Sequence[Hit]) -> Passage:
    """The passage with the highest score; each sign counts once in it, as its strongest."""
    ordered = sorted(found, key=lambda hit: hit.at)
    best = NOTHING
    for first, start in enumerate(ordered):
        strongest: dict[str, Hit] = {}
        for hit in ordered[first:]:
            if hit.at - start.at > table().window:
                break
            if hit.name not in strongest or hit.weight > strongest[hit.name].weight:
                strongest[hit.name] = hit
        score = sum(hit.weight for hit in strongest.values())
        if score > best.score:
            best = Passage(score, tuple(strongest.values()))
    return best
