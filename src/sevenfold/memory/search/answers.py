"""Answers a question from the index: by words and by meaning, in one ranking, or with silence."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from sevenfold.core.errors import SevenfoldError
from sevenfold.memory.search.ranking import (
    MANY,
    LexicalIndex,
    LexicalScores,
    RowNearness,
    Scores,
    TermLookup,
    VectorIndex,
)
from sevenfold.memory.search.relevance import USUAL, RecallEvidence, find_traits, is_worth_showing
from sevenfold.memory.search.scoring import (
    BESIDE,
    BESIDE_BY_WORDS,
    ECHO,
    FEWEST,
    K1,
    NEAR,
    SearchHit,
    add_kinship,
    add_word_scores,
    compute_nearness,
    is_long,
    scale_scores,
    weigh_meaning,
    weigh_question,
)
from sevenfold.memory.text.words import tokenize_text

if TYPE_CHECKING:
    from sevenfold.memory.search.collection import SearchCollection
    from sevenfold.memory.search.embedding import Embedder

SEEDS: Final = 3  # The best memories by the first ranking, whose nearest passages are added to the question
PULL: Final = 0.5  # The weight of those passages beside the question
_BY_WORDS: Final = 200  # The best rows by their words: their meaning is compared in full in any case
_EQUAL: Final = 500  # Rows with the same score of which the names decide; of more the oldest
_CLOSELY: Final = 100  # Rows whose passages are looked at one by one


class AskedIndex(NamedTuple):
    """A question to an index, with what its words and its vector found."""

    lexical: LexicalIndex
    meaning: VectorIndex
    looked: TermLookup
    weights: dict[str, float]
    words: LexicalScores
    vector: Scores | None  # None without vectors, or when the embedder cannot say
    near: RowNearness | None


def answer_query(
    collection: SearchCollection,
    embedder: Embedder | None,
    query: str,
    limit: int,
    skip: AbstractSet[str] = frozenset(),
    *,
    silent: bool = True,
) -> list[SearchHit]:
    """The files that answer it, the best first; none when the best of all files is no answer."""
    words = list(dict.fromkeys(tokenize_text(query)))
    if not words or limit < 1:
        return []
    with collection.looking:
        asked = ask_index(collection, embedder, query, words)
        hits = rank_rows(asked, limit + len(skip))
        if silent:
            traits = find_traits(query, asked.looked.seen)
            if not hits or not is_worth_showing(traits, gather_evidence(asked, hits[0])):
                return []
            beside = BESIDE_BY_WORDS if asked.near is None else BESIDE
            hits = [hit for hit in hits if hit.score >= beside * hits[0].score]
    return [hit for hit in hits if hit.file not in skip][:limit]


def ask_index(
    collection: SearchCollection, embedder: Embedder | None, query: str, words: Sequence[str]
) -> AskedIndex:
    """Look up the words of a question, and compare its vector with those of the passages."""
    meaning, lexical = collection.meaning, collection.lexical
    looked = lexical.look(words)
    weights = weigh_question(looked.rarity, query)
    long = is_long(len(weights))
    found = lexical.scores(looked, weights, long)
    vector: Scores | None = None
    near: RowNearness | None = None
    if embedder is not None and meaning.count and lexical.known:
        try:
            plain = weigh_question(looked.rarity)  # a name has no meaning beyond its rarity
            vector = np.asarray(embedder.query(query, lambda word: plain.get(word, 0.0)), np.float32)
        except SevenfoldError:
            vector = None
    if vector is not None:
        closely: set[int] = set()
        if meaning.count > MANY:
            closely = {*_first(found.whole, _BY_WORDS), *_first(found.best, _BY_WORDS)}
        near = meaning.near(vector, lexical, closely, long)
    return AskedIndex(lexical, meaning, looked, weights, found, vector, near)


def rank_rows(asked: AskedIndex, limit: int) -> list[SearchHit]:
    """The best rows. A first ranking chooses those that are looked at closely."""
    by_words = scale_scores(add_word_scores(*asked.words[:3]))
    if asked.near is None:
        rows = _first(by_words, max(_CLOSELY, 2 * limit))
        return _hits(asked, rows, by_words[rows], np.zeros(len(rows), np.float32))[:limit]
    near_weight, echo_weight = (weigh_meaning(len(asked.weights)) * one for one in (NEAR, ECHO))
    roughly = by_words + (near_weight + echo_weight) * scale_scores(asked.near.highest)
    rows = _first(roughly, max(_CLOSELY, 2 * limit))
    near = np.array([compute_nearness(asked.near.of(row)) for row in rows], np.float32)
    plain = by_words[rows] + near_weight * scale_scores(near)
    echo = _echo(asked, rows, plain + echo_weight * scale_scores(near))
    return _hits(asked, rows, plain + echo_weight * scale_scores(echo), near)[:limit]


def _echo(asked: AskedIndex, rows: Sequence[int], scores: Scores) -> Scores:
    """The nearness of rows to the question together with the nearest passages of the best rows."""
    assert asked.near is not None
    assert asked.vector is not None
    best = [rows[at] for at in np.argsort(-scores, kind="stable")[:SEEDS]]
    places = [
        int(asked.meaning.places(row, asked.lexical)[unit])
        for row in best
        if (unit := asked.near.nearest(row)) is not None
    ]
    if not places:
        return np.zeros(len(rows), np.float32)
    together = asked.vector + PULL * asked.meaning.vectors(np.array(places, np.int32)).mean(axis=0)
    together /= max(float(np.linalg.norm(together)), 1e-9)
    found = asked.meaning.compare(together.astype(np.float32), asked.lexical, rows, asked.words.long)
    return np.array([compute_nearness(cosines) for cosines in found], np.float32)


def _hits(asked: AskedIndex, rows: Sequence[int], scores: Scores, near: Scores) -> list[SearchHit]:
    count, compare = len(asked.weights), asked.lexical.compare_words
    each = add_kinship(scores.tolist(), count, lambda best: compare(rows[best])[rows].tolist())
    told = zip(rows, each, asked.words.whole[rows].tolist(), near.tolist(), strict=True)
    hits = [SearchHit(asked.lexical.file(row), *numbers) for row, *numbers in told]
    return sorted(hits, key=lambda hit: (-hit.score, hit.file))


def gather_evidence(asked: AskedIndex, best: SearchHit) -> RecallEvidence:
    """What the best file has for the question; one that has no vectors yet is judged by its words."""
    place = asked.lexical.place(best.file)
    assert place is not None
    total = max(sum(asked.weights.values()), 1e-9)
    by_meaning = asked.near is not None and len(asked.near.of(place)) > 0
    return RecallEvidence(
        share=float(asked.words.best[place]) / (total * (K1 + 1)),
        covered=asked.lexical.weigh_covered(place, asked.looked, asked.weights) / total,
        near=best.semantic if by_meaning else None,
        passages=asked.lexical.passages,
        around=_usual_nearness(asked),
    )


def _usual_nearness(asked: AskedIndex) -> float:
    """The nearness of the folder's memories to the question, on average, as if there were ten at least."""
    near = asked.near.highest[asked.near.highest > 0] if asked.near else np.zeros(0, np.float32)
    if asked.meaning.count > MANY and asked.vector is not None:  # only the nearest were compared
        rows = range(0, asked.lexical.rows, max(1, asked.lexical.rows // _BY_WORDS))
        sample = asked.meaning.compare(asked.vector, asked.lexical, rows, asked.words.long)
        near = np.array([one.max() for one in sample if len(one)], np.float32)
    lacking = max(0, FEWEST - len(near))
    return (float(near.sum()) + USUAL * lacking) / (len(near) + lacking)


def _first(score: Scores, limit: int) -> list[int]:
    """The rows with the highest scores above zero, in no order; those equal to the last, too, unless
    they are very many."""
    rows = np.flatnonzero(score > 0)
    if len(rows) > limit:
        least = np.partition(score[rows], len(rows) - limit)[len(rows) - limit]
        higher, equal = rows[score[rows] > least], rows[score[rows] == least]
        rows = np.concatenate([higher, equal[:_EQUAL]])
    return [int(row) for row in rows]
