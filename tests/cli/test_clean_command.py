"""`sevenfold sessions clean`: what it lists, what it removes, what it says."""

from __future__ import annotations

import os
from pathlib import Path

from cli.conftest import Here
from cli.world import World

from sevenfold.storage.results import ResultStore

DAY = 86_400


def aged(path: Path, days: float) -> None:
    """As if nobody had touched it for so long."""
    stat = path.stat()
    os.utime(path, (stat.st_atime - days * DAY, stat.st_mtime - days * DAY))


def session_with_results(here: Here, world: World, *ids: str) -> str:
    """A session that says it has these results on disk; a second of each is not mentioned."""
    path = world.home / "projects"
    session = str(here("-p", f"hello {' '.join(f'{id}.txt' for id in ids)}", "--json").json["session"])
    [transcript] = path.glob(f"*/{session}.jsonl")
    store = ResultStore(lambda: transcript.with_suffix("") / "tool-results")
    for id in ids:
        store.keep(id, "x" * 1_000)
        store.keep(f"{id}-loose", "y" * 1_000)
    return session


def stored(world: World) -> list[str]:
    return sorted(p.name for p in world.home.glob("projects/*/*/tool-results/*"))


def test_an_old_session_goes_and_a_new_one_stays(here: Here, world: World) -> None:
    old, new = (session_with_results(here, world, id) for id in ("a", "b"))
    for path in world.home.rglob(f"{old}*"):
        for file in [path, *path.rglob("*")]:
            aged(file, 31)

    ran = here("sessions", "clean", "--json")

    assert ran.code == 0
    assert ran.json["sessions"] == [old]
    assert (ran.json["files"], ran.json["in_use"], ran.json["problems"]) == (3, 0, [])
    assert ran.json["bytes"] > 2_000
    assert ran.json["project"] == str(world.project)
    assert (ran.json["days"], ran.json["dry_run"]) == (30, False)
    assert [s["id"] for s in here("sessions", "--json").json["sessions"]] == [new]


def test_a_dry_run_lists_and_keeps(here: Here, world: World) -> None:
    session = session_with_results(here, world, "a")
    for file in world.home.glob("projects/*/*/tool-results/*"):
        aged(file, 3)

    ran = here("sessions", "clean", "--days", "2", "--dry-run")

    assert ran.out.splitlines() == [
        f"{session}/tool-results/a-loose.txt",
        "would remove 1 file, 1.0 kB; 1 more still in use and kept",
    ]
    assert stored(world) == ["a-loose.txt", "a.txt"]
    assert here("sessions", "clean", "--days", "2").out == (
        "removed 1 file, 1.0 kB; 1 more still in use and kept\n"
    )
    assert stored(world) == ["a.txt"]


def test_the_settings_say_how_long_and_how_much(here: Here, world: World) -> None:
    session_with_results(here, world, "a")
    [loose] = world.home.glob("projects/*/*/tool-results/a-loose.txt")
    loose.write_bytes(b"z" * 2_000_000)
    world.settings({"cleanupDays": 7, "toolResults": {"quotaMegabytes": 1}})

    done = here("sessions", "clean", "--json").json

    assert done["days"] == 7
    assert done["bytes"] == 2_000_000
    assert stored(world) == ["a.txt"]


def test_without_anything_to_clean_it_says_so(here: Here, world: World) -> None:
    assert here("sessions", "clean").out == "removed 0 files, 0 bytes\n"
    assert not world.home.exists()


def test_what_could_not_be_done_is_said_and_the_code_is_one(here: Here, world: World) -> None:
    session_with_results(here, world, "a")
    [transcript] = world.transcripts
    with transcript.open("ab") as file:
        file.write(b"{damaged\n")
    for file_ in [transcript, *transcript.with_suffix("").rglob("*")]:
        aged(file_, 40)

    ran = here("sessions", "clean", "--json")

    assert ran.code == 1
    assert ran.json["files"] == 0
    [problem] = ran.json["problems"]
    assert "cannot be read" in problem
    assert problem in ran.err


def test_zero_days_are_wrong_usage(here: Here) -> None:
    assert here("sessions", "clean", "--days", "0").code == 2
