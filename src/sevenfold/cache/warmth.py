"""Until when the provider keeps the main conversation's prefix: what every request does to its life.

A prefix lives for five minutes or an hour from the start of the request that wrote it or last read it,
whoever sent that: a request beside the conversation that reads the prefix keeps it alive as well. What
was written for five minutes stays so when it is read through a mark for an hour; what that request writes
behind it is an entry of its own, which lives for an hour.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from sevenfold.request import TTL_SECONDS, Frame, Request, Ttl
from sevenfold.tokens import Usage

MAIN: Final = "main"
READ: Final = 0.95
"""A request that reads less than this share of what was kept has not used it as a whole."""


class Warmth:
    """What is known of the provider's cache for one conversation."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._frame: Frame | None = None
        self._cached = 0
        self._until = 0.0

    def recall(self, frame: Frame, at: float, cached: int) -> None:
        """After a resume: when the conversation was last sent, and how much of it was kept."""
        self._keep(frame, at, cached)

    def begin(self, source: str, now: float) -> None:
        """A request of this source goes out: lives are counted from here, not from the reply."""
        self._began[source] = now

    def used(self, request: Request, usage: Usage, now: float) -> None:
        """A request was answered."""
        began = self._began.pop(request.source, now)
        if request.source == MAIN:
            self._keep(request.frame, began, usage.cache_read + usage.cache_write)
        elif self._same(request.frame) and usage.cache_read >= READ * self._cached > 0:
            life = TTL_SECONDS[request.frame.ttl if usage.cache_write_1h else self._ttl]
            self._until = max(self._until, began + life)

    def until(self, frame: Frame) -> float | None:
        """Until when the prefix of this frame is kept; None when nothing of it is."""
        return self._until if self._cached and self._same(frame) else None

    def _keep(self, frame: Frame, at: float, cached: int) -> None:
        """As a whole it lives as long as its end, which is marked as the frame says."""
        self._frame, self._cached = frame, cached
        self._until = at + TTL_SECONDS[frame.ttl]

    @property
    def _ttl(self) -> Ttl:
        return self._frame.ttl if self._frame else "5m"

    def _same(self, frame: Frame) -> bool:
        known = self._frame
        return known is frame or (known is not None and replace(frame, ttl=known.ttl) == known)
