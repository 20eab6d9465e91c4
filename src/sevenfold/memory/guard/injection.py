"""Finds text that tries to steer the agent: injected orders, poses as the system, poisoned answers.

Memories are made of rules, so a rule is no alarm. Signs of an attack, also in hidden text, are weighed by
the table in `signals.toml`. A text is held back if signs stand close together, or one is strong enough.
"""

from __future__ import annotations

import functools
import itertools
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.memory.guard.text import (
    GuardFinding,
    find_base64_text,
    find_tag_text,
    format_line_number,
    remove_disguises,
    undo_lookalikes,
)


def find_instructions(text: str, source: str = "") -> list[GuardFinding]:
    """The signs in the passage that gives a text away; empty when it may be saved.

    `source` says whose words they are ("user", "web", "team"): the user is trusted further.
    """
    passage = weigh_text(text)
    if passage.score < find_threshold(source):
        return []
    shown = remove_disguises(text)
    return [
        GuardFinding("instruction", hit.said, format_line_number(shown, hit.at), f"sign: {hit.name}")
        for hit in passage.hits
    ]


TABLE: Final = Path(__file__).with_name("signals.toml")

_SPACE: Final = r"(?:[\s*_`\"'“”‘’>#,，-]{1,6})"
"""The meaning of a space in a pattern: emphasis, quotes and line breaks are ignored."""
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
SUPPORTING: Final = 3.0  # A sign that weighs less counts only beside one that weighs this much
_MOST: Final = 40  # Matches of one sign that are looked at


class InjectionSignal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table."""

    name: str
    weight: float
    said: str
    words: tuple[str, ...]
    patterns: tuple[str, ...]
    denied: bool = False


class _SignalTable(msgspec.Struct, frozen=True):
    window: int
    thresholds: dict[str, float]
    signal: tuple[InjectionSignal, ...]


class InjectionHit(msgspec.Struct, frozen=True):
    """A sign at a place."""

    name: str
    said: str
    weight: float
    at: int


class InjectionPassage(msgspec.Struct, frozen=True):
    """The signs that stand together, and what they come to."""

    score: float
    hits: tuple[InjectionHit, ...]


NOTHING: Final = InjectionPassage(0.0, ())


@functools.cache
def load_signal_table() -> _SignalTable:
    return msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), _SignalTable)


class _CompiledSignal(msgspec.Struct, frozen=True):
    """A row made ready: what to look for in one script."""

    row: InjectionSignal
    words: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]


@functools.cache
def _ready(chinese: bool) -> tuple[_CompiledSignal, ...]:
    """The rows for texts with or without Chinese, supporting ones last; compiled at first use."""
    out = []
    for row in load_signal_table().signal:
        words, patterns = (
            tuple(one for one in some if chinese or not _CHINESE.search(one))
            for some in (row.words, row.patterns)
        )
        if words and patterns:
            ready = tuple(re.compile(_spaced(pattern)) for pattern in patterns)
            out.append(_CompiledSignal(row, words, ready))
    return tuple(sorted(out, key=lambda one: one.row.weight < SUPPORTING))


def _spaced(pattern: str) -> str:
    """The pattern with its spaces written out; inside brackets a space is a space."""
    return _CLASS_OR_SPACE.sub(lambda part: _SPACE if part[0] == " " else part[0], pattern)


def find_threshold(source: str) -> float:
    """The score at which a passage of this source is held back: "web:https://…" counts as "web"."""
    limits = load_signal_table().thresholds
    return limits.get(_WHO.split(source.strip().lower(), 1)[0], limits[""])


def find_hits(text: str) -> list[InjectionHit]:
    """Every sign in a text in lower case without disguises; none when there are only supporting ones."""
    out: list[InjectionHit] = []
    for one in _ready(not text.isascii() and _CHINESE.search(text) is not None):
        if one.row.weight < SUPPORTING and not out:
            break
        if any(word in text for word in one.words):
            out += _hits(one, text)
    return out


def _hits(one: _CompiledSignal, text: str) -> Iterator[InjectionHit]:
    for pattern in one.patterns:
        for match in itertools.islice(pattern.finditer(text), _MOST):
            if weight := _weight(one.row, text, match.start()):
                yield InjectionHit(one.row.name, one.row.said, weight, match.start())


def _weight(row: InjectionSignal, text: str, at: int) -> float:
    """Nothing when it is denied, half when it is only quoted as an example."""
    before = text[max(0, at - _BEFORE) : at]
    if row.denied and _DENIED.search(before):
        return 0.0
    return row.weight / 2 if _MENTIONED.search(before) else row.weight


def find_worst_passage(found: Sequence[InjectionHit]) -> InjectionPassage:
    """The passage with the highest score; each sign counts once in it, as its strongest."""
    ordered = sorted(found, key=lambda hit: hit.at)
    best = NOTHING
    for first, start in enumerate(ordered):
        strongest: dict[str, InjectionHit] = {}
        for hit in ordered[first:]:
            if hit.at - start.at > load_signal_table().window:
                break
            if hit.name not in strongest or hit.weight > strongest[hit.name].weight:
                strongest[hit.name] = hit
        score = sum(hit.weight for hit in strongest.values())
        if score > best.score:
            best = InjectionPassage(score, tuple(strongest.values()))
    return best


_ANY: Final = re.compile(
    "[\u00ad\u200b-\u200d\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
)
_TAGS: Final = re.compile("(?<!\U0001f3f4)[\U000e0020-\U000e007e]{3,}(?!\U000e007f)")
"""Tag characters spell invisible text; after a black flag they are the flag of a region."""
_OVERRIDES: Final = re.compile("[\u202d\u202e]")
_TURNED: Final = re.compile("[\u202a-\u202c\u2066-\u2069]")
"""Marks of direction that texts in Arabic or Hebrew have as well."""
_UNSEEN: Final = re.compile("[\u200b\u2060-\u2064\ufeff]{3,}|[\u200b-\u200d\u2060\ufeff]{5,}")
_SELECTORS: Final = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}")
_IN_WORDS: Final = re.compile("[A-Za-z][\u200b-\u200d\u2060\ufeff\u00ad][A-Za-z]")
_SPACED: Final = re.compile(r"(?<!\w)(?:\w[ .·_-]{1,2}){8,}\w(?!\w)")
_SPACES: Final = re.compile(r"[ .·_-]")
_RUN_ON: Final = re.compile(
    r"(?:ignore|disregard|forget)(?:all|any|the|your)*(?:previous|prior|above|instructions|rules)|"
    r"systemprompt|donottell|saythatyou|youmust|revealyour"
)
_ENCODED_ORDER: Final = 3.0
_IN_WORDS_MOST: Final = 2


def weigh_text(text: str) -> InjectionPassage:
    """The passage of a text that is most like an attack, whatever it comes to."""
    return find_worst_passage([*_hidden(text), *_read(text)])


def _read(text: str) -> Iterator[InjectionHit]:
    shown = remove_disguises(text)
    lower = undo_lookalikes(shown).lower()
    yield from find_hits(lower)
    for run in _SPACED.finditer(lower):  # s p a c e d  o u t, to get past a search for words
        if _RUN_ON.search(_SPACES.sub("", run[0])):
            said = "spaces its letters out to hide an order"
            yield InjectionHit("spaced letters", said, 6.0, run.start())
    for at, said in find_base64_text(shown):
        inside = find_worst_passage(find_hits(undo_lookalikes(remove_disguises(said)).lower()))
        if inside.score >= _ENCODED_ORDER:
            yield InjectionHit("base64", "hides an order in base64", _ENCODED_ORDER, at)
            yield from (InjectionHit(hit.name, hit.said, hit.weight, at) for hit in inside.hits)


def _hidden(text: str) -> Iterator[InjectionHit]:
    """Characters that show nothing and say something. Places are counted in the plain text."""
    if text.isascii() or not _ANY.search(text):
        return
    for at, said in find_tag_text(text):
        if _TAGS.match(text, at):
            place = len(remove_disguises(text[:at]))
            yield InjectionHit("invisible text", "holds text that nobody can see", 10.0, place)
            inside = find_worst_passage(find_hits(said.lower()))
            yield from (InjectionHit(hit.name, hit.said, hit.weight, place) for hit in inside.hits)
    for pattern, weight, name, said in _UNSEEN_SIGNS:
        if found := pattern.search(text):
            yield InjectionHit(name, said, weight, len(remove_disguises(text[: found.start()])))
    if len(split := list(_IN_WORDS.finditer(text))) > _IN_WORDS_MOST:
        place = len(remove_disguises(text[: split[0].start()]))
        yield InjectionHit("split words", "splits words with invisible characters", 4.0, place)


_UNSEEN_SIGNS: Final = (
    (_OVERRIDES, 6.0, "turned letters", "turns its letters round, so that it reads otherwise"),
    (_TURNED, 2.0, "turned text", "turns the direction of its text"),
    (_UNSEEN, 5.0, "invisible characters", "holds runs of invisible characters"),
    (_SELECTORS, 6.0, "invisible text", "hides data in variation selectors"),
)
