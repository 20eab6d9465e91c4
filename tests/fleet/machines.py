"""A fleet and its machines, for tests."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

from sevenfold.core.clock import SystemClock
from sevenfold.core.events import Event, Notice
from sevenfold.core.protocols import Clock
from sevenfold.fleet.database import FleetDatabase
from sevenfold.fleet.memories import FleetMemories, find_space
from sevenfold.fleet.replica import FleetSync, PostgresBackend
from sevenfold.memory.store import MemoryStore
from sevenfold.testing.postgres import PostgresServer

_numbers = itertools.count()
_databases: list[FleetDatabase] = []
"""Those of all machines of a test: a server has a hundred connections."""


def make_fleet(server: PostgresServer) -> str:
    """The address of a new database with a fleet in it."""
    address = server.make_database(f"fleet{next(_numbers)}")
    database = FleetDatabase(address)
    database.migrate("acme")
    database.close()
    return address


class Machine:
    """A machine with a replica of one space."""

    def __init__(
        self, root: Path, address: str, name: str, space: str = "project-x", clock: Clock | None = None
    ) -> None:
        self.root, self.name = root / name, name
        self.database = FleetDatabase(address, "acme")
        _databases.append(self.database)
        memories = FleetMemories(self.database, find_space(self.database, "project", space), name)
        self.backend = PostgresBackend(self.root / "memory", self.root / "state", memories)
        self.told: list[Event] = []
        self.store = MemoryStore(self.backend, clock or SystemClock(), emit=self.told.append)

    @property
    def said(self) -> str:
        """All notices of the store."""
        return "\n".join(event.text for event in self.told if isinstance(event, Notice))

    def add(self, name: str, body: str) -> None:
        self.store.add(type="project", name=name, description=f"about {name}", body=body)

    def sync(self) -> int:
        return FleetSync(self.store, self.backend).run()

    def body(self, name: str) -> str:
        return self.store.get(name).body.strip()

    def texts(self) -> dict[str, bytes]:
        """Every memory; the index is each machine's own."""
        folder = self.root / "memory"
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*.md"))
            if path.name != "MEMORY.md"
        }


def close_databases() -> None:
    """Ends the connections of all machines that a test made."""
    while _databases:
        _databases.pop().close()


@contextlib.contextmanager
def away(machine: Machine) -> Iterator[None]:
    """The machine does not reach the database."""
    address, machine.database.address = machine.database.address, ""
    machine.database.close()
    yield
    machine.database.address = address
