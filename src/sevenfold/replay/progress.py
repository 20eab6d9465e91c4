"""How far a replay is, how fast it goes, and how long it will still take: one line that is drawn again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, TextIO

TICK: Final = 0.1
"""Seconds between two drawings."""
CLEAR: Final = "\r\x1b[K"


@dataclass(slots=True)
class Progress:
    """Told of every file that is done, and how far others are; draws on `out`, which is a terminal."""

    out: TextIO
    files: int
    size: int
    """Bytes of all files."""
    now: Callable[[], float] = monotonic
    done: int = 0
    read: int = 0
    requests: int = 0
    _within: dict[int, tuple[float, int]] = field(default_factory=dict)
    """Of files that are not done yet: bytes and requests that are."""
    _began: float | None = None
    _drawn: float = float("-inf")

    def start(self) -> None:
        self._began = self.now()
        self.draw()

    def underway(self, number: int, read: float, requests: int) -> None:
        """So many bytes of a file are done, and as many requests."""
        self._within[number] = read, requests
        if self.now() - self._drawn >= TICK:
            self.draw()

    def add(self, size: int, requests: int, number: int = -1) -> None:
        self._within.pop(number, None)
        self.done += 1
        self.read += size
        self.requests += requests
        if self.now() - self._drawn >= TICK:
            self.draw()

    def draw(self) -> None:
        self._drawn = self.now()
        self.out.write(f"{CLEAR}{self.line()}")
        self.out.flush()

    def end(self) -> None:
        self.out.write(CLEAR)
        self.out.flush()

    def line(self) -> str:
        took = self.now() - (self.now() if self._began is None else self._began)
        said = f"replaying: {self.done:,} of {self.files:,} file{'' if self.files == 1 else 's'}"
        read = self.read + sum(part for part, _ in self._within.values())
        requests = self.requests + sum(number for _, number in self._within.values())
        if not (self.done or self._within) or took <= 0:
            return said
        if self._within and self.size:
            said += f" · {min(99.0, 100 * read / self.size):.0f}%"
        said += f" · {requests / took:,.0f} requests/s"
        if read and self.size > read:
            said += f" · {_left((self.size - read) * took / read)} left"
        return said


def _left(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5_400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3_600:.1f} h"
