"""What a compaction would replace, what it would keep, and what the request may come to."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.boundary import asked_within, collected, last_typed, typed
from sevenfold.cutting import (
    aim,
    allowed,
    applied,
    around,
    fixed_tokens,
    padded,
    size_of,
    tokens_of,
)
from sevenfold.errors import Mistake, Refused
from sevenfold.facts import Facts
from sevenfold.invariants import open_uses
from sevenfold.layers.l4_compaction.stretch import tails, widened
from sevenfold.messages import Text, user
from sevenfold.protocols import Capabilities
from sevenfold.quotes import LONG
from sevenfold.request import Request
from sevenfold.tokens import TEXT_RATE, Pressure, Size, byte_length
from sevenfold.transcript import Id, Placed, Replace, View

BY: Final = "Compaction"
AHEAD: Final = "ahead"
"""The trigger of a summary that was prepared before it was needed."""
PRICE: Final = "price"
"""The trigger of a summary that pays although the window is not full."""
AUTOMATIC: Final = ("auto", "refused", AHEAD, PRICE)
"""The triggers that nobody pulled by hand."""
NEWEST: Final = 0.75
"""The most of the room that what is kept may take."""
LEAST: Final = 500
"""Tokens of the smallest summary: what is not larger is not worth one."""


class Plan(msgspec.Struct, frozen=True):
    """What is replaced: from message `first` to before message `cut`, in the view of `request`."""

    request: Request
    pressure: Pressure
    trigger: str
    first: int
    cut: int
    before: int
    """Tokens of the request as it is ..."""
    most: int
    """... and the most that it should come to."""

    @property
    def view(self) -> View:
        return self.request.view

    @property
    def stretch(self) -> list[Placed]:
        return [self.view[at] for at in range(self.first, self.cut)]

    @property
    def apart(self) -> int | None:
        """Where what the user said last is, if it is more than words: then it stays as it is."""
        last = last_typed(self.view)
        if last is None or not self.first <= last < self.cut:
            return None
        plain = all(isinstance(block, Text) for block in self.view[last].message.content)
        return None if plain else last

    @property
    def facts(self) -> Facts:
        """What is known of what is replaced."""
        apart = self.apart
        gone = (self.view[at] for at in range(self.first, self.cut) if at != apart)
        return collected(gone, self.view.marks)

    @property
    def asked_within(self) -> bool:
        """Whether what the user said last is only in what takes the place."""
        return self.apart is None and asked_within(self.view, self.cut)

    @property
    def tokens(self) -> int:
        """Of what is replaced."""
        return self.view.calibration.tokens(size_of(self.stretch))

    @property
    def removed(self) -> int:
        """The same without what stays apart."""
        apart = self.apart
        gone = (self.view[at] for at in range(self.first, self.cut) if at != apart)
        return self.view.calibration.tokens(size_of(gone))

    @property
    def automatic(self) -> bool:
        return self.trigger in AUTOMATIC

    @property
    def full(self) -> bool:
        return self.before > self.pressure.thresholds.auto_compact

    @property
    def full_from_the_start(self) -> bool:
        """Whether what is replaced is the older part of a full window."""
        return self.full and self.first == 0

    @property
    def promising(self) -> bool:
        """Whether a summary could help at all: it takes some room itself, and the user's words stay."""
        count = self.view.calibration.tokens
        words = sum(count(placed.size) for placed in self.stretch if typed(placed))
        if self.tokens - words <= LEAST:
            return False
        said = [count(Size(text=byte_length(one.text))) for one in self.facts.said]
        whole = len(said) - self.asked_within
        cut = [min(one, int(LONG * TEXT_RATE)) for one in said[:whole]]
        least = LEAST + sum(cut) + sum(said[whole:])
        return not self.automatic or self.before - self.tokens + least <= self.most

    def edits(self, text: str) -> tuple[Replace, ...]:
        return around(self.view, self.first, self.cut, self.apart, user(text))

    def after(self, edits: tuple[Replace, ...]) -> View:
        return applied(self.view, edits, BY)

    def tokens_with(self, view: View) -> int:
        return tokens_of(replace(self.request, view=view), self.pressure)

    def helped_by(self, after: View, able: Capabilities) -> bool:
        """Smaller than before, small enough if it must be, and allowed."""
        tokens = self.tokens_with(after)
        small = tokens < self.before and (tokens <= self.most or not self.automatic)
        return small and allowed(self.view, after, able)


def everything(request: Request, pressure: Pressure, trigger: str) -> Plan:
    """Nothing is kept."""
    before = tokens_of(request, pressure)
    return Plan(request, pressure, trigger, 0, len(request.view), before, aim(before, pressure))


def plan(
    request: Request,
    pressure: Pressure,
    trigger: str,
    able: Capabilities,
    first: Id | None = None,
    last: Id | None = None,
) -> Plan | None:
    """From entry `first` to entry `last`; without either, all but the newest round, if there is one."""
    view = request.view
    if not len(view):
        return None
    whole = everything(request, pressure, trigger)
    if open_uses(view):
        if whole.automatic:
            return None
        raise Refused("tools are still running: wait for them, or stop them, before compacting")
    if first is None and last is None:
        return _keeping_the_newest(whole, able)
    start = 0 if first is None else _place(view, first)
    end = len(view) if last is None else _place(view, last) + 1
    if end <= start:
        raise Mistake(f"message {last} comes before message {first}: give them in their order")
    start, end = widened(view, start, end)
    return replace(whole, first=start, cut=end)


def _place(view: View, id: Id) -> int:
    if (at := view.where(id)) is None:
        raise Mistake(f"message {id} is not in the view any more: choose one that is")
    return at


def _keeping_the_newest(whole: Plan, able: Capabilities) -> Plan:
    """The gentlest cut that leaves room for a summary, and thinking where it must stay."""
    view = whole.view
    room = whole.most - fixed_tokens(whole.request, whole.before)
    for cut in tails(view):
        kept = size_of([view[at] for at in range(cut, len(view))])
        small = padded(view, kept) <= room * NEWEST
        found = replace(whole, cut=cut)
        if cut and small and allowed(view, found.after(found.edits("")), able):
            return found
    return whole
