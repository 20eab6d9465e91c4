"""`sevenfold agents snapshot`: what a project hands an agent, looked at, taken over or declined."""

from __future__ import annotations

from sevenfold.cli.agents_showing import found, saying
from sevenfold.cli.options import Shared
from sevenfold.cli.output import result
from sevenfold.cli.surroundings import look
from sevenfold.clock import SystemClock
from sevenfold.errors import Mistake
from sevenfold.layers.l7_agents.agent_snapshots import snapshots_of
from sevenfold.layers.l7_agents.definitions import chosen
from sevenfold.memory.agents.snapshots import Offer


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
