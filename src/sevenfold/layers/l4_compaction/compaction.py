"""Layer 4: the older part of the view is replaced by a summary. Read `compact` from top to bottom.

    1  what would be replaced, and what stays word for word    plan.py
    2  do the user's hooks agree? may a model be asked?        `agreed`, `CompactionBreaker`
    3  a summary, or one of as much as fits                    summary.py
    4  all headings, the user's words, smaller than before     `draft`
    5  where any of that fails: a digest, without a model      digest.py
    6  restored, measured, told, and handed back in one piece  `finished`

A full window is often answered before this layer, by the notes (layer 3) or by a summary made ahead.
Nothing leaves the view before 6, and the turn writes that at once or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import ClassVar, Final, TypeAlias

import anyio
from msgspec.structs import replace

from sevenfold.core.errors import SevenfoldError
from sevenfold.core.events import Failed, Notice, Progress
from sevenfold.core.messages import Message
from sevenfold.core.protocols import Capabilities, Change, Fit
from sevenfold.core.request import Request
from sevenfold.core.tokens import Pressure, Usage, scale_constant
from sevenfold.core.transcript import Id, PlacedMessage, View
from sevenfold.layers.l4_compaction import digest as digests
from sevenfold.layers.l4_compaction.digest import CompactionDraft as Draft
from sevenfold.layers.l4_compaction.digest import Digest, draft_from_digest, draft_from_summary, is_due
from sevenfold.layers.l4_compaction.plan import (
    AUTOMATIC,
    BY,
    PRICE,
    CompactionBreaker,
    CompactionPlan,
    SummaryRates,
    SummaryWorth,
    estimate_worth,
    find_reply_end,
    has_edits,
    is_turn_start,
    make_plan,
    make_view_before,
    plan_everything,
)
from sevenfold.layers.l4_compaction.summary import (
    NoSummary,
    Summariser,
    SummaryJob,
    WrittenSummary,
    format_scope,
)
from sevenfold.layers.parts import LayerParts
from sevenfold.layers.shared.boundary import UNKNOWN_GAP, Boundary, add_restored, apply_edits
from sevenfold.layers.shared.fidelity import measure_fidelity
from sevenfold.layers.shared.restore import AUTO, REFUSED, CompactionCut, CompactionRefused, Stands

ENOUGH: Final = 0.5
"""A summary made because it pays must free this share of what was expected, and score so much."""

STOPPED: Final = "stopped: nothing was changed"

Score: TypeAlias = Callable[[Sequence[PlacedMessage], Sequence[Message]], float | None]
"""Measures how much of what is removed can be found in what is there; None: it was not measured."""


def score_replacement(removed: Sequence[PlacedMessage], there: Sequence[Message]) -> float:
    return measure_fidelity(removed, there).score


class Compaction:
    """Keeps a conversation within its window. Main conversation and agents; never in a fork."""

    label: ClassVar[str] = BY

    def __init__(self, parts: LayerParts, score: Score = score_replacement) -> None:
        self._parts, self._score, self.emit = parts, score, parts.emit
        self._digest, self.settings = Digest(parts), parts.settings.compaction
        self._summarise = Summariser(parts.get_fork(), self.settings, parts.emit, parts.side_work)

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        if self.due(pressure):
            trigger = "refused" if pressure.refused else "auto"
            return await self.compact(request, pressure, trigger=trigger)
        if (found := self.paying(request, pressure)) is not None:
            return await self.made(*found)
        return ()

    def due(self, pressure: Pressure) -> bool:
        return is_due(self._parts.switches, pressure)

    @property
    def stands(self) -> Stands | None:
        return self._parts.restorer.stands

    @property
    def _able(self) -> Capabilities:
        return self._parts.conversation.capabilities

    # --- because it pays --------------------------------------------------------------------------------

    def paying(
        self, request: Request, pressure: Pressure, margin: float | None = None
    ) -> tuple[CompactionPlan, SummaryWorth] | None:
        """A plan for a summary that pays now; None where prices are unknown.

        With a `margin` of its own it is asked for in a silence, before the cache expires.
        """
        settings, view = self.settings, request.view
        on = settings.by_size and self._parts.switches.compact and self._parts.can_wait
        if not on or request.source != "main" or pressure.refused:
            return None
        size = settings.turn_tokens if is_turn_start(view) else settings.task_tokens
        if not pressure.warm or margin is not None:
            size = min(size, settings.cold_tokens)
        if pressure.tokens < scale_constant(size, pressure.window):
            return None
        price = self._parts.prices.of(request.frame.model)
        if price is None or not price.input or (pressure.warm and has_edits(request)):
            return None  # a summary is asked for on the prefix in the cache, if there is one
        if CompactionBreaker.of(view, request.frame.model).rests(view, settings):
            return None
        rates = SummaryRates.of(price, request.frame.ttl, self._able.caches_prompts)
        return self._priced(request, pressure, rates, settings.margin if margin is None else margin)

    def _priced(
        self, request: Request, pressure: Pressure, rates: SummaryRates, margin: float
    ) -> tuple[CompactionPlan, SummaryWorth] | None:
        """The sums, the cheapest to work out first: most requests end there."""
        settings = self.settings
        if estimate_worth(plan_everything(request, pressure, PRICE), rates, settings).times < margin:
            return None
        planned = make_plan(request, pressure, PRICE, self._able, stands=self.stands)
        if planned is None or estimate_worth(planned, rates, settings).times < margin:
            return None
        sums = estimate_worth(planned, rates, settings, sum(planned.said))
        return (planned, sums) if sums.times >= margin and planned.promising else None

    async def made(
        self, planned: CompactionPlan, sums: SummaryWorth, summarise: Summariser | None = None
    ) -> Sequence[Change]:
        """A summary that does what was expected of it, or nothing: then none is tried for a while."""
        view = planned.view
        known = CompactionBreaker.of(view, planned.request.frame.model)
        try:
            asked = await self.agreed(planned)
        except CompactionRefused as refused:
            waiting = replace(known, tried=view[-1].id)
            return self._declined(planned, waiting, str(refused)) or (waiting.mark,)
        self._say(
            f"a summary is expected to save {sums.saving:,.0f}, {sums.times:.1f} times the "
            f"{sums.price:,.0f} that it costs (in base-price tokens)"
        )
        began = perf_counter()
        try:
            draft = await self._summary(planned, asked, summarise)
            boundary, added = self._measured(planned, draft, asked)
            self._check(boundary, sums, draft)
            return await self._told(planned, draft, boundary, added, known.paid(view), began)
        except NoSummary as error:
            self.emit(Failed(BY, str(error)))
            self._say(f"no summary: {error}", done=True)
            return (known.unpaying(view).mark,)
        except anyio.get_cancelled_exc_class():
            self._say(STOPPED, done=True)
            raise

    def _check(self, boundary: Boundary, sums: SummaryWorth, draft: Draft) -> None:
        """`NoSummary` when it does not pay after all."""
        freed = boundary.tokens_before - boundary.tokens_after
        if freed < sums.freed * ENOUGH:
            raise NoSummary(
                f"it would free {freed:,} tokens, and {sums.freed:,.0f} were expected", draft.usage
            )
        if boundary.fidelity is not None and boundary.fidelity < ENOUGH:
            raise NoSummary(f"too much would be lost (fidelity {boundary.fidelity:.2f})", draft.usage)

    # --- in all other cases -----------------------------------------------------------------------------

    async def compact(
        self,
        request: Request,
        pressure: Pressure,
        *,
        trigger: str,
        instructions: str = "",
        first: Id | None = None,
        last: Id | None = None,
    ) -> Sequence[Change]:
        """All rungs. Hands back what is to be written, or nothing when everything stays as it is.

        `first`, `last`: the entries between which the view is replaced (`from`, `up_to`).
        """
        planned = make_plan(request, pressure, trigger, self._able, first, last, self.stands)
        if planned is None or not (planned.automatic or planned.promising):
            if trigger not in AUTOMATIC:
                self.emit(Notice("there is too little here to compact: nothing was changed"))
            return ()
        known = CompactionBreaker.of(planned.view, request.frame.model)
        breaker = known.full_again(planned.view, self.settings)
        if not planned.automatic:
            breaker = CompactionBreaker(request.frame.model)  # asked for by hand: tried again
        try:
            asked = await self.agreed(planned, instructions)
        except CompactionRefused as refused:
            return self._declined(planned, known, str(refused))
        began = perf_counter()
        try:
            draft, breaker = await self._drafted(planned, breaker, asked)
            if draft is None:
                return () if breaker == known else (breaker.mark,)
            return await self.finished(planned, draft, breaker, asked, began)
        except NoSummary as error:
            self.emit(Notice(f"nothing was compacted: {error}", "warning"))
            return ()
        except anyio.get_cancelled_exc_class():
            self._say(STOPPED, done=True)
            raise

    async def agreed(self, planned: CompactionPlan, instructions: str = "") -> str:
        """The instructions, with what the user's hooks add to them, unless one of them refuses."""
        trigger = AUTO if planned.automatic else "manual"
        return await self._parts.hooks.ask(planned.view, trigger, instructions)

    # --- the rungs --------------------------------------------------------------------------------------

    async def _drafted(
        self, planned: CompactionPlan, breaker: CompactionBreaker, instructions: str
    ) -> tuple[Draft | None, CompactionBreaker]:
        """A summary, else a digest, else nothing; and how that leaves the breaker."""
        why, failed, used = breaker.why_open(self.settings), "", Usage()
        if self._parts.can_wait and not why and planned.promising:
            try:
                draft = await self._summary(planned, instructions)
                return draft, breaker.succeeded(planned.view)
            except NoSummary as error:
                breaker, failed, used = breaker.failed(), str(error), error.used
                why = breaker.why_open(self.settings)
                self.emit(Failed(BY, failed))
                self._say(f"no summary: {failed}", done=True)
        if why and breaker.told != why:
            self.emit(Notice(why, "warning"))
            breaker = replace(breaker, told=why)
        if planned.automatic or (planned.full and planned.first == 0):  # the last rung, for a full window
            request, pressure, working = planned.request, planned.pressure, planned.automatic
            made = self._digest.draft(request, pressure, self.stands, working=working)
            if made is not None:
                return draft_from_digest(made, used), breaker.compacted(planned.view)
        if not planned.automatic:
            self.emit(Notice(f"nothing was compacted: {failed}", "warning"))
        return None, breaker

    async def _summary(
        self, planned: CompactionPlan, instructions: str, by: Summariser | None = None
    ) -> Draft:
        self._say(f"summarising about {planned.removed:,} tokens")
        try:
            return self.draft(planned, await self.written(planned, instructions, by))
        except SevenfoldError as error:
            if by is not None or not planned.automatic:
                raise  # no turn waits for it
            raise NoSummary(str(error)) from error

    async def written(
        self, planned: CompactionPlan, instructions: str, summarise: Summariser | None = None
    ) -> WrittenSummary:
        """Ask the model; `NoSummary` when there is none to be had."""
        return await (summarise or self._summarise)(self._wanted(planned, instructions))

    def draft(self, planned: CompactionPlan, written: WrittenSummary) -> Draft:
        """The written summary in its place. Raises `NoSummary` if it would not do."""
        path = self._parts.conversation.transcript_path
        return draft_from_summary(planned, written, str(path) if path else "", self._able)

    def _wanted(self, planned: CompactionPlan, instructions: str) -> SummaryJob:
        """The job for the summariser: it forks from the view in the cache, or, where that is too long, from
        the view up to the newest reply, which the request before had.
        """
        request, pressure, view = planned.request, planned.pressure, planned.view
        most = scale_constant(self.settings.summary_tokens, pressure.window)
        longest = min(int(most), self._able.max_output)
        on: View | None = view
        seen, gap = len(view), 0
        if pressure.refused or pressure.tokens + longest > pressure.window:
            seen = find_reply_end(view, planned.cut)
            on = make_view_before(view, seen) if planned.cut < len(view) else None
        elif pressure.warm:
            on = request.warm or view
        if on is None:
            gap = pressure.over or int(planned.removed * UNKNOWN_GAP)
        cut_to = 0
        if not pressure.warm and on is not None and not self._parts.prices.is_free(request.frame.model):
            cut_to = self.settings.record_characters
            on = None if cut_to else on
        small = planned.trigger == PRICE and self.settings.by_small_model and is_turn_start(view)
        scope = format_scope(view, planned.first, planned.cut, seen)
        return SummaryJob(request, on, scope, planned.stretch, instructions, longest, gap, cut_to, small)

    # --- what comes of it -------------------------------------------------------------------------------

    async def finished(
        self,
        planned: CompactionPlan,
        draft: Draft,
        breaker: CompactionBreaker,
        instructions: str,
        began: float,
    ) -> Sequence[Change]:
        """Everything that is to be written, in one piece."""
        boundary, added = self._measured(planned, draft, instructions)
        if not planned.automatic and boundary.tokens_after >= boundary.tokens_before:
            raise NoSummary("with what has to come back it would not be smaller", draft.usage)
        return await self._told(planned, draft, boundary, added, breaker, began)

    def _measured(
        self, planned: CompactionPlan, draft: Draft, instructions: str
    ) -> tuple[Boundary, Sequence[Message]]:
        """The record of it, and what the model should see again."""
        view, gone = planned.view, draft.gone(planned.view)
        small = planned.tokens_with(draft.after)
        cut = CompactionCut(view, range(gone[0], gone[-1] + 1), planned.pressure.window)
        room = min(planned.most, planned.before) - small
        added = self._parts.restorer(cut, room, planned.most - small)
        now = planned.tokens_with(apply_edits(draft.after, added, BY))
        score = self._score([view[at] for at in gone], [*draft.after.messages, *added])
        boundary = Boundary(
            by=draft.by,
            trigger=planned.trigger,
            tokens_before=planned.before,
            tokens_after=now,
            last=draft.edits[-1].last,
            kept_from=view[gone[-1] + 1].id if gone[-1] + 1 < len(view) else -1,
            fidelity=score,
            instructions=instructions,
            model=draft.model,
            usage=draft.usage,
        )
        return boundary, added

    async def _told(
        self,
        planned: CompactionPlan,
        draft: Draft,
        boundary: Boundary,
        added: Sequence[Message],
        breaker: CompactionBreaker,
        began: float,
    ) -> Sequence[Change]:
        if said := await self._parts.hooks.told(boundary, draft.text):
            added = *added, *said
            now = planned.tokens_with(apply_edits(draft.after, added, BY))
            boundary = replace(boundary, tokens_after=now)
        if draft.by == digests.NAME:
            self._parts.expect(digests.BREAKS)
            self.emit(digests.make_digest_notice(boundary))
        else:
            self._parts.expect("the older part of the conversation was replaced by a summary")
        self.emit(boundary.event(perf_counter() - began, draft.usage))
        before, now = boundary.tokens_before, boundary.tokens_after
        self._say(f"{before:,} tokens before, about {now:,} after", done=True)
        return *draft.marks, *add_restored(draft.edits, added), boundary.mark, breaker.mark

    def _declined(self, planned: CompactionPlan, known: CompactionBreaker, reason: str) -> Sequence[Change]:
        """A hook says no: nothing happens and nothing is counted. It is said once."""
        said = f"{REFUSED}{reason}"
        if not planned.automatic:
            self.emit(Notice(said, "warning"))
            return ()
        if known.told == said:
            return ()
        self._parts.hooks.decline(reason, self.emit)
        return (replace(known, told=said).mark,)

    def _say(self, text: str, *, done: bool = False) -> None:
        self.emit(Progress("compaction", text, done))


_check: type[Fit] = Compaction
