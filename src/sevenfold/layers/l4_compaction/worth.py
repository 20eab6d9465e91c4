"""Whether a summary pays although the window is not full: the sums, in base-price input tokens.

What leaves the view is not read from the cache by any request still to come. Against that stand the request
that asks for the summary, on a prefix that is in the cache or not, what it answers, writing what takes the
place, and reading again what will be needed after all.
"""

from __future__ import annotations

from typing import Final

import msgspec

from sevenfold.boundary import typed
from sevenfold.cache.prices import Price
from sevenfold.cutting import fixed_tokens
from sevenfold.layers.l4_compaction.settings import CompactionSettings
from sevenfold.request import Request, Ttl
from sevenfold.tokens import Pressure, Usage, scaled
from sevenfold.transcript import View

LEFT: Final = 10_000
"""Tokens that take the place: a summary, the user's words, files read again. All these shrink with the
window; `docs/decisions/0008-compacting-by-price.md` says where they come from."""
ANSWER: Final = 4_500
"""Tokens of the answer, analysis included."""
AGAIN: Final = 2.5
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

    @property
    def times(self) -> float:
        return self.saving / self.price if self.price > 0 else 0.0


def worth(
    request: Request, pressure: Pressure, rates: Rates, settings: CompactionSettings
) -> Worth:
    tokens, window = pressure.tokens, pressure.window
    left = scaled(LEFT, window)
    after = fixed_tokens(request, tokens) + left
    freed = max(0.0, tokens - after)
    saving = freed * rates.read * settings.requests_ahead
    asking = tokens * (rates.read if pressure.warm else 1.0)
    asking += scaled(ANSWER, window) * rates.output
    again = after * rates.read + scaled(CALL + NEEDED * rates.write, window)
    if pressure.warm:
        return Worth(saving, asking + left * rates.write + AGAIN * again)
    # All of it has to be written anew in any case: what left need not be.
    return Worth(saving + freed * (rates.write - rates.read), asking + AGAIN * again)


def begins_a_turn(view: View) -> bool:
    """Whether the user has just spoken: between two tasks less is lost than in the middle of one."""
    last = view[-1] if len(view) else None
    return last is not None and typed(last) and not last.message.results
