"""`sevenfold memory quarantine`: what the guard held back, to be read, let through or deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sevenfold.cli.memory_agents import held_back
from sevenfold.cli.memory_showing import opened
from sevenfold.cli.options import Shared
from sevenfold.cli.output import result, say
from sevenfold.cli.surroundings import look
from sevenfold.cli.wording import count, moment, one_line
from sevenfold.memory.guard.found import quarantine_command

if TYPE_CHECKING:
    from sevenfold.memory.guard.quarantine import Held


def show_list(shared: Shared, agent: str | None = None) -> int:
    with opened(shared, agent) as memory:
        held = memory.quarantine.list()
    agents = {} if agent else dict(held_back(look(shared)))
    if not held:
        say(shared, "nothing is in quarantine")
    for name, number in agents.items():
        texts = count(number, "text is", "texts are")
        say(shared, f"{texts} held back from an agent: '{quarantine_command(agent=name)}'")
    value = {"quarantine": [_about(one) for one in held]}
    result(shared, lines(held), value if agent else {**value, "agents": agents})
    return 0


# --- what is held back --------------------------------------------------------------------------------


def lines(held: Sequence[Held]) -> str:
    """One line for each: its number, when, which memory it was to become, and why not."""
    return "\n".join(
        f"{one.number:>4}  {moment(one.at)}  {one_line(f'{one.file}: {_why(one)}', 200)}"
        if not one.damaged
        else f"{one.number:>4}  {one_line(one.damaged, 200)}"
        for one in held
    )


def _why(held: Held) -> str:
    found = "; ".join(dict.fromkeys(f"{one.where} {one.what}" for one in held.findings))
    return f"{found} (from {held.source})" if held.source else found


def _about(held: Held) -> dict[str, Any]:
    return {
        "number": held.number,
        "file": held.file,
        "source": held.source,
        "author": held.author,
        "at": held.at,
        "findings": held.findings,
        "damaged": held.damaged,
    }


def show(shared: Shared, number: int, agent: str | None = None) -> int:
    with opened(shared, agent) as memory:
        held = memory.quarantine.show(number)
    if held.damaged:
        say(shared, held.damaged)
    else:
        say(shared, f"{held.file} was held back: {_why(held)}")
        how = quarantine_command(f"release {number}", agent or "")
        say(shared, f"'{how}' makes it a memory")
    result(shared, held.text.rstrip(), {**_about(held), "text": held.text})
    return 0


def release(shared: Shared, number: int, agent: str | None = None) -> int:
    with opened(shared, agent) as memory:
        saved = memory.release(number)
    say(shared, f"{saved.action} {saved.name}: {saved.path}")
    result(shared, "", saved)
    return 0


def drop(shared: Shared, number: int, agent: str | None = None) -> int:
    with opened(shared, agent) as memory:
        memory.quarantine.drop(number)
    say(shared, f"number {number} is deleted")
    result(shared, "", {"number": number, "dropped": True})
    return 0
