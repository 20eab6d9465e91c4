"""Work that any machine of the fleet takes: claimed for a time, renewed, and refused when it came too late.

A job is recovered when its lease has ended, never by the name of a worker. Each claim has a new fence; what
a worker writes after its lease ended carries an old one and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sevenfold.core.errors import Failure
from sevenfold.fleet.database import FleetDatabase, is_past

if TYPE_CHECKING:
    from psycopg import Connection

LEASE: Final = 60.0  # Seconds that a worker has a job; it renews it at a third of that
FARTHEST: Final = 2 * LEASE  # Seconds. A lease or a wait that ends later is of a clock that was wrong
WORDS: Final = "words"  # In a payload: what people said. It is deleted when the job is done
TRIES: Final = 5  # After so many the job is dead: kept to be looked at, not tried again


class OldFence(Failure, kind="old_fence"):
    """The lease of this job ended, and somebody else may have it; nothing of it was written."""


class ClaimedJob(msgspec.Struct, frozen=True):
    """A job that this worker has for a time."""

    id: int
    space: int
    kind: str
    fence: int
    payload: dict[str, Any]


class JobRow(msgspec.Struct, frozen=True):
    """A job as people look at it."""

    id: int
    kind: str
    space: int
    state: str
    tries: int
    worker: str
    problem: str


class JobQueue:
    """The jobs of one tenant."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def add(self, space: int, kind: str, payload: Mapping[str, Any] | None = None, key: str = "") -> bool:
        """Ask for work; False if it was asked for before.

        With a `key` once ever; without one and without a payload while the same waits or runs.
        """
        from psycopg.types.json import Jsonb

        def add(connection: Connection[Any]) -> bool:
            done = connection.execute(
                "insert into sevenfold.job (tenant, space, kind, payload, key)"
                " values (%s, %s, %s, %s, %s) on conflict do nothing",
                (self._database.tenant.id, space, kind, Jsonb(dict(payload or {})), key),
            )
            return done.rowcount == 1

        return self._database.run(add)

    def read_payload(self, space: int, kind: str, key: str) -> dict[str, Any]:
        """What was given with a job that has a key; it is done perhaps."""
        query = "select payload from sevenfold.job where space = %s and kind = %s and key = %s"
        row = self._database.run(
            lambda connection: connection.execute(query, (space, kind, key)).fetchone()
        )
        return dict(row[0]) if row else {}

    def claim(
        self, worker: str, kind: str, lease: float = LEASE, reserve: float = 0.0
    ) -> ClaimedJob | None:
        """The job of a kind that is due longest; None if there is none.

        `reserve` is what it may cost: also None where all workers together would pass the day's limit.
        """

        def claim(connection: Connection[Any]) -> ClaimedJob | None:
            connection.execute(
                "update sevenfold.job set state = case when tries >= %s then 'dead' else 'ready' end,"
                f" problem = 'its worker went away', worker = null, lease_until = null, {_SETTLE}"
                f" where state = 'running' and {is_past('lease_until', FARTHEST)}",
                (TRIES,),
            )
            if reserve and not self._has_room(connection, reserve):
                return None
            row = connection.execute(
                "update sevenfold.job set state = 'running', worker = %s, fence = fence + 1,"
                " tries = tries + 1, reserved = %s,"
                " lease_until = clock_timestamp() + make_interval(secs => %s)"
                f" where id = (select coalesce(({_READY} > now() + interval '{FARTHEST} s' {_FIRST}),"
                f" ({_READY} <= clock_timestamp() {_FIRST}))) returning id, space, kind, fence, payload",
                (worker, reserve, lease, kind, kind),
            ).fetchone()
            return ClaimedJob(*row) if row else None

        return self._database.run(claim)

    def _has_room(self, connection: Connection[Any], reserve: float) -> bool:
        connection.execute("select pg_advisory_xact_lock(7709, %s)", (self._database.tenant.id,))
        spent, limit = read_spending(connection, self._database.tenant.id)
        return limit is None or spent + reserve <= limit

    def renew(self, job: ClaimedJob, lease: float = LEASE) -> None:
        """Keep the job for another while. Raises `OldFence` if it is not ours any more."""
        self._database.run(
            lambda connection: _change(
                connection, job, "lease_until = clock_timestamp() + make_interval(secs => %s)", lease
            )
        )

    def finish(self, job: ClaimedJob, result: Mapping[str, Any], cost: float = 0.0) -> None:
        """The job is done. Raises `OldFence` if it is not ours any more."""
        self._database.run(lambda connection: finish_job(connection, job, result, cost))

    def fail(self, job: ClaimedJob, problem: str, wait: float = 30.0, cost: float = 0.0) -> None:
        """Give the job back to be tried later; after several tries it is dead."""
        self._database.run(
            lambda connection: _change(
                connection, job,
                "state = case when tries >= %s then 'dead' else 'ready' end, problem = %s, worker = null,"
                " lease_until = null, due = clock_timestamp() + make_interval(secs => %s),"
                " cost = cost + %s, reserved = 0, ended = clock_timestamp()",
                TRIES, problem, wait, cost,
            )
        )  # fmt: skip

    def list(self, limit: int = 50) -> list[JobRow]:
        """The jobs that wait, run or are dead, the newest first."""

        def read(connection: Connection[Any]) -> list[JobRow]:
            rows = connection.execute(
                "select id, kind, space, state, tries, coalesce(worker, ''), coalesce(problem, '')"
                " from sevenfold.job where state <> 'done' order by id desc limit %s",
                (limit,),
            )
            return [JobRow(*row) for row in rows]

        return self._database.run(read)

    def revive(self, id: int) -> bool:
        """Let a dead job be tried again; False if there is no such job."""
        query = (
            "update sevenfold.job set state = 'ready', tries = 0, due = clock_timestamp()"
            " where id = %s and state = 'dead'"
        )
        return self._database.run(lambda connection: connection.execute(query, (id,)).rowcount == 1)


_READY: Final = "select id from sevenfold.job where state = 'ready' and kind = %s and due"
_FIRST: Final = "order by due for update skip locked limit 1"
_SETTLE: Final = "cost = cost + reserved, reserved = 0, ended = clock_timestamp()"
"""What a worker that went away has spent is not known: it counts as all that was reserved for it."""


def read_spending(connection: Connection[Any], tenant: int) -> tuple[float, float | None]:
    """What the jobs of this day have cost, with what running ones may, and the limit, if there is one."""
    row = connection.execute(
        "select coalesce((select sum(cost) from sevenfold.job where ended >= date_trunc('day', now())"
        " and ended < date_trunc('day', now()) + interval '2 days'), 0)"
        " + coalesce((select sum(reserved) from sevenfold.job where state = 'running'), 0),"
        " (select daily_limit from sevenfold.tenant where id = %s)",
        (tenant,),
    ).fetchone()
    return row or (0.0, None)


def finish_job(
    connection: Connection[Any], job: ClaimedJob, result: Mapping[str, Any], cost: float
) -> None:
    """Note in the running transaction that the job is done: what it wrote and this are one."""
    from psycopg.types.json import Jsonb

    _change(
        connection, job,
        "state = 'done', lease_until = null, problem = null, result = %s, cost = cost + %s, reserved = 0,"
        f" ended = clock_timestamp(), payload = payload - '{WORDS}'",
        Jsonb(dict(result)), cost,
    )  # fmt: skip


def _change(connection: Connection[Any], job: ClaimedJob, what: str, *given: object) -> None:
    query = (
        f"update sevenfold.job set {what} where id = %s and fence = %s and state = 'running'"
        " and lease_until >= clock_timestamp()"
    )
    if connection.execute(query, (*given, job.id, job.fence)).rowcount == 0:
        raise OldFence(f"the lease of job {job.id} ended; what it did is not taken")
