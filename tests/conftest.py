"""Shared by all tests: the event loop, the fast lane, and the rule that CI skips no real part."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("suite")


HERE = Path(__file__).parent
# Slow as a whole: killed processes, browsers, real models, real callers, remote repositories, and programs
# started at a terminal; beside them every law that Hypothesis tries on random input. `make test-fast`
# leaves them out; of each kind of flow one stays in.
SLOW = """
benchmarks browser faults memory/team properties replay
cli/test_agents_cli.py cli/test_bad_input.py cli/test_compact_command.py cli/test_conversation.py
cli/test_permission_prompt.py cli/test_screens.py cli/test_work_shown.py
cli/test_demo.py cli/test_dream_cli.py cli/test_interrupts.py cli/test_memory_chat.py cli/test_memory_cli.py
cli/test_memory_history_cli.py cli/test_replay_command.py cli/test_replay_honesty.py cli/test_showing.py
cli/test_simulate_command.py cli/test_team_cli.py
context/test_context_properties.py context/test_context_state.py context/test_real_callers.py
flows/test_dream_on_llama.py flows/test_extraction_on_llama.py flows/test_forks_on_llama.py
flows/test_home_of_0_1.py flows/test_layers_in_session.py flows/test_pages.py
layers/l2_microcompaction/test_frontier.py layers/l4_compaction/test_collapse.py
layers/l4_compaction/test_digest.py layers/l7_agents/test_worktrees.py
memory/consolidation/test_consolidation.py memory/folder/test_path_attacks.py memory/history/test_history.py
memory/instructions/test_hostile_instructions.py memory/search/test_embedding.py
memory/search/test_vectors.py
mcp_servers/test_chat_command.py mcp_servers/test_http_servers.py mcp_servers/test_official_client.py
models/test_local_server.py
proxy/test_proxy_bytes.py proxy/test_proxy_chat.py proxy/test_proxy_command.py proxy/test_proxy_responses.py
proxy/test_proxy_threads.py cli/test_replay_as_proxy.py
recordings/test_real_sessions.py test_examples.py
simulator/test_promptcache_properties.py
storage/test_jsonl.py
settings/test_trust.py
tools/test_bash.py tools/test_permissions_against_bash.py tools/test_reach.py tools/test_searching_large.py
"""
SLOW_PATHS = frozenset(HERE / name for name in re.findall(r"\S+", SLOW))


def is_slow(path: Path) -> bool:
    """True for a file in the list, or in a folder of the list."""
    return not SLOW_PATHS.isdisjoint([path, *path.parents])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out what is marked slow")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Slow files are not even imported in the fast lane."""
    return True if config.getoption("fast") and is_slow(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is slow, and leave it out of the fast lane."""
    for item in items:
        if is_slow(item.path) or getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("slow")
    if config.getoption("fast"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


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
