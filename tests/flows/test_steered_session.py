"""A session that is compacted by hand and gone back in: hooks, resume, and what the cache makes of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from flows.wire import SteadySimulator

from sevenfold.core.errors import Refused
from sevenfold.core.events import Compacted, Event, Notice, Sending
from sevenfold.core.messages import ToolUse
from sevenfold.core.request import encode_prefix, has_paired_tools
from sevenfold.layers.shared.boundary import find_last_boundary
from sevenfold.offline import encode_reply
from sevenfold.session.commands import CompactionReport, list_past_turns
from sevenfold.session.session import Session
from sevenfold.simulator import ManualClock, Script, Simulator, parse_steps

pytestmark = pytest.mark.anyio
MODEL = "claude-sonnet-4-5"


class Place:
    """A project, a home and a provider."""

    def __init__(self, folder: Path, sim: Simulator) -> None:
        self.folder, self.sim = folder, sim
        self.project, self.home = folder / "project", folder / "home"
        self.project.mkdir()
        lines = [f"PORT_{n} = 80{n:02d}  # where service {n} listens\n" for n in range(90)]
        for name in ("one.py", "two.py"):
            (self.project / name).write_text("".join(lines), encoding="utf-8")
        self.events: list[Event] = []

    @asynccontextmanager
    async def session(self, **options: Any) -> AsyncIterator[Session]:
        environ = {
            "HOME": str(self.folder),
            "PATH": "/usr/bin:/bin",
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": self.sim.url,
        }
        async with Session(MODEL, self.project, home=self.home, environ=environ, **options) as session:
            session.subscribe(self.events.append)
            yield session

    def hooks(self, **commands: str) -> dict[str, Any]:
        return {
            "hooks": {
                event: [{"hooks": [{"type": "command", "command": command}]}]
                for event, command in commands.items()
            }
        }

    def told(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text(encoding="utf-8"))


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with SteadySimulator(replies=encode_reply, clock=ManualClock()) as sim:
        place = Place(tmp_path, sim)
        sim.events = place.events
        yield place


async def worked(session: Session) -> None:
    await session.ask("read one.py")
    await session.ask("read two.py")
    await session.ask("hello")


async def test_a_summary_by_hand_reads_the_cache_and_a_resumed_session_goes_on_from_it(
    place: Place,
) -> None:
    async with place.session() as session:
        await worked(session)
        report = await session.compact("keep the ports")
        after, id = encode_prefix(session.request), session.id

    assert report.boundary is not None
    assert report.usage.hit_rate > 0.75, "the rest is the question itself"
    assert [event.by for event in place.events if isinstance(event, Compacted)] == ["summary"]
    async with place.session(resume=id) as session:
        assert encode_prefix(session.request) == after
        assert find_last_boundary(session.view) == report.boundary
        await session.ask("hello again")
        assert has_paired_tools(session.view)


async def test_where_a_summary_says_that_everything_is_may_be_read_unasked(place: Place) -> None:
    async with place.session() as session:
        await worked(session)
        await session.compact()
        tools, path = session.tools, str(session.path)
        looks = [
            ToolUse("1", "Read", {"file_path": path}),
            ToolUse("2", "Grep", {"path": path, "pattern": "x"}),
            ToolUse("2", "Grep", {"path": str(session.path.with_name("b.jsonl")), "pattern": "x"}),
        ]
        elsewhere = session.path.parent.with_name("another-project") / "c.jsonl"
        beside = ToolUse("3", "Read", {"file_path": str(elsewhere)})
        change = ToolUse("4", "Edit", {"file_path": path, "old_string": "a", "new_string": "b"})

        assert any(path in message.text for message in session.view.messages)
        decided = [tools.permissions.decide(use, tools.workspace) for use in (*looks, beside, change)]
        assert [one.behaviour for one in decided] == ["allow", "allow", "allow", "ask", "ask"]


async def test_gone_back_the_next_request_extends_what_the_provider_has_and_says_why(place: Place) -> None:
    async with place.session() as session:
        await session.ask("read one.py")
        before = encode_prefix(session.request)
        await session.ask("read two.py")

        session.rewind(2)
        assert encode_prefix(session.request) == before
        await session.ask("hello")

        sent = [event for event in place.events if isinstance(event, Sending)][-1]
        assert (sent.why, sent.expected) == ("the conversation went back to before turn 2", True)
        rows = list(place.sim.ledger.rows)
        cached = rows[1].tokens.cache_read + rows[1].tokens.cache_write_5m
        assert rows[-1].tokens.cache_read >= cached, "all that the first turn had cached is read"
        id = session.id
    async with place.session(resume=id) as session:
        said = [past.said for past in list_past_turns(session.turn.transcript)]
        assert said == ["read one.py", "hello"]


async def test_hooks_see_a_compaction_and_what_they_say_then_is_written_with_it(place: Place) -> None:
    extra = json.dumps({"hookSpecificOutput": {"additionalContext": "and the names"}})
    settings = place.hooks(
        PreCompact=f"cat > {place.folder}/before.json; echo '{extra}'",
        PostCompact=f"cat > {place.folder}/after.json",
        SessionStart='grep -q \'"source": "compact"\' && echo the port is 8007; true',
    )
    async with place.session(settings=settings) as session:
        await worked(session)
        report = await session.compact("keep the ports")
        context = "\n".join(message.text for message in session.view.messages)

    assert report.boundary is not None
    assert report.boundary.instructions == "keep the ports\n\nand the names"
    before, after = place.told("before.json"), place.told("after.json")
    assert (before["trigger"], before["custom_instructions"]) == ("manual", "keep the ports")
    assert after["trigger"] == "manual"
    assert "read one.py" in after["compact_summary"]
    assert "the port is 8007" in context


async def test_a_hook_may_refuse_and_nothing_is_asked(place: Place) -> None:
    settings = place.hooks(PreCompact="echo not on Fridays >&2; exit 2")
    async with place.session(settings=settings) as session:
        await worked(session)
        view, requests = session.view, len(list(place.sim.ledger.rows))

        report = await session.compact()

        assert report.boundary is None
        assert session.view == view
        assert len(list(place.sim.ledger.rows)) == requests
    assert Notice("a hook refused the compaction: not on Fridays", "warning") in place.events


async def test_one_thing_at_a_time_and_stop_reaches_a_compaction(tmp_path: Path) -> None:
    hanging = Script(parse_steps('{"match": {"source": "fork:compact"}, "hang": true}'))
    async with SteadySimulator(replies=encode_reply, clock=ManualClock(), script=hanging) as sim:
        place = Place(tmp_path, sim)
        sim.events = place.events
        async with place.session() as session:
            await worked(session)
            view, reports = session.view, list[CompactionReport]()

            async def compact() -> None:
                reports.append(await session.compact())

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(compact)
                while not any(
                    isinstance(event, Sending) and event.source == "fork:compact" for event in place.events
                ):
                    await anyio.lowlevel.checkpoint()
                with pytest.raises(Refused, match="or a compaction"):
                    await session.ask("are you there?")
                with pytest.raises(Refused, match="or a compaction"):
                    session.rewind(1)
                assert session.stop()

            assert reports == [CompactionReport(stopped=True)]
            assert session.view == view
            assert (await session.ask("hello")).stop == "end_turn"


async def test_what_was_gone_back_over_does_not_come_back_through_the_notes(place: Place) -> None:
    settings = {"notes": {"priced": True, "firstAt": 1, "grownBy": 1}}
    async with place.session(settings=settings) as session:
        await session.ask("hello")
        await session.ask("remember the code word ZEBRA")
        await session.tray.drain(60)
        await session.ask("thanks")
        await session.tray.drain(60)
        session.turn.collect()
        notes = session.folder / "session-memory" / "summary.md"
        assert "ZEBRA" in notes.read_text(encoding="utf-8")
        session.rewind(2)

        assert not notes.exists()
        kept = notes.with_name("summary.undone.md").read_text(encoding="utf-8")
        assert "ZEBRA" in kept, "a person can still read them"
        await session.ask("hello again")
        await session.tray.drain(60)
        if notes.exists():
            assert "ZEBRA" not in notes.read_text(encoding="utf-8")
