"""Where the provider is asked to keep the prefix: the end, the last place it was asked before, and the
frontier of what was cleared: the message before the first one that a layer changed. What stands before it
is still in the cache, and only a mark near it lets the provider find it. What stands behind it is written
anew, without the marks it had, so a second mark stands where the next change will probably begin.

Two more marks stand in the frame (end of the static system part, end of the system), so a request has
at most four. A provider looks back at most 20 blocks from a mark for something it knows; a step that
adds more than that would miss everything, so the old mark stays until the new one is known.
"""

from __future__ import annotations

from typing import Final

from sevenfold.transcript import Id, Mark, View

LOOKBACK: Final = 18
"""Two fewer than the provider's 20: pins and merged messages may add blocks."""


FRONTIER: Final = "cache.frontier"
"""The name of the mark by which a layer says where its changes begin, the last one last, where the next one
may, and which message was the last one then.
"""
REMEMBERED: Final = 8
"""How many earlier frontiers are: what stands before each is still in the cache."""
MOST: Final = 3
"""Marks on messages; one is left for the system prompt."""


def place(view: View, *, writes: bool = True) -> tuple[Id, ...]:
    """The messages to mark. A request that must not write marks only what is already kept."""
    if not len(view):
        return ()
    old = last_asked(view)
    if not writes:
        return (view[old].id,) if old is not None else ()
    new = len(view) - 1
    last = frontier(view)
    known = [at for at in last[-3:-1] or last if at < new]
    wanted = {new, *(known if view.edited else known[-1:])}
    if old is not None and len(wanted) < MOST and _blocks(view, old + 1, new) > LOOKBACK:
        wanted.add(old)
    return tuple(view[at].id for at in sorted(wanted))


def frontier(view: View) -> list[int]:
    """Where changes began, where the next one may, and where the view ended when the last one was made."""
    value = view.marks.get(FRONTIER)
    ids = value if isinstance(value, list | tuple) else [value]
    found = [view.where(id) for id in ids if isinstance(id, int)]
    return [at for at in found if at is not None]


def frontier_at(view: View, first: int, then: int) -> Mark:
    """The mark for a change that begins at message `first`, the next one probably at message `then`."""
    before, (*known, end) = max(0, first - 1), frontier(view) or [0]
    if before < end:  # that was written in one go, and is known at those places alone
        before = max((at for at in known if at <= before), default=before)
    earlier = [at for at in known if at < before][-REMEMBERED:]
    places = (*earlier, before, max(before, then - 1), len(view) - 1)
    return Mark(FRONTIER, [view[at].id for at in places])


def _blocks(view: View, first: int, last: int) -> int:
    return sum(len(view[i].message.content) for i in range(first, last + 1))


def last_asked(view: View) -> int | None:
    """Where the request before this one ended: just before the newest reply of the model."""
    for at in range(len(view) - 1, 0, -1):
        if view[at].by == "model":
            return at - 1
    return None


def as_cached(view: View) -> View:
    """What the provider has of this view: all of it, unless much has come since the last request.

    A request beside the conversation pays in full for what is not in the cache yet, and the next request
    of the conversation pays for it again.
    """
    sent = last_asked(view)
    if sent is None:
        return view
    known = view.upto(sent + 1)
    new = view.calibration.tokens(view.size - known.size)
    return view if new <= SMALL else known


SMALL: Final = 1_500
"""Tokens that may be sent twice for the sake of what was said last."""
