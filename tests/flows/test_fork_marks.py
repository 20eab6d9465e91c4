"""On a real wire: a fork reads all that its parent's last request has put into the cache."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anthropic
import pytest
from flows.test_session import Place
from flows.wire import SteadySimulator
from layers.l7_agents.stage import until

from sevenfold.core.events import CacheBroke, Forked
from sevenfold.core.messages import Json
from sevenfold.models.anthropic import AnthropicSdk
from sevenfold.simulator import ManualClock, Simulator

pytestmark = pytest.mark.anyio
MODEL = "claude-opus-4-8"
FILES = 30
LONG_ANSWER = "The build reads every one of these files in turn. " * 160
"""More than a fork may send twice, so that it goes back to what the last request sent."""


def answers(body: Json) -> Sequence[Json]:
    """First a look at one file, then at thirty in one step, then a long answer."""
    messages = body["messages"]
    if "<directive" in str(messages[-1]["content"][-1]):
        return [{"type": "text", "text": "Nothing to keep."}]
    replied = sum(one["role"] == "assistant" for one in messages)
    if replied > 1:
        return [{"type": "text", "text": LONG_ANSWER}]
    files = range(FILES) if replied else range(1)
    return [
        {"type": "tool_use", "id": f"t{replied}-{n}", "name": "Read", "input": {"file_path": f"f{n}.txt"}}
        for n in files
    ]


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[tuple[Place, Simulator]]:
    async with SteadySimulator(replies=answers, clock=ManualClock()) as simulator:
        here = Place(tmp_path, simulator.url)
        simulator.events = here.events
        for n in range(FILES):
            text = "\n".join(f"line {n}.{line} of a file that the build reads" for line in range(60))
            (here.project / f"f{n}.txt").write_text(text, encoding="utf-8")
        yield here, simulator


def count_cached(row: Any) -> int:
    used = row.tokens
    return int(used.cache_read + used.cache_write_5m + used.cache_write_1h)


@pytest.mark.parametrize("kind", ["notes", "extract"])
async def test_a_fork_reads_what_its_parent_marked_though_that_request_added_thirty_blocks(
    wire: tuple[Place, Simulator], kind: str
) -> None:
    here, simulator = wire
    flags = {"dream": False, "notes": kind == "notes", "extraction": kind == "extract"}
    each = {"batch": 1, "leastRequests": 0}
    settings = {"flags": flags, "sideWork": "fork", "notes": {"priced": True}, "extraction": each}
    options: dict[str, Any] = {"interactive": True, "settings": settings}
    async with (
        anthropic.AsyncAnthropic(api_key="k", base_url=simulator.url) as client,
        here.session(AnthropicSdk(client, MODEL), **options) as session,
    ):
        await session.ask("Always look at all the files before you answer.")
        await until(lambda: bool(here.of(Forked)))
    rows = list(simulator.ledger.rows)
    at = next(n for n, row in enumerate(rows) if row.source == f"fork:{kind}")
    parent = rows[at - 1]
    assert parent.source == "main"
    assert rows[at].tokens.cache_read >= 0.99 * count_cached(parent)
    assert here.of(CacheBroke) == []
