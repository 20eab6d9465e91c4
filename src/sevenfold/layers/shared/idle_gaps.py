"""Silences of the user: how long they were, and what can be expected of the next one."""

from __future__ import annotations

import math
import tomllib
from bisect import bisect_left
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.core.errors import SettingsError

PRIOR: Final = Path(__file__).with_name("gaps.toml")
EDGES: Final = (
    15, 30, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1_200, 1_800, 2_700, 3_600, 7_200, 14_400,
    28_800, 86_400,
)  # fmt: skip
"""The end of each bin, in seconds; the first one begins at `QUICKEST`."""
QUICKEST: Final = 1.0  # Replies faster than this (seconds) come from programs, not people
WEIGHT: Final = 20.0  # Gaps of this user that the recorded ones are worth
MOST: Final = 500.0  # Older gaps fade when there are more: people change their ways


class GapCounts(msgspec.Struct, frozen=True):
    """Gaps that were seen, by length, and how often the user did not come back."""

    counts: tuple[float, ...] = (0.0,) * len(EDGES)
    left: float = 0.0

    @property
    def seen(self) -> float:
        return sum(self.counts) + self.left

    def after(self, gap: float) -> GapCounts:
        """The user spoke again after so many seconds."""
        if gap < QUICKEST:
            return self
        if gap > EDGES[-1]:
            return self.leaving()
        at = bisect_left(EDGES, gap)
        counts = (n + (i == at) for i, n in enumerate(self.counts))
        return _faded(GapCounts(tuple(counts), self.left))

    def leaving(self) -> GapCounts:
        """The user did not speak again."""
        return _faded(GapCounts(self.counts, self.left + 1))

    def __add__(self, other: GapCounts) -> GapCounts:
        both = zip(self.counts, other.counts, strict=True)
        return _faded(GapCounts(tuple(a + b for a, b in both), self.left + other.left))

    def with_prior(self) -> GapCounts:
        """These gaps, and the recorded ones for as much as they are worth."""
        recorded = load_prior_gaps()
        share = WEIGHT / max(1.0, recorded.seen)
        return GapCounts(
            tuple(own + share * n for own, n in zip(self.counts, recorded.counts, strict=True)),
            self.left + share * recorded.left,
        )


def _faded(gaps: GapCounts) -> GapCounts:
    share = MOST / max(MOST, gaps.seen)
    return GapCounts(tuple(n * share for n in gaps.counts), gaps.left * share)


@cache
def load_prior_gaps() -> GapCounts:
    """The gaps of recorded sessions, from the file beside this one."""
    try:
        raw = tomllib.loads(PRIOR.read_text(encoding="utf-8"))
        counts = tuple(float(raw["gaps"][str(edge)]) for edge in EDGES)
        return GapCounts(counts, float(raw["left"]))
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"{PRIOR}: the gaps of recorded sessions cannot be read ({error}); "
            "write the file anew with 'python -m benchmarks.policy.gaps'"
        ) from error


class GapForecast:
    """The forecast for a user who has been silent for so long."""

    def __init__(self, gaps: GapCounts, idle: float) -> None:
        self._sums = (0.0, *accumulate(gaps.counts))
        self._come, self._left = self._sums[-1], gaps.left
        self._idle = idle
        self._now = self._come - self._within(idle) + self._left

    def back_between(self, start: float, end: float) -> float:
        """The chance that the user speaks in this time, both counted from the reply."""
        if self._now <= 0:
            return 0.0
        first, last = max(start, self._idle), max(end, self._idle)
        return max(0.0, self._within(last) - self._within(first)) / self._now

    def back_after(self, time: float) -> float:
        """The chance that the user does speak again, and after this."""
        return self.back_between(time, math.inf)

    def still(self, time: float) -> float:
        """The chance that the user has not spoken until then."""
        return 1.0 - self.back_between(self._idle, time)

    def _within(self, time: float) -> float:
        """The number of gaps that were no longer than this."""
        if time >= EDGES[-1]:
            return self._come
        if time <= QUICKEST:
            return 0.0
        at = bisect_left(EDGES, time)
        low, high = (EDGES[at - 1] if at else QUICKEST), EDGES[at]
        part = math.log(time / low) / math.log(high / low)
        return self._sums[at] + part * (self._sums[at + 1] - self._sums[at])
