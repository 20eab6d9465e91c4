"""A model on the user's own machine does one thing at a time: who speaks does not wait for side work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from flows.test_session import Place

from sevenfold.core.errors import Refused
from sevenfold.core.messages import Block
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import Request
from sevenfold.core.transcript import Reply
from sevenfold.offline import OfflineEngine
from sevenfold.session.session import Session
from sevenfold.storage.waiting_notes import WaitingFolder

pytestmark = pytest.mark.anyio
AUDIT = "The audit of the accounts ends on 2026-12-01."
SIDE = ("fork:notes", "fork:extract", "side:extract")
SETTINGS = {"flags": {"dream": False}, "notes": {"firstAt": 1, "grownBy": 0, "toolCalls": 0}}


class BusyModel:
    """The offline engine, which needs for side work as long as nobody lets it go on."""

    def __init__(self, name: str = "local:busy") -> None:
        self._engine = OfflineEngine(32_000)
        self.name = name
        self.capabilities = Capabilities(window=32_000, max_output=2_000, one_at_a_time=True)
        self.go_on = anyio.Event()
        self._begun = defaultdict[str, anyio.Event](anyio.Event)
        self.beside: list[tuple[str, ...]] = []  # What was still at work as the user's question came
        self._working: list[str] = []
        self.lingers: set[str] = set()
        self.ending = anyio.Event()

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        source = request.source
        self._begun[source].set()
        if source == "main":
            self.beside.append(tuple(self._working))
        self._working.append(source)
        try:
            if source in SIDE:
                await self.go_on.wait()
            async for part in self._engine.stream(request):
                yield part
        finally:
            if source in self.lingers:  # closing a connection takes its time
                self.lingers.remove(source)
                self.ending.set()
                with anyio.CancelScope(shield=True):
                    for _ in range(5_000):
                        await anyio.lowlevel.checkpoint()
            self._working.remove(source)

    def forget(self) -> None:
        """Wait for requests to come."""
        self._begun.clear()

    async def wait_until_begun(self, *sources: str) -> None:
        with anyio.fail_after(30):
            for source in sources:
                await self._begun[source].wait()


def open_session(
    here: Place, model: BusyModel, *, interactive: bool = True, **more: Any
) -> AbstractAsyncContextManager[Session]:
    return here.session(model, interactive=interactive, settings={**SETTINGS, **more})


async def test_notes_and_extraction_make_room_for_a_question_and_are_begun_anew(tmp_path: Path) -> None:
    here, model = Place(tmp_path, ""), BusyModel()
    async with open_session(here, model) as session:
        await session.ask(AUDIT)
        await model.wait_until_begun("fork:notes", "fork:extract")
        await session.ask("What is in this folder?")
        assert model.beside == [(), ()]
        model.go_on.set()

    assert "audit" in (session.folder / "session-memory" / "summary.md").read_text(encoding="utf-8")
    memory = session.at.memory.folder
    assert len([path for path in memory.glob("*.md") if path.name != "MEMORY.md"]) == 1
    assert WaitingFolder(session.places.project).list_sessions() == []


async def test_what_an_earlier_session_left_makes_room_and_is_taken_up_at_the_end(tmp_path: Path) -> None:
    here, model = Place(tmp_path, ""), BusyModel()
    async with open_session(here, model, extraction={"drainSeconds": 0}) as first:
        await first.ask(AUDIT)
    left = WaitingFolder(first.places.project)
    assert left.list_sessions() == [first.id]

    async with open_session(here, model) as session:
        await model.wait_until_begun("side:extract")
        await session.ask("What is in this folder?")
        assert model.beside[-1] == ()
        model.go_on.set()

    assert left.list_sessions() == []


async def test_a_question_that_a_hook_refuses_breaks_nothing_off(tmp_path: Path) -> None:
    here, model = Place(tmp_path, ""), BusyModel()
    refusal = {"type": "command", "command": "! grep -q secret || exit 2"}
    async with open_session(here, model, hooks={"UserPromptSubmit": [{"hooks": [refusal]}]}) as session:
        await session.ask(AUDIT)
        await model.wait_until_begun("fork:notes", "fork:extract")
        at_work = session.tray.running
        with pytest.raises(Refused):
            await session.ask("Tell me the secret.")
        assert session.tray.running == at_work
        model.go_on.set()


async def test_what_was_broken_off_twice_is_let_finish(tmp_path: Path) -> None:
    here, model = Place(tmp_path, ""), BusyModel()
    async with open_session(here, model) as session:
        for _ in range(3):
            model.forget()
            await session.ask(AUDIT)
            await model.wait_until_begun("fork:notes", "fork:extract")
        await session.ask("What is in this folder?")
        assert model.beside == [(), (), (), ("fork:notes", "fork:extract")]
        model.go_on.set()


async def test_what_several_sessions_left_has_made_room_before(tmp_path: Path) -> None:
    here, model = Place(tmp_path, ""), BusyModel()
    for _ in range(3):
        async with open_session(here, model, extraction={"drainSeconds": 0}) as session:
            await session.ask(AUDIT)
    model.forget()
    async with open_session(here, model) as session:
        await model.wait_until_begun("side:extract")
        await session.ask("What is in this folder?")
        assert model.beside[-1] == ("side:extract",)
        model.go_on.set()


async def test_greetings_leave_nothing_that_waits(tmp_path: Path) -> None:
    here = Place(tmp_path, "")
    for _ in range(3):
        async with open_session(here, model := BusyModel()) as session:
            await session.ask("Hello")
            model.go_on.set()
    assert WaitingFolder(session.places.project).list_sessions() == []


async def test_a_greeting_that_a_kill_left_is_crossed_off(tmp_path: Path) -> None:
    here = Place(tmp_path, "")
    async with open_session(here, BusyModel(), extraction={"drainSeconds": 0}) as session:
        await session.ask(AUDIT)
    waiting = WaitingFolder(session.places.project)
    assert waiting.list_sessions() == [session.id]
    path = session.folder.with_suffix(".jsonl")
    path.write_text(path.read_text(encoding="utf-8").replace(AUDIT, "Hello"), encoding="utf-8")
    async with open_session(here, BusyModel()):
        pass  # a look would wait for a model that nobody lets go on
    assert waiting.list_sessions() == []


@pytest.mark.parametrize(("name", "small"), [("gpt-5.4", None), ("local:busy", "gpt-5.4-nano")])
async def test_where_side_work_is_paid_for_it_is_not_asked_for_twice(
    tmp_path: Path, name: str, small: str | None
) -> None:
    """A gateway on this machine, behind which a provider is."""
    here, model = Place(tmp_path, ""), BusyModel(name)
    each = {"batch": 1, "leastRequests": 0}
    async with open_session(here, model, sideWork="fork", sideModel=small, extraction=each) as session:
        await session.ask(AUDIT)
        await model.wait_until_begun("fork:extract")
        await session.ask("What is in this folder?")
        assert "fork:extract" in model.beside[-1]
        model.go_on.set()


async def test_what_the_user_stopped_while_it_made_room_is_looked_at_in_the_end(tmp_path: Path) -> None:
    here, model = Place(tmp_path, ""), BusyModel()
    async with open_session(here, model, flags={"dream": False, "notes": False}) as session:
        await session.ask(AUDIT)
        await model.wait_until_begun("fork:extract")
        model.lingers.add("fork:extract")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.ask, "What is in this folder?")
            await model.ending.wait()
            model.go_on.set()
            assert session.stop()

    assert WaitingFolder(session.places.project).list_sessions() == []


async def test_a_program_does_not_wait_and_its_notes_are_not_broken_off(tmp_path: Path) -> None:
    here, model = Place(tmp_path, ""), BusyModel()
    async with open_session(here, model, interactive=False) as session:
        await session.ask(AUDIT)
        await model.wait_until_begun("fork:notes")
        await session.ask("What is in this folder?")
        assert model.beside == [(), ("fork:notes",)]
        model.go_on.set()
