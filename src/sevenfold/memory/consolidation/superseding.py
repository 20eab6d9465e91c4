"""Of two sentences that give one thing two values the newer counts, and takes the place of the older.

A sentence may say itself that it is new ("now", "no longer", "instead of", 改为); otherwise the dates of
both decide. Where neither is so, or it is not sure that both are about one thing, both stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final

import msgspec

from sevenfold.memory.consolidation.frames import (
    Core,
    Frame,
    core,
    ended,
    frame,
    moved,
    names_the_old,
    negates,
    passed_on,
)
from sevenfold.memory.consolidation.reports import Superseded, Unclear
from sevenfold.memory.consolidation.staged import StagedFiles
from sevenfold.memory.consolidation.statements import Statement, replaced, statements
from sevenfold.memory.consolidation.subjects import (
    name_words,
    numbered_apart,
    of_one_subject,
    overlap,
    told,
)
from sevenfold.memory.consolidation.timing import Said, holds_later, later, said
from sevenfold.memory.consolidation.wording import wording
from sevenfold.memory.dreams.facts import same_words, stated
from sevenfold.memory.dreams.shelf import Shelf
from sevenfold.memory.topic import Topic

STRONG: Final = 0.5
"""The part of the words of both names from which on they surely name one subject."""
_THE_USER: Final = frozenset(["user", "用户"])
_CROWD: Final = 60
"""A word that so many sentences have does not bring two of them together."""
SHARED: Final = 0.4
"""The part of the words of the shorter sentence that both have to share to be compared at all."""
_LONGEST: Final = 40
"""Words of a sentence that gives something a value; longer ones tell a story."""
_ROUNDS: Final = 20
_UNCLEAR: Final = 50


class Claim(msgspec.Struct, frozen=True):
    """A sentence of a memory, when it was said, and its form."""

    topic: Topic
    statement: Statement
    said: Said
    core: Core

    @property
    def text(self) -> str:
        return self.statement.text


class _Verdict(msgspec.Struct, frozen=True):
    old: Claim
    new: Claim
    because: str
    """Empty when it is not clear which one is newer."""


def supersede(files: StagedFiles, now: float) -> tuple[list[Superseded], list[Unclear]]:
    """Replace what is out of date; says what, by what, and what it could not decide."""
    done: list[Superseded] = []
    unclear: list[Unclear] = []
    for _ in range(_ROUNDS):
        claims = [claim for topic in files.workable() for claim in _claims(files, topic)]
        found, unclear = _round(files, claims, now)
        done += found
        if not found:
            break
    return done, unclear[:_UNCLEAR]


def _claims(files: StagedFiles, topic: Topic) -> Iterator[Claim]:
    for one in statements(topic):
        if one.form == "prose":
            when = said(one.text, topic, files.times.get(topic.file, 0.0))
            yield Claim(topic, one, when, core(one.text))


def _round(
    files: StagedFiles, claims: list[Claim], now: float
) -> tuple[list[Superseded], list[Unclear]]:
    done: list[Superseded] = []
    unclear: list[Unclear] = []
    touched: set[str] = set()
    lists = _listing_frames(claims)
    for one, other in _pairs(claims):
        verdict = _judged(one, other, lists, now)
        if verdict is None:
            continue
        old, new = verdict.old, verdict.new
        if not verdict.because:
            unclear.append(_unclear(old, new, "nothing shows which of them is newer"))
        elif old.topic.file not in touched and new.topic.file not in touched:
            if _is_replaced(files, old, new):
                touched.add(old.topic.file)
                done.append(_report(verdict))
            else:
                unclear.append(_unclear(old, new, "the newer one does not say all of the older"))
    return done, unclear


def _pairs(claims: list[Claim]) -> Iterator[tuple[Claim, Claim]]:
    """Sentences of one type of memory that share words which are not everywhere, and enough of them."""
    said = [wording(claim.text) for claim in claims]
    holders: dict[str, list[int]] = {}
    for at, one in enumerate(said):
        if len(one.words) <= _LONGEST:
            for word in one.content:
                holders.setdefault(word, []).append(at)
    near: set[tuple[int, int]] = set()
    for places in holders.values():
        if len(places) <= _CROWD:
            near.update(combinations(places, 2))
    for left, right in sorted(near):
        one, other = said[left], said[right]
        both, least = len(one.content & other.content), min(len(one.content), len(other.content))
        enough = both >= min(2, least - 1) and both >= SHARED * least
        marked = any(claims[at].core.marks.changed for at in (left, right))
        if not (enough or marked) or one.words == other.words:
            continue
        if claims[left].topic.type == claims[right].topic.type:
            yield claims[left], claims[right]


def _listing_frames(claims: list[Claim]) -> set[tuple[str, ...]]:
    """Forms that one memory uses twice with different values: there, they are a list."""
    found: set[tuple[str, ...]] = set()
    by_file: dict[str, list[Claim]] = {}
    for claim in claims:
        if claim.statement.field == "body":
            by_file.setdefault(claim.topic.file, []).append(claim)
    for mine in by_file.values():
        for one, other in combinations(mine[:60], 2):
            plain = not (one.core.marks.changed or other.core.marks.changed)
            if plain and "text" not in (one.said.how, other.said.how):
                shape = frame(one.core, other.core)
                found |= {shape.words} if shape else set()
    return found


def _judged(one: Claim, other: Claim, lists: set[tuple[str, ...]], now: float) -> _Verdict | None:
    """Which of two sentences is out of date; None when they have nothing to do with each other."""
    shape = frame(one.core, other.core)
    if shape is not None:
        if shape.words in lists or not _fits(one, other, shape):
            return None
        return _dated(one, other, shape, now)
    for old, new in ((one, other), (other, one)):
        change = ended(old.core, new.core) or moved(old.core, new.core)
        if change and _related(old.topic, new.topic, wording(old.text).content):
            if later(old.said, new.said, marked=False, now=now):
                return _Verdict(old, new, "")  # what it says has changed was said again since
            return _Verdict(old, new, _shown(new, old, now) or "it says itself that this changed")
    if passed_on(one.core, other.core) and _strongly(one.topic, other.topic):
        return _dated(one, other, None, now)
    if negates(one.core, other.core) and _related(
        one.topic, other.topic, wording(one.text).content
    ):
        return _dated(one, other, None, now)
    return None


def _dated(one: Claim, other: Claim, shape: Frame | None, now: float) -> _Verdict:
    """The newer of two, by its own words or by the dates of both."""
    for at, (old, new) in enumerate(((one, other), (other, one))):
        if holds_later(new.text, now):
            return _Verdict(old, new, "")
        value = shape.values[at] if shape else ""
        if value and names_the_old(new.core, value) and not names_the_old(old.core, value):
            if not later(old.said, new.said, marked=False, now=now):
                return _Verdict(old, new, f"it names {value!r} as what was before")
            return _Verdict(old, new, "")
    ways = [(old, new, _shown(new, old, now)) for old, new in ((one, other), (other, one))]
    shown = [_Verdict(*way) for way in ways if way[2] and not _is_weak(*way[:2])]
    return shown[0] if len(shown) == 1 else _Verdict(one, other, "")


def _is_weak(old: Claim, new: Claim) -> bool:
    """Whether only the time of a file speaks for it, and the other says that it is the new state."""
    by_file = new.said.how == "file" and not new.core.marks.changed
    return by_file and old.core.marks.changed


def _shown(new: Claim, old: Claim, now: float) -> str:
    if new.topic.file == old.topic.file and not _tells_time(new):
        return ""
    marked = new.core.marks.changed and not old.core.marks.changed
    return later(new.said, old.said, marked=marked, now=now)


def _tells_time(claim: Claim) -> bool:
    """Within one memory only the sentence itself can say that it is newer than the one beside it."""
    return claim.said.how == "text" or claim.core.marks.changed


def _fits(one: Claim, other: Claim, shape: Frame) -> bool:
    """Whether two sentences of one form are about one thing, which can have one value only."""
    marked = one.core.marks.changed or other.core.marks.changed
    if shape.needs == "mark" and not marked:
        return False
    if one.topic.file == other.topic.file:
        return len(shape.shared) >= 1
    strong = _strongly(one.topic, other.topic)
    if shape.needs == "subject" and not (strong or marked):
        return False
    if _value_is_the_subject(one, other, shape):
        return False
    least = 1 if strong else 2
    return len(shape.shared) >= least and _related(one.topic, other.topic, shape.shared)


def _strongly(one: Topic, other: Topic) -> bool:
    """Whether the names alone show that two memories are about one thing."""
    if one.file == other.file:
        return True
    return overlap(told(one), told(other)) >= STRONG and not numbered_apart(one, other)


def _value_is_the_subject(one: Claim, other: Claim, shape: Frame) -> bool:
    """`The port of alpha` in alpha.md and `the port of beta` in beta.md differ in what they are about."""
    first, second = (wording(value).content for value in shape.values)
    return bool(first & name_words(one.topic)) and bool(second & name_words(other.topic))


def _related(one: Topic, other: Topic, shared: frozenset[str]) -> bool:
    """Whether two memories are about one thing: by name, by description, or because both are the user's."""
    if one.file == other.file or of_one_subject(one, other):
        return True
    if one.type == "user" and other.type == "user" and shared & _THE_USER:
        return True
    left, right = told(one) & shared, told(other) & shared
    if numbered_apart(one, other):
        return False
    return bool(left) and bool(right) and len(shared) >= 3


def _is_replaced(files: StagedFiles, old: Claim, new: Claim) -> bool:
    """Put the newer sentence in the place of the older, if the loss report will agree."""
    topic = files.topic(old.topic.file)
    if topic.data is not old.topic.data or not _takes_its_place(old, new):
        return False
    same_file = old.topic.file == new.topic.file
    taken_out = same_file and old.statement.field == "body"
    text = "" if taken_out else _ending_like(new.text, old.text)
    files.put(topic.file, replaced(topic, old.statement, text), files.times.get(new.topic.file))
    return True


def _takes_its_place(old: Claim, new: Claim) -> bool:
    shelf = Shelf({new.topic.file: new.topic.data})
    mine = same_words(old.text)
    found = [
        one for one in stated(old.topic.data, old.topic.file) if same_words(one.fact.text) == mine
    ]
    file = new.topic.file  # "9090 instead of 8080" still says the old value, which is as good
    return bool(found) and all(shelf.newer(one, [file]) or shelf.holder(one) for one in found)


def _ending_like(text: str, model: str) -> str:
    """The sentence with or without a full stop, as the one that stood there."""
    if model[-1:] in ".。":
        return text if text[-1:] in ".。!?！？" else text + model[-1]
    return text[:-1] if text[-1:] in ".。" else text


def _report(verdict: _Verdict) -> Superseded:
    old, new = verdict.old, verdict.new
    return Superseded(old.topic.file, old.text, new.text, new.topic.file, verdict.because)


def _unclear(one: Claim, other: Claim, why: str) -> Unclear:
    return Unclear(one.topic.file, one.text, other.topic.file, other.text, why)
