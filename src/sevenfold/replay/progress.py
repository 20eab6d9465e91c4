"""How far a replay is, how fast it goes, and how long it will still take: one line that is drawn again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final, TextIO

TICK: Final = 0.1
"""Seconds between two drawings."""
CLEAR: Final = "\r\x1b[K"


@dataclass(slots=True)
class Progress:
    """Told of every file that is done; draws on `out`, which is a terminal."""

    out: TextIO
    files: int
    size: int
    """Bytes of all files."""
    now: Callable[[], float] = monotonic
    done: int = 0
    read: int = 0
    requests: int = 0
    _began: float | None = None
    _drawn: float = float("-inf")

    def start(self) -> None:
        self._began = self.now()
        self.draw()

    def add(self, size: int, requests: int) -> None:
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
        said = f"replaying: {self.done:,} of {self.files:,} files"
        if not self.done or took <= 0:
            return said
        said += f" · {self.requests / took:,.0f} requests/s"
        if self.read and self.size > self.read:
            said += f" · {_left((self.size - self.read) * took / self.read)} left"
        return said


def _left(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5_400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3_600:.1f} h"
