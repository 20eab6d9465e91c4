"""SIGKILL at random moments: what was acknowledged is there after a resume, nothing else is broken."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from sevenfold.core.request import has_paired_tools
from sevenfold.core.transcript import Entry, Transcript
from sevenfold.session.session import Session
from sevenfold.storage.jsonl import read_log
from sevenfold.testing import ScriptedModel

WORKER = Path(__file__).with_name("talking.py")


def killed_after(lines: int, folder: Path, resume: str) -> tuple[str, int]:
    """Let the worker acknowledge this many entries, kill it, and say what the last one was."""
    command = [sys.executable, str(WORKER), str(folder / "project"), str(folder / "home"), resume]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout
        said = ""
        for _ in range(lines):
            said = worker.stdout.readline() or said
        worker.kill()
        more = worker.stdout.read()
    complete = [line for line in more.splitlines(keepends=True) if line.endswith("\n")]
    session, last = (complete[-1] if complete else said).split()
    return session, int(last)


def entries(path: Path) -> list[Entry]:
    transcript = Transcript.load(read_log(path), lambda: 0.0)
    assert not transcript.problems
    return transcript.entries


async def resumed(folder: Path, session: str) -> None:
    environ = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    project, home = folder / "project", folder / "home"
    model = ScriptedModel(["still here"])
    async with Session(model, project, home=home, environ=environ, resume=session) as again:
        assert has_paired_tools(again.view)
        reply = await again.ask("are you there?")
        assert reply.message.text == "still here"
        assert has_paired_tools(again.view)


def campaign(folder: Path, kills: int, seed: int) -> int:
    """Kill one session again and again, resuming it each time; returns how long it got."""
    rng = random.Random(seed)
    (folder / "project").mkdir()
    session, before = "", list[Entry]()
    for _ in range(kills):
        session, acknowledged = killed_after(rng.randint(1, 60), folder, session)
        [path] = (folder / "home").rglob(f"{session}.jsonl")
        now = entries(path)
        assert now[: len(before)] == before, "what was there before the kill is still there"
        assert now[-1].id >= acknowledged, "what was acknowledged is there"
        assert [e.id for e in now] == list(range(len(now))), "nothing in between is missing"
        anyio.run(resumed, folder, session)
        before = entries(path)
    return len(before)


@pytest.mark.real
def test_a_session_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    assert campaign(tmp_path, kills=8, seed=20261115) > 200


@pytest.mark.soak
def test_a_thousand_kills(tmp_path: Path) -> None:
    for seed in range(40):
        folder = tmp_path / str(seed)
        folder.mkdir()
        assert campaign(folder, kills=25, seed=seed) > 200
