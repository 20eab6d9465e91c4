"""Ctrl-C and its relatives: the first stops what is going on, the second within two seconds leaves."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final

import anyio

from sevenfold.background import owned_tasks
from sevenfold.cli.failing import INTERRUPTED

TWICE: Final = 2.0
"""Seconds within which a second Ctrl-C means: leave."""
_ENDING: Final = ("SIGINT", "SIGTERM", "SIGHUP")


class Interrupts:
    """Counts; what a first and a second one do is up to whoever asks."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._last: float | None = None
        self.leaving = False

    def again(self) -> bool:
        """Note one more; whether it is the second in a short time."""
        now, last = self._now(), self._last
        self._last = now
        self.leaving = self.leaving or (last is not None and now - last <= TWICE)
        return self.leaving


@asynccontextmanager
async def watching(on_signal: Callable[[int], object]) -> AsyncIterator[None]:
    """Call this for every signal that asks us to end, while what is inside runs."""
    if sys.platform == "win32":  # no such signals: Ctrl-C is a KeyboardInterrupt there
        yield
        return

    async def watch(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(*(getattr(signal, name) for name in _ENDING)) as signals:
            task_status.started()
            async for number in signals:
                on_signal(number)

    async with owned_tasks() as tasks:
        await tasks.start(watch)
        yield


def leave_at_once() -> None:
    """The last resort, when a second request to end was not heard either. All is on disk already."""
    sys.stderr.flush()
    os._exit(INTERRUPTED)
