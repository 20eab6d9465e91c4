"""Who is told what happens: a session and a `Context` say everything that they do to their audience."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from sevenfold.events import Event

EARLY: Final = 100
"""Events that wait for the first subscriber."""


class Audience:
    """Something that can be listened to."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Event], object]] = []
        self._early: deque[Event] = deque(maxlen=EARLY)
        self._overhearing: list[Callable[[Event], object]] = []

    def subscribe(self, subscriber: Callable[[Event], object]) -> Callable[[], None]:
        """Be told everything that happens; returns how to stop being told.

        The first to subscribe is also told what happened before, at the opening for instance.
        """
        self._subscribers.append(subscriber)
        while self._early:
            subscriber(self._early.popleft())
        return partial(self._subscribers.remove, subscriber)

    def overhear(self, listener: Callable[[Event], object]) -> None:
        """Be told everything from now on, and take nothing from whoever subscribes first."""
        self._overhearing.append(listener)

    def emit(self, event: Event) -> None:
        for listener in self._overhearing:
            listener(event)
        if not self._subscribers:
            self._early.append(event)
        for subscriber in tuple(self._subscribers):
            subscriber(event)
