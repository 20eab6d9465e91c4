"""Many writes into a large folder: not every file is looked at each time, and no change goes unnoticed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sevenfold.memory.backend import HEAD, FolderListing
from sevenfold.memory.folder.files import FolderBackend, OpenFolder, StateFolder
from sevenfold.memory.folder.folder import FEW, FileRow, LedgerFile, LedgerLookup
from sevenfold.memory.index import read_index
from sevenfold.memory.store import MemoryStore
from sevenfold.testing import FakeClock


class CountingFolder(OpenFolder):
    """Counts the looks at all files."""

    looks: list[int]

    def list(self) -> FolderListing:
        self.looks.append(1)
        return super().list()


class CountingBackend(FolderBackend):
    def __init__(self, folder: Path, state: Path) -> None:
        super().__init__(folder, state)
        self.looks: list[int] = []

    @contextmanager
    def opened(self, *, make: bool = False) -> Iterator[OpenFolder]:
        with super().opened(make=make) as at:
            counting = CountingFolder(at.fd, at.real)
            counting.looks = self.looks
            yield counting


class Large:
    """A folder with more memories than are looked at before every write."""

    def __init__(self, root: Path) -> None:
        self.place, self.state, self.clock = root / "memory", root / "state", FakeClock()
        self.backend = CountingBackend(self.place, self.state)
        self.store = self.again()

    def again(self) -> MemoryStore:
        """As another process would open it."""
        return MemoryStore(self.backend, self.clock)

    @property
    def looks(self) -> int:
        return len(self.backend.looks)

    def add(self, name: str, body: str = "", store: MemoryStore | None = None) -> str:
        store = store or self.store
        body = body or f"The {name} box stands in the cellar"
        saved = store.add(type="project", name=name, description=f"About {name}", body=body)
        return f"{saved.action} {saved.path.name}"

    def log(self) -> list[tuple[str, str]]:
        """Who did what after the first memory was added, oldest first."""
        past = reversed(self.store.history())
        done: list[tuple[str, str]] = [(one.author.kind, one.summary) for one in past]
        return done[done.index(("user", "added first")) + 1 :]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("large")
    large = Large(root)
    large.place.mkdir()
    for n in range(FEW + 1):
        (large.place / f"m{n}.md").write_text(f"box {n}\n")
    large.store.take_in()
    return root


@pytest.fixture
def large(filled: Path, tmp_path: Path) -> Large:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    large = Large(tmp_path)
    large.add("first")
    return large


def test_a_second_memory_is_added_without_a_look_at_all_files(large: Large) -> None:
    before = large.looks
    assert large.add("second") == "created second.md"
    assert large.add("third", store=large.again()) == "created third.md"
    assert large.looks == before
    assert {"first", "second", "third"} < {one.name for one in large.store.topics()}
    assert [one.file for one in read_index(large.store.index_text()).pointers][-2:] == [
        "second.md",
        "third.md",
    ]
    assert large.log() == [("user", "added second"), ("user", "added third")]


def test_a_file_that_comes_or_goes_is_noticed_at_once(large: Large) -> None:
    (large.place / "by-hand.md").write_text("written by hand\n")
    large.add("second")
    (large.place / "first.md").unlink()
    large.add("third")
    assert large.log() == [
        ("other", "created by-hand"),
        ("user", "added second"),
        ("other", "removed first"),
        ("user", "added third"),
    ]
    assert "first.md" not in large.store.index_text()


def test_a_file_in_a_folder_below_is_noticed_too(large: Large) -> None:
    (large.place / "sub").mkdir()
    large.add("second")
    (large.place / "sub" / "deep.md").write_text("written by hand\n")
    large.add("third")
    assert ("other", "created deep") in large.log()


def test_a_change_inside_the_index_is_recorded_before_ours(large: Large) -> None:
    with (large.place / "MEMORY.md").open("a") as index:
        index.write("\nMy own words.\n")
    large.add("second")
    assert large.log()[0] == ("other", "updated MEMORY.md")
    assert large.log()[-1] == ("user", "added second")
    assert "My own words." in large.store.index_text()


def test_a_change_inside_a_file_is_recorded_before_that_file_is_replaced(large: Large) -> None:
    path = large.place / "first.md"
    path.write_text(path.read_text().replace("cellar", "attic"))
    assert large.add("first", "It was sold.") == "updated first.md"
    assert large.log() == [("other", "updated first"), ("user", "updated first")]
    assert "attic" in large.store.diff(revision="HEAD~1")


def test_a_change_inside_another_file_is_seen_a_moment_later(large: Large) -> None:
    path = large.place / "first.md"
    path.write_text(path.read_text().replace("cellar", "attic"))
    large.add("second")
    large.clock.time += 10
    large.add("third")
    assert large.log() == [("user", "added second"), ("other", "updated first"), ("user", "added third")]


def test_something_else_with_the_name_of_a_new_memory_is_not_overwritten(large: Large) -> None:
    os.mkfifo(large.place / "pipe.md")
    assert large.add("second") == "created second.md"
    os.mkfifo(large.place / "second-pipe.md")
    large.store.take_in()
    assert large.add("second pipe").startswith("created second-pipe-")


def test_what_another_process_saved_is_known_without_a_look(large: Large) -> None:
    large.add("second", store=large.again())
    before = large.looks
    assert large.add("second", "It moved to the attic.") == "updated second.md"
    assert large.looks == before


def test_a_repeated_statement_is_found_without_reading_the_folder(large: Large) -> None:
    large.add("second", "Postgres runs on port 5433 since 2026-03-01")
    same = large.again().add(
        type="project",
        name="other name",
        description="About second",
        body="Postgres runs on port 5433 since 2026-05-07",
    )
    assert (same.name, same.action) == ("second", "merged")
    other = large.again().add(
        type="project", name="other name", description="About second", body="Postgres runs on port 5434"
    )
    assert other.action == "created"


def test_a_lost_part_of_the_ledger_costs_a_look_and_nothing_else(large: Large) -> None:
    whole, changes = large.state / "seen.json", large.state / "seen-changes.json"
    large.add("second")
    assert b"second.md" not in whole.read_bytes()
    assert b"second.md" in changes.read_bytes()
    old = changes.read_bytes()
    whole.unlink()
    large.add("third", store=large.again())
    assert b"second.md" in whole.read_bytes()
    changes.write_bytes(old)  # it belongs to the ledger that is lost
    large.add("fourth", store=large.again())
    changes.write_bytes(b"half of")
    large.add("fifth", store=large.again())
    assert large.store.take_in() == []
    assert large.log() == [("user", f"added {n}") for n in ("second", "third", "fourth", "fifth")]


def test_the_ledger_is_written_whole_after_many_changes(tmp_path: Path) -> None:
    ledgers = LedgerFile(StateFolder(tmp_path))
    for n in range(600):
        ledger = ledgers.load()
        ledger.rows[f"{n}.md"] = FileRow(None, str(n))
        ledgers.save(ledger, [f"{n}.md"], LedgerLookup(ledger.rows))
        if n in (100, 599):
            assert LedgerFile(StateFolder(tmp_path)).load().rows == ledger.rows
    assert b'"500.md"' in (tmp_path / "seen.json").read_bytes()
    assert b'"300.md"' not in (tmp_path / "seen-changes.json").read_bytes()


def test_a_purge_leaves_no_name_in_the_ledger(large: Large) -> None:
    large.add("affair")
    assert b"affair" in (large.state / "seen-changes.json").read_bytes()
    large.store.purge("affair")
    kept = b"".join(path.read_bytes() for path in large.state.glob("*.json"))
    assert b"affair" not in kept
    assert b"first" in kept


def test_a_file_of_the_same_name_that_cannot_be_read_does_not_stop_an_add(large: Large) -> None:
    (large.place / "Large.md").write_bytes(b"---\nname: LARGE\n---\n" + b"x" * (HEAD + 1))
    large.store.take_in()
    assert large.add("large").startswith("created large-")
