"""SIGKILL, crowds and full disks: the search index answers afterwards as if nothing had happened."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.indexing import WORDS, listing
from memory.search.searching import Bag, names

from sevenfold.memory.search.collection import SearchCollection
from sevenfold.memory.search.index import FORMAT, PATIENCE, SearchIndex
from sevenfold.memory.search.segment import SegmentShelf, parse_contents

WORKER = Path(__file__).with_name("indexing.py")
TESTS = Path(__file__).parents[1]
pytestmark = pytest.mark.real


def worker(folder: Path, seed: int, *more: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKER), str(folder / "state"), str(folder / "memories")]
    return subprocess.Popen(
        [*command, str(seed), *map(str, more)],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(TESTS)},
    )


def reader(folder: Path) -> Callable[[str], bytes]:
    return lambda file: (folder / "memories" / file).read_bytes()


def opened(folder: Path, state: str) -> SearchIndex:
    """The index of what is in the folder now, with all its vectors."""
    index, read = SearchIndex(folder / state, Bag()), reader(folder)
    index.refresh(listing(folder / "memories"), read)
    index.build(read)
    index.wait()
    assert index.problem == ""
    return index


def read_collection(index: SearchIndex) -> SearchCollection:
    """What the index has on the disk."""
    embedder = Bag()
    collection = SearchCollection(
        index.folder, FORMAT, embedder=embedder.name, dimensions=embedder.dimensions, patience=PATIENCE
    )
    collection.sync()
    return collection


def said(index: SearchIndex, word: str) -> dict[str, tuple[float, float]]:
    """What it says of every file for this word: by its words and by its meaning."""
    collection = read_collection(index)
    lexical = collection.lexical
    looked = lexical.look([word])
    whole = lexical.scores(looked, looked.rarity).whole
    near = collection.meaning.near(Bag().embed([word])[0], lexical).highest
    return {
        lexical.file(row): (round(float(whole[row]), 3), round(float(near[row]), 3))
        for row in range(lexical.rows)
        if whole[row] > 0 or near[row] > 0
    }


def agrees(folder: Path, anew: str) -> None:
    """What is on the disk says the same as an index made anew, and lists every file there is."""
    index, fresh = opened(folder, "state"), opened(folder, anew)
    assert read_collection(index).lexical.known == read_collection(fresh).lexical.known
    for word in WORDS[::7]:
        assert said(index, word) == said(fresh, word)
    shelf = SegmentShelf(index.folder)
    contents = parse_contents(shelf.raw())
    assert contents is not None
    there = {path.name for path in index.folder.iterdir()}
    assert there >= {*contents.segments, *contents.vectors}
    index.refresh(listing(folder / "memories")[1:], reader(folder))  # any change sweeps
    contents = parse_contents(shelf.raw())
    assert contents is not None
    there = {path.name for path in index.folder.iterdir()}
    assert there == {"index.json", "lock", "lock-vectors", *contents.segments, *contents.vectors}


def killed(folder: Path, seed: int, chance: random.Random) -> None:
    """Let it get somewhere, and kill it wherever it then is."""
    with worker(folder, seed, 10_000) as process:
        assert process.stdout
        for _ in range(chance.randint(1, 12)):
            assert " found " in process.stdout.readline()
        more = threading.Timer(chance.random() * 0.02, process.kill)
        more.start()
        process.stdout.read()
        more.join()


def campaign(folder: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    (folder / "memories").mkdir(parents=True)
    for number in range(kills):
        killed(folder, number % 3, chance)
        agrees(folder, f"anew{number}")


def test_an_index_killed_again_and_again_answers_like_a_new_one(tmp_path: Path) -> None:
    campaign(tmp_path, kills=8, seed=5)


@pytest.mark.soak
def test_a_hundred_kills(tmp_path: Path) -> None:
    for seed in range(10):
        campaign(tmp_path / str(seed), kills=10, seed=seed)


def test_processes_that_write_at_the_same_time_each_find_what_they_wrote(tmp_path: Path) -> None:
    (tmp_path / "memories").mkdir()
    crowd = [worker(tmp_path, seed, 12) for seed in range(4)]
    for process in crowd:
        told, _ = process.communicate(timeout=120)
        lines = told.splitlines()
        assert len(lines) == 12
        assert all(" found well" in line for line in lines), lines
        assert process.returncode == 0
    agrees(tmp_path, "anew")


def test_a_disk_that_takes_no_more_leaves_the_answers_right(tmp_path: Path) -> None:
    """Files may not grow beyond a few kilobytes: memories fit, the index soon does not."""
    (tmp_path / "memories").mkdir()
    with worker(tmp_path, 1, 20, 12_000) as process:
        told, _ = process.communicate(timeout=60)
    lines = told.splitlines()
    assert len(lines) == 20
    assert all(" found " in line for line in lines), lines
    assert "could not be written" in lines[-1]
    agrees(tmp_path, "anew")


def test_a_reader_goes_on_with_what_it_has_while_another_process_rewrites_everything(
    tmp_path: Path,
) -> None:
    (tmp_path / "memories").mkdir()
    for number in range(5):
        (tmp_path / "memories" / f"{number}.md").write_text(f"{WORDS[number]}\n", encoding="utf-8")
    index = opened(tmp_path, "state")
    before = names(index.search(WORDS[3]))
    opened(tmp_path, "state").purge("3.md")
    assert names(index.search(WORDS[3])) == before == ["3.md"]
    (tmp_path / "memories" / "3.md").unlink()
    index.refresh(listing(tmp_path / "memories"), reader(tmp_path))
    assert index.search(WORDS[3]) == []
