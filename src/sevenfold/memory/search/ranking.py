"""Finds memories by the words of a question: BM25 over segments in memory.

Two scores for each file with the same weights of words: over the whole file, and of its best passage. How
rare a word is and how long texts are is counted over the files that are alive, so the scores are the same
however many segments there are, and the same as after building everything anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sevenfold.memory.search.scoring import K1, SEVERAL, B, compute_rarity
from sevenfold.memory.search.segment import (
    Array,
    BoolArray,
    DamagedSegment,
    IndexedStamp,
    IntArray,
    KeyArray,
    Segment,
    hash_term,
    merge_segments,
)

ListedFile: TypeAlias = tuple[str, int, int]  # A file, its time in nanoseconds, its size
Scores: TypeAlias = npt.NDArray[np.float32]

_ALIVE: Final = 0.75  # The share of rows below which a segment is written anew


class LexicalScores(NamedTuple):
    """Scores by row, over all segments in their order; rows that are gone have none."""

    whole: Scores
    best: Scores
    several: Scores  # The mean of its best passages
    long: bool  # The question is (`is_long`)


class _TermHits(NamedTuple):
    """Terms in one segment, and the part of its weight that each gets where it stands."""

    terms: IntArray  # Which of them, for each of the units that follow
    units: IntArray
    parts: Scores
    row_terms: IntArray  # The same by row, all units together
    rows: IntArray
    row_parts: Scores


class TermLookup(NamedTuple):
    """The places of the words of a question, and the rarity of each among the files."""

    hits: list[_TermHits]  # For each segment
    rarity: dict[str, float]
    seen: dict[str, bool]


class _LengthNorms(NamedTuple):
    whole: list[Scores]
    best: list[Scores]
    passages: int


@dataclass(slots=True)
class LexicalIndex:
    """Segments, oldest first, and what holds now of the files in them."""

    segments: list[Segment] = field(default_factory=list)
    alive: list[BoolArray] = field(default_factory=list)
    known: dict[str, ListedFile] = field(default_factory=dict)
    """Every file that is alive, as it was listed when it was read."""
    fresh: set[str] = field(default_factory=set)
    _places: dict[str, int] = field(default_factory=dict)
    _starts: list[int] = field(default_factory=list)
    _norms: _LengthNorms | None = None

    def add(self, segment: Segment) -> None:
        """The newest segment: what it says wins."""
        self._norms = None
        for file in segment.removed:
            self.forget(file)
        for stamp in segment.stamped:
            if stamp.file in self._places:
                self._stamp(stamp)
        for file in self._places.keys() & segment.files:
            self._dead(file)
            self.fresh.discard(file)
        start = self.rows
        listed = zip(segment.files, segment.stamps.tolist(), segment.sizes.tolist(), strict=True)
        self.known.update(zip(segment.files, listed, strict=True))
        self._places.update(zip(segment.files, range(start, start + len(segment.files)), strict=True))
        self.fresh.update(segment.files[row] for row in np.flatnonzero(segment.fresh))
        self._starts.append(start)
        self.segments.append(segment)
        self.alive.append(np.ones(len(segment.files), np.bool_))

    def _stamp(self, stamp: IndexedStamp) -> None:
        self.known[stamp.file] = (stamp.file, stamp.mtime_ns, stamp.size)
        (self.fresh.add if stamp.fresh else self.fresh.discard)(stamp.file)

    def _dead(self, file: str) -> None:
        place = self._places.pop(file, None)
        if place is not None:
            at, row = self.where(place)
            self.alive[at][row] = False

    def where(self, place: int) -> tuple[int, int]:
        at = bisect_right(self._starts, place) - 1
        return at, place - self._starts[at]

    @property
    def rows(self) -> int:
        """Of all segments together, the dead ones too."""
        return self._starts[-1] + len(self.segments[-1].files) if self.segments else 0

    def file(self, place: int) -> str:
        at, row = self.where(place)
        return self.segments[at].files[row]

    def place(self, file: str) -> int | None:
        return self._places.get(file)

    def digest(self, file: str) -> int | None:
        """Of the bytes this file had when it was read."""
        place = self._places.get(file)
        if place is None:
            return None
        at, row = self.where(place)
        return int(self.segments[at].digests[row])

    def units(self, place: int) -> tuple[int, slice]:
        """In which segment the units of a row stand, and where."""
        at, row = self.where(place)
        first = self.segments[at].first
        return at, slice(int(first[row]), int(first[row + 1]))

    def living(self, at: int) -> BoolArray:
        """The units of this segment that belong to files that are alive."""
        segment = self.segments[at]
        return self.alive[at][segment.owner] if len(segment.files) else np.zeros(0, np.bool_)

    def tail(self) -> int | None:
        """From which segment on they are to become one; None: they are well as they are.

        Small ones behind a larger one do not pile up, and one with many dead rows is written anew, with
        all that came after it.
        """
        for at, alive in enumerate(self.alive):
            if alive.sum() < _ALIVE * len(alive):
                return at
        return find_small_segments([len(segment.lengths) + 1 for segment in self.segments])

    def joined(self, at: int) -> Segment:
        """One segment in the place of all from `at` on."""
        parts = list(zip(self.segments[at:], self.alive[at:], strict=True))
        files = [s.files[row] for s, alive in parts for row in np.flatnonzero(alive)]
        here = set(files)
        removed: set[str] = set()
        stamped: set[str] = set()
        if at:  # what they say about files of older segments has to be said on
            removed = {file for s, _ in parts for file in s.removed} - self._places.keys()
            stamped = {stamp.file for s, _ in parts for stamp in s.stamped} - here
        stamped &= self._places.keys()
        return merge_segments(parts, self._stamps(files), removed, self._stamps(sorted(stamped)))

    def swap(self, at: int, segment: Segment) -> None:
        """Put what `joined` made in the place of what it was made from."""
        start = self._starts[at] if self._starts else 0
        self._norms = None
        self.segments[at:], self._starts[at:] = [segment], [start]
        self.alive[at:] = [np.ones(len(segment.files), np.bool_)]
        self._places.update(zip(segment.files, range(start, start + len(segment.files)), strict=True))

    def forget(self, file: str) -> None:
        """As if it had never been here; `joined` and `swap` come after."""
        self._norms = None
        self._dead(file)
        self.known.pop(file, None)
        self.fresh.discard(file)

    def _stamps(self, files: Iterable[str]) -> list[IndexedStamp]:
        found = [self.known[file] for file in files]
        return [IndexedStamp(file, mtime_ns, size, file in self.fresh) for file, mtime_ns, size in found]

    def look(self, words: Sequence[str]) -> TermLookup:
        """Look up the words of a question."""
        hits, files = self._look(np.array([hash_term(word) for word in words], np.uint64))
        rarity = {word: compute_rarity(n, len(self._places)) for word, n in zip(words, files, strict=True)}
        return TermLookup(hits, rarity, {word: n > 0 for word, n in zip(words, files, strict=True)})

    def scores(self, looked: TermLookup, weights: Mapping[str, float], long: bool = False) -> LexicalScores:
        """The scores of every file, with what each word of a question counts."""
        each = np.array([weights[word] for word in looked.rarity])
        scored = [
            (_add_up(h.units, each[h.terms] * h.parts, len(s.lengths)) * s.weigh_units(long), s)
            for h, s in zip(looked.hits, self.segments, strict=True)
        ]
        best = _joined([pick_best_per_row(in_units, segment) for in_units, segment in scored])
        several = _joined([compute_best_mean(in_units, segment) for in_units, segment in scored])
        return LexicalScores(self._score_whole(looked.hits, each), best, several, long)

    def compare_words(self, place: int) -> Scores:
        """The score of every whole row for the words of this one; rare words count most."""
        (at, own), (_, row) = self.units(place), self.where(place)
        segment = self.segments[at]
        here = np.flatnonzero((segment.units >= own.start) & (segment.units < own.stop))
        hits, files = self._look(np.unique(segment.terms[np.searchsorted(segment.ends, here, "right") - 1]))
        rarity = np.array([compute_rarity(count, len(self._places)) for count in files])
        return self._score_whole(hits, rarity**2 * hits[at].row_parts[hits[at].rows == row])

    def _score_whole(self, hits: Sequence[_TermHits], weights: Array) -> Scores:
        each = [(one.rows, weights[one.row_terms] * one.row_parts) for one in hits]
        return _joined([_add_up(*one, len(s.files)) for one, s in zip(each, self.segments, strict=True)])

    def weigh_covered(self, place: int, looked: TermLookup, weights: Mapping[str, float]) -> float:
        """The weight of the words of a question that this row has."""
        at, row = self.where(place)
        has = set(looked.hits[at].row_terms[looked.hits[at].rows == row].tolist())
        return sum(weights[word] for term, word in enumerate(looked.rarity) if term in has)

    @property
    def passages(self) -> int:
        """Of all files that are alive."""
        return (self._norms or self._measured()).passages

    def _look(self, terms: KeyArray) -> tuple[list[_TermHits], list[int]]:
        """The places of these terms, and the number of files that have each."""
        hits = [self._hits(at, terms) for at in range(len(self.segments))]
        every = np.concatenate([*(found.row_terms for found in hits), np.zeros(0, np.int64)])
        return hits, np.bincount(every, minlength=len(terms)).tolist()

    def _hits(self, at: int, terms: KeyArray) -> _TermHits:
        segment, norms = self.segments[at], self._norms or self._measured()
        begins = segment.ends[np.searchsorted(segment.terms, terms)]
        sizes = segment.ends[np.searchsorted(segment.terms, terms, "right")] - begins
        which = np.repeat(np.arange(len(terms), dtype=np.int32), sizes)
        places = np.arange(len(which)) + np.repeat(begins - np.cumsum(sizes) + sizes, sizes)
        rows = segment.owner[segment.units[places]]
        if not self.alive[at].all():
            keep = self.alive[at][rows]
            which, places, rows = which[keep], places[keep], rows[keep]
        units, counts = segment.units[places], segment.counts[places].astype(np.float32)
        starts = np.flatnonzero(np.diff(which * np.int64(len(segment.files)) + rows, prepend=-1))
        row_terms, rows, sums = which[starts], rows[starts], np.add.reduceat(counts, starts)
        parts, row_parts = (
            (K1 + 1) * many / (many + norm)
            for many, norm in ((counts, norms.best[at][units]), (sums, norms.whole[at][rows]))
        )
        return _TermHits(which, units, parts, row_terms, rows, row_parts)

    def _measured(self) -> _LengthNorms:
        """The share of its score that a text of this length keeps; 0 for a unit that is no passage."""
        living = [self.living(at) & (s.keys != 0) for at, s in enumerate(self.segments)]
        whole = _measure([segment.whole for segment in self.segments], self.alive)
        units = zip(_measure([s.lengths for s in self.segments], living), self.segments, strict=True)
        best = [np.where(segment.keys != 0, norms, np.float32(np.inf)) for norms, segment in units]
        self._norms = _LengthNorms(whole, best, sum(int(alive.sum()) for alive in living))
        return self._norms


def _measure(lengths: Sequence[IntArray], alive: Sequence[BoolArray]) -> list[Scores]:
    """The part of `K1` that a text of each length has, beside the mean of those that are alive."""
    kept = [some[those] for some, those in zip(lengths, alive, strict=True)]
    total = sum(int(some.sum()) for some in kept)
    mean = total / sum(map(len, kept)) if total else 1.0
    return [(K1 * (1 - B + B * some / mean)).astype(np.float32) for some in lengths]


def find_small_segments(sizes: Sequence[int]) -> int | None:
    """The start of the pile of small segments at the end that are to become one; None without one."""
    at, size = len(sizes) - 1, sizes[-1] if sizes else 0
    while at > 0 and sizes[at - 1] <= 2 * size:
        at -= 1
        size += sizes[at]
    return at if at < len(sizes) - 1 else None


def pick_best_per_row(in_units: Scores, segment: Segment) -> Scores:
    """By row, the best of its units; 0 where none is above it."""
    return np.maximum.reduceat(in_units, segment.first[:-1]).clip(0)


def compute_best_mean(in_units: Scores, segment: Segment) -> Scores:
    """By row, the mean of its best units; one that says a thing in several places is about it."""
    above = np.flatnonzero(in_units > 0)
    above = above[np.lexsort((-in_units[above], segment.owner[above]))]
    rows, count = segment.owner[above], len(segment.files)
    each = np.bincount(rows, minlength=count)
    best = np.arange(len(rows)) - (np.cumsum(each) - each)[rows] < SEVERAL
    found = _add_up(rows[best], in_units[above[best]], count)
    found /= np.minimum(np.diff(segment.first), SEVERAL)
    return found


def _add_up(places: IntArray, scores: Array, count: int) -> Scores:
    return np.bincount(places, scores, count).astype(np.float32)


def _joined(parts: Sequence[Scores]) -> Scores:
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


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
        self.highest = _joined(found)
        """By row, its nearest passage; 0 for rows without vectors and for dead ones."""

    def of(self, row: int) -> Scores:
        """Its passages that have a vector."""
        at, units = self._lexical.units(row)
        found = self._units[at][units]
        return found[np.isfinite(found)]

    def nearest(self, row: int) -> int | None:
        """Its nearest unit, counted from its first; None where none has a vector."""
        at, units = self._lexical.units(row)
        found = self._units[at][units]
        return int(found.argmax()) if len(found) and np.isfinite(found).any() else None


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

    def near(
        self, asked: Scores, lexical: LexicalIndex, closely: Iterable[int] = (), long: bool = False
    ) -> RowNearness:
        """The nearness of every passage to a question; passages of the rows in `closely` in any case."""
        rows = self.rows(lexical.segments)
        if self.count <= MANY or len(asked) <= COARSE:
            head, tail = asked[:COARSE], asked[COARSE:]
            cosines = np.concatenate([_product(p.head, head) + _product(p.tail, tail) for p in self.parts])
        else:
            wanted = [rows[at][units] for at, units in map(lexical.units, closely)]
            cosines = self._chosen(asked, np.concatenate([*wanted, np.zeros(0, np.int32)]))
        cosines = np.append(cosines, np.float32(-np.inf))  # where -1 points: there is no vector
        units = [
            cosines[found] * segment.weigh_units(long)
            for found, segment in zip(rows, lexical.segments, strict=True)
        ]
        return RowNearness(units, lexical)

    def places(self, row: int, lexical: LexicalIndex) -> IntArray:
        """The vectors of the units of a row, -1 where there is none."""
        at, units = lexical.units(row)
        return self.rows(lexical.segments)[at][units]

    def vectors(self, places: IntArray) -> Scores:
        """The vectors at these places."""
        found = np.zeros((len(places), self._dimensions), np.float32)
        start = 0
        for part in self.parts:
            here = np.flatnonzero((places >= start) & (places < start + len(part.keys)))
            found[here, : part.head.shape[1]] = part.head[places[here] - start]
            found[here, part.head.shape[1] :] = part.tail[places[here] - start]
            start += len(part.keys)
        return found

    @property
    def _dimensions(self) -> int:
        return self.parts[0].head.shape[1] + self.parts[0].tail.shape[1] if self.parts else 0

    def compare(
        self, asked: Scores, lexical: LexicalIndex, rows: Sequence[int], long: bool = False
    ) -> list[Scores]:
        """The nearness of the passages of these rows alone."""
        known, units = self.rows(lexical.segments), [lexical.units(row) for row in rows]
        every = [segment.weigh_units(long) for segment in lexical.segments]
        places = [known[at][part] for at, part in units]
        weights = [every[at][part] for at, part in units]
        whole = np.concatenate([*places, np.zeros(0, np.int32)])
        cosines = _product(self.vectors(whole), asked)
        ends = [0, *accumulate(map(len, places))]
        return [
            (cosines[start:end] * weight)[some >= 0]
            for (start, end), weight, some in zip(pairwise(ends), weights, places, strict=True)
        ]

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


def _product(matrix: Scores, asked: Scores) -> Scores:
    """On one core: the product of numpy's library wakes a thread for each and waits for the slowest,
    which takes ten times as long where other programs work too."""
    if not matrix.shape[1]:  # short vectors have no tail: of nothing, numpy reads the memory beyond it
        return np.zeros(len(matrix), np.float32)
    product: Scores = np.einsum("ij,j->i", matrix, asked)
    return product


def _least(scores: Scores, count: int) -> float:
    """A score that about so many reach, by a sample of them."""
    sample = scores[::_SAMPLE]
    at = max(len(sample) - count // _SAMPLE, 0)
    return float(np.partition(sample, at)[at])
