"""How long one `add` takes at 200 to 100,000 memories, in a process that is running and in a new one.

python -m benchmarks.recall_latency.writes [--quick] [--json]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.recall_latency.engines import p
from benchmarks.recall_latency.memories import memory, sentences
from benchmarks.report import Table, arguments, show
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.store import MemoryStore

SIZES: Final = (200, 1_000, 10_000, 100_000)
QUICK: Final = (200, 1_000)
ADDS: Final = 60
NEW_PROCESSES: Final = 5
_COLD: Final = """
import sys, time
from pathlib import Path
from benchmarks.recall_latency.writes import add, open_store, sentences
import sevenfold.memory.folder.changes, sevenfold.memory.history.history
sentences()
store = open_store(Path(sys.argv[1]))
began = time.perf_counter()
add(store, int(sys.argv[2]))
print(time.perf_counter() - began)
"""


def open_store(place: Path) -> MemoryStore:
    return MemoryStore(FolderBackend(place / "memory", place / "state"))


def add(store: MemoryStore, number: int) -> None:
    """One memory that says something new."""
    texts = sentences()[0]
    text = f"{texts[-1 - number % len(texts)]} {number}"
    about = " ".join(text.split()[:10])
    store.add(type="project", name=f"added-{number}", description=about, body=text)


def run(quick: bool = False) -> list[Table]:
    table = Table(
        "One add, ms",
        *("memories", "p50", "p95", "CPU p50", "CPU mean", "in a new process p50"),
        *("files of others taken in/s",),
    )
    began = os.getloadavg()[0]
    for size in QUICK if quick else SIZES:
        with tempfile.TemporaryDirectory() as place:
            table.add(size, *_measure(Path(place), size))
    busy = ", ".join(f"{load:.1f}" for load in (began, os.getloadavg()[0]))
    table.notes += [
        "goals: 20 ms at 1,000 and 40 ms at 10,000; with the guard, the search for a repeated memory, file "
        "and index on the disk (fsync), and the revision",
        f"{ADDS} adds in a row, {NEW_PROCESSES} new processes (without their imports); all memories in one "
        "folder; the mean holds the looks at all files",
        f"load of the machine at the beginning and the end: {busy}",
    ]
    return [table]


def _measure(place: Path, size: int) -> list[str]:
    folder = place / "memory"
    folder.mkdir()
    for number in range(size):
        (folder / f"memory-{number}.md").write_bytes(memory(number))
    store = open_store(place)
    began = time.perf_counter()
    store.take_in()
    taken = size / (time.perf_counter() - began)
    add(store, 0)
    spent, worked = _add_many(store, range(1, ADDS + 1))
    store.close()
    cold = sorted(_add_in_new_process(place, ADDS + 1 + number) for number in range(NEW_PROCESSES))
    mean = sum(worked) / len(worked)
    return [p(spent, 50), p(spent, 95), p(worked, 50), f"{mean:.2f}", p(cold, 50), f"{taken:,.0f}"]


def _add_many(store: MemoryStore, numbers: Sequence[int]) -> tuple[list[float], list[float]]:
    """Milliseconds of each add, by the clock and of this process, sorted."""
    spent, worked = [], []
    for number in numbers:
        began, busy = time.perf_counter(), time.process_time()
        add(store, number)
        spent.append((time.perf_counter() - began) * 1e3)
        worked.append((time.process_time() - busy) * 1e3)
    return sorted(spent), sorted(worked)


def _add_in_new_process(place: Path, number: int) -> float:
    command = [sys.executable, "-c", _COLD, str(place), str(number)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout) * 1e3


if __name__ == "__main__":
    options = arguments(__doc__)
    show(run(options.quick), as_json=options.json)
    sys.exit(0)
