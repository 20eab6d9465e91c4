"""A process of a fleet that works until it is killed, and prints what was acknowledged.

write: memories, its paragraph of a shared one, letters to `post`
work:  jobs of the kind `tally`: a memory of their own, and a shared one
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import sys
import time
from pathlib import Path

from fleet.machines import Machine

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Failure
from sevenfold.fleet import replica
from sevenfold.fleet.database import FleetDatabase
from sevenfold.fleet.jobs import ClaimedJob
from sevenfold.fleet.mail import FleetMail
from sevenfold.fleet.worker import FleetWorker, JobOutcome
from sevenfold.memory.store import MemoryStore

LEASE = 1.0
PAUSE, PACE = 0.05, 0.5  # Seconds
KEPT = 60  # Memories of a writer
HASTY = ("bob", "joe")  # They take the newest texts alone already if a few changes wait
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


def save(machine: Machine, name: str, number: int) -> None:
    """Memory `number`: the first ones are new, later ones change those. Done again it changes nothing."""
    file, words = f"{name}-{number % KEPT}", " ".join(random.Random(f"{name}{number}").choices(WORDS, k=12))
    body = f"The word is word-{name}-{number}, {words}."
    if f"{file}.md" in machine.texts():
        machine.store.edit(file, body=body)
    else:
        machine.add(file, body)


def write(root: Path, address: str, name: str) -> None:
    log = root / f"{name}.log"
    machine = open_machine(root, address, name)
    mail = FleetMail(machine.database)
    wrote, sent, changed = (find_next(log, word) for word in ("wrote", "sent", "changed"))
    with log.open("a", encoding="utf-8") as acknowledged:

        def note(word: str, number: int) -> None:
            acknowledged.write(f"{word} {number}\n")
            acknowledged.flush()

        while True:
            save(machine, name, wrote)
            note("wrote", wrote)
            wrote += 1
            with contextlib.suppress(Failure):
                mail.send(name, "post", b"%d" % sent, f"{name}-{sent}")
                note("sent", sent)
                sent += 1
            with contextlib.suppress(Failure):
                machine.sync()
            if "shared.md" in machine.texts():
                change_paragraph(machine.store, name, changed)
                note("changed", changed)
                changed += 1
            time.sleep(PACE)


def change_paragraph(store: MemoryStore, name: str, number: object) -> None:
    paragraphs = store.get("shared").body.strip().split("\n\n")
    own = next(n for n, text in enumerate(paragraphs) if text.startswith(f"{name} "))
    paragraphs[own] = f"{name} {number}"
    store.edit("shared", body="\n\n".join(paragraphs))


def work(root: Path, address: str, name: str) -> None:
    """Jobs whose effect would show if it was there twice: each adds to the memory of its number."""
    worker = FleetWorker(FleetDatabase(address, "acme"), root / f"{name}-work", name)

    def tally(job: ClaimedJob, store: MemoryStore) -> JobOutcome:
        file, line = f"tally-{job.payload['n']}", f"done-{job.payload['n']}, by {secrets.token_hex(4)}."
        change_paragraph(store, name, secrets.token_hex(4))
        time.sleep(PAUSE)
        if f"{file}.md" in store.listing().files:
            store.edit(file, body=f"{store.get(file).body.strip()}\n\n{line}")
        else:
            store.add(type="project", name=file, description=f"about {file}", body=line, new=True)
        return JobOutcome()

    worker.does["tally"] = tally
    while True:
        with contextlib.suppress(Failure):
            if worker.work("tally", LEASE):
                continue
        time.sleep(PAUSE)


def run_member(role: str, root: str, address: str, name: str) -> None:
    """What the process does."""
    with (Path(root) / f"{name}.errors").open("ab") as errors:
        os.dup2(errors.fileno(), sys.stderr.fileno())
    if name in HASTY:
        setattr(replica, "MANY", 4)  # noqa: B010 - a constant for everybody else
    {"write": write, "work": work}[role](Path(root), address, name)
