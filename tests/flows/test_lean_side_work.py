"""On a real wire: side work as a request of its own, beside the same work by a fork."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from flows.test_session import Place
from flows.wire import SteadySimulator
from layers.l7_agents.stage import until

from sevenfold.core.events import CacheBroke, Forked, Sending, SideWorkChosen
from sevenfold.models.anthropic import AnthropicSdk
from sevenfold.offline import encode_reply
from sevenfold.simulator import ManualClock, Simulator

pytestmark = pytest.mark.anyio
MODEL, SMALL = "claude-opus-4-8", "claude-haiku-4-5"
SAID = (
    "I'm a data engineer, and I prefer tabs over spaces in every repository.",
    "read config.toml and tell me which port is used",
    "We decided that the staging server is called kiwi from now on.",
)
_ORIGIN = re.compile(r"^.*(?:origin|session|entries).*$", re.MULTILINE)
NO_NOTES = {"dream": False, "notes": False}


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[tuple[Place, Simulator]]:
    async with SteadySimulator(replies=encode_reply, clock=ManualClock()) as simulator:
        here = Place(tmp_path, simulator.url)
        simulator.events = here.events
        yield here, simulator


async def talk(here: Place, side_work: str, **settings: Any) -> dict[str, str]:
    """A session in which lasting things are said; the memories it leaves behind."""
    here.home = here.home.with_name(f"home-{side_work}")
    given = {"sideWork": side_work, "flags": NO_NOTES, "extraction": {"batch": 1}, **settings}
    async with here.session(MODEL, interactive=True, settings=given) as session:
        for text in SAID:
            await session.ask(text)
    assert len(here.of(Forked)) >= 2
    folder = session.at.memory.folder
    return {path.name: _ORIGIN.sub("", path.read_text("utf-8")) for path in sorted(folder.glob("*.md"))}


async def test_a_lean_extraction_saves_the_same_memories_as_a_fork(wire: tuple[Place, Simulator]) -> None:
    here, simulator = wire
    forked = await talk(here, "fork")
    assert len(forked) > 2, "two memories at the least, and the index"
    assert {row.source for row in simulator.ledger.rows} == {"main", "fork:extract"}

    assert await talk(here, "small") == forked
    lean = [row for row in simulator.ledger.rows if row.source == "side:extract"]
    assert lean
    assert {row.model for row in lean} == {SMALL}
    assert here.of(CacheBroke) == []
    told = [event for event in here.of(Sending) if event.source == "side:extract"]
    assert all(event.expected and not event.lost for event in told)


async def test_the_cheapest_way_is_told_with_both_prices(wire: tuple[Place, Simulator]) -> None:
    here, _ = wire
    await talk(here, "cheapest")
    told = here.of(SideWorkChosen)
    assert {(one.kind, one.way, one.model) for one in told} == {("extract", "lean", SMALL)}
    for one in told:
        assert 0 < one.lean < one.fork


async def test_lean_notes_tell_what_was_said(wire: tuple[Place, Simulator]) -> None:
    here, simulator = wire
    settings = {
        "sideWork": "small",
        "notes": {"firstAt": 1, "priced": True},
        "flags": {"dream": False, "extraction": False},
    }
    async with here.session(MODEL, interactive=True, settings=settings) as session:
        await session.ask("read config.toml and tell me which port is used")
        await until(lambda: bool(here.of(Forked)))
    [notes] = session.folder.glob("session-memory/*.md")
    assert "which port is used" in notes.read_text("utf-8")
    first = next(row for row in simulator.ledger.rows if row.source == "side:notes")
    assert first.model == SMALL
    assert here.of(CacheBroke) == []


@pytest.mark.parametrize(
    ("main", "settings", "chosen", "why"),
    [
        (MODEL, {}, SMALL, f"it costs less than {MODEL}"),
        (SMALL, {"sideModel": MODEL}, SMALL, "no small model is known to cost less"),
        (SMALL, {"sideModel": MODEL, "sideWork": "small"}, MODEL, "the setting sideWork says so"),
        (MODEL, {"sideWork": "fork"}, MODEL, "the setting sideWork says so"),
        (
            MODEL,
            {"recall": {"selector": "model", "model": MODEL}},
            MODEL,
            "the setting recall.model says so",
        ),
    ],
)
async def test_memories_are_chosen_by_the_small_model_where_it_costs_less_or_you_say_so(
    wire: tuple[Place, Simulator], main: str, settings: dict[str, Any], chosen: str, why: str
) -> None:
    here, simulator = wire
    given = {"flags": {**NO_NOTES, "extraction": False}, "recall": {"selector": "model"}, **settings}
    async with here.session(main, interactive=True, settings=given) as session:
        await session.ask("#")
        store = session.knowledge.store
        assert store is not None
        store.path_of().mkdir(parents=True, exist_ok=True)
        (store.path_of() / "kiwi.md").write_text("The staging server is called kiwi.\n", encoding="utf-8")
        await session.ask("what is the staging server called?")
        await session.tray.drain(30)

    [told] = here.of(SideWorkChosen)
    assert (told.kind, told.way, told.model, told.why) == ("recall-plain", "lean", chosen, why)
    assert [row.model for row in simulator.ledger.rows if row.source != "main"] == [chosen]


async def test_a_client_of_the_callers_own_is_asked_for_its_own_model(
    wire: tuple[Place, Simulator],
) -> None:
    here, simulator = wire
    settings = {"sideWork": "small", "flags": NO_NOTES}
    async with (
        anthropic.AsyncAnthropic(api_key="k", base_url=simulator.url) as client,
        here.session(AnthropicSdk(client, MODEL), interactive=True, settings=settings) as session,
    ):
        await session.ask(SAID[0])
    assert {(row.source, row.model) for row in simulator.ledger.rows} == {
        ("main", MODEL),
        ("side:extract", MODEL),
    }
