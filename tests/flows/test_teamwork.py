"""A session and its team: what changes without a word is sent all the same, and silence is told."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec
import pytest

from sevenfold import Session
from sevenfold.core.clock import SystemClock
from sevenfold.core.events import Event, Notice
from sevenfold.memory.team.state import TeamStateFile
from sevenfold.memory.team.team import Team
from sevenfold.testing import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.real]
FACT = "---\nname: rig\ndescription: Where it is\ntype: project\n---\n\nIn room 4.\n"


def opened(tmp_path: Path, model: ScriptedModel) -> Session:
    (tmp_path / "project").mkdir(exist_ok=True)
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
    return Session(model, tmp_path / "project", home=tmp_path / "home", environ=environ)


async def begun(tmp_path: Path) -> Team:
    async with opened(tmp_path, ScriptedModel([])) as session:
        store = session.knowledge.store
        assert store is not None
        team = Team(store, SystemClock(), session.environment.variables)
        team.init(str(tmp_path / "remote.git"), tmp_path)
        return team


async def test_what_a_hand_wrote_during_a_session_is_sent_at_its_end(tmp_path: Path) -> None:
    team = await begun(tmp_path)
    async with opened(tmp_path, ScriptedModel(["hello"])) as session:
        await session.ask("hi")
        (team.store.path_of() / "team" / "rig.md").write_text(FACT, "utf-8")
    status = team.status()
    assert (status.ahead, status.behind) == ((), ())
    assert team.last.offline is None


async def test_a_remote_that_does_not_answer_is_told_and_costs_little(tmp_path: Path) -> None:
    team = await begun(tmp_path)
    file = TeamStateFile(team.store.local / "team")
    heard: list[Event] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        known = file.load()
        address = f"https://127.0.0.1:{silent.getsockname()[1]}/x"
        file.save(msgspec.structs.replace(known, remote=address, path="", offline="silent"))
        async with opened(tmp_path, ScriptedModel(["hello"])) as session:
            session.subscribe(heard.append)
            await session.ask("hi")
    said = [event.text for event in heard if isinstance(event, Notice)]
    assert any("has not answered yet: its memory is as of 2" in text for text in said)
