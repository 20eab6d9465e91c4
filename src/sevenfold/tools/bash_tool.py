"""The Bash tool: runs a command in the working folder, and ends all of it when its time is up."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from pathlib import Path
from typing import Final

from sevenfold.core.messages import Json
from sevenfold.core.protocols import Tool, ToolFailed
from sevenfold.storage.files import make_private_dir
from sevenfold.tools.permissions import is_look_only
from sevenfold.tools.processes import ProcessRun, is_group_alive, run_program, start_program
from sevenfold.tools.readonly_commands import QUIET_GIT
from sevenfold.tools.shell import classify_command
from sevenfold.tools.workspace import Workspace, resolve_path

DEFAULT_SECONDS: Final = 120.0
MOST_SECONDS: Final = 600.0
LONGEST_COMMAND: Final = 100_000  # Bytes; the system accepts no much longer arguments

# The command is evaluated, not pasted, so that its own quoting and line numbers stay its own. The
# trap keeps the exit code; a command that sets a trap of its own merely does not move us.
_FOREGROUND: Final = 'trap "{ pwd -P >&%d; } 2>/dev/null || :" EXIT; __c=$1; shift; eval "$__c"'
_BACKGROUND: Final = 'trap "echo \\"[ended with exit code \\$?]\\"" EXIT; __c=$1; shift; eval "$__c"'

# Terminal control: colours and cursor movement, titles and links, then the short ones.
_ESCAPES: Final = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\^_=>()][0-9A-B]?)"
_UNWANTED: Final = frozenset(
    {"BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "CDPATH", "GLOBIGNORE"}
    | {"PWD", "OLDPWD"}  # else `cd ..` goes where the user's shell came from
)

SCHEMA: Final[Json] = {
    "name": "Bash",
    "description": (
        "Run a bash command; cd lasts. No terminal and no input. Output and errors come together,"
        " the middle left out if very long. run_in_background returns at once with a process id and"
        " a file to Read."
    ),
    "input_schema": {
        "type": "object",
        "properties": {
            "command": {"type": "string"},
            "timeout": {
                "type": "integer",
                "minimum": 1,
                "description": "Milliseconds: 120000 unless given, at most 600000",
            },
            "run_in_background": {"type": "boolean"},
            "description": {"type": "string", "description": "What it is for, in a few words"},
        },
        "required": ["command"],
        "additionalProperties": False,
    },
}


class BashTool:
    """Runs commands with bounded output, without input, and with a time limit for all they start."""

    name = "Bash"
    schema = SCHEMA

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def safe(self, args: Json) -> bool:
        return not args.get("run_in_background", False) and classify_command(args["command"]).read_only

    async def run(self, args: Json, use_id: str) -> str:
        command = args["command"]
        if not command.strip():
            raise ToolFailed("the command is empty; say what to run")
        if "\0" in command:
            raise ToolFailed("a command cannot hold a NUL character; write it without")
        if len(command.encode("utf-8")) > LONGEST_COMMAND:
            raise ToolFailed("the command is too long; Write it to a file and run that")
        bash = self._workspace.find_program("bash")
        if bash is None:
            raise ToolFailed("bash is not installed, or not on the PATH; install it to run commands")
        self._workspace.forget_ended()
        gone = self._leave_missing_folder()
        if args.get("run_in_background", False):
            return gone + await self._start_background(bash, command)
        seconds = min(args.get("timeout", DEFAULT_SECONDS * 1000) / 1000, MOST_SECONDS)
        return gone + await self._run_foreground(bash, command, seconds)

    def _leave_missing_folder(self) -> str:
        workspace = self._workspace
        if workspace.cwd.is_dir():
            return ""
        gone, workspace.cwd = workspace.cwd, workspace.root
        if not workspace.root.is_dir():
            raise ToolFailed(f"the project folder {workspace.root} is gone; nothing can run in it")
        return f"[{gone} is gone; this ran in {workspace.root}]\n"

    async def _run_foreground(self, bash: str, command: str, seconds: float) -> str:
        workspace = self._workspace
        # A file without a name and no pipe: a process that inherits it cannot find or block anything.
        with tempfile.TemporaryFile() as place:
            ran = await run_program(
                [bash, "-c", _FOREGROUND % place.fileno(), "bash", command],
                cwd=workspace.cwd,
                env=make_environment(workspace, looking=is_look_only(command)),
                seconds=seconds,
                most=workspace.most_output,
                keep=(place.fileno(),),
            )
            moved = self._follow_folder(os.pread(place.fileno(), 1 << 16, 0))
        if is_group_alive(ran.group):
            workspace.leftovers.add(ran.group)
        return _format_run(ran, seconds, moved)

    def _follow_folder(self, said: bytes) -> str:
        """Move to the folder the command went to; returns a note about it."""
        workspace, before = self._workspace, self._workspace.cwd
        path = Path(os.fsdecode(said.removesuffix(b"\n"))) if said else before
        if not path.is_absolute() or not path.is_dir():
            workspace.cwd = before if before.is_dir() else workspace.root
        else:
            workspace.cwd = resolve_path(path)
        return f"[now in {workspace.cwd}]" if workspace.cwd != before else ""

    async def _start_background(self, bash: str, command: str) -> str:
        workspace = self._workspace
        make_private_dir(workspace.outputs)
        fd, name = tempfile.mkstemp(".txt", "shell-", workspace.outputs)
        try:
            argv = [bash, "-c", _BACKGROUND, "bash", command]
            env = make_environment(workspace, looking=False)
            process = await start_program(argv, cwd=workspace.cwd, env=env, output=fd)
        finally:
            os.close(fd)
        workspace.background.append(process)
        return (
            f"Started in the background as process {process.pid}. Its output goes to {name}, which"
            f" says so when it has ended. Stop it with: kill -- -{process.pid}"
        )


def make_environment(workspace: Workspace, *, looking: bool) -> dict[str, str]:
    """The environment of a command, without variables that run code and relative search paths."""
    env = {name: value for name, value in workspace.environment.items() if name not in _UNWANTED}
    env["PATH"] = workspace.search_path
    env["GIT_OPTIONAL_LOCKS"] = "0"  # `git status` would lock the index
    return {**env, **QUIET_GIT} if looking else env


def _format_run(ran: ProcessRun, seconds: float, moved: str) -> str:
    said = strip_terminal_codes(ran.output.text).strip("\n")
    notes = [moved] if moved else []
    if ran.held and ran.code is not None:
        notes.append(
            "[something it started still runs; what it prints from now on is lost."
            " Start such things with run_in_background]"
        )
    if ran.code is None:
        notes.append(
            f"[stopped after {seconds:g} seconds, with everything it had started; give a longer"
            " timeout, or use run_in_background]"
        )
    body = "\n".join(part for part in (said, *notes) if part)
    if ran.code is None:
        raise ToolFailed(body)
    if ran.code:
        raise ToolFailed(f"{_describe_exit(ran.code)}\n{body}".rstrip("\n"))
    return body or "[no output]"


def _describe_exit(code: int) -> str:
    if code > 0:
        return f"Exit code {code}"
    try:
        return f"Ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"Ended by signal {-code}"


def strip_terminal_codes(text: str) -> str:
    """The text as a terminal would show it: without colours, of an overwritten line the last state."""
    if "\x1b" in text:
        text = re.sub(_ESCAPES, "", text)
    if "\r" not in text:
        return text
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return "\n".join(lines)


_check: type[Tool] = BashTool
