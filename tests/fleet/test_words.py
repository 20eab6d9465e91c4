"""What people said is looked through by any worker of the fleet, once, and the words do not stay."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import psycopg
import pytest
from fleet.machines import Machine, make_fleet
from recordings.lines import make_claude_code_line

from sevenfold.clients.recorded_words import learn_from_recording
from sevenfold.core.events import Event, Failed
from sevenfold.fleet.database import FleetDatabase
from sevenfold.fleet.jobs import JobQueue
from sevenfold.fleet.membership import join_fleet
from sevenfold.fleet.words import EXTRACT, Learner
from sevenfold.fleet.worker import FleetWorker
from sevenfold.session.project import Project
from sevenfold.session.session import Session
from sevenfold.settings.environment import Environment
from sevenfold.settings.place import MemoryPlace
from sevenfold.storage.places import find_places
from sevenfold.storage.waiting_notes import WaitingFolder
from sevenfold.testing.postgres import PostgresServer

pytest_plugins = ["fleet.fixtures"]
pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]
PATIENCE = 60.0
SAID = "From now on we deploy on Tuesdays; the audit of Zanzibar ends on 2027-03-04."


class Talker:
    """A machine whose sessions give what was said to the fleet."""

    def __init__(self, root: Path, address: str) -> None:
        self.home, self.tree = root / "home", root / "project-x"
        self.tree.mkdir(parents=True)
        self.places = find_places(self.tree, self.home)
        state = self.places.project / "memory-state"
        join_fleet(MemoryPlace(self.places.memory, state, root / "words"), address, "project-x")
        self.heard: list[str] = []

    def say(self, *words: str, by_fleet: bool = True) -> str:
        environ = {"HOME": str(self.home), "PATH": os.defpath}
        settings = {"extraction": {"byFleet": by_fleet}, "flags": {"dream": False}}

        def hear(event: Event) -> None:
            if isinstance(event, Failed):
                self.heard.append(event.cause)

        async def talk() -> str:
            session = Session(
                "offline", self.tree, home=self.home, environ=environ, settings=settings, interactive=True
            )
            session.subscribe(hear)
            async with session:
                for one in words:
                    await session.ask(one)
            return session.id

        return anyio.run(talk)

    @property
    def waiting(self) -> list[str]:
        return WaitingFolder(self.places.project).list_sessions()

    @property
    def memories(self) -> list[str]:
        return [path.name for path in self.places.memory.glob("*.md") if path.name != "MEMORY.md"]


@pytest.fixture
def talker(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> Talker:
    monkeypatch.setenv("SEVENFOLD_FLEET_URL", address)
    return Talker(tmp_path / "talker", address)


def make_worker(root: Path, address: str, name: str = "w1") -> FleetWorker:
    home = root / name
    learner = Learner(home, "offline", {"HOME": str(home), "PATH": os.defpath})
    return FleetWorker(FleetDatabase(address, "acme"), home / "fleet", name, learner=learner)


def read_jobs(address: str) -> list[tuple[str, dict[str, object]]]:
    with psycopg.connect(address) as connection:
        rows = connection.execute("select state, payload from sevenfold.job where kind = 'extract'")
        return [(state, payload) for state, payload in rows]


def test_what_is_said_is_looked_through_by_a_worker_elsewhere(
    tmp_path: Path, address: str, talker: Talker
) -> None:
    session = talker.say(SAID)
    assert (talker.memories, talker.waiting) == ([], [])
    assert [(state, "Zanzibar" in str(payload["words"])) for state, payload in read_jobs(address)] == [
        ("ready", True)
    ]

    worker = make_worker(tmp_path, address)
    assert worker.work(EXTRACT)
    assert not worker.work(EXTRACT)

    ann = Machine(tmp_path, address, "ann")
    ann.sync()
    [(file, text)] = ann.texts().items()
    assert b"Zanzibar" in text
    assert session.encode() in text, "it says in which session it was said"
    assert ann.store.history(file)[0].author.kind == "extraction"
    [(state, payload)] = read_jobs(address)
    assert state == "done"
    assert "words" not in payload
    left = [path for path in (tmp_path / "w1").rglob("*.json*") if b"From now on we" in path.read_bytes()]
    assert left == []


def test_a_machine_extracts_itself_unless_it_is_told_otherwise(address: str, talker: Talker) -> None:
    talker.say(SAID, by_fleet=False)

    assert len(talker.memories) == 1
    assert read_jobs(address) == []


def learn(talker: Talker, transcript: Path) -> list[str]:
    """As `sevenfold memory learn` does, and the hook of another program."""
    environment = Environment.read({"HOME": str(talker.home), "PATH": os.defpath}).based(talker.home)
    at = Project.open(talker.tree, environment, {}, lambda event: None)
    found = anyio.run(learn_from_recording, transcript, at, "offline", lambda event: None)
    return [one.name for one in found]


def test_a_session_of_another_program_is_looked_through_by_a_worker_too(
    own_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = make_fleet(own_server)
    monkeypatch.setenv("SEVENFOLD_FLEET_URL", address)
    talker = Talker(tmp_path / "talker", address)
    (talker.home / "settings.json").write_text('{"extraction": {"byFleet": true}}', encoding="utf-8")
    transcript = tmp_path / "s-1.jsonl"
    lines = [make_claude_code_line(0, "user", SAID), make_claude_code_line(1, "assistant", "Noted.")]
    transcript.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    own_server.kill()
    try:
        assert learn(talker, transcript) == []
        assert list(talker.home.rglob("waiting/*s-1*")), "the words wait on this machine"
    finally:
        own_server.start()

    assert learn(talker, transcript) == []
    assert learn(talker, transcript) == []
    assert talker.memories == []
    assert [(state, payload["session"]) for state, payload in read_jobs(address)] == [("ready", "s-1")]
    assert make_worker(tmp_path, address).work(EXTRACT)
    ann = Machine(tmp_path, address, "ann")
    ann.sync()
    assert [b"Zanzibar" in text for text in ann.texts().values()] == [True]


def test_while_the_database_is_away_the_words_wait_here(
    own_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = make_fleet(own_server)
    monkeypatch.setenv("SEVENFOLD_FLEET_URL", address)
    talker = Talker(tmp_path / "talker", address)
    own_server.kill()
    try:
        session = talker.say(SAID)
    finally:
        own_server.start()
    assert talker.waiting == [session]
    assert "waits on this machine" in talker.heard[0]

    talker.say("What is new?")  # the next session takes up what waits

    assert talker.waiting == []
    assert sum("Zanzibar" in str(payload["words"]) for _, payload in read_jobs(address)) == 1


def test_words_that_were_put_and_not_crossed_off_are_put_once(
    address: str, talker: Talker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that died after the job was in the database, and a session that goes on after it."""
    with monkeypatch.context() as dead:
        dead.setattr(WaitingFolder, "remove", lambda *given: None)
        dead.setattr("sevenfold.layers.l5_durable_memory.extraction.CURSOR", "nowhere")
        session = talker.say(SAID)
    assert talker.waiting == [session]

    talker.say("What is new?")

    assert session not in talker.waiting
    whole = [payload for _, payload in read_jobs(address) if payload["session"] == session]
    assert len(whole) == 1


DYING = """
import os, signal, sys
from pathlib import Path
from fleet.test_words import make_worker
from sevenfold.fleet.replica import Outbox
from sevenfold.fleet.words import Learner

def die(*given, **more):
    os.kill(os.getpid(), signal.SIGKILL)

root, address, moment, kind = sys.argv[1:]
if moment == "before":
    Learner.look_through = die
elif moment == "after looking":
    Outbox.finish_job = die
else:
    real = Outbox.finish_job
    Outbox.finish_job = lambda *given, **more: (real(*given, **more), die())
make_worker(Path(root), address).work(kind, lease=0.5)
"""


def kill_worker(root: Path, address: str, moment: str, kind: str = EXTRACT) -> None:
    path = str(Path(__file__).parents[1])
    environ = {"PATH": os.defpath, "PYTHONPATH": path, "SEVENFOLD_FLEET_URL": address}
    words = [sys.executable, "-c", DYING, str(root), address, moment, kind]
    ran = subprocess.run(words, env=environ, capture_output=True)
    assert ran.returncode == -signal.SIGKILL, ran.stderr.decode()


def finish_all(jobs: JobQueue, workers: list[FleetWorker], kind: str) -> None:
    """Let the workers do all that there is; a job that stays fails the test."""
    ends = time.monotonic() + PATIENCE
    while left := jobs.list():
        assert time.monotonic() < ends, left
        for worker in workers:
            worker.work(kind)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after looking", "after sending"])
def test_a_worker_that_is_killed_neither_loses_nor_doubles_the_words(
    tmp_path: Path, address: str, talker: Talker, moment: str
) -> None:
    talker.say(SAID)
    kill_worker(tmp_path, address, moment)

    jobs = JobQueue(FleetDatabase(address, "acme"))
    workers = [make_worker(tmp_path, address), make_worker(tmp_path, address, "w2")]
    finish_all(jobs, workers, EXTRACT)

    ann = Machine(tmp_path, address, "ann")
    ann.sync()
    assert [b"Zanzibar" in text for text in ann.texts().values()] == [True]
    rows = ann.database.run(
        lambda c: c.execute("select count(*), count(distinct xid) from sevenfold.revision").fetchone()
    )
    assert rows == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["after looking", "after sending"])
def test_a_worker_that_is_killed_dreams_once(tmp_path: Path, address: str, moment: str) -> None:
    ann = Machine(tmp_path, address, "ann")
    for name in ("deploys", "deploy-day"):
        body = "We deploy the web shop on Tuesdays at ten in the morning."
        ann.store.add(type="project", name=name, description="When we deploy.", body=body, new=True)
    jobs = JobQueue(ann.database)
    jobs.add(ann.backend.memories.space, "dream")
    kill_worker(tmp_path, address, moment, "dream")
    assert [job.state for job in jobs.list()] == (["running"] if moment == "after looking" else [])

    workers = [make_worker(tmp_path, address), make_worker(tmp_path, address, "w2")]
    finish_all(jobs, workers, "dream")
    ann.sync()

    assert len(ann.texts()) == 1, "the dream has joined the two"
    rows = ann.database.run(
        lambda c: c.execute(
            "select count(distinct xid), count(distinct job) from sevenfold.revision where kind = 'dream'"
        ).fetchone()
    )
    assert rows == (1, 1)
