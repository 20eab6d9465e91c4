"""The figures of a replayed session under a policy, and texts about what a replay charges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prices import Price
from sevenfold.core.tokens import Usage
from sevenfold.layers.l5_durable_memory.extraction import NOTHING, SOMETHING
from sevenfold.replay.bookkeeping import MICRO, NOTES, READ_BACK, RECORDING, TOOL_RESULTS, WHO
from sevenfold.replay.outcome import (
    BESIDE,
    LayerAction,
    ReplayOutcome,
    ReplayRegret,
    RequestRow,
    TimeSpent,
    add_fields,
)
from sevenfold.replay.stand_ins import DREAM_SESSIONS, RECALLED

NONE: Final[Mapping[str, Price]] = MappingProxyType({})


class ReplayCost(msgspec.Struct, frozen=True):
    """A price in base-price input tokens, and in a currency where the price of the model is known."""

    units: float = 0.0
    amount: float | None = None
    currency: str | None = None

    def __add__(self, other: ReplayCost) -> ReplayCost:
        """The sum; its amount is known if both are known and in one currency."""
        known = self.amount is not None and other.amount is not None and self.currency == other.currency
        amount = (self.amount or 0.0) + (other.amount or 0.0) if known else None
        return ReplayCost(self.units + other.units, amount, self.currency if known else None)


def compute_cost_share(cost: ReplayCost, base: ReplayCost | None) -> float | None:
    """A cost as a share of another: in money where that is known, else in base-price tokens.

    Base-price tokens of models with different prices do not add up to the same share as their money.
    """
    if base is None:
        return None
    if cost.amount is not None and base.amount and cost.currency == base.currency:
        return cost.amount / base.amount
    return cost.units / base.units if base.units else None


class LeftBranches(msgspec.Struct, frozen=True):
    """Requests on branches that the user left: they were paid for, and are not replayed."""

    requests: int = 0
    paid: ReplayCost | None = None  # The cost of their input; None if the file does not say


class BreakFigure(msgspec.Struct, frozen=True):
    """A cache break: its request, its reason, and the tokens that were paid for again."""

    at: int
    reason: str
    tokens: int


class CompactionFigure(msgspec.Struct, frozen=True):
    at: int
    by: str
    tokens_before: int
    tokens_after: int
    fidelity: float | None


class LayerFigure(msgspec.Struct, frozen=True):
    """Actions, savings and costs of one layer, in base-price input tokens."""

    times: int = 0  # Actions, and requests beside the conversation
    tokens: int = 0
    saved: float = 0.0
    cost: float = 0.0
    requests: int = 0  # Requests that it made beside the conversation

    @property
    def net(self) -> float:
        return self.saved - self.cost

    def __add__(self, other: LayerFigure) -> LayerFigure:
        return add_fields(self, other)


class ChartPoint(msgspec.Struct, frozen=True):
    """One request in a drawing."""

    turn: int  # The number of the session's own requests before it
    at: float
    kind: str
    context: int
    read: int
    recorded: int = 0
    happened: tuple[LayerAction, ...] = ()


class ReplayFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One session, or many, under one policy."""

    requests: int = 0
    turns: int = 0  # The session's own requests
    extra: int = 0  # Requests that only read back what was gone
    beside: int = 0  # Requests beside the conversation: notes, summaries, keeping warm
    usage: Usage = Usage()
    cost: ReplayCost = ReplayCost()
    paid: ReplayCost | None = None  # The recorded cost of the same things; None if no file has it
    compared: ReplayCost | None = None  # Simulated cost where `paid` is known, and of added requests
    files: int = 0  # The number of sessions
    paid_files: int = 0  # The sessions whose recorded cost is known: `paid` and `compared` are of them
    paid_requests: int = 0  # The sessions' own requests whose recorded cost is known: `paid` is of them
    paid_at: str = ""  # The model of --price, at whose price all is counted
    priced_files: int = 0  # The sessions with a known price: amounts in a currency are of them
    breaks: tuple[BreakFigure, ...] = ()
    compactions: tuple[CompactionFigure, ...] = ()
    layers: dict[str, LayerFigure] = {}
    regret: ReplayRegret = ReplayRegret()
    recalled: float = 0.0  # Recall, and dreams, in base-price tokens: assumed, and in no other figure
    dreamt: float = 0.0
    accounting: tuple[float, ...] = ()  # Relative errors of our count, where nothing was changed
    spent: TimeSpent = TimeSpent()
    points: tuple[ChartPoint, ...] = ()  # For the report alone

    @property
    def fidelity(self) -> float | None:
        """The mean of all compactions, weighted by the tokens they replaced."""
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
        """The simulated cost as a share of the recorded one, for the sessions that have it, and a price."""
        return compute_cost_share(self.compared or self.cost, self.paid)

    @property
    def has_all_prices(self) -> bool:
        """True if every session has a price: amounts are of all of them."""
        return self.priced_files == self.files

    @property
    def summaries_per_100(self) -> float:
        """Summaries by the policy, or of the recording that were carried out, per 100 own requests."""
        made = sum(one.by in SUMMARIES for one in self.compactions)
        return 100 * made / self.turns if self.turns else 0.0


SUMMARIES: Final = frozenset({"summary", "recorded"})  # Compactions that asked a model for a summary
CHANGING = frozenset({TOOL_RESULTS, MICRO, NOTES, READ_BACK})  # They make it another request
MOST_POINTS = 600  # Points of one session in a drawing; a longer one is thinned out, events kept


def compute_figures(
    outcome: ReplayOutcome,
    price: Price,
    *,
    priced: bool,
    drawn: bool = False,
    others: Mapping[str, Price] = NONE,
    paid_at: str = "",
) -> ReplayFigures:
    """The figures of an outcome; `priced`: a real price is known. `paid_at`: the model of --price."""
    rows = outcome.rows
    recorded = [(r.model, replace(r.recorded, output=0)) for r in rows if r.recorded.prompt]
    known = [row for row in rows if row.kind != "turn" or row.recorded.prompt]
    first = outcome.compactions[0].request if outcome.compactions else len(rows)
    price_usages = partial(sum_costs, price=price, priced=priced, others=others)
    cost = price_usages(map(_find_charged, rows))
    compared = cost if len(known) == len(rows) else price_usages(map(_find_charged, known))
    changed = any(did.layer in CHANGING for row in rows[:first] for did in row.happened)
    return ReplayFigures(
        requests=len(rows),
        turns=outcome.turns,
        extra=outcome.extra_requests,
        beside=sum(row.kind in BESIDE for row in rows),
        usage=outcome.usage,
        cost=cost,
        paid=price_usages(recorded) if recorded else None,
        compared=compared if recorded else None,
        files=1,
        paid_files=int(bool(recorded)),
        paid_requests=len(recorded),
        paid_at=paid_at,
        priced_files=int(priced),
        breaks=tuple(BreakFigure(b.request, b.why, b.tokens) for b in outcome.breaks),
        compactions=tuple(
            CompactionFigure(c.request, c.by, c.tokens_before, c.tokens_after, c.fidelity)
            for c in outcome.compactions
        ),
        layers=_sum_layers(outcome),
        regret=outcome.regret,
        recalled=outcome.recalled,
        dreamt=outcome.dreamt,
        accounting=() if changed else tuple(round(error, 5) for error in outcome.errors),
        spent=outcome.spent,
        points=_make_points(rows) if drawn else (),
    )


def sum_costs(
    used: Iterable[tuple[str, Usage]], price: Price, *, priced: bool, others: Mapping[str, Price] = NONE
) -> ReplayCost:
    """The cost of all requests, each at the price of the model that answered, in units of `price`."""
    units = amount = 0.0
    for model, usage in used:
        own = others.get(model, price)
        units += own.units(usage) * (own.input / price.input if own is not price else 1.0)
        amount += own.cost(usage)
    return ReplayCost(units, amount, price.currency) if priced else ReplayCost(units)


def _find_charged(row: RequestRow) -> tuple[str, Usage]:
    """The usage that a policy can change: without the output of the session's own replies."""
    return row.model, replace(row.usage, output=0) if row.kind == "turn" else row.usage


def _sum_layers(outcome: ReplayOutcome) -> dict[str, LayerFigure]:
    """The figures of each layer; the layer that removed something pays for reading it back."""
    found: dict[str, LayerFigure] = {}
    asked = Counter(WHO[row.kind] for row in outcome.rows if row.kind in WHO)
    for row in outcome.rows:
        for did in row.happened:
            found[did.layer] = found.get(did.layer, LayerFigure()) + LayerFigure(1, did.tokens)
    for name, share in outcome.layers.items():
        found[name] = found.get(name, LayerFigure()) + LayerFigure(saved=share.saved, cost=share.cost)
    for name, requests in asked.items():
        known = found.get(name, LayerFigure())
        # A summary is asked for and put in: that is one time.
        found[name] = replace(known, times=max(known.times, requests), requests=requests)
    return {name: did for name, did in found.items() if name not in (READ_BACK, RECORDING)}


def _make_points(rows: Sequence[RequestRow]) -> tuple[ChartPoint, ...]:
    step = max(1, -(-len(rows) // MOST_POINTS))
    turns = list(accumulate((row.kind == "turn" for row in rows), initial=0))
    return tuple(
        ChartPoint(
            turns[n], row.at, row.kind, row.context, row.usage.cache_read, row.recorded.prompt, row.happened
        )
        for n, row in enumerate(rows)
        if n % step == 0 or row.happened or n == len(rows) - 1
    )


def sum_figures(parts: Iterable[ReplayFigures]) -> ReplayFigures:
    """The sum of all of them, with the breaks and compactions of each."""
    known = list(parts)
    if not known:
        return ReplayFigures()
    layers: dict[str, LayerFigure] = {}
    for part in known:
        for name, layer in part.layers.items():
            layers[name] = layers.get(name, LayerFigure()) + layer
    return ReplayFigures(
        requests=sum(part.requests for part in known),
        turns=sum(part.turns for part in known),
        extra=sum(part.extra for part in known),
        beside=sum(part.beside for part in known),
        usage=sum((part.usage for part in known), Usage()),
        cost=_add_costs([part.cost for part in known]) or ReplayCost(),
        paid=_add_costs([part.paid for part in known]),
        compared=_add_costs([part.compared for part in known]),
        files=sum(part.files for part in known),
        paid_files=sum(part.paid_files for part in known),
        paid_requests=sum(part.paid_requests for part in known),
        paid_at=known[0].paid_at,
        priced_files=sum(part.priced_files for part in known),
        breaks=tuple(broke for part in known for broke in part.breaks),
        compactions=tuple(c for part in known for c in part.compactions),
        layers=layers,
        regret=sum((part.regret for part in known), ReplayRegret()),
        recalled=sum(part.recalled for part in known),
        dreamt=sum(part.dreamt for part in known),
        accounting=tuple(error for part in known for error in part.accounting),
        spent=sum((part.spent for part in known), TimeSpent()),
    )


def sum_left(parts: Iterable[LeftBranches]) -> LeftBranches:
    known = list(parts)
    return LeftBranches(sum(part.requests for part in known), _add_costs([part.paid for part in known]))


def _add_costs(parts: Iterable[ReplayCost | None]) -> ReplayCost | None:
    """The sum of the known costs; its amount is known if all of them are in one currency."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    amounts = [part.amount for part in known if part.amount is not None]
    currencies = {part.currency for part in known if part.amount is not None}
    units = sum(part.units for part in known)
    if len(currencies) != 1:
        return ReplayCost(units)
    return ReplayCost(units, sum(amounts), currencies.pop())


NOT_CHARGED: Final = "the status of agents"
ASSUMED: Final = (
    f"recall ({RECALLED} tokens for each thing that the user says) and dreams (one in {DREAM_SESSIONS} "
    "sessions) stand beside the cost: no recording has a memory, so both are assumed"
)
CHARGED: Final = "layers 1 to 4, and extraction where a policy has it and a person talked"
LOOKS: Final = (
    "extraction looks when its own rules say, in batches and by the cheaper way (on the prefix, or lean on "
    f"the small model): one request with {NOTHING} tokens of answer, and one more with {SOMETHING} where "
    "something lasting was said"
)
GUESSED: Final = "How often a model would find something worth remembering is not known."
BY_RULE: Final = (
    "Fidelity and regret measure the writer by rule that stands in for a model. Of 30 summaries that "
    "were recorded, written by a model, the same measure finds 61.5 % on average, and 82.6 % with the "
    "user's words put in verbatim."
)
