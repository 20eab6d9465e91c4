"""Letters between machines of a fleet: each is taken once, in the order in which its sender sent them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from sevenfold.fleet.database import FleetDatabase

if TYPE_CHECKING:
    from psycopg import Connection

LEASE: Final = 60.0  # Seconds until a letter that was taken and not kept is offered again


class FleetLetter(msgspec.Struct, frozen=True):
    """One letter."""

    id: int
    sender: str
    body: bytes
    at: float


class FleetMail:
    """The mail of one tenant."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def send(self, sender: str, recipient: str, body: bytes, key: str) -> bool:
        """Send a letter; False if one with this key was sent before: it may be sent again safely."""
        given = (self._database.tenant.id, recipient, key, sender, body)

        def send(connection: Connection[Any]) -> bool:
            # Letters to one recipient are numbered one after the other, so that none overtakes another.
            connection.execute("select pg_advisory_xact_lock(7708, hashtext(%s))", (recipient,))
            done = connection.execute(
                "insert into sevenfold.mail (tenant, recipient, key, sender, body)"
                " values (%s, %s, %s, %s, %s) on conflict do nothing",
                given,
            )
            return done.rowcount == 1

        return self._database.run(send)

    def take(self, recipient: str, limit: int = 100) -> list[FleetLetter]:
        """The letters for a recipient that nobody has, in order; they are his for a while."""

        def take(connection: Connection[Any]) -> list[FleetLetter]:
            connection.execute("select pg_advisory_xact_lock(7708, hashtext(%s))", (recipient,))
            rows = connection.execute(
                "update sevenfold.mail set lease_until = clock_timestamp() + make_interval(secs => %s)"
                " where (recipient, id) in (select recipient, id from sevenfold.mail where recipient = %s"
                " and taken_at is null and (lease_until is null or lease_until < clock_timestamp())"
                " order by id limit %s)"
                " returning id, sender, body, extract(epoch from at)::float8",
                (LEASE, recipient, limit),
            ).fetchall()
            return [FleetLetter(*row) for row in sorted(rows)]

        return self._database.run(take)

    def keep(self, recipient: str, *ids: int) -> None:
        """The recipient has these letters for good: they are not offered again."""
        query = (
            "update sevenfold.mail set taken_at = clock_timestamp() where recipient = %s and id = any(%s)"
        )
        self._database.run(lambda connection: connection.execute(query, (recipient, list(ids))))
