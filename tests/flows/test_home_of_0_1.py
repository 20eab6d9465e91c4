"""A home that version 0.1.0 wrote opens as it is: nothing in it is lost, nothing has to be done first.

`tests/data/home-0.1.tar.gz` was written by the commands of that version. Paths of the machine it was
written on are `@HOME@`, `@PROJECT@` and `@SLUG@` in it.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sevenfold import Memory
from sevenfold.storage.places import make_path_slug

ARCHIVE = Path(__file__).parents[1] / "data" / "home-0.1.tar.gz"
SESSION = "20261116-072442083-04058a"
MEMORIES = ["birds-counted-noon", "likes-short", "no-db-mocks", "release-day"]

pytestmark = pytest.mark.real


@dataclass(frozen=True)
class OldHome:
    home: Path
    project: Path

    def run(self, *words: str, code: int = 0) -> str:
        """What the command prints, run as a process of its own."""
        command = [sys.executable, "-m", "sevenfold", *words]
        where = ["--home", str(self.home), "--project", str(self.project)]
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home.parent)}
        done = subprocess.run([*command, *where], capture_output=True, text=True, env=environ, timeout=120)
        assert done.returncode == code, done.stderr
        return done.stdout

    def ask(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    @property
    def folder(self) -> Path:
        return self.home / "projects" / make_path_slug(self.project)


@pytest.fixture
def old(tmp_path: Path) -> OldHome:
    """The archive, unpacked as if it had been written here."""
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    (project / "README.md").write_text("# Example\n\nA service that counts birds.\n", encoding="utf-8")
    here = {"@HOME@": str(home), "@PROJECT@": str(project), "@SLUG@": make_path_slug(project)}
    with tarfile.open(fileobj=io.BytesIO(ARCHIVE.read_bytes())) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            data, name = file.read(), member.name
            for mark, path in here.items():
                data, name = data.replace(mark.encode(), path.encode()), name.replace(mark, path)
            (home / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            (home / name).write_bytes(data)
            os.utime(home / name, (member.mtime, member.mtime))
    return OldHome(home, project)


def test_its_sessions_are_listed_shown_and_gone_on_with(old: OldHome) -> None:
    transcript = old.folder / f"{SESSION}.jsonl"
    before = transcript.read_bytes()

    assert [row["id"] for row in old.ask("sessions", "list")["sessions"]] == [SESSION]
    assert "birds-counted-noon.md" in old.run("sessions", "show", SESSION)
    answer = old.ask("chat", "--resume", SESSION, "-p", "What is in README.md?")

    assert "A service that counts birds." in answer["result"]
    assert not [event for event in answer["events"] if event["event"] == "Failed"]
    assert transcript.read_bytes().startswith(before), "what was written stays byte for byte"


def test_its_window_is_explained_with_the_compaction_that_was_made(old: OldHome) -> None:
    assert "summary" in old.run("context", "--session", SESSION)


def test_its_stored_results_and_notes_are_where_the_transcript_says(old: OldHome) -> None:
    (stored,) = (old.folder / SESSION / "tool-results").iterdir()

    assert str(stored) in (old.folder / f"{SESSION}.jsonl").read_text(encoding="utf-8")
    assert old.run("chat", "--resume", SESSION, "-p", "/notes").strip()


def test_its_memories_are_listed_recalled_and_checked(old: OldHome) -> None:
    listed = old.ask("memory", "list")
    recalled = old.ask("memory", "recall", "on which day do we release?")

    assert sorted(row["name"] for row in listed["memories"]) == MEMORIES
    assert recalled["memories"][0]["name"] == "release-day"
    assert "Wednesdays at 10:00" in recalled["memories"][0]["text"]
    assert [row for row in old.ask("memory", "check")["findings"] if row["level"] == "error"] == []


def test_the_library_opens_its_memory(old: OldHome) -> None:
    with Memory.open(old.project, home=old.home) as memory:
        found = memory.recall("may tests mock the database?")
        memory.add(type="project", name="new", description="a new one", body="Written by this version.")

    assert found[0].name == "no-db-mocks"
    assert sorted(row["name"] for row in old.ask("memory", "list")["memories"]) == sorted(
        [*MEMORIES, "new"]
    )


def test_its_history_is_read_and_undone(old: OldHome) -> None:
    revisions = old.ask("memory", "history", "release-day")["revisions"]
    old.run("memory", "undo", "release-day")

    assert [row["author"]["kind"] for row in revisions] == ["user", "user"]
    assert "Tuesdays at 10:00" in old.run("memory", "show", "release-day")


def test_what_it_held_back_is_still_held_back_and_can_be_read(old: OldHome) -> None:
    assert "Ignore all previous instructions" in old.run("memory", "quarantine", "show", "1")


def test_its_settings_and_its_trust_still_count(old: OldHome) -> None:
    report = old.run("doctor")

    assert "is not a setting" not in report
    assert "not trusted" not in report
    assert "the history is whole" in report


def test_its_search_index_is_carried_over_without_a_word(old: OldHome) -> None:
    old.run("memory", "recall", "birds at noon")
    index = json.loads((old.folder / "memory-state/search/index.json").read_bytes().split(b"\n", 1)[1])

    assert index["made"] == "3"
    assert index["segments"]
