"""`sevenfold agents`: the commands and their options; the bodies are in `cli/commands/agents.py`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option, Typer

from sevenfold.cli.options import PLAIN, SharedOptions, add_shared_options

agents = Typer(
    name="agents", help="Kinds of agents, and who can be written to. Without a command: list.", **PLAIN
)
Kind = Annotated[str, Argument(metavar="NAME", help="A kind of agent.")]
Who = Annotated[str, Argument(metavar="NAME", help="A teammate or a session, as 'list' names them.")]
Words = Annotated[list[str], Argument(metavar="TEXT…", help="What to say.")]
Summary = Annotated[
    str | None, Option("--summary", metavar="TEXT", help="What it is about; else how it begins.")
]

Accept = Annotated[bool, Option("--accept", help="Take it over.")]
Decline = Annotated[bool, Option("--decline", help="Do not offer this one again.")]


@agents.command("list")
@add_shared_options
def list_(shared: SharedOptions) -> int:
    """Kinds of agents. Also the sessions and teammates that can be written to."""
    from sevenfold.cli.commands.agents import list_agents as work

    return work(shared)


@agents.command("show")
@add_shared_options
def show(shared: SharedOptions, name: Kind) -> int:
    """One kind of agent. Its tools, its model, its memory, how it runs, its prompt, and its file."""
    from sevenfold.cli.commands.agents import show_agent as work

    return work(shared, name)


@agents.command("snapshot")
@add_shared_options
def snapshot(shared: SharedOptions, name: Kind, accept: Accept = False, decline: Decline = False) -> int:
    """The memory that this project hands an agent of yours.

    It is taken over only when you say so. Files that were changed here stay, and the new ones are put
    beside them.
    """
    from sevenfold.cli.commands.agents import handle_snapshot as work

    return work(shared, name, accept=accept, decline=decline)


@agents.command("send")
@add_shared_options
def send(shared: SharedOptions, name: Who, text: Words, summary: Summary = None) -> int:
    """Write to a session or a teammate on this machine.

    It reads it at its next step. It arrives as a message from a peer, never as what the user said there.
    """
    from sevenfold.cli.commands.agents import send_letter as work

    return work(shared, name, " ".join(text), summary)
