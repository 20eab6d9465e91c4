"""What is said about a replayed session under a policy: few numbers, however long the session was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prices import Price
from sevenfold.replay.outcome import BESIDE, Happened, Outcome, Regret, Row, Spent
from sevenfold.tokens import Usage


class Cost(msgspec.Struct, frozen=True):
    """A price in base-price input tokens, and in a currency where the price of the model is known."""

    units: float = 0.0
    amount: float | None = None
    currency: str | None = None

    def __add__(self, other: Cost) -> Cost:
        """Amounts add up where both are known and in one currency."""
        same = self.currency == other.currency
        known = self.amount is not None and other.amount is not None and same
        amount = (self.amount or 0.0) + (other.amount or 0.0) if known else None
        return Cost(self.units + other.units, amount, self.currency if known else None)


class Broke(msgspec.Struct, frozen=True):
    """A cache break: in which request, why, and how many tokens were paid for again."""

    at: int
    reason: str
    tokens: int


class Compacted(msgspec.Struct, frozen=True):
    at: int
    by: str
    tokens_before: int
    tokens_after: int
    fidelity: float | None


class Layer(msgspec.Struct, frozen=True):
    """What one layer did, saved and cost, in base-price input tokens."""

    times: int = 0
    tokens: int = 0
    saved: float = 0.0
    cost: float = 0.0

    @property
    def net(self) -> float:
        return self.saved - self.cost

    def __add__(self, other: Layer) -> Layer:
        return Layer(
            self.times + other.times,
            self.tokens + other.tokens,
            self.saved + other.saved,
            self.cost + other.cost,
        )


class Point(msgspec.Struct, frozen=True):
    """One request in a drawing."""

    turn: int
    """How many requests of the session's own were before it."""
    at: float
    kind: str
    context: int
    read: int
    recorded: int = 0
    happened: tuple[Happened, ...] = ()


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One session, or many, under one policy."""

    requests: int = 0
    turns: int = 0
    """The session's own requests."""
    extra: int = 0
    """Requests that only read back what was gone."""
    beside: int = 0
    """Requests beside the conversation: notes, summaries, keeping warm."""
    usage: Usage = Usage()
    cost: Cost = Cost()
    paid: Cost | None = None
    """What was really paid, for the same things; None where no file says."""
    compared: Cost | None = None
    """The simulated cost of those sessions alone of which it is known what was paid."""
    files: int = 0
    """How many sessions these figures are of."""
    paid_files: int = 0
    """Of these, how many say what was paid: `paid` and `compared` are of them."""
    priced_files: int = 0
    """Of these, how many have a known price: amounts in a currency are of them."""
    breaks: tuple[Broke, ...] = ()
    compactions: tuple[Compacted, ...] = ()
    layers: dict[str, Layer] = {}
    regret: Regret = Regret()
    accounting: tuple[float, ...] = ()
    """By how much our count of each request is off the recorded one, where the policy changed nothing."""
    spent: Spent = Spent()
    points: tuple[Point, ...] = ()
    """For the report alone."""

    @property
    def fidelity(self) -> float | None:
        """Over all compactions, weighed by what they replaced."""
        known = [(c.fidelity, c.tokens_before) for c in self.compactions if c.fidelity is not None]
        weight = sum(tokens for _, tokens in known)
        if not known:
            return None
        if not weight:
            return sum(score for score, _ in known) / len(known)
        return sum(score * tokens for score, tokens in known) / weight

    @property
    def extra_per_100(self) -> float:
        return 100 * self.extra / self.turns if self.turns else 0.0

    @property
    def of_paid(self) -> float | None:
        """The simulated cost as a share of what was paid, over the sessions that say it."""
        if not self.paid or not self.paid.units:
            return None
        return (self.compared or self.cost).units / self.paid.units


CHANGING = frozenset({"tool results", "microcompaction", "session memory", "read back"})
"""Layers after which a request is no longer the recorded one."""
MOST_POINTS = 600
"""Of one session in a drawing; a longer one is thinned out, events kept."""


def figures(outcome: Outcome, price: Price, *, priced: bool, drawn: bool = False) -> Figures:
    """What is said about an outcome at this price; `priced`: it is really the price of the model."""
    rows = outcome.rows
    recorded = [replace(row.recorded, output=0) for row in rows if row.recorded.prompt]
    first = outcome.compactions[0].request if outcome.compactions else len(rows)
    cost = costs([_charged(row) for row in rows], price, priced=priced)
    changed = any(did.layer in CHANGING for row in rows[:first] for did in row.happened)
    return Figures(
        requests=len(rows),
        turns=outcome.turns,
        extra=outcome.extra_requests,
        beside=sum(row.kind in BESIDE for row in rows),
        usage=outcome.usage,
        cost=cost,
        paid=costs(recorded, price, priced=priced) if recorded else None,
        compared=cost if recorded else None,
        files=1,
        paid_files=int(bool(recorded)),
        priced_files=int(priced),
        breaks=tuple(Broke(b.request, b.why, b.tokens) for b in outcome.breaks),
        compactions=tuple(
            Compacted(c.request, c.by, c.tokens_before, c.tokens_after, c.fidelity)
            for c in outcome.compactions
        ),
        layers=_layers(outcome),
        regret=outcome.regret,
        accounting=() if changed else tuple(round(error, 5) for error in outcome.errors),
        spent=outcome.spent,
        points=_points(rows) if drawn else (),
    )


def costs(usages: Iterable[Usage], price: Price, *, priced: bool) -> Cost:
    """Request by request: a long prompt may have another price."""
    usages = list(usages)
    units = sum(price.units(usage) for usage in usages)
    if not priced:
        return Cost(units)
    return Cost(units, sum(price.cost(usage) for usage in usages), price.currency)


def _charged(row: Row) -> Usage:
    """What a policy can change: the words of the session's own replies are the same under each."""
    return replace(row.usage, output=0) if row.kind == "turn" else row.usage


def _layers(outcome: Outcome) -> dict[str, Layer]:
    found: dict[str, Layer] = {}
    for row in outcome.rows:
        for did in row.happened:
            found[did.layer] = found.get(did.layer, Layer()) + Layer(1, did.tokens)
    for name, share in outcome.layers.items():
        found[name] = found.get(name, Layer()) + Layer(saved=share.saved, cost=share.cost)
    return found


def _points(rows: Sequence[Row]) -> tuple[Point, ...]:
    step = max(1, -(-len(rows) // MOST_POINTS))
    turns = list(accumulate((row.kind == "turn" for row in rows), initial=0))
    return tuple(
        Point(
            turns[n],
            row.at,
            row.kind,
            row.context,
            row.usage.cache_read,
            row.recorded.prompt,
            row.happened,
        )
        for n, row in enumerate(rows)
        if n % step == 0 or row.happened or n == len(rows) - 1
    )


def total(parts: Iterable[Figures]) -> Figures:
    """All of them as one; breaks and compactions of each stay told apart by their sessions alone."""
    known = list(parts)
    if not known:
        return Figures()
    layers: dict[str, Layer] = {}
    for part in known:
        for name, layer in part.layers.items():
            layers[name] = layers.get(name, Layer()) + layer
    return Figures(
        requests=sum(part.requests for part in known),
        turns=sum(part.turns for part in known),
        extra=sum(part.extra for part in known),
        beside=sum(part.beside for part in known),
        usage=sum((part.usage for part in known), Usage()),
        cost=_sum([part.cost for part in known]) or Cost(),
        paid=_sum([part.paid for part in known]),
        compared=_sum([part.compared for part in known]),
        files=sum(part.files for part in known),
        paid_files=sum(part.paid_files for part in known),
        priced_files=sum(part.priced_files for part in known),
        breaks=tuple(broke for part in known for broke in part.breaks),
        compactions=tuple(c for part in known for c in part.compactions),
        layers=layers,
        regret=sum((part.regret for part in known), Regret()),
        accounting=tuple(error for part in known for error in part.accounting),
        spent=sum((part.spent for part in known), Spent()),
    )


def _sum(parts: Iterable[Cost | None]) -> Cost | None:
    """Of those that are known; amounts likewise, where all of them are in one currency."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    amounts = [part.amount for part in known if part.amount is not None]
    currencies = {part.currency for part in known if part.amount is not None}
    units = sum(part.units for part in known)
    if len(currencies) != 1:
        return Cost(units)
    return Cost(units, sum(amounts), currencies.pop())
