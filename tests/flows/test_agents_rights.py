"""What an agent may do: never more than who started it, and never round the user's rules."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

import anyio
import pytest

from sevenfold import Session
from sevenfold.core.messages import Message, ToolUse, assistant, parse_directive
from sevenfold.core.request import Request
from sevenfold.settings.place import TrustedFolders
from sevenfold.testing import ScriptedModel
from sevenfold.tools.toolbox import PermissionAnswer, PermissionQuestion

pytestmark = [pytest.mark.anyio, pytest.mark.real]
Says = Callable[[Request], "str | Message"]
NARROW = "---\nname: narrow\ndescription: Reads.\ntools: Read, Agent\n---\nRead.\n"


def write(name: str) -> ToolUse:
    return ToolUse(f"w-{name}", "Write", {"file_path": name, "content": "x"})


def agent(id: str, prompt: str, **more: object) -> ToolUse:
    return ToolUse(id, "Agent", {"description": "a small task", "prompt": prompt, **more})


def said(request: Request) -> str:
    text = request.view[-1].message.text
    directive = parse_directive(text)
    return directive.body if directive else text


def result(request: Request) -> str:
    return "".join(one.text for one in request.view[-1].message.results)


def by(script: dict[str, str | Message]) -> Says:
    """Says what stands for the words at the end of what was asked; else what the last call gave."""

    def says(request: Request) -> str | Message:
        words = said(request)
        found = (line for end, line in script.items() if words.endswith(end))
        return next(found, result(request) or "ok")

    return says


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "secrets").mkdir(parents=True)
    (folder / "secrets" / "key.txt").write_text("the key\n", encoding="utf-8")
    (folder / "a.txt").write_text("a\n", encoding="utf-8")
    agents = tmp_path / "home" / "agents"
    agents.mkdir(parents=True)
    (agents / "narrow.md").write_text(NARROW, encoding="utf-8")
    return folder


def committed(project: Path, tmp_path: Path) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    for words in (("init", "-q"), ("add", "a.txt"), (*who, "commit", "-qm", "a")):
        subprocess.run(["git", *words], cwd=project, check=True)
    TrustedFolders(tmp_path / "home").add(project)


def opened(project: Path, tmp_path: Path, script: dict[str, str | Message], **more: object) -> Session:
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    model = ScriptedModel(repeat(by(script)))
    return Session(model, project, home=tmp_path / "home", environ=environ, **more)  # type: ignore[arg-type]


def in_work_trees(tmp_path: Path) -> set[str]:
    return {path.name for path in tmp_path.rglob("*.txt") if "worktrees" in path.parts}


ALL = {"permissions": {"mode": "bypassPermissions"}}


async def test_an_agent_cannot_start_one_with_more_tools_than_it_has(project: Path, tmp_path: Path) -> None:
    script: dict[str, str | Message] = {
        "start": assistant(agent("t1", "go down", subagent_type="narrow")),
        "go down": assistant(agent("t2", "write it")),
        "write it": assistant(write("child.txt")),
    }
    async with opened(project, tmp_path, script, settings=ALL) as session:
        reply = await session.ask("start")
    assert not (project / "child.txt").exists()
    assert "there is no tool Write" in reply.message.text


async def test_a_fork_of_an_agent_has_the_tools_of_that_agent(project: Path, tmp_path: Path) -> None:
    script: dict[str, str | Message] = {
        "start": assistant(agent("t1", "go down", subagent_type="narrow")),
        "go down": assistant(agent("t2", "write it", subagent_type="fork")),
        "write it": assistant(write("fork.txt")),
    }
    async with opened(project, tmp_path, script, settings=ALL) as session:
        reply = await session.ask("start")
    assert not (project / "fork.txt").exists()
    assert "there is no tool Write" in reply.message.text


async def test_who_explores_changes_nothing_even_where_every_command_is_allowed(
    project: Path, tmp_path: Path
) -> None:
    script: dict[str, str | Message] = {
        "start": assistant(agent("t1", "change it", subagent_type="explore")),
        "change it": assistant(ToolUse("b", "Bash", {"command": "echo x > new.txt; rm a.txt"})),
    }
    async with opened(project, tmp_path, script, settings=ALL) as session:
        reply = await session.ask("start")
    assert (project / "a.txt").exists()
    assert not (project / "new.txt").exists()
    assert "only looks" in reply.message.text


async def test_a_work_tree_is_no_way_round_a_rule_that_denies(project: Path, tmp_path: Path) -> None:
    committed(project, tmp_path)
    key = str(project / "secrets" / "key.txt")
    script: dict[str, str | Message] = {
        "start": assistant(agent("t1", "steal it", isolation="worktree")),
        "steal it": assistant(
            ToolUse("r", "Read", {"file_path": key}),
            ToolUse("b", "Bash", {"command": f"cat {key}"}),
            ToolUse("e", "Write", {"file_path": f"{key}.2", "content": "x"}),
        ),
    }
    rules = {"allow": ["Read", "Bash", "Write"], "deny": ["Read(/secrets/**)", "Edit(/secrets/**)"]}
    async with opened(project, tmp_path, script, settings={"permissions": rules}) as session:
        reply = await session.ask("start")
    assert "the key" not in reply.message.text
    assert reply.message.text.count("denies it") == 3
    assert [path.name for path in (project / "secrets").iterdir()] == ["key.txt"]


async def test_what_an_agent_of_a_work_tree_starts_works_in_that_work_tree(
    project: Path, tmp_path: Path
) -> None:
    committed(project, tmp_path)
    script: dict[str, str | Message] = {
        "start": assistant(agent("t1", "go down", isolation="worktree")),
        "go down": assistant(
            agent("t2", "where is the child"), agent("t3", "where is the fork", subagent_type="fork")
        ),
        "where is the child": assistant(write("child.txt")),
        "where is the fork": assistant(write("fork.txt")),
    }
    async with opened(project, tmp_path, script, settings=ALL) as session:
        await session.ask("start")
    assert {"child.txt", "fork.txt"} <= in_work_trees(tmp_path)
    assert not (project / "child.txt").exists()
    assert not (project / "fork.txt").exists()


async def test_always_said_to_an_agent_in_a_work_tree_holds_there_alone(
    project: Path, tmp_path: Path
) -> None:
    committed(project, tmp_path)
    asked: list[str] = []

    async def answer(question: PermissionQuestion) -> PermissionAnswer:
        asked.append(question.reason)
        return "always" if question.reason.startswith("agent ") else False

    script: dict[str, str | Message] = {
        "start": assistant(agent("t1", "write there", isolation="worktree")),
        "write there": assistant(write("there.txt")),
        "write here": assistant(write("here.txt")),
    }
    async with opened(project, tmp_path, script, ask=answer) as session:
        await session.ask("start")
        await session.ask("write here")
    assert len(asked) == 2
    assert not (project / "here.txt").exists()


async def test_a_mode_that_is_switched_holds_for_agents_that_are_at_work(
    project: Path, tmp_path: Path
) -> None:
    script: dict[str, str | Message] = {
        "start": assistant(agent("t1", "wait and write", run_in_background=True)),
        "wait and write": assistant(ToolUse("s", "Bash", {"command": "sleep 0.5"})),
    }

    def says(request: Request) -> str | Message:
        results = request.view[-1].message.results
        if results and results[0].tool_use_id == "s":
            return assistant(write("late.txt"))
        return by(script)(request)

    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    model = ScriptedModel(repeat(says))
    home = tmp_path / "home"
    async with Session(model, project, home=home, environ=environ, settings=ALL) as session:
        await session.ask("start")
        session.tools.permissions.mode = "plan"
        with anyio.fail_after(20):
            await session.agents.wait()
    assert not (project / "late.txt").exists()


async def test_an_agent_that_went_to_the_background_by_itself_asks_nobody(
    project: Path, tmp_path: Path
) -> None:
    asked: list[str] = []

    async def answer(question: PermissionQuestion) -> PermissionAnswer:
        asked.append(question.reason)
        return True

    script: dict[str, str | Message] = {"start": assistant(agent("t1", "wait and write"))}

    def says(request: Request) -> str | Message:
        results = request.view[-1].message.results
        if results and results[0].tool_use_id == "s":
            return assistant(write("late.txt"))
        if said(request).endswith("wait and write"):
            return assistant(ToolUse("s", "Bash", {"command": "sleep 0.6"}))
        return by(script)(request)

    settings = {"agents": {"autoBackgroundSeconds": 0.1}, "permissions": {"allow": ["Bash(sleep:*)"]}}
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    session = Session(
        ScriptedModel(repeat(says)),
        project,
        home=tmp_path / "home",
        environ=environ,
        settings=settings,
        ask=answer,
    )
    async with session:
        await session.ask("start")
        with anyio.fail_after(20):
            await session.agents.wait()
    assert asked == []
    assert not (project / "late.txt").exists()
