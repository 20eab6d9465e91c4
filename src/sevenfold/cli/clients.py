"""`sevenfold hook`, `setup` and `statusline`: Sevenfold beside other people's agents."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from typer import Argument, Option

from sevenfold.cli import options as option
from sevenfold.cli.options import SharedOptions, add_shared_options


class ClientName(StrEnum):
    claude = "claude"
    codex = "codex"
    gemini = "gemini"
    opencode = "opencode"


class SlashCommand(StrEnum):
    recall = "recall"
    history = "history"
    undo = "undo"
    check = "check"
    dream = "dream"
    cost = "cost"


SlashName = Annotated[
    SlashCommand, Argument(metavar="COMMAND", help="recall, history, undo, check, dream or cost.")
]
HookEvent = Annotated[
    str, Argument(metavar="EVENT", help="The event, by the client's own name: SessionStart, Stop, …")
]
HookClient = Annotated[
    ClientName,
    Option("--client", help="The agent that asks. With claude the memory is the one in its own folder."),
]
SetupClient = Annotated[ClientName, Argument(metavar="CLIENT", help="claude, codex, gemini or opencode.")]
Remove = Annotated[bool, Option("--remove", help="Take back what setup wrote, and nothing else.")]


@add_shared_options
def answer_hook(shared: SharedOptions, event: HookEvent, client: HookClient = ClientName.claude) -> int:
    """Answer a hook of another agent, from stdin to stdout.

    Other agents run this; `sevenfold setup` tells them to. It never stops them: a failure is one sentence
    on stderr and exit code 1.
    """
    from sevenfold.cli.commands.clients import run_hook

    return run_hook(shared, event, client.value)


@add_shared_options
def set_up_client(
    shared: SharedOptions, client: SetupClient, yes: option.Yes = False, remove: Remove = False
) -> int:
    """Put Sevenfold beside another agent. Shows what it would write; --yes writes it."""
    from sevenfold.cli.commands.clients import run_setup

    return run_setup(shared, client.value, yes=yes, remove=remove)


@add_shared_options
def run_slash_command(shared: SharedOptions, command: SlashName) -> int:
    """Run a slash command of the plugin for Claude Code. What was typed behind it comes on stdin."""
    from sevenfold.cli.commands.clients import run_slash

    return run_slash(shared, command.value)


@add_shared_options
def print_status_line(shared: SharedOptions) -> int:
    """One line for the status line of Claude Code."""
    from sevenfold.cli.commands.clients import run_statusline

    return run_statusline(shared)
