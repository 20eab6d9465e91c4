"""The lane of real clients: offline or skipped, their places, and the table at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
from clients.loopback import has_only_loopback
from clients.programs import ClaudeCode, ClientPlace, Codex, find_claude_code, find_codex, make_place
from clients.provider import RunningProxy, SimulatedProvider, run_provider, run_proxy


@pytest.fixture(autouse=True, scope="session")
def _offline() -> None:
    if not has_only_loopback():
        pytest.skip(
            "clients run in a network namespace with loopback alone: `make test-clients` makes one, "
            "as root or where users may make namespaces"
        )


class StartProvider(Protocol):
    def __call__(self, steps: Sequence[dict[str, Any]], *options: str) -> SimulatedProvider: ...


@pytest.fixture
def start_provider(tmp_path: Path) -> Iterator[StartProvider]:
    """Start `sevenfold simulate` with the steps of a script; ended with the test."""
    with ExitStack() as stack:

        def start(steps: Sequence[dict[str, Any]], *options: str) -> SimulatedProvider:
            return stack.enter_context(run_provider(tmp_path, steps, *options))

        yield start


@pytest.fixture
def place(tmp_path: Path) -> ClientPlace:
    return make_place(tmp_path)


class StartProxy(Protocol):
    def __call__(self, upstream: str) -> RunningProxy: ...


@pytest.fixture
def proxy_log(tmp_path: Path) -> Path:
    """What the proxies of a test had to say."""
    return tmp_path / "proxy.log"


@pytest.fixture
def start_proxy(place: ClientPlace, proxy_log: Path) -> Iterator[StartProxy]:
    """Start `sevenfold proxy` before a provider; ended with the test."""
    with ExitStack() as stack:

        def start(upstream: str) -> RunningProxy:
            return stack.enter_context(run_proxy(place.home, upstream, proxy_log))

        yield start


@pytest.fixture
def claude_code(place: ClientPlace) -> ClaudeCode:
    return find_claude_code(place)


@pytest.fixture
def codex(place: ClientPlace) -> Codex:
    return find_codex(place)


class RecordRow(Protocol):
    def __call__(self, client: str, version: str, way: str) -> None: ...


@pytest.fixture
def record_row(record_property: Any) -> RecordRow:
    """Say which cell of the table this test decides; `way` is the heading of a column."""

    def record(client: str, version: str, way: str) -> None:
        record_property("cell", (client, version, way))

    return record


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table: what works on the simulator, directly and through the proxy."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for outcome in ("passed", "failed", "skipped"):
        for report in terminalreporter.getreports(outcome):
            for name, (client, version, way) in report.user_properties:
                assert name == "cell"
                rows.setdefault((client, version), {})[way] = {"passed": "works"}.get(outcome, outcome)
    if not rows:
        return
    ways = sorted({way for cells in rows.values() for way in cells})
    terminalreporter.section("clients")
    terminalreporter.write_line("".join([f"{'client':32}{'version':12}", *(f"{way:20}" for way in ways)]))
    for (client, version), cells in sorted(rows.items()):
        cell = "".join(f"{cells.get(way, '-'):20}" for way in ways)
        terminalreporter.write_line(f"{client:32}{version:12}{cell}")
