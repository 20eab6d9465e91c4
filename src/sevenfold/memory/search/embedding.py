"""Texts as vectors, so that a question finds a memory that says the same in other words.

The vectors are the static kind: every word has one, and a text is the sum of its words, rare words
counting more. They come from the word table of a multilingual sentence encoder that a package carries as
plain data; nothing is downloaded, no model runs, and a passage takes about a
millisecond, less once its words are known.

The table is made once (`word_table.py`) and kept in a folder of ours. What it is made from must have the
pinned digests; with anything else recall goes by words alone.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from sevenfold.memory.search.word_table import (
    DIMENSIONS,
    NAME,
    WORD_START,
    WordTable,
    find_resources,
    load_word_table,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

WORDS: Final = 50_000  # Words whose vectors are kept at hand
FEW: Final = 8  # Texts whose words are looked up one by one
_LABEL: Final = r"(?m)^[^\w\n]{0,4}[^\W\d_][\w'-]{0,20}[^\w\n]{0,2}[:：](?=\s)"
"""The speaker at the beginning of a line says nothing about the subject."""


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


class _WordsAtHand(threading.local):
    """The words that a thread has looked up: those of a folder go when the thread that needs them ends."""

    def __init__(self, look_up: Callable[[str], tuple[Vectors, float] | None]) -> None:
        self.find = lru_cache(maxsize=WORDS)(look_up)


class StaticEmbedder:
    """Adds up the vectors of words. A question needs few of them, a folder of memories most of them."""

    dimensions = DIMENSIONS

    def __init__(self, name: str, table: Callable[[Callable[[], bool]], WordTable]) -> None:
        self.name = name
        self._read = table
        self._loading = threading.Lock()
        self._table: WordTable | None = None
        self._words = _WordsAtHand(self._vector)

    def prepare(self, going: Callable[[], bool]) -> None:
        """Load what the first text would have to wait for; ends early when `going` says no."""
        self._open(going)

    def _open(self, going: Callable[[], bool] = lambda: True) -> WordTable:
        with self._loading:
            if self._table is None:
                self._table = self._read(going)
            return self._table

    def embed(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        found = np.zeros((len(texts), DIMENSIONS), np.float32)
        if len(texts) > FEW:
            self._open().read_pieces()
        for at, text in enumerate(texts):
            words = [word for unit in self._units(text) if (word := self._words.find(unit)) is not None]
            for vector, weight in words:
                found[at] += weight * vector
        return _normal(found)

    def query(self, text: str, weight: Callable[[str], float]) -> Vectors:
        import numpy as np

        from sevenfold.memory.text.words import tokenize_text

        found = np.zeros((1, DIMENSIONS), np.float32)
        for unit in self._units(text):
            word = self._words.find(unit)
            told = [weight(token) for token in tokenize_text(unit.removeprefix(WORD_START))]
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
                    found += self._open().split(part)
            elif (word := piece.lower()) not in STOP:
                found.append(WORD_START + word[:40])
        return found

    def _vector(self, unit: str) -> tuple[Vectors, float] | None:
        """The vector of a word and what it tells; None when no piece of it is known."""
        import numpy as np

        table = self._open()
        places = table.cut(unit)
        if not places:
            return None
        weights = table.weights[places].astype(np.float32)
        rows = _normal(table.rows(places))
        return _normal((weights[:, None] * rows).sum(0, keepdims=True))[0], float(weights.max())


def _normal(rows: Vectors) -> Vectors:
    import numpy as np

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Vectors = (rows / np.maximum(lengths, 1e-9)).astype(np.float32)
    return scaled
