"""The limit of the index is one of loading: it refuses no memory, and what has no line is counted."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.core.events import Event, Notice
from sevenfold.memory.backend import HEAD
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.index import (
    CHARACTERS,
    LINES,
    format_pointer,
    format_unlisted,
    list_exceeded_limits,
    read_index,
    split_unlisted,
)
from sevenfold.memory.index_update import complete_index
from sevenfold.memory.store import MemoryStore
from sevenfold.memory.topic_file import read_topic
from sevenfold.testing import FakeClock

AGENT = Author("agent", "s1")


class Folder:
    """A memory folder, and what was said."""

    def __init__(self, root: Path) -> None:
        self.place, self.state, self.clock = root / "memory", root / "state", FakeClock()
        self.events: list[Event] = []
        self.store = self.again()

    def again(self) -> MemoryStore:
        """As another process would open it."""
        return MemoryStore(FolderBackend(self.place, self.state), self.clock, emit=self.events.append)

    def fill(self, count: int, description: str = "d") -> None:
        """So many memories, each a second younger than the one before."""
        self.place.mkdir(exist_ok=True)
        for n in range(count):
            path = self.place / f"m{n:03}.md"
            path.write_text(f"---\nname: m{n}\ndescription: {description}\ntype: project\n---\nbox {n}\n")
            os.utime(path, (1_000 + n, 1_000 + n))
        self.store.take_in()

    def add(self, name: str, body: str = "text") -> None:
        self.store.add(type="project", name=name, description="d", body=body, new=True)

    @property
    def index(self) -> str:
        return (self.place / "MEMORY.md").read_text("utf-8")

    @property
    def listed(self) -> list[str]:
        return [one.file for one in read_index(self.index).pointers]

    @property
    def warnings(self) -> list[str]:
        return [one.text for one in self.events if isinstance(one, Notice)]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_every_one_of_many_memories_is_saved(folder: Folder) -> None:
    for n in range(240):
        about = f"Rack {n * 7919 + 13} of the store in the north wing holds the boxes with number {n:04}"
        saved = folder.store.add(
            type="project", name=f"rack-{n}", description=f"{about} and all that belongs to it", body=about
        )
        assert saved.action == "created"
    assert len(folder.store.topics()) == 240
    assert list_exceeded_limits(folder.index) == []
    assert folder.listed == [f"rack-{n}.md" for n in range(240 - len(folder.listed), 240)]
    assert folder.index.endswith(f"\n{format_unlisted(240 - len(folder.listed))}\n")
    assert folder.store.loaded_index() == folder.index
    assert folder.warnings == []
    assert folder.store.recall("Which boxes does rack 13 of the north wing hold?")[0].file == "rack-0.md"


def test_what_the_agent_writes_is_saved_too(folder: Folder) -> None:
    folder.fill(220)
    path = folder.place / "always.md"
    data = b"---\nname: always\ndescription: The tests take ten minutes\ntype: project\n---\nAll.\n"
    folder.store.before_write(path, data, author=AGENT)
    path.write_bytes(data)
    [saved] = folder.store.after_write(path, author=AGENT)
    assert saved.action == "created"
    assert folder.listed[-1] == "always.md"
    folder.store.before_write(folder.place / "MEMORY.md", b"- x\n" * 201)


def test_the_line_of_the_oldest_memory_makes_room_and_the_order_stays(folder: Folder) -> None:
    folder.fill(220)
    assert folder.listed == [f"m{n:03}.md" for n in range(21, 220)]
    assert folder.index.endswith("\n- 21 more memories are not listed here; recall finds them\n")
    folder.add("one more")
    assert folder.listed == [*(f"m{n:03}.md" for n in range(22, 220)), "one-more.md"]
    assert folder.index.endswith("\n- 22 more memories are not listed here; recall finds them\n")
    assert len(folder.index.splitlines()) == LINES


def test_when_memories_go_the_newest_of_the_others_get_their_lines_back(folder: Folder) -> None:
    folder.fill(202)
    assert "m002.md" not in folder.listed
    folder.store.remove("m100")
    assert "m002.md" in folder.listed
    assert folder.index.endswith("\n- 2 more memories are not listed here; recall finds them\n")
    folder.store.remove("m101")
    assert len(folder.listed) == 200
    assert "not listed here" not in folder.index


def test_an_old_memory_that_changes_gets_its_line_back(folder: Folder) -> None:
    folder.fill(220)
    assert "m003.md" not in folder.listed
    folder.store.edit("m003", body="it moved to the south wing")
    assert folder.listed[-1] == "m003.md"
    assert "m021.md" not in folder.listed
    assert folder.index.endswith("\n- 21 more memories are not listed here; recall finds them\n")


def test_a_memory_that_was_recalled_keeps_its_line_or_gets_it_back(folder: Folder) -> None:
    folder.fill(220)
    stamps = {path: path.stat() for path in folder.place.iterdir()}
    assert [one.file for one in folder.store.recall("what is in box 21?")][:1] == [
        "m021.md"
    ]  # the next to go
    assert [one.file for one in folder.store.recall("what is in box 3?")][:1] == ["m003.md"]  # has no line
    assert {path: path.stat() for path in folder.place.iterdir()} == stamps, "no memory is touched"
    folder.store.close()
    folder.store = folder.again()
    folder.add("one more")
    assert {"m021.md", "m003.md", "one-more.md"} <= {*folder.listed}
    assert {"m022.md", "m023.md"}.isdisjoint(folder.listed)
    assert folder.index.endswith("\n- 22 more memories are not listed here; recall finds them\n")


def test_what_was_recalled_is_forgotten_with_a_purge(folder: Folder) -> None:
    folder.fill(12)
    folder.store.recall("what is in box 3?")
    folder.store.close()
    assert b"m003.md" in (folder.state / "recalls.json").read_bytes()
    folder.store.recall("what is in box 3?")
    folder.store.purge("m003")
    folder.store.close()
    assert b"m003.md" not in (folder.state / "recalls.json").read_bytes()


def test_a_line_that_a_person_wrote_never_makes_room(folder: Folder) -> None:
    by_hand = "".join(f"- [my {n}](m{n:03}.md) — mine\n" for n in range(199)) + "And prose.\n"
    folder.place.mkdir()
    (folder.place / "MEMORY.md").write_text(by_hand)
    folder.fill(200)
    folder.add("one more")
    assert folder.store.get("one more").body == "text"
    assert folder.index.startswith(by_hand)
    assert split_unlisted(folder.index)[1] == 2


def test_an_index_that_a_person_wrote_beyond_the_limit_stays_and_one_warning_says_what_is_left_out(
    folder: Folder,
) -> None:
    by_hand = "# Mine\n" + "".join(f"- [my {n}](m{n:03}.md) — mine\n" for n in range(399))
    folder.place.mkdir()
    (folder.place / "MEMORY.md").write_text(by_hand)
    folder.fill(399)
    folder.add("one more")
    assert folder.index.startswith(by_hand)
    seen = folder.store.loaded_index()
    assert seen == folder.store.loaded_index()
    assert list_exceeded_limits(seen) == []
    assert "- [my 398](m398.md) — mine\n" in seen
    [said] = folder.warnings
    assert "MEMORY.md has 400 lines, 200 over the limit of 200" in said
    assert "201 pointers, to the oldest memories, left out: m000.md, m001.md, " in said
    assert "and 193 more; 1 more memory has no line in it" in said
    assert "> Warning: MEMORY.md has 400 lines, 200 over the limit of 200; 201 pointers" in seen


def test_an_index_too_large_to_be_kept_stays_as_it_is_and_the_memory_is_saved(folder: Folder) -> None:
    huge = "A line of a diary that grows.\n" * (HEAD // 20)
    folder.place.mkdir()
    (folder.place / "MEMORY.md").write_text(huge)
    folder.add("one more")
    assert folder.store.get("one more").body == "text"
    assert folder.index == huge
    assert any("stays as it is: new memories get no line in it" in said for said in folder.warnings)


def test_a_session_sees_an_index_of_a_folder_that_has_none(folder: Folder) -> None:
    folder.fill(1_000)
    (folder.place / "MEMORY.md").unlink()
    seen = folder.again().loaded_index()
    assert len(seen.splitlines()) == LINES
    assert seen.endswith("(m999.md) — d\n- 801 more memories are not listed here; recall finds them\n")
    assert not (folder.place / "MEMORY.md").exists()
    folder.store.take_in()
    assert folder.index == seen


def test_the_count_of_another_program_is_put_right_and_never_doubled(folder: Folder) -> None:
    folder.fill(220)
    wrong = (
        folder.index.replace("- 21 more", "- 5 more")
        + "- 7 more memories are not listed here; recall finds them\n"
    )
    (folder.place / "MEMORY.md").write_text(wrong)
    folder.store.take_in()
    assert folder.index.count("not listed here") == 1
    assert split_unlisted(folder.index)[1] == 21


def test_undo_brings_back_the_line_that_made_room(folder: Folder) -> None:
    folder.fill(220)
    before = folder.index
    folder.add("one more")
    folder.store.undo()
    assert sorted(folder.index.splitlines()) == sorted(before.splitlines())


memories = st.dictionaries(
    st.sampled_from([f"n{n}.md" for n in range(300)]), st.floats(0, 100), min_size=0, max_size=300
)


@given(memories, st.integers(0, 210), st.sampled_from(["hook", "x" * 120]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_lines_and_count_make_up_all_memories_and_what_stays_is_newer(
    times: dict[str, float], prose: int, about: str, again: bool
) -> None:
    topics = {
        file: read_topic(f"---\nname: {file}\ndescription: {about}\n---\nb\n".encode(), file)
        for file in times
    }
    names = {file: topic.name for file, topic in topics.items()}
    ours = [format_pointer(topics[file]) + "\n" for file in sorted(times)[::2]]
    text = "".join([*ours, *(f"line {n}\n" for n in range(prose))])

    def fitted(text: str) -> str:
        return complete_index(text, names, (), recency=times.__getitem__, read=topics.get)

    new = fitted(text)
    assert fitted(new) == new
    listed = {one.file for one in read_index(new).pointers}
    bare, unlisted = split_unlisted(new)
    assert len(listed) + unlisted == len(times)
    assert len(new) <= CHARACTERS
    assert len(new.splitlines()) <= LINES or not listed
    assert [line for line in bare.splitlines() if line.startswith("line ")] == [
        f"line {n}" for n in range(prose)
    ]
    left_out = max((times[file] for file in times.keys() - listed), default=-math.inf)
    assert all(times[file] >= left_out for file in listed)
