"""The instruction files of one conversation: opened with, added to, given back, cut where they must be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from memory.instructions.instruction_place import Place

from sevenfold.core.events import Event, Notice
from sevenfold.core.messages import Message, ToolUse, assistant, user
from sevenfold.core.tokens import estimate_tokens
from sevenfold.core.transcript import Replace, Reply, Transcript
from sevenfold.layers.l5_durable_memory.prompt import LOADED, InstructionLoader, format_opening, is_opening
from sevenfold.layers.shared.restore import CompactionCut
from sevenfold.memory.instructions.loader import InstructionFiles
from sevenfold.memory.instructions.reader import InstructionLimits

INDEX = "- [the port](port.md): which port it listens on"
LONG = "Keep every function short and plain.\n" * 100


class Told:
    """A conversation in a project, and what the user was told meanwhile."""

    def __init__(self, place: Place, index: str = INDEX) -> None:
        self.place, self.index = place, index
        self.events: list[Event] = []
        self.log = Transcript(lambda: 0.0)
        self.layer = self.begun()
        self.log.add(*self.layer.opening(), by="session")
        self.log.add(user("begin"))

    def begun(self, known: object = None) -> InstructionLoader:
        return InstructionLoader(
            self.files,
            self.said,
            is_opening,
            self.place.root.joinpath,
            self.events.append,
            known,
            besides=[Path("/memory/MEMORY.md")],
        )

    def files(self, already: Sequence[object], limits: InstructionLimits | None) -> InstructionFiles:
        return self.place.files(already=tuple(map(str, already)), limits=limits)

    def said(self, instructions: str, more: bool) -> list[Message]:
        text = format_opening(self.index if more else "", instructions)
        return [user(f"<context>\n{text}\n</context>")] if text else []

    def read(self, path: str) -> None:
        self.log.add(Reply(assistant(ToolUse("t1", "Read", {"file_path": path}))), by="model")

    def attach(self) -> str:
        handed = self.layer.attach(self.log.view)
        self.log.add(*handed, by="Instructing") if handed else None
        return "\n".join(one.text for one in handed if isinstance(one, Message))

    def again(self, room: int) -> str:
        """What comes back when all that is there is replaced."""
        cut = CompactionCut(self.log.view, range(len(self.log.view)), 200_000)
        return "\n".join(message.text for message in self.layer.again(cut, room))

    def replaced(self, room: int) -> str:
        """The same, and it is replaced."""
        text, view = self.again(room), self.log.view
        edit = Replace(view[0].id, view[len(view) - 1].id, (user("<summary>"),))
        self.log.add(edit, user(text), by="Compaction")
        return text

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    place = Place(tmp_path)
    place.write("CLAUDE.md", "HOUSE")
    return Told(place)


@pytest.fixture
def many(tmp_path: Path) -> Told:
    """The user's own rules, those of the project, and five that are long."""
    place = Place(tmp_path)
    place.write("CLAUDE.md", "OWN", top=place.home)
    place.write("CLAUDE.md", f"HOUSE\n{LONG}")
    for n in range(5):
        place.write(f".claude/rules/r{n}.md", f"RULE{n}\n{LONG}")
    return Told(place)


def test_what_comes_back_is_as_it_is_by_then(told: Told) -> None:
    told.place.write("CLAUDE.md", "HOUSE, AND THE GARDEN")
    told.index = "- [the colour](colour.md): which colour"
    text = told.again(10_000)

    assert "HOUSE, AND THE GARDEN" in text
    assert "the colour" in text
    assert "the port" not in text


def test_what_has_not_left_the_view_does_not_come_back(told: Told) -> None:
    cut = CompactionCut(told.log.view, range(1, len(told.log.view)), 200_000)
    assert told.layer.again(cut, 10_000) == ()


def test_a_nested_file_comes_again_after_a_compaction_and_not_without_one(told: Told) -> None:
    told.place.write("a/CLAUDE.md", "NESTED")
    told.read("a/x.py")
    assert "NESTED" in told.attach()
    told.again(10_000)  # and then the compaction was declined
    told.read("a/x.py")
    assert told.attach() == ""
    told.replaced(10_000)
    told.read("a/x.py")
    assert "NESTED" in told.attach()

    told.again(10_000)  # the next one was declined again, and the opening of the last is still there
    told.read("a/x.py")
    assert told.attach() == ""


def test_after_a_compaction_the_mark_says_what_is_there(told: Told) -> None:
    told.place.write("a/CLAUDE.md", "NESTED")
    told.read("a/x.py")
    told.attach()
    assert len(told.log.view.marks[LOADED]) == 2
    told.replaced(10_000)
    told.attach()

    assert told.log.view.marks[LOADED] == [str(told.place.root / "CLAUDE.md")]
    assert told.begun(told.log.view.marks[LOADED]).files.known == told.layer.files.known


def test_where_there_is_too_little_room_whole_files_go_and_the_users_own_stay(many: Told) -> None:
    whole = estimate_tokens(many.again(1_000_000))
    text = many.again(whole // 2)
    there = [f"RULE{n}" in text for n in range(5)]

    assert estimate_tokens(text) <= whole // 2
    assert "OWN" in text
    assert f"HOUSE\n{LONG.strip()}" in text
    assert INDEX in text
    assert 0 < sum(there) < 5
    for n, shown in enumerate(there):
        assert (f"- {many.place.root}/.claude/rules/r{n}.md" in text) is not shown


def test_the_user_is_told_what_was_left_out_once_it_is_so(many: Told) -> None:
    whole = estimate_tokens(many.again(1_000_000))
    many.again(whole // 2)
    many.attach()
    assert many.notices == [], "nothing was replaced"
    text = many.replaced(whole // 2)
    many.attach()
    [notice] = many.notices

    assert f"{many.place.root}/.claude/rules/r4.md" in notice
    assert "RULE4" not in text
    many.read(".claude/rules/r4.md")
    assert many.attach() == "", "it is for the model to read it"


@pytest.mark.parametrize("room", [0, 10, 60])
def test_when_nothing_has_room_everything_is_named(many: Told, room: int) -> None:
    text = many.replaced(room)
    many.attach()

    for name in ("user/.sevenfold/CLAUDE.md", "project/CLAUDE.md", "rules/r4.md"):
        assert f"{name}\n" in text
        assert name in many.notices[-1]
    assert "- /memory/MEMORY.md" in text
    assert "/memory/MEMORY.md" in many.notices[-1]
    assert LONG not in text
    assert any(is_opening(placed) for placed in many.log.view)


def test_text_that_is_no_ascii_is_cut_to_its_tokens_too(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for n in range(4):
        place.write(f".claude/rules/r{n}.md", f"RULE{n}\n" + "短く書くこと。\n" * 300)
    told = Told(place)
    whole = estimate_tokens(told.again(1_000_000))

    assert estimate_tokens(told.again(whole // 2)) <= whole // 2


def test_nothing_comes_back_where_there_is_nothing(tmp_path: Path) -> None:
    told = Told(Place(tmp_path), index="")

    assert told.log.view[0].message == user("begin")
    assert told.again(1_000) == ""
