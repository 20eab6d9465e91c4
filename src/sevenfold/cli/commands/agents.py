"""What `sevenfold agents` shows and sends: kinds of agents, sessions and teammates on this machine.

`sevenfold agents snapshot`: what a project hands an agent, looked at, taken over or declined.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from sevenfold.cli.options import Shared
from sevenfold.cli.output import count, one_line, result, say
from sevenfold.cli.surroundings import Surroundings, look
from sevenfold.clock import SystemClock, run_sync
from sevenfold.errors import Mistake, Refused
from sevenfold.events import Event, Failed, Notice
from sevenfold.layers.l7_agents.definitions import (
    Definition,
    Found,
    chosen,
    definition_folders,
    find_definitions,
    shown,
)
from sevenfold.layers.l7_agents.mail import TEAMS, PostOffice, Teammate
from sevenfold.layers.l7_agents.mailbox import (
    COMMAND_LINE,
    SESSION,
    new_letter,
    refused_address,
    same_name,
    shortened,
)
from sevenfold.layers.l7_agents.memory import snapshots_of
from sevenfold.layers.l7_agents.sockets import Reachable, Sessions, reachable, runtime_folder
from sevenfold.memory.agents import Offer


class Mate(msgspec.Struct, frozen=True):
    """A teammate, and whose."""

    team: str
    name: str
    kind: str
    status: str


def found(around: Surroundings) -> Found:
    """The kinds of agents that a session here would have."""
    home = around.environment.shared or around.home
    return find_definitions(
        definition_folders(home, around.places.tree if around.trusted else None)
    )


def list_all(shared: Shared) -> int:
    around = look(shared)
    kinds, sessions = found(around), _sessions(around)
    teammates = [*_teammates(around, shared, sessions)]
    _warn(shared, around, kinds.every)
    value = {
        "definitions": [_data(one) for one in kinds.definitions.values()],
        "sessions": [{"address": _address(one), **msgspec.structs.asdict(one)} for one in sessions],
        "teammates": teammates,
        "problems": kinds.every,
    }
    result(shared, "\n".join(_lines(kinds, sessions, teammates)), value)
    return 0


def _lines(kinds: Found, sessions: list[Reachable], teammates: list[Mate]) -> Iterator[str]:
    width = max(map(len, kinds.definitions), default=0)
    for one in kinds.definitions.values():
        most = 100 if sys.stdout.isatty() else len(one.description)
        yield f"{one.name:<{width}}  {one_line(one.description, most)}"
    if sessions:
        yield f"\n{count(len(sessions), 'session')} can be written to:"
        for there in sessions:
            yield f"  {_address(there)}  {there.project}"
    else:
        yield "\nno session can be written to: none is open in a chat"
    for mate in teammates:
        yield f"  {mate.name} ({mate.kind}, {mate.status}) of {mate.team}"


def _address(there: Reachable) -> str:
    """As 'send' takes it."""
    return f"{SESSION}{there.session}"


def show(shared: Shared, name: str) -> int:
    around = look(shared)
    kinds = found(around)
    _warn(shared, around, ())
    one = chosen(kinds.definitions, name)
    for text in kinds.every:
        if one.path is not None and text.startswith(f"{shown(one.path)}:"):
            say(shared, text)
    lines = [f"{one.name}: {one.description}", *(f"  {key}: {text}" for key, text in _facts(one))]
    result(shared, "\n".join([*lines, "", one.prompt.strip()]), _data(one))
    return 0


def _facts(one: Definition) -> Iterator[tuple[str, str]]:
    yield "tools", ", ".join(one.tools) if one.tools is not None else "all"
    if one.without:
        yield "disallowedTools", ", ".join(one.without)
    yield "model", one.model or "that of the session"
    yield "memory", one.memory or "none"
    yield "background", "yes" if one.background else "no"
    yield "isolation", one.isolation or "none"
    yield "maxTurns", f"{one.max_turns:,}" if one.max_turns else "as many as the session allows"
    yield "file", str(one.path) if one.path else "built in"


def send(shared: Shared, name: str, text: str, summary: str | None) -> int:
    around = look(shared)
    letter = new_letter(COMMAND_LINE, text, summary or shortened(text), SystemClock())
    if not text.strip():
        raise Mistake("there is nothing to send: say what the message is")
    if why := refused_address(name):
        raise Refused(why)
    sessions = _sessions(around)
    mates = [one for one in _teammates(around, shared, sessions) if same_name(one.name, name)]
    if len(mates) > 1:
        teams = ", ".join(one.team for one in mates)
        raise Mistake(
            f"several teammates are called {name}, in the sessions {teams}: write to one "
            f"of these as {SESSION}<session>"
        )
    if mates:
        post = PostOffice(around.home, mates[0].team, SystemClock(), saying(shared))
        run_sync(post.send, mates[0].name, letter)
        told = f"{mates[0].name} of {mates[0].team}"
    else:
        there = _others(around)
        if there is None:
            raise Refused("no session can be reached: the path of its socket would be too long")
        told = f"{SESSION}{run_sync(there.send, name.removeprefix(SESSION), letter).session}"
    result(shared, f"sent to {told}", {"to": told, "id": letter.id, "summary": letter.summary})
    return 0


def _others(around: Surroundings) -> Sessions | None:
    folder = _sockets(around)
    return Sessions(folder, "", SystemClock()) if folder is not None else None


def _sockets(around: Surroundings) -> Path | None:
    try:
        return runtime_folder(around.home, around.environment.variables)
    except Refused:
        return None


def _sessions(around: Surroundings) -> list[Reachable]:
    folder = _sockets(around)
    return reachable(folder) if folder is not None else []


def _teammates(around: Surroundings, shared: Shared, sessions: list[Reachable]) -> Iterator[Mate]:
    """Those of the sessions that are open: the others' would not be read soon."""
    for one in sessions:
        if not (around.home / TEAMS / one.session).is_dir():
            continue
        post = PostOffice(around.home, one.session, SystemClock(), saying(shared))
        yield from (_mate(one.session, member) for member in post.members())


def _mate(team: str, member: Teammate) -> Mate:
    return Mate(team, member.name, member.kind, member.status)


def _data(one: Definition) -> dict[str, Any]:
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


def _warn(shared: Shared, around: Surroundings, problems: Iterable[str]) -> None:
    for text in problems:
        say(shared, text)
    hidden = definition_folders(around.home, around.places.tree)[1:]
    if not around.trusted and any(folder.is_dir() for folder in hidden):
        say(
            shared,
            "the agents of this folder are left out: it is not trusted ('sevenfold trust' does)",
        )


def saying(shared: Shared) -> Any:
    def tell(event: Event) -> None:
        if isinstance(event, Notice | Failed):
            say(shared, event.text if isinstance(event, Notice) else event.cause)

    return tell


def snapshot(shared: Shared, name: str, *, accept: bool, decline: bool) -> int:
    if accept and decline:
        raise Mistake("--accept and --decline: say one of them")
    around = look(shared)
    definition = chosen(found(around).definitions, name)
    snapshots = snapshots_of(
        definition,
        home=around.environment.shared or around.home,
        tree=around.places.tree,
        state_home=around.home,
        trusted=around.trusted,
        clock=SystemClock(),
        emit=saying(shared),
    )
    if snapshots is None:
        raise Mistake(
            f"the agent {definition.name!r} has no memory of the user's: snapshots are for agents with "
            "'memory: user'"
        )
    offer = snapshots.look()
    told, action = _offered(offer, definition.name), str(offer.action)
    if accept and action == "initialise":
        told = snapshots.initialise().said
    elif accept and action == "update":
        told = snapshots.accept().said
    elif decline and action != "nothing":
        snapshots.decline()
        told = "declined; a newer one is offered again"
    value = {"name": definition.name, "action": action, "updated": offer.updated, "said": told}
    result(shared, told, value)
    return 0


def _offered(offer: Offer, name: str) -> str:
    if offer.action != "initialise":
        return offer.said or "there is nothing to take over"
    return (
        f"the project brings a first memory for the agent {name!r}, of {offer.updated}: it is copied when "
        "the agent begins to work, or now with --accept; --decline leaves it"
    )
