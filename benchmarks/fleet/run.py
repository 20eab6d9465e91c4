"""How much a fleet on one PostgreSQL server of this machine writes, claims and hands on.

python -m benchmarks.fleet.run [--quick] [--json]
"""

from __future__ import annotations

import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.report import Table, arguments, show
from sevenfold.core.clock import SystemClock
from sevenfold.fleet.database import FleetDatabase
from sevenfold.fleet.jobs import JobQueue
from sevenfold.fleet.memories import FleetMemories, NewRevision, find_space
from sevenfold.fleet.replica import FleetFollower, PostgresBackend
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import MemoryStore
from sevenfold.testing.postgres import PostgresServer, find_postgres

AGENTS: Final = 1_000
CONNECTIONS: Final = 20
BATCH: Final = 100
BODY: Final = b"---\nname: a\ndescription: a\ntype: project\n---\n" + b"Sixty words of a memory. " * 15
WRITER: Final = Author("agent", "benchmark")


def percentile(times: list[float], share: int) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * share // 100)]


@contextmanager
def started() -> Iterator[str]:
    """A durable server with a fleet in it, each commit on the disk."""
    programs = find_postgres()
    if programs is None:
        sys.exit("PostgreSQL is not installed: apt-get install postgresql")
    server = PostgresServer(programs, durable=True)
    try:
        address = server.make_database("bench")
        FleetDatabase(address).migrate("acme")
        yield address
    finally:
        server.close()


def in_threads(
    count: int, seconds: float, address: str, work: Callable[[FleetDatabase, int], int]
) -> float:
    """What all threads did in a second; each has a connection of its own."""
    done, ends = [0] * count, time.perf_counter() + seconds

    def run(number: int) -> None:
        database = FleetDatabase(address, "acme")
        while time.perf_counter() < ends:
            done[number] += work(database, number)
        database.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - began)


def make_row(name: str, id: str) -> NewRevision:
    return NewRevision(id, name, 0, BODY, WRITER, "wrote", 0.0)


class Spaces:
    """A space for each writer, and names that nobody has used."""

    def __init__(self, address: str) -> None:
        database = FleetDatabase(address, "acme")
        self.ids = [find_space(database, "project", f"p{n}") for n in range(CONNECTIONS)]
        self._count = 0
        self._turn = threading.Lock()

    def write(self, database: FleetDatabase, number: int, rows: int = 1) -> int:
        with self._turn:
            first, self._count = self._count, self._count + rows
        some = [make_row(f"m{n}.md", f"id-{n}") for n in range(first, first + rows)]
        FleetMemories(database, self.ids[number % CONNECTIONS], f"m{number}").write(some)
        return rows


def measure_agents(address: str, spaces: Spaces, writes: int) -> list[float]:
    """Seconds of each write of 1,000 agents, with the wait for one of 20 connections."""
    free: queue.Queue[tuple[FleetDatabase, int]] = queue.Queue()
    for number in range(CONNECTIONS):
        database = FleetDatabase(address, "acme")
        _ = database.tenant
        free.put((database, number))
    times: list[float] = []

    def act(number: int) -> None:
        for turn in range(writes):
            # Each agent writes once in ten seconds: 100 writes a second of all together.
            time.sleep(((number * 7919 + turn * 104_729) % 1000) / 1000 * 10)
            began = time.perf_counter()
            database, own = free.get()
            try:
                spaces.write(database, own)
            finally:
                free.put((database, own))
            times.append(time.perf_counter() - began)

    threads = [threading.Thread(target=act, args=(number,)) for number in range(AGENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def measure_jobs(address: str, seconds: float) -> float:
    database = FleetDatabase(address, "acme")
    space = find_space(database, "project", "jobs")
    database.run(
        lambda c: c.execute(
            "insert into sevenfold.job (tenant, space, kind, payload) select %s, %s, 'count',"
            " jsonb_build_object('n', n) from generate_series(1, 100000) n",
            (database.tenant.id, space),
        )
    )
    return in_threads(
        8, seconds, address, lambda own, number: JobQueue(own).claim(f"w{number}", "count") is not None
    )


def measure_seen(address: str, place: Path, rounds: int) -> list[float]:
    """Seconds from a write on one machine until another recalls it."""
    machines = []
    for name in ("ann", "bob"):
        database = FleetDatabase(address, "acme")
        memories = FleetMemories(database, find_space(database, "project", "seen"), name)
        backend = PostgresBackend(place / name / "memory", place / name / "state", memories)
        machines.append((MemoryStore(backend, SystemClock()), backend))
    (ann, _), (bob, other) = machines
    follower = FleetFollower(bob, other)
    times = []
    for number in range(rounds):
        name = f"seen-{number}"
        body = f"The word of round {number} is {os.urandom(8).hex()}."
        began = time.perf_counter()
        ann.add(type="project", name=name, description=body, body=body)
        while not (place / "bob" / "memory" / f"{name}.md").exists():
            time.sleep(0.01)
        times.append(time.perf_counter() - began)
    follower.stop()
    return times


def measure_recall(address: str, place: Path, count: int) -> tuple[list[float], list[float]]:
    """Milliseconds of a recall with a fleet and without, on the same memories, question by question."""
    database = FleetDatabase(address, "acme")
    memories = FleetMemories(database, find_space(database, "project", "recall"), "r")
    shared = PostgresBackend(place / "with" / "memory", place / "with" / "state", memories)
    plain = FolderBackend(place / "without" / "memory", place / "without" / "state")
    stores = [MemoryStore(backend, SystemClock()) for backend in (shared, plain)]
    for store in stores:
        for n in range(count):
            body = f"Service {n} of the shop listens on port {8000 + n}."
            store.add(type="project", name=f"s{n}", description=body, body=body)
    follower = FleetFollower(stores[0], shared)
    times: tuple[list[float], list[float]] = ([], [])
    for n in range(count):
        # In turn: whoever asks first looks up the words for both.
        for store, kept in list(zip(stores, times, strict=True))[:: 1 if n % 2 else -1]:
            began = time.perf_counter()
            store.recall(f"on which port does service {n} listen?")
            kept.append((time.perf_counter() - began) * 1e3)
    follower.stop()
    return times


def run(quick: bool = False) -> list[Table]:
    seconds, load = (1.0 if quick else 8.0), os.getloadavg()[0]
    table = Table("A fleet on one server of this machine", "what", "measured", "goal")
    with started() as address, tempfile.TemporaryDirectory() as place:
        spaces = Spaces(address)
        single = in_threads(CONNECTIONS, seconds, address, spaces.write)
        table.add("durable single writes/s", f"{single:,.0f}", ">= 1,000")
        batched = in_threads(4, seconds, address, lambda own, n: spaces.write(own, n, BATCH))
        table.add(f"revisions/s in batches of {BATCH}", f"{batched:,.0f}", ">= 20,000")
        table.add("job claims/s", f"{measure_jobs(address, seconds):,.0f}", ">= 500")
        seen = measure_seen(address, Path(place), 3 if quick else 15)
        table.add("seen on another machine, s, p50", f"{percentile(seen, 50):.2f}", "<= 2")
        table.add("seen on another machine, s, largest", f"{max(seen):.2f}", "<= 2")
        waits = measure_agents(address, spaces, 1 if quick else 3)
        for share in (50, 99):
            value = f"{percentile(waits, share) * 1e3:.1f}"
            table.add(f"a write of 1,000 agents, ms, p{share}", value, "<= 50" if share == 99 else "")
        ours, plain = measure_recall(address, Path(place), 50 if quick else 200)
        for words, times in (("with a fleet", ours), ("without", plain)):
            table.add(f"recall {words}, ms, p50", f"{percentile(times, 50):.2f}", "the same")
    after = os.getloadavg()[0]
    table.notes += [
        f"{CONNECTIONS} connections, server and clients on the same cores, fsync on",
        "1,000 agents on 20 connections write once in ten seconds each",
        f"load of the machine at the beginning and the end: {load:.1f}, {after:.1f}",
    ]
    return [table]


if __name__ == "__main__":
    options = arguments(__doc__)
    show(run(options.quick), as_json=options.json)
    sys.exit(0)
