"""A memory stays as old as it is when it comes back, and when it comes to another machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from memory.team.clones import Clone, remote_of, team_of, topic

from sevenfold.memory.dreams.commit import undo_dream
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import MemoryStore
from sevenfold.memory.team.repository import WriteTime, find_memory_time, parse_log_times
from sevenfold.testing import FakeClock

DAY = 86_400.0
NOW = 1_790_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(FolderBackend(tmp_path / "memory", tmp_path / "state"), FakeClock(NOW))


def by_hand(folder: Path, days: float, body: str = "It is so.") -> Path:
    """A memory that somebody wrote some days ago."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "old.md"
    path.write_text(topic("old", body), encoding="utf-8")
    aged(path, days)
    return path


def aged(path: Path, days: float, now: float = NOW) -> None:
    os.utime(path, (now - days * DAY, now - days * DAY))


def days_old(path: Path, now: float = NOW) -> float:
    return round((now - path.stat().st_mtime) / DAY)


def test_a_memory_that_was_removed_comes_back_as_old_as_it_was(store: MemoryStore) -> None:
    path = by_hand(store.path_of(), 674)
    store.remove("old")
    store.undo("old")

    assert days_old(path) == 674


def test_a_change_that_is_undone_leaves_the_age_of_before(store: MemoryStore) -> None:
    path = by_hand(store.path_of(), 40)
    store.edit("old", body="It is otherwise.")
    assert days_old(path) < 40
    store.undo("old")

    assert days_old(path) == 40


def test_without_what_was_seen_last_the_history_tells_the_age(tmp_path: Path) -> None:
    folder, state, clock = tmp_path / "memory", tmp_path / "state", FakeClock(NOW - 9 * DAY)
    store = MemoryStore(FolderBackend(folder, state), clock)
    path = store.add(type="project", name="plan", description="The plan", body="One.").path
    clock.time = NOW
    store.remove("plan")
    (state / "seen.json").unlink()
    MemoryStore(FolderBackend(folder, state), clock).undo("plan")

    assert days_old(path) == 9


def test_an_undone_dream_leaves_the_ages_of_before(store: MemoryStore) -> None:
    path = by_hand(store.path_of(), 40)
    store.edit("old", body="It is otherwise.", author=Author("dream"))
    undo_dream(store)

    assert days_old(path) == 40


def test_what_is_saved_again_is_of_today(store: MemoryStore) -> None:
    saved = store.add(type="project", name="plan", description="The plan", body="One.")
    aged(saved.path, 40, time.time())
    store.remove("plan")
    store.add(type="project", name="plan", description="The plan", body="One.")

    assert days_old(saved.path, time.time()) == 0


def test_a_memory_of_the_team_is_as_old_for_everybody(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.say("old.md", "It is so.")
    ann.say("new.md", "It is new.")
    aged(ann.folder / "old.md", 674, time.time())
    ann.sync()
    bob.sync()

    assert days_old(bob.folder / "old.md", time.time()) == 674
    assert days_old(bob.folder / "new.md", time.time()) == 0


def test_who_joins_later_is_told_the_age_by_the_origin(tmp_path: Path) -> None:
    (ann,) = team_of(tmp_path, "ann")
    ann.write(
        "old.md",
        "---\nname: old\ndescription: About old\ntype: project\nmetadata:\n"
        "  origin: {date: 2025-01-02, author: user}\n---\n\nIt is so.\n",
    )
    ann.sync()
    ann.say("more.md", "It goes on.")
    ann.sync()
    bob = Clone(tmp_path, "bob")
    assert bob.team.join(str(remote_of(tmp_path)), tmp_path).offline is None

    written = time.gmtime((bob.folder / "old.md").stat().st_mtime)
    assert time.strftime("%Y-%m-%d", written) == "2025-01-02"
    assert days_old(bob.folder / "more.md", time.time()) == 0


def test_a_log_tells_the_newest_time_of_each_file_and_what_it_is_sure_of() -> None:
    log = (
        "\x01300 aa\x02said\n\nwritten 100 a.md\n\x02\n\0a.md\0b.md\0"
        "\x01200 \x02first\x02\n\0a.md\0c.md\0\x01x\x02broken\x02\0d.md\0"
    )
    assert parse_log_times(log) == {
        "a.md": WriteTime(100, sure=True),
        "b.md": WriteTime(300, sure=True),
        "c.md": WriteTime(200, sure=False),
    }
    assert parse_log_times("") == {}


@pytest.mark.parametrize("date", ["2999-01-01", "soon", ""])
def test_an_origin_that_tells_nothing_sensible_changes_nothing(date: str) -> None:
    data = f"---\nname: a\nmetadata:\n  origin: {{date: '{date}'}}\n---\nText.\n".encode()
    assert find_memory_time(data, WriteTime(500.0, sure=False)) == 500.0
