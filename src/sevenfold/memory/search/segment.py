"""A part of the lexical index that never changes: which words stand in which pieces of which files.

A file is a row; its pieces are units: the first is name and description, then come the passages of the
body, and what lies behind the last passage is a unit that counts for the whole file only. Words are kept as
64-bit digests, so the index holds numbers and file names and no text. A newer segment wins over an older
one; what it says about files of older ones (gone, or the same text with another date) stands beside its
rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from sevenfold.memory.search.arrays import Array, Damaged
from sevenfold.memory.search.passages import Passage, passages
from sevenfold.memory.search.words import tokens
from sevenfold.memory.topic import read_topic

Ints: TypeAlias = npt.NDArray[np.int32]
Keys: TypeAlias = npt.NDArray[np.uint64]
Flags: TypeAlias = npt.NDArray[np.bool_]

READ: Final = 1 << 20
"""Bytes of a file that are looked at; what lies behind them is not found."""
_MOST: Final = np.iinfo(np.uint16).max
_ARRAYS: Final = {
    "stamps": "<i8",
    "sizes": "<i8",
    "fresh": "|b1",
    "digests": "<u8",
    "first": "<i4",
    "lengths": "<i4",
    "keys": "<u8",
    "weights": "<f4",
    "terms": "<u8",
    "ends": "<i8",
    "units": "<i4",
    "counts": "<u2",
}


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a file without reading it."""

    file: str
    mtime_ns: int
    size: int
    fresh: bool
    """Read so soon after it was written that another text could have the same time."""


class Piece(msgspec.Struct, frozen=True):
    """A part of a file that is scored."""

    key: int
    """What its vector is kept under; 0 when it has none."""
    words: tuple[str, ...]
    weight: float = 1.0
    """How much it counts as a passage."""


class Indexed(msgspec.Struct, frozen=True):
    """A file that was read, ready to become a row."""

    stamp: Stamp
    digest: int
    pieces: tuple[Piece, ...]


class _About(msgspec.Struct, frozen=True, array_like=True):
    files: list[str]
    removed: list[str]
    stamped: list[Stamp]


@dataclass(slots=True)
class Segment:
    """Rows, their units, and the postings: for each term the units it stands in, and how often."""

    files: list[str]
    removed: list[str]
    stamped: list[Stamp]
    stamps: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    fresh: Flags
    digests: Keys
    first: Ints
    lengths: Ints
    keys: Keys
    weights: npt.NDArray[np.float32]
    terms: Keys
    ends: npt.NDArray[np.int64]
    units: Ints
    counts: npt.NDArray[np.uint16]
    name: str = field(init=False, default="")
    """On the shelf; empty while it is in memory only."""
    owner: Ints = field(init=False)
    """The row of each unit."""
    whole: Ints = field(init=False)
    """The length of each row, all its units together."""

    def __post_init__(self) -> None:
        rows = len(self.files)
        self.owner = np.repeat(np.arange(rows, dtype=np.int32), np.diff(self.first))
        sums = np.add.reduceat(self.lengths, self.first[:-1]) if rows else self.lengths
        self.whole = sums.astype(np.int32)

    def postings(self, term: int) -> slice:
        """Where the units of this term stand in `units` and `counts`."""
        at = int(np.searchsorted(self.terms, np.uint64(term)))
        if at == len(self.terms) or int(self.terms[at]) != term:
            return slice(0, 0)
        return slice(int(self.ends[at]), int(self.ends[at + 1]))

    def packed(self) -> tuple[bytes, dict[str, Array]]:
        about = msgspec.msgpack.encode(_About(self.files, self.removed, self.stamped))
        return about, {name: getattr(self, name) for name in _ARRAYS}


def unpacked(name: str, about: bytes, arrays: dict[str, Array]) -> Segment:
    """A segment as it was written; `Damaged` when the arrays are not a segment's."""
    try:
        told = msgspec.msgpack.decode(about, type=_About)
    except msgspec.DecodeError as error:
        raise Damaged(f"{name} does not say what is in it") from error
    if {key: array.dtype.str for key, array in arrays.items()} != _ARRAYS:
        raise Damaged(f"{name} does not hold the arrays of a segment")
    rows, units = len(told.files), len(arrays["lengths"])
    if len(arrays["first"]) != rows + 1 or int(arrays["first"][-1]) != units:
        raise Damaged(f"{name} has rows that do not fit its units")
    segment = Segment(told.files, told.removed, told.stamped, **arrays)
    segment.name = name
    return segment


def digest(data: bytes) -> int:
    """64 bits that tell texts apart."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def text_key(text: str) -> int:
    """What the vector of a passage is kept under; 0 when there is nothing in it."""
    return digest(text.encode("utf-8", "surrogatepass")) or 1 if text.strip() else 0


@lru_cache(maxsize=200_000)
def term_key(word: str) -> int:
    return digest(word.encode("utf-8", "surrogatepass"))


def texts(data: bytes, file: str) -> tuple[list[Passage], str]:
    """Name and description, and the passages of the body; and what lies behind the last of them."""
    topic = read_topic(data[:READ], file)
    cut = passages(topic.body)
    head = f"{topic.name}\n{topic.description}"
    rest = topic.body[cut[-1].end :] if cut else ""
    return [Passage(0, len(head), head), *cut], rest


def pieces(data: bytes, file: str) -> tuple[Piece, ...]:
    """The units of a file; the first is there even when it is empty."""
    parts, rest = texts(data, file)
    found = [Piece(text_key(part.text), tuple(tokens(part.text)), part.weight) for part in parts]
    if words := tuple(tokens(rest)):
        found.append(Piece(0, words))
    return tuple(found)


def built(
    rows: Sequence[Indexed], removed: Iterable[str] = (), stamped: Iterable[Stamp] = ()
) -> Segment:
    """A segment of these files."""
    terms: list[int] = []
    counts: list[int] = []
    sizes: list[int] = []
    units = [piece for row in rows for piece in row.pieces]
    for piece in units:
        count = Counter(piece.words)
        terms.extend(map(term_key, count))
        counts.extend(count.values())
        sizes.append(len(count))
    owner = np.repeat(np.arange(len(units), dtype=np.int32), np.array(sizes, np.int64))
    tfs = np.minimum(np.array(counts, np.int64), _MOST).astype(np.uint16)
    stamps = [row.stamp for row in rows]
    first = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row.pieces) for row in rows], out=first[1:])
    return Segment(
        [stamp.file for stamp in stamps],
        sorted(removed),
        list(stamped),
        **_dates(stamps),
        digests=np.array([row.digest for row in rows], np.uint64),
        first=first,
        lengths=np.array([len(piece.words) for piece in units], np.int32),
        keys=np.array([piece.key for piece in units], np.uint64),
        weights=np.array([piece.weight for piece in units], np.float32),
        **_sorted(np.array(terms, np.uint64), owner, tfs),
    )


def merged(
    parts: Sequence[tuple[Segment, Flags]], stamps: Sequence[Stamp], removed: Iterable[str],
    stamped: Iterable[Stamp],
) -> Segment:  # fmt: skip
    """One segment of the rows that are alive in these, with the dates that hold now."""
    files: list[str] = []
    taken: dict[str, list[Array]] = {}
    offset = 0
    for segment, alive in parts:
        live = alive[segment.owner]
        number = (np.cumsum(live, dtype=np.int32) - 1 + offset).astype(np.int32)
        kept = live[segment.units]
        files += [segment.files[row] for row in np.flatnonzero(alive)]
        for name, array in {
            "digests": segment.digests[alive],
            "pieces": np.diff(segment.first)[alive],
            "lengths": segment.lengths[live],
            "keys": segment.keys[live],
            "weights": segment.weights[live],
            "terms": np.repeat(segment.terms, np.diff(segment.ends))[kept],
            "units": number[segment.units[kept]],
            "counts": segment.counts[kept],
        }.items():
            taken.setdefault(name, []).append(array)
        offset += int(live.sum())
    whole = {name: np.concatenate(some) for name, some in taken.items()}
    first = np.zeros(len(files) + 1, np.int32)
    np.cumsum(whole.pop("pieces"), out=first[1:])
    postings = _sorted(whole.pop("terms"), whole.pop("units"), whole.pop("counts"))
    return Segment(
        files, sorted(removed), list(stamped), **_dates(stamps), first=first, **whole, **postings
    )


def _dates(stamps: Sequence[Stamp]) -> dict[str, Array]:
    return {
        "stamps": np.array([stamp.mtime_ns for stamp in stamps], np.int64),
        "sizes": np.array([stamp.size for stamp in stamps], np.int64),
        "fresh": np.array([stamp.fresh for stamp in stamps], np.bool_),
    }


def _sorted(terms: Array, units: Array, counts: Array) -> dict[str, Array]:
    """By term, and within a term by unit: the order they came in, so the sort has to be stable."""
    order = np.argsort(terms, kind="stable")
    terms = terms[order]
    begins = np.flatnonzero(np.diff(terms, prepend=terms[:1] + np.uint64(1)))
    return {
        "terms": terms[begins],
        "ends": np.append(begins, len(terms)).astype(np.int64),
        "units": units[order],
        "counts": counts[order],
    }
