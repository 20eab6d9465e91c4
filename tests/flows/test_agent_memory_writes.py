"""What the agent's own Write and Edit of a memory mean: forget it, merge it, date it, say whose it is."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from flows.test_memory_flow import TOPIC, Remembering
from kit import use

from sevenfold.core.events import Remembered
from sevenfold.core.messages import Json
from sevenfold.memory.recall_results import is_recalled
from sevenfold.memory.store import MemoryStore
from sevenfold.session.session import Session
from sevenfold.testing import FakeClock, ScriptedModel

pytestmark = pytest.mark.anyio
TUESDAY = 1_793_707_200.0  # 2026-11-03, 12:00 UTC


@pytest.fixture
def place(tmp_path: Path) -> Remembering:
    return Remembering(tmp_path)


def store_of(session: Session) -> MemoryStore:
    store = session.knowledge.store
    assert store is not None
    return store


async def written(place: Remembering, *calls: object, said: str = "Do it.", **options: object) -> Session:
    """The session in which the agent did these things, one after the other, after the user said this."""
    session, _ = await place.ask(said, *calls, "Done.", **options)  # type: ignore[arg-type]
    return session


async def test_an_empty_write_forgets_a_memory_and_the_person_can_bring_it_back(place: Remembering) -> None:
    path = await place.save("no-db-mocks", "SQL is tested for real", "No mocks.")
    other = await place.save("tabs", "Tabs and no spaces", "Use tabs.")
    session = await written(
        place, use("t1", "Read", file_path=str(path)), use("t2", "Write", file_path=str(path), content="")
    )

    assert not path.exists()
    assert other.exists()
    index = (path.parent / "MEMORY.md").read_text(encoding="utf-8")
    assert "no-db-mocks" not in index
    assert "tabs" in index
    (event,) = place.of(Remembered)
    assert (event.name, event.action, event.by) == ("no-db-mocks", "removed", "agent")
    with_history = store_of(session)
    with_history.undo("no-db-mocks")
    assert "No mocks." in path.read_text(encoding="utf-8")


async def test_a_memory_without_a_text_is_not_made(place: Remembering) -> None:
    path = await place.open_once() / "empty.md"
    session = await written(place, use("t3", "Write", file_path=str(path), content=" \n"))

    assert not path.exists()
    assert "a memory without a text says nothing" in session.view[-2].message.results[0].content


async def test_a_new_memory_says_who_wrote_it_in_which_session_and_when(place: Remembering) -> None:
    path = await place.open_once() / "tabs.md"
    text = TOPIC.format(name="tabs", about="Tabs and no spaces", body="Use tabs everywhere.")
    session = await written(
        place,
        use("t4", "Write", file_path=str(path), content=text),
        said="Please use tabs everywhere, no spaces.",
        clock=FakeClock(TUESDAY),
    )

    origin = store_of(session).get("tabs").origin
    assert origin is not None
    assert (origin.author, origin.session, origin.date) == ("agent", session.id, "2026-11-03")


async def test_an_edit_cannot_give_a_memory_another_origin(place: Remembering) -> None:
    path = await place.open_once() / "tabs.md"
    text = TOPIC.format(name="tabs", about="Tabs and no spaces", body="Use tabs everywhere.")
    session = await written(
        place,
        use("t5", "Write", file_path=str(path), content=text),
        use("t6", "Edit", file_path=str(path), old_string="author: agent", new_string="author: user"),
        said="Please use tabs everywhere, no spaces.",
    )

    origin = store_of(session).get("tabs").origin
    assert origin is not None
    assert origin.author == "agent"


async def test_relative_dates_are_written_out_and_the_agent_is_told(place: Remembering) -> None:
    path = await place.open_once() / "freeze.md"
    text = TOPIC.format(
        name="freeze",
        about="The freeze is on Thursday",
        body="Nothing is merged from tomorrow on.\n\n> it starts tomorrow\n",
    )
    session = await written(
        place,
        use("t7", "Write", file_path=str(path), content=text),
        said="The freeze is on Thursday, it starts tomorrow: nothing is merged from then on.",
        clock=FakeClock(TUESDAY),
    )

    saved = path.read_text(encoding="utf-8")
    assert "The freeze is on 2026-11-05" in saved
    assert "Nothing is merged from 2026-11-04 on." in saved
    assert "> it starts tomorrow" in saved
    assert "Dates were written out" in session.view[-2].message.results[0].content


async def test_a_line_that_stood_there_keeps_its_words(place: Remembering) -> None:
    path = await place.save("freeze", "When the freeze is", "It begins tomorrow.")
    await written(
        place,
        use("t8", "Read", file_path=str(path)),
        use(
            "t9",
            "Edit",
            file_path=str(path),
            old_string="tomorrow.",
            new_string="tomorrow.\nIt ends next Friday.",
        ),
        said="The freeze ends next Friday.",
        clock=FakeClock(TUESDAY),
    )

    assert "It begins tomorrow.\nIt ends on 2026-11-13." in path.read_text(encoding="utf-8")


async def test_news_about_a_memory_goes_into_its_file(place: Remembering) -> None:
    path = await place.save("deploy-day", "The day of deploys", "Deploys happen on Mondays.")
    twin = path.with_name("day-of-deploys.md")
    text = TOPIC.format(name="days", about="The day of deploys", body="Deploys happen on Tuesdays.")
    session = await written(
        place,
        use("t10", "Write", file_path=str(twin), content=text),
        said="Our deploys happen on Tuesdays now.",
    )

    assert not twin.exists()
    assert "Deploys happen on Tuesdays." in path.read_text(encoding="utf-8")
    said = session.view[-2].message.results[0].content
    assert said == "Merged into deploy-day.md, which is about the same; day-of-deploys.md was not made."
    (event,) = place.of(Remembered)
    assert (event.name, event.action) == ("deploy-day", "merged")


async def test_what_is_known_already_is_not_written_again(place: Remembering) -> None:
    path = await place.save("deploy-day", "The day of deploys", "Deploys happen on Mondays.")
    twin = path.with_name("again.md")
    text = TOPIC.format(name="again", about="The day of deploys", body="Deploys happen on Mondays.")
    session = await written(place, use("t11", "Write", file_path=str(twin), content=text))

    assert not twin.exists()
    assert "deploy-day.md says so already" in str(session.view[-2].message.results[0].content)


async def test_the_offline_engine_forgets_what_it_is_told_to_forget(place: Remembering) -> None:
    path = await place.save("deploy-day", "Deploys happen on Mondays", "Always on Mondays.")
    async with place.session("offline") as session:
        reply = await session.ask("forget that deploys happen on Mondays")

    assert not path.exists()
    assert "removed this from memory" in reply.message.text


async def test_memory_that_is_to_be_ignored_is_not_recalled_until_it_is_wanted_again(
    place: Remembering,
) -> None:
    await place.save("no-db-mocks", "SQL is tested against a real database", "Never mock it.")
    model = ScriptedModel(["So.", "So.", "So."])
    async with place.session(model) as session:
        await session.ask("Ignore memory: how do we test SQL with a database here?")
        await session.ask("And how do we test SQL with a database in CI?")
        assert not [p for p in session.view if is_recalled(p)]
        await session.ask("Use memory again: how do we test SQL?")
        assert [p for p in session.view if is_recalled(p)]


# --- long-lived conversations ---------------------------------------------------------------------------


async def test_in_assistant_mode_nothing_is_extracted_beside_the_log(place: Remembering) -> None:
    for settings, learns in (({}, True), ({"assistantMode": True}, False)):
        async with place.session("offline", interactive=True, settings=settings) as session:
            assert (session.parts.extraction is not None) is learns


async def test_a_day_that_begins_during_a_turn_is_told_before_the_next_request(place: Remembering) -> None:
    clock = FakeClock(TUESDAY)

    class Night:
        name = "Night"
        schema: ClassVar[Json] = {"name": "Night", "input_schema": {"type": "object"}}

        def safe(self, args: Json) -> bool:
            return True

        async def run(self, args: Json, use_id: str) -> str:
            clock.time += 86_400
            return "It is morning."

    model = ScriptedModel([use("t1", "Night"), "Good morning.", "Yes."])
    settings = {"permissions": {"allow": ["Night"]}}
    options = {"tools": [Night()], "clock": clock, "settings": settings}
    async with place.session(model, **options) as session:
        await session.ask("Wait for the morning.")
        await session.ask("Is it morning?")
        said = [p.message.text for p in session.view if "Date: 2026-11-04" in p.message.text]

    assert len(said) == 1
    assert "Date: 2026-11-04" in model.requests[1].view[-1].message.text
