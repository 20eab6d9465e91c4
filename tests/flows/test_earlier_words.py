"""Sessions of a project take up what ended ones left for extraction, on a real wire: once, and cheaply."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from flows.test_session import Place
from flows.wire import SteadySimulator

from sevenfold.cache.prices import Prices
from sevenfold.core.errors import SevenfoldError
from sevenfold.core.events import CacheBroke, Failed, Notice, SideWorkChosen
from sevenfold.offline import encode_reply
from sevenfold.session.session import Session
from sevenfold.simulator import ManualClock, Simulator
from sevenfold.storage.waiting_notes import WaitingFolder

pytestmark = pytest.mark.anyio
MODEL = "claude-opus-4-8"
AUDIT = "The audit of the accounts ends on 2026-12-01."
WEDDING = "The wedding of Maria in Hamburg is on 2027-03-14."
SALARY = "Remember that the salaries are raised on 2026-12-24."
ONLY = {"flags": {"dream": False, "notes": False}}


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[tuple[Place, Simulator]]:
    async with SteadySimulator(replies=encode_reply, clock=ManualClock()) as simulator:
        here = Place(tmp_path, simulator.url)
        simulator.events = here.events
        yield here, simulator


async def say(here: Place, *texts: str) -> Session:
    """A session with a model that costs money, in which nothing is said that is looked at at once."""
    async with here.session(MODEL, interactive=True, settings=ONLY) as session:
        for text in texts:
            await session.ask(text)
    return session


def count_looks(simulator: Simulator) -> int:
    """The requests of extractions that were no answer to a tool."""
    sources = [row.source for row in simulator.ledger.rows]
    return sources.count("side:extract") + sources.count("fork:extract")


def list_waiting(session: Session) -> list[str]:
    return WaitingFolder(session.places.project).list_sessions()


def read_memories(session: Session) -> dict[str, str]:
    folder = session.at.memory.folder
    return {path.stem: path.read_text("utf-8") for path in folder.glob("*.md") if path.stem != "MEMORY"}


async def test_short_sessions_wait_until_a_look_is_worth_it_and_one_run_covers_them(
    wire: tuple[Place, Simulator],
) -> None:
    here, simulator = wire
    first = await say(here, AUDIT)
    second = await say(here, WEDDING)
    assert list_waiting(first) == [first.id, second.id]
    assert count_looks(simulator) == 0, "two requests are not worth a third"

    few = {"extraction": {"leastRequests": 2}, **ONLY}
    async with here.session(MODEL, interactive=True, settings=few) as session:
        pass
    sides = [row for row in simulator.ledger.rows if row.source == "side:extract"]
    assert len(sides) == 2, "one run of two replies: the writes, and the end"
    assert "haiku" in sides[0].model
    saved = read_memories(session)
    assert len(saved) == 2
    assert {one.id for one in (first, second) for text in saved.values() if one.id in text} == {
        first.id,
        second.id,
    }
    assert list_waiting(session) == []
    assert [e for e in here.of(Notice) if e.text.startswith("saved to memory: ")]
    assert not here.of(Failed)

    async with here.session("offline", interactive=True, settings=ONLY, resume=first.id) as again:
        await again.ask("hello")
    assert read_memories(again) == saved, "a resumed session knows how far was looked"


async def test_an_open_session_keeps_its_own(wire: tuple[Place, Simulator]) -> None:
    here, simulator = wire
    async with here.session(MODEL, interactive=True, settings=ONLY) as open:
        await open.ask(AUDIT)
        async with here.session("offline", interactive=True, settings=ONLY) as other:
            await other.ask("hello there")
        assert list_waiting(open) == [open.id]
        assert read_memories(open) == {}
        assert count_looks(simulator) == 0


async def test_two_sessions_do_not_take_up_the_same(wire: tuple[Place, Simulator]) -> None:
    here, _ = wire
    left = await say(here, AUDIT)
    waiting = WaitingFolder(left.places.project)
    with waiting.claim() as mine:
        assert mine
        async with here.session("offline", interactive=True, settings=ONLY):
            pass
        assert read_memories(left) == {}
    async with here.session("offline", interactive=True, settings=ONLY):
        pass
    assert len(read_memories(left)) == 1
    assert waiting.list_sessions() == []


async def test_what_could_not_be_looked_at_goes_on_waiting(wire: tuple[Place, Simulator]) -> None:
    here, simulator = wire
    left = await say(here, AUDIT)
    now = {"extraction": {"leastRequests": 0}, "dailyBackgroundLimit": 0.0, **ONLY}
    async with here.session(MODEL, interactive=True, settings=now):
        pass
    assert "background work may cost no more today" in here.of(Failed)[-1].cause
    assert list_waiting(left) == [left.id]
    assert count_looks(simulator) == 0


async def test_words_said_with_memory_off_or_to_a_program_never_wait(wire: tuple[Place, Simulator]) -> None:
    here, _ = wire
    off = {"memoryEnabled": False}
    async with here.session(MODEL, interactive=True, settings=off) as one:
        await one.ask(AUDIT)
    async with here.session(MODEL) as two:
        await two.ask(AUDIT)
    assert list_waiting(one) == list_waiting(two) == []


async def test_words_said_with_memory_off_are_not_looked_at_when_the_session_goes_on(
    wire: tuple[Place, Simulator],
) -> None:
    here, _ = wire
    async with here.session(MODEL, interactive=True, settings={"memoryEnabled": False}) as off:
        await off.ask(AUDIT)
    now = {"extraction": {"leastRequests": 0}, **ONLY}
    async with here.session(MODEL, interactive=True, settings=now, resume=off.id) as on:
        await on.ask(WEDDING)
    async with here.session(MODEL, interactive=True, settings=now):
        pass
    saved = "\n".join(read_memories(on).values())
    assert "wedding" in saved.lower()
    assert "audit" not in saved.lower()


async def test_where_the_small_model_cannot_be_used_the_model_of_the_conversation_looks_at_once(
    wire: tuple[Place, Simulator],
) -> None:
    here, simulator = wire
    left = await say(here, AUDIT)
    simulator.api.models = [MODEL]
    now = {"extraction": {"leastRequests": 0}, **ONLY}
    async with here.session(MODEL, interactive=True, settings=now, resume=(await say(here, "Hm.")).id):
        pass

    assert "audit" in "\n".join(read_memories(left)).lower()
    assert left.id not in list_waiting(left)
    rows = [(row.source, row.model, row.status) for row in simulator.ledger.rows if row.source != "main"]
    assert rows[:2] == [("side:extract", "claude-haiku-4-5", 404), ("side:extract", MODEL, 200)]
    assert here.of(Failed) == here.of(CacheBroke) == []


LONG = " ".join(f"Point {n}: region {n * 7} reports figure {n * 13}." for n in range(300))


@pytest.mark.parametrize("model", [MODEL, "openai:qwen3"])
async def test_no_more_is_asked_at_once_than_fits_the_window_that_the_user_has_named(
    tmp_path: Path, model: str
) -> None:
    table = tmp_path / "prices.toml"
    table.write_text('[models."claude-haiku-4-5"]\nwindow = 12000\nmax_output = 4000\n', encoding="utf-8")
    async with Simulator(
        replies=encode_reply,
        clock=ManualClock(),
        prices=Prices.load(table),
        window=None if model == MODEL else 12_000,
    ) as simulator:
        here = Place(tmp_path, simulator.url)
        here.environ.update(OPENAI_BASE_URL=f"{simulator.url}/v1", OPENAI_API_KEY="k")
        for text in (AUDIT, WEDDING, AUDIT):
            left = await say(here, f"{text} {LONG}")
        assert len(list_waiting(left)) == 3
        if model != MODEL:
            here.environ["SEVENFOLD_WINDOW"] = "12000"
        now = {**ONLY, "prices": str(table), "extraction": {"leastRequests": 0}}
        async with here.session(model, interactive=True, settings=now):
            pass
    assert {row.status for row in simulator.ledger.rows} == {200}
    assert list_waiting(left) == here.of(Failed) == []


async def test_what_waits_is_kept_while_memory_is_off_and_what_is_said_then_never_waits(
    wire: tuple[Place, Simulator],
) -> None:
    here, simulator = wire
    left = await say(here, AUDIT)
    off, now = {"memoryEnabled": False}, {"extraction": {"leastRequests": 0}, **ONLY}
    for said in (SALARY, "And the bonus is paid on 2026-12-31."):
        async with here.session(MODEL, interactive=True, settings=off, resume=left.id) as private:
            await private.ask(said)
        assert read_memories(left) == {}
        assert count_looks(simulator) == 0, "nothing is used while memory is off"
        assert list_waiting(left) == [left.id], "and nothing is lost"

    async with here.session(MODEL, interactive=True, settings=now):
        pass
    saved = "\n".join(read_memories(left).values()).lower()
    assert "audit" in saved
    assert "salaries" not in saved
    assert "bonus" not in saved
    assert list_waiting(left) == []


async def test_a_session_that_goes_on_with_memory_again_leaves_out_what_was_said_without(
    wire: tuple[Place, Simulator],
) -> None:
    here, _ = wire
    left = await say(here, AUDIT)
    async with here.session(
        MODEL, interactive=True, settings={"memoryEnabled": False}, resume=left.id
    ) as private:
        await private.ask(SALARY)
    now = {"extraction": {"leastRequests": 0}, **ONLY}
    async with here.session(MODEL, interactive=True, settings=now, resume=left.id) as again:
        assert again.extraction is not None
        await again.ask(WEDDING)
        assert again.extraction.count_waiting(again.view) == 2
    assert {one.way for one in here.of(SideWorkChosen)} == {"lean"}, "a fork would show those words too"
    saved = "\n".join(read_memories(again).values()).lower()
    assert "audit" in saved
    assert "wedding" in saved
    assert "salaries" not in saved
    assert list_waiting(again) == []


async def test_a_note_whose_transcript_is_gone_goes_too(wire: tuple[Place, Simulator]) -> None:
    here, _ = wire
    left = await say(here, AUDIT)
    left.path.unlink()
    async with here.session("offline", interactive=True, settings=ONLY):
        pass
    assert list_waiting(left) == []
    assert not [event for event in here.of(Failed) if isinstance(event, SevenfoldError)]


async def test_a_damaged_note_means_that_all_waits(wire: tuple[Place, Simulator]) -> None:
    here, _ = wire
    left = await say(here, AUDIT)
    [note] = (left.places.project / "waiting").glob("*.json")
    note.write_bytes(b"\xff not json")
    async with here.session("offline", interactive=True, settings=ONLY):
        pass
    assert len(read_memories(left)) == 1
    assert list_waiting(left) == []


async def test_what_an_instruction_file_says_is_not_saved(wire: tuple[Place, Simulator]) -> None:
    here, _ = wire
    (here.project / "AGENTS.md").write_text("- Always run the linter before a commit.\n", encoding="utf-8")
    async with here.session("offline", interactive=True, settings=ONLY) as session:
        await session.ask("Always run the linter before a commit.")
        await session.ask("Always run the slow tests before a release.")
    [saved] = read_memories(session).values()
    assert "slow tests" in saved
