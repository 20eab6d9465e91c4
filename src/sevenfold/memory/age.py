"""How old a memory is, in words, and the warning that goes with an old one."""

from __future__ import annotations

import datetime
import math
from typing import Final

DAY: Final = 86_400.0
CAVEAT_AFTER: Final = 2 * DAY
"""Seconds after which a memory is shown with a warning: two whole days."""


def days_ago(modified: float, now: float) -> int:
    """Local calendar days between then and now; a clock that jumped back gives none."""
    if not math.isfinite(modified) or not math.isfinite(now) or modified >= now:
        return 0
    try:
        return max(0, (_day(now) - _day(modified)).days)
    except (OverflowError, OSError, ValueError):  # a year that no calendar knows
        return int((now - modified) // DAY)


def age(modified: float, now: float) -> str:
    """`today`, `yesterday` or `12 days ago`."""
    days = days_ago(modified, now)
    return "today" if days == 0 else "yesterday" if days == 1 else f"{days} days ago"


def caveat(modified: float, now: float) -> str:
    """What a reader of an old memory is told; empty while it is younger than two whole days."""
    if not now - modified >= CAVEAT_AFTER:
        return ""
    return (
        f"Written {age(modified, now)}: this is how things looked then, and they may have changed. "
        "Check it against the code, the files or the person before you rely on it."
    )


def _day(at: float) -> datetime.date:
    return datetime.datetime.fromtimestamp(at).astimezone().date()
