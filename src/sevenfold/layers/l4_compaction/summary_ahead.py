"""A summary that is made before it is needed: prepared before the window is full, or in a silence.

When the window is nearly full, `SummaryAhead` asks for one in the background; when it is full,
`PrecomputedSummary` puts it in place before a request, without a wait. What came after the part it covers
stays word for word. `WarmSummary` asks in a silence, while the cache can still be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, ClassVar, Final

import anyio
import msgspec
from msgspec.structs import replace

from sevenfold.core.errors import SevenfoldError
from sevenfold.core.events import Failed, Progress
from sevenfold.core.protocols import BackgroundStep, Change, Fit
from sevenfold.core.request import Request, find_open_uses, measure_pressure
from sevenfold.core.tokens import Pressure, Thresholds
from sevenfold.core.transcript import Id, Mark
from sevenfold.layers.l4_compaction.compaction import Compaction
from sevenfold.layers.l4_compaction.plan import (
    AHEAD,
    CompactionBreaker,
    CompactionPlan,
    SummaryWorth,
    make_plan,
    make_view_before,
)
from sevenfold.layers.l4_compaction.plan import BY as COMPACTION
from sevenfold.layers.l4_compaction.summary import NoSummary, Summariser, WrittenSummary
from sevenfold.layers.parts import LayerParts
from sevenfold.layers.shared.boundary import BOUNDARY
from sevenfold.layers.shared.restore import CompactionRefused

BY: Final = "Ahead"
SHARE: Final = 0.8
"""The part of the auto-compact threshold at which a summary is prepared. Put in place, it has to bring the
conversation below that again, or the next one would be due at once."""
_NEVER: Final = object()


class ReadySummary(msgspec.Struct, frozen=True):
    """A summary that waits to be needed, and what it was made for."""

    model: str
    window: int
    covers: tuple[Id, ...]  # The entries that it stands for: the beginning of the view, in order
    written: WrittenSummary
    instructions: str = ""


class _StaleSummary(Exception):
    """The summary cannot be put in place any more; the message says why."""


class SummaryAhead:
    """The `replied` moment: one summary at a time, and no second try before the next compaction."""

    label: ClassVar[str] = BY

    def __init__(self, parts: LayerParts, compaction: Compaction) -> None:
        self._parts, self.compaction, self._emit = parts, compaction, parts.emit
        fork = parts.background_fork
        self._summarise = Summariser(fork, compaction.settings, parts.emit) if fork else None
        self.ready: ReadySummary | None = None
        self._limits: Thresholds | None = None  # As they were before the last request
        self._since: Any = _NEVER  # The boundary there was then; `_NEVER` when the window was full
        self._ended: anyio.Event | None = None
        self._tried: Any = _NEVER  # The boundary since which there was a try that came to nothing
        self._failed = ""  # The model of a try whose failure the breaker has not been told of

    async def __call__(self, request: Request) -> Sequence[Mark]:
        if (planned := self._planned(request)) is None:
            return ()
        self._ended, self._tried = anyio.Event(), planned.view.marks.get(BOUNDARY)
        try:
            self.ready = await self._prepared(planned)
            self._tried = _NEVER
        except CompactionRefused as refused:
            self._say(f"no summary is prepared: a hook refused it: {refused}")
        except NoSummary as error:
            self._failed = planned.request.frame.model
            self._emit(Failed(BY, f"no summary was prepared: {error}"))
            self._say("no summary was prepared")
        except SevenfoldError as error:  # not the model's fault: the breaker need not know
            self._say(f"no summary is prepared: {error}")
        finally:
            self._ended.set()
            self._ended = None
        return ()

    # --- preparing --------------------------------------------------------------------------------------

    def _planned(self, request: Request) -> CompactionPlan | None:
        """The plan for a summary now; None if none is due."""
        limits, boundary = self._limits, request.view.marks.get(BOUNDARY)
        if limits is None or self.ready or self._ended or boundary == self._tried:
            return None
        if self._parts.can_wait and boundary != self._since:
            return None  # this comes late: meanwhile the conversation was compacted, or is about to be
        full = measure_pressure(request, limits, 0.0).tokens > limits.auto_compact * SHARE
        known = CompactionBreaker.of(request.view, request.frame.model)
        if request.source != "main" or not full or known.why_open(self.compaction.settings):
            return None
        request = _answered(request)
        able, stands = self._parts.conversation.capabilities, self.compaction.stands
        planned = make_plan(request, measure_pressure(request, limits, 0.0), AHEAD, able, stands=stands)
        return _enough(planned) if planned and _enough(planned).promising else None

    async def _prepared(self, planned: CompactionPlan) -> ReadySummary:
        instructions = await self.compaction.agreed(planned)
        self._say(f"preparing a summary of about {planned.removed:,} tokens", done=False)
        written = await self.compaction.written(planned, instructions, self._summarise)
        self.compaction.draft(planned, written)  # what would not do now is of no use later
        self._say("a summary is prepared, for when the window is full")
        covers = tuple(placed.id for placed in planned.stretch)
        model, window = planned.request.frame.model, planned.pressure.window
        return ReadySummary(model, window, covers, written, instructions)

    async def settled(self) -> None:
        """Wait for a summary that is on its way, where a request may wait."""
        if self._ended is not None and self._parts.can_wait:
            await self._ended.wait()

    def take_note(self, request: Request, pressure: Pressure, due: bool) -> None:
        """Before each request: how large the window is, and from which boundary on it fills up."""
        self._limits = pressure.thresholds
        self._since = _NEVER if due else request.view.marks.get(BOUNDARY)

    # --- putting it in place ----------------------------------------------------------------------------

    def failure(self, request: Request) -> Sequence[Mark]:
        """A mark that counts the failure for the breaker, once."""
        failed, self._failed = self._failed, ""
        if failed != request.frame.model:
            return ()
        return (CompactionBreaker.of(request.view, failed).failed().mark,)

    async def in_place(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        """The changes that put the ready summary in place; none when it has to be dropped."""
        ready, self.ready = self.ready, None
        if ready is None:
            return ()
        began, view = perf_counter(), request.view
        try:
            planned = self._rebased(ready, request, pressure)
            draft = self.compaction.draft(planned, ready.written)
        except _StaleSummary as why:
            self._dropped(str(why))
            return ()
        except NoSummary:
            self._tried = view.marks.get(BOUNDARY)
            self._dropped("with what has come since, too little would be freed")
            return ()
        breaker = CompactionBreaker.of(view, ready.model).full_again(view, self.compaction.settings)
        after = breaker.succeeded(view)
        return await self.compaction.finished(planned, draft, after, ready.instructions, began)

    def look(self, request: Request, pressure: Pressure) -> None:
        """Drop what cannot be of use any more, so that another one can be prepared."""
        if self.ready is None:
            return
        try:
            _check_the_same(self.ready, request, pressure)
        except _StaleSummary as why:
            self.ready = None
            self._dropped(str(why))

    def _rebased(self, ready: ReadySummary, request: Request, pressure: Pressure) -> CompactionPlan:
        """The same stretch of the conversation as it is now."""
        cut = _check_the_same(ready, request, pressure) + 1
        view = request.view
        if tuple(view[at].id for at in range(cut)) != ready.covers:
            raise _StaleSummary("the part that it covers was changed")
        last, stands = ready.covers[-1], self.compaction.stands
        able = self._parts.conversation.capabilities
        planned = make_plan(request, pressure, AHEAD, able, last=last, stands=stands)
        if planned is None or planned.cut != cut:
            raise _StaleSummary("it would tear apart what belongs together")
        return _enough(planned)

    def _dropped(self, why: str) -> None:
        self._say(f"the summary that was prepared is dropped: {why}")

    def _say(self, text: str, *, done: bool = True) -> None:
        self._emit(Progress(BY, text, done))


class PrecomputedSummary:
    """A `fit` layer before `Compaction`: when the window is full, the summary that was prepared."""

    def __init__(self, ahead: SummaryAhead) -> None:
        self._ahead = ahead
        self.label = COMPACTION  # what it hands back is a compaction like any other

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        ahead, due = self._ahead, self._ahead.compaction.due(pressure)
        ahead.take_note(request, pressure, due)
        if due:
            await ahead.settled()
        if told := ahead.failure(request):
            return told
        if due:
            return await ahead.in_place(request, pressure)
        ahead.look(request, pressure)
        return ()


def _answered(request: Request) -> Request:
    """The request without a reply whose tools are still running: as it was sent."""
    view, end = request.view, len(request.view)
    while end and find_open_uses(make_view_before(view, end)):
        end -= 1
    if not end or end == len(view):
        return request
    return replace(request, view=make_view_before(view, end), sent=view[end - 1].id)


def _enough(planned: CompactionPlan) -> CompactionPlan:
    """The same plan, which has to reach what `SHARE` says."""
    limit = int(planned.pressure.thresholds.auto_compact * SHARE)
    return replace(planned, most=min(planned.most, limit))


def _check_the_same(ready: ReadySummary, request: Request, pressure: Pressure) -> int:
    """The place of the last message that the summary covers."""
    if request.frame.model != ready.model:
        raise _StaleSummary("another model has taken over")
    if pressure.window != ready.window:
        raise _StaleSummary("the window is another one")
    if (at := request.view.where(ready.covers[-1])) is None:
        raise _StaleSummary("the part that it covers is not in view any more")
    return at


_check: tuple[type[BackgroundStep], type[Fit]] = (SummaryAhead, PrecomputedSummary)


class WarmSummary:
    """One summary, offered and made at the same prefix; `fork` may spend what background work may."""

    def __init__(self, parts: LayerParts, compaction: Compaction) -> None:
        self._parts, self._compaction = parts, compaction
        self._summarise = Summariser(parts.get_background_fork(), compaction.settings, parts.emit)
        self._found: tuple[CompactionPlan, SummaryWorth] | None = None

    def offered(self, request: Request, now: float) -> tuple[float, float, float, float] | None:
        """Tokens freed, saved by later requests, the price, and how many times that must be saved."""
        pressure = measure_pressure(request, self._parts.conversation.thresholds, now)
        self._found = self._compaction.paying(request, pressure, margin=0.0)
        if self._found is None or not pressure.warm:
            return None
        worth = self._found[1]
        return worth.freed, worth.saving, worth.price, self._compaction.settings.margin

    async def made(self) -> Sequence[Change]:
        found, self._found = self._found, None
        return () if found is None else await self._compaction.made(*found, self._summarise)
