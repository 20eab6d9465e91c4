"""The memories of one space in the database: optimistic writes, and a feed of changes that skips nothing.

A write names the revision of each file that it is based on; if another machine was faster, nothing of it is
written. Rows become visible out of order, so the feed stops before the oldest transaction that still runs
and is ordered by transaction first: what lies before the cursor never changes.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sevenfold.fleet.database import FleetDatabase, is_past
from sevenfold.fleet.jobs import ClaimedJob, finish_job
from sevenfold.memory.history.revisions import Author, to_kind

if TYPE_CHECKING:
    from psycopg import Connection

PAGE: Final = 500
RESERVED: Final = 10.0  # Seconds in which only a machine that was late too often writes a memory
_FREE: Final = f"(kept.reserved_until is null or {is_past('kept.reserved_until', 2 * RESERVED)})"
_WRITE: Final = f"""
with incoming as (
    select * from unnest(%(names)s::text[], %(bases)s::bigint[], %(bodies)s::bytea[], %(ids)s::text[],
        %(kinds)s::text[], %(sessions)s::text[], %(reasons)s::text[], %(summaries)s::text[],
        %(times)s::float8[])
        as one(name, base, body, id, kind, session, reason, summary, at)),
written as (
    insert into sevenfold.memory as kept (tenant, space, name, rev, head)
    select %(tenant)s, %(space)s, name, base + 1, body from incoming order by name
    on conflict (space, name) do update set rev = excluded.rev, head = excluded.head, changed = now(),
        reserved_until = null
    where kept.rev = excluded.rev - 1 and ({_FREE} or kept.reserved_for = %(machine)s)
    returning name, rev)
insert into sevenfold.revision
    (tenant, space, id, name, rev, machine, kind, session, reason, summary, at, body, job)
select %(tenant)s, %(space)s, id, name, rev, %(machine)s, kind, session, reason, summary, at, body, %(job)s
from incoming join written using (name)
returning name, rev
"""


class NewRevision(msgspec.Struct, frozen=True):
    """A changed file of one revision, on its way to the database; `body` is None for a removed file."""

    id: str
    name: str
    base: int
    body: bytes | None
    author: Author
    summary: str
    at: float


class SharedRevision(msgspec.Struct, frozen=True):
    """A changed file of one revision, as the database has it."""

    xid: int
    seq: int
    id: str
    name: str
    rev: int
    machine: str
    author: Author
    summary: str
    at: float
    body: bytes | None
    purged: bool = False  # Every text of the file is gone from the database, and is to go everywhere


class ConflictingWrite(Exception):
    """Another machine changed one of the files first; nothing was written."""


class FleetMemories:
    """The memories of one space."""

    def __init__(self, database: FleetDatabase, space: int, machine: str) -> None:
        self.database, self.space, self.machine = database, space, machine

    def write(self, rows: Sequence[NewRevision]) -> dict[str, int]:
        """Write files of different names in one transaction; returns the revision that each has now.

        Rows that were written before count as written. Raises `ConflictingWrite`.
        """
        return self.database.run(lambda connection: self._write(connection, rows))

    def write_job(
        self,
        batches: Sequence[Sequence[NewRevision]],
        job: ClaimedJob,
        result: Mapping[str, Any],
        cost: float,
    ) -> None:
        """Write all that a job made, and that it is done, in one transaction: it has its effect once.

        Raises `ConflictingWrite`, and `OldFence` if the job is not ours any more.
        """

        def write(connection: Connection[Any]) -> None:
            finish_job(connection, job, result, cost)
            for rows in batches:
                self._write(connection, rows, job.id)

        self.database.run(write)

    def _write(
        self, connection: Connection[Any], rows: Sequence[NewRevision], job: int | None = None
    ) -> dict[str, int]:
        columns = {
            "names": [row.name for row in rows], "bases": [row.base for row in rows],
            "bodies": [row.body for row in rows], "ids": [row.id for row in rows],
            "kinds": [row.author.kind for row in rows], "sessions": [row.author.session for row in rows],
            "reasons": [row.author.reason for row in rows], "summaries": [row.summary for row in rows],
            "times": [row.at for row in rows],
        }  # fmt: skip
        before = dict(
            connection.execute(
                "select name, rev from sevenfold.revision where space = %s and id = any(%s)",
                (self.space, columns["ids"]),
            ).fetchall()
        )
        if before and len(before) == len(rows):
            return before
        tenant = self.database.tenant.id
        given = {**columns, "tenant": tenant, "space": self.space, "machine": self.machine, "job": job}
        written = dict(connection.execute(_WRITE, given).fetchall()) if not before else {}
        if len(written) != len(rows):  # some were there: one transaction writes all, so they are another's
            raise ConflictingWrite
        return written

    def reserve(self, names: Sequence[str]) -> None:
        """Let no other machine write these files for a moment: one that merges slowly would never win."""
        query = (
            "update sevenfold.memory as kept set reserved_for = %s,"
            " reserved_until = clock_timestamp() + make_interval(secs => %s)"
            f" where space = %s and name = any(%s) and {_FREE}"
        )
        given = (self.machine, RESERVED, self.space, list(names))
        self.database.run(lambda connection: connection.execute(query, given))

    def read_changes(self, xid: int, seq: int, limit: int = PAGE) -> list[SharedRevision]:
        """The next changes after a place in the feed, in an order that is the same for everybody."""
        return self._read(
            "where space = %s and (xid, seq) > (%s::text::xid8, %s)"
            " and xid < pg_snapshot_xmin(pg_current_snapshot()) order by xid, seq limit %s",
            str(xid), seq, limit,
        )  # fmt: skip

    def find_horizon(self) -> int:
        """The oldest transaction that still runs: all before it is seen by whoever looks from now on."""
        query = "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        row = self.database.run(lambda connection: connection.execute(query).fetchone())
        return int(row[0]) if row else 0

    def read_heads(
        self, after: str = "", limit: int = PAGE, since: tuple[int, int] = (0, 0)
    ) -> list[SharedRevision]:
        """The newest revision of each file that changed since a place in the feed, in order of names."""
        xid, seq = since
        return self._read(
            "join sevenfold.memory as kept using (space, name, rev) where space = %s and name > %s"
            " and (xid, seq) > (%s::text::xid8, %s) order by name limit %s",
            after, str(xid), seq, limit,
        )  # fmt: skip

    def find_purges(self, names: Sequence[str]) -> dict[str, int]:
        """The files of these that were purged, with the revision that says so."""
        query = "select name, rev from sevenfold.revision where space = %s and kind = 'purge'"
        query += " and name = any(%s)"
        given = (self.space, list(names))
        return dict(self.database.run(lambda connection: connection.execute(query, given).fetchall()))

    def read_past(self, name: str, after: int = 0, last: int = 1 << 62) -> list[SharedRevision]:
        """The revisions of one file after one of them, the oldest first."""
        query = "where space = %s and name = %s and rev > %s and rev <= %s order by rev"
        return self._read(query, name, after, last)

    def _read(self, chosen: str, *given: object) -> list[SharedRevision]:
        def read(connection: Connection[Any]) -> list[SharedRevision]:
            query = (
                "select xid::text::bigint, seq, id, name, rev, machine, kind, session, reason, summary, at,"
                f" body from sevenfold.revision {chosen}"
            )
            return [_read_row(*row) for row in connection.execute(query.encode(), (self.space, *given))]

        return self.database.run(read)

    def read_body(self, name: str, rev: int) -> bytes | None:
        """A file as one of its revisions has it; None if it was removed or there is no such revision."""
        rows = self.read_past(name, rev - 1, rev)
        return rows[0].body if rows else None

    def purge(self, name: str, id: str) -> int:
        """Remove every text that a file had; returns the revision that says so to the other machines."""

        def purge(connection: Connection[Any]) -> int:
            given = (self.space, name)
            row = connection.execute(
                "update sevenfold.memory set rev = rev + 1, head = null where space = %s and name = %s"
                " returning rev",
                given,
            ).fetchone()
            connection.execute("delete from sevenfold.revision where space = %s and name = %s", given)
            if row is not None:
                connection.execute(
                    "insert into sevenfold.revision (tenant, space, id, name, rev, machine, kind, session,"
                    " reason, summary, at) values (%s, %s, %s, %s, %s, %s, 'purge', '', '', '', 0)",
                    (self.database.tenant.id, self.space, id, name, row[0], self.machine),
                )
            return int(row[0]) if row else 0

        return self.database.run(purge)

    def note_seen(self, xid: int, seq: int, held: int = 0) -> None:
        """Say that this machine is there, how far it has read, and how many texts its guard holds."""
        query = (
            "insert into sevenfold.machine (tenant, id, name, space, held, cursor_xid, cursor_seq)"
            " values (%s, %s, %s, %s, %s, %s::text::xid8, %s) on conflict (tenant, id, space) do update"
            " set seen_at = now(), name = excluded.name, held = excluded.held,"
            " cursor_xid = excluded.cursor_xid, cursor_seq = excluded.cursor_seq"
        )
        given = (self.machine, socket.gethostname(), self.space, held, str(xid), seq)
        tenant = self.database.tenant.id
        self.database.run(lambda connection: connection.execute(query, (tenant, *given)))

    def forget_machines(self, *ids: str) -> None:
        """These machines are no more."""
        query = "delete from sevenfold.machine where id = any(%s)"
        self.database.run(lambda connection: connection.execute(query, (list(ids),)))


def _read_row(
    xid: int, seq: int, id: str, name: str, rev: int, machine: str, kind: str, session: str, reason: str,
    summary: str, at: float, body: bytes | None,
) -> SharedRevision:  # fmt: skip
    author = Author(to_kind(kind), session, reason)
    return SharedRevision(xid, seq, id, name, rev, machine, author, summary, at, body, kind == "purge")


def find_space(database: FleetDatabase, kind: str, slug: str) -> int:
    """The number of a space; it is made if there is none."""

    def find(connection: Connection[Any]) -> int:
        given = (database.tenant.id, kind, slug)
        connection.execute(
            "insert into sevenfold.space (tenant, kind, slug) values (%s, %s, %s) on conflict do nothing",
            given,
        )
        row = connection.execute(
            "select id from sevenfold.space where tenant = %s and kind = %s and slug = %s", given
        ).fetchone()
        assert row is not None
        return int(row[0])

    return database.run(find)
