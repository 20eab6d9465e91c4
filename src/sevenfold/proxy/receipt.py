"""The receipt: what was sent, what would have been, why the cache broke, and the time added."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from sevenfold.cache.prices import Prices
from sevenfold.core.tokens import Usage

MOST_ROWS: Final = 1_000  # Requests that are listed one by one; all count in the sums
MOST_BREAKS: Final = 100


class ReceiptRow(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a client. It holds no word of what was said."""

    at: float
    conversation: str
    model: str
    status: int
    received: int  # Bytes of the client's body
    sent: int  # Bytes of the body that went to the provider
    shortened: bool = False  # Not all that the client has said went out
    usage: Usage = Usage()
    direct: Usage = Usage()  # The same without the proxy, simulated
    cost: float | None = None
    direct_cost: float | None = None
    overfull: bool = False  # The client's own request would not have fit the window
    milliseconds: float = 0.0  # Time that the proxy added before it sent
    acts: tuple[str, ...] = ()
    broke: str = ""  # Why the provider read less from its cache than it had
    explained: bool = True  # False: nothing on our side or the client's explains the break
    passed: str = ""  # Why the client's own bytes went through, if not because nothing was to do


class ReceiptBreak(msgspec.Struct, frozen=True):
    """A request whose prefix the provider did not find in its cache as it should have."""

    at: float
    conversation: str
    why: str
    explained: bool


class ReceiptTotals(msgspec.Struct, kw_only=True):
    """All requests so far, added up."""

    requests: int = 0
    shortened: int = 0
    passed: int = 0  # Because of a trouble of ours
    failed: int = 0  # Answered with an error, or not at all
    received: int = 0
    sent: int = 0
    usage: Usage = Usage()
    direct: Usage = Usage()
    cost: float = 0.0
    direct_cost: float = 0.0
    overfull: int = 0  # Requests before which the client alone would have had to compact
    unpriced: int = 0  # Requests with a usage and without a known price
    breaks: int = 0
    unexplained: int = 0
    milliseconds: float = 0.0

    def add(self, row: ReceiptRow) -> None:
        self.requests += 1
        self.shortened += row.shortened
        self.passed += bool(row.passed)
        self.failed += not 200 <= row.status < 300
        self.received += row.received
        self.sent += row.sent
        self.usage += row.usage
        self.direct += row.direct
        self.cost += row.cost or 0.0
        self.direct_cost += row.direct_cost or 0.0
        self.overfull += row.overfull
        self.unpriced += bool(row.usage.total) and row.cost is None
        self.breaks += bool(row.broke)
        self.unexplained += bool(row.broke) and not row.explained
        self.milliseconds += row.milliseconds


class Receipt:
    """Keeps the rows of one proxy and their sums."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self.rows: deque[ReceiptRow] = deque(maxlen=MOST_ROWS)
        self.breaks: deque[ReceiptBreak] = deque(maxlen=MOST_BREAKS)
        self.totals = ReceiptTotals()

    def add(self, row: ReceiptRow) -> None:
        price = self._prices.of(row.model)
        if price is not None and row.usage.total:
            row = msgspec.structs.replace(
                row, cost=price.cost(row.usage), direct_cost=price.cost(row.direct)
            )
        self.rows.append(row)
        self.totals.add(row)
        if row.broke:
            self.breaks.append(ReceiptBreak(row.at, row.conversation, row.broke, row.explained))

    def as_json(self) -> dict[str, object]:
        """The receipt for programs: sums, breaks and the newest rows."""
        return {
            "totals": {**msgspec.to_builtins(self.totals), "median_milliseconds": self._quantile(0.5)},
            "breaks": msgspec.to_builtins(list(self.breaks)),
            "rows": msgspec.to_builtins(list(self.rows)),
        }

    def _quantile(self, share: float) -> float:
        times = sorted(row.milliseconds for row in self.rows)
        return times[int(share * (len(times) - 1))] if times else 0.0

    def describe(self) -> str:
        """The receipt in one line."""
        t = self.totals
        if not t.requests:
            return "no request went through the proxy"
        parts = [
            f"{t.requests:,} request{'s' if t.requests != 1 else ''}",
            f"sent {_format_megabytes(t.sent)} instead of {_format_megabytes(t.received)}",
            self._describe_cost(),
            f"{t.breaks} cache break{'s' if t.breaks != 1 else ''}, {t.unexplained} unexplained",
            f"{self._quantile(0.5):.1f} ms added (median)",
        ]
        return "; ".join(part for part in parts if part)

    def _describe_cost(self) -> str:
        t = self.totals
        if not t.direct_cost:
            return "no price known" if t.unpriced else ""
        share = t.cost / t.direct_cost - 1
        instead = f"${t.cost:.4f} instead of ${t.direct_cost:.4f} ({share:+.1%}, simulated"
        if t.overfull:  # its compaction, and the shorter requests after it, are in no figure of ours
            instead += f"; {t.overfull} would not have fit, so alone the client compacts and pays less"
        return f"{instead})"

    def describe_whole(self) -> str:
        """The receipt with every break and what the layers did."""
        t = self.totals
        lines = [
            self.describe(),
            f"tokens sent: {_describe_usage(t.usage)}",
            f"tokens without the proxy (simulated): {_describe_usage(t.direct)}",
            f"requests shortened: {t.shortened}; passed through after a trouble: {t.passed}; "
            f"answered with an error: {t.failed}; slowest: {self._quantile(1.0):.1f} ms added",
        ]
        lines += [f"layer: {act}" for act in _list_acts(self.rows)]
        lines += [
            f"cache break in {b.conversation}: {b.why}{'' if b.explained else ' (unexplained)'}"
            for b in self.breaks
        ]
        return "\n".join(lines)


def _list_acts(rows: Sequence[ReceiptRow] | deque[ReceiptRow]) -> list[str]:
    return [act for row in rows for act in row.acts]


def _describe_usage(usage: Usage) -> str:
    return (
        f"{usage.input:,} new, {usage.cache_write:,} written to the cache, {usage.cache_read:,} read from "
        f"it, {usage.output:,} out"
    )


def _format_megabytes(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB" if size >= 100_000 else f"{size / 1_000:.1f} kB"
