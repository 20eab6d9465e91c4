"""Time as an argument: the only module that asks the machine what time it is."""

from __future__ import annotations

import datetime
import time

import anyio


class SystemClock:
    """The wall clock, and real waiting."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


def date_of(at: float) -> str:
    """The local calendar day of a moment, as people write it."""
    return datetime.datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d")
