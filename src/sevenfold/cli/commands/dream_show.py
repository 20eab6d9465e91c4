"""`sevenfold dream status`, `kill` and `undo`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sevenfold.cli.commands.memory_read import opened
from sevenfold.cli.options import Shared
from sevenfold.cli.output import count, moment, result, say
from sevenfold.cli.surroundings import look
from sevenfold.clock import SystemClock
from sevenfold.layers.l6_dreaming.gates import Gates
from sevenfold.layers.l6_dreaming.progress import Snapshot, ask_to_stop, last_known, listed
from sevenfold.memory.dreams.lock import Busy, DreamLock
from sevenfold.memory.dreams.stage import waiting
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.index import INDEX
from sevenfold.memory.store import MemoryStore

if TYPE_CHECKING:
    from sevenfold.memory.dreams.merge import Conflict

PATIENCE: Final = 10.0
"""Seconds that a dream is given to stop."""
_LOOK: Final = 0.1
_TURNS: Final = 5


def status(shared: Shared) -> int:
    around = look(shared)
    settings, clock = around.settings().settings, SystemClock()
    with opened(shared) as memory:
        gates = Gates(
            _lock(memory),
            around.scoped().project,
            "",
            settings.dream,
            clock,
            lambda: settings.flags.dream,
        )
        lines, value = standing(memory, gates, "'sevenfold dream --review'")
    result(shared, "\n".join(lines), value)
    return 0


def standing(memory: MemoryStore, gates: Gates, review: str) -> tuple[list[str], dict[str, Any]]:
    """How it stands with dreams, in lines for people and as a value; `review` is how to look at one."""
    known, closed = last_known(memory.state), gates.check()
    waits, busy, last = waiting(memory.state), gates.lock.holder(), gates.lock.last()
    value: dict[str, Any] = {
        "running": known is not None and known.running,
        "dream": known,
        "last": last,
        "gate": closed.gate if closed else None,
        "why": closed.why if closed else "",
        "waiting": waits,
    }
    lines = [_state(known, busy), *(_details(known) if known else ())]
    lines.append(f"last dream: {moment(last) if last is not None else 'never'}")
    if waits:
        lines.append(f"{count(len(waits), 'dream')} ready for review: {review}")
    lines.append(f"next: {closed.why}" if closed else "next: when the agent is at rest, it is time")
    return lines, value


def _lock(memory: MemoryStore) -> DreamLock:
    return DreamLock(memory.folder, memory.state, SystemClock())


def _state(known: Snapshot | None, busy: Busy | None) -> str:
    if known is not None and known.running:
        return f"dreaming since {moment(known.began)}, process {known.owner.pid}: {known.phase}"
    if busy is not None:
        return str(busy)
    if known is None:
        return "no dream yet"
    if known.status == "running":
        return f"the dream of {moment(known.began)} died on the way; the next session tries again"
    return f"{moment(known.ended or known.began)} {known.status}: {known.said}"


def _details(known: Snapshot) -> list[str]:
    if not known.running:
        return []
    lines = [f"  {turn}" for turn in known.turns[-_TURNS:]]
    return [*lines, f"touched: {listed(known.touched)}"] if known.touched else lines


def kill(shared: Shared) -> int:
    with opened(shared) as memory:
        asked = ask_to_stop(memory.state)
        busy = _lock(memory).holder() if asked is None else None
        stopped = asked is not None and _stopped(memory, asked.id)
    if asked is None:
        say(shared, f"{busy}: it is not ours to stop" if busy else "no dream is going on")
    elif stopped:
        say(shared, "the dream was stopped; the memories are as they were")
    else:
        say(shared, "the dream was asked to stop, and will as soon as it can")
    value = {"id": asked.id if asked else None, "asked": asked is not None, "stopped": stopped}
    result(shared, "", value)
    return 1 if busy else 0


def _stopped(memory: MemoryStore, id: str) -> bool:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        known = last_known(memory.state)
        if known is None or known.id != id or not known.running:
            return True
        time.sleep(_LOOK)
    return False


def undo(shared: Shared) -> int:
    with opened(shared) as memory:
        done = taken_back(memory, Author("user"))
    say(shared, told(done))
    result(shared, "", done)
    return 0


class TakenBack(msgspec.Struct, frozen=True):
    """What undoing a dream has done."""

    revision: str
    summary: str
    restored: tuple[str, ...]
    left: tuple[Conflict, ...]
    """What was changed since in the same lines, and stays."""


def taken_back(memory: MemoryStore, author: Author) -> TakenBack:
    """Undo the last dream."""
    from sevenfold.memory.dreams.commit import undo_dream

    left = undo_dream(memory, author)
    newest = memory.history(limit=1)[0]
    restored = tuple(one.file for one in newest.files if one.file != INDEX)
    return TakenBack(newest.id, newest.summary, restored, tuple(left))


def told(done: TakenBack) -> str:
    """What was taken back, and what was not."""
    names = listed([one.file for one in done.left])
    left = f"; changed since, and left as it is: {names}" if done.left else ""
    return f"{done.summary}: {listed(done.restored)} as before{left}"
