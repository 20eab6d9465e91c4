"""A fleet as people look at it: its machines, how far behind they are, jobs, spending."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from sevenfold.fleet.database import FleetDatabase
from sevenfold.fleet.jobs import JobQueue, JobRow, read_spending

if TYPE_CHECKING:
    from psycopg import Connection


class MachineRow(msgspec.Struct, frozen=True):
    """One machine of a space."""

    name: str
    id: str
    seen_seconds: float  # Since it was heard of
    behind: int  # Changes of others that it has not read
    held: int  # Texts that wait in its quarantine


class FleetStatus(msgspec.Struct, frozen=True):
    """The state of one space of a fleet."""

    tenant: str
    space: str
    memories: int
    revisions: int
    machines: list[MachineRow]
    jobs: list[JobRow]
    spent: float  # On jobs, in the currency of the price table
    letters: int  # That nobody has taken
    spent_today: float  # By all workers of the tenant, with what running jobs may cost
    daily_limit: float | None


_MACHINES = (
    "select m.name, m.id, greatest(extract(epoch from now() - m.seen_at), 0)::float8, (select count(*) from"
    " sevenfold.revision r where r.space = m.space and (r.xid, r.seq) > (m.cursor_xid, m.cursor_seq)"
    " and r.machine <> m.id), m.held"
    " from sevenfold.machine m where m.space = %s order by m.name, m.id"
)


def read_status(database: FleetDatabase, space: int, slug: str) -> FleetStatus:
    """Ask the database how the fleet is."""

    def read(connection: Connection[Any]) -> FleetStatus:
        def count(query: str) -> Any:
            row = connection.execute(query, (space,) if "%s" in query else ()).fetchone()
            return row[0] if row else 0

        return FleetStatus(
            database.tenant.name,
            slug,
            count("select count(*) from sevenfold.memory where space = %s and head is not null"),
            count("select count(*) from sevenfold.revision where space = %s"),
            [MachineRow(*row) for row in connection.execute(_MACHINES, (space,))],
            [],
            count("select coalesce(sum(cost), 0) from sevenfold.job where space = %s"),
            count("select count(*) from sevenfold.mail where taken_at is null"),
            *read_spending(connection, database.tenant.id),
        )

    known = database.run(read)
    return msgspec.structs.replace(known, jobs=JobQueue(database).list())
