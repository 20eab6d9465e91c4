"""What a user says a provider can do acts on the wire: cache editing, and thinking that is dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flows.wire import SteadySimulator

from benchmarks.ladder.run import LongTask, drive
from sevenfold import Session
from sevenfold.core.events import Event

pytestmark = pytest.mark.anyio
ALONE = {"extraction": False, "recall": False, "dream": False}


@pytest.mark.parametrize("can", [True, False])
async def test_with_edits_cache_old_results_leave_the_providers_cache(tmp_path: Path, can: bool) -> None:
    settings = {"editsCache": can, "flags": ALONE}
    log = await drive(tmp_path, LongTask(40, 200_000, settings, length=2_000))

    deleted = [row.text for row in log.rows if row.layer == "2"]
    assert bool(deleted) == can
    assert all("deleted from the provider's cache; the prefix is unchanged" in text for text in deleted)
    assert log.counts["cache"] == log.counts["failed"] == log.refused == 0


def thinking(session: Session) -> Any:
    return session.turn.frame.params.get("thinking")


async def test_a_session_drops_thinking_as_it_began(tmp_path: Path) -> None:
    def think(body: Any) -> list[dict[str, str]]:
        return [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "so"}]

    project = tmp_path / "project"
    project.mkdir()
    async with SteadySimulator(replies=think) as simulator:
        simulator.events = events = list[Event]()
        environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "ANTHROPIC_API_KEY": "k"}
        environ["ANTHROPIC_BASE_URL"] = simulator.url
        known: dict[str, Any] = {"home": tmp_path / "home", "environ": environ}
        on, off = {"dropThinking": True, "flags": ALONE}, {"flags": ALONE}
        for begun, later in ((on, off), (off, on)):
            drops = begun is on
            async with Session("claude-opus-5-5", project, settings=begun, **known) as session:
                session.subscribe(events.append)
                await session.ask("well?")
                assert session.model.capabilities.drops_thinking == drops
                assert bool(thinking(session)) == drops
            async with Session(None, project, resume=session.id, settings=later, **known) as again:
                again.subscribe(events.append)
                await again.ask("and now?")
                assert again.model.capabilities.drops_thinking == drops
                assert bool(thinking(again)) == drops
        assert simulator.ledger.total.errors == 0
