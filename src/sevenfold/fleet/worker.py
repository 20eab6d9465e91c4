"""A worker of a fleet: takes jobs and does them on a replica of its own, under a lease that it renews.

A dream works on the replica by rules, as everywhere; what it wrote is sent with the fence of its job, so
that a worker that came too late changes nothing. Each kind has slots of its own: one cannot starve another.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Failure, SevenfoldError
from sevenfold.core.events import Emit
from sevenfold.fleet.database import FleetDatabase
from sevenfold.fleet.jobs import LEASE, ClaimedJob, JobQueue, OldFence
from sevenfold.fleet.memories import FleetMemories
from sevenfold.fleet.replica import FleetSync, PostgresBackend
from sevenfold.layers.l6_dreaming.dreaming import DreamRunner
from sevenfold.layers.l6_dreaming.workers import RuleDreamer
from sevenfold.memory.store import MemoryStore, ignore_event
from sevenfold.settings.layers import DreamSettings

DREAM: Final = "dream"
KINDS: Final = (DREAM,)
DUE_AFTER: Final = 20  # Revisions since a dream of a space was asked for, after which another is due
_DUE: Final = """
insert into sevenfold.job (tenant, space, kind)
select tenant, space, 'dream' from sevenfold.revision as one
where kind <> 'dream' and xid > coalesce((select job.xid from sevenfold.job
    where job.space = one.space and job.kind = 'dream' order by job.xid desc limit 1), '0')
group by tenant, space having count(*) >= %s
on conflict do nothing
"""


class FleetWorker:
    """One worker, with a folder for its replicas."""

    def __init__(self, database: FleetDatabase, folder: Path, name: str, emit: Emit = ignore_event) -> None:
        self._database, self._folder, self.name, self._emit = database, folder, name, emit
        self.jobs = JobQueue(database)
        self._clock = SystemClock()
        self._do: Mapping[str, Callable[[ClaimedJob, MemoryStore], dict[str, Any]]] = {DREAM: self._dream}

    def schedule(self, after: int = DUE_AFTER) -> int:
        """Ask for the dreams that are due; returns their number."""
        return self._database.run(lambda connection: connection.execute(_DUE, (after,)).rowcount)

    def work(self, kind: str, lease: float = LEASE) -> bool:
        """Take one job of a kind and do it; False if there is none."""
        job = self.jobs.claim(self.name, kind, lease)
        if job is None:
            return False
        try:
            with self._renew(job, lease), self._open(job) as (store, backend):
                FleetSync(store, backend).run()
                backend.outbox.job = job
                result = self._do[kind](job, store)
                FleetSync(store, backend).run()
            self.jobs.finish(job, result)
        except OldFence:
            self._forget(job)  # somebody else has it now
        except SevenfoldError as error:
            self._forget(job)
            with contextlib.suppress(OldFence):
                self.jobs.fail(job, str(error))
        return True

    def _forget(self, job: ClaimedJob) -> None:
        """Remove the replica: the next job would send what this one was refused, with a good fence."""
        shutil.rmtree(self._folder / str(job.space), ignore_errors=True)

    def _dream(self, job: ClaimedJob, store: MemoryStore) -> dict[str, Any]:
        runner = DreamRunner(store, store.local, self._clock, self._emit, DreamSettings())

        async def dream() -> dict[str, Any]:
            ended = await runner.dream(RuleDreamer(self._clock, lambda: runner.previous), by_hand=True)
            return {"status": ended.status, "revision": ended.revision}

        return anyio.run(dream)

    @contextmanager
    def _open(self, job: ClaimedJob) -> Iterator[tuple[MemoryStore, PostgresBackend]]:
        place = self._folder / str(job.space)
        memories = FleetMemories(self._database, job.space, f"{self.name}-{job.space}")
        backend = PostgresBackend(place / "memory", place / "state", memories)
        store = MemoryStore(backend, self._clock, emit=self._emit)
        try:
            yield store, backend
        finally:
            store.close()

    @contextmanager
    def _renew(self, job: ClaimedJob, lease: float) -> Iterator[None]:
        done = threading.Event()

        def renew() -> None:
            while not done.wait(lease / 3):
                with contextlib.suppress(Failure):  # its next write says that it is not ours any more
                    self.jobs.renew(job, lease)

        thread = threading.Thread(target=renew, name="sevenfold-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
