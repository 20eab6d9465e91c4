"""Runs a dream for a command: with a model in a session of its own, or by rules alone."""

from __future__ import annotations

import io
import select
import sys

import anyio
import msgspec

from sevenfold.cli.chat.tasks import find_dreaming_layer
from sevenfold.cli.commands.memory_display import open_memory
from sevenfold.cli.failures import INTERRUPTED
from sevenfold.cli.options import ChatOptions, CommonOptions
from sevenfold.cli.output import EventPrinter, SideOutput, make_printable, print_message, print_result
from sevenfold.cli.startup import open_session
from sevenfold.cli.surroundings import read_command_context
from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake
from sevenfold.core.events import Emit, Event, Progress
from sevenfold.layers.l6_dreaming.dream_run import DreamMode, DreamResult, DreamRunner, describe_result
from sevenfold.layers.l6_dreaming.review import (
    accept_review,
    find_newest_review,
    preview_review,
    reject_review,
)
from sevenfold.layers.l6_dreaming.workers import RuleDreamer
from sevenfold.memory.store import MemoryStore
from sevenfold.models.capabilities import OFFLINE
from sevenfold.session.project import Project

GATES = ("off", "time", "scan", "sessions")
"""Those that --now goes around."""
_UNDO = "'sevenfold dream undo'"
_REVIEW = "'sevenfold dream --review'"


def run_dream(
    shared: CommonOptions, *, now: bool, dry_run: bool, review: bool, model: str | None = None
) -> int:
    if dry_run and review:
        raise Mistake("--dry-run changes nothing, so there is nothing to review: leave one of them out")
    with open_memory(shared) as memory:
        if memory.exists():
            memory.claim()
        waits = find_newest_review(memory.local)
        if review and waits is not None:
            return _reviewed(shared, memory, waits, DreamResult(status="completed", review=waits))
        how: DreamMode | None = "preview" if dry_run else "review" if review else None
        ended = _dreamt(shared, memory, by_hand=now or dry_run or review, how=how, model=model)
        if ended.review is not None and review:
            return _reviewed(shared, memory, ended.review, ended)
    return _told(shared, ended)


def _dreamt(
    shared: CommonOptions, memory: MemoryStore, *, by_hand: bool, how: DreamMode | None, model: str | None
) -> DreamResult:
    at = Project.open(shared.project, read_command_context(shared).environment, {}, lambda event: None)
    heard = EventPrinter(SideOutput(quiet=shared.quiet, color=not shared.no_color))

    def telling(event: Event) -> None:
        """How it ended is the command's own last word."""
        if not (isinstance(event, Progress) and event.done):
            heard(event)

    if (model or at.default_model) != OFFLINE:
        return anyio.run(_by_model, shared, model, by_hand, how, telling)
    clock = SystemClock()
    dreams = DreamRunner(memory, at.places.project, clock, telling, at.settings.dream)

    async def by_rule() -> DreamResult:
        return await dreams.dream(
            RuleDreamer(clock, lambda: dreams.previous),
            by_hand=by_hand or at.settings.assistant_mode,
            how=how,
        )

    return anyio.run(by_rule)


async def _by_model(
    shared: CommonOptions, model: str | None, by_hand: bool, how: DreamMode | None, telling: Emit
) -> DreamResult:
    """A conversation in which nothing was said: only its frame is the prefix, and nothing is recorded."""
    options = ChatOptions(shared=shared, model=model)
    async with open_session(options, started_by="dream", interactive=True) as session:
        session.subscribe(telling)
        layer = find_dreaming_layer(session)
        if layer is None:
            raise Mistake("dreaming is switched off: set the flag 'dream' in the settings")
        return await layer.asked(session.request, by_hand=by_hand, how=how)


# --- review ---------------------------------------------------------------------------------------------


def _reviewed(shared: CommonOptions, memory: MemoryStore, id: str, ended: DreamResult) -> int:
    """Show what would change now, and do as the user says; without an answer it goes on waiting."""
    seen = preview_review(memory, id)
    asked = sys.stdin is not None and sys.stdin.isatty()
    if asked or not shared.json:  # the document has it, too
        print(make_printable(seen.diff) or "(nothing would change any more)", file=sys.stderr)
    answer = _answer() if asked else _piped()
    if answer is None:
        waits = f"the dream waits: {_REVIEW} asks again, nothing is changed until then"
        print_message(shared, waits)
        left = msgspec.structs.replace(ended.with_outcome(seen, id, seen.diff or None), why=waits)
        return _told(shared, left, silent=True)
    if not answer:
        reject_review(memory, id)
        print_message(shared, "the dream was dropped; nothing is changed")
        return _told(
            shared, DreamResult(status="skipped", gate="review", why="it was rejected"), silent=True
        )
    taken = accept_review(memory, id)
    return _told(shared, ended.with_outcome(taken, None, taken.diff or None))


def _answer() -> bool | None:
    """Yes or no; None when nobody says anything."""
    print("Take this over? [y/N] ", end="", file=sys.stderr, flush=True)
    return _yes(sys.stdin.readline())


def _piped() -> bool | None:
    """The answer of a program: nobody is there to be asked, and nobody is waited for."""
    if sys.stdin is None or sys.stdin.closed:
        return None
    try:
        if not select.select([sys.stdin], [], [], 0)[0]:
            return None
    except io.UnsupportedOperation:
        pass  # there is no file behind it: nothing to wait for
    except OSError:
        return None  # this system cannot say whether a pipe has something
    return _yes(sys.stdin.readline())


def _yes(line: str) -> bool | None:
    return line.strip().lower() in ("y", "yes") if line else None


def _told(shared: CommonOptions, ended: DreamResult, *, silent: bool = False) -> int:
    text = ""
    if ended.status == "skipped":
        text = f"no dream now: {ended.why}"
        text += "; --now dreams all the same" if ended.gate in GATES else ""
    elif ended.status == "completed":
        text = "\n".join(
            filter(None, [(ended.diff or "").rstrip("\n"), describe_result(ended, _UNDO, _REVIEW)])
        )
    elif ended.status == "killed":
        text = f"the dream was stopped: {ended.why}"
    value = {**msgspec.structs.asdict(ended), "usage": msgspec.structs.asdict(ended.usage)}
    print_result(shared, "" if silent else text, value)
    return {"failed": 1, "killed": INTERRUPTED}.get(ended.status, 0)
