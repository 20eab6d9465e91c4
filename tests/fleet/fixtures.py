"""One server for all tests of a worker; a database for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fleet.machines import close_databases, make_fleet
from fleet.servers import JumpingServer, start_jumping_server, start_server

from sevenfold.testing.postgres import PostgresServer


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


@pytest.fixture(scope="session")
def one_jumping_server() -> Iterator[JumpingServer]:
    server = start_jumping_server()
    yield server
    server.close()


@pytest.fixture
def jumping_server(one_jumping_server: JumpingServer) -> JumpingServer:
    """A server whose clock is right when the test begins."""
    one_jumping_server.jump(0)
    return one_jumping_server


@pytest.fixture
def address(server: PostgresServer) -> Iterator[str]:
    """A new database with a fleet in it."""
    yield make_fleet(server)
    close_databases()
