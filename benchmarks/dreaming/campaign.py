"""Dreams that are killed with SIGKILL at random moments while others write in the same folder.

Each life of a folder has a few dreams; all but the last are killed. After each, what a dead dream left is
brought to an end as the next dream would, and every fact that was ever in the folder has to be there.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.dreaming.folders import NOW, Planted, folder, topics
from benchmarks.dreaming.measuring import plain
from sevenfold.memory.consolidation.consolidation import consolidate_folder
from sevenfold.memory.dreams.commit import commit_dream
from sevenfold.memory.dreams.stage import stage_folder
from sevenfold.memory.folder.files import FolderBackend, MemoryFiles
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.index import list_exceeded_limits
from sevenfold.memory.store import MemoryStore
from sevenfold.testing import FakeClock

SIZE: Final = 40
KILLED: Final = 3
"""Dreams of each folder that are killed, before one that may end."""
STAGED, CONSOLIDATED, DONE = b"s", b"c", b"d"
_PHASES: Final = {b"": "while it copied", STAGED: "while it worked", CONSOLIDATED: "while it committed"}


class Counts(msgspec.Struct):
    """What a campaign saw."""

    dreams: int = 0
    killed: dict[str, int] = {}
    written: int = 0
    """Facts that others wrote meanwhile."""
    facts: int = 0
    lost: list[str] = []
    index: int = 0
    """Looks at the folder that found the index over its limits."""
    failed: int = 0
    unattended: int = 0
    """Folders whose writer died by itself, so that nobody wrote to the end."""
    ended: int = 0


def campaign(dreams: int, seed: int = 0) -> Counts:
    """At least so many dreams, three of four killed."""
    counts = Counts()
    dice = random.Random(seed)
    life = 0
    while counts.dreams < dreams:
        place = Path(tempfile.mkdtemp(prefix="dreaming-"))
        try:
            _life(place, seed * 100_000 + life, dice, counts)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        life += 1
    return counts


def _life(place: Path, seed: int, dice: random.Random, counts: Counts) -> None:
    home = place / "memory"
    planted = folder(home, SIZE, seed)
    store = _store(place)
    store.take_in()
    before = _duration(place)
    counts.facts += len(planted.facts)
    writer = _forked(lambda: _write_on(place, seed))
    try:
        for turn in range(KILLED + 1):
            counts.dreams += 1
            phase = _one_dream(place, dice, before, kill=turn < KILLED)
            if phase == DONE:
                counts.ended += 1
            elif phase in _PHASES:
                name = _PHASES[phase]
                counts.killed[name] = counts.killed.get(name, 0) + 1
            else:
                counts.failed += 1
            _look(place, planted, counts)
    finally:
        os.kill(writer, signal.SIGKILL)
        _, status = os.waitpid(writer, 0)
        counts.unattended += not os.WIFSIGNALED(status)
    _look(place, planted, counts)
    counts.written += len(_noted(place))


def _one_dream(place: Path, dice: random.Random, before: tuple[float, float], *, kill: bool) -> bytes:
    """One dream in a process of its own; says how far it came."""
    read, write = os.pipe()
    child = _forked(lambda: _dream(place, write))
    os.close(write)
    seen = b""
    try:
        if kill and dice.random() < 0.5:  # as a whole: mostly while it works
            time.sleep(dice.uniform(0, 0.9 * sum(before)))
        elif kill:  # just in the commit
            while (sign := os.read(read, 1)) and sign != CONSOLIDATED:
                seen = sign
            seen = sign or seen
            time.sleep(dice.uniform(0, 0.9 * before[1]))
        if kill:
            os.kill(child, signal.SIGKILL)
        while sign := os.read(read, 1):
            seen = sign
        _, status = os.waitpid(child, 0)
    finally:
        os.close(read)
    ended = os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0
    return b"x" if ended else seen


def _dream(place: Path, tell: int) -> None:
    store = _store(place)
    staged = stage_folder(store)
    os.write(tell, STAGED)
    report = consolidate_folder(staged.folder, NOW, store.modified())
    os.write(tell, CONSOLIDATED)
    commit_dream(store, staged, Author("dream", "s-1"), report.explained)
    os.write(tell, DONE)


def _duration(place: Path) -> tuple[float, float]:
    """How long work and commit take, on a copy."""
    copy = place / "copy"
    shutil.copytree(place / "memory", copy / "memory")
    store = _store(copy)
    began = time.perf_counter()
    staged = stage_folder(store)
    report = consolidate_folder(staged.folder, NOW, store.modified())
    worked = time.perf_counter()
    commit_dream(store, staged, Author("dream", "s-1"), report.explained)
    ended = time.perf_counter()
    store.add(type="user", name="x", description="x", body="x")  # so that no child has to import it
    shutil.rmtree(copy)
    return worked - began, ended - worked


def _write_on(place: Path, seed: int) -> None:
    """Somebody else at work: new memories through the store and past it, and lines in old ones."""
    dice = random.Random(seed + 1)
    store = _store(place)
    files = MemoryFiles(store.path_of())
    at = 0
    while True:
        at += 1
        fact = f"Visitor {seed}-{at} left parcel {dice.randint(10_000, 99_999)} at gate {at}."
        way = dice.choice(("store", "file", "line"))
        if way == "store":
            store.add(type="project", name=f"visitor {at}", description=f"Parcel {at}", body=fact)
        elif way == "file":
            text = f"---\nname: gate {at}\ndescription: Gate {at}\ntype: project\n---\n\n{fact}\n"
            fresh = store.path_of() / f".gate-{at}.tmp"
            fresh.write_text(text, encoding="utf-8")
            fresh.rename(store.path_of() / f"gate-{at}.md")
        else:
            with files.opened() as here, here.alone():
                names = sorted(
                    path.name for path in topics(store.path_of()) if path.parent == store.path_of()
                )
                name = dice.choice(names)
                data, stamp = here.read(name)
                here.write(name, data.rstrip() + f"\n\n{fact}\n".encode(), stamp)
        with (place / "noted").open("a", encoding="utf-8") as noted:
            noted.write(f"{fact}\n")
        time.sleep(dice.uniform(0.05, 0.3))


def _look(place: Path, planted: Planted, counts: Counts) -> None:
    """After recovery: is every fact there, and is the index as it should be?"""
    noted = _noted(place)  # before the folder is read, since the writer goes on
    store = _store(place)
    store.recover()
    parts: list[str] = []
    for path in (*topics(store.path_of()), store.path_of("MEMORY.md")):
        try:
            parts.append(plain(path.read_text("utf-8")))
        except FileNotFoundError:
            continue
    everything = "\n".join(parts)
    for fact in (*planted.facts, *noted):
        if plain(fact) not in everything:
            counts.lost.append(fact)
    counts.index += bool(list_exceeded_limits((store.path_of("MEMORY.md")).read_text("utf-8")))


def _noted(place: Path) -> list[str]:
    path = place / "noted"
    lines = path.read_text("utf-8").split("\n") if path.exists() else []
    return [line for line in lines[:-1] if line]


def _store(place: Path) -> MemoryStore:
    return MemoryStore(FolderBackend(place / "memory", place / "state"), FakeClock(NOW))


def _forked(work: Callable[[], None]) -> int:
    """Do something in another process, which ends with it."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - a child must never return into the parent's code
        traceback.print_exc()
    finally:
        os._exit(status)
