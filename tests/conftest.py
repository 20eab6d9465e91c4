"""Shared by all tests: the event loop, and the rule that real parts are not skipped in CI."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("suite")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    """In CI a test of a real part that is skipped has failed: the machine lacks what it must have."""
    report: pytest.TestReport = yield  # type: ignore[misc, assignment]
    if report.skipped and item.get_closest_marker("real") and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"a real-part test was skipped in CI: {report.longrepr}"
    return report  # type: ignore[return-value]
