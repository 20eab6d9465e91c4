"""The figures of many replayed sessions, and the choice of a policy on some repositories for another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import mean
from typing import Final

from msgspec.structs import replace

from benchmarks.policy.policies import BASE, DEFAULT, GRID, find_replayed_name
from benchmarks.policy.replays import SessionReplay
from sevenfold.replay.policies import Policy
from sevenfold.replay.stand_ins import SUMMARY_OUTPUT

DEARER: Final = 1.02
SHORT: Final = 20
MOST_ROBUST, MOST_REGRET, MOST_SUMMARIES = 1.0, 3.0, 1.0
"""Limits for the means of the repositories: robust extra requests and summaries per 100, regret in %."""
DRAWS: Final = 2_000
LONG_SUMMARY: Final = 4_500
"""Tokens of output: a recorded summary with half as much of analysis."""


@dataclass(frozen=True)
class Compared:
    """Sessions under a policy, each with the same session under append-only."""

    pairs: Sequence[tuple[SessionReplay, SessionReplay]]

    @property
    def turns(self) -> int:
        return sum(one.turns for one, _ in self.pairs)

    @property
    def of_base(self) -> float:
        """The cost in % of append-only."""
        return _share(sum(one.cost for one, _ in self.pairs), sum(base.cost for _, base in self.pairs))

    @property
    def of_paid(self) -> float:
        return _share(sum(one.compared for one, _ in self.pairs), sum(one.paid for one, _ in self.pairs))

    @property
    def memory(self) -> float:
        """Recall and dreams in % of append-only."""
        return _share(sum(one.memory for one, _ in self.pairs), sum(base.cost for _, base in self.pairs))

    @property
    def extra(self) -> float:
        return _share(sum(one.extra for one, _ in self.pairs), self.turns)

    @property
    def robust(self) -> float:
        return _share(sum(one.robust for one, _ in self.pairs), self.turns)

    @property
    def regret(self) -> float:
        return _share(sum(one.needed for one, _ in self.pairs), sum(one.removed for one, _ in self.pairs))

    @property
    def summaries(self) -> float:
        return _share(sum(one.summaries for one, _ in self.pairs), self.turns)

    @property
    def dearer(self) -> float:
        """Sessions more than 2 % dearer than append-only, in %."""
        return _share(sum(one.cost > DEARER * base.cost for one, base in self.pairs), len(self.pairs))

    @property
    def short(self) -> Compared:
        """The sessions under 20 requests alone."""
        return Compared([pair for pair in self.pairs if pair[0].turns < SHORT])

    def draw_interval(self) -> tuple[float, float]:
        """The range of `of_base` that 90 % of draws of as many sessions fall into."""
        draw = Random(8)
        drawn = (Compared(draw.choices(self.pairs, k=len(self.pairs))).of_base for _ in range(DRAWS))
        costs = sorted(drawn)
        return costs[DRAWS // 20], costs[DRAWS - DRAWS // 20 - 1]


def _share(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def compare(done: Sequence[SessionReplay], policy: str, base: str = BASE.name) -> Compared:
    """The sessions under this policy beside those under another."""
    bases = {(one.repository, one.path): one for one in done if one.policy == base}
    found = sorted((one for one in done if one.policy == policy), key=lambda o: (o.repository, o.path))
    return Compared([(one, bases[one.repository, one.path]) for one in found])


@dataclass(frozen=True)
class RepositoryMeans:
    """The figures of a policy as means of the repositories: another one is as likely to be like each."""

    of_base: float
    extra: float
    robust: float
    regret: float
    summaries: float
    dearer: float
    most_regret: float

    @classmethod
    def of(cls, done: Sequence[SessionReplay], policy: str) -> RepositoryMeans:
        names = sorted({one.repository for one in done})
        each = [compare([one for one in done if one.repository == name], policy) for name in names]
        return cls(
            of_base=mean(one.of_base for one in each),
            extra=mean(one.extra for one in each),
            robust=mean(one.robust for one in each),
            regret=mean(one.regret for one in each),
            summaries=mean(one.summaries for one in each),
            dearer=mean(one.dearer for one in each),
            most_regret=max(one.regret for one in each),
        )

    @property
    def keeps_limits(self) -> bool:
        within = self.robust <= MOST_ROBUST and self.regret <= MOST_REGRET
        return within and self.summaries <= MOST_SUMMARIES


def lengthen_summaries(done: Sequence[SessionReplay]) -> list[SessionReplay]:
    """The same replays, each summary charged with `LONG_SUMMARY` tokens of output."""
    more = LONG_SUMMARY / SUMMARY_OUTPUT - 1
    return [replace(one, cost=one.cost + more * one.written) for one in done]


@dataclass(frozen=True)
class HeldOut:
    """A repository under the sizes that were chosen on the others."""

    repository: str
    chosen: Policy
    kept_limits: bool  # False if no sizes kept the limits on the others
    compared: Compared
    default: Compared


def choose_sizes(done: Sequence[SessionReplay]) -> tuple[Policy, bool]:
    """The cheapest sizes that keep the limits on these repositories; the largest if none does."""
    known = [(policy, RepositoryMeans.of(done, find_replayed_name(policy))) for policy in GRID]
    kept = [(policy, found) for policy, found in known if found.keeps_limits]
    if not kept:
        return GRID[-1], False
    return min(kept, key=lambda one: one[1].of_base)[0], True


def hold_out(done: Sequence[SessionReplay]) -> list[HeldOut]:
    """Each repository in turn, under the sizes that were chosen without it."""
    found = []
    for name in sorted({one.repository for one in done}):
        others = [one for one in done if one.repository != name]
        own = [one for one in done if one.repository == name]
        chosen, kept = choose_sizes(others)
        compared = compare(own, find_replayed_name(chosen))
        found.append(HeldOut(name, chosen, kept, compared, compare(own, DEFAULT.name)))
    return found
