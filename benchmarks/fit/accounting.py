"""What a list of requests costs at a provider that caches prompts, in base-price input tokens.

The cache is warm and every request ends in a breakpoint, so what a request shares with the one before,
whole messages from the start, is read, and the rest is written. What a provider cannot know is not
counted: replies cost the same whoever prepares the requests.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

READ: Final = 0.1
WRITE: Final = 1.25
"""A write that is kept for five minutes."""
OUTPUT: Final = 5.0
BROKEN: Final = 0.05
"""A request breaks the prefix when more than this share of what was sent before has to be sent anew."""


@dataclass(frozen=True, slots=True)
class Part:
    """One message of a request: equal parts are the same bytes."""

    key: Hashable
    tokens: float


@dataclass(slots=True)
class Bill:
    """Takes the requests in order and adds up."""

    cost: float = 0.0
    requests: int = 0
    breaks: int = 0
    changed: int = 0
    """Requests that lost anything at all of the prefix."""
    last: float = 0.0
    """Tokens of the newest request."""
    sent: float = 0.0
    """Tokens of all requests."""
    calls: float = 0.0
    """The part of the cost that went into calls beside the conversation: summaries."""
    _before: Sequence[Part] = field(default=())

    def request(self, parts: Sequence[Part]) -> tuple[float, float]:
        """Returns what is read from the cache and what is written to it."""
        same = 0
        for old, new in zip(self._before, parts, strict=False):
            if old is not new and old.key != new.key:
                break
            same += 1
        read, written = _sum(parts[:same]), _sum(parts[same:])
        lost = self.last - read
        self.changed += same < len(self._before)
        self.breaks += lost > BROKEN * self.last
        self.cost += read * READ + written * WRITE
        self.requests += 1
        self.last = read + written
        self.sent += self.last
        self._before = tuple(parts)
        return read, written

    def call(self, uncached: float, output: float) -> None:
        """A call beside the conversation that shares no prefix with it: a summary."""
        cost = uncached + output * OUTPUT
        self.cost += cost
        self.calls += cost

    @property
    def average(self) -> float:
        return self.sent / self.requests if self.requests else 0.0


def _sum(parts: Iterable[Part]) -> float:
    return sum(part.tokens for part in parts)
