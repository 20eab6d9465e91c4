"""Bash with real shells: what it prints, where it is, and that everything it started ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tools.conftest import Run

from sevenfold.core.messages import ToolUse
from sevenfold.tools.bash_tool import strip_terminal_codes
from sevenfold.tools.processes import MOST_KEPT, ProcessOutput
from sevenfold.tools.toolbox import Toolbox
from sevenfold.tools.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.real]


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and waits to be buried does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    if state.exists():
        return state.read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    return True


async def until(true: Callable[[], bool]) -> bool:
    """Whether it becomes true; the patience of a test is bounded."""
    for _ in range(2000):
        if true():
            return True
        await anyio.sleep(0.01)
    return False


async def ended(*pids: int) -> bool:
    return await until(lambda: not any(alive(pid) for pid in pids))


async def numbers(path: Path, count: int) -> list[int]:
    """The process ids that a command writes to a file, once they are there."""

    def written() -> list[int]:
        return [int(word) for word in path.read_text("utf-8").split()] if path.exists() else []

    assert await until(lambda: len(written()) >= count)
    return written()


async def test_output_and_errors_come_together_in_order(run: Run) -> None:
    result = await run("Bash", command="echo one; echo two >&2; echo three")

    assert result.text == "one\ntwo\nthree"
    assert not result.is_error


async def test_a_command_that_fails_is_an_error_with_its_code_and_output(run: Run) -> None:
    result = await run("Bash", command="echo before; exit 3")

    assert result.is_error
    assert result.text == "Exit code 3\nbefore"


async def test_a_command_killed_by_a_signal_says_which(run: Run) -> None:
    result = await run("Bash", command="kill -SEGV $$")

    assert result.text == "Ended by SIGSEGV"


async def test_a_command_without_output_says_so(run: Run) -> None:
    assert (await run("Bash", command="true")).text == "[no output]"


async def test_an_empty_command_or_one_with_nul_is_refused(run: Run) -> None:
    assert (await run("Bash", command=" \n")).text == "the command is empty; say what to run"
    assert "NUL" in (await run("Bash", command="echo \0")).text
    assert "too long" in (await run("Bash", command="echo " + "x" * 200_000)).text


async def test_nobody_answers_questions(run: Run) -> None:
    assert (await run("Bash", command="read x; echo code $?")).text == "code 1"


async def test_syntax_errors_show_the_command_and_nothing_of_ours(run: Run) -> None:
    result = await run("Bash", command="echo ok\nfoo )")

    assert result.is_error
    assert "line 2: syntax error" in result.text
    assert "trap" not in result.text
    assert "__c" not in result.text


async def test_the_command_has_no_arguments_of_ours(run: Run) -> None:
    assert (await run("Bash", command='echo "$# [$1] $0"')).text == "0 [] bash"


async def test_quotes_lines_and_here_documents_pass_unharmed(run: Run) -> None:
    command = "cat <<'END'\n$HOME `id` \"quoted\" 'single' \\\nEND\necho 'a  b'"

    assert (await run("Bash", command=command)).text == ("$HOME `id` \"quoted\" 'single' \\\na  b")


# --- the working folder -------------------------------------------------------------------------------


async def test_the_working_folder_is_kept(run: Run, project: Path, workspace: Workspace) -> None:
    (project / "sub dir").mkdir()

    moved = await run("Bash", command="cd 'sub dir'; echo hi")
    after = await run("Bash", command="pwd")

    assert moved.text == f"hi\n[now in {project}/sub dir]"
    assert after.text == f"{project}/sub dir"
    assert workspace.cwd == project / "sub dir"


async def test_the_working_folder_is_kept_when_the_command_fails(
    run: Run, project: Path, workspace: Workspace
) -> None:
    (project / "sub").mkdir()

    result = await run("Bash", command="cd sub && set -e && false; echo not reached")

    assert result.text == f"Exit code 1\n[now in {project}/sub]"
    assert workspace.cwd == project / "sub"


async def test_a_subshell_does_not_move_us(run: Run, project: Path, workspace: Workspace) -> None:
    (project / "sub").mkdir()

    await run("Bash", command="(cd sub)")

    assert workspace.cwd == project


async def test_an_exit_trap_of_the_command_itself_works(run: Run, workspace: Workspace) -> None:
    result = await run("Bash", command="trap 'echo bye' EXIT; cd /; exit 4")

    assert result.text == "Exit code 4\nbye"
    assert workspace.cwd == workspace.root


async def test_a_folder_with_a_line_end_in_its_name_is_kept(
    run: Run, project: Path, workspace: Workspace
) -> None:
    (project / "odd\nname").mkdir()

    await run("Bash", command="cd odd*")

    assert workspace.cwd == project / "odd\nname"


async def test_a_folder_that_vanished_falls_back_to_the_project(
    run: Run, project: Path, workspace: Workspace
) -> None:
    (project / "sub").mkdir()
    await run("Bash", command="cd sub")

    removed = await run("Bash", command="rm -r ../sub")
    after = await run("Bash", command="pwd")

    assert removed.text == f"[now in {project}]"
    assert after.text == str(project)


async def test_a_folder_removed_by_somebody_else_is_told(
    run: Run, project: Path, workspace: Workspace
) -> None:
    (project / "sub").mkdir()
    await run("Bash", command="cd sub")
    (project / "sub").rmdir()

    result = await run("Bash", command="pwd")

    assert result.text == f"[{project}/sub is gone; this ran in {project}]\n{project}"


# --- the environment ----------------------------------------------------------------------------------


async def test_commands_see_the_environment_that_was_given_and_no_other(
    run: Run, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEVENFOLD_TEST_SECRET", "leaked")
    workspace.environment = {**workspace.environment, "GIVEN": "yes"}

    text = (await run("Bash", command='echo "$GIVEN [$SEVENFOLD_TEST_SECRET]"')).text

    assert text == "yes []"


async def test_a_program_in_the_project_does_not_stand_in_for_a_real_one(
    run: Run, project: Path, workspace: Workspace
) -> None:
    (project / "ls").write_text("#!/bin/sh\necho hijacked\n", "utf-8")
    (project / "ls").chmod(0o755)
    (project / "start.sh").write_text("echo sourced", "utf-8")
    path = f".::relative:{workspace.environment['PATH']}"
    workspace.environment = {"PATH": path, "BASH_ENV": str(project / "start.sh")}

    assert (await run("Bash", command="ls")).text == "ls\nstart.sh"


async def test_looking_at_a_hostile_repository_runs_nothing_of_it(run: Run, project: Path) -> None:
    def git(*args: str) -> None:
        subprocess.run(["git", "-C", str(project), *args], check=True, capture_output=True)

    git("init", "-q")
    (project / "hook.sh").write_text(f"#!/bin/sh\ntouch {project}/PWNED\n", "utf-8")
    (project / "hook.sh").chmod(0o755)
    git("config", "core.fsmonitor", str(project / "hook.sh"))

    plain = await run("Bash", command="git status --short")
    after_cd = await run("Bash", command="cd . && git status --short")

    assert "hook.sh" in plain.text
    assert "hook.sh" in after_cd.text
    assert not (project / "PWNED").exists()


async def test_without_bash_the_message_says_what_is_missing(run: Run, workspace: Workspace) -> None:
    workspace.environment = {"PATH": "/nonexistent"}

    result = await run("Bash", command="true")

    assert result.text == "bash is not installed, or not on the PATH; install it to run commands"


# --- bounds -------------------------------------------------------------------------------------------


async def test_endless_output_keeps_head_and_tail_and_says_what_is_missing(run: Run) -> None:
    result = await run(
        "Bash", command="echo first; head -c 30000000 /dev/zero | tr '\\0' x; echo; echo last"
    )

    assert len(result.text) < MOST_KEPT + 200
    assert result.text.startswith("first\nxxx")
    assert result.text.endswith("xxx\nlast")
    dropped = re.search(r"\[… ([\d,]+) bytes left out …\]", result.text)
    assert dropped is not None
    assert int(dropped[1].replace(",", "")) == 30_000_000 + len("first\n\nlast\n") - MOST_KEPT


async def test_where_long_results_are_stored_more_of_the_output_is_held(
    workspace: Workspace, run: Run
) -> None:
    workspace.most_output = 4 << 20
    whole = await run("Bash", command="echo first; head -c 3000000 /dev/zero | tr '\\0' x")
    assert whole.text == "first\n" + "x" * 3_000_000
    cut = await run("Bash", command="head -c 64000000 /dev/zero | tr '\\0' x; echo last; exit 3")
    assert cut.is_error
    assert cut.text.startswith("Exit code 3\nxxx")
    assert cut.text.endswith("xxxlast")
    assert len(cut.text) < workspace.most_output + 200


def test_output_within_the_bound_is_whole() -> None:
    output = ProcessOutput(most=10)
    for piece in (b"abc", b"defg", b"hij"):
        output.add_chunk(piece)
    assert output.text == "abcdefghij"
    output.add_chunk(b"k")
    assert output.text == "abcde\n[… 1 bytes left out …]\nghijk"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m plain", "red plain"),
        ("\x1b]0;title\x07text \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "text link"),
        ("10%\r50%\r100%\ndone\r\n", "100%\ndone\n"),
        ("\x1b[2K\x1b[1Gline\x1b(B", "line"),
    ],
)
def test_terminal_control_is_taken_out(raw: str, shown: str) -> None:
    assert strip_terminal_codes(raw) == shown


async def test_output_that_is_not_utf8_is_shown_all_the_same(run: Run) -> None:
    assert (await run("Bash", command="printf 'a\\xffb\\0c'")).text == "a\ufffdb␀c"


# --- the end ------------------------------------------------------------------------------------------


async def test_a_command_that_never_ends_is_stopped_with_all_it_started(run: Run, project: Path) -> None:
    command = (
        "sleep 1000 & echo $! >> pids; (sleep 1000 & echo $! >> pids; wait) &"
        " echo $$ >> pids; echo began; wait"
    )

    result = await run("Bash", command=command, timeout=2000)

    assert result.is_error
    assert result.text.startswith("began\n[stopped after 2 seconds, with everything it had started;")
    assert await ended(*await numbers(project / "pids", 3))


async def test_a_child_that_ignores_the_polite_request_is_killed(run: Run, project: Path) -> None:
    command = "trap '' TERM; (trap '' TERM; sleep 1000) & echo $! $$ > pids; while :; do sleep 1; done"

    result = await run("Bash", command=command, timeout=2000)

    assert result.is_error
    assert await ended(*await numbers(project / "pids", 2))


async def test_cancelling_ends_the_whole_group(toolbox: Toolbox, project: Path) -> None:
    command = (
        "(trap '' TERM; sleep 1000) & echo $! > pids; sleep 1000 & echo $! >> pids; echo $$ >> pids; wait"
    )

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(toolbox.call, ToolUse("u", "Bash", {"command": command}))
        pids = await numbers(project / "pids", 3)
        assert all(alive(pid) for pid in pids)
        tasks.cancel_scope.cancel()

    assert await ended(*pids)


async def test_cancelling_when_the_shell_is_gone_ends_what_it_left(toolbox: Toolbox, project: Path) -> None:
    async with anyio.create_task_group() as tasks:
        command = "sleep 1000 & echo $! $$ > pids"
        tasks.start_soon(toolbox.call, ToolUse("u", "Bash", {"command": command}))
        pid, shell = await numbers(project / "pids", 2)
        assert await ended(shell)
        tasks.cancel_scope.cancel()

    assert await ended(pid)


async def test_a_daemon_that_holds_the_output_does_not_hold_the_call(
    run: Run, project: Path, workspace: Workspace
) -> None:
    with anyio.fail_after(20):
        result = await run("Bash", command="sleep 1000 & echo $! > pids; echo started")

    (pid,) = await numbers(project / "pids", 1)
    assert result.text.startswith("started\n[something it started still runs;")
    assert not result.is_error
    assert alive(pid)
    await workspace.close()
    assert await ended(pid)


async def test_a_daemon_in_a_session_of_its_own_does_not_hold_the_call(run: Run, project: Path) -> None:
    with anyio.fail_after(20):
        result = await run("Bash", command="setsid sh -c 'echo $$ > pids; exec sleep 1000' & echo started")

    (pid,) = await numbers(project / "pids", 1)
    assert result.text.startswith("started\n")
    os.kill(pid, signal.SIGKILL)
    assert await ended(pid)


async def test_what_was_left_in_the_background_quietly_ends_with_the_session(
    run: Run, project: Path, workspace: Workspace
) -> None:
    result = await run("Bash", command="sleep 1000 >/dev/null 2>&1 & echo $! > pids")

    (pid,) = await numbers(project / "pids", 1)
    assert result.text == "[no output]"
    assert alive(pid)
    await workspace.close()
    assert await ended(pid)


async def test_a_longer_timeout_than_allowed_is_shortened(run: Run) -> None:
    assert (await run("Bash", command="echo ok", timeout=10_000_000)).text == "ok"


# --- in the background --------------------------------------------------------------------------------


def started(text: str) -> tuple[int, Path]:
    found = re.search(r"as process (\d+)\. Its output goes to (\S+),", text)
    assert found is not None
    return int(found[1]), Path(found[2])


async def test_a_background_command_returns_at_once_and_its_output_can_be_read(
    run: Run, project: Path
) -> None:
    command = "echo one; until [ -e go ]; do sleep 0.01; done; echo two >&2; exit 5"
    pid, output = started((await run("Bash", command=command, run_in_background=True)).text)
    assert await until(lambda: output.read_text("utf-8") != "")

    before = await run("Read", file_path=str(output))
    (project / "go").touch()
    assert await ended(pid)
    after = await run("Read", file_path=str(output))

    assert before.text == "1\tone"
    assert after.text == "1\tone\n2\ttwo\n3\t[ended with exit code 5]"
    assert output.stat().st_mode & 0o777 == 0o600


async def test_a_background_command_can_be_stopped_as_its_answer_says(run: Run, project: Path) -> None:
    said = await run("Bash", command="sleep 1000 & echo $! > pids; wait", run_in_background=True)
    pid, _ = started(said.text)
    children = await numbers(project / "pids", 1)

    await run("Bash", command=said.text.rpartition("Stop it with: ")[2])

    assert await ended(pid, *children)


async def test_closing_ends_every_background_command(run: Run, project: Path, workspace: Workspace) -> None:
    pids = []
    for i in range(3):
        command = f"trap '' TERM; echo $$ > pid{i}; while :; do sleep 1; done"
        await run("Bash", command=command, run_in_background=True)
        pids += await numbers(project / f"pid{i}", 1)

    await workspace.close()

    assert await ended(*pids)


async def test_only_commands_that_read_run_beside_others(toolbox: Toolbox) -> None:
    def safe(**args: object) -> bool:
        return toolbox.safe(ToolUse("u", "Bash", dict(args)))

    assert safe(command="ls -l")
    assert not safe(command="ls -l", run_in_background=True)
    assert not safe(command="cd sub && ls")
    assert not safe(command="rm x")
