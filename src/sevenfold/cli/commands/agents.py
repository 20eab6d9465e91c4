"""`sevenfold agents`: kinds of agents, sessions and teammates on this machine, snapshots of a project."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from sevenfold.cli.options import SharedOptions
from sevenfold.cli.output import format_count, print_message, print_result, to_one_line
from sevenfold.cli.startup import CommandContext, read_command_context
from sevenfold.core.clock import SystemClock, run_sync
from sevenfold.core.errors import Mistake, Refused
from sevenfold.core.events import Emit, Event, Failed, Notice
from sevenfold.layers.l7_agents.definitions import (
    AgentDefinition,
    AgentDefinitions,
    choose_definition,
    find_definitions,
    format_path,
    list_definition_folders,
)
from sevenfold.layers.l7_agents.mail import TEAMS, PostOffice
from sevenfold.layers.l7_agents.mailbox import (
    COMMAND_LINE,
    SESSION,
    explain_bad_address,
    is_same_name,
    make_letter,
    summarise_text,
)
from sevenfold.layers.l7_agents.memory import find_snapshots
from sevenfold.layers.l7_agents.sockets import (
    PeerSessions,
    SessionAddress,
    find_runtime_folder,
    list_reachable,
)


class TeammateRow(msgspec.Struct, frozen=True):
    """A teammate of a session."""

    team: str
    name: str
    kind: str
    status: str


def find_agent_kinds(around: CommandContext) -> AgentDefinitions:
    """The kinds of agents that a session here would have."""
    home = around.environment.shared or around.home
    return find_definitions(list_definition_folders(home, around.places.tree if around.trusted else None))


def list_agents(shared: SharedOptions) -> int:
    around = read_command_context(shared)
    kinds, sessions = find_agent_kinds(around), _list_sessions(around)
    teammates = [*_list_teammates(around, shared, sessions)]
    _print_warnings(shared, around, kinds.every)
    value = {
        "definitions": [_to_json(one) for one in kinds.definitions.values()],
        "sessions": [
            {"address": f"{SESSION}{one.session}", **msgspec.structs.asdict(one)} for one in sessions
        ],
        "teammates": teammates,
        "problems": kinds.every,
    }
    print_result(shared, "\n".join(_format_agents(kinds, sessions, teammates)), value)
    return 0


def _format_agents(
    kinds: AgentDefinitions, sessions: list[SessionAddress], teammates: list[TeammateRow]
) -> Iterator[str]:
    width = max(map(len, kinds.definitions), default=0)
    for one in kinds.definitions.values():
        most = 100 if sys.stdout.isatty() else len(one.description)
        yield f"{one.name:<{width}}  {to_one_line(one.description, most)}"
    if sessions:
        yield f"\n{format_count(len(sessions), 'session')} can be written to:"
        for there in sessions:
            yield f"  {SESSION}{there.session}  {there.project}"
    else:
        yield "\nno session can be written to: none is open in a chat"
    for mate in teammates:
        yield f"  {mate.name} ({mate.kind}, {mate.status}) of {mate.team}"


def show_agent(shared: SharedOptions, name: str) -> int:
    around = read_command_context(shared)
    kinds = find_agent_kinds(around)
    _print_warnings(shared, around, ())
    one = choose_definition(kinds.definitions, name)
    for text in kinds.every:
        if one.path is not None and text.startswith(f"{format_path(one.path)}:"):
            print_message(shared, text)
    lines = [f"{one.name}: {one.description}", *(f"  {key}: {text}" for key, text in _list_facts(one))]
    print_result(shared, "\n".join([*lines, "", one.prompt.strip()]), _to_json(one))
    return 0


def _list_facts(one: AgentDefinition) -> Iterator[tuple[str, str]]:
    yield "tools", ", ".join(one.tools) if one.tools is not None else "all"
    if one.without:
        yield "disallowedTools", ", ".join(one.without)
    yield "model", one.model or "that of the session"
    yield "memory", one.memory or "none"
    yield "background", "yes" if one.background else "no"
    yield "isolation", one.isolation or "none"
    yield "maxTurns", f"{one.max_turns:,}" if one.max_turns else "as many as the session allows"
    yield "file", str(one.path) if one.path else "built in"


def send_letter(shared: SharedOptions, name: str, text: str, summary: str | None) -> int:
    around = read_command_context(shared)
    letter = make_letter(COMMAND_LINE, text, summary or summarise_text(text), SystemClock())
    if not text.strip():
        raise Mistake("there is nothing to send: say what the message is")
    if why := explain_bad_address(name):
        raise Refused(why)
    sessions = _list_sessions(around)
    mates = [one for one in _list_teammates(around, shared, sessions) if is_same_name(one.name, name)]
    if len(mates) > 1:
        teams = ", ".join(one.team for one in mates)
        raise Mistake(
            f"several teammates are called {name}, in the sessions {teams}: write to one "
            f"of these as {SESSION}<session>"
        )
    if mates:
        post = PostOffice(around.home, mates[0].team, SystemClock(), make_notice_printer(shared))
        run_sync(post.send, mates[0].name, letter)
        told = f"{mates[0].name} of {mates[0].team}"
    else:
        folder = _find_socket_folder(around)
        if folder is None:
            raise Refused("no session can be reached: the path of its socket would be too long")
        peers = PeerSessions(folder, "", SystemClock())
        told = f"{SESSION}{run_sync(peers.send, name.removeprefix(SESSION), letter).session}"
    print_result(shared, f"sent to {told}", {"to": told, "id": letter.id, "summary": letter.summary})
    return 0


def _find_socket_folder(around: CommandContext) -> Path | None:
    try:
        return find_runtime_folder(around.home, around.environment.variables)
    except Refused:
        return None


def _list_sessions(around: CommandContext) -> list[SessionAddress]:
    folder = _find_socket_folder(around)
    return list_reachable(folder) if folder is not None else []


def _list_teammates(
    around: CommandContext, shared: SharedOptions, sessions: list[SessionAddress]
) -> Iterator[TeammateRow]:
    """The teammates of open sessions; those of closed ones would not read a message soon."""
    for one in sessions:
        if not (around.home / TEAMS / one.session).is_dir():
            continue
        post = PostOffice(around.home, one.session, SystemClock(), make_notice_printer(shared))
        for member in post.members():
            yield TeammateRow(one.session, member.name, member.kind, member.status)


def _to_json(one: AgentDefinition) -> dict[str, Any]:
    return {
        "name": one.name,
        "description": one.description,
        "tools": one.tools,
        "disallowed_tools": one.without,
        "model": one.model,
        "memory": one.memory,
        "background": one.background,
        "isolation": one.isolation,
        "max_turns": one.max_turns,
        "path": str(one.path) if one.path else None,
        "prompt": one.prompt,
    }


def _print_warnings(shared: SharedOptions, around: CommandContext, problems: Iterable[str]) -> None:
    for text in problems:
        print_message(shared, text)
    hidden = list_definition_folders(around.home, around.places.tree)[1:]
    if not around.trusted and any(folder.is_dir() for folder in hidden):
        print_message(
            shared, "the agents of this folder are left out: it is not trusted ('sevenfold trust' does)"
        )


def make_notice_printer(shared: SharedOptions) -> Emit:
    def print_notice(event: Event) -> None:
        if isinstance(event, Notice | Failed):
            print_message(shared, event.text if isinstance(event, Notice) else event.cause)

    return print_notice


def handle_snapshot(shared: SharedOptions, name: str, *, accept: bool, decline: bool) -> int:
    if accept and decline:
        raise Mistake("--accept and --decline: say one of them")
    around = read_command_context(shared)
    definition = choose_definition(find_agent_kinds(around).definitions, name)
    snapshots = find_snapshots(
        definition,
        home=around.environment.shared or around.home,
        tree=around.places.tree,
        state_home=around.home,
        trusted=around.trusted,
        clock=SystemClock(),
        emit=make_notice_printer(shared),
    )
    if snapshots is None:
        raise Mistake(
            f"the agent {definition.name!r} has no memory of the user's: snapshots are for agents with "
            "'memory: user'"
        )
    offer = snapshots.look()
    told, action = offer.said or "there is nothing to take over", str(offer.action)
    if action == "initialise":
        told = (
            f"the project brings a first memory for the agent {definition.name!r}, of {offer.updated}: it "
            "is copied when the agent begins to work, or now with --accept; --decline leaves it"
        )
    if accept and action == "initialise":
        told = snapshots.initialise().said
    elif accept and action == "update":
        told = snapshots.accept().said
    elif decline and action != "nothing":
        snapshots.decline()
        told = "declined; a newer one is offered again"
    value = {"name": definition.name, "action": action, "updated": offer.updated, "said": told}
    print_result(shared, told, value)
    return 0
