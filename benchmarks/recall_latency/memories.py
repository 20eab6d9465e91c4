"""Short memories to look for and questions to ask: real sentences where there are some."""

from __future__ import annotations

import gzip
import os
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from sevenfold.memory.search.segment import hash_term
from sevenfold.memory.text.words import tokenize_text

DATA: Final = Path(__file__).parents[2] / "../shared/data/longmemeval/s_dev80.json.gz"
WORDS: Final = 60
"""Words of a memory."""
QUESTIONS: Final = 200
_DIMENSIONS: Final = 256


class StandIn:
    """As large as real vectors and made as fast, without meaning: where no embedder is installed."""

    name, dimensions = "stand-in", _DIMENSIONS

    def prepare(self, going: Callable[[], bool]) -> None:
        """There is nothing to load."""

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        matrix = np.full((len(texts), self.dimensions), 1e-3, np.float32)
        for row, text in enumerate(texts):
            for word in tokenize_text(text):
                matrix[row, hash_term(word) % self.dimensions] += 1
        matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
        return matrix

    def query(self, text: str, weight: Callable[[str], float]) -> npt.NDArray[np.float32]:
        vector: npt.NDArray[np.float32] = self.embed([text])[0]
        return vector


@cache
def sentences() -> tuple[list[str], list[str], str]:
    """Texts, questions, and where they are from."""
    if not DATA.exists():
        return (*_made(), "generated words (the shared conversations are not beside this checkout)")
    cases: list[dict[str, Any]] = msgspec.json.decode(gzip.decompress(DATA.read_bytes()))
    texts: dict[str, None] = {}
    for case in cases:
        for turn in (turn for session in case["haystack_sessions"] for turn in session):
            words = turn["content"].split()
            texts |= dict.fromkeys(" ".join(part) for part in _parts(words) if len(part) > 15)
    found = list(texts)
    random.Random(1).shuffle(found)
    return found, [case["question"] for case in cases], "pieces of LongMemEval conversations"


def _parts(words: Sequence[str]) -> Iterator[Sequence[str]]:
    return (words[at : at + WORDS] for at in range(0, len(words), WORDS))


def _made() -> tuple[list[str], list[str]]:
    """Words as frequent as in a language: the nth of them one nth as often as the first."""
    chance = np.random.default_rng(1)
    weights = 1 / np.arange(1, 40_001)
    drawn = chance.choice(40_000, size=(110_000, WORDS), p=weights / weights.sum())
    texts = [" ".join(f"w{number}" for number in row) for row in drawn.tolist()]
    asked = chance.choice(40_000, size=(QUESTIONS, 8), p=weights / weights.sum())
    return texts, [" ".join(f"w{number}" for number in row) for row in asked.tolist()]


def memory(number: int) -> bytes:
    """One memory file."""
    texts = sentences()[0]
    text = texts[number % len(texts)] + (f" {number}" if number >= len(texts) else "")
    about = " ".join(text.split()[:10]).replace('"', "").replace("\\", "")
    head = f'---\nname: memory-{number}\ndescription: "{about}"\ntype: project\n---\n'
    return f"{head}{text}\n".encode()


def written(folder: Path, count: int) -> None:
    """So many memory files, in folders of a thousand."""
    for number in range(count):
        path = folder / f"{number // 1000:03d}" / f"{number:06d}.md"
        if number % 1000 == 0:
            path.parent.mkdir(parents=True)
        path.write_bytes(memory(number))
        os.utime(path, ns=(10**18 + number, 10**18 + number))


def listing(folder: Path) -> list[tuple[str, int, int]]:
    found = []
    for part in sorted(folder.iterdir()):
        with os.scandir(part) as entries:
            for entry in entries:
                about = entry.stat()
                found.append((f"{part.name}/{entry.name}", about.st_mtime_ns, about.st_size))
    return found
