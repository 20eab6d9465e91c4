"""Whose memory a command is about: that of the project, or with --agent that of a kind of agent."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from sevenfold.cli.agents_showing import found
from sevenfold.cli.memory_showing import place_of, warn
from sevenfold.cli.options import Shared
from sevenfold.cli.surroundings import Surroundings, look
from sevenfold.clock import SystemClock
from sevenfold.errors import Mistake, SevenfoldError
from sevenfold.memory.agents.scopes import AgentPlace, agent_places, folder_name
from sevenfold.memory.store import QUARANTINE
from sevenfold.whereabouts import MemoryPlace


def place_of_agent(shared: Shared, agent: str) -> MemoryPlace:
    """Where the memory of this agent is; `Mistake` names the agents that have one."""
    own, place = place_of(shared), _place(look(shared), agent)
    return replace(own, folder=place.folder, state=place.state, owner=None)


def held_back(around: Surroundings) -> Iterator[tuple[str, int]]:
    """How many texts are held back from which agents."""
    for one in _places(around):
        if number := _held(one):
            yield one.folder.name, number


def _place(around: Surroundings, agent: str) -> AgentPlace:
    wanted, every = folder_name(agent).casefold(), _places(around)
    fitting = [one for one in every if one.folder.name.casefold() == wanted]
    if not fitting:
        names = ", ".join(dict.fromkeys(one.folder.name for one in every)) or "none"
        unseen = "" if around.trusted else f"; those in {around.places.tree} wait for its trust"
        raise Mistake(f"no agent {agent!r} has a memory here; those that have one: {names}{unseen}")
    kinds = found(around).definitions.values()
    scopes = {one.memory for one in kinds if folder_name(one.name).casefold() == wanted}
    return min(fitting, key=lambda one: (one.scope not in scopes, not _held(one)))


def _places(around: Surroundings) -> list[AgentPlace]:
    home = around.environment.shared or around.home
    tree = around.places.tree if around.trusted else None
    return [*agent_places(home, tree, around.home)]


def _held(place: AgentPlace) -> int:
    from sevenfold.memory.guard.quarantine import Quarantine

    try:
        return len(Quarantine(place.state / QUARANTINE, SystemClock()).list())
    except SevenfoldError as error:
        warn(str(error))
        return 0
