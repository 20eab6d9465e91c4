"""During a session: pulled at its start, sent when the writing has paused, and at its end."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from anyio.abc import TaskGroup
from memory.team.clones import SECRET, git, remote_of, team_of

from sevenfold.core.errors import StorageFailure
from sevenfold.core.events import Event, Notice
from sevenfold.memory.team.git import RefusedFile, SyncResult
from sevenfold.memory.team.sync import LATEST, SyncScheduler
from sevenfold.testing import FakeClock

pytestmark = pytest.mark.anyio
FOLDER = Path("/memory")


@dataclass
class Double:
    """A team whose syncs end as they are told."""

    answers: list[SyncResult | Exception] = field(default_factory=list)
    syncs: int = 0
    stopped: bool = False
    by_hand: bool = False
    gate: threading.Event | None = None
    counted: threading.Condition = field(default_factory=threading.Condition)

    def wait(self, times: int) -> None:
        with self.counted:
            assert self.counted.wait_for(lambda: self.syncs >= times, 20)

    def sync(self) -> SyncResult:
        if self.gate is not None:
            self.gate.wait(20)
        with self.counted:
            self.syncs += 1
            self.counted.notify_all()
        answer = self.answers.pop(0) if self.answers else SyncResult()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def unsent(self) -> bool:
        return self.by_hand

    def stop(self) -> None:
        self.stopped = True
        if self.gate is not None:
            self.gate.set()


@dataclass
class ByHand:
    """A clock that stands still until the test moves it."""

    time: float = 0.0
    waiting: list[tuple[float, anyio.Event]] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        event = anyio.Event()
        self.waiting.append((self.time + seconds, event))
        await event.wait()

    async def move(self, seconds: float) -> None:
        self.time += seconds
        for at, event in self.waiting:
            if at <= self.time:
                event.set()
        await anyio.wait_all_tasks_blocked()


async def until(pushing: SyncScheduler, team: Double, tasks: TaskGroup) -> None:
    tasks.start_soon(pushing.run)
    assert await pushing.wait_for_first(20)
    assert team.syncs == 1


async def synced(team: Double, times: int) -> None:
    await anyio.to_thread.run_sync(team.wait, times)
    await anyio.wait_all_tasks_blocked()


def notices(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice)]


async def test_it_pulls_at_once_and_sends_two_seconds_after_the_last_change() -> None:
    team, clock, events = Double(), ByHand(), list[Event]()
    pushing = SyncScheduler(team, FOLDER, clock, events.append)
    async with anyio.create_task_group() as tasks:
        await until(pushing, team, tasks)
        pushing.note_write(FOLDER / "mine.md")
        await clock.move(10)
        assert team.syncs == 1
        pushing.note_write(FOLDER / "team" / "a.md")
        await anyio.wait_all_tasks_blocked()
        await clock.move(1.5)
        pushing.note_write(FOLDER / "team" / "b.md")
        await clock.move(1.5)
        assert team.syncs == 1
        await clock.move(2)
        await synced(team, 2)
        await clock.move(10)
        assert team.syncs == 2
        tasks.cancel_scope.cancel()
    assert notices(events) == []


async def test_who_never_stops_writing_is_sent_all_the_same() -> None:
    team, clock = Double(), ByHand()
    pushing = SyncScheduler(team, FOLDER, clock, lambda event: None)
    async with anyio.create_task_group() as tasks:
        await until(pushing, team, tasks)
        pushing.note_change()
        await anyio.wait_all_tasks_blocked()
        for _ in range(int(LATEST)):
            pushing.note_change()
            await clock.move(1)
        await clock.move(2)
        await synced(team, 2)
        tasks.cancel_scope.cancel()


async def test_trouble_is_said_once_and_the_end_tries_again() -> None:
    refused = RefusedFile("key.md", "it looks like a secret", "here")
    offline = SyncResult(offline="host: it cannot be reached", refused=(refused,), fresh=(refused,))
    team = Double([offline, offline, StorageFailure("the disk is full"), SyncResult()])
    events = list[Event]()
    pushing = SyncScheduler(team, FOLDER, FakeClock(), events.append)
    async with anyio.create_task_group() as tasks:
        await until(pushing, team, tasks)
        for times in (2, 3):
            pushing.note_change()
            await synced(team, times)
        await pushing.close(20)
        assert team.syncs == 4
        assert team.stopped
        tasks.cancel_scope.cancel()
    assert notices(events) == [
        "The team memory is not synchronised: host: it cannot be reached.",
        "Team memory: not sent: key.md: it looks like a secret.",
        "The team memory is not synchronised: the disk is full.",
    ]


async def test_the_end_sends_nothing_when_nothing_changed() -> None:
    team = Double()
    pushing = SyncScheduler(team, FOLDER, FakeClock(), lambda event: None)
    async with anyio.create_task_group() as tasks:
        await until(pushing, team, tasks)
        await pushing.close(20)
        tasks.cancel_scope.cancel()
    assert (team.syncs, team.stopped) == (1, True)


async def test_neither_the_start_nor_the_end_waits_longer_than_it_was_told() -> None:
    team, events = Double(gate=threading.Event()), list[Event]()
    pushing = SyncScheduler(team, FOLDER, FakeClock(), events.append)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pushing.run)
        assert not await pushing.wait_for_first(0.01)
        pushing.note_change()
        await pushing.close(0.01)
        tasks.cancel_scope.cancel()
    assert team.stopped
    assert notices(events) == ["Not all changes were sent to the team in time: they go with the next sync."]


@pytest.mark.real
async def test_a_real_team_is_pulled_and_pushed(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.say("a.md", "x")
    ann.sync()
    told = list[SyncResult]()
    pushing = SyncScheduler(
        bob.team, bob.store.path_of(), FakeClock(), lambda event: None, taken=told.append
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pushing.run)
        assert await pushing.wait_for_first(60)
        assert [one.pulled for one in told] == [("a.md",)]
        bob.say("b.md", "y")
        pushing.note_write(bob.folder / "b.md")
        await pushing.close(60)
        tasks.cancel_scope.cancel()
    assert "b.md" in git(remote_of(tmp_path), "ls-tree", "--name-only", "main")


async def test_what_a_hand_changed_is_sent_when_a_turn_is_over_and_at_the_end() -> None:
    team = Double()
    pushing = SyncScheduler(team, FOLDER, FakeClock(), lambda event: None)
    async with anyio.create_task_group() as tasks:
        await until(pushing, team, tasks)
        pushing.look_for_changes()
        await anyio.wait_all_tasks_blocked()
        assert team.syncs == 1
        team.by_hand = True
        pushing.look_for_changes()
        await synced(team, 2)
        await pushing.close(20)
        tasks.cancel_scope.cancel()
    assert team.syncs == 3


@pytest.mark.real
def test_it_is_known_what_changed_since_the_last_sync_by_whatever_hand(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    assert not ann.team.unsent()
    ann.say("key.md", f"token = {SECRET}")
    assert ann.team.unsent()
    ann.sync()
    assert not ann.team.unsent()
    bob.say("b.md", "y")
    bob.sync()
    ann.sync()
    assert not ann.team.unsent()
    ann.remove("b.md")
    assert ann.team.unsent()
    ann.sync()
    ann.write("first.md", ann.read("first.md").replace("began", "begun"))
    assert ann.team.unsent()
