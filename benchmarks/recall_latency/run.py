"""How long recall takes at 200 to 100,000 memories, cold and warm, and what the index costs.

python -m benchmarks.recall_latency.run [--quick] [--json]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.recall_latency import writes
from benchmarks.recall_latency.engines import engines, p, timed
from benchmarks.recall_latency.first import first_recalls
from benchmarks.recall_latency.memories import QUESTIONS, StandIn, listing, sentences, written
from benchmarks.report import Table, arguments, show
from sevenfold.memory.search.index import SearchIndex

if TYPE_CHECKING:
    from sevenfold.memory.search.embedding import Embedder

SIZES: Final = (200, 1_000, 10_000, 100_000)
QUICK: Final = (200, 1_000)
FIRST: Final = 10_000  # The most memories for which first recalls are measured
REPEATS: Final = 5
LIMIT: Final = 5
PAUSE: Final = 0.1
"""Seconds between two questions while vectors are made: more often than anybody asks."""
_COLD: Final = """
import sys, time
began = time.perf_counter()
from pathlib import Path
from benchmarks.recall_latency import writes
from benchmarks.recall_latency.memories import StandIn, listing
from benchmarks.recall_latency.run import embedder
from sevenfold.memory.search.index import SearchIndex
import numpy
state, folder, question = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
with_vectors = embedder(state)
loaded = time.perf_counter()
files = listing(folder)
listed = time.perf_counter()
index = SearchIndex(state, with_vectors)
index.refresh(files, lambda file: (folder / file).read_bytes())
opened = time.perf_counter()
index.search(question, 5)
print(loaded - began, listed - loaded, opened - listed, time.perf_counter() - opened)
"""


class Tables:
    """What is filled in, size by size."""

    def __init__(self, vectors: str) -> None:
        self.warm = Table(
            "Warm recall (a question to an open index), ms",
            *("memories", "passages", "words p50", "p95", "while vectors are made p50", "p95"),
            *("words and vectors p50", "p95", "max"),
        )
        self.cold = Table(
            f"Cold recall (a new process), ms, median of {REPEATS}",
            *("memories", "imports", "list files", "open and compare", "first question", "together"),
        )
        self.keeping = Table(
            "Making and keeping the index",
            *("memories", "words s", "files/s", "vectors s", "passages/s", "words MB", "vectors MB"),
            *("nothing changed ms", "one changed ms", "its vector ms", "purge ms"),
        )
        self.warm.notes += [
            "goals: p50 below 5 ms at 1,000, p95 below 50 ms at 100,000; only the question, without the "
            "comparison with the files (below: nothing changed)",
            f"{sentences()[2]}, {vectors}",
        ]
        self.cold.notes.append("files and index are in the system's page cache")

    def all(self) -> list[Table]:
        return [self.warm, self.cold, self.keeping]


def embedder(state: Path) -> Embedder:
    """The one that is installed, or one that costs the same and means nothing."""
    from sevenfold.memory.search.embedding import open_default_embedder

    return open_default_embedder(state / "embedding") or StandIn()


def run(quick: bool = False) -> list[Table]:
    sizes = QUICK if quick else SIZES
    began = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        with_vectors = embedder(Path(place))
        with_vectors.prepare(lambda: True)  # once, before anything is timed
        tables = Tables(f"vectors of {with_vectors.name}, {with_vectors.dimensions} numbers each")
        for size in sizes:
            folder = Path(place) / "memories"
            written(folder, size)
            _measure(folder, Path(place), with_vectors, tables)
            shutil.rmtree(folder)
            shutil.rmtree(Path(place) / "search")
    busy = ", ".join(f"{load:.1f}" for load in (began, os.getloadavg()[0]))
    tables.warm.notes.append(f"load of the machine at the beginning and the end: {busy}")
    large = [size for size in sizes if size >= 1_000]
    first = first_recalls([size for size in large if size <= FIRST])
    return [*tables.all(), first, engines(large), *writes.run(quick)]


def _measure(folder: Path, state: Path, with_vectors: Embedder, tables: Tables) -> None:
    questions = (sentences()[1] * QUESTIONS)[:QUESTIONS]
    files = listing(folder)

    def read(file: str) -> bytes:
        return (folder / file).read_bytes()

    index = SearchIndex(state, with_vectors)
    words = _seconds(lambda: index.refresh(files, read))

    def asked(some: Sequence[str] = questions) -> list[float]:
        return timed(lambda question: index.search(question, LIMIT), some)

    asked()
    by_words = asked()
    meanwhile: list[float] = []
    index.build(read)
    while not index.wait(PAUSE):
        meanwhile += asked([questions[len(meanwhile) % QUESTIONS]])
    meanwhile.sort()
    made = index.progress()
    asked()
    by_both = asked()
    row = (p(by_words, 50), p(by_words, 95), p(meanwhile, 50), p(meanwhile, 95), p(by_both, 50))
    tables.warm.add(len(files), made.done, *row, p(by_both, 95), f"{by_both[-1]:.2f}")
    tables.cold.add(len(files), *_cold(state, folder, questions[0]))
    nothing = timed(lambda _: index.refresh(files, read), range(2 * REPEATS))
    changed, vectors = _changed(index, folder, files, read)
    sizes = [_megabytes(index.folder, kind) for kind in ("words", "vectors")]
    purge = _seconds(lambda: index.purge(files[7][0]))
    built = (f"{words:.1f}", f"{len(files) / words:,.0f}", f"{made.done / made.rate:.1f}")
    kept = (p(nothing, 50), p(changed, 50), p(vectors, 50), f"{purge * 1e3:.0f}")
    tables.keeping.add(len(files), *built, f"{made.rate:,.0f}", *sizes, *kept)


def _changed(
    index: SearchIndex, folder: Path, files: Sequence[tuple[str, int, int]], read: Callable[[str], bytes]
) -> tuple[list[float], list[float]]:
    """One file rewritten, a few times: taking it in, and then its vector."""
    taken, embedded = [], []
    for number in range(REPEATS):
        file = files[number * len(files) // REPEATS][0]
        (folder / file).write_bytes(read(file) + b"\nand one more thing\n")
        now = listing(folder)
        taken.append(_seconds(lambda now=now: index.refresh(now, read)) * 1e3)  # type: ignore[misc]
        index.build(read)
        embedded.append(_seconds(index.wait) * 1e3)
    return sorted(taken), sorted(embedded)


def _cold(state: Path, folder: Path, question: str) -> list[str]:
    command = [sys.executable, "-c", _COLD, str(state), str(folder), question]
    runs = []
    for _ in range(REPEATS):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        runs.append([float(part) * 1e3 for part in done.stdout.split()])
    runs.sort(key=sum)
    middle = runs[len(runs) // 2]
    return [f"{part:.1f}" for part in (*middle, sum(middle))]


def _seconds(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def _megabytes(folder: Path, kind: str) -> str:
    size = sum(path.stat().st_size for path in folder.iterdir() if path.name.startswith(kind))
    return f"{size / 1e6:.1f}"


if __name__ == "__main__":
    options = arguments(__doc__)
    show(run(options.quick), as_json=options.json)
    sys.exit(0)
