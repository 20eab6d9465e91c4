"""Commands of a person on the conversation itself: compact it now, go back in it, read its notes.

Nothing here takes anything out of the transcript. A summary is an edit of the view, going back is the undo
of all that came since, and both are one write that happens whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

import anyio
import msgspec
from msgspec.structs import replace

from sevenfold.cache.ledger import Ledger
from sevenfold.core.errors import Mistake, Refused
from sevenfold.core.events import Notice, get_label
from sevenfold.core.messages import Json, Message, make_context_message
from sevenfold.core.protocols import Change, Layers
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Entry, Id, Mark, Reply, Transcript, Undo, Unthink, View
from sevenfold.hooks.hooks import HookOutcome, Hooks
from sevenfold.hooks.tool_responses import shorten_for_hook
from sevenfold.layers.l3_session_memory.notes import find_notes_path
from sevenfold.layers.l3_session_memory.notes_update import NotesUpdater
from sevenfold.layers.l4_compaction import fold as folds
from sevenfold.layers.l4_compaction.compaction import Compaction
from sevenfold.layers.l4_compaction.fold import UnlessCollapsing
from sevenfold.layers.l4_compaction.summary import KIND, PLAIN
from sevenfold.layers.l7_agents.forks import SOURCE
from sevenfold.layers.shared.boundary import BOUNDARY, Boundary, parse_boundary
from sevenfold.layers.shared.fidelity import Fidelity, measure_fidelity
from sevenfold.layers.shared.restore import CompactionHooks
from sevenfold.storage.files import read_if_there
from sevenfold.turn import Turn

MOST_NOTES: Final = 1 << 20  # Bytes of notes that are shown; more was not written by us
SUMMARIES: Final = (SOURCE + KIND, SOURCE + PLAIN)  # The ledger's sources for the cost of summaries
_BY_HAND: Final = ("manual", "from", "up_to")
_LASTING: Final = ("session", "frame", "calibration", "mail", "agents")
"""Marks about the session and its model, which going back in the conversation does not change."""


# --- one thing at a time --------------------------------------------------------------------------------


class TurnLock:
    """One thing at a time happens to a conversation, a turn or a compaction, and it can be stopped."""

    def __init__(self) -> None:
        self._scope: anyio.CancelScope | None = None

    @property
    def busy(self) -> bool:
        return self._scope is not None

    def check(self) -> None:
        if self._scope is not None:
            raise Refused(
                "a turn is running in this session, or a compaction: wait for it, or stop() it first"
            )

    @contextmanager
    def __call__(self) -> Iterator[anyio.CancelScope]:
        self.check()
        try:
            with anyio.CancelScope() as self._scope:
                yield self._scope
        finally:
            self._scope = None

    def stop(self) -> bool:
        """Stop what is going on; False when nothing is."""
        if self._scope is None:
            return False
        self._scope.cancel()
        return True


# --- the turns of a conversation ------------------------------------------------------------------------


class PastTurn(msgspec.Struct, frozen=True):
    """A turn of the conversation as it stands: what was undone is not counted."""

    number: int
    at: float
    said: str
    tokens: int  # Of context when it ended; 0 where it was not reported
    first: Id  # The entry it begins with: what was put beside the user's words comes before them
    id: Id  # The entry with the user's words
    in_view: bool  # True if the model still sees those words as they were said


def list_past_turns(transcript: Transcript) -> tuple[PastTurn, ...]:
    view, found = transcript.view, list[PastTurn]()
    beside: Id | None = None
    for entry in iterate_standing(transcript.entries):
        what = entry.what
        if isinstance(what, Message) and entry.by == "user":
            first = entry.id if beside is None else beside
            number, in_view = len(found) + 1, view.where(entry.id) is not None
            past = PastTurn(number, entry.at, what.text, 0, first, entry.id, in_view)
            found.append(past)
        elif isinstance(what, Reply) and what.usage.total and found:
            found[-1] = replace(found[-1], tokens=what.usage.total)
        beside = (entry.id if beside is None else beside) if _is_beside(entry) else None
    return tuple(found)


def choose_turn(turns: Sequence[PastTurn], number: int) -> PastTurn:
    if not turns:
        raise Mistake("nothing has been said yet: there is no turn to choose")
    if not 1 <= number <= len(turns):
        raise Mistake(f"there is no turn {number}: they go from 1 to {len(turns)}")
    return turns[number - 1]


def iterate_standing(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The entries that count after every undo."""
    undone: set[Id] = set()
    for entry in reversed(entries):
        if isinstance(entry.what, Undo) and entry.id not in undone:
            undone |= entry.what.ids
    return (entry for entry in entries if entry.id not in undone)


def _is_beside(entry: Entry) -> bool:
    """True for messages that stand just before the user's words and go with them."""
    if entry.by not in ("session", "hooks"):
        return False
    what = entry.what
    return isinstance(what, Message) or (isinstance(what, Mark) and what.name == "surroundings")


class ExpandableFold(msgspec.Struct, frozen=True):
    """A stretch of the conversation that stands in the view as one short message."""

    by: str
    fold: folds.Fold


def list_folds(transcript: Transcript) -> list[ExpandableFold]:
    """The collapsed or snipped stretches that can be put back, in the order of the view."""
    layers = (folds.BY_COLLAPSE, folds.find_collapsed), (folds.BY, folds.find_snips)
    found = [ExpandableFold(by, fold) for by, folds in layers for fold in folds(transcript)]
    return sorted(found, key=lambda one: transcript.view.where(one.fold.id) or 0)


# --- steering -------------------------------------------------------------------------------------------


class CompactionReport(msgspec.Struct, frozen=True):
    """The result of a compaction by hand."""

    boundary: Boundary | None = None
    """The boundary that was written; None: the view is as it was, and the events have said why."""
    stopped: bool = False
    fidelity: Fidelity | None = None  # The shares of the replaced part that can still be found, by kind
    usage: Usage = Usage()
    cost: float | None = None  # In the currency of the price table; None where no price is known
    seconds: float = 0.0


class SessionNotes(msgspec.Struct, frozen=True):
    path: Path
    text: str


def read_notes(transcript: Path) -> SessionNotes | None:
    """The notes on the session with this transcript, as they are on disk, if there are any."""
    path = find_notes_path(transcript)
    data = read_if_there(path, MOST_NOTES, nofollow=True)
    return SessionNotes(path, data.decode("utf-8", "replace")) if data is not None else None


@dataclass(frozen=True, slots=True)
class ConversationEditor:
    """For one session; while a turn runs, nothing of it is possible but looking."""

    turn: Turn
    ledger: Ledger
    alone: TurnLock
    sync: Callable[[], object] = lambda: None  # Makes sure of what was written

    @property
    def turns(self) -> tuple[PastTurn, ...]:
        return list_past_turns(self.turn.transcript)

    async def compact(
        self, instructions: str = "", *, since: int | None = None, up_to: int | None = None
    ) -> CompactionReport:
        """Replace all but the newest round by a summary; or turn `since` and all that follows; or all
        that comes before turn `up_to`. Stopped or failed, it leaves the view as it is.
        """
        report = CompactionReport(stopped=True)
        with self.alone():
            report = await self._compacted(instructions, since, up_to)
        self.sync()
        return report

    async def _compacted(self, instructions: str, since: int | None, up_to: int | None) -> CompactionReport:
        turn, layer = self.turn, find_compaction(self.turn.layers)
        turn.collect()
        if not self.turns:
            raise Mistake("there is nothing to compact: nothing has been said yet")
        trigger, first, last = self._stretch(since, up_to)
        before, lines, began = turn.transcript.view, len(self.ledger.lines), perf_counter()
        handed = await layer.compact(
            turn.request,
            turn.pressure(),
            trigger=trigger,
            instructions=instructions,
            first=first,
            last=last,
        )
        entries = len(turn.transcript.entries)
        turn.append(get_label(layer), handed)
        boundary = _boundary(handed) if len(turn.transcript.entries) > entries else None
        report = CompactionReport(boundary, seconds=perf_counter() - began)
        after = turn.transcript.view
        found = _fidelity(before, after) if boundary is not None else None
        return self._with_cost(replace(report, fidelity=found), lines)

    def _stretch(self, since: int | None, up_to: int | None) -> tuple[str, Id | None, Id | None]:
        if since is None and up_to is None:
            return "manual", None, None
        if since is not None and up_to is not None:
            raise Mistake("from a turn or up to a turn: one of them")
        turns, view = self.turns, self.turn.transcript.view
        past = choose_turn(turns, since if since is not None else up_to or 0)
        at = view.where(past.id)
        if at is None:
            raise Mistake(f"turn {past.number} is part of a summary already: choose a later one")
        if since is not None:
            return "from", past.id, None
        while at and view[at - 1].id >= past.first:  # what was said beside the words stays with them
            at -= 1
        if not at:
            raise Mistake(f"nothing comes before turn {past.number}: choose a later one")
        return "up_to", None, view[at - 1].id

    def _with_cost(self, report: CompactionReport, lines: int) -> CompactionReport:
        mine = [line for line in self.ledger.lines[lines:] if line.source in SUMMARIES]
        costs = [line.cost for line in mine if line.cost is not None]
        cost = sum(costs) if mine and len(costs) == len(mine) else None
        return replace(report, usage=sum((line.usage for line in mine), Usage()), cost=cost)

    def rewind(self, number: int) -> PastTurn:
        """Go back to before this turn: the view is what it was then. The transcript keeps everything,
        and what the turn did outside the conversation, to files for instance, stays done.
        """
        self.alone.check()
        turn, log = self.turn, self.turn.transcript
        turn.collect()
        past = choose_turn(self.turns, number)
        since = [entry for entry in log.entries if entry.id >= past.first]
        undo = Undo(frozenset(entry.id for entry in since if not _lasts(entry)))
        handed: list[Change] = [undo]
        then = log.preview(undo)
        if len(then) and any(isinstance(e.what, Unthink) and e.by == "session" for e in since):
            handed.append(Unthink(then[0].id))  # thoughts of another model, which this one refuses
        count, view = len(log.entries), log.view
        turn.append("rewind", handed)
        if len(log.entries) == count:
            raise Refused(f"the conversation cannot go back to before turn {number}")
        for layer in turn.layers.replied:
            if isinstance(layer, NotesUpdater):
                layer.undo_from(past.first, view)
        self.sync()
        self.ledger.expect(f"the conversation went back to before turn {number}")
        return past

    def expand(self, number: int) -> ExpandableFold:
        """Put a stretch back that was folded; it is left alone until the window is full."""
        self.alone.check()
        turn, log = self.turn, self.turn.transcript
        turn.collect()
        found = list_folds(log)
        if not 1 <= number <= len(found):
            known = f"they go from 1 to {len(found)}" if found else "nothing is folded"
            raise Mistake(f"there is no folded stretch {number}: {known}")
        one = found[number - 1]
        turn.append("expand", folds.expand_folds(log, one.by, [one.fold.id]))
        self.sync()
        self.ledger.expect("what was folded was put back")
        return one


def find_compaction(layers: Layers) -> Compaction:
    for layer in layers.fit:
        inner = layer.layer if isinstance(layer, UnlessCollapsing) else layer
        if isinstance(inner, Compaction):
            return inner
    raise Mistake("compaction is switched off in this session: see the flags compact and reactive")


def _boundary(handed: Sequence[Change]) -> Boundary | None:
    values = (what.value for what in handed if isinstance(what, Mark) and what.name == BOUNDARY)
    return next(filter(None, map(parse_boundary, values)), None)


def _fidelity(before: View, after: View) -> Fidelity:
    return measure_fidelity([placed for placed in before if after.where(placed.id) is None], after)


def _lasts(entry: Entry) -> bool:
    return isinstance(entry.what, Mark) and entry.what.name in _LASTING


# --- the user's hooks -----------------------------------------------------------------------------------


STOP_BLOCKS: Final = 8  # Times in a row that hooks may send the model back to work
_GAVE_UP: Final = (
    "{moment} hooks sent the model back to work {times} times in a row, which is as often as they may: the "
    "turn ends although they may still disagree"
)


async def run_until_hooks_agree(
    turn: Turn, said: Message | None, hooks: Hooks, moment: str, about: Json
) -> Reply:
    """One turn of a session or an agent, and another as long as hooks send the model back to work."""
    reply = await turn.run(said)
    if not hooks.has_hooks(moment):
        return reply
    for blocked in range(STOP_BLOCKS):
        said_last = shorten_for_hook(reply.message.text)
        fields = {"stop_hook_active": blocked > 0, "last_assistant_message": said_last, **about}
        outcome = await hooks.run(moment, fields)
        if not outcome.block or outcome.stop:
            break
        turn.transcript.add(make_context_message(outcome.reason), by="hooks")
        reply = await turn.run()
    else:
        turn.emit(Notice(_GAVE_UP.format(moment=moment, times=STOP_BLOCKS), "warning"))
    return reply


def make_compaction_hooks(hooks: Hooks, end: Callable[[str], object]) -> CompactionHooks:
    """The hooks that run before and after a compaction. What they add for the model is written with it.

    `end` is called with the reason when a hook wants everything to end.
    """

    async def before(trigger: str, instructions: str) -> HookOutcome:
        fields = {"trigger": trigger, "custom_instructions": instructions}
        return await hooks.run("PreCompact", fields)

    async def after(boundary: Boundary, text: str) -> tuple[Message, ...]:
        trigger = "manual" if boundary.trigger in _BY_HAND else "auto"
        told = {"trigger": trigger, "compact_summary": shorten_for_hook(text)}
        outcomes = (
            await hooks.run("PostCompact", told),
            await hooks.run("SessionStart", {"source": "compact"}),
        )
        for outcome in outcomes:
            if outcome.stop:
                end(outcome.reason)
        return tuple(make_context_message(text) for outcome in outcomes for text in outcome.contexts)

    return CompactionHooks(before, after)
