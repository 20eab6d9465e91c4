"""The memory that a project hands its agents: copied when there is none yet, else only offered."""

from __future__ import annotations

from pathlib import Path

from sevenfold.errors import SevenfoldError
from sevenfold.events import Emit, Notice
from sevenfold.layers.l7_agents.definition_file import Definition
from sevenfold.memory.agents.scopes import agent_place, prepare
from sevenfold.memory.agents.snapshots import Snapshots
from sevenfold.memory.store import MemoryStore
from sevenfold.protocols import Clock


def snapshots_of(
    definition: Definition,
    *,
    home: Path,
    tree: Path,
    state_home: Path,
    trusted: bool,
    clock: Clock,
    emit: Emit,
) -> Snapshots | None:
    """The snapshots of an agent whose memory is the user's; None: it has no such memory."""
    if definition.memory != "user":
        return None
    place = agent_place(definition.name, "user", home=home, tree=tree, state_home=state_home)
    prepare(place)
    store = MemoryStore(place.folder, place.state, clock, emit=emit)
    return Snapshots(definition.name, store, tree, clock, trusted=trusted)


def begin_with_snapshot(
    definition: Definition,
    emit: Emit,
    *,
    home: Path,
    tree: Path,
    state_home: Path,
    trusted: bool,
    clock: Clock,
) -> None:
    """Copy it where there is nothing yet; where there is, say what is offered. Never raises."""
    name = definition.name
    try:
        snapshots = snapshots_of(
            definition,
            home=home,
            tree=tree,
            state_home=state_home,
            trusted=trusted,
            clock=clock,
            emit=emit,
        )
        if snapshots is not None:
            _begin(snapshots, name, emit)
    except SevenfoldError as error:
        emit(Notice(f"the snapshot of the agent {name!r} was not taken over: {error}", "warning"))


def _begin(snapshots: Snapshots, name: str, emit: Emit) -> None:
    offer = snapshots.look()
    if offer.action == "initialise":
        emit(Notice(snapshots.initialise().said))
    elif offer.action == "update":
        how = f"'sevenfold agents snapshot {name} --accept' takes it over, '--decline' does not"
        emit(Notice(f"{offer.said}; {how}"))
    elif offer.said:
        emit(Notice(offer.said, "warning"))
