"""`sevenfold dream run`: a dream with a model in a session of its own, or by rules alone."""

from __future__ import annotations

import io
import select
import sys

import anyio
import msgspec

from sevenfold.cli.chat.tasks import find_dreaming_layer
from sevenfold.cli.commands.memory_display import open_memory
from sevenfold.cli.failures import INTERRUPTED
from sevenfold.cli.options import ChatOptions, SharedOptions
from sevenfold.cli.output import EventPrinter, SideOutput, make_printable, print_message, print_result
from sevenfold.cli.startup import open_session, read_command_context
from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake
from sevenfold.core.events import Emit, Event, Progress
from sevenfold.layers.l6_dreaming.dreaming import DreamMode, DreamResult, DreamRunner, describe_result
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

GATES = ("off", "time", "scan", "sessions")  # The gates that --now ignores
_UNDO = "'sevenfold dream undo'"
_REVIEW = "'sevenfold dream --review'"


def run_dream(
    shared: SharedOptions, *, now: bool, dry_run: bool, review: bool, model: str | None = None
) -> int:
    if dry_run and review:
        raise Mistake("--dry-run changes nothing, so there is nothing to review: leave one of them out")
    with open_memory(shared) as memory:
        if memory.exists():
            memory.claim()
        waits = find_newest_review(memory.local)
        if review and waits is not None:
            return _review(shared, memory, waits, DreamResult(status="completed", review=waits))
        how: DreamMode | None = "preview" if dry_run else "review" if review else None
        ended = _run(shared, memory, by_hand=now or dry_run or review, how=how, model=model)
        if ended.review is not None and review:
            return _review(shared, memory, ended.review, ended)
    return _print_dream(shared, ended)


def _run(
    shared: SharedOptions, memory: MemoryStore, *, by_hand: bool, how: DreamMode | None, model: str | None
) -> DreamResult:
    at = Project.open(shared.project, read_command_context(shared).environment, {}, lambda event: None)
    printer = EventPrinter(SideOutput(quiet=shared.quiet, color=not shared.no_color))

    def print_progress(event: Event) -> None:
        if not (isinstance(event, Progress) and event.done):  # the command itself prints the end
            printer(event)

    if (model or at.default_model) != OFFLINE:
        return anyio.run(_dream_with_model, shared, model, by_hand, how, print_progress)
    clock = SystemClock()
    dreams = DreamRunner(memory, at.places.project, clock, print_progress, at.settings.dream)

    async def dream_by_rules() -> DreamResult:
        return await dreams.dream(
            RuleDreamer(clock, lambda: dreams.previous),
            by_hand=by_hand or at.settings.assistant_mode,
            how=how,
        )

    return anyio.run(dream_by_rules)


async def _dream_with_model(
    shared: SharedOptions, model: str | None, by_hand: bool, how: DreamMode | None, emit: Emit
) -> DreamResult:
    """Dream in an empty session: only its frame is the prefix, and nothing is recorded."""
    options = ChatOptions(shared=shared, model=model)
    async with open_session(options, started_by="dream", interactive=True) as session:
        session.subscribe(emit)
        layer = find_dreaming_layer(session)
        if layer is None:
            raise Mistake("dreaming is switched off: set the flag 'dream' in the settings")
        return await layer.asked(session.request, by_hand=by_hand, how=how)


def _review(shared: SharedOptions, memory: MemoryStore, id: str, ended: DreamResult) -> int:
    """Show what would change, and do as the user says; without an answer the dream goes on waiting."""
    seen = preview_review(memory, id)
    asked = sys.stdin is not None and sys.stdin.isatty()
    if asked or not shared.json:  # the document has it, too
        print(make_printable(seen.diff) or "(nothing would change any more)", file=sys.stderr)
    if asked:
        print("Take this over? [y/N] ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline() if asked else _read_piped_answer()
    answer = line.strip().lower() in ("y", "yes") if line else None
    if answer is None:
        waits = f"the dream waits: {_REVIEW} asks again, nothing is changed until then"
        print_message(shared, waits)
        left = msgspec.structs.replace(ended.with_outcome(seen, id, seen.diff or None), why=waits)
        return _print_dream(shared, left, silent=True)
    if not answer:
        reject_review(memory, id)
        print_message(shared, "the dream was dropped; nothing is changed")
        rejected = DreamResult(status="skipped", gate="review", why="it was rejected")
        return _print_dream(shared, rejected, silent=True)
    taken = accept_review(memory, id)
    return _print_dream(shared, ended.with_outcome(taken, None, taken.diff or None))


def _read_piped_answer() -> str:
    """The answer on stdin of a program, if it is there already."""
    if sys.stdin is None or sys.stdin.closed:
        return ""
    try:
        if not select.select([sys.stdin], [], [], 0)[0]:
            return ""
    except io.UnsupportedOperation:
        pass  # no file behind it: nothing to wait for
    except OSError:
        return ""  # this system cannot poll a pipe
    return sys.stdin.readline()


def _print_dream(shared: SharedOptions, ended: DreamResult, *, silent: bool = False) -> int:
    text = ""
    if ended.status == "skipped":
        text = f"no dream now: {ended.why}"
        text += "; --now dreams all the same" if ended.gate in GATES else ""
    elif ended.status == "completed":
        text = "\n".join(
            filter(
                None,
                [
                    (ended.diff or "").rstrip("\n"),
                    *(f"  {make_printable(pair)}" for pair in ended.pairs),
                    describe_result(ended, _UNDO, _REVIEW),
                ],
            )
        )
    elif ended.status == "killed":
        text = f"the dream was stopped: {ended.why}"
    value = {**msgspec.structs.asdict(ended), "usage": msgspec.structs.asdict(ended.usage)}
    print_result(shared, "" if silent else text, value)
    return {"failed": 1, "killed": INTERRUPTED}.get(ended.status, 0)
