"""Makes one ranking of words and meaning.

Words and meaning are each measured against the best that any memory of the folder has: a long prompt has
many words that no memory has, and would otherwise be decided by meaning alone. Meaning counts twice: how
near a memory is to the question, and how near to the question together with its best answers, because the
memories about one thing resemble each other more than they resemble a short question. The few numbers
here were chosen on development data (`benchmarks/recall`); around each of them the results are flat.
A long message mostly goes on with something. The memory that stands out says what that is better than the
message does, so the others rise by how much they have of its words.

A memory is cut into the pieces that are scored: a long text is found by its best place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from sevenfold.memory.text.words import find_emphasis, find_names

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Scores = NDArray[np.float32]
    Score = TypeVar("Score", float, Scores)

K1: Final = 1.2  # BM25: the smaller, the sooner repeating a word stops counting
B: Final = 0.75  # BM25: the larger, the more often a long text has to have a word
SEVERAL: Final = 4  # Passages whose words count beside those of the best one
BEST: Final = 0.5  # The weight of the best passage by words, beside the whole text and the best few
FEW_BEST: Final = 3.0  # The weight of the best few passages by words
NEAR: Final = 0.4  # The weight of nearness to the question, beside words
ECHO: Final = 0.8  # The weight of nearness to the question together with its best answers
CLEAR: Final = 8  # Words of a question up to which its vector says what it is about; of more, words decide
KINSHIP: Final = 6.0  # The weight of words shared with the best memory, for each point by which it leads
NAMED: Final = 1.5  # The weight of a name beside other words: a long message names what it is about
BESIDE: Final = 0.3  # The part of the best score that others must reach to be shown beside it
BESIDE_BY_WORDS: Final = 0.2  # The same where there are no vectors: scores by words fall faster
NEAREST: Final = 3  # Passages that count for the meaning beside the nearest one
FEWEST: Final = 10  # Files that a smaller folder counts as: in a folder of one, no word would count


def compute_rarity(files: int, count: int) -> float:
    """The weight of a word (idf) that stands in so many of `count` files; the fewer, the more."""
    return math.log1p((max(count, FEWEST) - files + 0.5) / (files + 0.5))


def weigh_question(rarity: Mapping[str, float], query: str = "") -> dict[str, float]:
    """What each word of a question counts, from its rarity (idf) in this folder; names count more."""
    named = frozenset(find_names(query))
    return {
        word: value * find_emphasis(word) * (NAMED if word in named else 1.0)
        for word, value in rarity.items()
    }


def add_word_scores(whole: Score, best: Score, several: Score) -> Score:
    """One score by words, of the whole text, its best passage and its best few."""
    together: Score = whole + BEST * best + FEW_BEST * several
    return together


def weigh_meaning(words: int) -> float:
    """The share of its weight that meaning keeps for a question of so many words."""
    return CLEAR / max(words, CLEAR)


def is_long(words: int) -> bool:
    """True for a message that goes on with what both worked out: an assistant's turns count in full."""
    return words > CLEAR


def add_kinship(scores: Sequence[float], words: int, compare: Callable[[int], list[float]]) -> list[float]:
    """The scores for a long message, raised by how much of the words of the best each has (`compare`)."""
    if len(scores) < 2 or not is_long(words):
        return list(scores)
    *others, best = sorted(range(len(scores)), key=scores.__getitem__)
    shared = compare(best)
    shared[best] = most = max(1e-9, *(shared[at] for at in others))
    lead = KINSHIP * (1 - weigh_meaning(words)) * (scores[best] - scores[others[-1]])
    return [score + lead * one / most for score, one in zip(scores, shared, strict=True)]


def compute_nearness(cosines: Scores) -> float:
    """The nearness of a memory by its passages: mostly its nearest, a little the next ones."""
    top = sorted(cosines.tolist(), reverse=True)[:NEAREST]  # of so few, numpy takes ten times as long
    return max(0.0, 0.75 * top[0] + 0.25 * sum(top) / len(top)) if top else 0.0


def scale_scores(scores: Scores) -> Scores:
    """As shares of the most that any memory has; all zeros stay zeros."""
    scaled: Scores = scores / max(float(scores.max(initial=0.0)), 1e-9)
    return scaled


READ: Final = 1 << 20  # Bytes of a file that are looked at; what lies behind them is not found
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


def read_texts(data: bytes, file: str) -> tuple[list[TextPassage], str]:
    """Name and description, and the passages of the body; and what lies behind the last of them."""
    from sevenfold.memory.topic_file import read_topic

    topic = read_topic(data[:READ], file)
    cut = split_passages(topic.body)
    head = f"{topic.name}\n{topic.description}"
    rest = topic.body[cut[-1].end :] if cut else ""
    return [TextPassage(0, len(head), head), *cut], rest


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
