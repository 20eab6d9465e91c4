"""The first recall of a folder never waits: words first, straight from the files; the rest comes later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from memory.search.searching import Bag, Folder

from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.folder.reader import FEW
from sevenfold.memory.search.index import SearchIndex
from sevenfold.memory.search.scan import CLOSELY, search_files
from sevenfold.memory.store import Memory
from sevenfold.testing import FakeClock

BIRDS = ("heron", "plover", "wren", "osprey", "kestrel", "bittern", "avocet")


def write_birds(folder: Path, count: int = FEW + 50) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        bird = BIRDS[number % len(BIRDS)]
        head = f"---\nname: bird-{number}\ndescription: ring {number}k\ntype: project\n---\n"
        text = f"{head}A {bird} at post{number}.\n"
        (folder / f"bird-{number}.md").write_text(text, encoding="utf-8")


def open_memory(root: Path, embedder: Bag | None = None) -> Memory:
    return Memory(FolderBackend(root / "memory", root / "state"), FakeClock(), embedder=embedder)


def test_a_folder_without_an_index_is_answered_before_any_text_is_embedded(tmp_path: Path) -> None:
    write_birds(tmp_path / "memory")
    embedder = Bag()
    embedder.gate.clear()  # whoever waits for a vector waits for ever
    memory = open_memory(tmp_path, embedder)
    for wait in (None, 0.0):
        assert [one.name for one in memory.recall("which bird is at post17?", 1, wait=wait)] == ["bird-17"]
    assert memory.recall("how do I bake sourdough bread?") == []
    assert embedder.seen == []
    embedder.gate.set()
    memory.close()


def test_what_is_missing_is_built_in_the_background_and_can_be_waited_for(tmp_path: Path) -> None:
    write_birds(tmp_path / "memory")
    embedder = Bag()
    memory = open_memory(tmp_path, embedder)
    assert memory.recall("which bird is at post17?", 1, wait=60)[0].name == "bird-17"
    assert memory.describe_progress() == ""
    assert len(embedder.seen) == 2 * (FEW + 50) + 1, "a head and a body each, once, and the question"
    memory.close()

    other = open_memory(tmp_path, again := Bag())
    assert other.recall("which bird is at post17?", 1)[0].name == "bird-17"
    assert other.settled(60)
    assert again.seen == ["which bird is at post17?"], "another process finds the vectors"
    other.close()


def test_what_is_added_while_the_index_is_read_is_found_too(tmp_path: Path) -> None:
    write_birds(tmp_path / "memory")
    embedder = Bag()
    embedder.gate.clear()
    memory = open_memory(tmp_path, embedder)
    memory.recall("which bird is at post17?")
    memory.add(type="project", name="stork", description="nests", body="A stork nests on the old mill.")
    assert memory.recall("where does the stork nest?", 1, wait=0)[0].name == "stork"
    embedder.gate.set()
    memory.close()


def test_progress_is_told_while_it_is_built(tmp_path: Path) -> None:
    write_birds(tmp_path / "memory")
    embedder = Bag()
    embedder.gate.clear()
    memory = open_memory(tmp_path, embedder)
    memory.recall("which bird is at post17?")
    assert not memory.settled(0.01)
    assert memory.describe_progress()
    embedder.gate.set()
    assert memory.settled(60)
    assert memory.describe_progress() == ""
    memory.close()


def test_a_few_new_memories_are_in_the_very_next_answer(tmp_path: Path) -> None:
    write_birds(tmp_path / "memory")
    memory = open_memory(tmp_path)
    assert memory.settled(60)
    memory.add(type="project", name="stork", description="nests", body="A stork nests on the old mill.")
    assert memory.recall("where does the stork nest?", 1, wait=0)[0].name == "stork"
    memory.close()


def test_a_process_that_ends_early_loses_nothing_and_the_next_goes_on(tmp_path: Path) -> None:
    folder = Folder()
    for number in range(40):
        folder.put(f"{number}.md", f"heron{number}")
    left = iter([True] * 12)
    with SearchIndex(tmp_path) as index:
        index.refresh(folder.listing(), folder.read, lambda: next(left, False))
        done = len(folder.read_files)
        assert 0 < done < 40
        assert index.count_changed(folder.listing()) == 40 - done
    with SearchIndex(tmp_path) as index:
        assert len(folder.refresh(index)) == 40 - done
        assert index.count_changed(folder.listing()) == 0


# --- by words, from the files -----------------------------------------------------------------------------


@pytest.fixture
def folder() -> Folder:
    found = Folder()
    for number in range(200):
        found.put(f"{number}.md", f"A {BIRDS[number % 7]} was seen at post{number}.")
    found.put("mill.md", "Storks nest on the old mill; cities are too loud for them.", about="storks")
    found.put("数据.md", "集成测试必须连接真实的数据库", about="测试")
    return found


def test_the_best_file_is_the_one_the_index_finds(folder: Folder, tmp_path: Path) -> None:
    with SearchIndex(tmp_path) as index:
        folder.refresh(index)
        for asked in (
            "where do the storks nest?",
            "which city is too loud for a stork?",
            "what was seen at post42?",
            "集成测试可以模拟数据库吗？",
            "how much is the rent in Lisbon?",
            "fix all of it",
        ):
            scanned = search_files(folder.files, folder.read, asked, 1)
            assert [hit.file for hit in scanned] == [hit.file for hit in index.search(asked, 1)], asked


@pytest.mark.parametrize(
    "asked", ["why is the tide low?", "so " + " ".join(BIRDS) + " by the sea tide ebb moon gulls sand"]
)
def test_the_files_are_ranked_as_the_index_ranks_them(asked: str, tmp_path: Path) -> None:
    """A memory that comes back to a subject beside one that names it often in one place."""
    found, filler = (
        Folder(),
        "Nothing else was written down on that long and quiet day by the sea wall. " * 3,
    )
    found.put("once.md", "tide low tide low tide low\n\n" + f"{filler}\n\n" * 5)
    found.put("often.md", "".join(f"The tide is low. {filler}\n\n" for _ in range(6)))
    found.put(
        "late.md", f"{filler}\n\n" * 5 + "".join(f"A {bird} and the tide. {filler}\n\n" for bird in BIRDS)
    )
    for number in range(6):
        found.put(f"{number}.md", filler * (number + 1))
    with SearchIndex(tmp_path) as index:
        found.refresh(index)
        ranked = index.search(asked, 3, silent=False)
    scanned = search_files(found.files, found.read, asked, 3, silent=False)
    assert [hit.file for hit in scanned] == [hit.file for hit in ranked]
    for by_scan, by_index in zip(scanned, ranked, strict=True):
        assert by_scan.score / scanned[0].score == pytest.approx(by_index.score / ranked[0].score, abs=0.05)


def test_every_file_is_read_once_and_the_best_once_more(folder: Folder) -> None:
    search_files(folder.files, folder.read, "which bird was seen at post42?", 5)
    assert folder.read_files[: len(folder.files)] == list(folder.files)
    assert len(folder.read_files) <= len(folder.files) + CLOSELY


def test_it_answers_from_what_it_has_seen_when_the_time_is_over(folder: Folder) -> None:
    left = iter([True] * 9)
    found = search_files(
        folder.files,
        folder.read,
        "what was seen at post4?",
        5,
        silent=False,
        going=lambda: next(left, False),
    )
    assert len(set(folder.read_files)) == 10
    assert found[0].file == "4.md"


def test_files_that_cannot_be_read_are_passed_over(folder: Folder) -> None:
    folder.unreadable.add("42.md")
    assert "42.md" not in {
        hit.file
        for hit in search_files(folder.files, folder.read, "what was seen at post42?", 5, silent=False)
    }


def test_numpy_is_not_loaded_for_it() -> None:
    code = """
import sys
from sevenfold.memory.search.scan import search_files
assert search_files(["a.md"], lambda file: b"storks nest here", "where do storks nest?", 1)
assert "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
