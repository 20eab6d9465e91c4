"""What has to be in the view after every compaction: the standing instructions, the index of memory.

It is no part of what a compaction may replace for good, as little as the system prompt is. A plan counts it
as what stays, it is read again and given back before anything else, and where a window is too small for all
of it the user is told what is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from sevenfold.cutting import size_of
from sevenfold.messages import Message
from sevenfold.restore import Cut
from sevenfold.transcript import Placed, View

SHARE: Final = 0.75
"""The most of the room for messages that it may take: in the rest, work has to go on."""
RESTORED: Final = 0.5
"""The most of the room that a compaction leaves that everything else that is given back may take."""

Stands: TypeAlias = Callable[[Placed], bool]
"""Whether a message is such a one."""
Restore: TypeAlias = Callable[[View, range, int, int], Sequence[Message]]
"""What the model should see again: given the view, the places that leave it, the window and the room."""


class Standing(Protocol):
    """Gives it back."""

    @property
    def stands(self) -> Stands:
        """Tells whether a message is it, or a part of it."""
        ...

    def again(self, cut: Cut, room: int) -> Sequence[Message]:
        """It, as it is now; nothing where it has not left the view. Of more than `room` tokens a part."""
        ...


class Back:
    """How many tokens of what leaves a view come back. `room`: tokens that there are for messages."""

    def __init__(self, view: View, stands: Stands | None, room: int) -> None:
        self._view, self._most = view, max(0, int(room * SHARE))
        self._places = [at for at, one in enumerate(view) if stands(one)] if stands else []

    @property
    def all(self) -> int:
        return self.between(0, len(self._view))

    def between(self, first: int, end: int) -> int:
        """Where it is messages `first` to before `end` that leave."""
        gone = [self._view[at] for at in self._places if first <= at < end]
        return min(self._most, self._view.calibration.tokens(size_of(gone))) if gone else 0


class Again:
    """All that a compaction gives back: what stands, and of the rest what there is room for."""

    def __init__(self, restore: Restore, standing: Standing | None = None) -> None:
        self._restore, self._standing = restore, standing

    def __call__(self, cut: Cut, room: int, whole: int) -> list[Message]:
        """`room`: tokens that may be filled again; `whole`: the same for what has to come back."""
        first = self._standing.again(cut, max(0, whole)) if self._standing else ()
        room -= sum(cut.tokens(message.text) for message in first)
        part = max(0, int(room * RESTORED))
        return [*first, *self._restore(cut.view, cut.gone, cut.window, part)]

    def at_once(self, view: View, gone: range, window: int, room: int) -> Sequence[Message]:
        """The same for whoever hands in the part of the room that is for the rest."""
        there = int(room / RESTORED)
        return self(Cut(view, gone, window), there, there)
