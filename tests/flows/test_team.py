"""A team's memory in whole sessions: what one writes opens the other's next conversation."""

from __future__ import annotations

import os
from itertools import repeat
from pathlib import Path

import pytest

from sevenfold import Session
from sevenfold.core.clock import SystemClock
from sevenfold.core.events import Event, Notice
from sevenfold.core.messages import Message, ToolUse, assistant
from sevenfold.core.request import Request
from sevenfold.memory.team.team import Team
from sevenfold.testing import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.real]
MEMORY = "---\nname: release-day\ndescription: when we release\ntype: project\n---\nOn Tuesdays.\n"


def of(who: str, tmp_path: Path, model: ScriptedModel) -> Session:
    project = tmp_path / who / "project"
    project.mkdir(parents=True, exist_ok=True)
    environ = {"HOME": str(tmp_path / who), "PATH": os.environ["PATH"]}
    return Session(model, project, home=tmp_path / who / "home", environ=environ)


async def joined(who: str, tmp_path: Path, *, begins: bool = False) -> None:
    async with of(who, tmp_path, ScriptedModel([])) as session:
        store = session.knowledge.store
        assert store is not None
        team = Team(store, SystemClock(), session.environment.variables)
        (team.init if begins else team.join)(str(tmp_path / "remote.git"), tmp_path)


async def test_what_one_writes_for_the_team_opens_the_conversation_of_the_other(tmp_path: Path) -> None:
    await joined("ada", tmp_path, begins=True)
    await joined("bob", tmp_path)

    def writes(request: Request) -> str | Message:
        if request.view[-1].message.results:
            return "saved"
        folder = tmp_path / "ada" / "home" / "projects"
        [team] = folder.glob("*/memory/team")
        use = {"file_path": str(team / "release-day.md"), "content": MEMORY}
        return assistant(ToolUse("w", "Write", use))

    async with of("ada", tmp_path, ScriptedModel(repeat(writes))) as session:
        await session.ask("note when we release, for all of us")

    model = ScriptedModel(["hello"])
    async with of("bob", tmp_path, model) as session:
        await session.ask("hi")

    shown = "\n".join(message.text for message in model.requests[0].view.messages)
    assert "release-day.md" in shown
    assert "when we release" in shown


async def test_a_remote_that_is_gone_is_said_and_the_session_goes_on(tmp_path: Path) -> None:
    await joined("ada", tmp_path, begins=True)
    (tmp_path / "remote.git").rename(tmp_path / "elsewhere.git")
    heard: list[Event] = []

    async with of("ada", tmp_path, ScriptedModel(["hello"])) as session:
        session.subscribe(heard.append)
        reply = await session.ask("hi")

    assert reply.message.text == "hello"
    said = [event.text for event in heard if isinstance(event, Notice)]
    assert any("remote.git" in text for text in said)
