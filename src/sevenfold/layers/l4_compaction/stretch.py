"""Which stretch of a view is summed up: its rounds, where a tail may begin, what stood before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from sevenfold.cutting import may_begin, may_cut, size_of, thinking_loop
from sevenfold.facts import call_of
from sevenfold.transcript import Placed, View


def rounds(placed: Sequence[Placed]) -> list[Sequence[Placed]]:
    """By API round: a reply of the model and all that came until the next one."""
    starts = [
        at
        for at in range(1, len(placed))
        if placed[at].message.role == "assistant" and placed[at - 1].message.role != "assistant"
    ]
    bounds = [0, *starts, len(placed)]
    return [placed[a:b] for a, b in pairwise(bounds) if a < b]


def tails(view: View) -> Iterator[int]:
    """Where what is kept may begin, the gentlest first: the newest round, what came after its results,
    and the end, where nothing is kept.
    """
    loop = thinking_loop(view)
    newest = len(view) - len(rounds(list(view))[-1]) if len(view) else 0
    answered = next((at for at in range(newest + 1, len(view)) if may_cut(view, at)), len(view))
    for at in dict.fromkeys((newest, answered, len(view))):
        if may_begin(view, at, loop):
            yield at


def replied(view: View, at: int) -> int:
    """Where the reply that begins here ends; here, if none does."""
    while at < len(view) and view[at].message.role == "assistant":
        at += 1
    return at


def widened(view: View, first: int, cut: int) -> tuple[int, int]:
    """The same stretch, with what may not be torn from it."""
    while not may_cut(view, first):
        first -= 1
    while not may_cut(view, cut):
        cut += 1
    return first, cut


def beginning(view: View, cut: int) -> View:
    """The view as it was when it ended before this message: the same bytes, so the same cache."""
    here = [view[i] for i in range(cut)]
    ids = {placed.id for placed in here}
    pins = tuple(pin for pin in view.pins if pin.after in ids)
    return replace(view, length=cut, size=size_of(here), pins=pins)


def unread(view: View) -> tuple[tuple[str, str], ...]:
    """The newest calls and their results, when nobody has answered them yet."""
    if len(view) < 2 or not (results := view[-1].message.results):
        return ()
    uses = {use.id: use for use in view[-2].message.tool_uses}
    return tuple(
        (call_of(uses[r.tool_use_id]).name, r.text) for r in results if r.tool_use_id in uses
    )
