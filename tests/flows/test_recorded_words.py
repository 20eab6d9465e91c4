"""Words of a session that another program recorded: they wait until they were looked at."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from flows.test_session import Place
from flows.wire import SteadySimulator
from recordings.lines import make_claude_code_line

from sevenfold.clients.recorded_words import learn_from_recording
from sevenfold.core.errors import Mistake
from sevenfold.core.events import Failed, Remembered
from sevenfold.offline import encode_reply
from sevenfold.session.project import Project
from sevenfold.settings.environment import Environment
from sevenfold.simulator import ManualClock
from sevenfold.storage.places import list_sessions
from sevenfold.storage.waiting_notes import WaitingFolder

pytestmark = pytest.mark.anyio
MODEL = "claude-opus-4-8"
CENTS = "Remember that prices are kept in whole cents, never rounded."
AUDIT = "Remember that the accounts are audited on 2026-12-01."
NOTHING: dict[str, Any] = {"dailyBackgroundLimit": 0.0, "flags": {"dream": False, "notes": False}}
ENOUGH: dict[str, Any] = {"flags": {"dream": False, "notes": False}}


class Desk:
    """A project, the recording of another program, and what is learned from it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.recording = place.project.parent / "s-1.jsonl"
        self._lines: list[str] = []

    def record(self, text: str) -> None:
        for role, said in (("user", text), ("assistant", "Noted.")):
            line = make_claude_code_line(len(self._lines), role, said)
            self._lines.append(json.dumps(line) + "\n")
        self.recording.write_text("".join(self._lines), encoding="utf-8")

    def allow(self, settings: dict[str, Any]) -> None:
        self.place.home.mkdir(parents=True, exist_ok=True)
        (self.place.home / "settings.json").write_text(json.dumps(settings), encoding="utf-8")

    def open_project(self) -> Project:
        around = Environment.read({**self.place.environ, "SEVENFOLD_HOME": str(self.place.home)})
        return Project.open(self.place.project, around, {}, lambda event: None)

    async def learn(self) -> list[Remembered]:
        return await learn_from_recording(
            self.recording, self.open_project(), MODEL, self.place.events.append
        )

    @property
    def waiting(self) -> list[str]:
        return WaitingFolder(self.open_project().places.project).list_sessions()

    @property
    def memories(self) -> str:
        files = self.open_project().memory.folder.glob("*.md")
        return "\n".join(path.read_text("utf-8") for path in files if path.name != "MEMORY.md")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with SteadySimulator(replies=encode_reply, clock=ManualClock()) as simulator:
        made = Desk(Place(tmp_path, simulator.url))
        simulator.events = made.place.events
        made.record(CENTS)
        yield made


async def test_words_that_could_not_be_looked_at_wait_for_the_next_call(desk: Desk) -> None:
    desk.allow(NOTHING)
    assert await desk.learn() == []
    assert desk.place.of(Failed), "no money is left for a look"
    assert desk.waiting == ["s-1"]
    assert list_sessions(desk.open_project().places) == [], "a copy that waits is no session of ours"

    desk.allow(ENOUGH)
    assert len(await desk.learn()) == 1
    assert "whole cents" in desk.memories
    assert desk.waiting == []
    assert await desk.learn() == [], "what was looked at once is not looked at again"


async def test_the_next_session_takes_them_up_and_what_came_later_too(desk: Desk) -> None:
    desk.allow(NOTHING)
    await desk.learn()
    desk.record(AUDIT)
    await desk.learn()
    assert desk.memories == ""

    desk.allow(ENOUGH)
    async with desk.place.session(MODEL, interactive=True):
        pass
    assert "whole cents" in desk.memories
    assert "audited" in desk.memories
    assert desk.waiting == []
    assert await desk.learn() == []


async def test_where_extraction_is_switched_off_nothing_waits(desk: Desk) -> None:
    desk.allow({"flags": {"extraction": False, "dream": False, "notes": False}})
    with pytest.raises(Mistake, match="extraction is switched off"):
        await desk.learn()
    assert desk.waiting == []


async def test_while_another_session_takes_words_up_a_call_says_so(desk: Desk) -> None:
    desk.allow(ENOUGH)
    places = desk.open_project().places
    with WaitingFolder(places.project).claim() as mine:
        assert mine
        with pytest.raises(Mistake, match="another session is looking"):
            await desk.learn()
    assert len(await desk.learn()) == 1
