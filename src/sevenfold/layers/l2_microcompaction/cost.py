"""Whether clearing pays, and what to clear: the whole decision, in base-price input tokens.

Clearing a result of t tokens saves its share of every request still to come (t x read price). If it is
needed after all, reading it again costs a request over the whole context, its own tokens written anew, and
carrying it again. The first change in the prompt breaks the cache from there on: what stands behind it is
written once more, unless the cache is cold and all of it would be written anyway.
"""

from __future__ import annotations

from typing import Final

import msgspec

from sevenfold.cache.prices import Price
from sevenfold.layers.l2_microcompaction.candidates import Candidate, Scan
from sevenfold.layers.l2_microcompaction.need import NeedModel
from sevenfold.layers.l2_microcompaction.settings import MicroSettings
from sevenfold.request import Ttl
from sevenfold.tokens import Pressure, scaled
from sevenfold.transcript import View

MARKER: Final = 36
"""Tokens of what is left in place of a result, its frame included."""
CALL: Final = 600
"""What asking for it again costs besides, in input tokens: about 120 tokens of output."""


class Rates(msgspec.Struct, frozen=True):
    """What a token costs, as a multiple of the plain input price."""

    write: float = 1.25
    read: float = 0.1

    @classmethod
    def of(cls, price: Price | None, ttl: Ttl, caches: bool = True) -> Rates:
        if not caches:
            return cls(1.0, 1.0)
        if price is None:
            return cls(2.0 if ttl == "1h" else 1.25)
        return cls(price.write_1h if ttl == "1h" else price.write_5m, price.read)


class Decision(msgspec.Struct, frozen=True):
    """What to clear, and the sums behind it."""

    clear: tuple[Candidate, ...]
    freed: int
    rewritten: int
    saving: float
    """Expected, the price of reading back included."""
    price: float
    cold: bool

    @property
    def why(self) -> str:
        saves = (
            f"{len(self.clear)} results, {self.freed:,} tokens, expected to save {self.saving:,.0f}"
        )
        if self.cold:
            return f"{saves}; the cache is cold, so nothing is lost"
        if self.price <= 0:
            return f"{saves}; nothing has to be written again for it"
        times = self.saving / self.price
        return (
            f"{saves}, {times:.1f} times the {self.price:,.0f} that writing {self.rewritten:,} tokens "
            "again costs (in base-price tokens)"
        )


def decide(
    view: View,
    scan: Scan,
    need: NeedModel,
    rates: Rates,
    pressure: Pressure,
    settings: MicroSettings,
) -> Decision | None:
    """The batch with the best balance that is worth its margin; None when there is none."""
    rate = _rate(view, scan)
    ahead, cold = settings.requests_ahead, not pressure.warm
    least = 0.0 if cold else scaled(settings.least_freed, pressure.window)
    again = rates.read * pressure.tokens + CALL
    chosen: list[Candidate] = []
    best: tuple[float, int, int, int, float, float] | None = None
    saving = freed = behind = 0.0
    end: int | None = None
    for one in reversed(scan.old(settings.keep_recent)):
        tokens = one.tokens * rate - MARKER
        chance = need.chance(one, scan) if tokens > 0 else 1.0
        carrying = tokens * (rates.read * ahead + (rates.write - rates.read) * cold)
        back = tokens * (rates.write + rates.read * ahead) + again
        net = carrying - chance * back
        if net <= 0:
            continue
        chosen.append(one)
        saving += net
        freed += tokens
        behind += rate * scan.behind(one.at, end)
        end = one.at
        price = 0.0 if cold else (rates.write - rates.read) * (behind - freed)
        if freed < least or saving < settings.margin * price:
            continue
        if best is None or saving - price > best[0]:
            best = saving - price, len(chosen), int(freed), int(behind - freed), saving, price
    if best is None:
        return None
    _, many, freed, behind, saving, price = best
    return Decision(tuple(reversed(chosen[:many])), freed, behind, saving, price, cold)


def everything(
    view: View, scan: Scan, rates: Rates, pressure: Pressure, settings: MicroSettings
) -> Decision | None:
    """All but the newest, whatever it costs; what is shorter than its marker would be stays."""
    rate, cold = _rate(view, scan), not pressure.warm
    old = [one for one in scan.old(settings.keep_recent) if one.tokens * rate > MARKER]
    if not old:
        return None
    freed = sum(one.tokens * rate - MARKER for one in old)
    rewritten = rate * scan.behind(old[0].at) - freed
    saving = freed * (rates.read * settings.requests_ahead + (rates.write - rates.read) * cold)
    price = 0.0 if cold else (rates.write - rates.read) * rewritten
    return Decision(tuple(old), int(freed), int(rewritten), saving, price, cold)


def _rate(view: View, scan: Scan) -> float:
    """Tokens as this model counts them, for one by the raw rule."""
    return view.calibration.tokens(view.size) / max(1, scan.behind(0))
