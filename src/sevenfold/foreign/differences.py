"""How one list became another, told in the few steps that our log has words for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["keep", "out", "swap", "undo"]


class Step(msgspec.Struct, frozen=True):
    """What happens to `count` items of the old list, of which the first stands at `old`."""

    kind: Kind
    old: int
    new: int
    """Where in the new list this is."""
    count: int = 1


def differences(
    old: Sequence[str],
    new: Sequence[str],
    answers: Callable[[int], bool],
    swappable: Callable[[int, int], bool],
) -> list[Step]:
    """Steps through the whole old list; what the new one has beyond the last step is new.

    keep: it is still there. out: it was taken out. swap: another stands in its place and the next is as
    it was. undo: nothing simpler can be said, and from here on everything is learned anew. An item of the
    old list that `answers` the one before it is only kept together with that one.
    """
    places: dict[str, list[int]] = {}
    for at, item in enumerate(old):
        if not answers(at):
            places.setdefault(item, []).append(at)
    steps: list[Step] = []
    i = j = 0
    while i < len(old):
        if old[i : i + 1] == new[j : j + 1] and (not answers(i) or _kept(steps, i - 1)):
            steps.append(Step("keep", i, j))
            i, j = i + 1, j + 1
        elif j < len(new) and (later := _after(places.get(new[j], ()), i)) is not None:
            steps.append(Step("out", i, j, later - i))
            i = later
        elif old[i + 1 : i + 2] == new[j + 1 : j + 2] != [] and swappable(i, j):
            steps.append(Step("swap", i, j))
            i, j = i + 1, j + 1
        else:
            steps.append(Step("undo", i, j, len(old) - i))
            break
    return steps


def _kept(steps: Sequence[Step], at: int) -> bool:
    """Whether the item at this place was the last to be kept. Before the first one nothing changed."""
    return steps[-1].kind == "keep" and steps[-1].old == at if steps else at < 0


def _after(places: Sequence[int], at: int) -> int | None:
    """The first of these places behind `at`."""
    next_one = bisect_right(places, at)
    return places[next_one] if next_one < len(places) else None
