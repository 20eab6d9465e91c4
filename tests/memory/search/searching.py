"""A memory folder in memory, and an embedder that works without a model: for tests of the search index."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sevenfold.core.errors import StorageFailure
from sevenfold.memory.search.index import SearchIndex
from sevenfold.memory.search.scoring import SearchHit
from sevenfold.memory.search.segment import hash_term
from sevenfold.memory.text.words import tokenize_text

LONG_AGO = 10**18
"""Nanoseconds: 2001, so that nothing looks as if it were written just now."""


@dataclass
class Folder:
    """Files with a time each; it remembers which were read."""

    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    read_files: list[str] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)
    ticks: int = LONG_AGO

    def put(
        self, file: str, text: str, *, name: str = "", about: str = "a note", at: int | None = None
    ) -> None:
        self.ticks += 1
        data = f"---\nname: {name or file[:-3]}\ndescription: {about}\ntype: project\n---\n{text}\n"
        self.files[file] = (data.encode(), self.ticks if at is None else at)

    def remove(self, file: str) -> None:
        del self.files[file]

    def listing(self) -> list[tuple[str, int, int]]:
        return [(file, at, len(data)) for file, (data, at) in self.files.items()]

    def read(self, file: str) -> bytes:
        self.read_files.append(file)
        if file in self.unreadable:
            raise StorageFailure(f"{file} could not be read")
        return self.files[file][0]

    def refresh(self, index: SearchIndex) -> list[str]:
        """The files that the index wanted to read for it."""
        self.read_files.clear()
        index.refresh(self.listing(), self.read)
        return list(self.read_files)


@dataclass
class Bag:
    """Texts with the same words are near each other. `gate` holds it back; `seen` is what it was given."""

    name: str = "bag"
    dimensions: int = 64
    seen: list[str] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def prepare(self, going: Callable[[], bool]) -> None:
        """There is nothing to load."""

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.gate.wait()
        self.seen += texts
        matrix = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in enumerate(texts):
            for word in tokenize_text(text):
                matrix[row, hash_term(word) % self.dimensions] += 1
        matrix /= np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-9)
        return matrix

    def query(self, text: str, weight: Callable[[str], float]) -> npt.NDArray[np.float32]:
        vector: npt.NDArray[np.float32] = self.embed([text])[0]
        return vector


def names(hits: Iterable[SearchHit]) -> list[str]:
    return [hit.file for hit in hits]
