"""What a compaction would replace, what it would keep, and what the request may come to."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.boundary import asked_within, collected, last_typed, said_in, typed
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
from sevenfold.layers.standing import Back, Stands
from sevenfold.messages import Text, user
from sevenfold.protocols import Capabilities
from sevenfold.quotes import LONG
from sevenfold.request import Request
from sevenfold.tokens import TEXT_RATE, Pressure, Size
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


class Plan(msgspec.Struct, frozen=True, dict=True):
    """What is replaced: from message `first` to before message `cut`, in the view of `request`.

    What has to be looked for in the view is looked for once.
    """

    request: Request
    pressure: Pressure
    trigger: str
    first: int
    cut: int
    before: int
    """Tokens of the request as it is ..."""
    most: int
    """... and the most that it should come to."""
    stands: Stands | None = None
    """What comes back after every compaction: it is replaced, and yet it stays."""

    @property
    def view(self) -> View:
        return self.request.view

    @cached_property
    def stretch(self) -> list[Placed]:
        return [self.view[at] for at in range(self.first, self.cut)]

    @cached_property
    def apart(self) -> int | None:
        """Where what the user said last is, if it is more than words: then it stays as it is."""
        last = last_typed(self.view)
        if last is None or not self.first <= last < self.cut:
            return None
        plain = all(isinstance(block, Text) for block in self.view[last].message.content)
        return None if plain else last

    @cached_property
    def facts(self) -> Facts:
        """What is known of what is replaced."""
        apart = self.apart
        gone = (self.view[at] for at in range(self.first, self.cut) if at != apart)
        return collected(gone, self.view.marks)

    @cached_property
    def said(self) -> list[int]:
        """Tokens of each thing that the user said in it, as `facts` has them, without looking for more."""
        apart, rate = self.apart, TEXT_RATE * self.view.calibration.factors[0]
        gone = (self.view[at] for at in range(self.first, self.cut) if at != apart)
        return [int(size * rate) for size in said_in(gone, self.view.marks)]

    @cached_property
    def asked_within(self) -> bool:
        """Whether what the user said last is only in what takes the place."""
        return self.apart is None and asked_within(self.view, self.cut)

    @property
    def tokens(self) -> int:
        """Of what is replaced."""
        return self.view.calibration.tokens(self._size)

    @property
    def removed(self) -> int:
        """The same without what stays apart, and what comes back."""
        gone = self._size if self.apart is None else self._size - self.view[self.apart].size
        return max(0, self.view.calibration.tokens(gone) - self.back)

    @cached_property
    def back(self) -> int:
        """Tokens of what is replaced that come back as they were."""
        room = self.most - fixed_tokens(self.request, self.before)
        return Back(self.view, self.stands, room).between(self.first, self.cut)

    @cached_property
    def _size(self) -> Size:
        """Worked out from what is not replaced, where that is less: nearly always it is."""
        view, first, cut = self.view, self.first, self.cut
        if 2 * (cut - first) < len(view):
            return size_of(self.stretch)
        rest = chain(range(first), range(cut, len(view)))
        return view.size - size_of(view[at] for at in rest)

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
        if self.tokens - self.back - words <= LEAST:
            return False
        said = self.said
        whole = len(said) - self.asked_within
        cut = [min(one, int(LONG * TEXT_RATE)) for one in said[:whole]]
        least = LEAST + self.back + sum(cut) + sum(said[whole:])
        return not self.automatic or self.before - self.tokens + least <= self.most

    def edits(self, text: str) -> tuple[Replace, ...]:
        return around(self.view, self.first, self.cut, self.apart, user(text))

    def after(self, edits: tuple[Replace, ...]) -> View:
        return applied(self.view, edits, BY)

    def tokens_with(self, view: View) -> int:
        return tokens_of(replace(self.request, view=view), self.pressure)

    def helped_by(self, after: View, able: Capabilities) -> bool:
        """Smaller than before, small enough if it must be, and allowed; what comes back counts."""
        tokens = self.tokens_with(after) + self.back
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
    stands: Stands | None = None,
) -> Plan | None:
    """From entry `first` to entry `last`; without either, all but the newest round, if there is one.

    `stands`: which messages come back after every compaction.
    """
    view = request.view
    if not len(view):
        return None
    whole = replace(everything(request, pressure, trigger), stands=stands)
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
        found = replace(whole, cut=cut)
        small = padded(view, kept) <= (room - found.back) * NEWEST
        if cut and small and allowed(view, found.after(found.edits("")), able):
            return found
    return whole
