"""Finds memories by the words of a question: BM25 over segments in memory.

Two scores for each file with the same weights of words: over the whole file, and of its best passage. How
rare a word is and how long texts are is counted over the files that are alive, so the scores are the same
however many segments there are, and the same as after building everything anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sevenfold.memory.search.scoring import K1, B
from sevenfold.memory.search.segment import (
    BoolArray,
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


class _TermHits(NamedTuple):
    """One term in one segment."""

    units: IntArray
    counts: Scores
    rows: IntArray
    sums: Scores  # Its count in each of these rows, all units together


class TermLookup(NamedTuple):
    """The places of the words of a question, and the rarity of each among the files."""

    hits: dict[str, list[_TermHits]]  # By word, for each segment
    rarity: dict[str, float]
    seen: dict[str, bool]


@dataclass(slots=True)
class _LengthNorms:
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

    def keys(self, file: str) -> KeyArray:
        """The keys of the vectors of its passages."""
        at, units = self.units(self._places[file])
        return self.segments[at].keys[units]

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

    def look(self, words: Iterable[str]) -> TermLookup:
        """Look up the words of a question."""
        hits = {
            word: [self._hits(at, hash_term(word)) for at in range(len(self.segments))] for word in words
        }
        files = {word: sum(len(one.rows) for one in some) for word, some in hits.items()}
        rarity = {word: self.rarity(count) for word, count in files.items()}
        return TermLookup(hits, rarity, {word: count > 0 for word, count in files.items()})

    def scores(self, looked: TermLookup, weights: Mapping[str, float]) -> LexicalScores:
        """Both scores of every file, with what each word counts."""
        norms = self._norms or self._measured()
        whole: list[Scores] = []
        best: list[Scores] = []
        for at, segment in enumerate(self.segments):
            in_rows = np.zeros(len(segment.files), np.float32)
            in_units = np.zeros(len(segment.lengths), np.float32)
            for word, some in looked.hits.items():
                weight = np.float32(weights[word] * (K1 + 1))
                units, counts, rows, sums = some[at]
                in_rows[rows] += weight * sums / (sums + norms.whole[at][rows])
                in_units[units] += weight * counts / (counts + norms.best[at][units])
            whole.append(in_rows)
            best.append(pick_best_per_row(in_units * segment.weights, segment))
        return LexicalScores(_joined(whole), _joined(best))

    def rarity(self, files: int) -> float:
        """The weight of a word that stands in so many files; the fewer, the more."""
        count = len(self._places)
        return float(np.log1p((count - files + 0.5) / (files + 0.5)))

    @property
    def passages(self) -> int:
        """Of all files that are alive."""
        return (self._norms or self._measured()).passages

    def _hits(self, at: int, term: int) -> _TermHits:
        segment = self.segments[at]
        found = segment.postings(term)
        units, counts = segment.units[found], segment.counts[found].astype(np.float32)
        rows = segment.owner[units]
        if not self.alive[at].all():
            keep = self.alive[at][rows]
            units, counts, rows = units[keep], counts[keep], rows[keep]
        if not len(rows):
            return _TermHits(units, counts, rows, counts)
        starts = np.flatnonzero(np.diff(rows, prepend=np.int32(-1)))
        return _TermHits(units, counts, rows[starts], np.add.reduceat(counts, starts))

    def _measured(self) -> _LengthNorms:
        """The share of its score that a text of this length keeps; 0 for a unit that is no passage."""
        living = [self.living(at) & (s.keys != 0) for at, s in enumerate(self.segments)]
        rows = _mean([s.whole[a] for s, a in zip(self.segments, self.alive, strict=True)])
        units = _mean([s.lengths[a] for s, a in zip(self.segments, living, strict=True)])

        count = sum(int(alive.sum()) for alive in living)

        def norm(lengths: IntArray, mean: float) -> Scores:
            return (K1 * (1 - B + B * lengths / mean)).astype(np.float32)

        whole = [norm(segment.whole, rows) for segment in self.segments]
        best = [np.where(s.keys != 0, norm(s.lengths, units), np.inf) for s in self.segments]
        self._norms = _LengthNorms(whole, [norms.astype(np.float32) for norms in best], count)
        return self._norms


def find_small_segments(sizes: Sequence[int]) -> int | None:
    """The start of the pile of small segments at the end that are to become one; None without one."""
    at, size = len(sizes) - 1, sizes[-1] if sizes else 0
    while at > 0 and sizes[at - 1] <= 2 * size:
        at -= 1
        size += sizes[at]
    return at if at < len(sizes) - 1 else None


def pick_best_per_row(in_units: Scores, segment: Segment) -> Scores:
    """By row, the best of its units; 0 where none is above it."""
    best = np.zeros(len(segment.files), np.float32)
    above = np.flatnonzero(in_units > 0)
    if len(above):
        rows = segment.owner[above]
        starts = np.flatnonzero(np.diff(rows, prepend=np.int32(-1)))
        best[rows[starts]] = np.maximum.reduceat(in_units[above], starts)
    return best


def _joined(parts: Sequence[Scores]) -> Scores:
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def _mean(parts: Sequence[IntArray]) -> float:
    count = sum(map(len, parts))
    return max(sum(int(part.sum()) for part in parts) / count, 1e-9) if count else 1.0
