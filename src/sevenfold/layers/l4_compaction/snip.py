"""Whole old rounds leave the view in one piece, and a short note says so. No model, no summary.

It acts above `TRIGGER` and takes out enough to come down to `LOW`, so that it does not act again at every
step. What stands before the first reply stays (the task, and what the program told the model to begin
with), so do the newest rounds, the user's last message, and whatever an earlier compaction left. What
else the user said is quoted in the note, word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.boundary import Boundary, Record, collected, last_typed
from sevenfold.cache.breakpoints import frontier_at
from sevenfold.cutting import aim, allowed, applied, may_cut, size_of, tokens_of
from sevenfold.events import Emit
from sevenfold.facts import Facts, line
from sevenfold.fidelity import kept
from sevenfold.layers.l4_compaction import folding
from sevenfold.layers.l4_compaction.folding import Fold
from sevenfold.messages import user
from sevenfold.protocols import Capabilities, Fit, Handback
from sevenfold.quotes import enclosed, numbered, quote, where_it_is
from sevenfold.request import Request
from sevenfold.tokens import Pressure, measure
from sevenfold.transcript import Id, Mark, Placed, Replace, Transcript, Undo, View

BY: Final = "Snip"
TRIGGER: Final = 0.75
"""The share of the auto-compact threshold above which rounds are snipped ..."""
LOW: Final = 0.50
"""... the share it comes down to ..."""
LEAST: Final = 0.15
"""... and the share that must be freed: less would have to be done again soon."""
TAG: Final = "snipped"

_WHAT: Final = (
    "{rounds:,} older rounds of this conversation stood here: {messages:,} messages, about {tokens:,} "
    "tokens. They were taken out to make room, and nobody has summed them up. {where}"
)


class Draft(msgspec.Struct, frozen=True):
    """Stretches that could go, and what the view would be like."""

    edits: tuple[Replace, ...]
    records: tuple[Mark, ...]
    first: int
    cut: int
    after: View
    tokens: int


class Snip:
    """Drops the oldest rounds when the window fills. Cheap, and first in the ladder."""

    def __init__(
        self,
        emit: Emit,
        expect: Callable[[str], object],
        where: Callable[[], Path | None],
        able: Callable[[], Capabilities],
    ) -> None:
        self._emit, self._expect, self._where, self._able = emit, expect, where, able

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Handback]:
        limit = pressure.thresholds.auto_compact
        if not pressure.refused and pressure.tokens <= limit * TRIGGER:
            return ()
        before = tokens_of(request, pressure)
        target = aim(before, pressure) if pressure.refused else int(limit * LOW)
        draft = self._best(request, pressure, target)
        if draft is None or not _worth_it(draft, before, target, pressure):
            return ()
        if not allowed(request.view, draft.after, self._able()):
            return ()
        return self._finished(request.view, draft, before, pressure)

    def _best(self, request: Request, pressure: Pressure, target: int) -> Draft | None:
        """The shortest stretch that brings the request down to the target, else the longest there is."""
        view = request.view
        first = _start(view, leave=not pressure.refused)
        cuts = [at for at in range(first + 1, folding.newest(view) + 1) if may_cut(view, at)]
        low, high, best = 0, len(cuts) - 1, None
        while low <= high:  # the more goes, the less is left
            middle = (low + high) // 2 if best else high
            draft = self._draft(request, pressure, first, cuts[middle])
            if best is None and (draft is None or draft.tokens > target):
                return draft
            if draft is None or draft.tokens > target:
                low = middle + 1
            else:
                best, high = draft, middle - 1
        return best

    def _draft(self, request: Request, pressure: Pressure, first: int, cut: int) -> Draft | None:
        view = request.view
        edits, records = list[Replace](), list[Mark]()
        for a, b in _stretches(view, first, cut):
            stretch = [view[at] for at in range(a, b)]
            facts = collected(stretch, view.marks)
            tokens = view.calibration.tokens(size_of(stretch))
            rounds = folding.replies_in(stretch)
            note = user(self._note(facts, stretch, rounds, tokens))
            if view.calibration.tokens(measure(note)) <= tokens // 2:
                edits.append(Replace(stretch[0].id, stretch[-1].id, (note,)))
                records.append(Record(facts, rounds, tokens).mark(note))
        if not edits:
            return None
        after = applied(view, edits, BY)
        count = tokens_of(replace(request, view=after), pressure)
        return Draft(tuple(edits), tuple(records), first, cut, after, count)

    def _note(self, facts: Facts, stretch: Sequence[Placed], rounds: int, tokens: int) -> str:
        where = where_it_is(self._where())
        head = _WHAT.format(rounds=rounds, messages=len(stretch), tokens=tokens, where=where)
        return enclosed(TAG, [head, *_said(facts), *_told(facts), *_changed(facts)])

    def _finished(
        self, view: View, draft: Draft, before: int, pressure: Pressure
    ) -> Sequence[Handback]:
        boundary = Boundary(
            by="snip",
            trigger="refused" if pressure.refused else "auto",
            tokens_before=before,
            tokens_after=draft.tokens,
            last=draft.edits[-1].last,
            kept_from=view[draft.cut].id,
            fidelity=kept(view, draft.after),
        )
        self._expect("old rounds were taken out of the conversation")
        self._emit(boundary.event())
        frontier = frontier_at(view, draft.first, draft.cut + 1)
        return *draft.records, *draft.edits, frontier, boundary.mark


def snipped(transcript: Transcript) -> list[Fold]:
    """What has been snipped and can be put back."""
    return folding.folds(transcript, BY)


def expand(transcript: Transcript, id: Id | None = None) -> tuple[Undo, Mark] | tuple[()]:
    """What puts the rounds behind this note back; without an id, those behind all of them."""
    known = [fold.id for fold in snipped(transcript)]
    return folding.expand(transcript, BY, known if id is None else [id])


def _worth_it(draft: Draft, before: int, target: int, pressure: Pressure) -> bool:
    if pressure.refused:  # what does not help enough is left to those that can do more
        return draft.tokens <= target
    return before - draft.tokens >= LEAST * pressure.thresholds.auto_compact


# --- what goes ----------------------------------------------------------------------------------------


def _start(view: View, *, leave: bool) -> int:
    """The first reply that may go: after what the provider or a layer has put in place of others."""
    floor = max(folding.seen_from(view), _after_replaced(view))
    if leave and (back := folding.put_back(view)):
        floor = max(floor, max(back) + 1)
    for at in range(floor, len(view)):
        fresh = view[at].message.role == "assistant" and not folding.server_summary(
            view[at].message
        )
        if fresh and may_cut(view, at):
            return at
    return len(view)


def _after_replaced(view: View) -> int:
    """Behind the last message that stands for others: its id is newer than those that follow it.

    What was collapsed may go, as every other round may.
    """
    least: Id | None = None
    for at in range(len(view) - 1, -1, -1):
        placed = view[at]
        if least is not None and placed.id > least and placed.by != "Collapse":
            return at + 1
        least = placed.id if least is None else min(least, placed.id)
    return 0


def _stretches(view: View, first: int, cut: int) -> list[tuple[int, int]]:
    """What goes, around the user's last message: that stays as it is."""
    last = last_typed(view)
    if last is None or not first <= last < cut:
        return [(first, cut)]
    return [(a, b) for a, b in ((first, last), (last + 1, cut)) if a < b]


# --- what the note says -------------------------------------------------------------------------------


def _said(facts: Facts) -> list[str]:
    if not facts.said:
        return []
    out = ["What the user said in them, word for word, oldest first:"]
    for (n, text), one in zip(numbered(facts.said), facts.said, strict=True):
        out += [quote(n, text), *([f"Answered: {one.answer}"] if one.answer else [])]
    return out


def _told(facts: Facts) -> list[str]:
    """What the program said: its beginning, as the rest is on record."""
    lines = [line(text, 300) for text in facts.contexts]
    return folding.listed("What the model was told in them besides:", lines, 5)


def _changed(facts: Facts) -> list[str]:
    changed = [file.path for file in facts.files if file.changes]
    return [f"Files changed in them: {folding.named(changed)}"] if changed else []


_check: type[Fit] = Snip
