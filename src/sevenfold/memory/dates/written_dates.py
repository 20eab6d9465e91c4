"""Calendar dates in prose: `2026-03-05`, `March 5th, 2026`, `5 March 2026`, `2026年3月5日`."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Final

import msgspec

_MONTHS: Final = "janfebmaraprmayjunjulaugsepoctnovdec"
_MONTH: Final = r"(?P<{0}>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE: Final = re.compile(
    r"(?<!\d)(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?![\d])"
    r"|(?P<cy>\d{4})\s*年\s*(?P<cm>\d{1,2})\s*月\s*(?P<cd>\d{1,2})\s*[日号號]?"
    rf"|\b{_MONTH.format('em')}\s+(?P<ed>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<ey>\d{{4}})\b"
    rf"|\b(?P<dd>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH.format('dm')},?\s+(?P<dy>\d{{4}})\b",
    re.IGNORECASE,
)


class WrittenDay(msgspec.Struct, frozen=True):
    """A calendar date where it stands in a text."""

    date: datetime.date
    start: int
    end: int


def find_dates(text: str) -> Iterator[WrittenDay]:
    """The calendar dates of a text, whatever the form they are written in."""
    for found in _DATE.finditer(text):
        parts = {name: value for name, value in found.groupdict().items() if value}
        year = next(int(parts[each]) for each in ("y", "cy", "ey", "dy") if each in parts)
        month = next(parts[each] for each in ("m", "cm", "em", "dm") if each in parts)
        day = next(int(parts[each]) for each in ("d", "cd", "ed", "dd") if each in parts)
        number = int(month) if month.isdigit() else _MONTHS.index(month[:3].lower()) // 3 + 1
        try:
            yield WrittenDay(datetime.date(year, number, day), *found.span())
        except ValueError:  # no such day
            continue
