"""Days, weeks and months as what a relative date can mean: `next week` is seven days with one name."""

from __future__ import annotations

import calendar
import datetime
from typing import Final

import msgspec

WEEK: Final = 7
EARLIEST: Final = 1000
LATEST: Final = 9000
"""Years that are written with four digits, with room to count from."""


class Span(msgspec.Struct, frozen=True):
    """The days that an expression means, and how they are written."""

    first: datetime.date
    last: datetime.date
    words: str
    """What stands in the place of the expression."""
    join: str = "on "
    """What goes before it in an English sentence that has no preposition there."""


def day(date: datetime.date, part: str = "") -> Span:
    """One day; `part` is its morning, afternoon or evening."""
    return Span(date, date, f"{date.isoformat()}{part and ' ' + part}")


def night(date: datetime.date) -> Span:
    return Span(date, date, f"the night of {date.isoformat()}")


def week(date: datetime.date, edge: str = "") -> Span:
    """The calendar week of a day; weeks begin on Monday."""
    first = date - datetime.timedelta(days=date.weekday())
    named = f"the week of {first.isoformat()}"
    return Span(first, first + datetime.timedelta(days=6), _edged(named, edge), "in ")


def weekend(date: datetime.date) -> Span:
    """Saturday and Sunday of the calendar week of a day."""
    first = date + datetime.timedelta(days=5 - date.weekday())
    last = first + datetime.timedelta(days=1)
    return Span(first, last, f"the weekend of {first.isoformat()}")


def month(year: int, number: int, edge: str = "") -> Span:
    """A month; one before January or after December is of another year."""
    years, index = divmod(number - 1, 12)
    first = datetime.date(year + years, index + 1, 1)
    last = first.replace(day=calendar.monthrange(first.year, first.month)[1])
    return Span(first, last, _edged(f"{first:%Y-%m}", edge), "in ")


def quarter(year: int, number: int, edge: str = "") -> Span:
    years, index = divmod(number - 1, 4)
    first = month(year + years, index * 3 + 1)
    last = month(year + years, index * 3 + 3)
    return Span(first.first, last.last, _edged(f"{year + years}-Q{index + 1}", edge), "in ")


def whole_year(number: int, edge: str = "") -> Span:
    first, last = datetime.date(number, 1, 1), datetime.date(number, 12, 31)
    return Span(first, last, _edged(f"{number}", edge), "in ")


def period(unit: str, date: datetime.date, by: int, edge: str = "") -> Span:
    """The week, weekend, month, quarter or year that is `by` of them away from a day."""
    if unit.startswith("week"):
        there = date + datetime.timedelta(days=WEEK * by)
        return weekend(there) if "end" in unit else week(there, edge)
    if unit == "month":
        return month(date.year, date.month + by, edge)
    if unit in ("quarter", "qtr"):
        return quarter(date.year, (date.month - 1) // 3 + 1 + by, edge)
    return whole_year(date.year + by, edge)


def shifted(unit: str, date: datetime.date, by: int) -> Span:
    """So many days, weeks, months or years from a day. Of months and years people mean no exact day."""
    if unit == "day":
        return day(date + datetime.timedelta(days=by))
    if unit == "week":
        return day(date + datetime.timedelta(days=WEEK * by))
    if unit == "month":
        return month(date.year, date.month + by)
    return whole_year(date.year + by)


def weekday_of_week(date: datetime.date, weekday: int, weeks: int = 0) -> datetime.date:
    """That weekday in the calendar week so many weeks away."""
    return date + datetime.timedelta(days=weekday - date.weekday() + WEEK * weeks)


def coming(date: datetime.date, weekday: int) -> datetime.date:
    """The next day with that name after this one."""
    return date + datetime.timedelta(days=(weekday - date.weekday() - 1) % WEEK + 1)


def gone(date: datetime.date, weekday: int) -> datetime.date:
    """The last day with that name before this one."""
    return date - datetime.timedelta(days=(date.weekday() - weekday - 1) % WEEK + 1)


def in_month(span: Span, number: int) -> Span | None:
    """A day of a month by its number; none when the month has no such day."""
    if not 1 <= number <= span.last.day:
        return None
    return day(span.first.replace(day=number))


def _edged(named: str, edge: str) -> str:
    return f"{edge} {named}" if edge else named
