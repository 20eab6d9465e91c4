"""`sevenfold.Memory`: the door for programs."""

from __future__ import annotations

from pathlib import Path

import pytest

import sevenfold
from sevenfold.core.errors import Mistake, Refused
from sevenfold.core.events import Event, Notice
from sevenfold.memory.store import Memory, MemoryOff, MemoryStore
from sevenfold.storage.places import make_path_slug
from sevenfold.testing import FakeClock


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("project", "user"):
        (tmp_path / name).mkdir()
    return tmp_path / "project"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "user"), "SEVENFOLD_HOME": str(tmp_path / "home")}


def save(memory: Memory, name: str = "no-db-mocks", body: str = "Never mock the database.") -> Path:
    saved = memory.add(type="feedback", name=name, description="How we test SQL", body=body)
    return saved.path


def test_it_is_a_public_name() -> None:
    assert sevenfold.Memory is Memory
    assert issubclass(Memory, MemoryStore)


def test_what_is_saved_is_found_again(project: Path, environ: dict[str, str]) -> None:
    with Memory.open(project, environ=environ) as memory:
        path = save(memory)

    with Memory.open(str(project), environ=environ) as memory:
        assert path == memory.path_of("no-db-mocks.md")
        assert [one.name for one in memory.recall("how do we test SQL?")] == ["no-db-mocks"]
        assert [one.summary for one in memory.history()] == ["added no-db-mocks"]


def test_opening_makes_nothing(project: Path, environ: dict[str, str], tmp_path: Path) -> None:
    with Memory.open(project, environ=environ) as memory:
        assert memory.topics() == []

    assert not (tmp_path / "home").exists()


def test_it_is_in_the_home_that_is_named(project: Path, environ: dict[str, str], tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    with Memory.open(project, home=other, environ=environ) as memory:
        assert memory.path_of() == other / "projects" / make_path_slug(project) / "memory"


def test_a_folder_of_claude_code_is_shared_and_the_history_stays_ours(
    project: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    shared = tmp_path / "user" / ".claude"
    with Memory.open(project, home=shared, environ=environ) as memory:
        save(memory)

    assert memory.path_of().is_relative_to(shared)
    assert memory.local.is_relative_to(tmp_path / "home")


def test_folders_of_one_repository_share_one_memory(project: Path, environ: dict[str, str]) -> None:
    (project / ".git").mkdir()
    (project / ".git" / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    for name in ("objects", "refs"):
        (project / ".git" / name).mkdir()
    (project / "src").mkdir()

    whole, part = (Memory.open(at, environ=environ) for at in (project, project / "src"))

    assert whole.path_of() == part.path_of()
    scoped = Memory.open(project / "src", settings={"scope": "folder"}, environ=environ)
    assert scoped.path_of() != whole.path_of()


@pytest.mark.parametrize(
    ("variables", "settings", "why"),
    [
        ({"SEVENFOLD_DISABLE_MEMORY": "1"}, {}, "SEVENFOLD_DISABLE_MEMORY is set"),
        ({"SEVENFOLD_BARE": "1"}, {}, "a bare session"),
        ({}, {"memoryEnabled": False}, "memoryEnabled is false"),
    ],
)
def test_where_memory_is_off_it_says_why(
    project: Path, environ: dict[str, str], variables: dict[str, str], settings: dict[str, bool], why: str
) -> None:
    with pytest.raises(MemoryOff, match=why) as raised:
        Memory.open(project, settings=settings, environ=environ | variables)

    assert isinstance(raised.value, Mistake)


def test_what_the_user_should_know_is_told(project: Path, environ: dict[str, str]) -> None:
    told: list[Event] = []
    shared = Path(environ["HOME"]) / ".claude"
    environ["SEVENFOLD_MEMORY_PATH"] = "~"
    with pytest.raises(Mistake, match="SEVENFOLD_MEMORY_PATH"):
        Memory.open(project, environ=environ, emit=told.append)
    del environ["SEVENFOLD_MEMORY_PATH"]
    place = Memory.open(project, home=shared, environ=environ, emit=told.append)
    place.local.mkdir(parents=True)
    (place.local / "root.json").write_text('{"root": "/another"}', encoding="utf-8")

    Memory.open(project, home=shared, environ=environ, emit=told.append)

    assert [isinstance(event, Notice) and "/another" in event.text for event in told] == [True]


def test_the_clock_is_an_argument(project: Path, environ: dict[str, str]) -> None:
    with Memory.open(project, environ=environ, clock=FakeClock(1_000_000.0)) as memory:
        save(memory)
        assert memory.history()[0].at == 1_000_000.0


# --- a file that was edited as a whole -------------------------------------------------------------------


def test_a_file_is_rewritten_byte_for_byte(project: Path, environ: dict[str, str]) -> None:
    with Memory.open(project, environ=environ) as memory:
        path = save(memory)
        data = path.read_bytes().replace(b"How we test SQL", b"Another hook") + b"\nkept: as is\n"

        saved = memory.rewrite("no-db-mocks", data)

        assert path.read_bytes() == data
        assert (saved.action, saved.name) == ("updated", "no-db-mocks")
        assert "Another hook" in memory.index_text()
        assert memory.history()[0].summary == "edited no-db-mocks"
        assert memory.rewrite("no-db-mocks", data).revision == ""
        memory.undo("no-db-mocks")
        assert "How we test SQL" in path.read_text(encoding="utf-8")


def test_what_is_no_text_or_holds_a_secret_does_not_become_a_memory(
    project: Path, environ: dict[str, str]
) -> None:
    with Memory.open(project, environ=environ) as memory:
        path = save(memory)
        before = path.read_bytes()

        with pytest.raises(Mistake, match="no text"):
            memory.rewrite("no-db-mocks", b"\0\1")
        with pytest.raises(Refused, match="AWS"):
            memory.rewrite("no-db-mocks", before + b"AKIAIOSFODNN7EXAMPLZ\n")

        assert path.read_bytes() == before


def test_the_files_are_for_their_user_alone(project: Path, environ: dict[str, str]) -> None:
    with Memory.open(project, environ=environ) as memory:
        path = save(memory)

    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
