"""Every half minute a background agent says in a few words what it is at, from a fork of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit import extends
from layers.l7_agents.stage import Stage, settled, work

from sevenfold.core.errors import Refused, UnknownModel
from sevenfold.core.events import Event, Failed, Progress
from sevenfold.core.messages import parse_directive
from sevenfold.layers.l7_agents.agent_run import KIND, extract_status
from sevenfold.settings.layers import AgentSettings
from sevenfold.testing.doubles import Line

pytestmark = pytest.mark.anyio
EVERY = AgentSettings().summary_seconds


def watched(tmp_path: Path, *answers: Line) -> Stage:
    stage = Stage(tmp_path)
    stage.plays("status", *answers)
    stage.having(side_work=stage.side_work())
    return stage


def said(events: list[Event]) -> list[str]:
    return [e.said for e in events if isinstance(e, Progress)]


async def test_the_status_comes_from_a_fork_of_the_agent_on_its_own_prefix(tmp_path: Path) -> None:
    stage = watched(tmp_path, "Reading the retry tests.")
    scout = stage.plays("scout", work(), "done")
    async with stage.open():
        await stage.call(name="scout", run_in_background=True)
        await stage.clock.advance(EVERY - 1)
        asked = stage.scripts["status"]
        assert asked.requests == []
        await stage.clock.advance(1)

        assert extends(scout.seen[-1], asked.seen[0]), "what the agent sent is in the cache"
        request = asked.requests[0]
        directive = parse_directive(request.view[-1].message.text)
        assert directive is not None
        assert directive.kind == KIND
        assert 0 < request.max_tokens <= 64
        assert request.frame == scout.requests[-1].frame, "the same model, tools and system"
        assert stage.roster.agents[0].doing == "Reading the retry tests"
        assert said(stage.events) == ["Reading the retry tests"]

        stage.held.let_go.set()
        await stage.roster.wait()
        assert stage.roster.agents[0].doing == "", "it is at nothing any more"
        assert len(stage.actors["scout"].turn.transcript.view) == 4, "nothing of it is in there"


async def test_nothing_new_is_not_asked_about_again(tmp_path: Path) -> None:
    stage = watched(tmp_path, "Waiting for the build", "Reading the log")
    stage.plays("scout", work("w1"), work("w2"), "done")
    async with stage.open():
        await stage.call(name="scout", run_in_background=True)
        for _ in range(4):
            await stage.clock.advance(EVERY)
        assert said(stage.events) == ["Waiting for the build"]
        stage.held.once()
        await stage.clock.advance(EVERY)
        assert said(stage.events) == ["Waiting for the build", "Reading the log"]


async def test_an_agent_that_somebody_waits_for_is_not_asked(tmp_path: Path) -> None:
    stage = watched(tmp_path)
    stage.plays("scout", work(), "done")
    async with stage.open():
        stage.tasks.start_soon(lambda: stage.call(name="scout"))
        await stage.clock.advance(EVERY)
        assert stage.scripts["status"].requests == []
        stage.held.let_go.set()
        await settled()


async def test_a_tool_that_the_status_calls_is_not_run_and_says_nothing(tmp_path: Path) -> None:
    stage = watched(tmp_path, work("x"))
    stage.plays("scout", work(), "done")
    async with stage.open():
        await stage.call(name="scout", run_in_background=True)
        await stage.clock.advance(EVERY)
        assert len(stage.scripts["status"].requests) == 1
        assert said(stage.events) == []


async def test_a_status_that_fails_is_an_event_and_the_agent_goes_on(tmp_path: Path) -> None:
    stage = watched(tmp_path, UnknownModel("no such model"))
    stage.plays("scout", work(), "done")
    async with stage.open():
        await stage.call(name="scout", run_in_background=True)
        await stage.clock.advance(EVERY)
        [failed] = [e for e in stage.events if isinstance(e, Failed)]
        assert failed.cause == "no such model"
        stage.held.let_go.set()
        await stage.roster.wait()
        assert stage.roster.agents[0].status == "done"


async def test_one_that_is_refused_is_not_asked_for_again(tmp_path: Path) -> None:
    """The day's money for background work is spent, say."""
    stage = watched(tmp_path, Refused("no money left"), "never")
    stage.plays("scout", work("w1"), work("w2"), "done")
    async with stage.open():
        await stage.call(name="scout", run_in_background=True)
        await stage.clock.advance(EVERY)
        stage.held.once()
        await stage.clock.advance(EVERY)
        assert len([e for e in stage.events if isinstance(e, Failed)]) == 1
        assert len(stage.scripts["status"].requests) == 1


async def test_after_three_failures_in_a_row_an_agent_is_not_asked_any_more(tmp_path: Path) -> None:
    down = UnknownModel("no such model")
    stage = watched(tmp_path, down, down, "Reading on", down, down, down, "never")
    stage.plays("scout", *(work(f"w{i}") for i in range(9)), "done")
    async with stage.open():
        await stage.call(name="scout", run_in_background=True)
        for _ in range(9):
            await stage.clock.advance(EVERY)
            stage.held.once()

    failed = [e.cause for e in stage.events if isinstance(e, Failed)]
    assert len(stage.scripts["status"].requests) == 6, "a status between them begins the count anew"
    assert [cause.endswith("scout is not asked any more") for cause in failed] == [*[False] * 4, True]


async def test_they_can_be_switched_off(tmp_path: Path) -> None:
    off = watched(tmp_path / "a")
    off.having(settings=AgentSettings(summary_seconds=0))
    without = Stage(tmp_path / "b")
    for stage in (off, without):
        stage.plays("scout", work(), "done")
        async with stage.open():
            await stage.call(name="scout", run_in_background=True)
            await stage.clock.advance(EVERY)
            assert said(stage.events) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Reading a.py", "Reading a.py"),
        ('\n\n  "**Fixing   the parser.**"\nand more', "Fixing the parser"),
        ("", ""),
        ("word " * 40, "word word word word word word word word word word word word…"),
    ],
)
def test_a_status_is_one_short_line(text: str, words: str) -> None:
    assert extract_status(text) == words
