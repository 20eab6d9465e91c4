"""A recalled memory, and the tag that marks recalled text as a copy.

Recalled text is shown as data: it must not be taken for something that was said and be saved again. An
old memory carries its age and a warning.
"""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.core.messages import Message, Text
from sevenfold.core.transcript import PlacedMessage

TAG: Final = "recalled-memories"
BY: Final = "Recall"  # The `by` of recalled memories in the transcript
_OPENING: Final = f"<{TAG} "


class Recalled(msgspec.Struct, frozen=True):
    """One memory that a search has found."""

    name: str
    file: str  # Its path below the memory folder, with forward slashes
    path: Path
    type: str | None
    description: str
    modified: float
    score: float
    text: str  # The whole body


def is_recalled(what: PlacedMessage | Message) -> bool:
    """True for recalled text. For a message in a view its `by` counts too."""
    if isinstance(what, PlacedMessage):
        return what.by == BY and is_recalled(what.message)
    if what.role != "user" or not what.content:
        return False
    first = what.content[0]
    return isinstance(first, Text) and first.text.startswith(_OPENING)


DAY: Final = 86_400.0
CAVEAT_AFTER: Final = 2 * DAY  # Seconds after which a memory is shown with a warning: two whole days


def count_days_ago(modified: float, now: float) -> int:
    """Local calendar days between then and now; a clock that jumped back gives none."""
    if not math.isfinite(modified) or not math.isfinite(now) or modified >= now:
        return 0
    try:
        return max(0, (_day(now) - _day(modified)).days)
    except (OverflowError, OSError, ValueError):  # a year that no calendar knows
        return int((now - modified) // DAY)


def format_age(modified: float, now: float) -> str:
    """`today`, `yesterday` or `12 days ago`."""
    days = count_days_ago(modified, now)
    return "today" if days == 0 else "yesterday" if days == 1 else f"{days} days ago"


def format_caveat(modified: float, now: float) -> str:
    """The warning about an old memory; empty while it is younger than two whole days."""
    if not now - modified >= CAVEAT_AFTER:
        return ""
    return (
        f"Written {format_age(modified, now)}: this is how things looked then, and they may have changed. "
        "Check it against the code, the files or the person before you rely on it."
    )


def _day(at: float) -> datetime.date:
    return datetime.datetime.fromtimestamp(at).astimezone().date()
