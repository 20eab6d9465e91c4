"""What work in the background may cost in a day: one small file that all sessions of a user share.

Money is reserved before it is spent, so that two sessions together do not go over the limit, and what was
reserved too much is given back. A ledger that cannot be read or written lets nothing be spent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from sevenfold.clock import date_of
from sevenfold.protocols import Clock
from sevenfold.storage.files import read_if_there, write_atomic
from sevenfold.storage.locking import alone

NAME: Final = "spending.json"
_LARGEST: Final = 100_000


class Day(msgspec.Struct, frozen=True):
    """A calendar day and what was spent on it, in the currency of the price table."""

    day: str
    spent: float = 0.0
    by: dict[str, float] = {}
    """The same by who spent it."""


class Spending:
    """`<home>/spending.json`: today's sum. Days before today are forgotten."""

    def __init__(self, home: Path, limit: float | None, clock: Clock) -> None:
        """`limit` is for one day; None: there is none, and the sum is kept all the same."""
        self._file, self._limit, self._clock = home / NAME, limit, clock

    def reserve(self, by: str, amount: float) -> bool:
        """Set money aside before it is spent; False when the day's limit would be passed by it.

        Raises `StorageFailure` when the ledger cannot be kept: then nothing may be spent.
        """
        with alone(self._file):
            today = self._today()
            allowed = self._limit is None or today.spent + amount <= self._limit
            self._write(_plus(today, by, amount) if allowed else today)
        return allowed

    def settle(self, by: str, reserved: float, cost: float) -> None:
        """Put what it really cost in place of what was reserved."""
        with alone(self._file):
            self._write(_plus(self._today(), by, cost - reserved))

    @property
    def today(self) -> Day:
        """What was spent today."""
        return self._today()

    def _today(self) -> Day:
        day = date_of(self._clock.now())
        data = read_if_there(self._file, _LARGEST)
        if data is None:
            return Day(day)
        try:
            known = msgspec.json.decode(data, type=Day)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return Day(day, self._limit or 0.0)  # nobody knows: nothing more today
        return known if known.day == day else Day(day)

    def _write(self, day: Day) -> None:
        write_atomic(self._file, msgspec.json.encode(day) + b"\n", nofollow=True)


def _plus(day: Day, by: str, amount: float) -> Day:
    before = day.by.get(by, 0.0)
    return Day(day.day, max(0.0, day.spent + amount), {**day.by, by: max(0.0, before + amount)})
