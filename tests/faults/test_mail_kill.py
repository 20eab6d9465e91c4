"""Two processes write to each other and are killed at random: no message is lost, none comes twice."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sevenfold.core.transcript import Transcript
from sevenfold.layers.l7_agents.mail import find_letter_id
from sevenfold.storage.jsonl import read_log

WORKER = Path(__file__).with_name("mailing.py")
NAMES = ("ada", "bob")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: the address of a socket has room for about a hundred bytes."""
    made = Path(tempfile.mkdtemp(prefix="sf-mail-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


class Worker:
    """One of the two, started again whenever it was killed."""

    def __init__(self, folder: Path, own: str, peer: str, count: int) -> None:
        self._command = [sys.executable, str(WORKER), str(folder), own, peer, str(count)]
        self._count = count
        self.sent = self.received = 0
        self.moved = threading.Condition()
        self.start()

    def start(self) -> None:
        self.ended = False
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._follow, daemon=True)
        self._reader.start()

    def _follow(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            words = line.split()
            if line.endswith("\n") and len(words) == 2 and all(map(str.isdigit, words)):
                with self.moved:
                    self.sent, self.received = map(int, words)
                    self.moved.notify_all()
        with self.moved:
            self.ended = True
            self.moved.notify_all()

    def wait_for(self, more: int) -> None:
        """Until so much more has been sent and received, or all of it."""
        with self.moved:
            goal = self.sent + self.received + more
            moved = self.moved.wait_for(
                lambda: self.sent + self.received >= goal or self.done or self.ended, timeout=120
            )
        assert moved, f"it got stuck after {self.sent} sent and {self.received} received"
        assert not self.ended, "it ended by itself"

    @property
    def done(self) -> bool:
        return self.sent >= self._count and self.received >= self._count

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout
        self.process.stdout.close()


def delivered(folder: Path, name: str) -> list[str]:
    """The ids of the letters in a transcript, in their order."""
    transcript = Transcript.load(read_log(folder / f"{name}.jsonl"), lambda: 0.0)
    assert not transcript.problems
    return [id for placed in transcript.view if (id := find_letter_id(placed))]


def campaign(folder: Path, count: int, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    workers = [Worker(folder, own, peer, count) for own, peer in (NAMES, NAMES[::-1])]
    try:
        for _ in range(kills):
            victim = rng.choice(workers)
            victim.wait_for(rng.randint(1, 4 * count // kills))
            victim.kill()
            victim.start()
        for worker in workers:
            worker.wait_for(2 * count)
    finally:
        for worker in workers:
            worker.kill()
    for name, other in (NAMES, NAMES[::-1]):
        assert delivered(folder, name) == [f"{other}-{n}" for n in range(1, count + 1)]


@pytest.mark.real
def test_two_processes_killed_again_and_again_lose_no_message_and_read_none_twice(folder: Path) -> None:
    campaign(folder, count=120, kills=4, seed=20270111)


@pytest.mark.soak
def test_ten_thousand_messages_between_two_processes_that_are_killed(folder: Path) -> None:
    campaign(folder, count=5_000, kills=120, seed=7)
