"""A switch works at once: in a session that is resumed, in one that goes on, and from afar."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from flows.test_busy_local_model import AUDIT, BusyModel, open_session
from flows.test_session import Place
from msgspec.structs import replace
from openfeature import api
from openfeature.provider.in_memory_provider import InMemoryFlag, InMemoryProvider

from sevenfold.context.context import Context
from sevenfold.core.events import Event, Notice, get_label
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import Frame, encode_prefix
from sevenfold.layers.l2_microcompaction.provider import add_context_management, is_clear_request
from sevenfold.session.session import Session
from sevenfold.settings.layers import DOMAIN, LATCHED, Flags, MicroSettings
from sevenfold.storage.waiting_notes import WaitingFolder
from sevenfold.testing import ScriptedModel

pytestmark = pytest.mark.anyio
OTHERS = sorted(set(Flags.__struct_fields__) - set(LATCHED))


@pytest.fixture(autouse=True)
def no_provider_left_behind() -> Iterator[None]:
    yield
    api.clear_providers()


def provide(**values: bool) -> None:
    flags = {name: InMemoryFlag("it", {"it": value}) for name, value in values.items()}
    api.set_provider_and_wait(InMemoryProvider(flags), DOMAIN)


@asynccontextmanager
async def opened(folder: Path, flags: dict[str, bool] | None = None, **more: Any) -> AsyncIterator[Session]:
    project = folder / "project"
    project.mkdir(exist_ok=True)
    async with Session(
        ScriptedModel(["well"] * 9),
        project,
        home=folder / "home",
        environ={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
        settings={"flags": flags or {}},
        interactive=True,
        **more,
    ) as session:
        yield session


def layers(session: Session) -> set[str]:
    every = session.turn.layers
    moments = (every.attach, every.intake, every.fit, every.replied, every.rest, every.idle)
    return {get_label(layer) for moment in moments for layer in moment}


@pytest.mark.parametrize("name", OTHERS)
async def test_a_switch_moved_between_two_sittings_holds_in_the_second(tmp_path: Path, name: str) -> None:
    moved = {name: not getattr(Flags(), name)}
    async with opened(tmp_path) as session:
        await session.ask("hello")
        id = session.id

    async with opened(tmp_path, moved, resume=id) as session:
        assert session.flags == Flags(**moved)


async def test_what_is_off_now_does_not_happen_in_a_session_that_began_with_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as session:
        await session.ask("hello")
        id, before = session.id, layers(session)
    off = dict.fromkeys(("extraction", "dream", "recall", "notes", "tool_results"), False)

    async with opened(tmp_path, off, resume=id) as session:
        gone = before - layers(session)

    assert gone >= {"Extraction", "Dreaming", "Recall", "NotesKeeping", "PayOut", "ToolResults"}


@pytest.mark.parametrize("name", LATCHED)
async def test_what_every_request_begins_with_stays_and_the_user_is_told(tmp_path: Path, name: str) -> None:
    began = getattr(Flags(), name)
    async with opened(tmp_path) as session:
        await session.ask("hello")
        id, sent = session.id, encode_prefix(session.request)
    told: list[Event] = []

    session = Session(
        ScriptedModel(["well"]),
        tmp_path / "project",
        home=tmp_path / "home",
        environ={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        settings={"flags": {name: not began}},
        resume=id,
    )
    session.subscribe(told.append)
    async with session:
        assert getattr(session.flags, name) is began
        assert encode_prefix(session.request) == sent
    (notice,) = [one for one in told if isinstance(one, Notice) and name in one.text]
    assert f"{name} {'on' if began else 'off'}" in notice.text


async def test_a_switch_turned_from_afar_holds_from_the_next_turn_on(tmp_path: Path) -> None:
    provide(extraction=True)
    async with opened(tmp_path) as session:
        await session.ask("hello")
        assert "Extraction" in layers(session)
        before = encode_prefix(session.request)

        provide(extraction=False, pre_cold=True, server_compact=True)
        await session.ask("and now?")

        assert "Extraction" not in layers(session)
        assert "PreCold" in layers(session)
        assert not session.flags.server_compact, "it would change what every request begins with"
        assert encode_prefix(session.request)[: len(before)] == before


async def test_what_made_room_is_taken_up_by_layers_that_are_made_anew(tmp_path: Path) -> None:
    here, model = Place(tmp_path, ""), BusyModel()
    async with open_session(here, model, extraction={"drainSeconds": 0}) as first:
        await first.ask(AUDIT)
    async with open_session(here, model) as session:
        await model.wait_until_begun("side:extract")
        provide(pre_cold=True)
        await session.ask("What is in this folder?")
        model.go_on.set()

    assert WaitingFolder(first.places.project).list_sessions() == []


async def test_a_provider_that_is_gone_leaves_the_switches_where_they_were(tmp_path: Path) -> None:
    provide(extraction=False)
    async with opened(tmp_path) as session:
        await session.ask("hello")
        api.clear_providers()
        await session.ask("and now?")

        assert not session.flags.extraction


async def test_the_teams_part_of_memory_follows_the_switch_of_the_session(tmp_path: Path) -> None:
    """The provider's word reaches it as well as the settings'."""
    provide(team=False)
    async with opened(tmp_path) as session:
        team = session.places.project / "memory" / "team"
        team.mkdir(parents=True)
        (team / "MEMORY.md").write_text("- [Ours](a.md) — of the team\n", encoding="utf-8")
        id = session.id
        await session.ask("hello")
        assert "of the team" not in session.view[0].message.text
    provide(team=True)
    async with opened(tmp_path, resume=id) as session:
        assert any("of the team" in one.text for one in session.knowledge.opening() if one.text)  # type: ignore[union-attr]


def test_a_context_keeps_its_parameters_when_its_own_clearing_is_switched_off(tmp_path: Path) -> None:
    def sent(flags: dict[str, bool]) -> dict[str, Any]:
        with Context(
            "claude-sonnet-4-5",
            state=tmp_path,
            id="a",
            settings={"flags": flags},
            environ={"HOME": str(tmp_path)},
        ) as ctx:
            return ctx.prepare([{"role": "user", "content": "hello"}]) | {"on": ctx.flags}

    first, second = sent({}), sent({"micro_cost": False})

    assert not second.pop("on").micro_cost
    assert first.pop("on").micro_cost
    assert first == second


def test_where_the_provider_was_asked_to_clear_we_do_not_clear_beside_it() -> None:
    able = Capabilities(context_management=True)
    frame = Frame("m", ("s",), ({"name": "Read", "input_schema": {}},))

    assert is_clear_request(add_context_management(frame, able, MicroSettings()))
    assert not is_clear_request(frame)
    assert not is_clear_request(replace(frame, params={"context_management": {"edits": ["?"]}}))
