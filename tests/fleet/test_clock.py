"""The server's clock jumps while it runs: nobody waits for hours, nothing is done twice or skipped."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from fleet.machines import make_fleet
from fleet.servers import JumpingServer

from sevenfold.core.clock import SystemClock
from sevenfold.fleet.database import FleetDatabase
from sevenfold.fleet.jobs import JobQueue, OldFence
from sevenfold.fleet.mail import FleetMail, FleetPost
from sevenfold.fleet.memories import ConflictingWrite, FleetMemories, NewRevision, find_space
from sevenfold.fleet.status import read_status
from sevenfold.layers.l7_agents.mailbox import LEAD, make_letter
from sevenfold.memory.history.revisions import Author

pytest_plugins = ["fleet.fixtures"]
pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]
HOUR, DAY = 3_600.0, 86_400.0
Jump = Callable[[float], None]


@pytest.fixture
def jump(jumping_server: JumpingServer) -> Jump:
    return jumping_server.jump


@pytest.fixture
def memories(jumping_server: JumpingServer) -> FleetMemories:
    database = FleetDatabase(make_fleet(jumping_server), "acme")
    return FleetMemories(database, find_space(database, "project", "x"), "m")


@pytest.fixture
def jobs(memories: FleetMemories) -> JobQueue:
    return JobQueue(memories.database)


def new(name: str, base: int) -> NewRevision:
    return NewRevision(f"{name}-{base}", name, base, b"%d" % base, Author("user"), "s", 1.0)


def test_the_clock_of_the_server_jumps_while_it_runs(memories: FleetMemories, jump: Jump) -> None:
    def read() -> float:
        query = "select extract(epoch from clock_timestamp())::float8"
        row = memories.database.run(lambda connection: connection.execute(query).fetchone())
        assert row is not None
        return float(row[0])

    for seconds in (5 * HOUR, -5 * HOUR, 0.0):
        jump(seconds)
        assert read() - SystemClock().now() == pytest.approx(seconds, abs=60)


@pytest.mark.parametrize("seconds", [3 * HOUR, -3 * HOUR])
def test_a_job_whose_worker_died_before_a_jump_is_taken_at_once_and_has_its_effect_once(
    jobs: JobQueue, memories: FleetMemories, jump: Jump, seconds: float
) -> None:
    jobs.add(memories.space, "dream")
    late = jobs.claim("late", "dream")
    assert late is not None
    assert jobs.claim("other", "dream") is None
    jump(seconds)
    again = jobs.claim("other", "dream")
    assert again is not None
    assert (again.id, again.fence) == (late.id, late.fence + 1)

    with pytest.raises(OldFence):
        jobs.renew(late)
    with pytest.raises(OldFence):
        memories.write_job([[new("a.md", 0)]], late, {}, 0.0)
    memories.write_job([[new("a.md", 0)]], again, {}, 0.0)
    assert [row.name for row in memories.read_changes(0, 0)] == ["a.md"]


def test_a_worker_that_renews_after_the_clock_went_back_keeps_its_job(
    jobs: JobQueue, memories: FleetMemories, jump: Jump
) -> None:
    jobs.add(memories.space, "dream")
    mine = jobs.claim("mine", "dream")
    assert mine is not None
    jump(-3 * HOUR)
    jobs.renew(mine)

    assert jobs.claim("other", "dream") is None
    jobs.finish(mine, {})


def test_a_job_from_before_a_jump_back_waits_neither_for_that_hour_nor_for_newer_ones(
    jobs: JobQueue, memories: FleetMemories, jump: Jump
) -> None:
    jobs.add(memories.space, "tally", {"n": 0})
    failed = jobs.claim("w", "tally")
    assert failed is not None
    jobs.fail(failed, "no", wait=1.0)
    jobs.add(memories.space, "tally", {"n": 1})
    jump(-3 * HOUR)
    jobs.add(memories.space, "tally", {"n": 2})
    taken = [jobs.claim("w", "tally") for _ in range(3)]

    assert [one.payload["n"] for one in taken if one] == [1, 0, 2]


def test_letters_that_a_dead_process_had_are_offered_again_in_order(
    memories: FleetMemories, jump: Jump
) -> None:
    mail = FleetMail(memories.database)
    for number in range(2):
        mail.send("ann", "bob", b"%d" % number, f"a{number}")
    assert len(mail.take("bob")) == 2
    assert mail.take("bob") == []
    jump(-3 * HOUR)
    mail.send("ann", "bob", b"2", "a2")

    taken = mail.take("bob")
    assert [one.body for one in taken] == [b"0", b"1", b"2"]
    mail.keep("bob", *(one.id for one in taken))
    jump(3 * HOUR)
    assert mail.take("bob") == []


def test_a_memory_is_not_reserved_for_hours(memories: FleetMemories, jump: Jump) -> None:
    memories.write([new("a.md", 0)])
    memories.reserve(["a.md"])
    other = FleetMemories(memories.database, memories.space, "other")
    with pytest.raises(ConflictingWrite):
        other.write([new("a.md", 1)])
    jump(-3 * HOUR)

    assert other.write([new("a.md", 1)]) == {"a.md": 2}


def test_sessions_that_are_gone_are_not_written_to_for_hours(memories: FleetMemories, jump: Jump) -> None:
    dead, ann = FleetPost(memories, "s-dead"), FleetPost(memories, "s-ann")
    dead.announce([])
    assert list(ann.list_sessions()) == ["s-dead"]
    jump(-3 * HOUR)
    assert ann.list_sessions() == {}
    dead.announce([])

    ann.send("bridge:s-dead", make_letter(LEAD, "Are you there?", "s", SystemClock()))
    assert [one.letter.text for one in dead.take()] == ["Are you there?"]


def test_the_limit_of_a_day_holds_across_jumps_and_stops_nobody_for_years(
    jobs: JobQueue, memories: FleetMemories, jump: Jump
) -> None:
    with psycopg.connect(memories.database.address) as connection:
        connection.execute("update sevenfold.tenant set daily_limit = 0.1")

    def spend(amount: float) -> bool:
        jobs.add(memories.space, "extract", {"n": 1})
        job = jobs.claim("w", "extract", reserve=amount)
        if job is not None:
            jobs.finish(job, {}, cost=amount)
        return job is not None

    jump(DAY)
    assert [spend(0.06), spend(0.06)] == [True, False], "tomorrow has a limit of its own"
    jump(0)
    assert not spend(0.06), "what is noted for tomorrow counts today"
    assert spend(0.04)
    jump(3_650 * DAY)
    assert spend(0.1)
    jump(2 * DAY)
    assert spend(0.1), "what is noted for a day in ten years stops nobody until then"
    assert not spend(0.01)


def test_the_feed_skips_nothing_whatever_the_clock_says(memories: FleetMemories, jump: Jump) -> None:
    seen: list[str] = []
    place = (0, 0)
    for number, seconds in enumerate((0, -5 * HOUR, 5 * HOUR, -9 * DAY, 9 * DAY, 0)):
        jump(seconds)
        memories.write([new(f"{number}.md", 0)])
        rows = memories.read_changes(*place)
        seen += [row.name for row in rows]
        place = rows[-1].xid, rows[-1].seq
        memories.note_seen(*place)

    assert seen == [f"{number}.md" for number in range(6)]
    jump(-HOUR)
    status = read_status(memories.database, memories.space, "x")
    assert [(one.seen_seconds >= 0, one.behind) for one in status.machines] == [(True, 0)]
