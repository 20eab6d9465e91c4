"""A session whose provider holds the conversation: only what is new is sent, and nothing else changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from flows.wire import SteadySimulator
from layers.l2_microcompaction.talks import need_file

from sevenfold.core.errors import Failure
from sevenfold.core.events import Cleared, Event, Notice, Retrying
from sevenfold.core.messages import Json
from sevenfold.core.request import encode_view
from sevenfold.core.transcript import Reply
from sevenfold.session.session import Session
from sevenfold.simulator import ApiError, ManualClock, parse_steps
from sevenfold.simulator.ledger import LedgerRow
from sevenfold.testing import FakeClock

pytestmark = pytest.mark.anyio
FILES = 8
OTHERS = ("notes", "payout", "recall", "extraction", "dream")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for n in range(FILES):
        lines = [f"line {i} of file {n} says what it has to say\n" for i in range(250)]
        (folder / f"f{n}.txt").write_text("".join(lines), encoding="utf-8")
    return folder


def reading(body: Json) -> list[Json]:
    """Reads one file after the other, then is done."""
    done = sum(b["type"] == "tool_result" for m in body["messages"] for b in m["content"])
    if done < FILES:
        thought = {"type": "thinking", "thinking": f"now file {done}"}
        call = {"type": "tool_use", "name": "Read", "input": {"file_path": f"f{done}.txt"}}
        return [thought, {"type": "text", "text": f"Reading {done}."}, call]
    return [{"type": "text", "text": f"read {len(body['messages'])}"}]


class Talk:
    """A session on the simulator, and what was seen of it."""

    def __init__(self, session: Session, sim: SteadySimulator, events: list[Event]) -> None:
        self.session, self.sim, self.events = session, sim, events

    @property
    def rows(self) -> list[LedgerRow]:
        return [row for row in self.sim.ledger.rows if row.source == "main"]

    def kinds(self) -> list[str | None]:
        return [row.thread for row in self.rows]

    def noted(self) -> list[Any]:
        """What each reply in the transcript says about its thread."""
        replies = [e.what for e in self.session.turn.transcript.entries if isinstance(e.what, Reply)]
        return [reply.diagnostics.get("thread") for reply in replies]

    def assert_the_provider_holds_the_view(self) -> None:
        held = self.sim.api.threads.find_conversation(self.rows[-1].message_id or "")
        assert held == [msgspec.json.decode(wire) for wire in encode_view(self.session.view)]


@asynccontextmanager
async def talk(
    tmp_path: Path, project: Path, *, threads: bool = True, micro: Json | None = None, **more: Any
) -> AsyncIterator[Talk]:
    events: list[Event] = []
    flags = {**dict.fromkeys(OTHERS, False), "threads": threads, "micro_cost": bool(micro)}
    async with SteadySimulator(replies=reading, clock=ManualClock(), **more) as sim:
        sim.events = events
        environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "ANTHROPIC_API_KEY": "k"}
        async with Session(
            "claude-sonnet-4-5" if micro else "claude-opus-5-5",
            project,
            home=tmp_path / "home",
            environ={**environ, "ANTHROPIC_BASE_URL": sim.url},
            settings={"flags": flags, **({"micro": micro} if micro else {})},
            clock=FakeClock(),
        ) as session:
            session.subscribe(events.append)
            yield Talk(session, sim, events)


async def test_only_what_is_new_is_sent(tmp_path: Path, project: Path) -> None:
    async with talk(tmp_path, project) as it:
        await it.session.ask("read all files")
        assert it.kinds() == ["create"] + ["continue"] * FILES
        it.assert_the_provider_holds_the_view()
        await it.session.ask("and again?")
        assert it.kinds()[-1] == "continue"
        it.assert_the_provider_holds_the_view()
        assert it.noted() == it.kinds()
        biggest = max(row.received_bytes for row in it.rows[1:])
    assert biggest < 20_000


async def test_the_tokens_are_those_of_a_session_without_threads(tmp_path: Path, project: Path) -> None:
    rows = []
    for threads in (True, False):
        async with talk(tmp_path / str(threads), project, threads=threads) as it:
            await it.session.ask("read all files")
            await it.session.ask("and again?")
            rows.append(it.rows)
    with_threads, without = rows
    assert [row.tokens.output for row in with_threads] == [row.tokens.output for row in without]
    assert all(row.thread is None for row in without)
    read = [sum(row.tokens.cache_read for row in each) for each in rows]
    assert read[0] >= 0.99 * read[1] > 0
    assert sum(r.received_bytes for r in with_threads) < 0.4 * sum(r.received_bytes for r in without)


async def test_a_layer_that_changes_what_was_sent_makes_the_next_request_a_create(
    tmp_path: Path, project: Path
) -> None:
    micro = {"leastFreed": 5_000, "margin": 1, "keepRecent": 2, "needModel": str(need_file(tmp_path))}
    async with talk(tmp_path, project, micro=micro) as it:
        await it.session.ask("read all files")
        cleared = [event for event in it.events if isinstance(event, Cleared)]
        assert cleared
        assert it.kinds().count("create") == 1 + len(cleared)
        it.assert_the_provider_holds_the_view()


async def test_a_thread_that_is_gone_is_replayed_once_and_counted(tmp_path: Path, project: Path) -> None:
    async with talk(tmp_path, project) as it:
        await it.session.ask("read all files")
        it.sim.api.clock.advance(301)  # type: ignore[attr-defined]
        await it.session.ask("and again?")
        last = it.rows[-2:]
        assert [(row.status, row.thread) for row in last] == [(404, None), (200, "create")]
        assert it.noted()[-1] == "replay"
        assert it.noted().count("replay") == 1
        assert it.session.model.threads.replays == 1  # type: ignore[attr-defined]
        assert not [event for event in it.events if isinstance(event, Retrying | Notice)]
        it.assert_the_provider_holds_the_view()


async def test_a_failure_in_between_does_not_lose_the_thread(tmp_path: Path, project: Path) -> None:
    async with talk(tmp_path, project) as it:
        await it.session.ask("read all files")
        it.sim.api.script.extend(parse_steps('{"error": 529}\n{"cut": {"after_events": 3}}'))
        await it.session.ask("and again?")
        statuses = [row.status for row in it.rows[-4:]]
        # Overloaded; cut after it was stored; so it was continued already; and sent whole.
        assert statuses == [529, 200, 400, 200]
        assert "already been continued" in (it.rows[-2].error or "")
        it.assert_the_provider_holds_the_view()


async def test_a_provider_without_threads_is_asked_without_them(tmp_path: Path, project: Path) -> None:
    async with talk(tmp_path, project) as it:
        code = {"error_code": "thread_unsupported_request", "unsupported": ["hipaa"]}
        it.sim.api.threads.open = refuse(code)  # type: ignore[method-assign]
        await it.session.ask("read all files")
        assert [row.status for row in it.rows] == [400] + [200] * (FILES + 1)
        assert it.noted() == [None] * (FILES + 1)


async def test_a_refused_create_is_an_error(tmp_path: Path, project: Path) -> None:
    async with talk(tmp_path, project) as it:
        it.sim.api.threads.open = refuse({"error_code": "thread_not_found"})  # type: ignore[method-assign]
        with pytest.raises(Failure, match="thread_not_found"):
            await it.session.ask("read all files")


def refuse(details: Json) -> Any:
    def open(*given: Any) -> None:
        raise ApiError(400, "no threads here", details=details)

    return open


async def test_threads_are_off_unless_they_are_switched_on(tmp_path: Path, project: Path) -> None:
    async with talk(tmp_path, project, threads=False) as it:
        await it.session.ask("read all files")
        assert set(it.kinds()) == {None}
        assert it.noted() == [None] * (FILES + 1)
