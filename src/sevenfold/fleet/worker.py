"""A worker of a fleet: takes jobs and does them on a replica of its own, under a lease that it renews.

What a job wrote is sent with the fence of the job and with its end, in one transaction: a worker that dies
before that has changed nothing, one that came too late neither, and nothing is done twice. A dream works by
rules, as everywhere. Each kind has slots of its own: one cannot starve another.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import msgspec

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Failure, SevenfoldError
from sevenfold.core.events import Emit
from sevenfold.fleet.database import FleetAway, FleetDatabase
from sevenfold.fleet.jobs import LEASE, ClaimedJob, JobQueue, OldFence
from sevenfold.fleet.membership import FleetMembership, drop_replicas, write_membership
from sevenfold.fleet.memories import ConflictingWrite, FleetMemories
from sevenfold.fleet.replica import FleetSync, PostgresBackend
from sevenfold.fleet.words import EXTRACT, Learner
from sevenfold.layers.l6_dreaming.dreaming import DreamRunner
from sevenfold.layers.l6_dreaming.workers import RuleDreamer
from sevenfold.memory.store import MemoryStore, ignore_event
from sevenfold.settings.layers import DreamSettings
from sevenfold.settings.place import STATE, MemoryPlace
from sevenfold.storage.files import make_private_dir
from sevenfold.storage.locks import hold_lock
from sevenfold.storage.places import make_path_slug

DREAM: Final = "dream"
KINDS: Final = (DREAM, EXTRACT)
DUE_AFTER: Final = 20  # Revisions since a dream of a space was asked for, after which another is due
MERGES: Final = 20  # Times that a job merges what others wrote meanwhile, before it is given back
_UNFINISHED: Final = "unfinished"  # A file in a replica with what no database has: it is made anew
_DUE: Final = """
insert into sevenfold.job (tenant, space, kind)
select tenant, space, 'dream' from sevenfold.revision as one
where kind <> 'dream' and xid > coalesce((select job.xid from sevenfold.job
    where job.space = one.space and job.kind = 'dream' order by job.xid desc limit 1), '0')
group by tenant, space having count(*) >= %s
on conflict do nothing
"""
_FRESH: Final = """
select id from sevenfold.machine as one where starts_with(id, %s) and not exists (
    select 1 from sevenfold.revision as purge where purge.space = one.space and kind = 'purge'
    and (xid, seq) > (one.cursor_xid, one.cursor_seq))
"""


class JobOutcome(msgspec.Struct, frozen=True):
    """What a job says of itself, and what it cost."""

    result: dict[str, Any] = {}
    cost: float = 0.0


DoJob: TypeAlias = Callable[[ClaimedJob, MemoryStore], JobOutcome]


class FleetWorker:
    """One worker, with a folder for its replicas. Several on one machine have folders of their own."""

    def __init__(
        self,
        database: FleetDatabase,
        folder: Path,
        name: str,
        emit: Emit = ignore_event,
        learner: Learner | None = None,
    ) -> None:
        """`learner` looks through words; without one this worker takes no job of that kind."""
        self._database, self._home, self.name, self._emit = database, folder, name, emit
        self.jobs = JobQueue(database)
        self._clock = SystemClock()
        self._learner = learner
        self._states = (learner.home if learner else folder) / STATE
        self.does: dict[str, DoJob] = {DREAM: self._dream}
        """What is done for a job of each kind."""
        if learner is not None:
            self.does[EXTRACT] = learner.look_through

    def schedule(self, after: int = DUE_AFTER) -> int:
        """Ask for the dreams that are due; returns their number."""
        return self._database.run(lambda connection: connection.execute(_DUE, (after,)).rowcount)

    def forget_purged(self) -> None:
        """Remove the replicas of this worker that hold what was purged elsewhere since."""
        if not any(self._home.glob("*.lock")):
            return
        query, given = _FRESH, (f"{self.name}-",)
        rows = self._database.run(lambda connection: connection.execute(query, given).fetchall())
        fresh = {id for (id,) in rows}
        if gone := drop_replicas(self._home, fresh.__contains__):
            FleetMemories(self._database, 0, "").forget_machines(*gone)

    def work(self, kind: str, lease: float = LEASE) -> bool:
        """Take one job of a kind and do it; False if there is none."""
        reserve = self._learner.reserve if self._learner and kind == EXTRACT else 0.0
        job = self.jobs.claim(self.name, kind, lease, reserve)
        if job is None:
            return False
        spent = 0.0
        with self._find_place(job) as place:
            try:
                with self._renew(job, lease), self._open(job, place) as (store, backend):
                    FleetSync(store, backend).run()
                    (place.state / _UNFINISHED).touch()
                    done = self.does[kind](job, store)
                    spent = done.cost
                    self._finish(job, store, backend, done)
                (place.state / _UNFINISHED).unlink()
            except OldFence:
                pass  # somebody else has it now
            except SevenfoldError as error:
                with contextlib.suppress(OldFence):
                    self.jobs.fail(job, str(error), cost=spent)
        return True

    def _finish(
        self, job: ClaimedJob, store: MemoryStore, backend: PostgresBackend, done: JobOutcome
    ) -> None:
        for tried in range(MERGES):
            with contextlib.suppress(ConflictingWrite):
                return backend.outbox.finish_job(job, done.result, done.cost)
            backend.outbox.make_way(tried)  # another machine was faster: merge
            FleetSync(store, backend).run()
        raise FleetAway("other machines keep changing the same memories; the job is tried again later")

    def _dream(self, job: ClaimedJob, store: MemoryStore) -> JobOutcome:
        runner = DreamRunner(store, store.local, self._clock, self._emit, DreamSettings())

        async def dream() -> JobOutcome:
            ended = await runner.dream(RuleDreamer(self._clock, lambda: runner.previous), by_hand=True)
            return JobOutcome({"status": ended.status, "revision": ended.revision})

        return anyio.run(dream)

    @contextmanager
    def _find_place(self, job: ClaimedJob) -> Iterator[MemoryPlace]:
        """The replica for a job, which no other worker uses; a new one if a job was not finished there."""
        for number in itertools.count():
            root = self._home / str(number)
            with hold_lock(self._home / f"{number}.lock", wait=0.0) as mine:
                if not mine:
                    continue
                folder = root / str(job.space) / "memory"
                # Where a session looks that is told to use this folder.
                state = self._states / make_path_slug(folder.resolve())
                if (state / _UNFINISHED).exists() or not state.exists():
                    for left in (folder.parent, state):
                        shutil.rmtree(left, ignore_errors=True)
                make_private_dir(state)
                yield MemoryPlace(folder, state, self._home / "words")
                return

    @contextmanager
    def _open(self, job: ClaimedJob, place: MemoryPlace) -> Iterator[tuple[MemoryStore, PostgresBackend]]:
        machine = place.state / "machine"
        if not machine.exists():
            machine.write_text(f"{self.name}-{secrets.token_hex(4)}", encoding="utf-8")
        id, bare = machine.read_text(encoding="utf-8"), msgspec.structs.replace(job, payload={})
        tenant = self._database.tenant.name
        write_membership(place, FleetMembership(tenant, job.space, "", id, self.name, job=bare))
        memories = FleetMemories(self._database, job.space, id)
        backend = PostgresBackend(place.folder, place.state, memories)
        backend.outbox.job = bare
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
