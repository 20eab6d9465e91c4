"""Where the provider is asked to keep the prefix: the end, and the last place it was asked before.

Two more marks stand in the frame (end of the static system part, end of the system), so a request has
at most four. A provider looks back at most 20 blocks from a mark for something it knows; a step that
adds more than that would miss everything, so the old mark stays until the new one is known.
"""

from __future__ import annotations

from typing import Final

from sevenfold.transcript import Id, View

LOOKBACK: Final = 18
"""Two fewer than the provider's 20: pins and merged messages may add blocks."""


def place(view: View, *, writes: bool = True) -> tuple[Id, ...]:
    """The messages to mark. A request that must not write marks only what is already kept."""
    if not len(view):
        return ()
    old = last_asked(view)
    if not writes:
        return (view[old].id,) if old is not None else ()
    new = len(view) - 1
    if old is None or old == new:
        return (view[new].id,)
    added = sum(len(view[i].message.content) for i in range(old + 1, new + 1))
    return (view[old].id, view[new].id) if added > LOOKBACK else (view[new].id,)


def last_asked(view: View) -> int | None:
    """Where the request before this one ended: just before the newest reply of the model."""
    for at in range(len(view) - 1, 0, -1):
        if view[at].by == "model":
            return at - 1
    return None
