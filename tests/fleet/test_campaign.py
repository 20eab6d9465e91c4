"""A fleet in which anything dies at any moment: nothing acknowledged is lost, nothing is done twice.

Two writers (one with a wrong clock) and two workers are processes of their own. Seeded events: postgres,
writers and workers killed with SIGKILL, backends terminated in mid-transaction, a worker paused past its
lease, the socket taken away, clocks of machines and of the server that jump.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fleet.machines import Machine, make_fleet
from fleet.member import LEASE, SHARED, find_next, run_member
from fleet.servers import JumpingServer, start_jumping_server

from sevenfold.core.errors import Failure
from sevenfold.fleet.jobs import JobQueue
from sevenfold.fleet.mail import FleetLetter, FleetMail

pytest_plugins = ["fleet.fixtures"]
pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("postgres")]
TERMINATE = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where datname = current_database() and pid <> pg_backend_pid()"
)
# A process that has loaded everything, of which new ones are made in no time: they are killed all the time.
NURSERY = multiprocessing.get_context("forkserver")
NURSERY.set_forkserver_preload(
    ["sevenfold.fleet.worker", "sevenfold.fleet.mail", "sevenfold.memory.folder.changes",
     "sevenfold.memory.guard.guard", "sevenfold.memory.index_update", "psycopg.types.json"]
)  # fmt: skip
PATIENCE = 600.0  # Seconds
MOST = 12  # Jobs that are not done
WRITERS, WORKERS = ("ann", "bob"), ("eve", "joe")


class Campaign:
    """The fleet, and what is done to it."""

    def __init__(self, server: JumpingServer, root: Path, seed: int, pace: float = 0.2) -> None:
        """`pace`: the most seconds between two events."""
        self.began = time.monotonic()
        self.pace = pace
        self.server, self.root, self.chance = server, root, random.Random(seed)
        self.address = make_fleet(server)
        self.events: Counter[str] = Counter()
        self.jobs = 0
        self.post: dict[int, FleetLetter] = {}  # In the order in which they were first handed out
        self.processes: dict[str, BaseProcess] = {}
        self.paused: dict[str, float] = {}  # Until when
        self.watcher = Machine(root, self.address, "watcher")
        own = "\n\n".join(f"{name} 0\n\n{SHARED} ({name})" for name in (*WRITERS, *WORKERS))
        self.watcher.add("shared", own)
        for name in (*WRITERS, *WORKERS):
            self.start(name)
        while not all(find_next(root / f"{name}.log", "changed") for name in WRITERS):
            assert time.monotonic() < self.began + PATIENCE, "the writers do not begin"
            self.check_alive()
            time.sleep(0.05)

    def start(self, name: str) -> None:
        role = "write" if name in WRITERS else "work"
        given = (role, str(self.root), self.address, name)
        self.processes[name] = NURSERY.Process(target=run_member, args=given, daemon=True)
        self.processes[name].start()

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()

    def send_signal(self, name: str, number: int) -> None:
        pid = self.processes[name].pid
        assert pid is not None
        os.kill(pid, number)

    def act(self) -> None:
        """One event, and now and then some work to do."""
        [event] = self.chance.choices(
            (self.kill_server, self.kill_member, self.terminate, self.pause, self.part, self.jump,
             self.jump_server),
            (1, 3, 4, 3, 1, 2, 2),
        )  # fmt: skip
        self.events[event.__name__] += 1
        event()
        if self.revive() < MOST:
            queue = JobQueue(self.watcher.database)
            queue.add(self.watcher.backend.memories.space, "tally", {"n": self.jobs}, f"n{self.jobs}")
            self.jobs += 1
        time.sleep(self.chance.random() * self.pace)
        self.resume(time.monotonic())
        if self.events.total() % 20 == 0:
            with contextlib.suppress(Failure):
                self.watcher.sync()
            self.take_letters()
        self.check_alive()

    def check_alive(self) -> None:
        for name, process in self.processes.items():
            assert process.is_alive(), (self.root / f"{name}.errors").read_text(encoding="utf-8")

    def kill_server(self) -> None:
        self.server.kill()
        self.server.start()

    def kill_member(self) -> None:
        name = self.chance.choice([*self.processes])
        self.processes[name].kill()
        self.processes[name].join()
        self.paused.pop(name, None)
        self.start(name)

    def terminate(self) -> None:
        """The backend of one of them, whatever it is doing."""
        with psycopg.connect(self.address) as connection:
            connection.execute(f"{TERMINATE} order by random() limit 1")

    def pause(self) -> None:
        """Stop a process for longer than its lease; everything else goes on."""
        name = self.chance.choice([*self.processes])
        self.send_signal(name, signal.SIGSTOP)
        self.paused[name] = time.monotonic() + LEASE * (1 + self.chance.random())

    def resume(self, now: float) -> None:
        for name in [name for name, until in self.paused.items() if until <= now]:
            self.send_signal(name, signal.SIGCONT)
            del self.paused[name]

    def part(self) -> None:
        """Nobody gets through for a while."""
        socket = next(self.server.root.glob(".s.PGSQL.????"))
        away = socket.with_name("away")
        with psycopg.connect(self.address) as connection:
            socket.rename(away)
            connection.execute(TERMINATE)
        time.sleep(0.3)
        away.rename(socket)

    def jump(self) -> None:
        name = self.chance.choice(WRITERS)
        (self.root / f"{name}.clock").write_text(str(self.chance.uniform(-1e6, 1e6)), encoding="utf-8")

    def jump_server(self) -> None:
        """By hours, forwards or backwards, or to the right time."""
        self.server.jump(self.chance.choice((0.0, self.chance.uniform(-20_000, 20_000))))

    def take_letters(self) -> int:
        """Take and keep what nobody has; one whose keeping failed is handed out again."""
        taken, mail = list[FleetLetter](), FleetMail(self.watcher.database)
        with contextlib.suppress(Failure):
            taken = mail.take("post")
            for letter in taken:
                self.post.setdefault(letter.id, letter)
            mail.keep("post", *(letter.id for letter in taken))
        return len(taken)

    def finish_jobs(self) -> None:
        """Workers end what is left; what died of too many kills is tried again."""
        self.resume(float("inf"))
        ends = time.monotonic() + PATIENCE
        while left := self.revive():
            assert time.monotonic() < ends, f"{left} jobs are not done"
            time.sleep(0.1)

    def revive(self) -> int:
        """Let jobs that died of too many kills be tried again; returns how many are not done."""
        queue = JobQueue(self.watcher.database)
        left = queue.list()
        for job in left:
            if job.state == "dead":
                queue.revive(job.id)
        return len(left)


@pytest.fixture
def campaign(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Campaign]:
    server = start_jumping_server()
    campaign = Campaign(server, tmp_path, request.param)
    yield campaign
    campaign.stop()
    server.close()


SHORT, LONG = 12, 3_000


@pytest.mark.parametrize(
    ("campaign", "events"),
    [(7, SHORT), *(pytest.param(seed, LONG, marks=pytest.mark.soak) for seed in (11, 12))],
    indirect=["campaign"],
)
def test_nothing_is_lost_or_doubled_whatever_dies(campaign: Campaign, events: int) -> None:
    for _ in range(events):
        campaign.act()
    campaign.finish_jobs()
    campaign.stop()
    replicas = converge(campaign)

    campaign.server.jump(1e6)  # whoever had letters and did not keep them has them no more
    while campaign.take_letters():
        pass
    post = list(campaign.post.values())
    for name in WRITERS:
        log = campaign.root / f"{name}.log"
        wrote, sent, changed = (find_next(log, word) for word in ("wrote", "sent", "changed"))
        assert wrote > 0
        found = read_numbers(campaign, f"{name}-%.md", rb"word-\w+-(\d+),")
        assert Counter(found)[wrote - 1] == 1
        assert Counter(n for n in found if n < wrote) == Counter(range(wrote)), "each once, none lost"
        assert found == sorted(found), "in the order in which they were written"
        said = int(campaign.watcher.body("shared").split(f"{name} ")[1].split()[0])
        assert said >= changed - 1
        letters = [int(one.body) for one in post if one.sender == name]
        assert letters == list(range(len(letters))), "in order, none missing, none twice"
        assert len(letters) >= sent
    assert ask(campaign, "select count(*) from sevenfold.mail where taken_at is null") == [(0,)]
    done = read_numbers(campaign, "tally-%.md", rb"done-(\d+),")
    assert sorted(done) == list(range(campaign.jobs)), "each job has had its effect once"
    whole = b"\n".join(replicas[0].values()).decode()
    assert [whole.count(f"done-{n},") for n in range(campaign.jobs)] == [1] * campaign.jobs
    assert ask(campaign, "select id from sevenfold.revision group by id, name having count(*) > 1") == []
    by_job = "select job from sevenfold.revision where job is not null group by job"
    assert ask(campaign, f"{by_job} having count(distinct xid) > 1") == [], "what a job wrote came at once"
    [(claims, most)] = ask(campaign, "select sum(fence)::int, max(fence) from sevenfold.job")
    [(revisions,)] = ask(campaign, "select count(*) from sevenfold.revision")
    print(
        f"{events} events {dict(campaign.events)}, {revisions} revisions, {len(post)} letters,"
        f" {campaign.jobs} jobs in {claims} claims (at most {most} of one),"
        f" {time.monotonic() - campaign.began:.0f} s"
    )


def ask(campaign: Campaign, query: str, *given: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(campaign.address) as connection:
        return connection.execute(query.encode(), given).fetchall()


def read_numbers(campaign: Campaign, names: str, pattern: bytes) -> list[int]:
    """The numbers in all revisions of some memories, in the order of the feed; one that a merge repeats
    counts again.
    """
    query = "select body from sevenfold.revision where name like %s and body is not null order by xid, seq"
    return [int(n) for (body,) in ask(campaign, query, names) for n in re.findall(pattern, bytes(body))]


def converge(campaign: Campaign) -> list[dict[str, bytes]]:
    """Every replica, also a new one, after all have read and sent."""
    machines = [Machine(campaign.root, campaign.address, name) for name in WRITERS]
    machines += Machine(campaign.root, campaign.address, "late"), campaign.watcher
    for machine in machines:
        machine.store.take_in()
    for _ in range(2):
        for machine in machines:
            machine.sync()
    texts = [machine.texts() for machine in machines]
    assert all(one == texts[0] for one in texts)
    assert all(machine.backend.outbox.list_waiting() == [] for machine in machines)
    return texts
