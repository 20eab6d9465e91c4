"""Undo goes back step by step, redo goes forward, and what others did in between stays."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sevenfold.core.errors import Mistake, Refused
from sevenfold.core.events import Event, Notice
from sevenfold.memory.backend import MemoryBackend
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.folder.undo import take_back_lines
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import MemoryStore
from sevenfold.testing import FakeClock, InMemoryBackend

AGENT = Author("agent", "s1")
USER = Author("user")


class Home:
    """A memory, its folder, and what was said."""

    def __init__(self, backend: MemoryBackend) -> None:
        self.events: list[Event] = []
        self.clock = FakeClock()
        self.store = MemoryStore(backend, self.clock, emit=self.events.append)

    def add(self, name: str, body: str = "text", author: Author = USER) -> None:
        self.clock.time += 60
        self.store.add(
            type="project", name=name, description=f"About {name}", body=body, author=author, new=True
        )

    def hand(self, file: str, text: str) -> None:
        path = self.store.path_of(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    @property
    def files(self) -> dict[str, bytes]:
        with self.store.backend.opened(make=True) as at:
            return {file: at.read(file)[0] for file in at.list().files}

    @property
    def names(self) -> list[str]:
        return [topic.name for topic in self.store.topics()]

    @property
    def said(self) -> str:
        return "\n".join(event.text for event in self.events if isinstance(event, Notice))

    def log(self) -> list[tuple[str, str]]:
        """The author and the summary of each revision, oldest first."""
        return [(one.author.kind, one.summary) for one in reversed(self.store.history(limit=1_000))]


@pytest.fixture(params=["folder", "memory"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """A memory in a folder, and one in dictionaries."""
    folder = FolderBackend(tmp_path / "memory", tmp_path / "state")
    made = Home(folder if request.param == "folder" else InMemoryBackend())
    yield made
    made.store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Home]:
    made = Home(FolderBackend(tmp_path / "memory", tmp_path / "state"))
    yield made
    made.store.close()


def test_undo_again_goes_further_back_and_redo_goes_forward(home: Home) -> None:
    states = [home.files]
    for number in range(4):
        home.add(f"m{number}")
        states.append(home.files)
    for state in reversed(states[:-1]):
        home.store.undo()
        assert home.files == state
    with pytest.raises(Mistake, match="nothing to undo"):
        home.store.undo()
    for state in states[1:]:
        home.store.redo()
        assert home.files == state
    with pytest.raises(Mistake, match="nothing to redo"):
        home.store.redo()
    home.store.undo()
    assert home.files == states[-2]


def test_one_memory_goes_back_and_forward_by_itself(home: Home) -> None:
    home.add("a", "first")
    home.add("b")
    home.store.edit("a", body="second")
    home.store.edit("a", body="third")
    for body in ("second", "first"):
        home.store.undo("a")
        assert home.store.get("a").body == body
    for body in ("second", "third"):
        home.store.redo("a")
        assert home.store.get("a").body == body
    assert home.names == ["a", "b"]
    assert home.log()[-4:] == [
        ("user", "undid: edited a"),
        ("user", "undid: edited a"),
        ("user", "redid: edited a"),
        ("user", "redid: edited a"),
    ]


def test_a_removal_is_undone_and_redone(home: Home) -> None:
    home.add("a")
    home.store.remove("a")
    assert [one.action for one in home.store.undo()] == ["created"]
    assert home.names == ["a"]
    assert [one.action for one in home.store.redo()] == ["removed"]
    assert home.names == []


def test_a_new_change_ends_the_redo_of_its_author_and_not_that_of_others(home: Home) -> None:
    home.add("a")
    home.store.undo()
    home.add("by the agent", author=AGENT)
    home.store.redo()
    assert home.names == ["a", "by the agent"]
    home.store.undo()
    home.add("b")
    with pytest.raises(Mistake, match="nothing to redo"):
        home.store.redo()


def test_a_return_to_a_revision_is_one_step(home: Home) -> None:
    home.add("a", "first")
    home.add("b")
    there, then = home.store.history()[0].id, home.files
    home.store.edit("a", body="second")
    home.store.remove("b")
    home.add("c")
    newest = home.files
    home.store.undo(to=there)
    assert home.files == then
    home.store.redo()
    assert home.files == newest
    home.store.undo(to=there)
    home.store.undo()
    assert home.names == ["a"], "further back than the revision"


def test_undo_of_a_revision_that_changed_several_files_brings_back_each_byte(folder: Home) -> None:
    folder.hand("MEMORY.md", "# Mine\n\n* [One](one.md) — my words   \n")
    folder.hand("one.md", "no frontmatter, no line break")
    folder.store.take_in()
    before = folder.files
    folder.add("two")
    folder.store.undo()
    assert folder.files == before


# --- whose change it is -------------------------------------------------------------------------------


def agent_writes(home: Home, file: str, text: str) -> None:
    home.store.take_in()
    home.hand(file, text)
    home.store.after_write(home.store.path_of(file), author=AGENT)


def test_what_a_person_wrote_by_hand_is_not_the_agents_and_is_not_undone(folder: Home) -> None:
    agent_writes(folder, "tabs.md", "Use tabs.\n")
    folder.hand("mine.md", "Written by hand during the chat.\n")
    agent_writes(folder, "quotes.md", "Use double quotes.\n")
    assert [kind for kind, _ in folder.log()] == ["agent", "other", "agent"]
    folder.store.undo()
    assert folder.names == ["mine", "tabs"]
    folder.store.undo()
    assert folder.names == ["mine"]
    assert "mine.md" in folder.store.index_text()
    with pytest.raises(Mistake, match="name a memory"):
        folder.store.undo()
    folder.store.undo("mine")
    assert folder.names == []


def test_a_file_that_came_while_the_agent_wrote_is_not_the_agents(folder: Home) -> None:
    folder.add("first")
    folder.hand("mine.md", "Written by hand during the chat.\n")
    folder.hand("tabs.md", "Use tabs.\n")
    saved = folder.store.after_write(folder.store.path_of("tabs.md"), author=AGENT)
    assert [one.name for one in saved] == ["tabs"]
    assert folder.log()[1:] == [("other", "created mine"), ("agent", "created tabs")]
    folder.store.undo()
    assert folder.names == ["first", "mine"]


def test_lines_that_others_changed_since_stay(folder: Home) -> None:
    lines = "\n".join(f"- line {number}" for number in range(8))
    folder.add("a", lines)
    folder.store.edit("a", body=lines.replace("line 1", "LINE 1"), author=AGENT)
    path = folder.store.path_of("a.md")
    path.write_text(path.read_text("utf-8").replace("line 6", "line six"), "utf-8")
    folder.store.undo()
    assert folder.store.get("a").body == lines.replace("line 6", "line six")


def test_the_same_lines_changed_since_are_left_and_said(folder: Home) -> None:
    folder.add("a", "first")
    folder.store.edit("a", body="second", author=AGENT)
    path = folder.store.path_of("a.md")
    path.write_text(path.read_text("utf-8").replace("second", "by hand"), "utf-8")
    with pytest.raises(Mistake, match=r"a\.md was changed since by others"):
        folder.store.undo()
    assert folder.store.get("a").body == "by hand"
    folder.store.undo("a")
    assert folder.store.get("a").body == "second"
    folder.store.undo()
    assert folder.store.get("a").body == "first"


def test_a_change_of_many_files_is_taken_back_but_for_those_that_others_changed(folder: Home) -> None:
    folder.add("a")
    folder.add("b")
    there = folder.store.history()[0].id
    folder.store.edit("a", body="new")
    folder.store.edit("b", body="new")
    folder.store.undo(to=there, author=AGENT)
    path = folder.store.path_of("a.md")
    path.write_text(path.read_text("utf-8").replace("text", "by hand"), "utf-8")
    folder.store.redo()
    assert [topic.body for topic in folder.store.topics()] == ["by hand", "new"]
    assert "a.md stays as it is: the same lines were changed since" in folder.said
    folder.store.undo()
    assert [topic.body for topic in folder.store.topics()] == ["by hand", "text"]


# --- the index ----------------------------------------------------------------------------------------


def test_an_index_that_alone_was_changed_is_a_step_like_any_other(folder: Home) -> None:
    folder.add("a")
    before = folder.files
    index = folder.store.path_of("MEMORY.md")
    index.write_text(index.read_text("utf-8") + "\nA note of the agent.\n", "utf-8")
    folder.store.after_write(index, author=AGENT)
    folder.store.undo()
    assert folder.files == before
    folder.store.undo()
    assert folder.names == []


def test_a_hand_written_line_comes_back_with_its_memory(folder: Home) -> None:
    folder.add("a")
    folder.add("b")
    folder.hand("MEMORY.md", folder.store.index_text().replace("About a", "my own words about it"))
    folder.store.take_in()
    folder.store.remove("a")
    folder.add("c")
    folder.store.undo("a")
    assert folder.store.index_text() == (
        "- [a](a.md) — my own words about it\n- [b](b.md) — About b\n- [c](c.md) — About c\n"
    )


def test_a_pointer_to_a_file_that_never_was_keeps_its_words(folder: Home) -> None:
    folder.hand(
        "MEMORY.md", "# Mine\n- [Old rule](lost.md) — never deploy on Fridays\n| [T](t.md) | cell |\n"
    )
    folder.add("a")
    assert folder.store.index_text() == (
        "# Mine\n- Old rule — never deploy on Fridays\n| T | cell |\n- [a](a.md) — About a\n"
    )
    folder.store.path_of("a.md").unlink()
    folder.store.take_in()
    assert "a.md" not in folder.store.index_text(), "its words are in the history"


@pytest.mark.parametrize(
    ("made", "was", "now", "then"),
    [
        ("a\nb\n", "a\n", "a\nb\nc\n", "a\nc\n"),
        ("b\n", "a\nb\n", "b\nc\n", "a\nb\nc\n"),
        ("a\nx\n", "a\ny\n", "a\nx\nc\n", "a\ny\nc\n"),
        ("a\nx\n", "a\ny\n", "a\nz\n", "a\ny\nz\n"),
        ("", "a\nb\n", "c\n", "a\nb\nc\n"),
    ],
)
def test_lines_of_an_index_are_taken_back_among_those_of_others(
    made: str, was: str, now: str, then: str
) -> None:
    assert take_back_lines(made.encode(), was.encode(), now.encode()) == then.encode()


# --- the past -----------------------------------------------------------------------------------------


def test_steps_are_counted_anew_after_a_purge(folder: Home) -> None:
    folder.add("secret", "it goes")
    folder.add("a", "first")
    folder.store.edit("a", body="second")
    folder.store.undo()
    folder.store.purge("secret")
    with pytest.raises(Refused, match="the last change was a purge"):
        folder.store.redo()
    folder.store.redo("a")
    assert folder.store.get("a").body == "second"
    folder.store.undo("a")
    folder.store.undo("a")
    assert folder.names == []


@pytest.mark.parametrize("seed", range(3))
def test_any_chain_of_changes_undos_and_redos_goes_back_and_forward(folder: Home, seed: int) -> None:
    """The states of a stack, beside those of the folder."""
    rng = random.Random(seed)
    done, undone = [folder.files], list[dict[str, bytes]]()
    for step in range(30):
        act = rng.choice(["change", "change", "undo", "undo", "redo"])
        if act == "change":
            names = folder.names
            if names and rng.random() < 0.3:
                folder.store.remove(rng.choice(names))
            elif names and rng.random() < 0.5:
                folder.store.edit(rng.choice(names), body=f"text {step}")
            else:
                folder.add(f"m{step}", f"text {step}")
            done.append(folder.files)
            undone.clear()
        elif act == "undo" and len(done) > 1:
            folder.store.undo()
            undone.append(done.pop())
        elif act == "redo" and undone:
            folder.store.redo()
            done.append(undone.pop())
        assert folder.files == done[-1], (step, act)
