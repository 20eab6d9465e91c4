"""`sevenfold team`: memories that a team shares through a git repository."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Typer

from sevenfold.cli.options import PLAIN, SharedOptions, Yes, add_shared_options

if TYPE_CHECKING:
    from sevenfold.memory.store import Memory
    from sevenfold.memory.team.git import SyncResult
    from sevenfold.memory.team.team import Team

team = Typer(
    name="team",
    help="Memories that a team shares through a git repository. Without a command: status.",
    **PLAIN,
)
Remote = Annotated[
    str,
    Argument(
        metavar="REMOTE",
        help="The repository: a path, git@host:path, or a file://, ssh:// or https:// address.",
    ),
]
TeamFile = Annotated[str, Argument(metavar="FILE", help="The file, as 'sevenfold team status' names it.")]


@team.command("init")
@add_shared_options
def init(shared: SharedOptions, remote: Remote) -> int:
    """Begin a team in an empty repository. A path that does not exist is made one."""
    with _open_memory(shared, writes=True) as memory:
        synced = _make_team(shared, memory).init(remote, Path.cwd())
        where = _format_address(remote)
        begun = f"the team's memory is in {where}; others come in with: sevenfold team join {where}"
        return _print_sync(shared, synced, begun)


@team.command("join")
@add_shared_options
def join(shared: SharedOptions, remote: Remote) -> int:
    """Join a team. Its memories come into team/, and what lies there already goes to the team."""
    with _open_memory(shared, writes=True) as memory:
        synced = _make_team(shared, memory).join(remote, Path.cwd())
        return _print_sync(shared, synced, f"joined the team in {_format_address(remote)}")


@team.command("status")
@add_shared_options
def status(shared: SharedOptions) -> int:
    """Where the team's repository is. Also what was not sent or taken yet, and what was refused."""
    from sevenfold.cli.output import format_time, print_result
    from sevenfold.memory.team.state import describe_status

    with _open_memory(shared) as memory:
        known = _make_team(shared, memory).status()
    when = format_time(known.synced) if known.synced is not None else "never"
    lines = describe_status(known)
    print_result(shared, "\n".join([lines[0], f"last sync: {when}", *lines[1:]]), known)
    return 0


@team.command("sync")
@add_shared_options
def sync(shared: SharedOptions) -> int:
    """Take what the team changed and send what changed here. Exit code 1 when that was not possible."""
    with _open_memory(shared, writes=True) as memory:
        return _print_sync(shared, _make_team(shared, memory).sync())


@team.command("release")
@add_shared_options
def release(shared: SharedOptions, file: TeamFile, yes: Yes = False) -> int:
    """Share this text although it looks like a secret. Exactly this one, because you say so."""
    from sevenfold.cli.output import print_message, print_result

    with _open_memory(shared, writes=True) as memory:
        team = _make_team(shared, memory)
        team.check_release(file)
        if not yes:
            _confirm_release(file)
        team.release(file)
    print_message(shared, f"released {file}: the next sync takes or sends this text, and no other")
    print_result(shared, "", {"file": file, "released": True})
    return 0


def _open_memory(shared: SharedOptions, *, writes: bool = False) -> Memory:
    from sevenfold.cli.commands.memory_display import open_memory

    memory = open_memory(shared)
    if writes:  # git keeps files of its own beside the memories: they are ours from the start
        memory.claim()
    return memory


def _make_team(shared: SharedOptions, memory: Memory) -> Team:
    from sevenfold.cli.startup import read_command_context
    from sevenfold.core.clock import SystemClock
    from sevenfold.memory.team.team import Team

    around = read_command_context(shared)
    settings = around.load_settings().settings
    own, plain = around.environment.tool_environment(settings.env), settings.team_plain_remotes
    return Team(memory, SystemClock(), own, project=around.places.tree, plain=plain)


def _format_address(remote: str) -> str:
    """The address without a password."""
    from sevenfold.memory.team.git import parse_address

    return parse_address(remote, Path.cwd()).shown


def _print_sync(shared: SharedOptions, synced: SyncResult, done: str = "") -> int:
    """Print the result of a sync; `done` is one more message for when the repository was reached."""
    from sevenfold.cli.output import print_message, print_result, print_warning
    from sevenfold.memory.team.state import describe_sync, list_remarks

    for line in list_remarks(synced):
        (print_warning if line != synced.note else partial(print_message, shared))(line)
    (print_warning if synced.offline is not None else partial(print_message, shared))(describe_sync(synced))
    if done and synced.offline is None:
        print_message(shared, done)
    print_result(shared, "", synced)
    return 0 if synced.offline is None else 1


def _confirm_release(file: str) -> None:
    from sevenfold.cli.output import ask_yes_or_no
    from sevenfold.core.errors import Mistake, Refused

    if not sys.stdin.isatty():
        raise Mistake(f"{file} would be shared with the whole team: add --yes to say so")
    if not ask_yes_or_no(f"Share {file} with the team although it looks like a secret? [y/N] "):
        raise Refused(f"{file} was not released")
