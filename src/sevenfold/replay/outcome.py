"""What came of driving a recorded session again: every request, every break, every loss, as values.

Prices are in base-price input tokens: what one plain input token costs is 1. `Price.units` of a usage gives
them, `Price.cost` the currency.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from sevenfold.core.tokens import Usage

Kind: TypeAlias = Literal["turn", "read back", "keep warm", "notes", "summary", "extraction"]
"""What a request was for: the session itself, reading again what was gone, or a layer beside it."""
BESIDE: tuple[Kind, ...] = ("keep warm", "notes", "summary", "extraction")
"""Requests that go beside the conversation."""


class LayerAction(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something a layer did before a request, or that the recording did."""

    layer: str
    """tool results, microcompaction, session memory, compaction, read back, keep warm or recording."""
    what: str
    """In a few words."""
    tokens: int = 0
    """That left the view (or came back to it, below nothing), in the provider's own count."""


class RequestRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request: when, for what, and what the provider would have counted."""

    at: float
    kind: Kind
    usage: Usage
    recorded: Usage = Usage()
    """What was counted then; nothing for a request that there was not."""
    happened: tuple[LayerAction, ...] = ()
    model: str = ""
    """Who answered then, where the recording says so."""

    @property
    def context(self) -> int:
        return self.usage.prompt


class CacheBreak(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request that had to pay again for what had been sent before."""

    request: int
    """Its place among the rows."""
    tokens: int
    """Paid again."""
    why: str
    """silence, cleared, compacted, stored or another word for what changed."""


class ReplayRegret(msgspec.Struct, frozen=True, omit_defaults=True):
    """What left the view, and what of it was needed after all."""

    removed: int = 0
    """Tool results (and other things that can be asked for again) that left the view."""
    removed_tokens: int = 0
    needed: int = 0
    """Of these, needed by a later reply: an edited line or a rare word stood nowhere else."""
    robust: int = 0
    """Of these, beyond doubt: an edited line, or two rare words."""
    needed_tokens: int = 0
    by_layer: dict[str, tuple[int, int]] = {}
    """Of each layer: how many things it took away, and how many of them were needed."""

    def __add__(self, other: ReplayRegret) -> ReplayRegret:
        layers = {*self.by_layer, *other.by_layer}
        pairs = {n: (self.by_layer.get(n, (0, 0)), other.by_layer.get(n, (0, 0))) for n in layers}
        return ReplayRegret(
            self.removed + other.removed,
            self.removed_tokens + other.removed_tokens,
            self.needed + other.needed,
            self.robust + other.robust,
            self.needed_tokens + other.needed_tokens,
            {name: (a[0] + b[0], a[1] + b[1]) for name, (a, b) in sorted(pairs.items())},
        )

    @property
    def share(self) -> float:
        return self.needed / self.removed if self.removed else 0.0

    @property
    def robust_share(self) -> float:
        return self.robust / self.removed if self.removed else 0.0

    @property
    def token_share(self) -> float:
        return self.needed_tokens / self.removed_tokens if self.removed_tokens else 0.0


class ReplayCompaction(msgspec.Struct, frozen=True, omit_defaults=True):
    """The older part of the view was replaced."""

    request: int
    """The place among the rows of the first request after it."""
    by: str
    """notes, summary, digest, or recorded."""
    tokens_before: int
    tokens_after: int
    fidelity: float | None = None
    """The share of what was said that can still be found; None where it was not measured."""


class LayerShare(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one layer saved and what it cost, in base-price input tokens."""

    saved: float = 0.0
    """What its removals would have cost to carry, request by request."""
    cost: float = 0.0
    """Breaks it made, requests it made beside the conversation, and reading back what it took away."""

    def __add__(self, other: LayerShare) -> LayerShare:
        return LayerShare(self.saved + other.saved, self.cost + other.cost)


class TimeSpent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Seconds of our own: reading the file is added by whoever read it."""

    parsing: float = 0.0
    tracing: float = 0.0
    """Finding out what each reply needed."""
    layers: float = 0.0
    asking: float = 0.0
    """Writing notes and summaries by rule in place of a model."""
    simulator: float = 0.0
    other: float = 0.0

    def __add__(self, other: TimeSpent) -> TimeSpent:
        return TimeSpent(
            self.parsing + other.parsing,
            self.tracing + other.tracing,
            self.layers + other.layers,
            self.asking + other.asking,
            self.simulator + other.simulator,
            self.other + other.other,
        )

    @property
    def total(self) -> float:
        return self.parsing + self.tracing + self.layers + self.asking + self.simulator + self.other


class ReplayOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """One session under one policy."""

    rows: tuple[RequestRow, ...] = ()
    breaks: tuple[CacheBreak, ...] = ()
    regret: ReplayRegret = ReplayRegret()
    compactions: tuple[ReplayCompaction, ...] = ()
    layers: dict[str, LayerShare] = {}
    """By the names that `LayerAction.layer` has."""
    spent: TimeSpent = TimeSpent()

    @property
    def turns(self) -> int:
        """The session's own requests, as many as were recorded."""
        return self.count("turn")

    @property
    def extra_requests(self) -> int:
        """Made only to read back what was gone."""
        return self.count("read back")

    @property
    def extra_per_100(self) -> float:
        return 100 * self.extra_requests / self.turns if self.turns else 0.0

    @property
    def usage(self) -> Usage:
        """Of all requests. The output of the session's own replies is in it."""
        return sum_usage(row.usage for row in self.rows)

    @property
    def charged(self) -> Usage:
        """What a policy can change: all input, and the output of requests that the session did not make
        itself. Compare it with `paid`.
        """
        own = sum(row.usage.output for row in self.rows if row.kind == "turn")
        used = self.usage
        return msgspec.structs.replace(used, output=used.output - own)

    @property
    def paid(self) -> Usage:
        """What was really counted for input then, where the recording says so."""
        used = sum_usage(row.recorded for row in self.rows)
        return msgspec.structs.replace(used, output=0)

    @property
    def context(self) -> int:
        """Tokens sent by the session's own requests and those that read back, summed up."""
        return sum(row.context for row in self.rows if row.kind not in BESIDE)

    @property
    def hit_rate(self) -> float:
        return self.usage.hit_rate

    @property
    def errors(self) -> list[float]:
        """By how much our count of each request differs from the recorded one, up to the first compaction
        or until the recording left something out by itself. It says how good the accounts are when nothing
        was changed: for append-only.
        """
        end = self.compactions[0].request if self.compactions else len(self.rows)
        own = (n for n, row in enumerate(self.rows) if any(h.layer == "recording" for h in row.happened))
        end = min(end, next(own, end))
        known = [row for row in self.rows[:end] if row.recorded.prompt]
        return [abs(row.context - row.recorded.prompt) / row.recorded.prompt for row in known]

    def count(self, kind: Kind) -> int:
        return sum(row.kind == kind for row in self.rows)


def sum_usage(usages: Iterable[Usage]) -> Usage:
    return sum(usages, Usage())
