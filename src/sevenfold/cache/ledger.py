"""The ledger: the effect of every request on the provider's cache, and the causes of cache breaks.

Before each request it announces what the request will lose, and at what price; after each reply it
compares what was read with what should have been. A break that was announced is expected; another one is
explained by what changed, else by time, else by the server.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prefix import PrefixDiagnosis, SentRequest, diagnose_prefix
from sevenfold.cache.prices import MILLION, Prices
from sevenfold.core.events import CacheBroke, Emit, Sending
from sevenfold.core.protocols import Accounts, Clock
from sevenfold.core.request import TTL_SECONDS, Frame, Request, Ttl
from sevenfold.core.tokens import REFERENCE_WINDOW, Usage, scale_constant
from sevenfold.core.transcript import Edit, Reply, Transcript

MAIN: Final = "main"
READ: Final = 0.95  # A request that reads less than this share of the cached prefix has not used all of it


class CacheWarmth:
    """The lifetime of the main conversation's prefix in the provider's cache."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._frame: Frame | None = None
        self._cached = 0
        self._until = 0.0

    def recall(self, frame: Frame, at: float, cached: int) -> None:
        """Set, after a resume, the time of the last request and the tokens it cached."""
        self._keep(frame, at, cached)

    def begin(self, source: str, now: float) -> None:
        """Note that a request goes out: lifetimes are counted from here, not from the reply."""
        self._began[source] = now

    def record_usage(self, request: Request, usage: Usage, now: float) -> None:
        """Note the usage of an answered request."""
        began = self._began.pop(request.source, now)
        if request.source == MAIN:
            self._keep(request.frame, began, usage.cache_read + usage.cache_write)
        elif self._is_same_frame(request.frame) and usage.cache_read >= READ * self._cached > 0:
            life = TTL_SECONDS[request.frame.ttl if usage.cache_write_1h else self._ttl]
            self._until = max(self._until, began + life)

    def until(self, frame: Frame) -> float | None:
        """The time until which the prefix of this frame is cached; None if it is not."""
        return self._until if self._cached and self._is_same_frame(frame) else None

    def _keep(self, frame: Frame, at: float, cached: int) -> None:
        """The whole prefix lives as long as its end, which has the lifetime of the frame."""
        self._frame, self._cached = frame, cached
        self._until = at + TTL_SECONDS[frame.ttl]

    @property
    def _ttl(self) -> Ttl:
        return self._frame.ttl if self._frame else "5m"

    def _is_same_frame(self, frame: Frame) -> bool:
        known = self._frame
        return known is frame or (known is not None and replace(frame, ttl=known.ttl) == known)


BROKEN_BELOW: Final = 0.95  # Reading less than this share of what was cached is a break
BROKEN_BY: Final = 2_000
"""... if it is also at least this many tokens less; fewer in a window below 200,000."""
DELETED: Final = 1.25  # Deleted results may have had this many times their estimated tokens
SIDE: Final = "side:"
"""The first part of the source of a lean request: it shares a prefix with no other request."""
FORK, PLAIN, OF = "fork:", "-plain", "@"
"""Parts of a fork's source: its beginning, its end if it does not share the prefix, then its parent."""


class LedgerLine(msgspec.Struct, frozen=True):
    """One request and its reply, in numbers."""

    at: float
    source: str
    model: str
    usage: Usage
    cost: float | None
    broke: str = ""


class SourceAccount(msgspec.Struct, frozen=True):
    """The usage of a source so far."""

    requests: int = 0
    usage: Usage = Usage()
    cost: float = 0.0
    breaks: int = 0

    def __add__(self, other: SourceAccount) -> SourceAccount:
        return SourceAccount(
            self.requests + other.requests,
            self.usage + other.usage,
            self.cost + other.cost,
            self.breaks + other.breaks,
        )

    def add_line(self, line: LedgerLine) -> SourceAccount:
        return self + SourceAccount(1, line.usage, line.cost or 0.0, int(bool(line.broke)))


class Ledger:
    """Watches the cache of one session, with an account for each source (main, forks, agents)."""

    def __init__(self, prices: Prices, clock: Clock, emit: Emit) -> None:
        self.prices, self._clock, self._emit = prices, clock, emit
        self.warmth = CacheWarmth()
        self.window = REFERENCE_WINDOW  # The window of the current model
        self._last: dict[str, SentRequest] = {}
        self._expected: dict[str, str] = {}
        self._found: dict[str, PrefixDiagnosis] = {}
        self._against: dict[str, SentRequest | None] = {}
        """The request that each source was compared with: replies may come in another order."""
        self.lines: list[LedgerLine] = []
        self.accounts: dict[str, SourceAccount] = {}

    @property
    def total(self) -> SourceAccount:
        return sum(self.accounts.values(), SourceAccount())

    def expect(self, why: str, source: str = MAIN) -> None:
        """Announce that the next request of this source breaks the prefix on purpose."""
        self._expected[source] = why

    def forget(self, source: str) -> None:
        """Forget the last request of this source: another conversation begins under its name."""
        self._last.pop(source, None)

    def recall(self, frame: Frame, transcript: Transcript) -> None:
        """Set, after a resume, the last request of the transcript, to compare the next one with."""
        replies = (e for e in reversed(transcript.entries) if isinstance(e.what, Reply))
        last = next((e for e in replies if isinstance(e.what, Reply) and e.what.usage.total), None)
        if last is None or not isinstance(last.what, Reply):
            return
        usage = last.what.usage
        cached = usage.cache_read + usage.cache_write
        self._last[MAIN] = SentRequest(frame, transcript.view, last.at, cached)
        self.warmth.recall(frame, last.at, cached)
        since = (e for e in reversed(transcript.entries) if e.id > last.id)
        if any(isinstance(e.what, Edit) and e.by != "session" for e in since):
            self.expect("the view was changed before the session was resumed")

    def before(self, request: Request) -> None:
        source, last, now = request.source, self._find_last_sent(request.source), self._clock.now()
        kept = self.warmth.until(request.frame)  # requests beside the conversation count, too
        price = self.prices.of(request.frame.model)
        keeps = price is None or price.keeps_thinking
        found = (
            diagnose_prefix(last, request, now, kept, keeps_thinking=keeps)
            if last
            else PrefixDiagnosis(0, 0)
        )
        self.warmth.begin(source, now)
        self._found[source], self._against[source] = found, last
        expected = self._expected.get(source, "")
        fixed = request.frame.tokens if request.view.reported is None else 0
        tokens = request.view.tokens + fixed
        left = max(0, tokens - found.shared)  # removed parts are not sent again
        lost = min(found.lost, left)
        cost = self._price_loss(request.frame, lost, _count_hour_tokens(request.frame, lost, found.shared))
        why = expected or found.why
        known = bool(expected) or last is None or found.is_by_rule
        self._emit(Sending(source, tokens, found.shared, lost, why, cost, known))

    def after(self, request: Request, reply: Reply) -> float | None:
        usage, source = reply.usage, request.source
        price = self.prices.of(reply.model or request.frame.model)
        cost = price.cost(usage) if price else None
        broke = self._find_break(request, reply) if usage.total else ""
        line = LedgerLine(self._clock.now(), source, request.frame.model, usage, cost, broke)
        self.lines.append(line)
        self.accounts[source] = self.accounts.get(source, SourceAccount()).add_line(line)
        if usage.total:
            cached = usage.cache_read + usage.cache_write
            self._last[source] = SentRequest(request.frame, request.view, line.at, cached)
            self.warmth.record_usage(request, usage, line.at)
            self._expected.pop(source, None)
        return cost

    def _find_last_sent(self, source: str) -> SentRequest | None:
        """The last request with the same prefix: a fork shares its parent's, unless it is plain."""
        if source.startswith(SIDE):
            return None
        on_prefix = source.startswith(FORK) and not source.endswith(PLAIN)
        parent = source.partition(OF)[2] or MAIN
        return self._last.get(parent if on_prefix else source)

    def _find_break(self, request: Request, reply: Reply) -> str:
        usage = reply.usage
        last, found = self._against.get(request.source), self._found.get(request.source)
        if last is None or not last.cached:
            return ""
        deleted = sum(pin.frees for pin in request.view.pins[len(last.view.pins) :])
        cached = last.cached - int(DELETED * deleted)  # tokens that new pins deleted are not missed
        if found is not None and request.source.startswith(FORK):
            cached = min(cached, found.shared)  # it may have forked before all of it was sent
        missing = cached - usage.cache_read
        if usage.cache_read >= BROKEN_BELOW * cached or missing < scale_constant(BROKEN_BY, self.window):
            return ""
        expected = self._expected.get(request.source, "")
        why = expected or (found.why if found else "") or _explain_by_provider(reply)
        cost = self._price_loss(request.frame, missing, min(missing, usage.cache_write_1h))
        known = bool(expected) or (found is not None and found.is_by_rule)
        self._emit(CacheBroke(request.source, cached, usage.cache_read, why, cost, known))
        return why

    def _price_loss(self, frame: Frame, tokens: int, hour: int) -> float:
        """The extra cost of writing these tokens to the cache again, `hour` of them for an hour."""
        price = self.prices.of(frame.model)
        if price is None:
            return 0.0
        written = hour * price.write_1h + (tokens - hour) * price.write_5m
        return (written - tokens * price.read) * price.input / MILLION


def _count_hour_tokens(frame: Frame, lost: int, shared: int) -> int:
    """The lost tokens that would be cached for an hour again."""
    if frame.ttl == "1h":
        return lost
    return min(lost, max(0, frame.tokens - shared)) if frame.head_ttl == "1h" else 0


def _explain_by_provider(reply: Reply) -> str:
    """The reason for a break when nothing changed here, from the provider's diagnostics."""
    reason = reply.diagnostics.get("cache_miss_reason")
    kind = reason.get("type") if isinstance(reason, dict) else None
    if kind:
        return f"the provider says {kind}, and nothing changed here"
    return "the server dropped it, nothing changed here"


_check: type[Accounts] = Ledger
