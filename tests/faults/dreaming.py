"""Processes that commit a dream and die, or are refused by the disk, at a moment that is told.

python dreaming.py FOLDER step N         dies at the N-th change of the disk within the commit
python dreaming.py FOLDER full N         from the N-th on the disk is full
python dreaming.py FOLDER hand N FILE    at the N-th somebody writes into a file, without any lock
python dreaming.py FOLDER count          prints how many changes there are
python dreaming.py FOLDER loop SEED      dreams on and on, until somebody kills it
python dreaming.py FOLDER read-only      tries it in a folder that it may not write
python dreaming.py FOLDER small BYTES    tries it where no file may be larger
"""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import sys
from pathlib import Path

from memory.dreams.dreamt import Facts, dream, populate

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import SevenfoldError
from sevenfold.memory.dreams.commit import commit_dream
from sevenfold.memory.dreams.stage import DreamStage, stage_folder
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import MemoryStore

CHANGES = frozenset(["os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.utime"])
ROOM = frozenset(["open", "os.mkdir", "os.link"])
"""What a full disk refuses."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
DREAM = Author("dream", "session-1")
FILES = 5
BY_HAND = "Written by hand in the middle of it, number 9999999."


class Meter:
    """Counts what changes the disk, and does something at a moment that is told."""

    def __init__(self, what: str, at: int, hand: Path | None = None) -> None:
        self.what, self.at, self.hand, self.on, self.count = what, at, hand, False, 0

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.on or not (event in CHANGES or _writes(event, arguments)):
            return
        self.count += 1
        if self.what == "full" and self.count >= self.at and event in ROOM:
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.count != self.at:
            return
        if self.what == "step":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.hand is not None:
            self.on = False
            with self.hand.open("a", encoding="utf-8") as file:
                file.write(f"- {BY_HAND}\n")
            self.on = True


def _writes(event: str, arguments: tuple[object, ...]) -> bool:
    flags = arguments[2] if event == "open" and len(arguments) > 2 else 0
    return isinstance(flags, int) and bool(flags & WRITING)


def opened(place: Path) -> MemoryStore:
    return MemoryStore(FolderBackend(place / "memory", place / "state"), SystemClock())


def prepared(place: Path) -> tuple[MemoryStore, DreamStage]:
    """A folder and a dream that merges, changes, creates and removes: always the same."""
    store = opened(place)
    facts = Facts(random.Random(11))
    populate(store.path_of(), facts, FILES)
    staged = stage_folder(store)
    folder = staged.folder
    moved = (folder / "topic-1.md").read_text("utf-8").replace("---\n", "")
    (folder / "topic-0.md").write_text((folder / "topic-0.md").read_text("utf-8") + moved, "utf-8")
    (folder / "topic-1.md").unlink()
    (folder / "sub").mkdir()
    (folder / "topic-2.md").rename(folder / "sub/two.md")
    (folder / "new.md").write_text(facts.memory("new", 3), "utf-8")
    text = (folder / "topic-3.md").read_text("utf-8")
    (folder / "topic-3.md").write_text(f"{text}\nOne more: {facts.sentence()}\n", "utf-8")
    return store, staged


def measured(place: Path, what: str, at: int, hand: str = "") -> None:
    store, staged = prepared(place)
    meter = Meter(what, at, store.path_of() / hand if hand else None)
    sys.addaudithook(meter)
    meter.on = True
    try:
        commit_dream(store, staged, DREAM)
    except SevenfoldError as error:
        print("refused", error, flush=True)
    else:
        print("committed", meter.count, flush=True)
    meter.on = False


def looping(place: Path, seed: int) -> None:
    store = opened(place)
    facts = Facts(random.Random(seed), 2_000_000 + seed * 1_000)
    print(store.recover() or "ready", flush=True)
    while True:
        staged = stage_folder(store)
        dream(staged.folder, facts, facts.rng.randint(1, 6))
        print("commit", flush=True)
        commit_dream(store, staged, DREAM)


def held_to(place: Path, limit: int | None) -> None:
    store, staged = prepared(place)
    if limit is None:
        (place / "memory").chmod(0o500)
        if os.geteuid() == 0:  # nothing is forbidden to root
            for path in (place, *place.rglob("*")):
                os.chown(path, 65_534, 65_534)
            os.setuid(65_534)
    else:
        (staged.folder / "large.md").write_text("A long line about 7 bees. " * 2_000, "utf-8")
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        commit_dream(store, staged, DREAM)
    except SevenfoldError as error:
        print("refused", error)
    else:
        print("committed")


if __name__ == "__main__":
    where, what, number = Path(sys.argv[1]), sys.argv[2], int((sys.argv[3:] or ["0"])[0])
    if what in ("step", "full", "count", "hand"):
        measured(where, what, number, *sys.argv[4:])
    elif what == "loop":
        looping(where, number)
    else:
        held_to(where, number or None)
