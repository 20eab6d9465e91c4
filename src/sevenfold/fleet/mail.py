"""Letters between machines of a fleet: each is taken once, in the order in which its sender sent them.

A session of a joined project says that it is there; the agents of others write to it by `bridge:SESSION`,
to one of its agents by `bridge:SESSION/AGENT`, or by a name that only one of them has.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sevenfold.core.errors import Refused
from sevenfold.fleet.database import FleetDatabase, is_past
from sevenfold.layers.l7_agents.mail import FarLetter, FarPost
from sevenfold.layers.l7_agents.mailbox import (
    BRIDGE,
    LEAD,
    Letter,
    encode_letter,
    is_same_name,
    parse_letter,
)

if TYPE_CHECKING:
    from psycopg import Connection

    from sevenfold.fleet.memories import FleetMemories

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
        """The letters for a recipient that nobody has, in order; they are his for a while.

        None is handed out while an earlier one of the same sender is on its way.
        """

        def take(connection: Connection[Any]) -> list[FleetLetter]:
            connection.execute("select pg_advisory_xact_lock(7708, hashtext(%s))", (recipient,))
            rows = connection.execute(
                "update sevenfold.mail set lease_until = clock_timestamp() + make_interval(secs => %s)"
                " where (recipient, id) in (select recipient, id from sevenfold.mail as one"
                " where recipient = %s and taken_at is null"
                f" and (lease_until is null or {is_past('lease_until', 2 * LEASE)})"
                " and not exists (select 1 from sevenfold.mail as earlier where"
                " earlier.recipient = one.recipient and earlier.sender = one.sender"
                " and earlier.id < one.id and earlier.taken_at is null"
                f" and not {is_past('earlier.lease_until', 2 * LEASE)}) order by id limit %s)"
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


GONE: Final = 90.0  # Seconds after which a session that said nothing is not written to


class FleetPost:
    """The mail of one session to and from sessions of the same project on other machines."""

    def __init__(self, memories: FleetMemories, session: str) -> None:
        self._memories, self._session = memories, session
        self._mail = FleetMail(memories.database)

    def announce(self, agents: Sequence[str]) -> None:
        """Say that this session is there, with these agents."""
        memories = self._memories
        given = (memories.database.tenant.id, memories.space, self._session, memories.machine)
        query = (
            "insert into sevenfold.session (tenant, space, id, machine, name, agents)"
            " values (%s, %s, %s, %s, %s, %s) on conflict (space, id) do update"
            " set seen_at = clock_timestamp(), machine = excluded.machine, agents = excluded.agents"
        )
        name = socket.gethostname()
        memories.database.run(lambda connection: connection.execute(query, (*given, name, list(agents))))

    def withdraw(self) -> None:
        """The session ends: nobody writes to it any more."""
        query = "delete from sevenfold.session where space = %s and id = %s"
        given = (self._memories.space, self._session)
        self._memories.database.run(lambda connection: connection.execute(query, given))

    def list_sessions(self) -> dict[str, list[str]]:
        """The other sessions that are there, with their agents."""
        query = (
            "select id, agents from sevenfold.session where space = %s and id <> %s"
            " and abs(extract(epoch from clock_timestamp() - seen_at)) < %s order by id"
        )
        given = (self._memories.space, self._session, GONE)
        return dict(
            self._memories.database.run(lambda connection: connection.execute(query, given).fetchall())
        )

    def send(self, to: str, letter: Letter) -> str:
        """Send a letter and return the address that it went to; it is in the database then."""
        session, agent = _find_receiver(to.removeprefix(BRIDGE), self.list_sessions())
        own = f"{BRIDGE}{self._session}"
        sender = own if letter.sender == LEAD else f"{own}/{letter.sender}"
        body = {"agent": agent, "letter": {**encode_letter(letter), "from": sender}}
        recipient = f"{self._memories.space}/{session}"
        self._mail.send(sender, recipient, msgspec.json.encode(body), letter.id)
        return f"{BRIDGE}{session}/{agent}" if agent else f"{BRIDGE}{session}"

    def take(self) -> list[FarLetter]:
        """Letters for this session, in order; each is to be kept, or it comes again."""
        found = list[FarLetter]()
        for one in self._mail.take(f"{self._memories.space}/{self._session}"):
            try:
                body = msgspec.json.decode(one.body, type=dict[str, Any])
                letter = parse_letter(body["letter"])
            except (msgspec.DecodeError, KeyError, Refused):
                self.keep(one.id)  # no letter of ours
                continue
            found.append(FarLetter(one.id, str(body.get("agent") or LEAD), letter))
        return found

    def keep(self, *ids: int) -> None:
        """These letters are on the disk of this machine."""
        self._mail.keep(f"{self._memories.space}/{self._session}", *ids)


def _find_receiver(asked: str, there: dict[str, list[str]]) -> tuple[str, str]:
    """The session and the agent that an address or a name means; an empty agent is the lead."""
    wanted, _, agent = asked.partition("/")
    found = [(one, agent) for one in there if wanted and one.startswith(wanted)]
    if not agent:
        found += [
            (one, name) for one, names in there.items() for name in names if is_same_name(name, asked)
        ]
    elif found and agent not in there[found[0][0]]:
        found = []
    if len(found) == 1:
        return found[0]
    known = [f"{BRIDGE}{one}" for one in there]
    known += [f"{BRIDGE}{one}/{name}" for one, names in there.items() for name in names]
    why = "several are called so" if found else "nobody is called so"
    raise Refused(
        f"{asked[:60]!r} was not written to: {why} on other machines; "
        f"there are: {', '.join(known[:10]) or 'none'}"
    )


_check: type[FarPost] = FleetPost
