"""When to stop asking for summaries: too many failures in a row, or a window that fills up at once.

A summary that is made because it pays has a brake of its own, and leaves the count of full windows alone.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.boundary import SPOKEN, last_boundary, record_of
from sevenfold.layers.l4_compaction.settings import CompactionSettings
from sevenfold.transcript import Id, Mark, View

BREAKER: Final = "compaction.breaker"
"""The name of the mark."""
APART: Final = 8
"""Replies of the model between a compaction of any kind and the next that is made because it pays."""


class Breaker(msgspec.Struct, frozen=True, omit_defaults=True):
    """How compaction went lately, with which model, and what the user was told about it."""

    model: str = ""
    failures: int = 0
    refills: int = 0
    """Compactions in a row after which the window was full again at once."""
    at: Id = -1
    """The last message when the view was last compacted."""
    told: str = ""
    tried: Id = -1
    """The last message when a summary was last tried because it pays."""
    unpaid: int = 0
    """Such tries in a row that came to nothing."""

    @classmethod
    def of(cls, view: View, model: str) -> Breaker:
        """As it stands; another model begins anew."""
        try:
            known = msgspec.convert(view.marks.get(BREAKER), cls)
        except msgspec.ValidationError:
            return cls(model)
        return known if known.model == model else cls(model)

    @property
    def mark(self) -> Mark:
        return Mark(BREAKER, msgspec.to_builtins(self))

    def full_again(self, view: View, settings: CompactionSettings) -> Breaker:
        """The window is full: was it compacted only just now?"""
        if self.at < 0 or self.refills >= settings.refills:
            return self
        if self.tried > self.at:  # there were replies enough for one that pays
            return replace(self, refills=0)
        replies = sum(placed.by == "model" for placed in view.since(self.at))
        return replace(self, refills=self.refills + 1 if replies <= settings.refilled_within else 0)

    def why_open(self, settings: CompactionSettings) -> str:
        """Why no summary is to be asked for, in a sentence for people; nothing while it is closed."""
        if self.failures >= settings.failures:
            return (
                f"{self.failures} summaries in a row have failed: from now on a full window is "
                "shortened without a model; /compact or another model tries again"
            )
        if self.refills >= settings.refills:
            return (
                f"the window was full again within {settings.refilled_within} replies after each of "
                f"the last {self.refills} compactions, so no more summaries are asked for: what is "
                "read is too large for this window; read it in parts, or use a larger window; "
                "/compact tries again"
            )
        return ""

    def failed(self) -> Breaker:
        return replace(self, failures=self.failures + 1)

    def compacted(self, view: View) -> Breaker:
        """The view is about to be shortened; from here on replies are counted."""
        return replace(self, at=view[-1].id)

    def succeeded(self, view: View) -> Breaker:
        return replace(self.compacted(view), failures=0, told="", unpaid=0)

    # --- because it pays --------------------------------------------------------------------------------

    def rests(self, view: View, settings: CompactionSettings) -> bool:
        """Whether it is too early, or of no use, to try one that pays."""
        if self.unpaid >= settings.failures or self.why_open(settings):
            return True
        apart = max(APART, settings.refilled_within + 1)
        if self.tried >= 0 and not _answered(view, self.tried, apart):
            return True
        last = max(self.tried, _last_compacted(view))
        return last >= 0 and not _answered(view, last, apart)

    def unpaying(self, view: View) -> Breaker:
        """It was tried here and came to nothing."""
        return replace(self, tried=view[-1].id, unpaid=self.unpaid + 1)

    def paid(self, view: View) -> Breaker:
        """It was made here."""
        return replace(self, tried=view[-1].id, unpaid=0, failures=0, told="")


def _answered(view: View, since: Id, times: int) -> bool:
    """Whether the model has replied so many times since then: what is newest says so first."""
    replies = (placed for placed in reversed(view) if placed.by == "model" and placed.id > since)
    return sum(1 for _ in islice(replies, times)) == times


def _last_compacted(view: View) -> Id:
    """The newest message that stands for others; what was said before it has a smaller id."""
    boundary = last_boundary(view)
    if boundary is None:
        return -1
    others = [placed for placed in view if placed.by not in SPOKEN]
    stand_ins = (placed.id for placed in others if record_of(placed, view.marks) is not None)
    return max(stand_ins, default=boundary.last)
