"""Policies side by side: each beside append-only, and sessions with different windows apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from sevenfold.recordings.windows import WindowSource
from sevenfold.replay.results import ReplayFigures, compute_cost_share, sum_figures
from sevenfold.replay.runner import ReplayResult

APPEND_ONLY: Final = "append-only"
DEARER: Final = 1.02  # A session that costs more than this share of append-only counts as dearer


class PolicyComparison(msgspec.Struct, frozen=True):
    """One policy over some sessions, and beside append-only where both were replayed."""

    figures: ReplayFigures
    of_append_only: float | None = None
    compared: int = 0  # Sessions that were replayed under both
    dearer: int = 0  # Of these, the sessions that cost more than append-only


def compare_policy(done: Sequence[ReplayResult], name: str) -> PolicyComparison:
    """The sum of these sessions under a policy, compared with append-only."""
    figures = sum_figures([one.by_policy[name] for one in done if name in one.by_policy])
    pairs = [
        (one.by_policy[name], one.by_policy[APPEND_ONLY])
        for one in done
        if name in one.by_policy and APPEND_ONLY in one.by_policy
    ]
    each = (compute_cost_share(own.cost, base.cost) for own, base in pairs)
    shares = [share for share in each if share is not None]
    if not pairs:
        return PolicyComparison(figures)
    own, base = (sum_figures(side) for side in zip(*pairs, strict=True))
    whole = compute_cost_share(own.cost, base.cost)
    return PolicyComparison(figures, whole, len(shares), sum(share > DEARER for share in shares))


def group_by_window(done: Sequence[ReplayResult]) -> dict[int, list[ReplayResult]]:
    """The sessions that were replayed, by the window they had, the smallest first."""
    groups: dict[int, list[ReplayResult]] = {}
    for one in done:
        if one.by_policy:
            groups.setdefault(one.window.tokens, []).append(one)
    return dict(sorted(groups.items()))


def count_window_sources(done: Sequence[ReplayResult]) -> dict[str, int]:
    """The number of sessions by what their window is known from."""
    found = Counter(one.window.source for one in done if one.by_policy)
    return {source.value: found[source] for source in WindowSource if found[source]}


def sort_by_cost(done: Sequence[ReplayResult], name: str) -> list[ReplayResult]:
    """The sessions with this policy, the dearest first."""
    known = [one for one in done if name in one.by_policy]
    in_money = all(one.by_policy[name].has_all_prices for one in known)
    return sorted(known, key=lambda one: -_get_cost(one.by_policy[name], in_money))


def sort_policies(compared: Mapping[str, PolicyComparison]) -> list[str]:
    """The names of the policies, the cheapest first."""
    in_money = all(one.figures.has_all_prices for one in compared.values())
    return sorted(compared, key=lambda name: _get_cost(compared[name].figures, in_money))


def _get_cost(figures: ReplayFigures, in_money: bool) -> float:
    """The cost to sort by: base-price tokens of models with different prices are no order."""
    amount = figures.cost.amount if in_money else None
    return figures.cost.units if amount is None else amount
