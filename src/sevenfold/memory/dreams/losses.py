"""Finds the statements that are gone after a dream, and accounts for each of them.

A statement may be gone because another file says it now, in its own or in other words, or because a newer
one replaced or contradicted it, for which the dream has to name its evidence. Nothing else may be gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.memory.dreams.statements import (
    ComparedFact,
    FactMeaning,
    MemoryFact,
    normalise_words,
    read_facts,
)

SHARE: Final = 0.8  # Of the plain words of a statement, so many have to be there for it to be still there
MISSING: Final = 2  # And no more than so many may be missing, however long it is
MERGED: Final = 0.6
"""The same where the dream says itself into which file it was merged; its numbers have to be there."""
ABOUT: Final = 0.5  # Of its words, so many have to be in the statement that takes its place
_AROUND: Final = 1  # Sentences before and behind one that may hold part of what it said
_TELLING: Final = 3
"""Words from which on a statement that the dream itself moved is understood without its subject."""


class StatementIndex:
    """The statements of some files, found by their words."""

    def __init__(self, files: Mapping[str, bytes], was: Mapping[str, bytes] | None = None) -> None:
        """`was`: what these files said before. What the dream itself wrote there, it moved there."""
        self._said: list[ComparedFact] = []
        self._fresh = _fresh(files, was) if was is not None else frozenset()
        self._by_word: dict[str, list[int]] = {}
        self._files: dict[str, range] = {}
        for file, data in files.items():
            start = len(self._said)
            self._said += read_facts(data, file)
            self._files[file] = range(start, len(self._said))
        for at, one in enumerate(self._said):
            for word in {*one.meaning.everything, *one.meaning.order, *one.context}:
                self._by_word.setdefault(word, []).append(at)

    def holder(self, sought: ComparedFact, within: str | None = None) -> str | None:
        """The file that still says this, its own one first; None when none does."""
        found = {self._said[at].fact.file for at in self._candidates(sought) if self._says(at, sought)}
        if within is not None:
            return within if within in found else None
        return sought.fact.file if sought.fact.file in found else min(found, default=None)

    def merged(self, sought: ComparedFact, file: str) -> bool:
        """True if a file as a whole holds what was said, for a dream that says it merged it there."""
        said = [self._said[at] for at in self._files.get(file, ())]
        bag = frozenset[str]().union(*(one.meaning.order for one in said), *(one.context for one in said))
        exact = frozenset[str]().union(*(one.meaning.exact for one in said))
        one = sought.meaning
        words = one.words | one.names
        agreeing = [frozenset(each.meaning.order) for each in said if each.meaning.negated == one.negated]
        near = any(_part(words, order) >= ABOUT for order in agreeing)
        return near and one.exact <= exact and _part(words, bag) >= MERGED

    def newer(self, sought: ComparedFact, files: Iterable[str]) -> str | None:
        """A file with another statement on the same subject: a later date, another value, or its denial."""
        for file in files:
            for at in self._files.get(file, ()):
                if _replaces(self._said[at].meaning, self._said[at].context, sought.meaning):
                    return file
        return None

    def _candidates(self, sought: ComparedFact) -> Iterable[int]:
        """Every statement that can match has one of the rarest words, or a neighbour that has it."""
        one = sought.meaning
        words = one.exact or one.words | one.names
        needed = len(words) if one.exact else math.ceil(SHARE * len(words))
        rarest = sorted(words, key=lambda word: (len(self._by_word.get(word, ())), word))
        near = set[int]()
        for word in rarest[: len(words) - needed + 1]:
            for at in self._by_word.get(word, ()):
                near.update(range(max(0, at - _AROUND), min(len(self._said), at + _AROUND + 1)))
        return near

    def _says(self, at: int, sought: ComparedFact) -> bool:
        here, one = self._said[at], sought.meaning
        around = [
            each
            for each in self._said[max(0, at - _AROUND) : at + _AROUND + 1]
            if each.block == here.block and each.fact.file == here.fact.file
        ]
        said = frozenset[str]().union(*(each.meaning.order for each in around))
        bag = said | here.context
        same_text = here.plain == sought.plain
        moved = same_text and (here.fact.file, here.plain) in self._fresh
        if moved and len(one.everything) >= _TELLING:
            return True
        if sought.subject and not sought.subject & bag:
            return False  # the same may be said of something else
        if same_text:
            return True
        exact = frozenset[str]().union(*(each.meaning.exact for each in around))
        dated = any(each.meaning.dates or each.meaning.relative for each in around)
        if not one.exact <= exact or (one.relative and not dated):
            return False
        if one.negated != here.meaning.negated or not one.names <= bag:
            return False
        if _part(one.words, said) < ABOUT or len(one.words - bag) > MISSING:
            return False  # a heading or a description alone says it of something else
        return _part(one.words, bag) >= SHARE and _in_order(one, around)


def _fresh(files: Mapping[str, bytes], was: Mapping[str, bytes]) -> frozenset[tuple[str, str]]:
    """The statements that a file did not make before, in plain words."""
    found = set[tuple[str, str]]()
    for file, data in files.items():
        old = {one.plain for one in read_facts(was[file], file)} if file in was else set[str]()
        found |= {(file, one.plain) for one in read_facts(data, file) if one.plain not in old}
    return frozenset(found)


def _part(words: frozenset[str], bag: frozenset[str]) -> float:
    return len(words & bag) / len(words) if words else 1.0


def _in_order(one: FactMeaning, around: list[ComparedFact]) -> bool:
    """True if what stands before another word in the one stands before it in the other."""
    order = [word for each in around for word in each.meaning.order]
    for left, right in one.turns:
        if left in order and right in order and order.index(left) >= len(order) - order[::-1].index(right):
            return False
    return True


def _replaces(new: FactMeaning, context: frozenset[str], old: FactMeaning) -> bool:
    words = old.words | old.names
    about = _part(words, frozenset(new.order) | context)
    if not words or about < ABOUT or not words & frozenset(new.order):
        return False
    if old.dates and new.dates and max(new.dates) < max(old.dates):
        return False
    return new.negated != old.negated or not old.exact <= new.exact or bool(words - set(new.order))


Reason: TypeAlias = Literal["merged", "superseded", "contradicted", "stale"]


class LossReason(msgspec.Struct, frozen=True):
    """The reason a dream gives for letting a statement or a whole file go.

    `evidence` names a file of the folder, a daily log or a session. `by` is the file that says it now.
    """

    reason: Reason
    evidence: str
    by: str = ""


Explanations: TypeAlias = Mapping[str, LossReason]  # By the file, or by the words of the statement


class LossAccount(msgspec.Struct, frozen=True):
    """The fate of a statement that is not where it was."""

    fact: MemoryFact
    how: Literal["there", "merged", "superseded", "contradicted"]
    by: str  # The file that says it, or what took its place
    evidence: str = ""


class FilesAfterDream:
    """The files as they will be. Those that did not change are only read when they are needed."""

    def __init__(
        self,
        changed: Mapping[str, bytes],
        others: Callable[[], StatementIndex],
        known: Collection[str] = (),
        was: Mapping[str, bytes] | None = None,
    ) -> None:
        """`known` are the names that may be evidence: files before and after, logs, sessions.
        `was` is what the changed files said before."""
        self._changed = StatementIndex(changed, was)
        self._rest = others
        self._known = {*known, *changed}

    def holder(self, one: ComparedFact) -> str | None:
        """The file that still says this."""
        return self._changed.holder(one) or self._rest().holder(one)

    def account(self, one: ComparedFact, explained: Explanations) -> LossAccount | None:
        """The fate of a statement; None when it is not known."""
        file = one.fact.file
        if (by := self.holder(one)) is not None:
            return LossAccount(one.fact, "there" if by == file else "merged", by)
        told = find_explanation(one.fact, explained)
        evidence = told.evidence.strip() if told else ""
        known = evidence in self._known or evidence.removeprefix("session:") in self._known
        if told is None or not evidence or not known:
            return None
        if told.reason == "merged":
            into = told.by or told.evidence
            held = self._changed.merged(one, into) or self._rest().merged(one, into)
            return LossAccount(one.fact, "merged", into, told.evidence) if held else None
        if told.reason == "stale":
            return None
        places = list(dict.fromkeys(filter(None, (told.by, file, told.evidence))))
        newer = self._changed.newer(one, places) or self._rest().newer(one, places)
        return LossAccount(one.fact, told.reason, newer, told.evidence) if newer else None


def find_explanation(fact: MemoryFact, explained: Explanations) -> LossReason | None:
    """The dream's explanation for this statement, or for the whole file."""
    told = explained.get(fact.text) or explained.get(normalise_words(fact.text))
    return told or explained.get(fact.file)


def add_plain_keys(explained: Explanations) -> Explanations:
    """The same, also found under the words of a statement without their markup."""
    return {**{normalise_words(key): told for key, told in explained.items()}, **explained}


def find_lost_facts(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[MemoryFact]:
    """The statements of some topic files that none of the files afterwards makes any more."""
    moved = {file: data for file, data in after.items() if before.get(file) != data}
    kept = {file: data for file, data in after.items() if file not in moved}
    there = FilesAfterDream(moved, cache(lambda: StatementIndex(kept)), was=before)
    gone = (file for file in before if after.get(file) != before[file])
    return [one.fact for one in collect_statements(before, gone) if there.holder(one) is None]


def collect_statements(files: Mapping[str, bytes], names: Iterable[str]) -> list[ComparedFact]:
    """All statements of some of the files."""
    return [one for file in names for one in read_facts(files[file], file)]
