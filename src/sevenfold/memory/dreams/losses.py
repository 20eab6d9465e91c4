"""Which statements are gone after a dream, and whether each of them is accounted for.

A statement may be gone because another file says it now, because a newer one took its place, or because
it was contradicted; for the last two the dream has to name its evidence. Nothing else may be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Literal, TypeAlias

import msgspec

from sevenfold.memory.dreams.facts import Fact, Stated, same_words, stated
from sevenfold.memory.dreams.shelf import Shelf

Reason: TypeAlias = Literal["merged", "superseded", "contradicted", "stale"]


class Explained(msgspec.Struct, frozen=True):
    """Why a dream let a statement or a whole file go.

    `evidence` names a file of the folder, a daily log or a session. `by` is the file that says it now.
    """

    reason: Reason
    evidence: str
    by: str = ""


Explanations: TypeAlias = Mapping[str, Explained]
"""By the file, or by the words of the statement."""


class Account(msgspec.Struct, frozen=True):
    """What became of a statement that is not where it was."""

    fact: Fact
    how: Literal["there", "merged", "superseded", "contradicted"]
    by: str
    """The file that says it, or what took its place."""
    evidence: str = ""


class Afterwards:
    """The files as they will be. Those that did not change are only read when they are needed."""

    def __init__(
        self,
        changed: Mapping[str, bytes],
        others: Callable[[], Shelf],
        known: Collection[str] = (),
        was: Mapping[str, bytes] | None = None,
    ) -> None:
        """`known` are the names that may be evidence: files before and after, logs, sessions.
        `was` is what the changed files said before."""
        self._changed = Shelf(changed, was)
        self._rest = others
        self._known = {*known, *changed}

    def holder(self, one: Stated) -> str | None:
        """The file that still says this."""
        return self._changed.holder(one) or self._rest().holder(one)

    def account(self, one: Stated, explained: Explanations) -> Account | None:
        """What became of a statement; None: nobody can say."""
        file = one.fact.file
        if (by := self.holder(one)) is not None:
            return Account(one.fact, "there" if by == file else "merged", by)
        told = explanation(one.fact, explained)
        if told is None or not self._is_evidence(told.evidence):
            return None
        if told.reason == "merged":
            into = told.by or told.evidence
            held = self._changed.merged(one, into) or self._rest().merged(one, into)
            return Account(one.fact, "merged", into, told.evidence) if held else None
        if told.reason == "stale":
            return None
        places = list(dict.fromkeys(filter(None, (told.by, file, told.evidence))))
        newer = self._changed.newer(one, places) or self._rest().newer(one, places)
        return Account(one.fact, told.reason, newer, told.evidence) if newer else None

    def _is_evidence(self, name: str) -> bool:
        name = name.strip()
        return bool(name) and (name in self._known or name.removeprefix("session:") in self._known)


def explanation(fact: Fact, explained: Explanations) -> Explained | None:
    """What the dream said about this statement, or about the whole file."""
    told = explained.get(fact.text) or explained.get(same_words(fact.text))
    return told or explained.get(fact.file)


def in_plain_words(explained: Explanations) -> Explanations:
    """The same, also found under the words of a statement without their markup."""
    return {**{same_words(key): told for key, told in explained.items()}, **explained}


def lost_facts(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[Fact]:
    """The statements of some topic files that none of the files afterwards makes any more."""
    moved = {file: data for file, data in after.items() if before.get(file) != data}
    kept = {file: data for file, data in after.items() if file not in moved}
    there = Afterwards(moved, cache(lambda: Shelf(kept)), was=before)
    gone = (file for file in before if after.get(file) != before[file])
    return [one.fact for one in said_in(before, gone) if there.holder(one) is None]


def said_in(files: Mapping[str, bytes], names: Iterable[str]) -> list[Stated]:
    """All statements of some of the files."""
    return [one for file in names for one in stated(files[file], file)]
