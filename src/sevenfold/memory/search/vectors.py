"""The meaning of passages as vectors: kept by the digest of their text, compared one with all.

Nothing clever is between a question and the passages: a product with the whole matrix is exact, needs no
structure that would have to be kept up to date, and takes milliseconds at the sizes memories have. Where
there are very many, the first numbers of all vectors (the default embedder's say the most) choose which
are compared in full. A passage whose text has not changed keeps its vector wherever it moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sevenfold.memory.search.lexical import LexicalIndex, Scores, find_small_segments, pick_best_per_row
from sevenfold.memory.search.segment import Array, BoolArray, DamagedSegment, IntArray, KeyArray, Segment

COARSE: Final = 64  # The first numbers, kept apart so that they can be compared alone
MANY: Final = 100_000  # Vectors up to which every question is compared with all of them in full
FEW: Final = 4_096  # About how many are compared in full beyond that
_SAMPLE: Final = 16
_UNUSED: Final = 16  # Vectors without a passage that are let be; a purge leaves none


@dataclass(slots=True)
class VectorPart:
    """A part that never changes: keys in rising order, and for each a vector of length one."""

    keys: KeyArray
    head: Scores
    tail: Scores  # The first numbers of each vector, and the others
    name: str = ""  # On the shelf; empty while it is in memory only

    def packed(self) -> tuple[bytes, dict[str, Array]]:
        return b"", {"keys": self.keys, "head": self.head, "tail": self.tail}

    def those(self, which: BoolArray) -> VectorPart:
        return VectorPart(self.keys[which], self.head[which], self.tail[which])


def make_vectors(keys: Array, matrix: Array) -> VectorPart:
    """A part of these; a key that comes twice is kept once."""
    unique, at = np.unique(keys.astype(np.uint64), return_index=True)
    head, tail = matrix[at, :COARSE], matrix[at, COARSE:]
    return VectorPart(
        unique, np.ascontiguousarray(head, np.float32), np.ascontiguousarray(tail, np.float32)
    )


def unpack_vectors(name: str, arrays: dict[str, Array], dimensions: int) -> VectorPart:
    """A part as it was written; `DamagedSegment` when the arrays are not those of vectors of this size."""
    coarse = min(COARSE, dimensions)
    count = len(arrays.get("keys", ()))
    expected = {
        "keys": ((count,), "<u8"),
        "head": ((count, coarse), "<f4"),
        "tail": ((count, dimensions - coarse), "<f4"),
    }
    if {key: (array.shape, array.dtype.str) for key, array in arrays.items()} != expected:
        raise DamagedSegment(f"{name} does not hold vectors of {dimensions} numbers")
    return VectorPart(**arrays, name=name)


class RowNearness:
    """The nearness of the passages of each row."""

    def __init__(self, units: Sequence[Scores], lexical: LexicalIndex) -> None:
        self._units, self._lexical = units, lexical
        found = [
            np.where(lexical.alive[at], pick_best_per_row(units[at], segment), np.float32(0))
            for at, segment in enumerate(lexical.segments)
        ]
        self.highest: Scores = np.concatenate(found) if found else np.zeros(0, np.float32)
        """By row, its nearest passage; 0 for rows without vectors and for dead ones."""

    def of(self, row: int) -> Scores:
        """Its passages that have a vector."""
        at, units = self._lexical.units(row)
        found = self._units[at][units]
        return found[np.isfinite(found)]


class VectorIndex:
    """The vectors there are, and which unit of which segment has which. Parts do not change; a change
    is another `VectorIndex`, so that a search goes on with the one it began with."""

    def __init__(self, parts: Sequence[VectorPart] = ()) -> None:
        self.parts = tuple(parts)
        self.count = sum(len(part.keys) for part in self.parts)
        self._rows: dict[int, tuple[Segment, IntArray]] = {}

    def extended(self, part: VectorPart, lexical: LexicalIndex) -> VectorIndex:
        """With one part more; what was worked out about the others stays."""
        new = VectorIndex((*self.parts, part))
        only = VectorIndex((part,))
        for segment, rows in zip(lexical.segments, self.rows(lexical.segments), strict=True):
            lacking = np.flatnonzero((rows < 0) & (segment.keys != 0))
            found = only.find(segment.keys[lacking])
            rows = rows.copy()
            rows[lacking] = np.where(found < 0, found, found + np.int32(self.count))
            new._rows[id(segment)] = (segment, rows)
        return new

    def replaced(self, at: int, used: BoolArray, lexical: LexicalIndex) -> VectorIndex:
        """With one part in the place of all from `at` on, without the vectors nobody uses."""
        keep = used[sum(len(part.keys) for part in self.parts[:at]) :]
        keys, head, tail = (
            np.concatenate([getattr(part, name) for part in self.parts[at:]])[keep]
            for name in ("keys", "head", "tail")
        )
        order = np.argsort(keys)
        new = VectorIndex((*self.parts[:at], VectorPart(keys[order], head[order], tail[order])))
        new.rows(lexical.segments)
        return new

    def learn(self, segment: Segment, beside: Sequence[Segment]) -> None:
        """Find the vectors of a segment before anyone asks; others than those beside it are forgotten."""
        kept = {id(one): self._rows[id(one)] for one in beside if id(one) in self._rows}
        self._rows = {**kept, id(segment): (segment, self.find(segment.keys))}

    def find(self, keys: KeyArray) -> IntArray:
        """For each key the place of its vector, -1 where there is none."""
        found = np.full(len(keys), -1, np.int32)
        start = 0
        for part in self.parts:
            if len(part.keys):
                at = np.minimum(np.searchsorted(part.keys, keys), len(part.keys) - 1)
                there = part.keys[at] == keys
                found[there] = at[there] + start
            start += len(part.keys)
        return found

    def rows(self, segments: Sequence[Segment]) -> list[IntArray]:
        """The vectors of the units of each segment, -1 where there is none yet."""
        found: list[IntArray] = []
        for segment in segments:
            known = self._rows.get(id(segment))
            if known is None:
                known = self._rows[id(segment)] = (segment, self.find(segment.keys))
            found.append(known[1])
        return found

    def near(self, asked: Scores, lexical: LexicalIndex, closely: Iterable[int] = ()) -> RowNearness:
        """The nearness of every passage to a question; passages of the rows in `closely` in any case."""
        rows = self.rows(lexical.segments)
        if self.count <= MANY or len(asked) <= COARSE:
            cosines = np.concatenate([_products(part, asked) for part in self.parts])
        else:
            wanted = [rows[at][units] for at, units in map(lexical.units, closely)]
            cosines = self._chosen(asked, np.concatenate([*wanted, np.zeros(0, np.int32)]))
        cosines = np.append(cosines, np.float32(-np.inf))  # where -1 points: there is no vector
        units = [
            cosines[found] * segment.weights for found, segment in zip(rows, lexical.segments, strict=True)
        ]
        return RowNearness(units, lexical)

    def _chosen(self, asked: Scores, also: IntArray) -> Scores:
        """The products with the vectors whose first numbers are the nearest; 0 for all others."""
        roughly = np.concatenate([_product(part.head, asked[:COARSE]) for part in self.parts])
        cosines = np.zeros(self.count, np.float32)
        marked = roughly >= _least(roughly, FEW)
        marked[also[also >= 0]] = True
        chosen = np.flatnonzero(marked)
        start = 0
        for part in self.parts:
            here = chosen[(chosen >= start) & (chosen < start + len(part.keys))]
            rest = _product(part.tail[here - start], asked[COARSE:])
            cosines[here] = roughly[here] + rest
            start += len(part.keys)
        return cosines

    def used(self, lexical: LexicalIndex) -> BoolArray:
        """The vectors that belong to a passage of a file that is alive."""
        used = np.zeros(self.count + 1, np.bool_)
        for at, rows in enumerate(self.rows(lexical.segments)):
            used[rows[lexical.living(at)]] = True
        return used[:-1]

    def tail(self, used: BoolArray) -> int | None:
        """From which part on they are to become one; 0 as well when many are of no use any more."""
        if len(used) - int(used.sum()) > max(_UNUSED, len(used) // 4):
            return 0
        return find_small_segments([len(part.keys) for part in self.parts])


def _products(part: VectorPart, asked: Scores) -> Scores:
    whole = _product(part.head, asked[:COARSE])
    return whole + _product(part.tail, asked[COARSE:]) if len(asked) > COARSE else whole


def _product(matrix: Scores, asked: Scores) -> Scores:
    """On one core: the product of numpy's library wakes a thread for each and waits for the slowest,
    which takes ten times as long where other programs work too."""
    product: Scores = np.einsum("ij,j->i", matrix, asked)
    return product


def _least(scores: Scores, count: int) -> float:
    """A score that about so many reach, by a sample of them."""
    sample = scores[::_SAMPLE]
    at = max(len(sample) - count // _SAMPLE, 0)
    return float(np.partition(sample, at)[at])
