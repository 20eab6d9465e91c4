"""Decides what to clear, if clearing pays, in base-price input tokens.

Clearing a result saves its share of every request still to come. If it is needed after all (a logistic
model with coefficients from a file gives the chance), it is read again, written anew and carried again. The
first change in the prompt breaks the cache from there on: the rest is written once more, unless it is cold.
"""

from __future__ import annotations

import math
import operator
import tomllib
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.cache.prices import Price
from sevenfold.core.errors import SettingsError
from sevenfold.core.request import Ttl
from sevenfold.core.tokens import Pressure, scale_constant
from sevenfold.core.transcript import View
from sevenfold.layers.l2_microcompaction.candidates import READERS, WRITERS, Candidate, ViewScan
from sevenfold.settings.layers import MicroSettings

COEFFICIENTS: Final = Path(__file__).with_name("need.toml")
CHANGING: Final = ("age", "turns", "changed_since", "read_since", "untouched")
"""The features that change while a result stands in the view."""
FEATURES: Final = ("always", "read", "search", "shell", "change", "size", *CHANGING, "error")
SEARCHERS: Final = frozenset({"Grep", "Glob"})
SHELLS: Final = frozenset({
    "Bash", "bash", "exec", "exec_command", "execute_command", "local_shell", "run_command",
    "run_shell_command", "shell", "shell_command", "terminal",
})  # fmt: skip
"""Tools that run commands, as the clients in whose loops we work call them."""


def compute_features(candidate: Candidate, scan: ViewScan) -> tuple[float, ...]:
    """The features of a result, each on a scale of about one, in the order of `FEATURES`."""
    tool, touched = candidate.use.name, scan.files.get(candidate.path)
    read = tool in READERS
    changed_since = touched is not None and touched.changed > candidate.call
    read_since = touched is not None and read and touched.read > candidate.call
    last = touched.request if touched else candidate.request
    return (
        1.0,
        float(read),
        float(tool in SEARCHERS),
        float(tool in SHELLS),
        float(tool in WRITERS),
        _scale_size(candidate.tokens),
        math.log2(1 + scan.calls - candidate.call),
        math.log2(1 + scan.turns - candidate.turn),
        float(read and changed_since),
        float(read_since),
        math.log2(1 + scan.requests - last) if read else 0.0,
        float(candidate.error),
    )


def _scale_size(tokens: int) -> float:
    return math.log2(1 + tokens / 100)


class NeedModel:
    """The chance that a result is needed again after it was cleared."""

    def __init__(self, coefficients: tuple[float, ...]) -> None:
        self._named = dict(zip(FEATURES, coefficients, strict=True))
        self._changing_coefficients = tuple(self._named[name] for name in CHANGING)
        self._tools: dict[str, float] = {}
        self._lasting: dict[str, float] = {}

    @classmethod
    def load(cls, path: Path | None = None) -> NeedModel:
        where = path or COEFFICIENTS
        try:
            return cls(_read_coefficients(where) if path else _read_own_coefficients())
        except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
            raise SettingsError(
                f"{where}: the coefficients of micro.needModel cannot be read ({error}); "
                "write the file anew with 'python -m benchmarks.policy.fit'"
            ) from error

    def chance(self, candidate: Candidate, scan: ViewScan) -> float:
        """`compute_probability` of all `compute_features`; those that never change are summed up once."""
        lasting = self._lasting.get(candidate.use.id)
        if lasting is None:
            lasting = self._lasting[candidate.use.id] = self._sum_lasting(candidate)
        return _logistic(lasting + self._changing(candidate, scan))

    def _sum_lasting(self, candidate: Candidate) -> float:
        named, tool = self._named, candidate.use.name
        known = self._tools.get(tool)
        if known is None:
            kinds = {"read": READERS, "search": SEARCHERS, "shell": SHELLS, "change": WRITERS}
            known = named["always"] + sum(named[kind] for kind, tools in kinds.items() if tool in tools)
            self._tools[tool] = known
        return known + named["size"] * _scale_size(candidate.tokens) + named["error"] * candidate.error

    def _changing(self, candidate: Candidate, scan: ViewScan) -> float:
        (age, turns, changed_since, read_since, untouched) = self._changing_coefficients
        weighted = age * math.log2(1 + scan.calls - candidate.call)
        weighted += turns * math.log2(1 + scan.turns - candidate.turn)
        if candidate.use.name not in READERS:
            return weighted
        touched, last = scan.files.get(candidate.path), candidate.request
        if touched is not None:
            weighted += changed_since * (touched.changed > candidate.call)
            weighted += read_since * (touched.read > candidate.call)
            last = touched.request
        return weighted + untouched * math.log2(1 + scan.requests - last)


def compute_probability(coefficients: tuple[float, ...], values: tuple[float, ...]) -> float:
    """The logistic function of the weighted sum."""
    return _logistic(sum(map(operator.mul, coefficients, values)))


def _logistic(weighted: float) -> float:
    if not -30.0 < weighted < 30.0:
        weighted = max(-30.0, min(30.0, weighted))
    return 1 / (1 + math.exp(-weighted))


def _read_coefficients(path: Path) -> tuple[float, ...]:
    raw = tomllib.loads(path.read_text(encoding="utf-8"))["coefficients"]
    return tuple(_number(raw[name]) for name in FEATURES)


@cache
def _read_own_coefficients() -> tuple[float, ...]:
    return _read_coefficients(COEFFICIENTS)


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)


MARKER: Final = 54  # Tokens of what is left in place of a result: its frame, and a path of 100 characters
CALL: Final = 600
"""The cost of asking again besides the result, in input tokens: about 120 tokens of output."""


class CacheRates(msgspec.Struct, frozen=True):
    """Prices of a token, as multiples of the plain input price."""

    write: float = 1.25
    read: float = 0.1

    @classmethod
    def of(cls, price: Price | None, ttl: Ttl, caches: bool = True) -> CacheRates:
        if not caches:
            return cls(1.0, 1.0)
        if price is None:
            return cls(2.0 if ttl == "1h" else 1.25)
        return cls(price.write_1h if ttl == "1h" else price.write_5m, price.read)


class ClearDecision(msgspec.Struct, frozen=True):
    """The results to clear, and the sums behind the decision."""

    clear: tuple[Candidate, ...]
    freed: int
    rewritten: int
    saving: float  # Expected, the price of reading back included
    price: float
    cold: bool

    @property
    def why(self) -> str:
        saves = f"{len(self.clear)} results, {self.freed:,} tokens, expected to save {self.saving:,.0f}"
        if self.cold:
            return f"{saves}; the cache is cold, so nothing is lost"
        if self.price <= 0:
            return f"{saves}; nothing has to be written again for it"
        return (
            f"{saves}, {self.saving / self.price:.1f} times the {self.price:,.0f} that writing "
            f"{self.rewritten:,} tokens again costs (in base-price tokens)"
        )


def decide_clearing(
    view: View,
    scan: ViewScan,
    need: NeedModel,
    rates: CacheRates,
    pressure: Pressure,
    settings: MicroSettings,
    since: int = -1,
) -> ClearDecision | None:
    """The best batch after message `since` that is worth its margin; None when there is none."""
    rate = _rate(view, scan)
    ahead, cold = settings.requests_ahead, not pressure.warm
    least = 0.0 if cold else scale_constant(settings.least_freed, pressure.window)
    again = rates.read * pressure.tokens + CALL
    carried = rates.read * ahead + (rates.write - rates.read) * cold
    returned = rates.write + rates.read * ahead
    weight = settings.need_weight if cold else 1.0
    chosen: list[Candidate] = []
    best: tuple[float, int, int, int, float, float] | None = None
    saving = freed = behind = 0.0
    end: int | None = None
    for one in reversed(scan.old(settings.keep_recent, since)):
        tokens = one.tokens * rate - MARKER
        if tokens <= 0:  # shorter than its marker
            continue
        chance = weight * need.chance(one, scan)
        net = tokens * carried - chance * (tokens * returned + again)
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
    return ClearDecision(tuple(reversed(chosen[:many])), freed, behind, saving, price, cold)


def decide_clear_all(
    view: View,
    scan: ViewScan,
    rates: CacheRates,
    pressure: Pressure,
    settings: MicroSettings,
    since: int = -1,
) -> ClearDecision | None:
    """All after message `since` but the newest, whatever it costs; those shorter than a marker stay."""
    rate, cold = _rate(view, scan), not pressure.warm
    old = [one for one in scan.old(settings.keep_recent, since) if one.tokens * rate > MARKER]
    if not old:
        return None
    freed = sum(one.tokens * rate - MARKER for one in old)
    rewritten = rate * scan.behind(old[0].at) - freed
    saving = freed * (rates.read * settings.requests_ahead + (rates.write - rates.read) * cold)
    price = 0.0 if cold else (rates.write - rates.read) * rewritten
    return ClearDecision(tuple(old), int(freed), int(rewritten), saving, price, cold)


def _rate(view: View, scan: ViewScan) -> float:
    """Tokens as this model counts them, for one by the raw rule."""
    return view.calibration.tokens(view.size) / max(1, scan.behind(0))
