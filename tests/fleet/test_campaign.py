"""A fleet in which anything dies at any moment: nothing acknowledged is lost, nothing is done twice.

Two writers (one with a wrong clock) and two workers are processes of their own. Seeded events: postgres,
writers and workers killed with SIGKILL, backends terminated in mid-transaction, a worker paused past its
lease, the socket taken away, clocks that jump.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from fleet.machines import Machine, make_fleet
from fleet.member import LEASE, SHARED, find_next

from sevenfold.fleet.jobs import JobQueue
from sevenfold.fleet.mail import FleetLetter, FleetMail
from sevenfold.testing.postgres import PostgresServer

pytest_plugins = ["fleet.fixtures"]
pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("postgres")]
HERE = Path(__file__).parent
TERMINATE = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where datname = current_database() and pid <> pg_backend_pid()"
)
WRITERS, WORKERS = ("ann", "bob"), ("eve", "joe")


class Campaign:
    """The fleet, and what is done to it."""

    def __init__(self, server: PostgresServer, root: Path, seed: int) -> None:
        self.server, self.root, self.chance = server, root, random.Random(seed)
        self.address = make_fleet(server)
        self.events: Counter[str] = Counter()
        self.jobs = 0
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        with psycopg.connect(self.address) as connection:
            connection.execute("create table effect (n int)")
            connection.execute("grant insert on effect to sevenfold_agent")
        self.watcher = Machine(root, self.address, "watcher")
        self.watcher.add("shared", f"ann 0\n\n{SHARED}\n\nbob 0")
        for name in (*WRITERS, *WORKERS):
            self.start(name)
        while not all(find_next(root / f"{name}.log", "changed") for name in WRITERS):
            time.sleep(0.05)

    def start(self, name: str) -> None:
        role = "write" if name in WRITERS else "work"
        command = [sys.executable, str(HERE / "member.py"), role, str(self.root), self.address, name]
        environ = {"PATH": os.defpath, "PYTHONPATH": str(HERE.parent)}
        with (self.root / f"{name}.errors").open("ab") as errors:
            self.processes[name] = subprocess.Popen(command, env=environ, stdout=errors, stderr=errors)

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def act(self) -> None:
        """One event, and some work to do."""
        kinds = (self.kill_server, self.kill_member, self.terminate, self.pause, self.part, self.jump)
        event = self.chance.choice(kinds)
        self.events[event.__name__] += 1
        event()
        queue = JobQueue(self.watcher.database)
        for _ in range(3):
            assert queue.add(self.watcher.backend.memories.space, "count", {"n": self.jobs})
            self.jobs += 1
        time.sleep(self.chance.random() * 0.3)
        for name, process in self.processes.items():
            assert process.poll() is None, (self.root / f"{name}.errors").read_text(encoding="utf-8")

    def kill_server(self) -> None:
        self.server.kill()
        self.server.start()

    def kill_member(self) -> None:
        name = self.chance.choice([*self.processes])
        self.processes[name].kill()
        self.processes[name].wait()
        self.start(name)

    def terminate(self) -> None:
        with psycopg.connect(self.address) as connection:
            connection.execute(TERMINATE)

    def pause(self) -> None:
        process = self.processes[self.chance.choice([*self.processes])]
        process.send_signal(signal.SIGSTOP)
        time.sleep(LEASE * 1.5)
        process.send_signal(signal.SIGCONT)

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
        (self.root / "bob.clock").write_text(str(self.chance.uniform(-1e6, 1e6)), encoding="utf-8")

    def finish_jobs(self) -> None:
        """Workers end what is left; what died of too many kills is tried again."""
        queue = JobQueue(self.watcher.database)
        while left := queue.list():
            for job in left:
                if job.state == "dead":
                    queue.revive(job.id)
            time.sleep(0.1)


@pytest.fixture
def campaign(
    own_server: PostgresServer, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Campaign]:
    campaign = Campaign(own_server, tmp_path, request.param[0])
    yield campaign
    campaign.stop()


SHORT, LONG = (7, 12), (11, 2_000)


@pytest.mark.parametrize(
    ("campaign", "events"),
    [(SHORT, SHORT[1]), pytest.param(LONG, LONG[1], marks=pytest.mark.soak)],
    indirect=["campaign"],
)
def test_nothing_is_lost_or_doubled_whatever_dies(campaign: Campaign, events: int) -> None:
    for _ in range(events):
        campaign.act()
    campaign.finish_jobs()
    campaign.stop()
    replicas = converge(campaign)

    post = list(iter_letters(campaign))
    whole = b"\n".join(replicas[0].values()).decode()
    for name in WRITERS:
        log = campaign.root / f"{name}.log"
        wrote, sent, changed = (find_next(log, word) for word in ("wrote", "sent", "changed"))
        assert wrote > 0
        found = Counter(n for n in range(wrote) for _ in range(whole.count(f"word-{name}-{n},")))
        assert found == Counter(range(wrote)), "each acknowledged memory is there once"
        said = int(campaign.watcher.body("shared").split(f"{name} ")[1].split()[0])
        assert said >= changed - 1
        letters = [int(one.body) for one in post if one.sender == name]
        assert letters == list(range(len(letters))), "in order, none missing, none twice"
        assert len(letters) >= sent
    with psycopg.connect(campaign.address) as connection:
        effects = [row[0] for row in connection.execute("select n from effect order by n")]
        doubled = connection.execute(
            "select id from sevenfold.revision group by id, name having count(*) > 1"
        )
        assert doubled.fetchall() == []
    assert effects == list(range(campaign.jobs)), "each job has had its effect once"


def iter_letters(campaign: Campaign) -> Iterator[FleetLetter]:
    mail = FleetMail(campaign.watcher.database)
    while taken := mail.take("post"):
        yield from taken


def converge(campaign: Campaign) -> list[dict[str, bytes]]:
    """Every replica, also a new one, after all have read and sent."""
    machines = [Machine(campaign.root, campaign.address, name) for name in (*WRITERS, "late")]
    machines.append(campaign.watcher)
    for machine in machines:
        machine.store.take_in()
    for _ in range(2):
        for machine in machines:
            machine.sync()
    texts = [machine.texts() for machine in machines]
    assert all(one == texts[0] for one in texts)
    assert all(machine.backend.outbox.list_waiting() == [] for machine in machines)
    return texts
