"""Keeps the books while a session is driven again: rows, breaks, and what each layer saved and cost.

What a layer saved is worked out request by request: the tokens it has taken out of the view and that are
still out would have been read from the cache, or written to it where the cache was lost. What the recording
itself compacted later would have gone anyway and is saved no longer. Against that stand the breaks that the
layer made, its own requests, and reading back what it took.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from sevenfold.cache.prices import Price
from sevenfold.replay.absence import Lost
from sevenfold.replay.needs import Missed
from sevenfold.replay.outcome import (
    BESIDE,
    Break,
    Compaction,
    Happened,
    Kind,
    Outcome,
    Regret,
    Row,
    Share,
    Spent,
)
from sevenfold.request import TTL_SECONDS, Ttl
from sevenfold.tokens import Usage

TOOL_RESULTS, MICRO, NOTES, COMPACTION = (
    "tool results",
    "microcompaction",
    "session memory",
    "compaction",
)
READ_BACK, KEEP_WARM, RECORDING = "read back", "keep warm", "recording"
EXTRACTION: Final = "extraction"
WHO: Final[dict[Kind, str]] = {
    "keep warm": KEEP_WARM,
    "notes": NOTES,
    "summary": COMPACTION,
    "extraction": EXTRACTION,
}
NOTICED: Final = 2_000
"""Tokens paid again below which nobody speaks of a break."""
SHARE: Final = 0.95
"""Nor when so much of the request before was found in the cache."""


class Tally:
    """The books of one session."""

    def __init__(self, price: Price, ttl: Ttl) -> None:
        self._price, self._ttl = price, ttl
        self.rows: list[Row] = []
        self.breaks: list[Break] = []
        self.compactions: list[Compaction] = []
        self._waiting: list[Happened] = []
        self._why = ""
        self._last: Row | None = None
        self._replied = 0.0
        """When the last reply had ended: silence begins there."""
        self._warmed: float | None = None
        """When the cache was last kept warm since then, and by whom."""
        self._warmer = KEEP_WARM
        self._spared: dict[str, float] = defaultdict(float)
        self._saved: dict[str, float] = defaultdict(float)
        self._cost: dict[str, float] = defaultdict(float)
        self._removed: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._regret = Regret()

    # --- what layers do ---------------------------------------------------------------------------------

    def happened(self, layer: str, what: str, tokens: int = 0, why: str = "") -> None:
        """Something was done before the next request. `why`: it breaks the prefix, in a word."""
        self._waiting.append(Happened(layer, what, tokens))
        self._spared[layer] += tokens
        if why:
            self._why = f"{layer}: {why}"

    def removed(self, lost: Iterable[Lost]) -> None:
        """What left the view and could be asked for again."""
        for one in lost:
            self._removed[one.layer][0] += 1
            tokens = self._regret.removed_tokens + one.tokens
            self._regret = replace(
                self._regret, removed=self._regret.removed + 1, removed_tokens=tokens
            )

    def needed(self, missed: Missed, lost: Lost) -> None:
        self._removed[lost.layer][1] += 1
        self._spared[lost.layer] -= lost.tokens
        known = self._regret
        self._regret = replace(
            known,
            needed=known.needed + 1,
            robust=known.robust + missed.robust,
            needed_tokens=known.needed_tokens + lost.tokens,
        )
        self._waiting.append(Happened(READ_BACK, f"needed again: {missed.use_id}", -lost.tokens))

    def compacted(self, by: str, before: int, after: int, fidelity: float | None = None) -> None:
        self.compactions.append(Compaction(len(self.rows), by, before, after, fidelity))

    def recording_compacted(self, freed: int) -> None:
        """So much would have left the view now without us."""
        spared = sum(max(0.0, tokens) for tokens in self._spared.values())
        left = max(0.0, 1 - freed / spared) if spared else 0.0
        for layer, tokens in self._spared.items():
            self._spared[layer] = tokens * left if tokens > 0 else tokens

    # --- requests ---------------------------------------------------------------------------------------

    def asked(
        self,
        kind: Kind,
        at: float,
        usage: Usage,
        recorded: Usage | None = None,
        blame: str = "",
        model: str = "",
    ) -> None:
        """A request was answered. `blame`: the layer on whose account one goes that reads back."""
        row = Row(at, kind, usage, recorded or Usage(), tuple(self._waiting), model)
        self._waiting.clear()
        whose = WHO.get(kind, blame)
        if kind not in BESIDE:
            self._count_break(row)
            self._count_savings(row)
            self._last = row
            self.answered(row.at)
        elif kind in ("keep warm", "extraction"):
            self._warmed, self._warmer = row.at, whose
        if whose:
            self._cost[whose] += self._price.units(usage)
        self.rows.append(row)

    def answered(self, at: float) -> None:
        """The reply to the last request of the conversation ended then."""
        self._replied, self._warmed = at, None

    def _count_break(self, row: Row) -> None:
        last, why, self._why = self._last, self._why, ""
        if last is None:
            return
        should = min(last.context, row.context)
        again = should - row.usage.cache_read
        life, warmed = TTL_SECONDS[self._ttl], self._warmed
        silent = row.at - (warmed or self._replied) > life
        kept = warmed is not None and row.at - self._replied > life
        if kept and not silent and not again > NOTICED:
            self._saved[self._warmer] += should * self._lost_price
        if again < NOTICED or row.usage.cache_read >= SHARE * should:
            return
        reason = "silence" if silent else why or "the prefix changed"
        self.breaks.append(Break(len(self.rows), again, reason))
        if why and not silent:
            self._cost[why.partition(":")[0]] += again * self._lost_price

    @property
    def _lost_price(self) -> float:
        write = self._price.write_1h if self._ttl == "1h" else self._price.write_5m
        return write - self._price.read

    def _count_savings(self, row: Row) -> None:
        """What is out of the view was neither read nor, after a loss, written."""
        used = row.usage
        kept = used.cache_read / used.prompt if used.prompt else 1.0
        rate = self._price.read + (1 - kept) * self._lost_price
        for layer, tokens in self._spared.items():
            self._saved[layer] += tokens * rate

    # --- in the end -------------------------------------------------------------------------------------

    def outcome(self, spent: Spent) -> Outcome:
        layers = {*self._saved, *self._cost}
        by_layer = {name: (n, again) for name, (n, again) in sorted(self._removed.items())}
        return Outcome(
            tuple(self.rows),
            tuple(self.breaks),
            replace(self._regret, by_layer=by_layer),
            tuple(self.compactions),
            {name: Share(self._saved[name], self._cost[name]) for name in sorted(layers)},
            spent,
        )
