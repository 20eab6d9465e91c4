"""`sevenfold hook`, `setup` and `statusline`."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sevenfold.cli.options import SharedOptions
from sevenfold.cli.output import make_printable, print_message, print_result, write_json
from sevenfold.cli.startup import read_environment
from sevenfold.clients.events import LARGEST, NAMES, ClientEvent, find_client_environment, read_event
from sevenfold.core.errors import SevenfoldError
from sevenfold.models.capabilities import OFFLINE
from sevenfold.settings.environment import Environment
from sevenfold.storage.places import find_places, make_path_slug

if TYPE_CHECKING:
    from sevenfold.clients.setup import InstalledProgram, SetupChange
    from sevenfold.memory.store import Memory


def run_hook(shared: SharedOptions, name: str, client: str) -> int:
    """Never 2: a client takes that for an order to stop."""
    from sevenfold.clients.hook import ClientHooks, open_client_memory

    try:
        event = read_event(sys.stdin.buffer.read(LARGEST + 1), name)
        around = find_client_environment(Environment.read(), client, shared.home)
        project = None if shared.project == Path() else shared.project
        with ExitStack() as opened:

            def open_memory(event: ClientEvent) -> Memory:
                return opened.enter_context(open_client_memory(event, around, project, hooks.hear))

            hooks = ClientHooks(client, around, open_memory)
            answer = hooks.answer(event)
    except SevenfoldError as error:
        print(f"sevenfold: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    if answer or event.moment != "compaction":  # text of that one would become part of the summary's orders
        write_json(answer)
    return 0


def run_slash(shared: SharedOptions, command: str) -> int:
    """A slash command is a command line on the memory of Claude Code."""
    from sevenfold.cli.main import main

    environment = Environment.read()
    around = find_client_environment(environment, "claude", shared.home)
    typed = " ".join(sys.stdin.read(_LONGEST).split())
    project = Path(environment.variables.get("CLAUDE_PROJECT_DIR") or shared.project)
    match command:
        case "check":
            words = ["memory", "check"]
        case "dream":  # by rule: what a model costs is for the user to decide
            words = ["dream", "run", "--now", "--model", OFFLINE]
        case "cost":
            words = ["replay", str(_find_transcripts(environment, around, project, typed))]
        case _:
            words = ["memory", command, *(["--", typed] if typed else [])]
    places = ["--home", str(around.shared or around.home), "--project", str(project), "--no-color"]
    return main([*places, *words])


_LONGEST: Final = 10_000  # Characters that may follow a slash command


def _find_transcripts(environment: Environment, around: Environment, project: Path, typed: str) -> Path:
    """The transcript of this session of Claude Code, or the folder with all of the project."""
    folder = (
        (around.shared or around.home) / "projects" / make_path_slug(find_places(project, around.home).root)
    )
    session = environment.variables.get("CLAUDE_CODE_SESSION_ID")
    one = folder / f"{session}.jsonl"
    return one if session and typed != "project" and one.is_file() else folder


def run_setup(shared: SharedOptions, client: str, *, yes: bool, remove: bool) -> int:
    """Without --yes only the plan is shown."""
    from sevenfold.clients.setup import apply_plan, list_changes, make_plan, remove_plan

    environment = read_environment(shared)
    plan = make_plan(client, environment, find_program(environment), shared.home)
    if remove:
        changes = remove_plan(plan, environment, only_look=not yes)
    elif yes:
        changes = apply_plan(plan, environment)
    else:
        changes = list_changes(plan)
    words = plan.commands_back if remove else plan.commands
    commands = [shlex.join(each) for each in words] if plan.installed == remove else []
    value = {
        "client": client,
        "done": yes,
        "commands": commands,
        "files": [{"path": c.path, "action": c.action, "diff": c.format_diff()} for c in changes],
        "notes": plan.notes,
    }
    print_result(shared, _format_setup(client, changes, commands, yes=yes, remove=remove), value)
    for note in () if remove else plan.notes:
        print_message(shared, note)
    if not yes and (changes or commands):
        print_message(
            shared, f"nothing is written yet; 'sevenfold setup {client}{_REMOVE * remove} --yes' does it"
        )
    return 0


_REMOVE: Final = " --remove"


def _format_setup(
    client: str, changes: Sequence[SetupChange], commands: Sequence[str], *, yes: bool, remove: bool
) -> str:
    if not changes and not commands:
        state = "is not set up" if remove else "is set up already"
        return f"{NAMES[client]} {state}: nothing to do"
    lines = [f"{'ran' if yes else 'would run'}: {command}" for command in commands]
    past = {"create": "created", "change": "changed", "remove": "removed"}
    for change in changes:
        lines.append(f"{past[change.action] if yes else f'would {change.action}'}: {change.path}")
        lines += [f"  {make_printable(line)}" for line in change.format_diff().splitlines()]
    return "\n".join(lines)


def find_program(environment: Environment) -> InstalledProgram:
    """`sevenfold` by its path: clients may have another PATH."""
    from sevenfold import __version__
    from sevenfold.clients.setup import InstalledProgram

    beside = Path(sys.executable).parent / "sevenfold"
    found = shutil.which("sevenfold", path=environment.variables.get("PATH"))
    return InstalledProgram(str(beside) if beside.is_file() else found or "sevenfold", __version__)


def run_statusline(shared: SharedOptions) -> int:
    from sevenfold.clients.status import read_status

    status = read_status(sys.stdin.buffer.read(LARGEST), Environment.read(), shared.home)
    print_result(shared, status.format(), status)
    return 0
