"""Extraction and dreams beside another agent: off unless switched on, detached, within the day's limit."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from cli.conftest import Here
from cli.world import World
from recordings.lines import make_claude_code_line

SAID = "Remember that prices are kept in whole cents, never rounded."
PATIENCE = 60.0


@pytest.fixture
def transcript(world: World) -> Path:
    path = world.user / ".claude" / "projects" / "shop" / "s-1.jsonl"
    path.parent.mkdir(parents=True)
    lines = [make_claude_code_line(0, "user", SAID), make_claude_code_line(1, "assistant", "Noted.")]
    path.write_text(
        "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines), encoding="utf-8"
    )
    return path


@pytest.fixture
def memory(here: Here, world: World) -> Path:
    return Path(here("memory", "path", "--home", str(world.user / ".claude")).out.strip())


def switch_on(world: World, **settings: bool) -> None:
    world.home.mkdir(parents=True, exist_ok=True)
    (world.home / "settings.json").write_text(json.dumps({"clients": settings}), encoding="utf-8")


def stop(here: Here, world: World, transcript: Path) -> None:
    event = {"session_id": "s-1", "cwd": str(world.project), "transcript_path": str(transcript)}
    assert here("hook", "Stop", stdin=json.dumps(event).encode()).code == 0


def wait_for(path: Path) -> bool:
    until = time.monotonic() + PATIENCE
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.05)
    return path.exists()


def is_all_ended(world: World) -> bool:
    until = time.monotonic() + PATIENCE
    while list_processes(world) and time.monotonic() < until:
        time.sleep(0.05)
    return not list_processes(world)


def list_processes(world: World) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={world.user}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_a_recorded_session_is_learned_from_once(
    here: Here, world: World, transcript: Path, memory: Path
) -> None:
    words = (
        "memory",
        "learn",
        str(transcript),
        "--model",
        "offline",
        "--home",
        str(world.user / ".claude"),
    )

    learned = here(*words, "--json")

    assert learned.code == 0, learned.err
    assert len(learned.json["memories"]) == 1
    (file,) = [path for path in memory.glob("*.md") if path.name != "MEMORY.md"]
    assert "whole cents" in file.read_text(encoding="utf-8")
    assert here(*words, "--json").json["memories"] == []
    assert here("sessions", "--json", "--home", str(world.user / ".claude")).json["sessions"] == []


def test_nothing_runs_unless_it_is_switched_on(here: Here, world: World, transcript: Path) -> None:
    stop(here, world, transcript)

    assert list_processes(world) == []


@pytest.mark.real
def test_lasting_words_are_learned_behind_the_clients_back(
    here: Here, world: World, transcript: Path, memory: Path
) -> None:
    switch_on(world, extraction=True)

    stop(here, world, transcript)

    assert wait_for(memory / "MEMORY.md")
    assert is_all_ended(world)
    assert "whole cents" in "".join(path.read_text(encoding="utf-8") for path in memory.glob("*.md"))
    stop(here, world, transcript)  # nothing new was said
    assert list_processes(world) == []


@pytest.mark.real
def test_a_dream_begins_when_it_is_due(here: Here, world: World, transcript: Path, memory: Path) -> None:
    switch_on(world, dreams=True)
    home = ("--home", str(world.user / ".claude"))
    words = ("--type", "project", "--name", "a", "--description", "d", "--body", "Prices are in cents.")
    here("memory", "add", *words, *home)
    stop(here, world, transcript)
    assert list_processes(world) == []  # one session is not enough

    for number in range(2, 9):
        os.link(transcript, transcript.with_name(f"s-{number}.jsonl"))
    stop(here, world, transcript)

    assert wait_for(memory / ".consolidate-lock")
    assert is_all_ended(world)
