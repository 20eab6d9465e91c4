"""Many processes write memories at once, some are killed, the disk is full: nothing is lost or half."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.history.history import MemoryHistory
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.index import list_exceeded_limits, read_index
from sevenfold.memory.store import MemoryStore
from sevenfold.testing import FakeClock

WORKER = Path(__file__).with_name("remembering.py")
END = b"the end.\n"


class Scene:
    """One folder, many processes."""

    def __init__(self, root: Path) -> None:
        self.folder, self.state = root / "memory", root / "state"

    def start(self, what: str, *more: object) -> subprocess.Popen[str]:
        words = [str(word) for word in (what, self.folder, self.state, *more)]
        command = [sys.executable, str(WORKER), *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, what: str) -> list[str]:
        said, wrong = self.start(what).communicate(timeout=120)
        assert wrong == ""
        return said.splitlines()

    def store(self) -> MemoryStore:
        return MemoryStore(FolderBackend(self.folder, self.state), FakeClock(), author=Author("user"))

    @property
    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.glob("*.md")}

    def healed(self) -> MemoryHistory:
        """What has to hold once the next writer has been here; returns the history."""
        store = self.store()
        store.add(type="user", name="the next writer", description="d", body="the end.")
        store.remove("the next writer")
        files = self.files
        text = files.pop("MEMORY.md", b"").decode()
        for name, data in files.items():
            assert data.endswith(END), f"{name} is whole"
        pointers = [pointer.file for pointer in read_index(text).pointers]
        assert sorted(pointers) == sorted(files), "one line for each memory"
        assert list_exceeded_limits(text) == []
        left = [path.name for path in self.folder.iterdir() if path.suffix != ".md"]
        assert left == [".memory.lock"], "nothing unfinished is left"
        history = MemoryHistory(self.state / "history.sqlite")
        assert history.check() == []
        assert history.at("last") == self.files, "the history knows the folder as it is"
        return history


def saved(lines: list[str]) -> dict[str, list[str]]:
    """Which files a process was told are saved, with the revisions."""
    found: dict[str, list[str]] = {}
    for line in lines:
        what, *rest = line.split()
        if what == "saved":
            found.setdefault(rest[0], []).extend(rest[1:])
    return found


@pytest.mark.real
def test_twenty_processes_write_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    workers = [scene.start("writing", number, 4) for number in range(20)]
    said = [worker.communicate(timeout=240) for worker in workers]
    assert [wrong for _, wrong in said] == [""] * 20
    history = scene.healed()
    known = {revision.id: revision for revision in history.log(limit=1000)}
    for number, (out, _) in enumerate(said):
        lines = out.splitlines()
        assert not [line for line in lines if line.startswith(("failed", "notice"))]
        told = saved(lines)
        assert len(told) == 5
        for name, revisions in told.items():
            assert name in scene.files
            for revision in revisions:
                assert known[revision].author == Author("agent", f"session-{number}")
                assert name in {change.file for change in known[revision].files}
    shared = history.log("shared.md", limit=1000)
    assert len(shared) == 20, "every text that the shared memory ever had is in the history"


def campaign(scene: Scene, seed: int, workers: int, rounds: int) -> None:
    """Start some, kill them one after the other at random moments, and look at what they leave."""
    chance = random.Random(seed)
    acknowledged: set[str] = set()
    for turn in range(rounds):
        running = [scene.start("writing", f"{turn}x{n}", 100 // rounds) for n in range(workers)]
        for worker in running:  # wait until they are at it
            assert worker.stdout
            worker.stdout.readline()
        lines: list[str] = []
        for worker in running:
            assert worker.stdout
            lines += [worker.stdout.readline() for _ in range(chance.randint(0, 2))]
            worker.kill()
            rest, _ = worker.communicate()
            lines += rest.splitlines(keepends=True)
        acknowledged |= set(saved([line for line in lines if line.endswith("\n")]))
        history = scene.healed()
        assert acknowledged <= set(scene.files), "what was acknowledged is there"
        for revision in history.log(limit=1000):
            touched = {change.file for change in revision.files} - {"MEMORY.md"}
            kind = "user" if "the-next-writer.md" in touched else "agent"
            assert not touched or revision.author.kind == kind, "the dead are named for their work"
    assert acknowledged


@pytest.mark.real
def test_writers_killed_at_random_moments_leave_nothing_half_done(tmp_path: Path) -> None:
    campaign(Scene(tmp_path), seed=20261115, workers=3, rounds=3)


@pytest.mark.soak
def test_hundreds_of_writers_are_killed(tmp_path: Path) -> None:
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        campaign(Scene(folder), seed=seed, workers=4, rounds=5)


@pytest.mark.real
def test_a_full_disk_is_said_and_leaves_no_memory_without_its_line(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    lines = scene.run("full")
    failed = [line for line in lines if line.startswith("failed")]
    assert len(failed) == 2
    assert "too-long-for-the-disk.md could not be written" in failed[0]
    assert "MEMORY.md could not be written" in failed[1]
    assert len(saved(lines)) == 60
    assert not {"too-long-for-the-disk.md", "one-line-too-many-for-the-index.md"} & set(scene.files)
    assert b"its new text" in scene.files["a-memory-with-a-long-name-number-7.md"]
    assert not [path for path in scene.folder.iterdir() if "writing" in path.name]
    scene.store().take_in()
    assert MemoryHistory(scene.state / "history.sqlite").at("last") == scene.files
