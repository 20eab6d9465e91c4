"""How long a machine takes that joins a fleet with many memories, or comes back after a long absence.

python -m benchmarks.fleet.join [--quick] [--json]
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.fleet.run import BATCH, WRITER, started
from benchmarks.report import Table, arguments, show
from sevenfold.core.clock import SystemClock
from sevenfold.fleet.database import FleetDatabase
from sevenfold.fleet.memories import FleetMemories, NewRevision, find_space
from sevenfold.fleet.replica import FleetSync, PostgresBackend
from sevenfold.memory.store import MemoryStore

WORDS = (
    "shop",
    "port",
    "deploy",
    "Tuesday",
    "server",
    "report",
    "branch",
    "review",
    "green",
    "night",
    "key",
)


def fill(address: str, space: str, count: int, edits: int = 1) -> None:
    """So many memories, each changed so many times after it was made, or again if it is there."""
    database = FleetDatabase(address, "acme")
    memories = FleetMemories(database, find_space(database, "project", space), "writer")
    there = memories.read_heads(limit=1)
    first_base = there[0].rev if there else 0
    chance = random.Random(count + first_base)
    for base in range(first_base, first_base + edits + (not there)):
        for first in range(0, count, BATCH):
            rows = []
            for n in range(first, min(first + BATCH, count)):
                text = " ".join(chance.choices(WORDS, k=60))
                data = (
                    f"---\nname: m{n}\ndescription: about {n}\ntype: project\n---\n{n}: {text}.\n".encode()
                )
                rows.append(
                    NewRevision(f"id-{n}-{base}", f"m{n}.md", base, data, WRITER, "wrote", time.time())
                )
            memories.write(rows)
    database.close()


def sync(address: str, space: str, place: Path) -> tuple[float, float]:
    """Seconds, and seconds of this process alone, until a machine has all that is new."""
    database = FleetDatabase(address, "acme")
    memories = FleetMemories(database, find_space(database, "project", space), "new")
    backend = PostgresBackend(place / space / "memory", place / space / "state", memories)
    store = MemoryStore(backend, SystemClock())
    began, used = time.perf_counter(), time.process_time()
    FleetSync(store, backend).run()
    taken = time.perf_counter() - began, time.process_time() - used
    store.close()
    return taken


def run(quick: bool = False) -> list[Table]:
    columns = ("memories", "revisions that it has not", "seconds", "of them its own", "ms a memory")
    new, back = Table("A machine that joins", *columns), Table("A machine that comes back", *columns)
    with started() as address, tempfile.TemporaryDirectory() as place:
        for count in (200, 1_000) if quick else (1_000, 10_000):
            for table, edits, rows in ((new, 1, 2 * count), (back, 2, 2 * count)):
                fill(address, f"j{count}", count, edits)
                whole, own = sync(address, f"j{count}", Path(place))
                each = f"{whole / count * 1e3:.1f}"
                table.add(f"{count:,}", f"{rows:,}", f"{whole:.1f}", f"{own:.1f}", each)
    new.notes += ["each memory of 60 words was changed once after it was made"]
    back.notes += [
        "each memory was changed twice while the machine was away",
        f"load of the machine at the end: {os.getloadavg()[0]:.1f}",
    ]
    return [new, back]


if __name__ == "__main__":
    options = arguments(__doc__)
    show(run(options.quick), as_json=options.json)
    sys.exit(0)
