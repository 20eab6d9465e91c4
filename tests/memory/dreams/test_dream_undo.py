"""A dream is taken back byte for byte, whatever it did and whoever wrote before and after it."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from memory.dreams.dreamt import Facts, dream, meddle, numbers, populate, texts

from sevenfold.core.errors import Mistake
from sevenfold.memory.consolidation.consolidation import consolidate_folder
from sevenfold.memory.dreams.commit import commit_dream, undo_dream
from sevenfold.memory.dreams.losses import LossReason
from sevenfold.memory.dreams.plan import DreamOutcome
from sevenfold.memory.dreams.stage import stage_folder
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.index import read_index
from sevenfold.memory.store import MemoryStore
from sevenfold.testing import FakeClock

DREAM = Author("dream", "session-1")
AGENT = Author("agent", "session-1")
DAY = 86_400.0


class Sleeper:
    """A memory folder, and people and dreams that change it at random."""

    def __init__(self, place: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.facts, self.clock = Facts(self.rng), FakeClock(1_800_000_000.0)
        self.store = MemoryStore(FolderBackend(place / "memory", place / "state"), self.clock)
        populate(self.folder, self.facts, 6)

    @property
    def folder(self) -> Path:
        return self.store.path_of()

    @property
    def files(self) -> dict[str, bytes]:
        return {path.as_posix(): path.read_bytes() for path in sorted(self.folder.rglob("*.md"))}

    def live(self) -> None:
        """Somebody adds, edits or removes a memory, or writes in the folder or the index by hand."""
        self.clock.time += DAY
        kind, names = self.rng.randrange(5), [topic.file for topic in self.store.topics()]
        if kind == 0 or len(names) < 3:
            name, text = f"note {self.rng.randrange(1_000)}", self.facts.sentence()
            self.store.add(type="project", name=name, description=text, body=text, new=True)
        elif kind == 1:
            said = f"{self.facts.sentence()}\n\nIt holds."
            self.store.edit(self.rng.choice(names), body=said, author=AGENT, said=said)
        elif kind == 2 and len(names) > 5:
            self.store.remove(self.rng.choice(names))
        elif kind == 3:
            index = self.folder / "MEMORY.md"
            lines = index.read_text("utf-8").splitlines(keepends=True) if index.exists() else []
            lines.insert(
                self.rng.randint(0, len(lines)),
                self.rng.choice(["## Mine\n", "By hand.\n", "- [Gone](gone.md) — kept words\n", "\n"]),
            )
            index.write_text("".join(lines), "utf-8")
        else:
            meddle(self.folder, self.facts, 1)

    def dream(self) -> DreamOutcome:
        """By rule, or by a model that means well, is careless, or has gone mad."""
        self.clock.time += DAY
        staged = stage_folder(self.store)
        explained: dict[str, LossReason] = {}
        if self.rng.random() < 0.4:
            modified = {file: (staged.folder / file).stat().st_mtime for file in staged.files}
            report = consolidate_folder(staged.folder, self.clock.now(), modified, removed=staged.removed)
            explained = dict(report.explained)
        else:
            dream(staged.folder, self.facts, self.rng.randint(1, 5))
        return commit_dream(self.store, staged, DREAM, explained)


def is_line_of_removed(line: bytes, files: dict[str, bytes]) -> bool:
    """True for a line that points to a memory that somebody removed by hand."""
    pointers = read_index(line.decode()).pointers
    return bool(pointers) and not any(file.endswith(f"/{one.file}") for one in pointers for file in files)


def soak(place: Path, seed: int, dreams: int) -> int:
    """So many dreams, and what is asserted of each; returns how many of them changed something."""
    one, changed = Sleeper(place, seed), 0
    for number in range(dreams):
        for _ in range(one.rng.randrange(3)):
            one.live()
        before, memories = one.files, texts(one.folder)
        memories.pop("MEMORY.md", None)  # it may still list what somebody removed
        outcome = one.dream()
        if not outcome.revision:
            assert one.files == before
            continue
        changed += 1
        dreamt = one.files
        replaced = numbers({"": " ".join(gone.fact.text for gone in outcome.superseded)})
        lost = numbers(memories) - numbers(texts(one.folder)) - replaced
        assert not lost, f"dream {number} lost something"
        if one.rng.random() < 0.2:
            continue  # it stays
        if one.rng.random() < 0.3:
            name = f"later {number}"
            one.store.add(type="project", name=name, description="d", body="b", author=AGENT, new=True)
            with contextlib.suppress(Mistake):  # of a dream that changed the index nothing may be left
                undo_dream(one.store)
            left = one.files
            later = [file for file in left if "later" in Path(file).name and file not in before]
            index = (one.folder / "MEMORY.md").as_posix()
            assert {file: left.get(file) for file in before if file != index} == {
                file: data for file, data in before.items() if file != index
            }
            assert len(later) == 1
            listed, now = (
                files.get(index, b"").replace(b"[Gone](gone.md)", b"Gone") for files in (before, left)
            )  # with or without its dead link
            there = {line for line in listed.splitlines() if not is_line_of_removed(line, before)}
            assert there <= set(now.splitlines())
            continue
        undo_dream(one.store)
        assert one.files == before, f"dream {number} was not taken back"
        if one.rng.random() < 0.5:
            one.store.redo()
            assert one.files == dreamt, f"dream {number} did not come back"
            one.store.undo()
            assert one.files == before, f"dream {number} was not taken back again"
    one.store.close()
    return changed


@pytest.mark.parametrize("seed", range(3))
def test_dreams_among_people_are_taken_back_byte_for_byte(tmp_path: Path, seed: int) -> None:
    assert soak(tmp_path, seed, 15) > 5


@pytest.mark.soak
def test_a_thousand_dreams_are_taken_back_byte_for_byte(tmp_path: Path) -> None:
    assert sum(soak(tmp_path / str(seed), 100 + seed, 100) for seed in range(10)) > 500


INDEX = """# Mine

* [One](one.md) — my own words about it
- [Lost](lost.md) — the only copy of what it said
See [two](two.md) in any case.\t
"""


def test_a_folder_that_nobody_has_opened_before_comes_back_as_it_was(tmp_path: Path) -> None:
    store = MemoryStore(FolderBackend(tmp_path / "memory", tmp_path / "state"), FakeClock(1_800_000_000.0))
    store.path_of().mkdir()
    for file, text in {
        "MEMORY.md": INDEX,
        "one.md": "The user prefers tabs over spaces.",
        "two.md": "---\nname: two\n---\nThe user prefers tabs over spaces. Ann agrees.\r\n",
        "three.md": "---\nname: three\ndescription: not listed\n---\nNobody points here.",
    }.items():
        store.path_of(file).write_bytes(text.encode())
    before = {path.name: path.read_bytes() for path in store.path_of().glob("*.md")}
    staged = stage_folder(store)
    report = consolidate_folder(staged.folder, store.modified()["one.md"], store.modified())
    commit_dream(store, staged, DREAM, report.explained)
    index = store.index_text()
    assert "the only copy of what it said" in index
    assert "lost.md" not in index
    assert "three.md" in index
    undo_dream(store)
    assert {path.name: path.read_bytes() for path in store.path_of().glob("*.md")} == before


def test_undo_again_takes_back_the_dream_before(tmp_path: Path) -> None:
    one = Sleeper(tmp_path, 5)
    states = [one.files]
    while len(states) < 4:
        if one.dream().revision:
            states.append(one.files)
    for state in reversed(states[:-1]):
        undo_dream(one.store)
        assert one.files == state
    with pytest.raises(Mistake, match="no dream to undo"):
        undo_dream(one.store)
