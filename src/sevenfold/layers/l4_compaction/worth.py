"""Whether a summary pays although the window is not full: the sums, in base-price input tokens.

What leaves the view is not read from the cache by any request still to come. Against that stand the request
that asks for the summary, on a prefix that is in the cache or not, what it answers, writing what takes the
place and what is kept behind it, and reading again what will be needed after all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from sevenfold.boundary import typed
from sevenfold.cache.prices import Price
from sevenfold.cutting import fixed_tokens, size_of
from sevenfold.layers.l4_compaction.planning import Plan
from sevenfold.layers.l4_compaction.settings import CompactionSettings
from sevenfold.request import TTL_SECONDS, Request, Ttl
from sevenfold.tokens import Usage, scaled
from sevenfold.transcript import Placed, View

LEFT: Final = 14_000
"""Tokens that take the place: a summary, the user's words, files read again, names. All these shrink with
the window; decisions 8 and 10 say where they come from."""
ANSWER: Final = 4_500
"""Tokens of the answer, analysis included."""
AGAIN: Final = 1.5
"""How often something that left is asked for again ..."""
NEEDED: Final = 2_500
"""... and how many tokens it has each time; the call for it costs about 600 more."""
CALL: Final = 600


class Rates(msgspec.Struct, frozen=True):
    """What a token costs, as a multiple of the plain input price."""

    write: float
    read: float
    output: float

    @classmethod
    def of(cls, price: Price, ttl: Ttl, caches: bool) -> Rates:
        output = price.units(Usage(output=1))
        if not caches:
            return cls(1.0, 1.0, output)
        return cls(price.write_1h if ttl == "1h" else price.write_5m, price.read, output)


class Worth(msgspec.Struct, frozen=True):
    """What a summary now is expected to save, and what it costs."""

    saving: float
    price: float
    freed: float
    """Tokens by which the request would be smaller."""

    @property
    def times(self) -> float:
        return self.saving / self.price if self.price > 0 else 0.0


def worth(planned: Plan, rates: Rates, settings: CompactionSettings, words: int = 0) -> Worth:
    """Of exactly what the plan takes out. `words`: tokens of what the user said in it, which stays."""
    view, pressure = planned.view, planned.pressure
    window, tokens, count = pressure.window, pressure.tokens, view.calibration.tokens
    answer = scaled(ANSWER, window)
    left = max(scaled(LEFT, window), answer + words)
    gone = min(planned.removed, tokens)
    freed = max(0.0, gone - left)
    fresh = min(tokens, count(size_of(new_in(view))))
    fixed = fixed_tokens(planned.request, tokens)
    kept = max(0, tokens - gone - fixed - fresh)
    after = tokens - freed
    saving = freed * rates.read * settings.requests_ahead
    again = AGAIN * (after * rates.read + scaled(CALL + NEEDED * rates.write, window))
    if pressure.warm:
        # What is kept stands behind the summary: it was in the cache, and is written anew.
        asking = (tokens - fresh) * rates.read + fresh * rates.write + answer * rates.output
        written = left * rates.write + kept * (rates.write - rates.read)
        return Worth(saving, asking + written + again, freed)
    # All of the messages have to be written anew in any case: what left need not be.
    head = fixed if pressure.idle < TTL_SECONDS[planned.request.frame.head_ttl] else 0
    asking = tokens - head * (1 - rates.read) + answer * rates.output
    return Worth(saving + freed * (rates.write - rates.read), asking + again, freed)


def new_in(view: View) -> Sequence[Placed]:
    """What came after the last reply: no request had it yet, so it is in nobody's cache."""
    at = len(view)
    while at and view[at - 1].by != "model":
        at -= 1
    return [view[i] for i in range(at, len(view))] if at else []


def edited(request: Request) -> bool:
    """Whether something has left the view in this pass already. Marks alone change nothing."""
    warm, view = request.warm, request.view
    if warm is None or warm is view:
        return False
    return warm.buffer is not view.buffer or (len(warm), warm.pins) != (len(view), view.pins)


def begins_a_turn(view: View) -> bool:
    """Whether the user has just spoken: between two tasks less is lost than in the middle of one."""
    last = view[-1] if len(view) else None
    return last is not None and typed(last) and not last.message.results
