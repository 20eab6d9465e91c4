"""Acts in a silence, before the cache is lost: lets it go, keeps it warm, or sums up what is in it.

It is off unless the flag `pre_cold` is set, because it spends while the user is away. `choose_cache_action`
is the whole decision. Clearing is none of the ways: it is free once the cache is cold, and dearer before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prices import MILLION, Price
from sevenfold.core.events import Progress
from sevenfold.core.protocols import Change, IdleStep
from sevenfold.core.request import KEPT_WARM, TTL_SECONDS, Frame, Request
from sevenfold.core.tokens import Usage, scale_constant
from sevenfold.core.transcript import Mark, View
from sevenfold.layers.parts import LayerParts
from sevenfold.layers.shared.idle_gaps import GapCounts, GapForecast

NEAR: Final = 0.9  # The part of the cache's life after which to decide
LARGE: Final = 40_000
"""Tokens of a context (in a window of 200,000) below which it is not worth the trouble."""
ASKING: Final = 80  # Tokens of a request that only keeps warm, besides the prefix
HOUR: Final = TTL_SECONDS["1h"]
HOUR_HOLDS: Final = 0.5
"""How far to trust that a prefix which is read, and marked for an hour at its new end, lives for an hour.
What is billed says so (only what is new counts as written); nothing that is said of lives promises it."""

Way: TypeAlias = Literal["let go", "keep warm", "an hour", "sum up"]


class SummaryOffer(Protocol):
    """Offers a summary, and makes the one that it has offered last."""

    def offered(self, request: Request, now: float) -> tuple[float, float, float, float] | None:
        """Tokens freed, saved by later requests, the price, and how many times that must be saved."""
        ...

    async def made(self) -> Sequence[Change]: ...


class CacheSituation(msgspec.Struct, frozen=True, kw_only=True):
    """The facts for a decision. Times are seconds since the reply."""

    tokens: int  # The context, which is in the cache
    idle: float  # Now
    expires: float  # The time at which the cache is lost, if nothing is done
    life: float  # Seconds that the cache lives from each use on
    gaps: GapCounts
    read: float  # Prices, as multiples of the plain input price
    write: float
    write_hour: float
    output: float
    answer: int = 1  # Tokens that a request which only keeps warm may answer with; thinking counts
    fresh: int = 0
    """Tokens at the end that are not in the cache yet: the reply. Only they can be written for an hour."""
    left: int = 2  # Such requests still allowed in this silence
    freed: float = 0.0  # Tokens that a summary would take out; 0 when none is offered
    saved: float = 0.0
    """... what the requests after the silence save by it, what it costs now, and how many times as much it
    has to save."""
    price: float = 0.0
    margin: float = 1.0


class CacheChoice(msgspec.Struct, frozen=True):
    """The chosen way, and the expected cost of each way in base-price input tokens."""

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
        """So many requests, each just before the cache is lost, as long as the user is silent."""
        times = [s.idle + i * NEAR * s.life for i in range(requests)]
        sent = sum(user.still(time) for time in times)
        return sent * request + user.back_after(times[-1] + s.life) * rewrite

    if s.left:
        costs["keep warm"] = min(kept(n) for n in range(1, s.left + 1))
    if s.left and s.fresh and s.life < HOUR:
        until, sure = s.idle + HOUR, s.idle + s.life
        lost = user.back_after(until) + (1 - HOUR_HOLDS) * user.back_between(sure, until)
        costs["an hour"] = request + s.fresh * (s.write_hour - s.read) + lost * rewrite
    if s.freed:  # a user who does not come back pays for it in vain
        late = user.back_after(s.expires)
        gain = user.back_after(s.idle) * s.saved + late * s.freed * (s.write - s.read)
        if gain >= s.margin * s.price:
            costs["sum up"] = costs["let go"] + s.price - gain
    ways: tuple[Way, ...] = ("let go", "keep warm", "an hour", "sum up")
    return CacheChoice(min((way for way in ways if way in costs), key=lambda way: costs[way]), costs)


class CacheExpiry:
    """Decides once each time the cache is about to be lost. The main conversation only."""

    label: ClassVar[str] = "PreCold"

    def __init__(self, parts: LayerParts, summary: SummaryOffer | None = None) -> None:
        self._parts, self._summary = parts, summary
        self._kept = CacheRefresh()
        self._decided = 0.0

    async def __call__(self, request: Request, idle: float) -> Sequence[Change]:
        view, price = request.view, self._parts.prices.of(request.frame.model)
        if view.replied_at is None or price is None or not price.input:
            return ()
        now, kept = view.replied_at + idle, self._so_far(view)
        ends = max(self._parts.cached_until(request.frame) or 0.0, kept.until)
        if not now < ends <= now + (1 - NEAR) * kept.life(request.frame) or ends == self._decided:
            return ()
        if request.tokens < scale_constant(LARGE, self._parts.window):
            return ()
        self._decided = ends
        choice = choose_cache_action(self._situation(request, idle, ends - now, price))
        self._explain(choice, request.tokens, price)
        if choice.way == "sum up":
            return await self._summary.made() if self._summary else ()
        return () if choice.way == "let go" else await self._keep(choice.way, request, now)

    def _situation(self, request: Request, idle: float, time_left: float, price: Price) -> CacheSituation:
        frame, kept = request.frame, self._so_far(request.view)
        view = request.view
        replied = not kept.times and len(view) and view[-1].by == "model"  # no request has ended behind it
        now = (view.replied_at or 0.0) + idle
        offer = self._summary.offered(request, now) if self._summary else None
        freed, saved, costs, margin = offer or (0.0, 0.0, 0.0, 1.0)
        thinking = (frame.params.get("thinking") or {}).get("budget_tokens") or 0
        return CacheSituation(
            tokens=request.tokens,
            idle=idle,
            expires=idle + time_left,
            life=kept.life(frame),
            gaps=self._parts.idle_gaps().with_prior(),
            read=price.read,
            write=price.write_1h if frame.ttl == "1h" else price.write_5m,
            write_hour=price.write_1h,
            output=price.units(Usage(output=1)),
            answer=1 + int(thinking),
            fresh=view.calibration.tokens(view[-1].size) if replied else 0,
            left=max(0, self._parts.settings.micro.keep_warm - kept.times),
            freed=freed,
            saved=saved,
            price=costs,
            margin=margin,
        )

    async def _keep(self, way: Way, request: Request, now: float) -> Sequence[Change]:
        before, asked = self._so_far(request.view), way == "an hour"
        sent = replace(request, frame=replace(request.frame, ttl="1h")) if asked else request
        send = self._parts.keep_warm
        reply = await send(sent) if send else None
        if reply is None:
            return ()
        hour = before.hour or (asked and reply.usage.cache_write_1h > 0)
        kept = CacheRefresh(request.view.replied_at or 0.0, before.times + 1, 0.0, hour)
        self._kept = replace(kept, until=now + kept.life(request.frame))
        return (Mark(KEPT_WARM, msgspec.to_builtins(self._kept)),)

    def _so_far(self, view: View) -> CacheRefresh:
        """The requests of this silence, also those by a process that is gone."""
        try:
            marked = msgspec.convert(view.marks.get(KEPT_WARM), CacheRefresh)
        except msgspec.ValidationError:
            marked = CacheRefresh()
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
        self._parts.emit(Progress("pre-cold", said, done=True))


class CacheRefresh(msgspec.Struct, frozen=True):
    """The requests that kept the cache warm during one silence."""

    since: float = -1.0  # The time of the reply that this silence follows
    times: int = 0
    until: float = 0.0
    hour: bool = False

    def life(self, frame: Frame) -> float:
        return HOUR if self.hour else TTL_SECONDS[frame.ttl]


_check: Callable[..., IdleStep] = CacheExpiry
