"""Agents in work trees of their own, with real git: clean ones go, what holds work stays and is named."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from layers.l7_agents.stage import Stage, agent, defined, until, work

from sevenfold.core.protocols import ToolFailed
from sevenfold.core.request import Request
from sevenfold.layers.l7_agents.worktrees import Worktrees

GIT = shutil.which("git")
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real,
    pytest.mark.skipif(GIT is None, reason="git is not installed"),
]


def git(where: Path, *arguments: str) -> str:
    environment = {"PATH": os.defpath, "HOME": str(where), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    command = [GIT or "git", *who, *arguments]
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, check=True)
    return done.stdout.decode("utf-8").strip()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "-q", "-b", "main")
    (project / "a.txt").write_text("one\n", encoding="utf-8")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    trees = Worktrees(
        project, tmp_path / "trees", GIT, {"PATH": os.defpath, "HOME": str(tmp_path)}, trusted=True
    )
    stage = Stage(tmp_path, [agent(name="scout", isolation="worktree"), "thanks"], worktrees=trees)
    return stage


async def test_a_clean_work_tree_is_removed(stage: Stage, tmp_path: Path) -> None:
    scout = stage.plays("scout", "nothing to change")
    async with stage.open():
        await stage.ask()

    folder = stage.actors["scout"].spec.folder
    assert folder is not None
    told = scout.requests[0].view[-1].message.text
    assert str(folder) in told, "it is told where it works"
    assert "commit what is to be kept" in told
    assert not folder.exists()
    assert "work tree: removed" in stage.results[0].text
    assert git(tmp_path / "project", "branch", "--list", "sevenfold/*") == ""


async def test_a_work_tree_with_changes_is_kept_and_named(stage: Stage, tmp_path: Path) -> None:
    def changes(request: Request) -> str:
        folder = stage.actors["scout"].spec.folder
        assert folder is not None
        assert (folder / "a.txt").read_text(encoding="utf-8") == "one\n"
        (folder / "a.txt").write_text("two\n", encoding="utf-8")
        return "changed it"

    stage.plays("scout", changes, "and again")
    async with stage.open():
        await stage.ask()

        folder = stage.actors["scout"].spec.folder
        assert folder is not None
        assert folder.is_dir()
        assert f"work tree: kept {folder}" in stage.results[0].text
        assert (tmp_path / "project/a.txt").read_text(encoding="utf-8") == "one\n"

        await stage.roster.deliver("scout", stage.letter("go on there"))
        await stage.roster.wait()
        assert stage.actors["scout"].spec.folder == folder, "it is taken up where it was left"
        assert (folder / "a.txt").read_text(encoding="utf-8") == "two\n"


async def test_a_work_tree_of_an_agent_that_was_stopped_is_looked_after(stage: Stage) -> None:
    stage.plays("scout", "never")
    stage.having(definitions=defined("broken", isolation="worktree", background=True))
    async with stage.open():
        await stage.call(subagent_type="broken", name="scout")
        folder = stage.actors["scout"].spec.folder
        await stage.roster.close()
        assert folder is not None
        assert not folder.exists()


async def test_where_nothing_is_committed_it_is_refused_and_nothing_stays(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {"PATH": os.defpath, "HOME": str(tmp_path)}
    trees = Worktrees(empty, tmp_path / "trees", GIT, environment, trusted=True)
    async with Stage(tmp_path, worktrees=trees).open() as stage:
        with pytest.raises(ToolFailed, match="no work tree of its own"):
            await stage.call(isolation="worktree")
        assert stage.roster.agents == ()


async def test_an_agent_in_its_parent_s_work_tree_keeps_it_when_the_parent_ends(
    stage: Stage, tmp_path: Path
) -> None:
    stage.plays("scout", agent(name="inner", run_in_background=True), "over")
    stage.plays("inner", work("w1"), "done")
    async with stage.open():
        await stage.ask()

        folder = stage.actors["inner"].spec.folder
        assert folder is not None
        assert folder == stage.actors["scout"].spec.folder
        assert f"work tree: kept {folder}" in stage.results[0].text
        assert "another agent works in it" in stage.results[0].text
        assert folder.is_dir(), "somebody works in it"

        stage.held.let_go.set()
        await until(lambda: not folder.exists())
        await stage.roster.wait()
        assert git(tmp_path / "project", "branch", "--list", "sevenfold/*") == ""


async def test_an_agent_that_is_resumed_in_a_work_tree_of_another_holds_it_again(
    stage: Stage, tmp_path: Path
) -> None:
    def changes(request: Request) -> str:
        folder = stage.actors["scout"].spec.folder
        assert folder is not None
        (folder / "a.txt").write_text("two\n", encoding="utf-8")
        return "over"

    stage.plays("scout", agent(name="inner"), changes, "again")
    stage.plays("inner", "done", work("w1"), "done again")
    async with stage.open():
        await stage.ask()
        folder = stage.actors["scout"].spec.folder
        assert folder is not None
        await stage.roster.deliver("inner", stage.letter("go on"))
        await until(lambda: "inner" in stage.roster.busy)

        assert stage.actors["inner"].spec.folder == folder
        trees = stage.roster.worktrees
        assert trees is not None
        assert await trees.take_up(folder.name) is None, "somebody is in it"
        stage.held.let_go.set()
        await stage.roster.wait()
        assert await trees.take_up(folder.name) is not None
