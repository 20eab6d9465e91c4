"""Days, weeks and months as what a relative date can mean: `next week` is seven days with one name."""

from __future__ import annotations

import calendar
import datetime
from typing import Final

import msgspec

WEEK: Final = 7
EARLIEST: Final = 1000
LATEST: Final = 9000  # Years that are written with four digits, with room to count from


class DaySpan(msgspec.Struct, frozen=True):
    """The days that an expression means, and how they are written."""

    first: datetime.date
    last: datetime.date
    words: str  # The text that takes the place of the expression
    join: str = "on "  # The preposition for an English sentence that has none there


def make_day_span(date: datetime.date, part: str = "") -> DaySpan:
    """One day; `part` is its morning, afternoon or evening."""
    return DaySpan(date, date, f"{date.isoformat()}{part and ' ' + part}")


def make_night_span(date: datetime.date) -> DaySpan:
    return DaySpan(date, date, f"the night of {date.isoformat()}")


def make_week_span(date: datetime.date, edge: str = "") -> DaySpan:
    """The calendar week of a day; weeks begin on Monday."""
    first = date - datetime.timedelta(days=date.weekday())
    named = f"the week of {first.isoformat()}"
    return DaySpan(first, first + datetime.timedelta(days=6), _edged(named, edge), "in ")


def make_weekend_span(date: datetime.date) -> DaySpan:
    """Saturday and Sunday of the calendar week of a day."""
    first = date + datetime.timedelta(days=5 - date.weekday())
    return DaySpan(first, first + datetime.timedelta(days=1), f"the weekend of {first.isoformat()}")


def make_month_span(year: int, number: int, edge: str = "") -> DaySpan:
    """A month; one before January or after December is of another year."""
    years, index = divmod(number - 1, 12)
    first = datetime.date(year + years, index + 1, 1)
    last = first.replace(day=calendar.monthrange(first.year, first.month)[1])
    return DaySpan(first, last, _edged(f"{first:%Y-%m}", edge), "in ")


def make_quarter_span(year: int, number: int, edge: str = "") -> DaySpan:
    years, index = divmod(number - 1, 4)
    first = make_month_span(year + years, index * 3 + 1)
    last = make_month_span(year + years, index * 3 + 3)
    return DaySpan(first.first, last.last, _edged(f"{year + years}-Q{index + 1}", edge), "in ")


def make_year_span(number: int, edge: str = "") -> DaySpan:
    first, last = datetime.date(number, 1, 1), datetime.date(number, 12, 31)
    return DaySpan(first, last, _edged(f"{number}", edge), "in ")


def make_period_span(unit: str, date: datetime.date, by: int, edge: str = "") -> DaySpan:
    """The week, weekend, month, quarter or year that is `by` of them away from a day."""
    if unit.startswith("week"):
        there = date + datetime.timedelta(days=WEEK * by)
        return make_weekend_span(there) if "end" in unit else make_week_span(there, edge)
    if unit == "month":
        return make_month_span(date.year, date.month + by, edge)
    if unit in ("quarter", "qtr"):
        return make_quarter_span(date.year, (date.month - 1) // 3 + 1 + by, edge)
    return make_year_span(date.year + by, edge)


def shift_span(unit: str, date: datetime.date, by: int) -> DaySpan:
    """So many days, weeks, months or years from a day. Of months and years people mean no exact day."""
    if unit in ("day", "week"):
        return make_day_span(date + datetime.timedelta(days=by if unit == "day" else WEEK * by))
    if unit == "month":
        return make_month_span(date.year, date.month + by)
    return make_year_span(date.year + by)


def find_weekday_of_week(date: datetime.date, weekday: int, weeks: int = 0) -> datetime.date:
    """That weekday in the calendar week so many weeks away."""
    return date + datetime.timedelta(days=weekday - date.weekday() + WEEK * weeks)


def find_next_weekday(date: datetime.date, weekday: int) -> datetime.date:
    """The next day with that name after this one."""
    return date + datetime.timedelta(days=(weekday - date.weekday() - 1) % WEEK + 1)


def find_previous_weekday(date: datetime.date, weekday: int) -> datetime.date:
    """The last day with that name before this one."""
    return date - datetime.timedelta(days=(date.weekday() - weekday - 1) % WEEK + 1)


def find_day_in_month(span: DaySpan, number: int) -> DaySpan | None:
    """A day of a month by its number; none when the month has no such day."""
    return make_day_span(span.first.replace(day=number)) if 1 <= number <= span.last.day else None


def _edged(named: str, edge: str) -> str:
    return f"{edge} {named}" if edge else named
