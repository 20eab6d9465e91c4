"""A model of another provider chooses memories: it is asked itself, and where it cannot be, the search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sevenfold import Memory, Session
from sevenfold.core.events import Event, Notice, Surfaced
from sevenfold.core.messages import ToolUse, assistant
from sevenfold.core.protocols import Model
from sevenfold.layers.l5_durable_memory.selection import TOOL
from sevenfold.testing import ScriptedModel

pytestmark = pytest.mark.anyio
HAIKU = "claude-haiku-4-5"


class Connecting(Session):
    """Knows one model more, which answers from a script."""

    haiku: ScriptedModel

    def connect(self, name: str) -> Model:
        assert name == HAIKU
        return self.haiku


def opened(top: Path, main: ScriptedModel, kind: type[Session] = Session) -> Session:
    project = top / "project"
    project.mkdir()
    (project / "notes.txt").write_text("nothing of note\n", encoding="utf-8")
    where: dict[str, Any] = {"home": top / "home", "environ": {"HOME": str(top)}}
    with Memory.open(project, **where) as memories:
        about = "which port the server listens on"
        memories.add(type="reference", name="port", description=about, body="It is 8080.")
    recall = {"selector": "model", "model": HAIKU, "firstWaitMs": 10_000}
    settings = {"recall": recall, "flags": {"notes": False}}
    return kind(main, project, settings=settings, **where)


async def test_the_model_of_the_settings_is_asked_itself(tmp_path: Path) -> None:
    main = ScriptedModel(["I look.", "It is 8080."], name="openai:foo")
    session = opened(tmp_path, main, Connecting)
    assert isinstance(session, Connecting)
    answer = assistant(ToolUse("t1", TOOL, {"files": ["port.md"]}))
    session.haiku = ScriptedModel([answer], name=HAIKU)
    async with session:
        await session.ask("which port does the server listen on?")
        await session.tray.drain(10)
    [request] = session.haiku.requests

    assert request.frame.model == HAIKU
    assert "port.md" in str(request.frame.system)
    assert {request.frame.model for request in main.requests} == {"openai:foo"}


async def test_without_a_key_the_search_chooses_and_the_user_is_told_once(tmp_path: Path) -> None:
    main, events = ScriptedModel(["It is 8080.", "Still."], name="openai:foo"), list[Event]()
    async with opened(tmp_path, main) as session:
        session.subscribe(events.append)
        await session.ask("which port does the server listen on?")
        await session.ask("and is that port open to everybody on the network?")
    [told] = [e.text for e in events if isinstance(e, Notice) and "by search alone" in e.text]

    assert "ANTHROPIC_API_KEY" in told
    assert [event.selector for event in events if isinstance(event, Surfaced)] == ["hybrid"]
    assert len(main.requests) == 2
