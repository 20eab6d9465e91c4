"""When two sentences are the same, when they only look alike, and when they clash.

Two memories are duplicates only if nothing stands against it: another number, name, date, path, "not",
"only" or "off" makes two statements of what looks like one.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Final

import msgspec

from sevenfold.memory.consolidation.word_sets import word_set
from sevenfold.memory.dreams.facts import Meaning, meaning
from sevenfold.memory.search.words import stem

_SIGNS: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af"
_WORD: Final = re.compile(
    rf"[{_SIGNS}]|->|→|[:=](?=\s|$)|[^\s{_SIGNS}，。；：！？、（）“”「」《》→]+|：|="
)
_EDGES: Final = "`*_.,;:!?\"'()[]{}<>…—–’‘"
_SHORT_FORMS: Final = (
    (re.compile(r"\bcan['’]t\b|\bcannot\b", re.IGNORECASE), "can not"),
    (re.compile(r"\bwon['’]t\b", re.IGNORECASE), "will not"),
    (re.compile(r"n['’]t\b", re.IGNORECASE), " not"),
)
_FILLERS: Final = word_set(
    "the a an this that these those please really very strongly generally simply just basically also "
    "definitely certainly clearly 的 了"
)
_STRONG: Final = word_set(
    "not no never none without only except unless if might may maybe perhaps probably could would "
    "considering plans was were 不 没 勿 别 只 仅 若 或 曾"
)
"""Words that make another statement of a sentence, wherever they stand."""
_WEAK: Final = word_set(
    "sometimes often rarely usually always when before after until on off in out up down over under "
    "above below more less most least all some any every first last min max left right yes true false "
    "前 后 上 下"
)
"""Words that do so when the other sentence has another of them."""
_SYNONYMS: Final = {
    word: words.split()[0]
    for words in (
        "prefer like want favor favour love",
        "use utilize employ",
        "database db",
        "repository repo",
        "configuration config",
        "documentation docs doc",
        "production prod",
        "environment env",
        "application app",
        "kubernetes k8s",
        "postgresql postgres",
        "javascript js",
        "typescript ts",
        "directory folder dir",
        "short concise brief terse",
        "answer reply response",
    )
    for word in words.split()
}
_LETTER: Final = re.compile(r"(?<![\w'’])(?:[B-HJ-Z]|A(?=\s*(?:[.,;:)]|$)))(?:\+\+|#)?(?![\w'’])")
_COMPARED: Final = re.compile(r"[<>≤≥≠]|(?<![\w-])-(?=\d)")
_BECAUSE: Final = frozenset(["because", "so", "which", "因", "since"])
_LATIN_MONTHS: Final = re.compile(
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|(?:jan|feb)ruary|march|april|june|july|august"
    r"|(?:septem|octo|novem|decem)ber",
    re.IGNORECASE,
)


class Wording(msgspec.Struct, frozen=True):
    """A sentence as its words, and what of it must agree."""

    words: tuple[str, ...]
    """Every word, small and without its ending; Chinese sign by sign; without those that say nothing."""
    meaning: Meaning
    content: frozenset[str]
    """The words that carry a subject, one for each group of synonyms."""
    guards: frozenset[str]
    """Words and signs that turn a sentence into another one."""
    anchors: tuple[str, ...]
    """Numbers, names, days and paths in their order."""
    numbers: tuple[str, ...]
    """Every word with a digit in it, sorted, repeated ones repeated."""


@lru_cache(maxsize=20_000)
def wording(text: str) -> Wording:
    """What a sentence says, in the forms in which it is compared."""
    raw = plain_words(text)
    said = meaning(text)
    words = tuple(stem(word) for word in raw if word not in _FILLERS)
    named = said.exact | said.names
    days = {one.lower() for one in _LATIN_MONTHS.findall(text)}
    return Wording(
        words=words,
        meaning=said,
        content=frozenset(_SYNONYMS.get(word, word) for word in said.order),
        guards=frozenset((_STRONG | _WEAK).intersection(raw))
        | frozenset(_LETTER.findall(text))
        | frozenset(_COMPARED.findall(text)),
        anchors=tuple(word for word in said.order if word in named) + tuple(sorted(days)),
        numbers=tuple(sorted(word for word in raw if any(sign.isdigit() for sign in word))),
    )


def plain_words(text: str) -> list[str]:
    """The words as they are written, small, without marks around them; Chinese sign by sign."""
    for pattern, long in _SHORT_FORMS:
        text = pattern.sub(long, text)
    found = [word if word in ":：=→" else word.strip(_EDGES) for word in _words_of(text)]
    return [":" if word == "：" else word.lower() for word in found if word]


def _words_of(text: str) -> list[str]:
    return _WORD.findall(re.sub(r"(?<=[\w`*]):(?=\s|$|\*)", " : ", text))


def same(one: Wording, other: Wording) -> bool:
    """Whether two sentences are the same but for articles, case, marks and endings."""
    return one.words == other.words and one.guards == other.guards and bool(one.words)


def says_all_of(one: Wording, other: Wording) -> bool:
    """Whether a sentence says what the other says: the same, or the same with a reason behind it."""
    if same(one, other):
        return True
    length = len(other.words)
    if not length or one.words[:length] != other.words or len(one.words) == length:
        return False
    return one.words[length] in _BECAUSE and one.meaning.negated == other.meaning.negated


def clashes(one: Wording, other: Wording) -> bool:
    """Whether two sentences that share most words differ in what makes another statement of them."""
    left, right = one.meaning, other.meaning
    if left.exact - right.exact and right.exact - left.exact:
        return True
    mine, theirs = Counter(one.numbers), Counter(other.numbers)
    if mine - theirs and theirs - mine:
        return True
    if left.names - set(right.order) and right.names - set(left.order):
        return True
    if left.negated != right.negated or (one.guards ^ other.guards) & _STRONG:
        return True
    if one.guards - other.guards and other.guards - one.guards:
        return True
    mine_only, theirs_only = _odd(one) - _odd(other), _odd(other) - _odd(one)
    return bool(mine_only and theirs_only) or _order_differs(one.anchors, other.anchors)


def near(one: Wording, other: Wording) -> bool:
    """Whether one sentence is the other with some words more behind its beginning, or in other order."""
    if same(one, other):
        return True
    if clashes(one, other) or not one.content or not other.content:
        return False
    small, large = sorted((one, other), key=lambda each: len(each.content))
    if not small.content <= large.content:
        return False
    if small.content == large.content:
        return sorted(one.meaning.order) == sorted(other.meaning.order) or _same_start(one, other)
    return len(small.content) >= 0.5 * len(large.content) and _same_start(one, other)


def likeness(one: Wording, other: Wording) -> float:
    """The part of the words of the shorter sentence that the other has too."""
    least = min(len(one.content), len(other.content))
    return len(one.content & other.content) / least if least else 0.0


def _odd(one: Wording) -> set[str]:
    """Flags, paths and the like: `-x` is not `-q`."""
    return {word for word in one.words if not word.isalnum()}


def _same_start(one: Wording, other: Wording) -> bool:
    left, right = one.meaning.order, other.meaning.order
    count = 0
    for a, b in zip(left, right, strict=False):
        if _SYNONYMS.get(a, a) != _SYNONYMS.get(b, b):
            break
        count += 1
    return count >= min(2, len(left), len(right))


def _order_differs(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether shared names and numbers stand in another order."""
    shared = set(one) & set(other)
    left = [word for word in dict.fromkeys(one) if word in shared]
    right = [word for word in dict.fromkeys(other) if word in shared]
    return left != right
