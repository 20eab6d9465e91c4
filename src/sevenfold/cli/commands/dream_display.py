"""`sevenfold dream status`, `kill` and `undo`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sevenfold.cli.commands.memory_display import open_memory
from sevenfold.cli.options import SharedOptions
from sevenfold.cli.output import format_count, format_time, print_message, print_result
from sevenfold.cli.startup import read_command_context
from sevenfold.core.clock import SystemClock
from sevenfold.layers.l6_dreaming.dreaming import DreamGates
from sevenfold.layers.l6_dreaming.progress import (
    DreamSnapshot,
    ask_to_stop,
    format_names,
    read_last_snapshot,
)
from sevenfold.memory.dreams.lock import DreamLock, DreamLockBusy
from sevenfold.memory.dreams.stage import list_waiting_stages
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.index import INDEX
from sevenfold.memory.store import MemoryStore

if TYPE_CHECKING:
    from sevenfold.memory.folder.undo import LeftFile

PATIENCE: Final = 10.0  # Seconds that a dream is given to stop
_LOOK: Final = 0.1
_TURNS: Final = 5


def show_status(shared: SharedOptions) -> int:
    around = read_command_context(shared)
    settings, clock = around.load_settings().settings, SystemClock()
    with open_memory(shared) as memory:
        gates = DreamGates(
            _make_lock(memory),
            around.find_session_places().project,
            "",
            settings.dream,
            clock,
            lambda: settings.flags.dream,
        )
        lines, value = describe_dreams(memory, gates, "'sevenfold dream --review'")
    print_result(shared, "\n".join(lines), value)
    return 0


def describe_dreams(
    memory: MemoryStore, gates: DreamGates, review: str
) -> tuple[list[str], dict[str, Any]]:
    """The state of dreams as lines for people and as a value; `review` is the command to review one."""
    known, closed = read_last_snapshot(memory.local), gates.check()
    waits, busy, last = list_waiting_stages(memory.local), gates.lock.holder(), gates.lock.last()
    value: dict[str, Any] = {
        "running": known is not None and known.running,
        "dream": known,
        "last": last,
        "gate": closed.gate if closed else None,
        "why": closed.why if closed else "",
        "waiting": waits,
    }
    lines = [_describe_state(known, busy)]
    if known is not None and known.running:
        lines += [f"  {turn}" for turn in known.turns[-_TURNS:]]
        lines += [f"touched: {format_names(known.touched)}"] if known.touched else []
    lines.append(f"last dream: {format_time(last) if last is not None else 'never'}")
    if waits:
        lines.append(f"{format_count(len(waits), 'dream')} ready for review: {review}")
    lines.append(f"next: {closed.why}" if closed else "next: when the agent is at rest, it is time")
    return lines, value


def _make_lock(memory: MemoryStore) -> DreamLock:
    return DreamLock(memory.path_of(), memory.local, SystemClock())


def _describe_state(known: DreamSnapshot | None, busy: DreamLockBusy | None) -> str:
    if known is not None and known.running:
        return f"dreaming since {format_time(known.began)}, process {known.owner.pid}: {known.phase}"
    if busy is not None:
        return str(busy)
    if known is None:
        return "no dream yet"
    if known.status == "running":
        return f"the dream of {format_time(known.began)} died on the way; the next session tries again"
    return f"{format_time(known.ended or known.began)} {known.status}: {known.said}"


def kill_dream(shared: SharedOptions) -> int:
    with open_memory(shared) as memory:
        asked = ask_to_stop(memory.local)
        busy = _make_lock(memory).holder() if asked is None else None
        stopped = asked is not None and _wait_until_stopped(memory, asked.id)
    if asked is None:
        print_message(shared, f"{busy}: it is not ours to stop" if busy else "no dream is going on")
    elif stopped:
        print_message(shared, "the dream was stopped; the memories are as they were")
    else:
        print_message(shared, "the dream was asked to stop, and will as soon as it can")
    value = {"id": asked.id if asked else None, "asked": asked is not None, "stopped": stopped}
    print_result(shared, "", value)
    return 1 if busy else 0


def _wait_until_stopped(memory: MemoryStore, id: str) -> bool:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        known = read_last_snapshot(memory.local)
        if known is None or known.id != id or not known.running:
            return True
        time.sleep(_LOOK)
    return False


def run_undo(shared: SharedOptions) -> int:
    with open_memory(shared) as memory:
        done = undo_last_dream(memory, Author("user"))
    print_message(shared, describe_undo(done))
    print_result(shared, "", done)
    return 0


class DreamUndo(msgspec.Struct, frozen=True):
    """The result of undoing a dream."""

    revision: str
    summary: str
    restored: tuple[str, ...]
    left: tuple[LeftFile, ...]  # Files that were changed since in the same lines, and stay


def undo_last_dream(memory: MemoryStore, author: Author) -> DreamUndo:
    from sevenfold.memory.dreams.commit import undo_dream

    left = undo_dream(memory, author)
    newest = memory.history(limit=1)[0]
    restored = tuple(one.file for one in newest.files if one.file != INDEX)
    return DreamUndo(newest.id, newest.summary, restored, tuple(left))


def describe_undo(done: DreamUndo) -> str:
    """One line about what was taken back, and what was not."""
    names = format_names([one.file for one in done.left])
    left = f"; changed since, and left as it is: {names}" if done.left else ""
    return f"{done.summary}: {format_names(done.restored)} as before{left}"
