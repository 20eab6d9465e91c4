"""The outcome of replaying a session: every request, every break, every loss, as values.

Prices are in base-price input tokens (`Price.units`): one plain input token costs 1.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, TypeVar

import msgspec

from sevenfold.core.tokens import Usage

Kind: TypeAlias = Literal["turn", "read back", "keep warm", "notes", "summary", "extraction"]
BESIDE: tuple[Kind, ...] = ("keep warm", "notes", "summary", "extraction")  # Not in the conversation
LARGE: Final = 150  # Tokens: half of what leaves a view is smaller, and costs next to nothing either way
Numbers = TypeVar("Numbers", bound=msgspec.Struct)


def add_fields(first: Numbers, second: Numbers) -> Numbers:
    """The sum of two values, field by field."""
    pairs = zip(msgspec.structs.astuple(first), msgspec.structs.astuple(second), strict=True)
    return type(first)(*(a + b for a, b in pairs))


class LayerAction(msgspec.Struct, frozen=True, omit_defaults=True):
    """An action of a layer, or of the recording, before a request."""

    layer: str  # A name of `bookkeeping`, such as "tool results"
    what: str  # In a few words
    tokens: int = 0  # Tokens that left the view (negative: came back to it), in the provider's own count


class RequestRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request, with the usage that the provider would have counted."""

    at: float
    kind: Kind
    usage: Usage
    recorded: Usage = Usage()  # The recorded usage; empty for a request that was not recorded
    happened: tuple[LayerAction, ...] = ()
    robust: bool = False  # Of a request that reads back: something of it was needed beyond doubt
    model: str = ""  # The model that answered, if the recording says so

    @property
    def context(self) -> int:
        return self.usage.prompt


class CacheBreak(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request that paid again for what had been sent before."""

    request: int  # Its index among the rows
    tokens: int  # Tokens paid again
    why: str  # silence, cleared, compacted, stored or another word for the cause


class ReplayRegret(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parts that left the view, and those of them that were needed later."""

    removed: int = 0  # Tool results, inputs of calls and thinking that left the view
    removed_tokens: int = 0
    needed: int = 0  # Of these, needed by a later reply: an edited line or a rare word stood nowhere else
    robust: int = 0  # Of these, beyond doubt: an edited line, or two rare words
    needed_tokens: int = 0
    large_removed: int = 0  # Of what left the view, tool results of at least `LARGE` tokens
    large_needed: int = 0  # Of these, needed beyond doubt
    by_layer: dict[str, tuple[int, int]] = {}  # The parts it removed, and those that were needed

    def __add__(self, other: ReplayRegret) -> ReplayRegret:
        layers = {*self.by_layer, *other.by_layer}
        pairs = {n: (self.by_layer.get(n, (0, 0)), other.by_layer.get(n, (0, 0))) for n in layers}
        return ReplayRegret(
            self.removed + other.removed,
            self.removed_tokens + other.removed_tokens,
            self.needed + other.needed,
            self.robust + other.robust,
            self.needed_tokens + other.needed_tokens,
            self.large_removed + other.large_removed,
            self.large_needed + other.large_needed,
            {name: (a[0] + b[0], a[1] + b[1]) for name, (a, b) in sorted(pairs.items())},
        )

    @property
    def share(self) -> float:
        return self.needed / self.removed if self.removed else 0.0

    @property
    def robust_share(self) -> float:
        return self.robust / self.removed if self.removed else 0.0

    @property
    def large_share(self) -> float | None:
        """Of the tool results that are worth removing, those that were needed beyond doubt."""
        return self.large_needed / self.large_removed if self.large_removed else None

    @property
    def token_share(self) -> float:
        return self.needed_tokens / self.removed_tokens if self.removed_tokens else 0.0


class ReplayCompaction(msgspec.Struct, frozen=True, omit_defaults=True):
    """The older part of the view was replaced."""

    request: int  # The index of the first request after it among the rows
    by: str  # notes, summary, digest; recorded, or recorded by rule
    tokens_before: int
    tokens_after: int
    fidelity: float | None = None  # The share of the facts that can still be found, if measured


class LayerShare(msgspec.Struct, frozen=True, omit_defaults=True):
    """Savings and costs of one layer, in base-price input tokens."""

    saved: float = 0.0  # The cost of carrying what it removed, request by request
    cost: float = 0.0  # Its cache breaks, its own requests, and reading back what it removed


class TimeSpent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Seconds of our own; `parsing` is added by the code that read the file."""

    parsing: float = 0.0
    tracing: float = 0.0  # Finding the needs of each reply
    layers: float = 0.0
    asking: float = 0.0  # Writing notes and summaries by rule in place of a model
    simulator: float = 0.0
    other: float = 0.0

    def __add__(self, other: TimeSpent) -> TimeSpent:
        return add_fields(self, other)

    @property
    def total(self) -> float:
        return self.parsing + self.tracing + self.layers + self.asking + self.simulator + self.other


class ReplayOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """One session under one policy."""

    rows: tuple[RequestRow, ...] = ()
    breaks: tuple[CacheBreak, ...] = ()
    regret: ReplayRegret = ReplayRegret()
    compactions: tuple[ReplayCompaction, ...] = ()
    layers: dict[str, LayerShare] = {}  # By the names in `LayerAction.layer`
    spent: TimeSpent = TimeSpent()
    recalled: float = 0.0  # What carrying recalled memories would cost, and ...
    dreamt: float = 0.0  # ... this session's share of a dream, in base-price input tokens. Beside the rest.

    @property
    def turns(self) -> int:
        """The session's own requests, as many as were recorded."""
        return self.count_requests("turn")

    @property
    def extra_requests(self) -> int:
        """Requests that only read back what was gone."""
        return self.count_requests("read back")

    @property
    def robust_requests(self) -> int:
        """Those of them that read back something needed beyond doubt."""
        return sum(row.robust for row in self.rows)

    @property
    def summaries(self) -> int:
        """Compactions for which a model was asked."""
        return self.count_requests("summary")

    @property
    def extra_per_100(self) -> float:
        return 100 * self.extra_requests / self.turns if self.turns else 0.0

    @property
    def usage(self) -> Usage:
        """The usage of all requests, with the output of the session's own replies."""
        return sum((row.usage for row in self.rows), Usage())

    @property
    def context(self) -> int:
        """Tokens sent by the session's own requests and those that read back."""
        return sum(row.context for row in self.rows if row.kind not in BESIDE)

    @property
    def hit_rate(self) -> float:
        return self.usage.hit_rate

    @property
    def errors(self) -> list[float]:
        """The relative error of our count of each request, until something was left out of the view."""
        end = self.compactions[0].request if self.compactions else len(self.rows)
        own = (n for n, row in enumerate(self.rows) if any(h.layer == "recording" for h in row.happened))
        end = min(end, next(own, end))
        known = [row for row in self.rows[:end] if row.recorded.prompt]
        return [abs(row.context - row.recorded.prompt) / row.recorded.prompt for row in known]

    def count_requests(self, kind: Kind) -> int:
        return sum(row.kind == kind for row in self.rows)
