"""Finds the memory that a new one repeats: the same fact, or a similar one.

The same fact may come with another date, or as its opposite: then the new text replaces the old. Texts
that share most of their words but differ in a name or a number may be about two things.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from sevenfold.memory.folder.folder import find_part
from sevenfold.memory.folder.names import make_file_key
from sevenfold.memory.text.words import make_word_set, split_words
from sevenfold.memory.topic_file import Topic

if TYPE_CHECKING:
    from sevenfold.memory.store import MemoryStore

ALIKE: Final = 0.7
"""The part of their word pairs that two texts share from which on they are nearly the same."""
WORDS: Final = 3_000  # Words of a text that are looked at
_CHARACTERS: Final = 30_000
_SKETCH: Final = 200
_SMALLEST: Final = 24
_IN_COMMON: Final = 3  # Of the smallest hashes, so many are shared by texts that are worth comparing
_CROWD: Final = 16  # A pair of words that so many different texts share is a set phrase and tells nothing
_MIX: Final = 0x9E37_79B9_7F4A_7C15
_MASK: Final = (1 << 64) - 1


class SimilarPair(msgspec.Struct, frozen=True):
    """Two texts that say the same or nearly the same."""

    first: str
    second: str
    share: float


class _WordNumbers(dict[str, int]):
    """A number for each word, given out as they come."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self) + 1
        return number


def find_similar_pairs(texts: Iterable[tuple[str, str]], threshold: float = ALIKE) -> list[SimilarPair]:
    """The pairs (earlier, later) of named texts that are nearly the same; each later one once."""
    numbers = _WordNumbers()
    sketches: list[tuple[str, array[int]]] = []
    buckets: dict[int, list[int]] = {}
    found: list[SimilarPair] = []
    for name, text in texts:
        if not (sketch := _sketch(text, numbers)):
            continue
        best = _closest_likeness(sketch, sketches, buckets)
        if best is not None and best[1] >= threshold:
            found.append(SimilarPair(best[0], name, best[1]))
            continue  # the first of a group stands for all of it
        for value in sketch[:_SMALLEST]:
            crowd = buckets.setdefault(value, [])
            if len(crowd) < _CROWD:
                crowd.append(len(sketches))
        sketches.append((name, sketch))
    return found


def _closest_likeness(
    sketch: array[int], sketches: list[tuple[str, array[int]]], buckets: dict[int, list[int]]
) -> tuple[str, float] | None:
    known = [buckets.get(value, ()) for value in sketch[:_SMALLEST]]
    telling = [crowd for crowd in known if len(crowd) < _CROWD]
    shared = Counter(at for crowd in telling for at in crowd)
    needed = min(_IN_COMMON, len(telling))
    scored = [(_share(sketch, sketches[at][1]), -at) for at, n in shared.items() if n >= needed]
    if not scored:
        return None
    share, at = max(scored)
    return sketches[-at][0], share


def _share(one: array[int], other: array[int]) -> float:
    """The overlap of two sets; exact if both are small, else an estimate."""
    if len(one) == _SKETCH or len(other) == _SKETCH:  # only up to where both are known
        known = min(one[-1], other[-1])
        one, other = one[: bisect_right(one, known)], other[: bisect_right(other, known)]
    both = len(set(one).intersection(other))
    return both / (len(one) + len(other) - both)


def _sketch(text: str, numbers: _WordNumbers) -> array[int]:
    """The smallest hashes of its word pairs, in order."""
    words = [numbers[word] for word in split_words(text[:_CHARACTERS])[:WORDS]]
    if len(words) < 4:  # too short for pairs: the same or not
        whole = 0
        for word in words:
            whole = whole * 1_000_003 + word
        return array("Q", [whole * _MIX & _MASK] if words else [])
    pairs = {(left * 0x1_0000_0001 + right) * _MIX & _MASK for left, right in pairwise(words)}
    return array("Q", sorted(pairs)[:_SKETCH])


DESCRIBED_ALIKE: Final = 0.6
"""The share of word pairs from which on two descriptions tell of the same; they are short."""
_PLAIN: Final = make_word_set(
    "a an the is are was be been will of on at in by to for from and or it its this that now"
)
"""Words that say nothing by themselves."""
_TURNING: Final = make_word_set(
    "not no never none always only don doesn isn aren won t s without any more longer instead must "
    "should can may do does "
    "january february march april may june july august september october november december "
    "monday tuesday wednesday thursday friday saturday sunday "
    "不 没 沒 别 別 勿 莫 无 無 总 總 是 的 了 在 要 会 會 再 也 都 就 年 月 日 号 號 周 星 期 "
    "一 二 三 四 五 六 七 八 九 十 零 〇 两 兩 百 千 万 萬"
)
"""Words in which two statements about one thing may differ: days, yes and no."""
_DATE: Final = re.compile(r"\b\d{4}-\d{2}(?:-\d{2})?\b")
_CORE: Final = 2  # Words that two short statements must have in common to be about one thing


class SimilarMemory(msgspec.Struct, frozen=True):
    """A memory that a new one is close to."""

    topic: Topic
    same: bool  # True for the same fact: the new text replaces the old
    known: bool = False  # True if the new one says nothing that the old does not


def is_quote(line: str) -> bool:
    """True for a line that quotes a person word for word."""
    return line.lstrip().startswith(">")


def extract_statement(topic: Topic) -> str:
    """The statement of a memory: description and text, without the quotes it rests on."""
    body = "\n".join(line for line in topic.body.split("\n") if not is_quote(line)).strip()
    return body if topic.description in body else f"{topic.description}\n{body}"


def find_similar(new: Topic, known: Iterable[Topic]) -> SimilarMemory | None:
    """The memory that a new one repeats, corrects or comes close to; None: it is about something else."""
    others = [one for one in known if one.file != new.file]
    named = (one for one in others if make_file_key(one.name) == make_file_key(new.name))
    closest = next(named, None) or _closest(new, others)
    if closest is None:
        return None
    one_kind = new.type == closest.type or None in (new.type, closest.type)
    before, after = extract_statement(closest), extract_statement(new)
    said = one_kind and set(split_words(before)) - _PLAIN == set(split_words(after)) - _PLAIN
    return SimilarMemory(closest, one_kind and _core(before) == _core(after), said)


def filter_candidates(new: Topic, known: Iterable[Topic]) -> list[Topic]:
    """Those of many memories that share enough words with a new one to be looked at closely."""
    wanted = _telling(extract_statement(new)), _telling(new.description)
    return [
        one
        for one in known
        if make_file_key(one.name) == make_file_key(new.name)
        or _overlap(wanted[0], _telling(extract_statement(one)))
        or _overlap(wanted[1], _telling(one.description))
    ]


def _overlap(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) * 2 >= max(1, min(len(one), len(other)))


@lru_cache(maxsize=20_000)
def _telling(text: str) -> frozenset[str]:
    return frozenset(split_words(text)) - _PLAIN


def _closest(new: Topic, others: Sequence[Topic]) -> Topic | None:
    by_file = {one.file: one for one in others}
    for told, least in ((extract_statement, ALIKE), (_described, DESCRIBED_ALIKE)):
        core = _core(told(new))
        for one in others if len(core) >= _CORE else ():
            if one.type == new.type and _core(told(one)) == core:
                return one
        texts = [(one.file, told(one)) for one in others]
        for pair in find_similar_pairs([*texts, ("", told(new))], least):
            if pair.second == "" and pair.first in by_file:
                return by_file[pair.first]
    return None


def _described(topic: Topic) -> str:
    return topic.description


def _core(text: str) -> frozenset[str]:
    """The words of a statement without those in which two of them may differ."""
    told = split_words(_DATE.sub(" ", text))
    return frozenset(told) - _PLAIN - {w for w in told if w in _TURNING or w.rstrip("s") in _TURNING}


def digest_statement(topic: Topic) -> str:
    """A digest of the words that make up what a memory states: the same fact has the same one.

    Empty for a memory without any such word.
    """
    core = " ".join(sorted(_core(extract_statement(topic)))).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(core, digest_size=8).hexdigest() if core else ""


def find_similar_in_store(store: MemoryStore, new: Topic) -> SimilarMemory | None:
    """The memory of the same part that a new one comes close to."""
    part = find_part(new.file)
    there = [one for one in store.topics() if part.holds(one.file)]
    return find_similar(new, filter_candidates(new, there))
