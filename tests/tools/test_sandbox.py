"""The sandbox: what runs unasked sees the project alone; what was allowed runs as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tools.test_bash import alive, ended, numbers

from sevenfold.core.messages import ToolResult, ToolUse
from sevenfold.core.protocols import ToolFailed
from sevenfold.storage.places import find_git_folder
from sevenfold.testing import FakeClock
from sevenfold.tools.bash_tool import BashTool, make_environment
from sevenfold.tools.permission_settings import Mode, PermissionRules, SandboxUse
from sevenfold.tools.permissions import Permissions
from sevenfold.tools.sandbox import Sandbox, find_landlock_version, start_in_sandbox
from sevenfold.tools.toolbox import (
    PermissionAnswer,
    PermissionQuestion,
    Toolbox,
    ToolGate,
    make_standard_tools,
)
from sevenfold.tools.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.real]
needs_sandbox = pytest.mark.skipif(not find_landlock_version(), reason="this system has no Landlock")
DENIED = ("Read(~/.ssh/**)",)
NO_RULES = PermissionRules()


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    home, project = tmp_path / "home", tmp_path / "home" / "project"
    for folder in (project / "sub", home / ".ssh"):
        folder.mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text("TOPSECRET\n", "utf-8")
    (project / "a.txt").write_text("plain\n", "utf-8")
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "DEPLOY_TOKEN": "TOKENVALUE"}
    return Workspace(project, home, environment, tmp_path / "outputs", FakeClock(), trusted=True)


async def call(
    place: Workspace, command: str, rules: PermissionRules = NO_RULES, *, yes: bool = False
) -> ToolResult:
    """The result of a command behind the real gate; `yes` is the user's answer to a question."""

    async def ask(question: PermissionQuestion) -> PermissionAnswer:
        return yes

    gate = ToolGate(Permissions(rules), place, ask)
    toolbox = Toolbox(make_standard_tools(place), gate, lambda event: None)
    return await toolbox.call(ToolUse("u1", "Bash", {"command": command}))


def refuse_words(place: Workspace, command: str, mode: Mode = "default") -> str:
    use = ToolUse("u", "Bash", {"command": command})
    return Permissions(PermissionRules(mode, deny=DENIED)).decide(use, place).behaviour


@needs_sandbox
@pytest.mark.parametrize("command", ["cat link", "cat ../.ssh/id_rsa", "cat /proc/self/cwd/../.ssh/id_rsa"])
async def test_without_an_approval_the_wall_holds_and_the_answer_says_so(
    place: Workspace, command: str
) -> None:
    """The tool itself, without the gate before it: as if a rule had been fooled."""
    (place.root / "link").symlink_to("../.ssh/id_rsa")

    with pytest.raises(ToolFailed, match=r"Permission denied\n\[it ran in the sandbox"):
        await BashTool(place).run({"command": command}, "u1")

    assert (await call(place, "cat a.txt")).text == "plain"


@needs_sandbox
@pytest.mark.parametrize("version", range(1, find_landlock_version() + 1))
def test_a_program_in_the_sandbox_writes_reads_and_connects_nowhere(place: Workspace, version: int) -> None:
    """In each version of Landlock up to that of this system: the older ones know fewer rights."""

    def run(script: str, sandbox: Sandbox) -> tuple[int, bytes]:
        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                ["bash", "-c", script],
                cwd=place.root,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={"PATH": os.defpath},
            )

        with start_in_sandbox(sandbox, start, version) as process:
            said, _ = process.communicate()
        return process.returncode, said

    wall = Sandbox((place.root,))

    assert run("cat a.txt", wall) == (0, b"plain\n")
    assert run("cat a.txt > /dev/null && echo fine", wall) == (0, b"fine\n")
    for script in (
        "cat < /dev/tcp/127.0.0.1/9",
        "perl -e 'truncate q(a.txt), 0 or die $!'",
        "cat ../.ssh/id_rsa",
        "echo x > made",
        "touch a.txt",
        "chmod 777 a.txt",
        "ls ..",
        "rm a.txt",
    ):
        code, said = run(script, wall)
        assert code, script
        assert b"denied" in said or b"not permitted" in said
    assert not (place.root / "made").exists()
    assert run("echo x > made && cat made", Sandbox((), writable=(place.root,))) == (0, b"x\n")
    assert run("echo x > ../made", Sandbox((), writable=(place.root,)))[0]


@needs_sandbox
def test_the_program_that_starts_others_stays_free(place: Workspace, tmp_path: Path) -> None:
    start_in_sandbox(Sandbox((place.root,)), lambda: subprocess.run(["true"], check=True))

    (tmp_path / "free").write_text("x", "utf-8")
    subprocess.run(["touch", tmp_path / "free"], check=True)


async def test_what_runs_unasked_has_no_secret_in_its_environment(place: Workspace) -> None:
    unasked = make_environment(place, looking=True, unasked=True)

    assert "TOKENVALUE" not in unasked.values()
    assert unasked["HOME"] == str(place.home)
    assert "TOKENVALUE" in (await call(place, "env", yes=True)).text


@pytest.mark.parametrize(
    "rules", [PermissionRules(allow=("Bash(cat:*)",)), PermissionRules("bypassPermissions")]
)
async def test_what_a_rule_allows_runs_as_it_is(place: Workspace, rules: PermissionRules) -> None:
    assert (await call(place, "cat ~/.ssh/id_rsa", rules)).text == "TOPSECRET"


async def test_what_the_user_allows_runs_as_it_is_and_only_that(place: Workspace) -> None:
    assert (await call(place, "cat ~/.ssh/id_rsa", yes=True)).text == "TOPSECRET"
    assert (await call(place, "cat ~/.ssh/id_rsa", yes=False)).is_error
    assert not place.approved


@needs_sandbox
@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("echo x > made; cat made", "x"),
        ("cat a.txt", "plain"),
        ("./tool", "tool"),
        ("mktemp >/dev/null && echo y", "y"),
    ],
)
async def test_the_setting_extends_it_to_what_was_allowed(
    place: Workspace, command: str, told: str
) -> None:
    (place.root / "tool").write_text("#!/bin/sh\necho tool\n", "utf-8")
    (place.root / "tool").chmod(0o755)
    place.sandbox = "all"

    assert (await call(place, command, yes=True)).text == told


@needs_sandbox
@pytest.mark.parametrize(
    "command", ["echo x > ../made", "cat ~/.ssh/id_rsa", "cat < /dev/tcp/127.0.0.1/9", "rm ../.ssh/id_rsa"]
)
async def test_with_the_setting_even_what_was_allowed_stays_in_the_project(
    place: Workspace, command: str
) -> None:
    place.sandbox = "all"

    said = await call(place, command, yes=True)

    assert said.is_error
    assert "denied" in said.text or "not permitted" in said.text
    assert (place.home / ".ssh" / "id_rsa").read_text("utf-8") == "TOPSECRET\n"
    assert "TOKENVALUE" not in (await call(place, "env", yes=True)).text


@needs_sandbox
@pytest.mark.parametrize("kind", ["worktree", "submodule"])
async def test_git_reads_a_repository_that_lies_elsewhere(place: Workspace, kind: str) -> None:
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y", "-c", "protocol.file.allow=always"]
    main, other = place.home / "main", place.home / "other"
    for folder in (main, other):
        await anyio.run_process([*git, "init", "-q", str(folder)])
        await anyio.run_process([*git, "commit", "-qm", "in the repository", "--allow-empty"], cwd=folder)
    if kind == "worktree":
        await anyio.run_process([*git, "worktree", "add", "-q", "tree"], cwd=main)
    else:
        await anyio.run_process([*git, "submodule", "--quiet", "add", str(other), "tree"], cwd=main)
    inside = Workspace(
        main / "tree", place.home, place.environment, place.outputs, FakeClock(), trusted=True
    )

    assert "in the repository" in (await call(inside, "git log && git status")).text


@needs_sandbox
async def test_a_git_file_opens_no_folder_that_does_not_know_of_it(place: Workspace) -> None:
    (place.root / ".git").write_text("gitdir: ../.ssh\n", "utf-8")

    assert find_git_folder(place.root) is None


@needs_sandbox
@pytest.mark.parametrize(
    "command", ["ps aux | head -3", "df .", "id -un", "whoami", "uptime", "ls -l", "date"]
)
async def test_programs_that_tell_of_the_system_still_do(place: Workspace, command: str) -> None:
    said = await call(place, command)

    assert not said.is_error, said.text
    assert "cannot" not in said.text


@pytest.mark.parametrize("sandbox", ["unasked", "off"])
@pytest.mark.parametrize(
    "command",
    [
        "cat /dev/stdin/../../.ssh/id_rsa < sub",
        "cd sub && cat /proc/self/cwd/../../.ssh/id_rsa",
        "cat /proc/thread-self/cwd/../.ssh/id_rsa",
        "cat /dev/fd/../cwd/../.ssh/id_rsa",
        "cat here/../.ssh/id_rsa",
    ],
)
def test_a_denied_file_is_not_reached_by_another_way(
    place: Workspace, command: str, sandbox: SandboxUse
) -> None:
    (place.root / "here").symlink_to("/proc/self/cwd")
    place.sandbox = sandbox

    assert refuse_words(place, command) == "deny"
    assert refuse_words(place, command, "bypassPermissions") == "deny"


@pytest.mark.parametrize(
    ("command", "behaviour"),
    [
        ("cat a.txt/../../.ssh/x", "ask"),
        ("cat missing/../../.ssh/x", "ask"),
        ("cat round/x", "ask"),
        ("cat /dev/fd/3", "ask"),
        ("cat /proc/1/cwd/x", "ask"),
        ("ls /proc/1/cwd", "ask"),
        ("cat /proc/self/status", "ask"),
        ("cat missing.txt", "allow"),
        ("cat missing/x.txt", "allow"),
        ("cat a.txt > /dev/null", "allow"),
        ("cat /dev/stdin", "allow"),
        ("grep foo/bar a.txt", "allow"),
    ],
)
def test_a_path_that_does_not_resolve_is_asked_about(
    place: Workspace, command: str, behaviour: str
) -> None:
    (place.root / "round").symlink_to("round")
    use = ToolUse("u", "Bash", {"command": command})

    assert Permissions(PermissionRules()).decide(use, place).behaviour == behaviour


SCRIPT = """
import anyio, os, sys
from pathlib import Path
from sevenfold.testing import FakeClock
from sevenfold.tools.bash_tool import BashTool
from sevenfold.tools.workspace import Workspace

async def main() -> None:
    here = Path(sys.argv[1])
    place = Workspace(here, here, {"PATH": os.environ["PATH"]}, here / "outputs", FakeClock())
    one = "echo $$ >> pids; sleep 600 & echo $! >> pids; wait"
    await BashTool(place).run({"command": one, "run_in_background": True}, "1")
    two = "echo $$ >> pids; (trap '' TERM; sleep 601) & echo $! >> pids; wait"
    await BashTool(place).run({"command": two}, "2")

anyio.run(main)
"""


async def test_commands_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    """Also the processes that they started, in the background or deaf to a polite signal."""
    parent = await anyio.open_process([sys.executable, "-c", SCRIPT, str(tmp_path)])
    pids = await numbers(tmp_path / "pids", 4)
    assert all(map(alive, pids))

    parent.kill()
    await parent.aclose()

    assert await ended(*pids)
