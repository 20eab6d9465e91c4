"""Before each request: clear old tool results in one batch, if that pays; else leave every byte alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import ClassVar, Final

import msgspec

from sevenfold.cache.prefix import make_frontier_mark
from sevenfold.core.events import Cleared, Notice, ReadAgain
from sevenfold.core.messages import THOUGHTS, Message
from sevenfold.core.protocols import Change, Fit
from sevenfold.core.request import Request, find_last_loop_thinking, find_open_loop
from sevenfold.core.tokens import MessageSize, Pressure, measure_message
from sevenfold.core.transcript import Mark, PlacedMessage, Results, Unthink, View
from sevenfold.layers.l2_microcompaction.candidates import (
    RepeatedCall,
    ViewScan,
    describe_call,
    store_cleared_results,
)
from sevenfold.layers.l2_microcompaction.cost import (
    CacheRates,
    ClearDecision,
    NeedModel,
    decide_clear_all,
    decide_clearing,
)
from sevenfold.layers.l2_microcompaction.provider import is_clear_request
from sevenfold.layers.parts import LayerParts
from sevenfold.layers.shared.boundary import has_thinking

LOOK_EVERY: Final = 0.02
"""The sums are done again when so much more of the view could be cleared: not at every step."""
REREAD: Final = "micro.reread"  # The name of the mark that counts what was asked for again
MOST_REMEMBERED: Final = 50
BREAKER_LEAST, BREAKER_SHARE = 10, 0.25
"""Clearing ends when so many results, and such a share of those cleared, were asked for again."""


class RereadStats(msgspec.Struct, frozen=True):
    """Counts of cleared results that were asked for again in this session."""

    count: int = 0
    cleared: int = 0
    often: tuple[tuple[str, str, int], ...] = ()
    stopped: bool = False  # True if the user was told that no more results are cleared


class Microcompaction:
    """The cost model, or the plain time rule. The main conversation only."""

    label: ClassVar[str] = "Microcompaction"

    def __init__(self, parts: LayerParts) -> None:
        self._parts, self._settings, self._emit = parts, parts.settings.micro, parts.emit
        switches, plain = parts.switches, self._settings.policy == "plain"
        self._by_cost = switches.micro_cost and not plain
        self._by_time = switches.micro_time or plain
        own = self._settings.need_model if self._by_cost else None
        # A file of the user's is read now, so that a wrong one is reported when the session opens.
        self._need = NeedModel.load(own) if own else None
        self._scan = ViewScan(self._settings.tools, parts.memory_folders)
        self._looked_at = 0
        self._bound = -1
        self._said = False
        self._again = self._cleared = 0

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        view = request.view
        self._recall(view)
        again = self._report(self._scan.follow(view))
        self._cleared = max(self._cleared, self._scan.cleared)
        scan, settings, able = self._scan, self._settings, self._parts.conversation.capabilities
        # Thinking that a tool loop still needs goes with any change before it: only what follows may go.
        bound = find_last_loop_thinking(view) if able.loses_thinking else -1
        if self._by_time and pressure.idle >= settings.idle_minutes * 60:
            old = decide_clear_all(view, scan, self._rates(request), pressure, settings, bound)
            return (*again, *self._clear(view, old, "plain"))
        if not self._by_cost or (self._parts.switches.micro_cache_edit and able.edits_cache):
            return again  # `CacheEditing` deletes from the provider's cache instead
        if is_clear_request(request.frame):  # as the session began, whatever the switches are by now
            return again
        if not self._worth_a_look(pressure, bound):
            return again
        if self._broken():
            return (*again, *self._stop())
        self._need, rates = self._need or NeedModel.load(), self._rates(request)
        batch = decide_clearing(view, scan, self._need, rates, pressure, settings, bound)
        return (*again, *self._clear(view, batch, "cost"))

    def _recall(self, view: View) -> None:
        """After a resume: what had been asked for again."""
        if self._again or REREAD not in view.marks:
            return
        try:
            known = msgspec.convert(view.marks[REREAD], RereadStats)
        except msgspec.ValidationError:  # damaged: counting begins anew
            return
        self._again, self._cleared = known.count, max(known.cleared, self._cleared)
        self._said = known.stopped
        self._scan.asked_again.update({(tool, what): n for tool, what, n in known.often})

    def _report(self, again: Sequence[RepeatedCall]) -> tuple[Mark, ...]:
        """Count and tell what the model asked for after it had been cleared."""
        for one in again:
            self._again += 1
            self._emit(ReadAgain(one.use.name, describe_call(one.use), one.tokens, self._again))
        return (self._mark,) if again else ()

    @property
    def _mark(self) -> Mark:
        often = self._scan.asked_again.most_common(MOST_REMEMBERED)
        named = tuple((*what, n) for what, n in often)
        return Mark(REREAD, msgspec.to_builtins(RereadStats(self._again, self._cleared, named, self._said)))

    def _broken(self) -> bool:
        """A session that keeps asking for what was cleared is one where clearing does not pay."""
        return self._again >= BREAKER_LEAST and self._again > BREAKER_SHARE * self._cleared

    def _stop(self) -> tuple[Mark, ...]:
        """Say once in a session that clearing ends."""
        if self._said:
            return ()
        self._said = True
        text = f"{self._again} of {self._cleared} cleared results were asked for again: no more are cleared"
        self._emit(Notice(f"microcompaction stops: {text}", "warning"))
        return (self._mark,)

    def _worth_a_look(self, pressure: Pressure, bound: int) -> bool:
        """True if enough is new since the last sums for another result."""
        if bound < self._bound:  # a tool loop has ended: what it held may go now
            self._looked_at = 0
        self._bound = bound
        now, last = self._scan.clearable, self._looked_at
        if pressure.warm and last <= now < last + LOOK_EVERY * pressure.tokens:
            return False
        self._looked_at = now
        return now > 0

    def _rates(self, request: Request) -> CacheRates:
        frame = request.frame
        caches = self._parts.conversation.capabilities.caches_prompts
        return CacheRates.of(self._parts.prices.of(frame.model), frame.ttl, caches)

    def _clear(self, view: View, decision: ClearDecision | None, rule: str) -> Sequence[Change]:
        if decision is None:
            return ()
        shown = store_cleared_results(decision.clear, view, self._parts.results, self._emit)
        if not shown:
            return ()
        why = f"layer 2 cleared {decision.why}"
        self._parts.expect(why)
        freed, rewritten = decision.freed, decision.rewritten
        self._emit(Cleared(rule, tuple(shown), freed, rewritten, decision.saving, decision.price, why))
        self._cleared += len(shown)
        first, last = decision.clear[0].at, decision.clear[-1].at
        then = next((one.at for one in self._scan.found if one.at > last), len(view))
        return (Results(shown), make_frontier_mark(view, first, then))


_check: type[Fit] = Microcompaction


class OldThinking:
    """Drops thinking older than `micro.thinkingReplies` replies. The main conversation only.

    Not where thinking is bound to what stands before it, nor where the provider leaves it out by itself.
    """

    label: ClassVar[str] = "OldThinking"

    def __init__(self, parts: LayerParts) -> None:
        self._parts, self._keep = parts, parts.settings.micro.thinking_replies

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        if pressure.warm or not self._keep or self._parts.conversation.capabilities.loses_thinking:
            return ()
        price = self._parts.prices.of(request.frame.model)
        if price is not None and not price.keeps_thinking:
            return ()
        old = find_old_thinking(request.view, self._keep)
        if not old:
            return ()
        freed = request.view.calibration.tokens(sum(map(_measure_thinking, old), MessageSize()))
        why = f"the cache is cold: thinking of {len(old)} older replies, {freed:,} tokens, left the view"
        self._parts.expect(why)
        self._parts.emit(Cleared("thinking", (), freed, 0, float(freed), 0.0, why))
        return (Unthink(old[0].id, old[-1].id),)


def find_old_thinking(view: View, keep: int) -> list[PlacedMessage]:
    """The replies with thinking before the newest `keep`; none of a tool loop that is still going on."""
    replies = (at for at in range(len(view) - 1, -1, -1) if view[at].message.role == "assistant")
    newest = next(islice(replies, keep - 1, None), 0)
    end = min(newest, find_open_loop(view))
    return [view[at] for at in range(end) if has_thinking(view[at])]


def _measure_thinking(placed: PlacedMessage) -> MessageSize:
    kept = tuple(block for block in placed.message.content if not isinstance(block, THOUGHTS))
    return placed.size - measure_message(Message("assistant", kept))


_check_thinking: type[Fit] = OldThinking
