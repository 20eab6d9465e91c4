"""Makes one ranking of words and meaning, and decides when the best answer is none.

For the ranking, words and meaning are each measured against the best that any memory of the folder has:
a long prompt has many words that no memory has, and would otherwise be decided by meaning alone. Whether
the best memory is an answer at all is judged by shares of what the question could get. The few numbers here
were chosen on development data (`benchmarks/recall`); around each of them the results are flat.

A memory is cut into the pieces that are scored: a long text is found by its best place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from sevenfold.memory.text.words import find_emphasis, find_names

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

if TYPE_CHECKING:
    Scores = NDArray[np.float32]

K1: Final = 1.2  # BM25: the smaller, the sooner repeating a word stops counting
B: Final = 0.75  # BM25: the larger, the more often a long text has to have a word
WHOLE: Final = 0.5
BEST: Final = 1.0  # The weight of a word in the whole text, and in its best passage
NEAR: Final = 1.25  # The weight of meaning beside words
NEAREST: Final = 3  # Passages that count for the meaning beside the nearest one
NAMED: Final = 0.2
"""The weight of a name in the question: for an answer if the folder knows it, against one if it does
not: a name tells whose world a question is about, even one that every memory has."""


class ScoreFloor(msgspec.Struct, frozen=True):
    """The least that the best memory of an answer must reach. Among more passages there is always one
    that is a little like the question, so it rises with their number, up to a point."""

    first: float
    rise: float
    most: float

    def at(self, passages: int) -> float:
        return min(self.most, self.first + self.rise * math.log(max(passages, 1)))


BY_MEANING: Final = ScoreFloor(0.24, 0.08, 1.0)
BY_WORDS: Final = ScoreFloor(-0.02, 0.06, 0.6)


class WeightedQuestion(msgspec.Struct, frozen=True):
    """A question's words with what each counts in this folder."""

    weights: Mapping[str, float]
    named: float = 0.0  # The share of its names that shows whether it is for this folder

    @property
    def total(self) -> float:
        return sum(self.weights.values())


def weigh_question(
    rarity: Mapping[str, float], seen: Mapping[str, bool], text: str = ""
) -> WeightedQuestion:
    """From the rarity (idf) of each word of a question in this folder, and whether any memory has it."""
    weights = {word: value * find_emphasis(word) for word, value in rarity.items()}
    known = [seen[name] for name in find_names(text) if name in seen]
    told = NAMED * any(known) - NAMED * (not all(known))
    return WeightedQuestion(weights, told)


def compute_nearness(cosines: Scores) -> float:
    """The nearness of a memory by its passages: mostly its nearest, a little the next ones."""
    import numpy as np

    if not len(cosines):
        return 0.0
    top = np.sort(cosines)[::-1][:NEAREST]
    return max(0.0, float(0.75 * top[0] + 0.25 * top.mean()))


class ScoreScale(msgspec.Struct, frozen=True):
    """The most that any memory has, by words and by meaning."""

    words: float
    near: float


def compute_scale(whole: Scores, best: Scores, near: Scores) -> ScoreScale:
    """From the scores of all memories; `near` may be the highest cosine of each, which is never less."""
    if not len(whole):
        return ScoreScale(1.0, 1.0)
    words, meant = float((WHOLE * whole + BEST * best).max()), float(near.max())
    return ScoreScale(max(words, 1e-9), max(meant, 1e-9))


def compute_relative_scores(whole: Scores, best: Scores, near: Scores, most: ScoreScale) -> Scores:
    """One score for each memory, to rank by. `whole` and `best` are BM25 with the question's weights,
    `near` is `compute_nearness` (all zeros where there are no vectors)."""
    score: Scores = (WHOLE * whole + BEST * best) / most.words + NEAR * near / most.near
    return score


def fuse_scores(whole: Scores, best: Scores, near: Scores, total: float) -> Scores:
    """The score of each memory: shares of what a question with this total could get."""
    most = max(total * (K1 + 1), 1e-9)
    score: Scores = (WHOLE * whole + BEST * best) / most + NEAR * near
    return score


def is_worth_showing(top: float, asked: WeightedQuestion, *, by_meaning: bool, passages: int) -> bool:
    """True if an answer whose best memory is this good (`fuse_scores`) is better than none, in a
    folder of so many passages."""
    if not asked.weights:
        return False
    floor = BY_MEANING if by_meaning else BY_WORDS
    return top + asked.named >= floor.at(passages)


SIZE: Final = 300  # Characters a piece has at most
MOST: Final = 96  # Pieces a text has at most: what lies behind them is found by the words of the whole text
ASSISTANT: Final = 0.5  # The weight of a piece that an assistant said

_BREAK: Final = re.compile(r"\n\s*\n|\n(?=#{1,6} )|\n(?=[*_]{0,2}[^\W\d][\w .'-]{0,30}[*_]{0,2}[:：]\s)")
"""Between paragraphs, before a heading, before a line that somebody says (`Anna: …`)."""
_SENTENCE: Final = re.compile(r"\n|(?<=[.!?;]) |(?<=[。！？；])")
_USER: Final = "user|human|用户|用戶"
_OTHER: Final = "assistant|ai|bot|model|chatgpt|claude|助手|助理"
_ROLE: Final = re.compile(
    rf"(?mi)^[^\w\n]{{0,8}}({_USER}|{_OTHER})\b(?:[ \t]*\([^)\n]{{0,40}}\))?[^\w\n]{{0,4}}(?:[:：\]]|$)"
    rf'|(?:\{{\s*)?"role"\s*:\s*"({_USER}|{_OTHER})"'
)
"""The beginning of a turn: `user: …`, `**Assistant:** …`, `## User`, `[assistant] …`, `"role": "user"`."""


class TextPassage(msgspec.Struct, frozen=True):
    """A piece of a text: from `start` up to `end`, in characters, and how much it counts."""

    start: int
    end: int
    text: str
    weight: float = 1.0


def split_passages(text: str, *, size: int = SIZE, most: int = MOST) -> list[TextPassage]:
    """The pieces of this text in their order; an empty text has none."""
    found: list[TextPassage] = []
    for begin, finish, weight in _turns(text):
        for start, end in _packed(text, begin, finish, size):
            if text[start:end].strip():
                found.append(TextPassage(start, end, text[start:end], weight))
            if len(found) == most:
                return found
    return found


def _turns(text: str) -> Iterator[tuple[int, int, float]]:
    """The turns of a conversation with an assistant; anything else is one turn."""
    starts = [(match.start(), (match[1] or match[2]).lower()) for match in _ROLE.finditer(text)]
    users = set(_USER.split("|"))
    voices = {who in users for _, who in starts}
    if voices != {True, False}:
        yield 0, len(text), 1.0
        return
    if starts[0][0] > 0:
        yield 0, starts[0][0], 1.0
    ends = [at for at, _ in starts[1:]] + [len(text)]
    for (start, who), end in zip(starts, ends, strict=True):
        yield start, end, 1.0 if who in users else ASSISTANT


def _packed(text: str, begin: int, finish: int, size: int) -> Iterator[tuple[int, int]]:
    """Neighbouring parts together, as long as they fit."""
    start = end = begin
    for first, last in _parts(text, begin, finish, size):
        if last - start > size and end > start:
            yield start, end
            start = first
        end = last
    if end > start:
        yield start, end


def _parts(text: str, begin: int, finish: int, size: int) -> Iterator[tuple[int, int]]:
    """Paragraphs and lines of speech, none longer than `size`."""
    cuts = [match.end() for match in _BREAK.finditer(text, begin, finish)]
    for start, end in zip([begin, *cuts], [*cuts, finish], strict=True):
        at = start
        while end - at > size:
            cut = _last_cut(text, at, at + size)
            yield at, cut
            at = cut
        if end > at:
            yield at, end


def _last_cut(text: str, start: int, end: int) -> int:
    """The best place to end a piece: after a sentence, else after a word, else right here."""
    cuts = [match.end() for match in _SENTENCE.finditer(text, start + 1, end)]
    if cuts:
        return cuts[-1]
    space = text.rfind(" ", start + 1, end)
    return space + 1 if space > start else end


class SearchHit(msgspec.Struct, frozen=True):
    """A memory file that answers a question."""

    file: str
    score: float
    """To rank by: words and meaning, each beside the most that any memory has for this question."""
    lexical: float  # By its words, the whole file (BM25); 0 when it shares none with the question
    semantic: float  # By its meaning (cosine of its nearest passage); 0 when it has no vectors


class RefreshReport(msgspec.Struct, frozen=True):
    """The result of a look at the files; all empty when nothing had changed."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


class VectorProgress(msgspec.Struct, frozen=True):
    """The progress of the vectors; `str` of it is a line for people."""

    done: int = 0
    total: int = 0
    rate: float = 0.0  # Passages a second
    running: bool = False
    problem: str = ""  # The reason why it stopped before the end; empty when it did not

    def __str__(self) -> str:
        said = f"{self.done:,} of {self.total:,} passages have vectors"
        if self.rate:
            said += f", {self.rate:,.0f} a second"
        return f"{said}; {self.problem}" if self.problem else said
