"""One question to the search index: by words and by meaning, then one ranking."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

import numpy as np

from sevenfold.errors import SevenfoldError
from sevenfold.memory.search.answers import Hit
from sevenfold.memory.search.collection import Collection
from sevenfold.memory.search.fusing import (
    Question,
    Scale,
    fused,
    nearness,
    question,
    relative,
    scale,
    worth_showing,
)
from sevenfold.memory.search.lexical import Found, Lexical, Scores
from sevenfold.memory.search.vectors import MANY, Near
from sevenfold.memory.search.words import tokens

if TYPE_CHECKING:
    from sevenfold.memory.search.embedding import Embedder

BESIDE: Final = 0.5
"""The part of the best score that others must reach to be shown beside it: of what answers a question one
in a hundred falls below, of what does not a third to a half (benchmarks/recall)."""
_BY_WORDS: Final = 200
"""The best rows by their words, whose meaning is compared in full however many others there are."""
_EQUAL: Final = 500
"""Rows with the same score of which the names decide; of more the oldest."""
_CLOSELY: Final = 40
"""Rows whose passages are looked at one by one at first; more when that does not settle the order."""


def asked(
    collection: Collection,
    embedder: Embedder | None,
    query: str,
    limit: int,
    skip: AbstractSet[str] = frozenset(),
    *,
    silent: bool = True,
) -> list[Hit]:
    """The files that answer it, the best first; none when the best of all files is no answer."""
    words = list(dict.fromkeys(tokens(query)))
    if not words or limit < 1:
        return []
    with collection.looking:
        lexical = collection.lexical
        looked = lexical.look(words)
        asking = question(looked.rarity, looked.seen, query)
        found = lexical.scores(looked, asking.weights)
        near = _near(collection, embedder, query, asking, found)
        hits = _ranked(found, near, lexical, limit + len(skip))
        if silent and not (hits and _answers(hits[0], found, near, lexical, asking)):
            return []
        if silent:
            hits = [hit for hit in hits if hit.score >= BESIDE * hits[0].score]
    return [hit for hit in hits if hit.file not in skip][:limit]


def _near(
    collection: Collection,
    embedder: Embedder | None,
    query: str,
    asking: Question,
    found: Found,
) -> Near | None:
    """By meaning; None where there are no vectors, or the embedder cannot say."""
    meaning, lexical = collection.meaning, collection.lexical
    if embedder is None or not meaning.count or not lexical.known:
        return None
    try:
        vector = embedder.query(query, lambda word: asking.weights.get(word, 0.0))
    except SevenfoldError:
        return None
    closely: set[int] = set()
    if meaning.count > MANY:
        closely = {*_first(found.whole, _BY_WORDS), *_first(found.best, _BY_WORDS)}
    return meaning.near(np.asarray(vector, np.float32), lexical, closely)


def _ranked(found: Found, near: Near | None, lexical: Lexical, limit: int) -> list[Hit]:
    """The best rows. How near a row is takes a look at each of its passages, and is never more than
    its nearest one: so only rows that could still be among the best are looked at."""
    highest = near.highest if near else np.zeros_like(found.whole)
    of = scale(found.whole, found.best, highest)
    most = relative(found.whole, found.best, highest, of)
    count = max(_CLOSELY, 2 * limit)
    while True:
        rows = _first(most, count)
        hits = _hits(rows, found, near, lexical, of)
        hits.sort(key=lambda hit: (-hit.score, hit.file))
        all_of_them = len(rows) < count
        if all_of_them or hits[limit - 1].score >= float(most[rows].min()):
            return hits[:limit]
        count *= 4


def _hits(
    rows: list[int], found: Found, near: Near | None, lexical: Lexical, of: Scale
) -> list[Hit]:
    meant = np.array([nearness(near.of(row)) if near else 0.0 for row in rows], np.float32)
    scores = relative(found.whole[rows], found.best[rows], meant, of)
    told = zip(rows, scores.tolist(), found.whole[rows].tolist(), meant.tolist(), strict=True)
    return [Hit(lexical.file(row), *numbers) for row, *numbers in told]


def _answers(
    best: Hit, found: Found, near: Near | None, lexical: Lexical, asking: Question
) -> bool:
    """Whether the best file is good enough; one that has no vectors yet is judged by its words alone."""
    place = lexical.place(best.file)
    if place is None:
        return False
    one, meant = slice(place, place + 1), np.array([best.semantic], np.float32)
    good = fused(found.whole[one], found.best[one], meant, asking.total)
    by_meaning = near is not None and len(near.of(place)) > 0
    return worth_showing(float(good[0]), asking, by_meaning=by_meaning, passages=lexical.passages)


def _first(score: Scores, limit: int) -> list[int]:
    """The rows with the highest scores above zero, in no order; those equal to the last, too, unless
    they are very many."""
    rows = np.flatnonzero(score > 0)
    if len(rows) > limit:
        least = np.partition(score[rows], len(rows) - limit)[len(rows) - limit]
        higher, equal = rows[score[rows] > least], rows[score[rows] == least]
        rows = np.concatenate([higher, equal[:_EQUAL]])
    return [int(row) for row in rows]
