"""Dreams that are killed or refused by the disk at any moment: the folder is whole, and nothing is lost."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from faults.dreaming import BY_HAND, FILES, opened, prepared
from memory.dreams.dreamt import Facts, numbers, populate, texts

from sevenfold.core.clock import SystemClock
from sevenfold.memory.dreams.commit import commit_dream
from sevenfold.memory.dreams.journal import DreamJournal, is_commit_pending
from sevenfold.memory.dreams.lock import DreamLock
from sevenfold.memory.dreams.stage import stage_folder
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import MemoryStore

WORKER = Path(__file__).with_name("dreaming.py")
TESTS = Path(__file__).parents[1]
pytestmark = pytest.mark.real


def run(place: Path, *arguments: object) -> str:
    """Let the worker do one thing; what it printed before it ended, whatever ended it."""
    command = [sys.executable, str(WORKER), str(place), *map(str, arguments)]
    out = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(TESTS)}
    )
    assert out.returncode in (0, -9), out.stderr
    return out.stdout


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, str], int]:
    """The folder before and after the dream, and how many moments there are in between."""
    place = tmp_path_factory.mktemp("states")
    store, staged = prepared(place)
    before = texts(store.path_of())
    commit_dream(store, staged, Author("dream"))
    after = texts(store.path_of())
    steps = int(run(tmp_path_factory.mktemp("steps"), "count").split()[1])
    assert before != after
    assert numbers(before) < numbers(after)
    assert len([file for file in before if file != "MEMORY.md"]) == FILES
    return before, after, steps


States = tuple[dict[str, str], dict[str, str], int]


def whole_again(place: Path, states: States) -> MemoryStore:
    """After the next use of the folder it is what it was, or what the dream made of it."""
    before, after, _ = states
    store = opened(place)
    store.recover()
    found = texts(store.path_of())
    assert found in (before, after)
    assert not is_commit_pending(store.backend)
    assert store.take_in() == []
    assert store.check() is not None
    dreams = [one for one in store.history(limit=50) if one.author.kind == "dream"]
    assert len(dreams) == (found == after)
    if found == after:
        store.undo()
        assert texts(store.path_of()) == before
    return store


def at_moment(place: Path, states: States, moment: int) -> None:
    run(place, "step", moment)
    whole_again(place, states).close()


def test_a_dream_killed_at_any_moment_is_made_whole(tmp_path: Path, states: States) -> None:
    rng = random.Random(6)
    for moment in sorted(rng.sample(range(1, states[2] + 1), 8)):
        at_moment(tmp_path / str(moment), states, moment)


@pytest.mark.soak
def test_a_dream_killed_at_every_moment_is_made_whole(tmp_path: Path, states: States) -> None:
    for moment in range(1, states[2] + 1):
        at_moment(tmp_path / str(moment), states, moment)


def first_changes(tmp_path: Path, states: States) -> tuple[Path, int]:
    """A place where a dream died when some files were written and others not."""
    before, after, steps = states
    for moment in range(steps // 3, steps):
        place = tmp_path / f"half-{moment}"
        run(place, "step", moment)
        found = texts(place / "memory")
        if found not in (before, after) and is_commit_pending(
            FolderBackend(place / "memory", place / "state")
        ):
            return place, moment
        shutil.rmtree(place)
    raise AssertionError("no moment leaves half a dream")


def test_who_writes_between_the_crash_and_the_next_use_loses_nothing(
    tmp_path: Path, states: States
) -> None:
    before, _, _ = states
    place, _ = first_changes(tmp_path, states)
    hand = place / "memory/topic-0.md"
    hand.write_text("Written by hand after the crash: 7777777.\n", "utf-8")
    store = opened(place)

    assert "taken back" in store.recover()
    found = texts(store.path_of())
    assert found["topic-0.md"] == "Written by hand after the crash: 7777777.\n"
    assert {file: text for file, text in found.items() if file != "topic-0.md"} == {
        file: text for file, text in before.items() if file != "topic-0.md"
    }
    store.close()


def test_a_store_that_knows_nothing_of_dreams_may_come_first(tmp_path: Path, states: States) -> None:
    place, _ = first_changes(tmp_path, states)
    store = opened(place)
    store.add(type="user", name="first", description="First", body="Came first, 8888888.")
    store.recover()
    found = texts(store.path_of())

    assert numbers(states[0]) | {"8888888"} <= numbers(found)
    assert not is_commit_pending(store.backend)
    assert store.take_in() == []
    store.close()


def test_who_edits_a_file_while_the_dream_is_written_loses_nothing(tmp_path: Path, states: States) -> None:
    before, _, steps = states
    rng = random.Random(8)
    files = ["topic-0.md", "topic-1.md", "topic-3.md", "MEMORY.md", "new.md", "by-hand.md"]
    for turn, file in enumerate(files):
        place = tmp_path / str(turn)
        said = run(place, "hand", rng.randint(2, steps * 2 // 3), file)
        store = opened(place)
        found = texts(store.path_of())
        assert said.startswith("committed"), said
        assert BY_HAND in "".join(found.values())
        assert numbers(before) <= numbers(found)
        assert not is_commit_pending(store.backend)
        store.take_in()
        assert numbers(before) <= numbers(texts(store.path_of()))
        store.close()


def test_what_the_dream_had_moved_out_of_a_file_that_was_written_since_comes_back(tmp_path: Path) -> None:
    store = opened(tmp_path)
    facts = Facts(random.Random(3))
    populate(store.path_of(), facts, 3)
    store.take_in()
    old = texts(store.path_of())
    head, moved = old["topic-0.md"].split("## Notes\n\n")
    new = {"topic-0.md": head.encode(), "topic-1.md": (old["topic-1.md"] + moved).encode()}
    before = {file: old[file].encode() for file in new}
    for added, at_the_end in [("- More of it, 7777777.\n", True), ("Less.\n", False)]:
        DreamJournal(store.backend).begin(Author("dream"), "dreamt", 1.0, before, new)
        hand = added if not at_the_end else head + added
        (store.path_of("topic-0.md")).write_text(hand, "utf-8")
        (store.path_of("topic-1.md")).write_bytes(new["topic-1.md"])
        store.recover()
        found = texts(store.path_of())

        assert found["topic-1.md"] == old["topic-1.md"]
        assert added in found["topic-0.md"]
        assert numbers({"": moved}) <= numbers({"": found["topic-0.md"]})
        assert not is_commit_pending(store.backend)
    store.close()


def test_a_full_disk_at_any_moment_changes_nothing(tmp_path: Path, states: States) -> None:
    before, after, steps = states
    rng = random.Random(7)
    for moment in sorted(rng.sample(range(1, steps + 1), 5)):
        place = tmp_path / str(moment)
        said = run(place, "full", moment)
        store = opened(place)
        if said.startswith("refused"):
            assert "disk is full" in said
            store.recover()
            assert texts(store.path_of()) == before
        else:  # only what comes after the last file was refused: the history, or tidying up
            store.recover()
            assert texts(store.path_of()) == after
        assert not is_commit_pending(store.backend)
        store.close()


def test_a_file_size_limit_refuses_the_dream_whole(tmp_path: Path, states: States) -> None:
    said = run(tmp_path, "small", 8_192)

    assert said.startswith("refused")
    assert "larger than this system allows" in said
    assert texts(tmp_path / "memory") == states[0]
    assert not is_commit_pending(FolderBackend(tmp_path / "memory", tmp_path / "state"))


def test_a_folder_that_may_not_be_written_is_left_as_it_is(states: States) -> None:
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        place.chmod(0o755)
        said = run(place, "read-only")
        assert said.startswith("refused")
        assert "permission denied" in said
        (place / "memory").chmod(0o700)
        assert texts(place / "memory") == states[0]
    finally:
        shutil.rmtree(place)


def campaign(place: Path, kills: int, seed: int) -> int:
    """Kill a process that dreams on and on, while others write; returns how many dreams were saved."""
    rng = random.Random(seed)
    facts = Facts(rng, 5_000_000)
    store = opened(place)
    populate(store.path_of(), facts, 8)
    store.take_in()
    known = numbers(texts(store.path_of()))
    for turn in range(kills):
        command = [sys.executable, str(WORKER), str(place), "loop", str(turn)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(TESTS)}
        ) as worker:
            assert worker.stdout
            for number in range(rng.randint(2, 4)):
                assert worker.stdout.readline(), "the worker failed"
                new = facts.sentence()
                store.add(type="user", name=f"n{number}-{turn}", description=new, body=new)
                with (store.path_of() / f"by-hand-{turn}.md").open("a", encoding="utf-8") as hand:
                    hand.write(f"- {facts.sentence()}\n")
            try:
                worker.wait(timeout=rng.uniform(0, 0.3))
            except subprocess.TimeoutExpired:
                worker.kill()
        store.recover()
        known |= {number for number in numbers(texts(store.path_of())) if number[0] == "5"}
        assert known <= numbers(texts(store.path_of()))
        store.take_in()
        assert not is_commit_pending(store.backend)
    saved = [one for one in store.history(limit=10_000) if one.author.kind == "dream"]
    store.close()
    return len(saved)


def test_dreams_killed_again_and_again_among_writers_lose_nothing(tmp_path: Path) -> None:
    assert campaign(tmp_path, kills=4, seed=6) > 0


@pytest.mark.soak
def test_hundreds_of_killed_dreams_lose_nothing(tmp_path: Path) -> None:
    for seed in range(20):
        assert campaign(tmp_path / str(seed), kills=50, seed=seed) > 0


def test_a_killed_dream_is_dreamt_again_at_once(tmp_path: Path, states: States) -> None:
    place, _ = first_changes(tmp_path, states)
    store = opened(place)
    lock = DreamLock(store.path_of(), store.local, SystemClock())

    staged = stage_folder(store)  # recovers what the dead one left
    assert texts(staged.folder) == states[1]
    assert lock.last() is None
    assert commit_dream(store, staged, Author("dream")).files == ()
    assert list((store.local / "dreams").iterdir()) == []
    store.close()
