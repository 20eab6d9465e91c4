"""The Bash tool: runs a command in the working folder, and ends all of it when its time is up."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sevenfold.core.messages import Json
from sevenfold.core.protocols import Tool, ToolFailed
from sevenfold.storage.files import make_private_dir
from sevenfold.storage.places import find_git_folder
from sevenfold.tools.command_rules import list_programs
from sevenfold.tools.permissions import is_look_only
from sevenfold.tools.processes import ProcessRun, run_program, start_program
from sevenfold.tools.readonly_commands import NO_USER_GIT, QUIET_GIT
from sevenfold.tools.shell import classify_command
from sevenfold.tools.workspace import Workspace, resolve_path

if TYPE_CHECKING:
    from sevenfold.tools.sandbox import Sandbox

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
# The variables of a command that runs unasked: no others, so none that holds a secret.
_PLAIN: Final = r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TERM|COLUMNS|LINES|NO_COLOR"
# Those that an approved command does not get in the sandbox.
_TELLING: Final = (
    r"(?i).*(?:key|token|secret|passw|pwd|credential|auth|cookie|session|private|dsn|cert).*|.*_url"
)
# More that some programs have to read.
_ACCOUNTS: Final = (Path("/etc/passwd"), Path("/etc/group"))
_SYSTEM_STATE: Final = Path("/proc")  # Landlock keeps what belongs to other processes closed there
_MORE_READ: Final[dict[str, tuple[Path, ...]]] = {
    "df": (_SYSTEM_STATE,),
    "groups": _ACCOUNTS,
    "id": _ACCOUNTS,
    "ps": (_SYSTEM_STATE, *_ACCOUNTS),
    "uptime": (_SYSTEM_STATE,),
    "whoami": _ACCOUNTS,
}
_WORK: Final = (_SYSTEM_STATE, Path("/sys"), Path("/etc/hosts"), Path("/etc/ssl"), *_ACCOUNTS)
_DENIED: Final = r"Permission denied|Operation not permitted"
_SANDBOXED: Final = (
    "[it ran in the sandbox: without a question a command reads the project and system programs alone]"
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
        background = args.get("run_in_background", False)
        approved = use_id in self._workspace.approved
        self._workspace.approved.discard(use_id)
        unasked = is_look_only(command) and not approved and not background
        if background:
            return gone + self._start_background(bash, command)
        seconds = min(args.get("timeout", DEFAULT_SECONDS * 1000) / 1000, MOST_SECONDS)
        return gone + await self._run_foreground(bash, command, seconds, unasked)

    def _leave_missing_folder(self) -> str:
        workspace = self._workspace
        if workspace.cwd.is_dir():
            return ""
        gone, workspace.cwd = workspace.cwd, workspace.root
        if not workspace.root.is_dir():
            raise ToolFailed(f"the project folder {workspace.root} is gone; nothing can run in it")
        return f"[{gone} is gone; this ran in {workspace.root}]\n"

    async def _run_foreground(self, bash: str, command: str, seconds: float, unasked: bool) -> str:
        workspace = self._workspace
        sandbox = make_sandbox(workspace, command, unasked=unasked)
        # A file without a name and no pipe: a process that inherits it cannot find or block anything.
        with tempfile.TemporaryFile() as place:
            ran = await run_program(
                [bash, "-c", _FOREGROUND % place.fileno(), "bash", command],
                cwd=workspace.cwd,
                env=make_environment(workspace, looking=is_look_only(command), unasked=unasked),
                seconds=seconds,
                watch=workspace.watch,
                most=workspace.most_output,
                keep=(place.fileno(),),
                sandbox=sandbox,
            )
            moved = self._follow_folder(os.pread(place.fileno(), 1 << 16, 0))
        if ran.left:
            workspace.leftovers.add(ran.group)
        barred = unasked and sandbox is not None and bool(re.search(_DENIED, ran.output.text))
        return _format_run(ran, seconds, "\n".join(filter(None, (moved, _SANDBOXED if barred else ""))))

    def _follow_folder(self, said: bytes) -> str:
        """Move to the folder the command went to; returns a note about it."""
        workspace, before = self._workspace, self._workspace.cwd
        path = Path(os.fsdecode(said.removesuffix(b"\n"))) if said else before
        if not path.is_absolute() or not path.is_dir():
            workspace.cwd = before if before.is_dir() else workspace.root
        else:
            workspace.cwd = resolve_path(path)
        return f"[now in {workspace.cwd}]" if workspace.cwd != before else ""

    def _start_background(self, bash: str, command: str) -> str:
        workspace = self._workspace
        make_private_dir(workspace.outputs)
        fd, name = tempfile.mkstemp(".txt", "shell-", workspace.outputs)
        try:
            argv = [bash, "-c", _BACKGROUND, "bash", command]
            process = start_program(
                argv,
                cwd=workspace.cwd,
                env=make_environment(workspace, looking=False),
                output=fd,
                watch=workspace.watch,
                sandbox=make_sandbox(workspace, command, unasked=False),
            )
        finally:
            os.close(fd)
        workspace.background.append(process)
        return (
            f"Started in the background as process {process.pid}. Its output goes to {name}, which"
            f" says so when it has ended. Stop it with: kill -- -{process.pid}"
        )


def make_environment(workspace: Workspace, *, looking: bool, unasked: bool = False) -> dict[str, str]:
    """The environment of a command, without variables that run code and relative search paths.

    `unasked`: without any that may hold a secret.
    """
    env = {name: value for name, value in workspace.environment.items() if name not in _UNWANTED}
    if unasked:
        env = {name: value for name, value in env.items() if re.fullmatch(_PLAIN, name)}
    elif workspace.sandbox == "all":
        from sevenfold.tools.sandbox import find_landlock_version

        env = {name: value for name, value in env.items() if not re.fullmatch(_TELLING, name)}
        env |= {"TMPDIR": str(workspace.outputs)} if find_landlock_version() else {}
    env["PATH"] = workspace.search_path
    env["GIT_OPTIONAL_LOCKS"] = "0"  # `git status` would lock the index
    if looking or unasked:
        env |= QUIET_GIT
    return {**env, **NO_USER_GIT} if unasked else env


def make_sandbox(workspace: Workspace, command: str, *, unasked: bool) -> Sandbox | None:
    """The sandbox of a command; None: it runs without one."""
    # Slow to load, and a start that runs no command does not need it.
    from sevenfold.tools.sandbox import SYSTEM, Sandbox, find_landlock_version

    if workspace.sandbox == "off" or not find_landlock_version():
        return None
    own = (workspace.root, *workspace.writable)
    if unasked:
        programs = list_programs(command)
        more = [path for name in programs for path in _MORE_READ.get(name, ())]
        if "git" in programs:
            more += _list_git_places(workspace)
        found = [Path(path).resolve() for name in programs if (path := workspace.find_program(name))]
        outside = [path for path in found if not any(path.is_relative_to(folder) for folder in own)]
        return Sandbox((*own, *workspace.readable, *more), (*SYSTEM, *outside))
    if workspace.sandbox != "all":
        return None
    make_private_dir(workspace.outputs)
    bins = [Path(folder) for folder in workspace.search_path.split(os.pathsep)]
    beside = [folder.parent / name for folder in bins for name in ("lib", "lib64", "libexec")]
    return Sandbox(
        (*workspace.readable, *_WORK, *_list_git_places(workspace)),
        (*SYSTEM, *bins, *beside),
        (*own, workspace.outputs),
    )


def _list_git_places(workspace: Workspace) -> list[Path]:
    """What git reads outside the project: a work tree's repository, and patterns of the user's."""
    own, shared = workspace.home / ".config" / "git", find_git_folder(workspace.root)
    return [*([shared] if shared else []), own / "ignore", own / "attributes"]


def _format_run(ran: ProcessRun, seconds: float, note: str) -> str:
    said = strip_terminal_codes(ran.output.text).strip("\n")
    notes = [note] if note else []
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
