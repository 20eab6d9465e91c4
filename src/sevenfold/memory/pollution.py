"""The share of wrong memories, worked out from the history of 30 days.

    measure_pollution(store, clock.now()).rate        the part of the memories saved that went wrong since

A memory that was saved went wrong when its saving was undone, when a later text of it says the opposite
or gives the same thing another value, or when a later text for it was held back by the guard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from sevenfold.memory.backend import is_topic
from sevenfold.memory.consolidation.sentences import read_sentences
from sevenfold.memory.consolidation.supersession import find_shared_frame, is_negation, make_core
from sevenfold.memory.dreams.statements import normalise_words
from sevenfold.memory.history.revisions import REDID, UNDID, Revision
from sevenfold.memory.similarity import extract_statement, find_similar
from sevenfold.memory.store import MemoryStore
from sevenfold.memory.text.words import split_words
from sevenfold.memory.topic_file import Topic, read_topic

DAYS: Final = 30
_FAR: Final = 5_000  # Revisions that are looked at
_NOT: Final = frozenset(
    ["not", "no", "never", "none", "don", "doesn", "isn", "aren", "won", "without", "longer"]
) | frozenset("不没沒别別勿莫无無")
"""Words and characters that turn a statement into its opposite."""
_BACK: Final = "brought back "  # The summary of an undo to a revision began so in version 0.1
_SENTENCES: Final = 30  # Sentences of a text that are compared with those of another


class Pollution(msgspec.Struct, frozen=True):
    """Of the memories saved in the last 30 days, how many went wrong, and in which way."""

    saved: int = 0
    undone: int = 0
    contradicted: int = 0
    quarantined: int = 0
    rate: float = 0.0  # The part of those saved that went wrong in at least one way


@dataclass(slots=True)
class _MemoryLife:
    """One memory since it was first saved in that time."""

    since: float
    undone: bool = False
    contradicted: bool = False
    quarantined: bool = False


def measure_pollution(store: MemoryStore, now: float) -> Pollution:
    """Counts what became of the memories saved in the 30 days before `now`."""
    lives: dict[str, _MemoryLife] = {}
    for older, revision in _oldest_first(store.history(limit=_FAR), now - DAYS * 86_400):
        for change in revision.files:
            if is_topic(change.file):
                life = lives.get(change.file)
                if revision.summary.startswith((UNDID, REDID, _BACK)):
                    undid = not revision.summary.startswith(REDID)
                    _undone(life, undone=undid and change.action != "created")
                elif change.action == "removed":
                    continue
                elif life is None:
                    lives[change.file] = _MemoryLife(revision.at)
                else:
                    life.contradicted |= _contradicts(store, change.file, older, revision)
    for held in store.quarantine.list():
        if (life := lives.get(held.file)) is not None and held.at >= life.since:
            life.quarantined = True
    return _counted(list(lives.values()))


def _counted(lives: list[_MemoryLife]) -> Pollution:
    wrong = sum(one.undone or one.contradicted or one.quarantined for one in lives)
    return Pollution(
        saved=len(lives),
        undone=sum(one.undone for one in lives),
        contradicted=sum(one.contradicted for one in lives),
        quarantined=sum(one.quarantined for one in lives),
        rate=wrong / len(lives) if lives else 0.0,
    )


def _oldest_first(newest_first: list[Revision], since: float) -> Iterator[tuple[Revision | None, Revision]]:
    """The revisions since then, each with the one before it."""
    for at in reversed(range(len(newest_first))):
        if newest_first[at].at >= since:
            older = newest_first[at + 1] if at + 1 < len(newest_first) else None
            yield older, newest_first[at]


def _undone(life: _MemoryLife | None, *, undone: bool) -> None:
    """A redo leaves the memory as it was saved; so does the undo of a removal."""
    if life is not None:
        life.undone = undone


def _contradicts(store: MemoryStore, file: str, older: Revision | None, newer: Revision) -> bool:
    """True if a changed memory contradicts its old text."""
    before = store.as_of(older.id, file) if older else None
    after = store.as_of(newer.id, file)
    if before is None or after is None:
        return False
    old, new = read_topic(before, file), read_topic(after, "")
    turned = set(split_words(extract_statement(old))) ^ set(split_words(extract_statement(new)))
    if turned & _NOT and (like := find_similar(new, [old])) is not None and like.same:
        return True
    gone, come = _only(old, new), _only(new, old)
    return any(
        find_shared_frame(make_core(one), make_core(other)) is not None
        or is_negation(make_core(one), make_core(other))
        for one in gone
        for other in come
    )


def _only(one: Topic, other: Topic) -> list[str]:
    known = {normalise_words(each.text) for each in read_sentences(other)}
    return [
        each.text
        for each in read_sentences(one)
        if each.form == "prose" and normalise_words(each.text) not in known
    ][:_SENTENCES]
