"""The ledger: what every request did to the provider's cache, and what broke it.

Before each request it says what the request is about to lose, and at what price; after each reply it
compares what was read with what should have been. A break that was announced is expected; one that was
not is explained by what changed, else by time, else by the server.

Until when the provider keeps the main conversation's prefix: what every request does to its life.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prefix import PrefixDiagnosis, SentRequest, diagnose_prefix
from sevenfold.cache.prices import MILLION, Price, Prices
from sevenfold.core.events import CacheBroke, Emit, Sending
from sevenfold.core.protocols import Accounts, Clock
from sevenfold.core.request import TTL_SECONDS, Frame, Request, Ttl
from sevenfold.core.tokens import REFERENCE_WINDOW, Usage, scale_constant
from sevenfold.core.transcript import Edit, Reply, Transcript, View

MAIN_WARMTH: Final = "main"
READ: Final = 0.95
"""A request that reads less than this share of what was kept has not used it as a whole."""


class CacheWarmth:
    """What is known of the provider's cache for one conversation."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._frame: Frame | None = None
        self._cached = 0
        self._until = 0.0

    def recall(self, frame: Frame, at: float, cached: int) -> None:
        """After a resume: when the conversation was last sent, and how much of it was kept."""
        self._keep(frame, at, cached)

    def begin(self, source: str, now: float) -> None:
        """A request of this source goes out: lives are counted from here, not from the reply."""
        self._began[source] = now

    def used(self, request: Request, usage: Usage, now: float) -> None:
        """A request was answered."""
        began = self._began.pop(request.source, now)
        if request.source == MAIN_WARMTH:
            self._keep(request.frame, began, usage.cache_read + usage.cache_write)
        elif self._same(request.frame) and usage.cache_read >= READ * self._cached > 0:
            life = TTL_SECONDS[request.frame.ttl if usage.cache_write_1h else self._ttl]
            self._until = max(self._until, began + life)

    def until(self, frame: Frame) -> float | None:
        """Until when the prefix of this frame is kept; None when nothing of it is."""
        return self._until if self._cached and self._same(frame) else None

    def _keep(self, frame: Frame, at: float, cached: int) -> None:
        """As a whole it lives as long as its end, which is marked as the frame says."""
        self._frame, self._cached = frame, cached
        self._until = at + TTL_SECONDS[frame.ttl]

    @property
    def _ttl(self) -> Ttl:
        return self._frame.ttl if self._frame else "5m"

    def _same(self, frame: Frame) -> bool:
        known = self._frame
        return known is frame or (known is not None and replace(frame, ttl=known.ttl) == known)


BROKEN_BELOW: Final = 0.95
"""Reading less than this share of what was cached is a break ..."""
BROKEN_BY: Final = 2_000
"""... if it is also at least this many tokens less; fewer in a window below 200,000."""
MAIN: Final = "main"
FORK, PLAIN, OF = "fork:", "-plain", "@"
"""How the source of a fork begins, how it ends when it does not share the prefix, and whose it is."""


class LedgerLine(msgspec.Struct, frozen=True):
    """One request and its reply, in numbers."""

    at: float
    source: str
    model: str
    usage: Usage
    cost: float | None
    broke: str = ""


class SourceAccount(msgspec.Struct, frozen=True):
    """What a source has used so far."""

    requests: int = 0
    usage: Usage = Usage()
    cost: float = 0.0
    breaks: int = 0

    def plus(self, line: LedgerLine) -> SourceAccount:
        return SourceAccount(
            self.requests + 1,
            self.usage + line.usage,
            self.cost + (line.cost or 0.0),
            self.breaks + bool(line.broke),
        )


class Ledger:
    """Watches the cache of one session, a column for each source (main, forks, agents)."""

    def __init__(self, prices: Prices, clock: Clock, emit: Emit) -> None:
        self.prices, self._clock, self._emit = prices, clock, emit
        self.warmth = CacheWarmth()
        self.window = REFERENCE_WINDOW
        """Of the model of the moment."""
        self._last: dict[str, SentRequest] = {}
        self._expected: dict[str, str] = {}
        self._found: dict[str, PrefixDiagnosis] = {}
        self._against: dict[str, SentRequest | None] = {}
        """What each request was compared with when it went out: replies may come in another order."""
        self.lines: list[LedgerLine] = []
        self.accounts: dict[str, SourceAccount] = {}

    @property
    def total(self) -> SourceAccount:
        whole = SourceAccount()
        for account in self.accounts.values():
            whole = SourceAccount(
                whole.requests + account.requests,
                whole.usage + account.usage,
                whole.cost + account.cost,
                whole.breaks + account.breaks,
            )
        return whole

    def expect(self, why: str, source: str = MAIN) -> None:
        """A layer says that the next request of this source breaks the prefix on purpose."""
        self._expected[source] = why

    def forget(self, source: str) -> None:
        """Another conversation begins under this name: what the last one sent is no measure for it."""
        self._last.pop(source, None)

    def recall(self, frame: Frame, transcript: Transcript) -> None:
        """After a resume: what the conversation last sent, so that the next request is compared."""
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
        source, last, now = request.source, self._compared(request.source), self._clock.now()
        kept = self.warmth.until(request.frame)  # also by requests beside the conversation
        found = diagnose_prefix(last, request, now, kept) if last else PrefixDiagnosis(0, 0)
        self.warmth.begin(source, now)
        self._found[source], self._against[source] = found, last
        expected = self._expected.get(source, "")
        fixed = request.frame.tokens if request.view.reported is None else 0
        tokens = request.view.tokens + fixed
        left = max(0, tokens - found.shared)  # what has left the view is not sent again
        lost = min(found.lost, left)
        cost = self._loss(request.frame, lost, _for_an_hour(request.frame, lost, found.shared))
        why = expected or found.why
        known = bool(expected) or last is None
        self._emit(Sending(source, tokens, found.shared, lost, why, cost, known))

    def after(self, request: Request, reply: Reply) -> float | None:
        usage, source = reply.usage, request.source
        price = self._price(reply.model or request.frame.model)
        cost = price.cost(usage) if price else None
        broke = self._broke(request, reply) if usage.total else ""
        line = LedgerLine(self._clock.now(), source, request.frame.model, usage, cost, broke)
        self.lines.append(line)
        self.accounts[source] = self.accounts.get(source, SourceAccount()).plus(line)
        if usage.total:
            cached = usage.cache_read + usage.cache_write
            self._last[source] = SentRequest(request.frame, request.view, line.at, cached)
            self.warmth.used(request, usage, line.at)
            self._expected.pop(source, None)
        return cost

    def _compared(self, source: str) -> SentRequest | None:
        """A fork lives on the prefix of the conversation; what is asked plainly has one of its own."""
        on_prefix = source.startswith(FORK) and not source.endswith(PLAIN)
        parent = source.partition(OF)[2] or MAIN
        return self._last.get(parent if on_prefix else source)

    def _broke(self, request: Request, reply: Reply) -> str:
        usage = reply.usage
        last, found = self._against.get(request.source), self._found.get(request.source)
        if last is None or not last.cached:
            return ""
        cached = last.cached - _deleted(last.view, request.view)
        if found is not None and request.source.startswith(FORK):
            cached = min(cached, found.shared)  # it may have left before all of it was sent
        missing = cached - usage.cache_read
        if usage.cache_read >= BROKEN_BELOW * cached or missing < scale_constant(BROKEN_BY, self.window):
            return ""
        expected = self._expected.get(request.source, "")
        why = expected or (found.why if found else "") or _told(reply)
        cost = self._loss(request.frame, missing, min(missing, usage.cache_write_1h))
        self._emit(CacheBroke(request.source, cached, usage.cache_read, why, cost, bool(expected)))
        return why

    def _loss(self, frame: Frame, tokens: int, hour: int) -> float:
        """What writing these tokens to the cache again costs over reading them; some for an hour."""
        price = self._price(frame.model)
        if price is None:
            return 0.0
        written = hour * price.write_1h + (tokens - hour) * price.write_5m
        return (written - tokens * price.read) * price.input / MILLION

    def _price(self, model: str) -> Price | None:
        return self.prices.of(model)


def _for_an_hour(frame: Frame, lost: int, shared: int) -> int:
    """Of what is lost, what would be kept for an hour again."""
    if frame.ttl == "1h":
        return lost
    return min(lost, max(0, frame.tokens - shared)) if frame.head_ttl == "1h" else 0


def _deleted(before: View, now: View) -> int:
    """Tokens that new pins deleted from the cache: they are not read any more, and not missed."""
    return sum(pin.frees for pin in now.pins[len(before.pins) :])


def _told(reply: Reply) -> str:
    """Nothing changed here: what the provider says about it, where it says anything."""
    reason = reply.diagnostics.get("cache_miss_reason")
    kind = reason.get("type") if isinstance(reason, dict) else None
    if kind:
        return f"the provider says {kind}, and nothing changed here"
    return "the server dropped it, nothing changed here"


_check: type[Accounts] = Ledger
