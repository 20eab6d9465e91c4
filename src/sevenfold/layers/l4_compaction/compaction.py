"""Layer 4: the older part of the view is replaced by a summary. Read `compact` from top to bottom.

    1  what would be replaced, and what stays word for word    planning
    2  do the user's hooks agree? may a model be asked?        hooks, breaker
    3  a summary: on the cached prefix, nudged, plain,
       or of as much as fits                                   asking
    4  all headings, the user's words, smaller than before     drafts
    5  where any of that fails: a digest, without a model      digest
    6  restored, measured, told, and handed back in one piece  `finished`

Nothing leaves the view before 6 hands everything back, and the turn writes that at once or not at all:
whoever cancels earlier finds the view as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import ClassVar, Final, TypeAlias

import anyio
from msgspec.structs import replace

from sevenfold.cache.prices import Prices
from sevenfold.events import Emit, Failed, Notice, Progress
from sevenfold.layers.l4_compaction import digest as digests
from sevenfold.layers.l4_compaction.digest import Digest, from_digest, from_summary
from sevenfold.layers.l4_compaction.digest import DraftsDraft as Draft
from sevenfold.layers.l4_compaction.plan import (
    AUTOMATIC,
    BY,
    PRICE,
    Breaker,
    Plan,
    Rates,
    Worth,
    beginning,
    begins_a_turn,
    edited,
    everything,
    plan,
    replied,
    worth,
)
from sevenfold.layers.l4_compaction.summary import (
    NoSummary,
    Summariser,
    Wanted,
    Written,
    scope_text,
)
from sevenfold.layers.settings import CompactionSettings
from sevenfold.layers.shared.boundary import UNKNOWN_GAP, Boundary, applied
from sevenfold.layers.shared.restore import (
    AUTO,
    REFUSED,
    Afterwards,
    Again,
    Agreement,
    Before,
    Cut,
    NotAgreed,
    Restore,
    Standing,
    agree,
    ignore,
)
from sevenfold.messages import Message
from sevenfold.protocols import Capabilities, Fit, Forker, Handback
from sevenfold.request import Request
from sevenfold.tokens import Pressure, Usage, scaled
from sevenfold.transcript import Id, Placed, View

BUSY: Final = 2.5
"""In the middle of a task, when what was just read is in use, it has to pay so many times better."""
ENOUGH: Final = 0.5
"""What is made because it pays must free this part of what was expected, and have this fidelity."""

STOPPED: Final = "stopped: nothing was changed"

Score: TypeAlias = Callable[[Sequence[Placed], Sequence[Message]], float]
"""How much of what is removed can be found in what is there."""


class Compaction:
    """Keeps a conversation within its window. Main conversation and agents; never in a fork."""

    label: ClassVar[str] = BY

    def __init__(
        self,
        fork: Forker,
        digest: Digest,
        emit: Emit,
        expect: Callable[[str], object],
        where: Callable[[], Path | None],
        able: Callable[[], Capabilities],
        settings: CompactionSettings | None = None,
        *,
        before: Before = agree,
        after: Afterwards = ignore,
        restore: Restore = lambda view, gone, window, room: (),
        standing: Standing | None = None,
        fidelity: Score | None = None,
        auto: bool = True,
        reactive: bool = True,
        asks: bool = True,
        prices: Prices | None = None,
        agreement: Agreement | None = None,
    ) -> None:
        """`asks`: whether there is time for a model when the window is full; else it is the digest.

        `prices`: what tokens cost, for a compaction that pays before the window is full. `agreement`:
        the user's hooks, where other layers ask them too. `standing`: what always comes back.
        """
        self._digest, self.emit, self._expect = digest, emit, expect
        self._where, self._able = where, able
        self.settings = settings or CompactionSettings()
        self._summarise = Summariser(fork, self.settings, emit)
        self._hooks = agreement or Agreement(emit, before, after)
        self._again, self._score = Again(restore, standing), fidelity
        self.stands = standing.stands if standing else None
        self._auto, self._reactive, self._asks = auto, reactive, asks
        self._prices = prices

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Handback]:
        if self.due(pressure):
            trigger = "refused" if pressure.refused else "auto"
            return await self.compact(request, pressure, trigger=trigger)
        if (found := self.paying(request, pressure)) is not None:
            return await self.made(*found)
        return ()

    def due(self, pressure: Pressure) -> bool:
        full = pressure.tokens > pressure.thresholds.auto_compact
        return self._reactive if pressure.refused else self._auto and full

    # --- because it pays --------------------------------------------------------------------------------

    def paying(
        self, request: Request, pressure: Pressure, margin: float | None = None
    ) -> tuple[Plan, Worth] | None:
        """What is worth a summary now. Where nothing is known of prices, nothing is."""
        settings, view = self.settings, request.view
        if not (settings.by_price and self._auto and self._asks and request.source == "main"):
            return None
        if pressure.refused or pressure.tokens < scaled(settings.least_tokens, pressure.window):
            return None
        price = self._prices.of(request.frame.model) if self._prices else None
        if price is None or not price.input or edited(request):
            return None
        if Breaker.of(view, request.frame.model).rests(view, settings):
            return None
        rates = Rates.of(price, request.frame.ttl, self._able().caches_prompts)
        if margin is None:
            margin = settings.margin_in(pressure.window) * (1.0 if begins_a_turn(view) else BUSY)
        return self._priced(request, pressure, rates, margin)

    def _priced(
        self, request: Request, pressure: Pressure, rates: Rates, margin: float
    ) -> tuple[Plan, Worth] | None:
        """The sums, the cheapest to work out first: most requests end there."""
        settings = self.settings
        if worth(everything(request, pressure, PRICE), rates, settings).times < margin:
            return None
        planned = plan(request, pressure, PRICE, self._able(), stands=self.stands)
        if planned is None or worth(planned, rates, settings).times < margin:
            return None
        sums = worth(planned, rates, settings, sum(planned.said))
        return (planned, sums) if sums.times >= margin and planned.promising else None

    async def made(
        self, planned: Plan, sums: Worth, summarise: Summariser | None = None
    ) -> Sequence[Handback]:
        """A summary that does what was expected of it, or nothing: then none is tried for a while."""
        view = planned.view
        known = Breaker.of(view, planned.request.frame.model)
        try:
            asked = await self.agreed(planned)
        except NotAgreed as refused:
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

    def _check(self, boundary: Boundary, sums: Worth, draft: Draft) -> None:
        """`NoSummary` when it does not pay after all."""
        freed = boundary.tokens_before - boundary.tokens_after
        if freed < sums.freed * ENOUGH:
            raise NoSummary(
                f"it would free {freed:,} tokens, and {sums.freed:,.0f} were expected", draft.usage
            )
        if boundary.fidelity is not None and boundary.fidelity < ENOUGH:
            raise NoSummary(
                f"too much would be lost (fidelity {boundary.fidelity:.2f})", draft.usage
            )

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
    ) -> Sequence[Handback]:
        """All rungs. Hands back what is to be written, or nothing when everything stays as it is.

        `first`, `last`: the entries between which the view is replaced (`from`, `up_to`).
        """
        planned = plan(request, pressure, trigger, self._able(), first, last, self.stands)
        if planned is None or not (planned.automatic or planned.promising):
            if trigger not in AUTOMATIC:
                self.emit(Notice("there is too little here to compact: nothing was changed"))
            return ()
        known = Breaker.of(planned.view, request.frame.model)
        breaker = known.full_again(planned.view, self.settings)
        if not planned.automatic:
            breaker = Breaker(request.frame.model)  # asked for by hand: tried again
        try:
            asked = await self.agreed(planned, instructions)
        except NotAgreed as refused:
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

    async def agreed(self, planned: Plan, instructions: str = "") -> str:
        """The instructions, with what the user's hooks add to them, unless one of them refuses."""
        trigger = AUTO if planned.automatic else "manual"
        return await self._hooks.ask(planned.view, trigger, instructions)

    # --- the rungs --------------------------------------------------------------------------------------

    async def _drafted(
        self, planned: Plan, breaker: Breaker, instructions: str
    ) -> tuple[Draft | None, Breaker]:
        """A summary, else a digest, else nothing; and how that leaves the breaker."""
        why, failed, used = breaker.why_open(self.settings), "", Usage()
        if self._asks and not why and planned.promising:
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
        instead = self._without_a_model(planned, used)
        if instead is not None:
            return instead, breaker.compacted(planned.view)
        if not planned.automatic:
            self.emit(Notice(f"nothing was compacted: {failed}", "warning"))
        return None, breaker

    async def _summary(
        self, planned: Plan, instructions: str, by: Summariser | None = None
    ) -> Draft:
        self._say(f"summarising about {planned.tokens:,} tokens")
        return self.draft(planned, await self.written(planned, instructions, by))

    async def written(
        self, planned: Plan, instructions: str, summarise: Summariser | None = None
    ) -> Written:
        """Ask the model; `NoSummary` when there is none to be had."""
        return await (summarise or self._summarise)(self._wanted(planned, instructions))

    def draft(self, planned: Plan, written: Written) -> Draft:
        """What was written, in its place; `NoSummary` when that would not do."""
        path = self._where()
        return from_summary(planned, written, str(path) if path else "", self._able())

    def _wanted(self, planned: Plan, instructions: str) -> Wanted:
        """What to fork from: the view that is in the cache. Where that is too long, the view up to the
        newest reply: it is what the request before had, and that was not too long.
        """
        request, pressure, view = planned.request, planned.pressure, planned.view
        budget = int(scaled(self.settings.summary_tokens, pressure.window))
        longest = min(budget, self._able().max_output)
        on: View | None = view
        seen, gap = len(view), 0
        if pressure.refused or pressure.tokens + longest > pressure.window:
            seen = replied(view, planned.cut)
            on = beginning(view, seen) if planned.cut < len(view) else None
        elif request.warm is not None and pressure.warm:
            on = request.warm
        if on is None:
            gap = pressure.over or int(planned.tokens * UNKNOWN_GAP)
        scope = scope_text(view, planned.first, planned.cut, seen)
        return Wanted(request, on, scope, planned.stretch, instructions, longest, gap)

    def _without_a_model(self, planned: Plan, used: Usage) -> Draft | None:
        """The last rung, for a window that is full."""
        if not (planned.automatic or planned.full_from_the_start):
            return None
        made = self._digest.draft(planned.request, planned.pressure, self.stands)
        return None if made is None else from_digest(made, used)

    # --- what comes of it -------------------------------------------------------------------------------

    async def finished(
        self, planned: Plan, draft: Draft, breaker: Breaker, instructions: str, began: float
    ) -> Sequence[Handback]:
        """Everything that is to be written, in one piece."""
        boundary, added = self._measured(planned, draft, instructions)
        if not planned.automatic and boundary.tokens_after >= boundary.tokens_before:
            raise NoSummary("with what has to come back it would not be smaller", draft.usage)
        return await self._told(planned, draft, boundary, added, breaker, began)

    def _measured(
        self, planned: Plan, draft: Draft, instructions: str
    ) -> tuple[Boundary, Sequence[Message]]:
        """The record of it, and what the model should see again."""
        view, gone = planned.view, draft.gone(planned.view)
        added = self._restored(planned, draft, gone)
        now = planned.tokens_with(applied(draft.after, added, BY))
        score: float | None = None
        if self._score is not None:
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
        )
        return boundary, added

    async def _told(
        self,
        planned: Plan,
        draft: Draft,
        boundary: Boundary,
        added: Sequence[Message],
        breaker: Breaker,
        began: float,
    ) -> Sequence[Handback]:
        if said := await self._hooks.told(boundary, draft.text):
            added = *added, *said
            now = planned.tokens_with(applied(draft.after, added, BY))
            boundary = replace(boundary, tokens_after=now)
        if draft.by == digests.NAME:
            self._expect(digests.BREAKS)
            self.emit(digests.said(boundary))
        else:
            self._expect("the older part of the conversation was replaced by a summary")
        self.emit(boundary.event(perf_counter() - began, draft.usage))
        before, now = boundary.tokens_before, boundary.tokens_after
        self._say(f"{before:,} tokens before, about {now:,} after", done=True)
        return *draft.marks, *draft.edits, boundary.mark, breaker.mark, *added

    def _restored(self, planned: Plan, draft: Draft, gone: list[int]) -> Sequence[Message]:
        now = planned.tokens_with(draft.after)
        cut = Cut(planned.view, range(gone[0], gone[-1] + 1), planned.pressure.window)
        return self._again(cut, min(planned.most, planned.before) - now, planned.most - now)

    def _declined(self, planned: Plan, known: Breaker, reason: str) -> Sequence[Handback]:
        """A hook says no: nothing happens and nothing is counted. It is said once."""
        said = f"{REFUSED}{reason}"
        if not planned.automatic:
            self.emit(Notice(said, "warning"))
            return ()
        if known.told == said:
            return ()
        self._hooks.declined(reason)
        return (replace(known, told=said).mark,)

    def _say(self, text: str, *, done: bool = False) -> None:
        self.emit(Progress("compaction", text, done))


_check: type[Fit] = Compaction
