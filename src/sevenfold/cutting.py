"""Where a view may be cut, what has to stay, and what the request then comes to in tokens.

The rules that all compactions share. How much each of them keeps is its own affair.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sevenfold.invariants import breaks_open_loop, open_loop, safe_cut, unbound
from sevenfold.messages import THOUGHTS, Message
from sevenfold.protocols import Capabilities
from sevenfold.request import Request, pressure_of
from sevenfold.tokens import TAIL_PADDING, Pressure, Size
from sevenfold.transcript import Entry, Placed, Replace, View

UNKNOWN_GAP: Final = 0.2
"""The part to free when the provider says "too long" and not by how much."""


# --- how much -------------------------------------------------------------------------------------------


def tokens_of(request: Request, pressure: Pressure) -> int:
    """What we count ourselves, whatever the provider said."""
    return pressure_of(request, pressure.thresholds, 0.0).tokens


def fixed_tokens(request: Request, total: int) -> int:
    """Tokens that no replacement can free: system, tools, and what our estimate of messages misses."""
    view = request.view
    return max(0, total - view.calibration.tokens(view.size))


def aim(before: int, pressure: Pressure) -> int:
    """What the request should come to, in tokens as we count them."""
    limit = pressure.thresholds.auto_compact
    if not pressure.refused:
        return limit
    really = pressure.tokens + pressure.over  # at least the window, and we had counted less
    gap = pressure.over * 1.1 or before * UNKNOWN_GAP
    return int(min(limit * min(1.0, before / really), before - gap))


def size_of(placed: Iterable[Placed]) -> Size:
    return sum((one.size for one in placed), Size())


def padded(view: View, size: Size) -> int:
    """Tokens of what would be kept, measured larger than they are: no estimate may keep too much."""
    return int(view.calibration.tokens(size) * TAIL_PADDING)


# --- where ----------------------------------------------------------------------------------------------


def may_cut(view: View, at: int) -> bool:
    """No pair, no response and no replacement is split before this message."""
    if not 0 < at < len(view):
        return True
    here, before = view[at], view[at - 1]
    together = here.message.role == before.message.role == "assistant" or here.id == before.id
    return safe_cut(view, at) and not together


def may_begin(view: View, at: int, loop: int) -> bool:
    """Whether what is kept may begin here: nothing is split, and a tool loop that is going on, from
    `loop` on (`thinking_loop`), keeps the thinking it began with.
    """
    return may_cut(view, at) and (at <= loop or at >= len(view) or thinks(view[at]))


def thinking_loop(view: View) -> int:
    """Where the tool loop begins that is going on and has thinking in it; the end when there is none."""
    loop = open_loop(view)
    return loop if any(thinks(view[at]) for at in range(loop, len(view))) else len(view)


def thinks(placed: Placed) -> bool:
    return any(isinstance(block, THOUGHTS) for block in placed.message.content)


# --- what comes of it -----------------------------------------------------------------------------------


def around(
    view: View, first: int, cut: int, apart: int | None, message: Message
) -> tuple[Replace, ...]:
    """The message in place of all from `first` to before `cut`, but for the one that stays apart."""
    if apart is None:
        return (Replace(view[first].id, view[cut - 1].id, (message,)),)
    before = (Replace(view[first].id, view[apart - 1].id, (message,)),) if apart > first else ()
    if apart + 1 == cut:
        return before
    return (*before, Replace(view[apart + 1].id, view[cut - 1].id, () if before else (message,)))


def applied(view: View, whats: Iterable[Replace | Message], by: str) -> View:
    """The view as it will be; nothing is written."""
    free = max(placed.id for placed in view) + 1
    for id, what in enumerate(whats, free):
        view = view.after(Entry(id, 0.0, what, by))
    return view


def allowed(view: View, after: View, able: Capabilities) -> bool:
    """Thinking that is bound goes with any change before it, and a loop that needs it as a whole."""
    first = unbound(view, after) if able.loses_thinking else None
    return first is None or not breaks_open_loop(after, first)
