"""Whose memory it is: two projects whose paths give one name never share a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sevenfold.core.errors import Mistake
from sevenfold.core.events import Event, Notice
from sevenfold.memory.store import Memory
from sevenfold.session.session import Session
from sevenfold.storage.places import ROOT_FILE, make_path_slug
from sevenfold.testing import ScriptedModel

pytestmark = pytest.mark.anyio


@pytest.fixture
def alike(tmp_path: Path) -> tuple[Path, Path]:
    """Two projects with one slug."""
    for name in ("a-b", "a_b", "user"):
        (tmp_path / name).mkdir()
    return tmp_path / "a-b", tmp_path / "a_b"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "user"), "SEVENFOLD_HOME": str(tmp_path / "home")}


def save(memory: Memory, name: str) -> Path:
    body = f"What {name} says."
    return memory.add(type="project", name=name, description=f"About {name}", body=body).path


def test_the_first_memory_writes_down_whose_folder_it_is(
    alike: tuple[Path, Path], environ: dict[str, str]
) -> None:
    one, two = alike
    assert make_path_slug(one) == make_path_slug(two)
    with Memory.open(one, environ=environ) as memory:
        save(memory, "mine")

    record = memory.path_of().parent / ROOT_FILE
    assert json.loads(record.read_bytes()) == {"root": str(one)}
    with Memory.open(two, environ=environ) as other:
        assert other.topics() == []
        assert other.path_of() != memory.path_of()


def test_of_two_that_were_opened_together_the_slower_one_moves(
    alike: tuple[Path, Path], environ: dict[str, str]
) -> None:
    one, two = (Memory.open(at, environ=environ) for at in alike)
    assert one.path_of() == two.path_of()
    first, second = save(one, "mine"), save(two, "theirs")

    assert first.parent != second.parent
    assert second.parent == two.path_of() == Memory.open(alike[1], environ=environ).path_of()
    assert [topic.name for topic in one.topics()] == ["mine"]
    assert [topic.name for topic in two.topics()] == ["theirs"]
    assert [len(each.history()) for each in (one, two)] == [1, 1]
    one.close()
    two.close()


def test_a_folder_that_somebody_named_is_shared_by_whoever_names_it(
    alike: tuple[Path, Path], environ: dict[str, str], tmp_path: Path
) -> None:
    variables = environ | {"SEVENFOLD_MEMORY_PATH": str(tmp_path / "ours")}
    one, two = (Memory.open(at, environ=variables) for at in alike)
    save(one, "mine")

    assert [topic.name for topic in two.topics()] == ["mine"]
    one.close()


def test_in_the_folder_of_claude_code_the_second_is_told_and_both_share(
    alike: tuple[Path, Path], environ: dict[str, str], tmp_path: Path
) -> None:
    shared = tmp_path / "user" / ".claude"
    heard: list[Event] = []
    with Memory.open(alike[0], home=shared, environ=environ) as one:
        save(one, "mine")
    with Memory.open(alike[1], home=shared, environ=environ, emit=heard.append) as two:
        save(two, "theirs")

    assert one.path_of() == two.path_of()
    assert [each.text for each in heard if isinstance(each, Notice)] == [
        f"the memory of {alike[1]} is shared with {alike[0]}: both have the same name in the shared folder"
    ]


@pytest.mark.parametrize("way", ["link to it", "where it leads"])
def test_the_folder_of_claude_code_is_known_by_where_it_is_not_by_its_name(
    alike: tuple[Path, Path], environ: dict[str, str], tmp_path: Path, way: str
) -> None:
    theirs, other = tmp_path / "user" / ".claude", tmp_path / "elsewhere"
    if way == "link to it":
        theirs.mkdir()
        other.symlink_to(theirs)
    else:
        other.mkdir()
        theirs.symlink_to(other)
    with Memory.open(alike[0], home=other, environ=environ) as memory:
        save(memory, "mine")

    assert (theirs / "projects" / make_path_slug(alike[0]) / "memory" / "mine.md").is_file()
    assert memory.local.is_relative_to(tmp_path / "home")


async def test_a_conversation_finds_its_own_folder_after_a_memory_of_the_other(
    alike: tuple[Path, Path], environ: dict[str, str]
) -> None:
    with Memory.open(alike[0], environ=environ) as memory:
        save(memory, "mine")
    async with Session(ScriptedModel(["hello"]), alike[1], environ=environ) as session:
        await session.ask("hi")
        assert session.at.memory.folder != memory.path_of()
        assert session.path.is_relative_to(session.at.memory.folder.parent)

    with Memory.open(alike[0], environ=environ) as again:
        assert [topic.name for topic in again.topics()] == ["mine"]


async def test_a_conversation_that_was_too_slow_says_so_and_writes_nothing(
    alike: tuple[Path, Path], environ: dict[str, str]
) -> None:
    async with Session(ScriptedModel(["hello"]), alike[1], environ=environ) as session:
        with Memory.open(alike[0], environ=environ) as memory:
            save(memory, "mine")
        with pytest.raises(Mistake, match="belongs to another project"):
            await session.ask("hi")

    assert not list(memory.path_of().parent.glob("*.jsonl"))
