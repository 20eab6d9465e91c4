"""Every request the simulator answered, with what the cache did and what it would have cost.

Rows are kept, bodies are not. Of each source only the last prompt's hashes stay, to say how much of it
the next request still shares and where the two part.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

import msgspec

from sevenfold.cache.prices import Price
from sevenfold.core.tokens import Usage
from sevenfold.simulator.cache import CachedPrompt
from sevenfold.simulator.errors import Json

KEPT_ROWS: Final = 100_000
KEPT_SOURCES: Final = 256


class TokenCounts(msgspec.Struct, frozen=True):
    input: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    cache_read: int = 0
    output: int = 0

    @classmethod
    def of(cls, usage: Usage) -> TokenCounts:
        short = usage.cache_write - usage.cache_write_1h
        return cls(usage.input, short, usage.cache_write_1h, usage.cache_read, usage.output)

    def __add__(self, other: TokenCounts) -> TokenCounts:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return TokenCounts(*(a + b for a, b in pairs))

    @property
    def hit_rate(self) -> float:
        """The part of the prompt that came from the cache."""
        prompt = self.input + self.cache_write_5m + self.cache_write_1h + self.cache_read
        return self.cache_read / prompt if prompt else 0.0


class SharedPrefix(msgspec.Struct, frozen=True):
    """The prefix that this request shares with the one before it from the same source."""

    blocks: int = 0
    tokens: int = 0
    of_blocks: int = 0
    """The number of blocks of the one before: if fewer are shared, its prefix was changed."""
    diverged: str | None = None
    """The first block of this request that differs from the one before, where it had one there; before
    that the model, if it is another."""


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True):
    n: int
    id: str
    at: float
    received_bytes: int = 0  # The body of the request as it came over the wire
    endpoint: str
    model: str
    source: str
    stream: bool
    status: int
    error: str | None = None
    message_id: str | None = None
    thread: str | None = None  # "create" or "continue"
    blocks: int = 0
    breakpoints: int = 0
    tokens: TokenCounts = TokenCounts()
    hit_rate: float = 0.0
    shared: SharedPrefix | None = None
    cost: float | None = None
    currency: str | None = None
    units: float | None = None
    stop_reason: str | None = None
    applied_edits: list[Json] = []
    fault: str | None = None  # The script's fault in the answer: slow, cut, malformed or hang


class LedgerTotal(msgspec.Struct, frozen=True, kw_only=True):
    requests: int = 0
    errors: int = 0
    received_bytes: int = 0
    tokens: TokenCounts = TokenCounts()
    hit_rate: float = 0.0
    cost: float = 0.0
    currency: str | None = None
    units: float = 0.0
    unpriced: int = 0  # Requests to models the price table does not know; they are in no cost


class SimulatorLedger:
    """The rows, the totals over all of them, and the last prompt of each source."""

    def __init__(self) -> None:
        self.rows: deque[LedgerRow] = deque(maxlen=KEPT_ROWS)
        self.total = LedgerTotal()
        self._last: OrderedDict[str, CachedPrompt] = OrderedDict()

    def __len__(self) -> int:
        return self.total.requests

    def __getitem__(self, index: int) -> LedgerRow:
        return self.rows[index]

    def add(self, row: LedgerRow) -> None:
        self.rows.append(row)
        was, tokens = self.total, self.total.tokens + row.tokens
        self.total = LedgerTotal(
            requests=was.requests + 1,
            errors=was.errors + (row.status >= 400),
            received_bytes=was.received_bytes + row.received_bytes,
            tokens=tokens,
            hit_rate=tokens.hit_rate,
            cost=was.cost + (row.cost or 0.0),
            currency=was.currency or row.currency,
            units=was.units + (row.units or 0.0),
            unpriced=was.unpriced + (row.cost is None and row.status < 400),
        )

    def compare(self, source: str, prompt: CachedPrompt) -> SharedPrefix | None:
        """The prefix shared with the source's last prompt; this prompt becomes the last one."""
        before = self._last.pop(source, None)
        self._last[source] = prompt
        if len(self._last) > KEPT_SOURCES:
            self._last.popitem(last=False)
        return None if before is None else compare_prompts(prompt, before)

    def as_json(self) -> Json:
        rows = msgspec.to_builtins(list(self.rows))
        return {"requests": rows, "total": msgspec.to_builtins(self.total)}


def compare_prompts(prompt: CachedPrompt, before: CachedPrompt) -> SharedPrefix:
    blocks = prompt.shared(before)
    diverged = None
    if blocks < len(before):
        diverged = _parting(prompt, before, blocks)
    if prompt.model != before.model:  # each model has its own cache, so this alone loses everything
        changed = f"model ({before.model} -> {prompt.model})"
        diverged = f"{changed}; {diverged}" if diverged else changed
    return SharedPrefix(blocks, prompt.before(blocks), len(before), diverged)


def _parting(prompt: CachedPrompt, before: CachedPrompt, at: int) -> str:
    if at == len(prompt):
        return f"the end: {before.describe(at)} is gone"
    if at == prompt.system_end == before.system_end:
        for key, value in prompt.settings.items():
            if before.settings.get(key) != value:
                return f"{prompt.describe(at)} ({key} changed)"
    return prompt.describe(at)


def make_price_fields(price: Price | None, usage: Usage) -> Json:
    """The fields of a row that say what it cost; nothing where the model has no price."""
    if price is None:
        return {}
    return {"cost": price.cost(usage), "currency": price.currency, "units": price.units(usage)}
