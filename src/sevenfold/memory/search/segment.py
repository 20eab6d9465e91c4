"""A part of the lexical index that never changes: which words stand in which pieces of which files.

A file is a row; its pieces are units: the first is name and description, then come the passages of the
body, and what lies behind the last passage is a unit that counts for the whole file only. Words are kept as
64-bit digests, so the index holds numbers and file names and no text. A newer segment wins over an older
one; what it says about files of older ones (gone, or the same text with another date) stands beside its
rows.

A segment is a file of named arrays with a digest. The folder of the search index holds files that never
change, and one list of those that count.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import re
import secrets
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from sevenfold.core.errors import StorageFailure
from sevenfold.memory.search.index import LIST
from sevenfold.memory.search.scoring import read_texts
from sevenfold.memory.text.words import tokenize_text
from sevenfold.storage.files import BINARY, CLOEXEC, NOFOLLOW, TemporaryFile
from sevenfold.storage.locks import hold_lock

Array: TypeAlias = npt.NDArray[Any]

_MAGIC: Final = b"7fold search 1\n\0"
_ALIGN: Final = 64
_CHECK: Final = 4
_MAPPED: Final = 64 << 20  # Bytes from which on a file is mapped
_FIRST: Final = 1 << 16  # Bytes in which the header of a file that stays open ends


class DamagedSegment(Exception):
    """The file is not what was written."""


class _ArrayHeader(msgspec.Struct, frozen=True, array_like=True):
    about: bytes
    arrays: list[tuple[str, str, list[int], int]]
    """Name, type, shape, and where it begins behind the header."""


def write_arrays(path: Path, about: bytes, arrays: Mapping[str, Array]) -> None:
    """All or nothing under this name, for this user alone. Raises `OSError`."""
    with TemporaryFile(path.parent) as new:
        check = 0
        for part in _parts(about, arrays):
            check = zlib.crc32(part, check)
            new.write(part)
        new.write(check.to_bytes(_CHECK, "little"))
        new.move_to(path, sync=False)


def read_arrays(path: Path) -> tuple[bytes, dict[str, Array]]:
    """The arrays of a file, not writable. Raises `DamagedSegment`, or `OSError`."""
    file = _OpenFile(path)
    size = os.fstat(file.fd).st_size
    mapped = mmap.mmap(file.fd, size, access=mmap.ACCESS_READ) if size >= _MAPPED else None
    whole = memoryview(os.read(file.fd, size) if mapped is None else mapped)
    if zlib.crc32(whole[:-_CHECK]) != int.from_bytes(whole[-_CHECK:], "little"):
        raise DamagedSegment(f"{path} does not have its checksum")
    about, stored = _read_header(path, whole, size)
    return about, {name: one.take_from(whole) for name, one in stored.items()}


def open_arrays(path: Path) -> tuple[bytes, dict[str, StoredArray]]:
    """The arrays of a file that stays open. Whoever reads them checks what was read."""
    file = _OpenFile(path)
    return _read_header(path, memoryview(os.pread(file.fd, _FIRST, 0)), os.fstat(file.fd).st_size, file)


class _OpenFile:
    """A file that is closed when nobody has it any more."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY | NOFOLLOW | CLOEXEC | BINARY)
        self._close: Final = os.close  # still there when Python ends

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            self._close(self.fd)


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array in a file: the rows that are asked for are read, so the others take no memory."""

    file: _OpenFile | None
    at: int
    kind: np.dtype[Any]
    shape: tuple[int, ...]

    def __getitem__(self, places: Sequence[int]) -> Array:
        return np.concatenate([self._read(place, 1) for place in places])

    def __array__(self, kind: Any = None, copy: bool | None = None) -> Array:
        return self._read(0, self.shape[0])

    def _read(self, first: int, count: int) -> Array:
        assert self.file is not None
        shape = (count, *self.shape[1:])
        width = self.kind.itemsize * math.prod(self.shape[1:])
        data = os.pread(self.file.fd, width * count, self.at + width * first)
        return np.frombuffer(data.ljust(width * count, b"\0"), self.kind).reshape(shape)

    def take_from(self, whole: memoryview) -> Array:
        """The array of a file that was read as a whole."""
        count = math.prod(self.shape)
        flat = np.frombuffer(whole, self.kind, count, self.at) if count else np.empty(0, self.kind)
        return flat.reshape(self.shape)


def _parts(about: bytes, arrays: Mapping[str, Array]) -> Iterator[Any]:
    described: list[tuple[str, str, list[int], int]] = []
    at = 0
    solid = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    for name, array in solid.items():
        described.append((name, array.dtype.str, list(array.shape), at))
        at += array.nbytes + _gap(array.nbytes)
    header = msgspec.msgpack.encode(_ArrayHeader(about, described))
    start = len(_MAGIC) + 8 + len(header)
    yield _MAGIC + len(header).to_bytes(8, "little") + header + bytes(_gap(start))
    for array in solid.values():
        if array.size:
            yield array.reshape(-1).view(np.uint8).data
        yield bytes(_gap(array.nbytes))


def _gap(length: int) -> int:
    return -length % _ALIGN


def _read_header(
    path: Path, start: memoryview, size: int, file: _OpenFile | None = None
) -> tuple[bytes, dict[str, StoredArray]]:
    begin = len(_MAGIC) + 8
    if bytes(start[: len(_MAGIC)]) != _MAGIC:
        raise DamagedSegment(f"{path} is of another kind")
    length = int.from_bytes(start[len(_MAGIC) : begin], "little")
    first = begin + length + _gap(begin + length)
    try:
        header = msgspec.msgpack.decode(start[begin : begin + length], type=_ArrayHeader)
        stored = {
            name: StoredArray(file, first + at, np.dtype(kind), tuple(shape))
            for name, kind, shape, at in header.arrays
        }
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise DamagedSegment(f"{path} has a header that cannot be read") from error
    for one in stored.values():
        end = one.at + one.kind.itemsize * math.prod(one.shape)
        if min(one.at - first, *one.shape) < 0 or end > size - _CHECK or one.kind.hasobject:
            raise DamagedSegment(f"{path} is too short for what its header says")
    return header.about, stored


IntArray: TypeAlias = npt.NDArray[np.int32]
KeyArray: TypeAlias = npt.NDArray[np.uint64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

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


class IndexedStamp(msgspec.Struct, frozen=True, array_like=True):
    """A file as it is known without reading it."""

    file: str
    mtime_ns: int
    size: int
    fresh: bool  # Read so soon after it was written that another text could have the same time


class ScoredPiece(msgspec.Struct, frozen=True):
    """A part of a file that is scored."""

    key: int  # The key of its vector; 0 when it has none
    words: tuple[str, ...]
    weight: float = 1.0  # Its weight as a passage


class IndexedFile(msgspec.Struct, frozen=True):
    """A file that was read, ready to become a row."""

    stamp: IndexedStamp
    digest: int
    pieces: tuple[ScoredPiece, ...]


class _SegmentHeader(msgspec.Struct, frozen=True, array_like=True):
    files: list[str]
    removed: list[str]
    stamped: list[IndexedStamp]


@dataclass(slots=True)
class Segment:
    """Rows, their units, and the postings: for each term the units it stands in, and how often."""

    files: list[str]
    removed: list[str]
    stamped: list[IndexedStamp]
    stamps: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    fresh: BoolArray
    digests: KeyArray
    first: IntArray
    lengths: IntArray
    keys: KeyArray
    weights: npt.NDArray[np.float32]
    terms: KeyArray
    ends: npt.NDArray[np.int64]
    units: IntArray
    counts: npt.NDArray[np.uint16]
    name: str = field(init=False, default="")  # On the shelf; empty while it is in memory only
    owner: IntArray = field(init=False)  # The row of each unit
    whole: IntArray = field(init=False)  # The length of each row, all its units together

    def __post_init__(self) -> None:
        rows = len(self.files)
        self.owner = np.repeat(np.arange(rows, dtype=np.int32), np.diff(self.first))
        sums = np.add.reduceat(self.lengths, self.first[:-1]) if rows else self.lengths
        self.whole = sums.astype(np.int32)

    def weigh_units(self, long: bool) -> npt.NDArray[np.float32]:
        """The weight of each unit as a passage; for a long question all count the same."""
        return np.ones_like(self.weights) if long else self.weights

    def packed(self) -> tuple[bytes, dict[str, Array]]:
        about = msgspec.msgpack.encode(_SegmentHeader(self.files, self.removed, self.stamped))
        return about, {name: getattr(self, name) for name in _ARRAYS}


def unpack_segment(name: str, about: bytes, arrays: dict[str, Array]) -> Segment:
    """A segment as it was written; `DamagedSegment` when the arrays are not a segment's."""
    try:
        told = msgspec.msgpack.decode(about, type=_SegmentHeader)
    except msgspec.DecodeError as error:
        raise DamagedSegment(f"{name} does not say what is in it") from error
    if {key: array.dtype.str for key, array in arrays.items()} != _ARRAYS:
        raise DamagedSegment(f"{name} does not hold the arrays of a segment")
    rows, units = len(told.files), len(arrays["lengths"])
    if len(arrays["first"]) != rows + 1 or int(arrays["first"][-1]) != units:
        raise DamagedSegment(f"{name} has rows that do not fit its units")
    segment = Segment(told.files, told.removed, told.stamped, **arrays)
    segment.name = name
    return segment


def digest_text(data: bytes) -> int:
    """64 bits that tell texts apart."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def hash_text(text: str) -> int:
    """The key of the vector of a passage; 0 when there is nothing in it."""
    return digest_text(text.encode("utf-8", "surrogatepass")) or 1 if text.strip() else 0


@lru_cache(maxsize=200_000)
def hash_term(word: str) -> int:
    return digest_text(word.encode("utf-8", "surrogatepass"))


def read_pieces(data: bytes, file: str) -> tuple[ScoredPiece, ...]:
    """The units of a file; the first is there even when it is empty."""
    parts, rest = read_texts(data, file)
    found = [
        ScoredPiece(hash_text(part.text), tuple(tokenize_text(part.text)), part.weight) for part in parts
    ]
    if words := tuple(tokenize_text(rest)):
        found.append(ScoredPiece(0, words))
    return tuple(found)


def build_segment(
    rows: Sequence[IndexedFile], removed: Iterable[str] = (), stamped: Iterable[IndexedStamp] = ()
) -> Segment:
    """A segment of these files."""
    terms: list[int] = []
    counts: list[int] = []
    sizes: list[int] = []
    units = [piece for row in rows for piece in row.pieces]
    for piece in units:
        count = Counter(piece.words)
        terms.extend(map(hash_term, count))
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


def merge_segments(
    parts: Sequence[tuple[Segment, BoolArray]], stamps: Sequence[IndexedStamp], removed: Iterable[str],
    stamped: Iterable[IndexedStamp],
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


def _dates(stamps: Sequence[IndexedStamp]) -> dict[str, Array]:
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


FORMAT: Final = 1  # Of the whole folder; another one is made anew from the memory files
WRITING: Final = "lock"
EMBEDDING: Final = "lock-vectors"  # Locks: for whoever changes the list, and for whoever makes the vectors
_STAYS: Final = {LIST, WRITING, EMBEDDING}
_NAME: Final = re.compile(r"[a-z]+-[0-9a-f]{16}")


class ShelfContents(msgspec.Struct, frozen=True):
    """The segments that count, oldest first, and what they were made with."""

    made: str  # Of the code that cuts texts into passages and words: other code, other index
    segments: tuple[str, ...] = ()
    embedder: str = ""
    vectors: tuple[str, ...] = ()
    format: int = FORMAT


class SegmentShelf:
    """Files by name, a list of those that count, a lock for those who change it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def raw(self) -> bytes:
        """The list as it stands on the disk, to see whether it is another one; empty without one."""
        try:
            return (self.folder / LIST).read_bytes()
        except OSError:
            return b""

    @contextmanager
    def alone(self, wait: float, lock: str = WRITING) -> Iterator[bool]:
        """Hold a lock during the block; False if another process kept it for this many seconds.

        Raises `OSError` where there can be no lock, on a read-only disk for example.
        """
        with ExitStack() as stack:
            try:
                mine = stack.enter_context(hold_lock(self.folder / lock, wait=wait))
            except StorageFailure as error:
                raise error.__cause__ or OSError(errno.EIO, str(error)) from error
            yield mine

    def put(self, kind: str, about: bytes, arrays: Mapping[str, Array]) -> str:
        """A new file with these arrays; its name. Not listed yet."""
        name = f"{kind}-{secrets.token_hex(8)}"
        write_arrays(self.folder / name, about, arrays)
        return name

    def get(self, name: str) -> tuple[bytes, dict[str, Array]]:
        """Raises `DamagedSegment`, or `OSError` when it is not there."""
        if not _NAME.fullmatch(name):
            raise DamagedSegment(f"{name} is not a name we give")
        return read_arrays(self.folder / name)

    def enter(self, contents: ShelfContents) -> None:
        """From now on this counts and nothing else."""
        with TemporaryFile(self.folder) as new:
            new.write(encode_contents(contents))
            new.move_to(self.folder / LIST, sync=False)

    def sweep(self, contents: ShelfContents) -> list[Path]:
        """Remove every file that does not count; those that would not go. Only while alone."""
        keep = {*_STAYS, *contents.segments, *contents.vectors}
        left: list[Path] = []
        for path in list(self.folder.iterdir()):
            if path.name not in keep:
                try:
                    path.unlink()
                except OSError:  # still open, where open files cannot go; or a folder
                    left.append(path)
        return left


def parse_contents(raw: bytes) -> ShelfContents | None:
    """The contents of a list; None when it is missing, damaged or of another format."""
    check, _, body = raw.partition(b"\n")
    if check != _check(body):
        return None
    try:
        contents = msgspec.json.decode(body, type=ShelfContents)
    except msgspec.DecodeError:
        return None
    return contents if contents.format == FORMAT else None


def encode_contents(contents: ShelfContents) -> bytes:
    """The list as it stands on the disk."""
    body = msgspec.json.encode(contents)
    return _check(body) + b"\n" + body


def _check(body: bytes) -> bytes:
    return b"%08x" % zlib.crc32(body)
