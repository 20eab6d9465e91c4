"""`sevenfold dream` and `/dream`: putting memories in order by hand, watching, stopping, taking back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Here
from cli.terminal import CTRL_D, PROMPT, Terminal
from cli.world import Ran, World

from sevenfold.core.messages import Json
from sevenfold.simulator import run_in_thread

TABS = "Indent with tabs, never with spaces."
FIELDS = {
    "status",
    "gate",
    "files_before",
    "files_after",
    "merged",
    "superseded",
    "archived",
    "lost",
    "revision",
    "usage",
}


def save(here: Here, name: str, about: str, body: str, type: str = "feedback") -> Ran:
    words = ("--type", type, "--name", name, "--description", about, "--body", body)
    return here("memory", "add", *words, "--json")


@pytest.fixture
def folder(here: Here) -> Path:
    """A memory that is there twice, and one that is not."""
    where = Path(here("memory", "path").out.rstrip("\n"))
    save(here, "rig", "Where the rig is", "The test rig stands in room 4.12.", "reference")
    text = f"---\nname: {{}}\ndescription: Indent with tabs\ntype: feedback\n---\n\n{TABS}\n"
    for name in ("tabs", "tabs-too"):
        (where / f"{name}.md").write_text(text.format(name), encoding="utf-8")
    return where


def texts(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text("utf-8") for p in sorted(folder.glob("*.md"))}


# --- without a model ------------------------------------------------------------------------------------


def test_it_is_too_early_and_the_gate_says_so(here: Here, folder: Path) -> None:
    before = texts(folder)
    ran = here("dream", "--json")
    assert ran.code == 0
    assert set(ran.json) >= FIELDS
    assert (ran.json["status"], ran.json["gate"]) == ("skipped", "sessions")
    assert texts(folder) == before
    assert "no dream now: fewer than 5 sessions since the last dream; --now" in here("dream").out


def test_now_dreams_without_a_key_and_undo_takes_it_back(here: Here, folder: Path) -> None:
    before = texts(folder)
    ran = here("dream", "--now", "--json")
    assert ran.code == 0, ran.err
    assert set(ran.json) >= FIELDS
    assert ran.json["status"] == "completed"
    assert (ran.json["files_before"], ran.json["files_after"]) == (3, 2)
    (merged,) = ran.json["merged"]
    assert {merged["file"], merged["into"]} == {"tabs.md", "tabs-too.md"}
    assert ran.json["lost"] == []
    assert ran.json["usage"]["input"] == 0
    assert merged["file"] not in texts(folder)
    newest = here("memory", "history", "--json").json["revisions"][0]
    assert (newest["id"], newest["author"]["kind"]) == (ran.json["revision"], "dream")

    undone = here("dream", "undo")
    assert undone.code == 0
    assert f"undid the dream {newest['id']}: " in undone.err
    after = texts(folder)
    assert all(after[file] == text for file, text in before.items() if file != "MEMORY.md")
    assert here("dream", "undo").code == 2, "once is enough"


def test_a_dry_run_shows_the_diff_and_changes_nothing(here: Here, folder: Path) -> None:
    here("memory", "check")
    before = texts(folder)
    ran = here("dream", "--dry-run")
    assert ran.code == 0
    assert f"-{TABS}" in ran.out
    assert "a dream would change: 1 merged" in ran.out
    after = texts(folder)
    assert all(after[file] == text for file, text in before.items() if file != "MEMORY.md")
    assert here("dream", "--dry-run", "--json").json["revision"] is None
    assert not (folder / ".consolidate-lock").exists()


def test_review_asks_and_takes_over_only_what_was_accepted(here: Here, folder: Path) -> None:
    ran = here("dream", "--review", "--json")
    assert ran.code == 0
    assert ran.json["review"]
    assert "the dream waits" in ran.err
    assert {"tabs.md", "tabs-too.md"} <= texts(folder).keys(), "nobody has answered"
    assert "1 dream ready for review" in here("dream", "status").out

    no = here("dream", "--review", "--json", stdin=b"n\n")
    assert (no.json["status"], no.json["gate"]) == ("skipped", "review")
    assert {"tabs.md", "tabs-too.md"} <= texts(folder).keys()

    yes = here("dream", "--review", "--json", stdin=b"y\n")
    assert yes.code == 0
    assert yes.json["revision"]
    assert len([file for file in texts(folder) if file.startswith("tabs")]) == 1
    assert here("dream", "undo").code == 0


def test_without_a_terminal_nobody_is_asked_and_the_review_waits(
    world: World, here: Here, folder: Path
) -> None:
    reading, writing = os.pipe()  # nobody writes there, and nobody closes it
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "sevenfold", "dream", "--review", "--json"],
            stdin=reading,
            capture_output=True,
            env=world.env,
            cwd=world.project,
            timeout=60,
            check=True,
        )
    finally:
        os.close(reading)
        os.close(writing)
    seen = json.loads(ran.stdout)
    assert seen["review"]
    assert "tabs" in seen["diff"]
    assert "the dream waits" in seen["why"]
    assert b"Take this over?" not in ran.stderr
    assert {"tabs.md", "tabs-too.md"} <= texts(folder).keys()


def test_a_dry_run_has_nothing_to_review(here: Here, folder: Path) -> None:
    assert here("dream", "--dry-run", "--review").code == 2


def test_without_memories_there_is_nothing_to_dream_of(here: Here) -> None:
    ran = here("dream", "--now", "--json")
    assert (ran.json["status"], ran.json["gate"]) == ("skipped", "empty")
    assert not Path(here("memory", "path").out.strip()).exists()
    assert here("dream", "undo").code == 2


def test_status_tells_how_the_last_one_ended_and_when_the_next_may_begin(here: Here, folder: Path) -> None:
    assert "no dream yet" in here("dream", "status").out
    here("dream", "--now")
    shown = here("dream", "status")
    assert "completed: dreamt: 1 merged" in shown.out
    assert "next: the last dream was less than 24 hours ago" in shown.out
    value = here("dream", "status", "--json").json
    assert (value["running"], value["gate"]) == (False, "time")
    assert value["dream"]["status"] == "completed"


def test_there_is_nothing_to_kill(here: Here, folder: Path) -> None:
    ran = here("dream", "kill", "--json")
    assert ran.code == 0
    assert ran.json == {"id": None, "asked": False, "stopped": False}


def test_memory_that_is_off_has_no_dreams(here: Here, world: World) -> None:
    world.variables["SEVENFOLD_DISABLE_MEMORY"] = "1"
    assert here("dream", "--now").code == 2


def test_a_folder_that_cannot_be_written_is_told_and_fails(here: Here, folder: Path) -> None:
    before = texts(folder)
    (folder / ".consolidate-lock").mkdir()
    ran = here("dream", "--now", "--json")
    assert ran.code == 1
    assert ran.json["status"] == "failed"
    assert ".consolidate-lock" in ran.json["why"]
    assert "the next session tries again" in ran.err
    assert texts(folder) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_told_and_fails(here: Here, folder: Path) -> None:
    folder.chmod(0o500)
    try:
        ran = here("dream", "--now", "--json")
    finally:
        folder.chmod(0o700)
    assert (ran.code, ran.json["status"]) == (1, "failed")


# --- with a model ---------------------------------------------------------------------------------------


def dreaming(body: Json) -> Any:
    """Reads a memory, removes it and accounts for it."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    asked = next(block["text"] for block in blocks if "<directive" in block.get("text", ""))
    folder = next(line.strip() for line in asked.splitlines() if line.strip().endswith("/staged"))
    answered = sum(block["type"] == "tool_result" for block in blocks)
    path = f"{folder}/tabs-too.md"
    steps: list[Json] = [
        {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": path}},
        {"type": "tool_use", "id": "t2", "name": "Write", "input": {"file_path": path, "content": ""}},
    ]
    if answered < len(steps):
        return [steps[answered]]
    gone = '{"what": "tabs-too.md", "why": "merged", "by": "tabs.md", "evidence": "tabs.md"}'
    return [{"type": "text", "text": f'{{"gone": [{gone}]}}'}]


def test_with_a_key_the_model_dreams_in_a_session_that_leaves_no_transcript(
    here: Here, world: World, folder: Path
) -> None:
    with run_in_thread(replies=dreaming) as sim:
        world.at(sim.url)
        ran = here("dream", "--now", "--json")
        rows = len(sim.ledger)
    assert ran.code == 0, ran.err
    assert [one["file"] for one in ran.json["merged"]] == ["tabs-too.md"]
    assert rows == 3
    assert ran.json["usage"]["output"] > 0
    assert "tabs-too.md" not in texts(folder)
    assert world.transcripts == []


def test_a_dream_is_killed_from_another_process_and_leaves_no_trace(
    here: Here, world: World, folder: Path
) -> None:
    def stuck(body: Json) -> Any:
        time.sleep(0.2)
        args = {"command": "tail -f MEMORY.md", "timeout": 60_000}
        return [{"type": "tool_use", "id": "t1", "name": "Bash", "input": args}]

    here("memory", "check")
    before = texts(folder)
    with run_in_thread(replies=stuck) as sim:
        world.at(sim.url)
        dream = world.start("dream", "--now", "--json")
        until = time.monotonic() + 40
        while not here("dream", "status", "--json").json["running"]:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert "dreaming since" in here("dream", "status").out
        killed = here("dream", "kill", "--json")
        out, err = dream.communicate(timeout=40)
    assert killed.json["stopped"], err
    assert dream.returncode == 130
    assert b'"status":"killed"' in out
    after = texts(folder)
    assert all(after[file] == text for file, text in before.items() if file != "MEMORY.md")
    assert not (folder / ".consolidate-lock").exists()
    assert "killed: the dream was stopped" in here("dream", "status").out


def test_a_dream_whose_process_is_killed_is_told_and_the_next_one_works(
    here: Here, world: World, folder: Path
) -> None:
    def stuck(body: Json) -> Any:
        args = {"command": "tail -f MEMORY.md", "timeout": 60_000}
        return [{"type": "tool_use", "id": "t1", "name": "Bash", "input": args}]

    with run_in_thread(replies=stuck) as sim:
        world.at(sim.url)
        dream = world.start("dream", "--now")
        until = time.monotonic() + 40
        while not here("dream", "status", "--json").json["running"]:
            assert time.monotonic() < until
            time.sleep(0.1)
        os.killpg(dream.pid, signal.SIGKILL)
        dream.communicate(timeout=40)
    assert "died on the way; the next session tries again" in here("dream", "status").out
    assert here("dream", "status", "--json").json["last"] is None, "as if it had never begun"
    del world.variables["ANTHROPIC_API_KEY"]
    ran = here("dream", "--now", "--json")
    assert (ran.json["status"], len(ran.json["merged"])) == ("completed", 1)
    state = folder.parent / "memory-state" / "dreams"
    assert list(state.glob("*")) == [], "its copy was swept away"


# --- in the chat ----------------------------------------------------------------------------------------


def test_dream_and_tasks_in_the_chat(world: World, here: Here, folder: Path) -> None:
    with Terminal((), world.env, world.project) as terminal:
        terminal.wait_for(PROMPT)
        terminal.line("/dream")
        terminal.wait_for("dreamt: 1 merged")
        terminal.line("/tasks")
        terminal.wait_for("last dream: dreamt: 1 merged")
        terminal.line("/dream status")
        terminal.wait_for("completed: dreamt: 1 merged", "next: the last dream was less than")
        terminal.line("/dream undo")
        terminal.wait_for("undid the dream")
        terminal.line("/dream kill")
        terminal.wait_for("no dream is going on in this session")
        terminal.line("/dream nonsense")
        terminal.wait_for("/dream [status|review|accept|reject|undo|kill]", PROMPT)
        terminal.press(CTRL_D)
        assert terminal.wait_for_end() == 0
    assert {"tabs.md", "tabs-too.md"} <= texts(folder).keys()


def test_a_dream_can_be_asked_for_in_one_line(here: Here, folder: Path) -> None:
    ran = here("-p", "/dream")
    assert ran.code == 0
    assert "dreaming in the background" in ran.out
    assert "dreamt: 1 merged" in ran.err, "the session waits for it at its end"


def test_a_dream_waits_for_review_in_the_chat(world: World, here: Here, folder: Path) -> None:
    world.settings({"dream": {"review": True}})
    with Terminal((), world.env, world.project) as terminal:
        terminal.wait_for(PROMPT)
        terminal.line("/dream")
        terminal.wait_for("ready for review")
        terminal.line("/tasks")
        terminal.wait_for("dream: ready for review (/dream review)")
        terminal.line("/dream review")
        terminal.wait_for("a takes it over, r drops it")
        terminal.line("a")
        terminal.wait_for("taken over: ", PROMPT)
        terminal.press(CTRL_D)
        assert terminal.wait_for_end() == 0
    assert len([file for file in texts(folder) if file.startswith("tabs")]) == 1
