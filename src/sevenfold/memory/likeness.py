"""Which texts say nearly the same, among thousands, without comparing each with each.

A text becomes the set of its neighbouring word pairs (of Chinese, Japanese and Korean its character
pairs). The smallest few hashes of two sets that overlap a lot have one in common: only texts that share
such a hash are compared.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import msgspec

ALIKE: Final = 0.7
"""The part of their word pairs that two texts share from which on they are nearly the same."""
WORDS: Final = 3_000
"""Words of a text that are looked at."""
_CHARACTERS: Final = 30_000
_SKETCH: Final = 200
_SMALLEST: Final = 24
_IN_COMMON: Final = 3
"""Of the smallest hashes, so many are shared by texts that are worth comparing."""
_CROWD: Final = 16
"""A pair of words that so many different texts share is a set phrase and tells nothing."""
_MIX: Final = 0x9E37_79B9_7F4A_7C15
_MASK: Final = (1 << 64) - 1
_ASCII_WORD: Final = re.compile(r"[a-z0-9_]+")
_WORD: Final = re.compile(
    r"[\u3040-\u9fff\uac00-\ud7af\uf900-\ufaff]|[^\W\u3040-\u9fff\uac00-\ud7af]+"
)


class Alike(msgspec.Struct, frozen=True):
    """Two texts that say the same or nearly the same."""

    first: str
    second: str
    share: float


class _Numbers(dict[str, int]):
    """A number for each word, given out as they come."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self) + 1
        return number


def alike(texts: Iterable[tuple[str, str]], threshold: float = ALIKE) -> list[Alike]:
    """The pairs (earlier, later) of named texts that are nearly the same; each later one once."""
    numbers = _Numbers()
    sketches: list[tuple[str, array[int]]] = []
    buckets: dict[int, list[int]] = {}
    found: list[Alike] = []
    for name, text in texts:
        sketch = _sketch(text, numbers)
        if not sketch:
            continue
        best = _closest(sketch, sketches, buckets)
        if best is not None and best[1] >= threshold:
            found.append(Alike(best[0], name, best[1]))
            continue  # the first of a group stands for all of it
        for value in sketch[:_SMALLEST]:
            crowd = buckets.setdefault(value, [])
            if len(crowd) < _CROWD:
                crowd.append(len(sketches))
        sketches.append((name, sketch))
    return found


def _closest(
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
    """How much two sets overlap; exact when both are small, close to it otherwise."""
    if len(one) == _SKETCH or len(other) == _SKETCH:  # only up to where both are known
        known = min(one[-1], other[-1])
        one, other = one[: bisect_right(one, known)], other[: bisect_right(other, known)]
    both = len(set(one).intersection(other))
    return both / (len(one) + len(other) - both)


def _sketch(text: str, numbers: _Numbers) -> array[int]:
    """The smallest hashes of its word pairs, in order."""
    text = text[:_CHARACTERS].lower()
    pattern = _ASCII_WORD if text.isascii() else _WORD
    words = [numbers[word] for word in pattern.findall(text)[:WORDS]]
    if len(words) < 4:  # too short for pairs: the same or not
        whole = 0
        for word in words:
            whole = whole * 1_000_003 + word
        return array("Q", [whole * _MIX & _MASK] if words else [])
    pairs = {(left * 0x1_0000_0001 + right) * _MIX & _MASK for left, right in pairwise(words)}
    return array("Q", sorted(pairs)[:_SKETCH])
