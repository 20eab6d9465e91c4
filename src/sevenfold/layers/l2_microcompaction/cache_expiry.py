"""While nobody speaks and the cache is about to be lost: let it go, keep it warm, or sum up what is in it.

It is off unless the flag `pre_cold` is set, because it spends while nobody looks.
`choose_cache_action` is the whole
decision: what each way is expected to cost on top of a next request that finds everything in the cache,
in base-price input tokens. Clearing is none of the ways: once the cache is cold it is free, and the next
request does it; before that it can only be dearer.

How long people are silent between a reply and what they say next, and what follows from it.
"""

from __future__ import annotations

import math
import tomllib
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prices import MILLION, Price, Prices
from sevenfold.core.errors import SettingsError
from sevenfold.core.events import Emit, Progress
from sevenfold.core.protocols import Capabilities, Change, IdleStep
from sevenfold.core.request import KEPT_WARM, TTL_SECONDS, Frame, Request
from sevenfold.core.tokens import Usage, scale_constant
from sevenfold.core.transcript import Mark, Reply, View
from sevenfold.settings.layers import MicroSettings

PRIOR: Final = Path(__file__).with_name("gaps.toml")
EDGES: Final = (
    15, 30, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1_200, 1_800, 2_700, 3_600, 7_200, 14_400,
    28_800, 86_400,
)  # fmt: skip
"""Where each bin ends, in seconds; the first one begins at `QUICKEST`."""
QUICKEST: Final = 1.0
"""Nobody reads a reply and answers it faster: that was a program."""
WEIGHT: Final = 20.0
"""How many gaps of this user the recorded ones are worth."""
MOST: Final = 500.0
"""Older gaps fade when there are more: people change their ways."""


class GapCounts(msgspec.Struct, frozen=True):
    """Gaps that were seen, by length, and how often nobody came back."""

    counts: tuple[float, ...] = (0.0,) * len(EDGES)
    left: float = 0.0

    @property
    def seen(self) -> float:
        return sum(self.counts) + self.left

    def after(self, gap: float) -> GapCounts:
        """The user spoke again after so many seconds."""
        if gap < QUICKEST:
            return self
        if gap > EDGES[-1]:
            return self.leaving()
        at = bisect_left(EDGES, gap)
        counts = (n + (i == at) for i, n in enumerate(self.counts))
        return _faded(GapCounts(tuple(counts), self.left))

    def leaving(self) -> GapCounts:
        """The user did not speak again."""
        return _faded(GapCounts(self.counts, self.left + 1))

    def __add__(self, other: GapCounts) -> GapCounts:
        both = zip(self.counts, other.counts, strict=True)
        return _faded(GapCounts(tuple(a + b for a, b in both), self.left + other.left))

    def with_prior(self) -> GapCounts:
        """These gaps, and the recorded ones for as much as they are worth."""
        recorded = load_prior_gaps()
        share = WEIGHT / max(1.0, recorded.seen)
        return GapCounts(
            tuple(own + share * n for own, n in zip(self.counts, recorded.counts, strict=True)),
            self.left + share * recorded.left,
        )


def _faded(gaps: GapCounts) -> GapCounts:
    share = MOST / max(MOST, gaps.seen)
    return GapCounts(tuple(n * share for n in gaps.counts), gaps.left * share)


@cache
def load_prior_gaps() -> GapCounts:
    """The gaps of recorded sessions, from the file beside this one."""
    try:
        raw = tomllib.loads(PRIOR.read_text(encoding="utf-8"))
        counts = tuple(float(raw["gaps"][str(edge)]) for edge in EDGES)
        return GapCounts(counts, float(raw["left"]))
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"{PRIOR}: the gaps of recorded sessions cannot be read ({error}); "
            "write the file anew with 'python -m benchmarks.policy.gaps'"
        ) from error


class GapForecast:
    """What can be expected of somebody who has said nothing for so long."""

    def __init__(self, gaps: GapCounts, idle: float) -> None:
        self._sums = (0.0, *accumulate(gaps.counts))
        self._come, self._left = self._sums[-1], gaps.left
        self._idle = idle
        self._now = self._come - self._within(idle) + self._left

    def back_between(self, start: float, end: float) -> float:
        """The chance that the user speaks in this time, both counted from the reply."""
        if self._now <= 0:
            return 0.0
        first, last = max(start, self._idle), max(end, self._idle)
        return max(0.0, self._within(last) - self._within(first)) / self._now

    def back_after(self, time: float) -> float:
        """The chance that the user does speak again, and after this."""
        return self.back_between(time, math.inf)

    def still(self, time: float) -> float:
        """The chance that nobody will have spoken until then."""
        return 1.0 - self.back_between(self._idle, time)

    def _within(self, time: float) -> float:
        """How many gaps were no longer than this."""
        if time >= EDGES[-1]:
            return self._come
        if time <= QUICKEST:
            return 0.0
        at = bisect_left(EDGES, time)
        low, high = (EDGES[at - 1] if at else QUICKEST), EDGES[at]
        part = math.log(time / low) / math.log(high / low)
        return self._sums[at] + part * (self._sums[at + 1] - self._sums[at])


NEAR: Final = 0.9
"""The part of the cache's life after which to decide."""
LARGE: Final = 40_000
"""Tokens of a context (in a window of 200,000) below which it is not worth the trouble."""
ASKING: Final = 80
"""Tokens of a request that only keeps warm, besides the prefix."""
HOUR: Final = TTL_SECONDS["1h"]
HOUR_HOLDS: Final = 0.5
"""How far to trust that a prefix which is read, and marked for an hour at its new end, lives for an hour.
What is billed says so (only what is new counts as written); nothing that is said of lives promises it."""

KeepWarm: TypeAlias = Callable[[Request], Awaitable[Reply | None]]
Way: TypeAlias = Literal["let go", "keep warm", "an hour", "sum up"]


class SummaryOffer(Protocol):
    """Offers a summary, and makes the one that it has offered last."""

    def offered(self, request: Request, now: float) -> tuple[float, float, float, float] | None:
        """Tokens freed, saved by later requests, the price, and how many times that must be saved."""
        ...

    async def made(self) -> Sequence[Change]: ...


class CacheSituation(msgspec.Struct, frozen=True, kw_only=True):
    """What is known at the moment of deciding. Times are seconds since the reply."""

    tokens: int
    """The context, which is in the cache."""
    idle: float
    """Now."""
    expires: float
    """When the cache is lost, if nothing is done."""
    life: float
    """How long it lives from each use on."""
    gaps: GapCounts
    read: float
    """Prices, as multiples of the plain input price."""
    write: float
    write_hour: float
    output: float
    answer: int = 1
    """Tokens that a request which only keeps warm may answer with; thinking counts."""
    fresh: int = 0
    """Tokens at the end that are not in the cache yet: the reply. Only they can be written for an hour."""
    left: int = 2
    """How many such requests are still allowed in this silence."""
    freed: float = 0.0
    """What a summary would take out; 0 when none is offered ..."""
    saved: float = 0.0
    """... what the requests after the silence save by it, what it costs now, and how many times as much it
    has to save."""
    price: float = 0.0
    margin: float = 1.0


class CacheChoice(msgspec.Struct, frozen=True):
    """What to do, and what each way was expected to cost, in base-price input tokens."""

    way: Way
    costs: dict[str, float]

    @property
    def saves(self) -> float:
        return self.costs["let go"] - self.costs[self.way]


def choose_cache_action(s: CacheSituation) -> CacheChoice:
    """The cheapest way, by what is expected of this user."""
    user = GapForecast(s.gaps, s.idle)
    rewrite = s.tokens * (s.write - s.read)
    request = s.tokens * s.read + ASKING + s.answer * s.output
    costs: dict[str, float] = {"let go": user.back_after(s.expires) * rewrite}

    def kept(requests: int) -> float:
        """So many requests, each just before the cache is lost, for as long as nobody speaks."""
        times = [s.idle + i * NEAR * s.life for i in range(requests)]
        sent = sum(user.still(time) for time in times)
        return sent * request + user.back_after(times[-1] + s.life) * rewrite

    if s.left:
        costs["keep warm"] = min(kept(n) for n in range(1, s.left + 1))
    if s.left and s.fresh and s.life < HOUR:
        until, sure = s.idle + HOUR, s.idle + s.life
        lost = user.back_after(until) + (1 - HOUR_HOLDS) * user.back_between(sure, until)
        costs["an hour"] = request + s.fresh * (s.write_hour - s.read) + lost * rewrite
    if s.freed:  # whoever does not come back pays for it in vain
        late = user.back_after(s.expires)
        gain = user.back_after(s.idle) * s.saved + late * s.freed * (s.write - s.read)
        if gain >= s.margin * s.price:
            costs["sum up"] = costs["let go"] + s.price - gain
    ways: tuple[Way, ...] = ("let go", "keep warm", "an hour", "sum up")
    return CacheChoice(min((way for way in ways if way in costs), key=lambda way: costs[way]), costs)


class CacheExpiry:
    """Decides once each time the cache is about to be lost. The main conversation only."""

    label: ClassVar[str] = "PreCold"

    def __init__(
        self,
        settings: MicroSettings,
        prices: Prices,
        able: Callable[[], Capabilities],
        emit: Emit,
        until: Callable[[Frame], float | None],
        gaps: Callable[[], GapCounts],
        keep_warm: KeepWarm,
        summing: SummaryOffer | None = None,
    ) -> None:
        """`until` says until when the provider keeps this frame's prefix."""
        self._settings, self._prices, self._able, self._emit = settings, prices, able, emit
        self._until, self._gaps = until, gaps
        self._keep_warm, self._summing = keep_warm, summing
        self._kept = CacheRefresh()
        self._decided = 0.0

    async def __call__(self, request: Request, idle: float) -> Sequence[Change]:
        view, price = request.view, self._prices.of(request.frame.model)
        if view.replied_at is None or price is None or not price.input:
            return ()
        now, kept = view.replied_at + idle, self._so_far(view)
        ends = max(self._until(request.frame) or 0.0, kept.until)
        if not now < ends <= now + (1 - NEAR) * kept.life(request.frame) or ends == self._decided:
            return ()
        if count_request_tokens(request) < scale_constant(LARGE, self._able().window):
            return ()
        self._decided = ends
        choice = choose_cache_action(self._situation(request, idle, ends - now, price))
        self._explain(choice, count_request_tokens(request), price)
        if choice.way == "sum up":
            return await self._summing.made() if self._summing else ()
        return () if choice.way == "let go" else await self._keep(choice.way, request, now)

    def _situation(self, request: Request, idle: float, time_left: float, price: Price) -> CacheSituation:
        frame, kept = request.frame, self._so_far(request.view)
        fresh = 0 if kept.times else _fresh(request.view)
        now = (request.view.replied_at or 0.0) + idle
        offer = self._summing.offered(request, now) if self._summing else None
        freed, saved, costs, margin = offer or (0.0, 0.0, 0.0, 1.0)
        thinking = (frame.params.get("thinking") or {}).get("budget_tokens") or 0
        return CacheSituation(
            tokens=count_request_tokens(request),
            idle=idle,
            expires=idle + time_left,
            life=kept.life(frame),
            gaps=self._gaps().with_prior(),
            read=price.read,
            write=price.write_1h if frame.ttl == "1h" else price.write_5m,
            write_hour=price.write_1h,
            output=price.units(Usage(output=1)),
            answer=1 + int(thinking),
            fresh=fresh,
            left=max(0, self._settings.keep_warm - kept.times),
            freed=freed,
            saved=saved,
            price=costs,
            margin=margin,
        )

    async def _keep(self, way: Way, request: Request, now: float) -> Sequence[Change]:
        before, asked = self._so_far(request.view), way == "an hour"
        sent = replace(request, frame=replace(request.frame, ttl="1h")) if asked else request
        reply = await self._keep_warm(sent)
        if reply is None:
            return ()
        hour = before.hour or (asked and reply.usage.cache_write_1h > 0)
        kept = CacheRefresh(request.view.replied_at or 0.0, before.times + 1, 0.0, hour)
        self._kept = replace(kept, until=now + kept.life(request.frame))
        return (Mark(KEPT_WARM, msgspec.to_builtins(self._kept)),)

    def _so_far(self, view: View) -> CacheRefresh:
        """What was done in this silence, also by a process that is gone."""
        marked = _kept_in(view.marks.get(KEPT_WARM))
        known = [k for k in (self._kept, marked) if k.since == view.replied_at]
        return max(known, key=lambda k: k.times, default=CacheRefresh())

    def _explain(self, choice: CacheChoice, tokens: int, price: Price) -> None:
        money = price.input / MILLION
        ways = sorted(choice.costs, key=lambda way: choice.costs[way])
        sums = ", ".join(f"{way} {choice.costs[way] * money:.4f}" for way in ways)
        said = (
            f"a cache of {tokens:,} tokens is about to be lost; chosen: {choice.way}. Expected to cost, "
            f"in {price.currency}: {sums}"
        )
        self._emit(Progress("pre-cold", said, done=True))


class CacheRefresh(msgspec.Struct, frozen=True):
    """What was done to keep the cache during one silence."""

    since: float = -1.0
    """When the reply came that this silence follows."""
    times: int = 0
    until: float = 0.0
    hour: bool = False

    def life(self, frame: Frame) -> float:
        return HOUR if self.hour else TTL_SECONDS[frame.ttl]


def _kept_in(value: Any) -> CacheRefresh:
    try:
        return msgspec.convert(value, CacheRefresh)
    except msgspec.ValidationError:
        return CacheRefresh()


def count_request_tokens(request: Request) -> int:
    """The whole context of a request."""
    view = request.view
    return view.tokens + (request.frame.tokens if view.reported is None else 0)


def _fresh(view: View) -> int:
    """Tokens of the last message, if it is the reply: no request has ended behind it yet."""
    last = view[-1] if len(view) else None
    return view.calibration.tokens(last.size) if last and last.by == "model" else 0


_check: Callable[..., IdleStep] = CacheExpiry
