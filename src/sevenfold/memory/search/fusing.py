"""How words and meaning become one ranking, and when the best answer is none.

For the ranking, words and meaning are each measured against the best that any memory of the folder has:
a long prompt has many words that no memory has, and would otherwise be decided by meaning alone. Whether
the best memory is an answer at all is judged by shares of what the question could get. The few numbers here
were chosen on development data (`benchmarks/recall`); around each of them the results are flat.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from sevenfold.memory.search.words import emphasis, names

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Scores = NDArray[np.float32]

K1: Final = 1.2
"""How soon repeating a word stops counting."""
B: Final = 0.75
"""How much a long text has to have a word more often."""
WHOLE: Final = 0.5
BEST: Final = 1.0
"""What a word counts in the whole text, and in its best passage."""
NEAR: Final = 1.25
"""What meaning counts beside words."""
NEAREST: Final = 3
"""Passages that count for the meaning beside the nearest one."""
NAMED: Final = 0.2
"""What it counts for an answer that the folder knows a name in the question, or against it that it does
not: a name tells whose world a question is about, even one that every memory has."""


class Floor(msgspec.Struct, frozen=True):
    """The least that the best memory of an answer must reach. Among more passages there is always one
    that is a little like the question, so it rises with their number, up to a point."""

    first: float
    rise: float
    most: float

    def at(self, passages: int) -> float:
        return min(self.most, self.first + self.rise * math.log(max(passages, 1)))


BY_MEANING: Final = Floor(0.24, 0.08, 1.0)
BY_WORDS: Final = Floor(-0.02, 0.06, 0.6)


class Question(msgspec.Struct, frozen=True):
    """A question's words with what each counts in this folder."""

    weights: Mapping[str, float]
    named: float = 0.0
    """What its names tell about whether it is for this folder."""

    @property
    def total(self) -> float:
        return sum(self.weights.values())


def question(rarity: Mapping[str, float], seen: Mapping[str, bool], text: str = "") -> Question:
    """From the rarity (idf) of each word of a question in this folder, and whether any memory has it."""
    weights = {word: value * emphasis(word) for word, value in rarity.items()}
    known = [seen[name] for name in names(text) if name in seen]
    told = NAMED * any(known) - NAMED * (not all(known))
    return Question(weights, told)


def nearness(cosines: Scores) -> float:
    """How near a memory is by its passages: mostly its nearest, a little the next ones."""
    import numpy as np

    if not len(cosines):
        return 0.0
    top = np.sort(cosines)[::-1][:NEAREST]
    return max(0.0, float(0.75 * top[0] + 0.25 * top.mean()))


class Scale(msgspec.Struct, frozen=True):
    """The most that any memory has, by words and by meaning."""

    words: float
    near: float


def scale(whole: Scores, best: Scores, near: Scores) -> Scale:
    """From the scores of all memories; `near` may be the highest cosine of each, which is never less."""
    if not len(whole):
        return Scale(1.0, 1.0)
    words, meant = float((WHOLE * whole + BEST * best).max()), float(near.max())
    return Scale(max(words, 1e-9), max(meant, 1e-9))


def relative(whole: Scores, best: Scores, near: Scores, most: Scale) -> Scores:
    """One score for each memory, to rank by. `whole` and `best` are BM25 with the question's weights,
    `near` is `nearness` (all zeros where there are no vectors)."""
    score: Scores = (WHOLE * whole + BEST * best) / most.words + NEAR * near / most.near
    return score


def fused(whole: Scores, best: Scores, near: Scores, total: float) -> Scores:
    """How good an answer each memory is: shares of what a question with this total could get."""
    most = max(total * (K1 + 1), 1e-9)
    score: Scores = (WHOLE * whole + BEST * best) / most + NEAR * near
    return score


def worth_showing(top: float, asked: Question, *, by_meaning: bool, passages: int) -> bool:
    """Whether an answer whose best memory is this good (`fused`) is better than none, in a folder of so
    many passages."""
    if not asked.weights:
        return False
    floor = BY_MEANING if by_meaning else BY_WORDS
    return top + asked.named >= floor.at(passages)
