"""Both ways to start git send the same hardened options and the same environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sevenfold.layers.l7_agents.worktrees import WorktreeGit
from sevenfold.memory.team.git import TeamGit
from sevenfold.storage.git import OPTIONS, GitProgram, make_git_environment

USERS = {
    "PATH": os.environ["PATH"],
    "HOME": "/home/ann",
    "GIT_SSH_COMMAND": "ssh -i key",
    "GIT_SSL_CAINFO": "/ca.pem",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}
"""Variables that git gets to see."""
LEADING = {
    "GIT_DIR": "/elsewhere",
    "GIT_WORK_TREE": "/elsewhere",
    "GIT_INDEX_FILE": "/elsewhere",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "touch /owned",
    "GIT_CONFIG_PARAMETERS": "'core.fsmonitor=touch /owned'",
    "GIT_EXTERNAL_DIFF": "touch /owned",
    "GIT_TERMINAL_PROMPT": "1",
    "GIT_ALLOW_PROTOCOL": "ext",
    "GIT_TRACE": "/trace",
}
"""Variables that would lead it elsewhere, or make it run something."""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A git that says with which words and which environment it was started."""
    (tmp_path / "bin").mkdir()
    path = tmp_path / "bin" / "git"
    said = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    path.write_text(f"#!{sys.executable} -IS\n{said}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def run(git: GitProgram, folder: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    with tempfile.TemporaryFile() as out:
        with git.start(words, folder, (subprocess.DEVNULL, out, out)) as process:  # type: ignore[arg-type]
            assert process.wait() == 0
        out.seek(0)
        return heard(out.read())


async def run_async(git: GitProgram, folder: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    async with await git.start_async(words, folder) as process:
        assert process.stdout is not None
        said = b"".join([chunk async for chunk in process.stdout])
        assert await process.wait() == 0
    return heard(said)


def heard(said: bytes) -> tuple[list[str], dict[str, str]]:
    words, environment = json.loads(said)
    return words, {
        name: environment[name] for name in environment if name not in ("PWD", "_", "SHLVL", "OLDPWD")
    }


@pytest.mark.anyio
async def test_both_doors_send_the_same_options_and_environment(program: Path, tmp_path: Path) -> None:
    git = GitProgram(str(program), {**USERS, **LEADING})
    sync, task = run(git, tmp_path, "status", "-z"), await run_async(git, tmp_path, "status", "-z")
    assert sync == task
    assert sync[0] == [*OPTIONS, "status", "-z"]
    assert sync[1].items() >= make_git_environment({**USERS, **LEADING}).items()


@pytest.mark.anyio
async def test_work_trees_and_team_memory_send_them(program: Path, tmp_path: Path) -> None:
    variables = {**USERS, **LEADING, "PATH": f"{program.parent}:{USERS['PATH']}"}
    team, seen = heard(TeamGit(tmp_path / "ours", tmp_path / "state", variables).local("gc"))
    trees, shown = heard((await WorktreeGit(str(program), variables).ask(tmp_path, "gc")).out)
    assert seen == shown
    assert tuple(team[: len(OPTIONS)]) == tuple(trees[: len(OPTIONS)]) == OPTIONS


def test_what_leads_git_elsewhere_is_dropped_and_what_the_user_needs_stays() -> None:
    environment = make_git_environment({**USERS, **LEADING})
    assert environment.items() >= USERS.items()
    assert not any(environment.get(name) == value for name, value in LEADING.items())


@pytest.mark.parametrize(
    "setting", ["core.hooksPath=/dev/null", "core.fsmonitor=false", "protocol.ext.allow=never", "gc.auto=0"]
)
def test_a_repository_cannot_make_git_run_a_program(setting: str) -> None:
    assert OPTIONS[OPTIONS.index(setting) - 1] == "-c"


@pytest.mark.parametrize("name", ["GIT_NO_LAZY_FETCH", "GIT_NO_REPLACE_OBJECTS", "GIT_ATTR_NOSYSTEM"])
def test_git_fetches_and_replaces_nothing_unasked(name: str) -> None:
    assert make_git_environment({})[name] == "1"
