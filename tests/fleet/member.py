"""A process of a fleet that works until it is killed, and prints what was acknowledged.

member.py write ROOT ADDRESS NAME     memories, its paragraph of a shared one, letters to `post`
member.py work ROOT ADDRESS NAME      jobs of the kind `count`: a row in `effect`, with their end, in one
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from pathlib import Path

from fleet.machines import Machine

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Failure
from sevenfold.fleet.database import FleetDatabase
from sevenfold.fleet.jobs import JobQueue, OldFence, finish_job
from sevenfold.fleet.mail import FleetMail

LEASE = 0.6
PAUSE = 0.02
SHARED = "Between the two."
WORDS = ("apple", "birch", "cedar", "delta", "ember", "flint", "grape", "heath", "ivory", "jolly", "knoll")


class WrongClock(SystemClock):
    """A clock that is as wrong as a file says."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def now(self) -> float:
        with contextlib.suppress(OSError, ValueError):
            return super().now() + float(self._file.read_text(encoding="utf-8"))
        return super().now()


def find_next(log: Path, word: str) -> int:
    """The number after the last one that was acknowledged."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return max((int(line.split()[1]) for line in lines if line.startswith(word)), default=-1) + 1


def open_machine(root: Path, address: str, name: str) -> Machine:
    """The machine, as soon as the database says which space it is of."""
    while True:
        with contextlib.suppress(Failure):
            return Machine(root, address, name, clock=WrongClock(root / f"{name}.clock"))
        time.sleep(PAUSE)


def write(root: Path, address: str, name: str) -> None:
    log = root / f"{name}.log"
    machine = open_machine(root, address, name)
    mail, chance = FleetMail(machine.database), random.Random(name)
    wrote, sent, changed = (find_next(log, word) for word in ("wrote", "sent", "changed"))
    # What it was doing when it was killed may be there; memories are not written twice under one name.
    while any(f"{name}-{wrote}." in file for file in machine.texts()):
        wrote += 1
    with log.open("a", encoding="utf-8") as acknowledged:

        def note(word: str, number: int) -> None:
            acknowledged.write(f"{word} {number}\n")
            acknowledged.flush()

        while True:
            words = " ".join(chance.choices(WORDS, k=12))
            machine.add(f"{name}-{wrote}", f"The word is word-{name}-{wrote}, {words}.")
            note("wrote", wrote)
            wrote += 1
            with contextlib.suppress(Failure):
                mail.send(name, "post", b"%d" % sent, f"{name}-{sent}")
                note("sent", sent)
                sent += 1
            with contextlib.suppress(Failure):
                machine.sync()
            if "shared.md" in machine.texts():
                paragraphs = machine.body("shared").split("\n\n")
                own = next(n for n, text in enumerate(paragraphs) if text.startswith(f"{name} "))
                paragraphs[own] = f"{name} {changed}"
                machine.store.edit("shared", body="\n\n".join(paragraphs))
                note("changed", changed)
                changed += 1
            time.sleep(PAUSE)


def work(root: Path, address: str, name: str) -> None:
    database = FleetDatabase(address, "acme")
    jobs = JobQueue(database)
    while True:
        with contextlib.suppress(OldFence, Failure):
            if (job := jobs.claim(name, "count", LEASE)) is not None:
                time.sleep(PAUSE)

                def effect(connection, job=job) -> None:  # type: ignore[no-untyped-def]
                    connection.execute("insert into effect values (%s)", (job.payload["n"],))
                    finish_job(connection, job, {}, 0.0)

                database.run(effect)
        time.sleep(PAUSE)


if __name__ == "__main__":
    {"write": write, "work": work}[sys.argv[1]](Path(sys.argv[2]), sys.argv[3], sys.argv[4])
