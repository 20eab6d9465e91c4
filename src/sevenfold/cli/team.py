"""`sevenfold team`: memories that a team shares through a git repository."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from sevenfold.cli.options import PLAIN, CommonOptions, Yes, add_common_options

if TYPE_CHECKING:
    from sevenfold.memory.api import Memory
    from sevenfold.memory.team.git import SyncResult
    from sevenfold.memory.team.team import Team

team = typer.Typer(
    name="team",
    help="Memories that a team shares through a git repository. Without a command: status.",
    **PLAIN,
)
Remote: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="REMOTE",
        help="The repository: a path, git@host:path, or a file://, ssh:// or https:// address.",
    ),
]
TeamFile: TypeAlias = Annotated[
    str, typer.Argument(metavar="FILE", help="The file, as 'sevenfold team status' names it.")
]


@team.command("init")
@add_common_options
def init(shared: CommonOptions, remote: Remote) -> int:
    """Begin a team in an empty repository. A path that does not exist is made one."""
    with _opened(shared, writes=True) as memory:
        synced = _team(shared, memory).init(remote, Path.cwd())
        where = _shown(remote)
        begun = f"the team's memory is in {where}; others come in with: sevenfold team join {where}"
        return _said(shared, synced, begun)


@team.command("join")
@add_common_options
def join(shared: CommonOptions, remote: Remote) -> int:
    """Join a team. Its memories come into team/, and what lies there already goes to the team."""
    with _opened(shared, writes=True) as memory:
        synced = _team(shared, memory).join(remote, Path.cwd())
        return _said(shared, synced, f"joined the team in {_shown(remote)}")


@team.command("status")
@add_common_options
def status(shared: CommonOptions) -> int:
    """Where the team's repository is. Also what was not sent or taken yet, and what was refused."""
    from sevenfold.cli.output import format_time, print_result
    from sevenfold.memory.team.state import describe_status

    with _opened(shared) as memory:
        known = _team(shared, memory).status()
    when = format_time(known.synced) if known.synced is not None else "never"
    lines = describe_status(known)
    print_result(shared, "\n".join([lines[0], f"last sync: {when}", *lines[1:]]), known)
    return 0


@team.command("sync")
@add_common_options
def sync(shared: CommonOptions) -> int:
    """Take what the team changed and send what changed here. Exit code 1 when that was not possible."""
    with _opened(shared, writes=True) as memory:
        return _said(shared, _team(shared, memory).sync())


@team.command("release")
@add_common_options
def release(shared: CommonOptions, file: TeamFile, yes: Yes = False) -> int:
    """Share this text although it looks like a secret. Exactly this one, because you say so."""
    from sevenfold.cli.output import print_message, print_result

    with _opened(shared, writes=True) as memory:
        team = _team(shared, memory)
        team.check_release(file)
        if not yes:
            _ask(file)
        team.release(file)
    print_message(shared, f"released {file}: the next sync takes or sends this text, and no other")
    print_result(shared, "", {"file": file, "released": True})
    return 0


def _opened(shared: CommonOptions, *, writes: bool = False) -> Memory:
    from sevenfold.cli.commands.memory_display import open_memory

    memory = open_memory(shared)
    if writes:  # git keeps files of its own beside the memories: they are ours from the start
        memory.claim()
    return memory


def _team(shared: CommonOptions, memory: Memory) -> Team:
    from sevenfold.cli.command_context import read_command_context
    from sevenfold.core.clock import SystemClock
    from sevenfold.memory.team.team import Team

    around = read_command_context(shared)
    own = around.environment.tool_environment(around.load_settings().settings.env)
    return Team(memory, SystemClock(), own, project=around.places.tree)


def _shown(remote: str) -> str:
    """The address without what is secret in it."""
    from sevenfold.memory.team.git import parse_address

    return parse_address(remote, Path.cwd()).shown


def _said(shared: CommonOptions, synced: SyncResult, done: str = "") -> int:
    """`done`: what was achieved besides the sync, if that was possible."""
    from sevenfold.cli.commands.memory_display import print_warning
    from sevenfold.cli.output import print_message, print_result
    from sevenfold.memory.team.state import describe_sync, list_remarks

    for line in list_remarks(synced):
        (print_warning if line != synced.note else partial(print_message, shared))(line)
    (print_warning if synced.offline is not None else partial(print_message, shared))(describe_sync(synced))
    if done and synced.offline is None:
        print_message(shared, done)
    print_result(shared, "", synced)
    return 0 if synced.offline is None else 1


def _ask(file: str) -> None:
    from sevenfold.core.errors import Mistake, Refused

    if not sys.stdin.isatty():
        raise Mistake(f"{file} would be shared with the whole team: add --yes to say so")
    question = f"Share {file} with the team although it looks like a secret? [y/N] "
    print(question, end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused(f"{file} was not released")
