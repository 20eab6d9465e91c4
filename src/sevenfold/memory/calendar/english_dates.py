"""Relative dates in English: how they are written, and which days they mean.

Weeks begin on Monday, and `next Friday` is the Friday of the next calendar week. Where people differ
about an expression (`last Monday` on a Tuesday, `next March` in February) there is no answer.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias

from sevenfold.memory.calendar.calendar_days import (
    Span,
    coming,
    day,
    gone,
    in_month,
    month,
    night,
    period,
    shifted,
    week,
    weekday_of_week,
)

Resolve: TypeAlias = Callable[[re.Match[str], datetime.date], Span | None]

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_NUMBERS: Final = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12,
}  # fmt: skip
_DAY: Final = r"(?P<weekday>(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:mon|tue|wed|thu|fri)\b)"
_PART: Final = r"(?:\s+(?P<part>morning|afternoon|evening|night))?"
_WHICH: Final = r"(?P<which>last|previous|next|this\s+coming|this\s+past|coming|upcoming|this)"
_COUNT: Final = rf"(?P<count>\d{{1,3}}|{'|'.join(_NUMBERS)})"
_EDGES: Final = r"early|late|mid|(?:the\s+)?(?:very\s+)?(?:end|beginning|start|middle)\s+of"
_EDGE: Final = rf"(?:(?P<edge>{_EDGES})[\s-]+)?"
_NOT_OF: Final = rf"(?!\s+of\b|\s+in\s+(?:{'|'.join(_MONTHS)})|\s+end\b|-\w)"
_BEFORE: Final = {"last": -1, "previous": -1, "this": 0, "next": 1}


def weekday_number(name: str) -> int:
    return _DAYS.index(name[:3].lower())


def _named_day(match: re.Match[str], today: datetime.date) -> Span | None:
    words = " ".join(match["word"].lower().split())
    by = next(n for start, n in _DAY_WORDS if words.removeprefix("the ").startswith(start))
    date = today + datetime.timedelta(days=by)
    if words in ("tonight", "last night") or (match["part"] or "").lower() == "night":
        return night(date)
    part = match["part"] or next((p for p in _PARTS if words.endswith(p)), "")
    return day(date, part.lower())


_PARTS: Final = ("morning", "afternoon", "evening")
_DAY_WORDS: Final = (
    ("day before", -2), ("day after", 2), ("yesterday", -1), ("tomorrow", 1), ("today", 0),
    ("earlier today", 0), ("later today", 0), ("tonight", 0), ("last night", -1), ("this", 0),
)  # fmt: skip


def _weekday(match: re.Match[str], today: datetime.date) -> Span | None:
    which = " ".join(match["which"].lower().split())
    date = _that_weekday(which, weekday_number(match["weekday"]), today)
    return None if date is None else day(date, (match["part"] or "").lower())


def _that_weekday(which: str, weekday: int, today: datetime.date) -> datetime.date | None:
    """None where people differ: `last Monday` on a Tuesday, `this Monday` on a Wednesday."""
    if which == "next":
        return weekday_of_week(today, weekday, 1)
    if which in ("last", "previous"):
        date = gone(today, weekday)
        return date if date < weekday_of_week(today, 0) or today.weekday() == weekday else None
    if which == "this past":
        return gone(today, weekday)
    if which == "this":
        date = weekday_of_week(today, weekday)
        if date < today and today.weekday() != 6:  # on a Sunday the new week is meant
            return None
        return date if date >= today else coming(today, weekday)
    return coming(today, weekday)


def _weekday_of_week(match: re.Match[str], today: datetime.date) -> Span | None:
    by = _BEFORE[match["which_week"].lower()]
    return day(weekday_of_week(today, weekday_number(match["weekday"]), by))


def _weekday_after_next(match: re.Match[str], today: datetime.date) -> Span | None:
    """The one after the next that comes; on the day itself nobody knows which is counted."""
    weekday = weekday_number(match["weekday"])
    if weekday == today.weekday():
        return None
    return day(coming(today, weekday) + datetime.timedelta(days=7))


def _edge_of(match: re.Match[str]) -> str:
    edge = " ".join((match["edge"] or "").lower().split())
    return f"the {edge}" if edge.startswith(("end", "beginning", "start", "middle")) else edge


def _period(match: re.Match[str], today: datetime.date) -> Span | None:
    which, unit = match["which"].lower(), re.sub(r"[\s-]", "", match["unit"].lower())
    if which not in _BEFORE or unit == "yr":
        by = {"yr": _BEFORE.get(which)}.get(unit)
        return None if by is None else period("year", today, by, _edge_of(match))
    if unit == "weekend" and today.weekday() >= 5:
        return None  # on a weekend nobody knows which one is meant
    if unit == "weekend" and which == "next":
        return None  # the coming one for some, the one after it for others
    return period(unit, today, _BEFORE[which], _edge_of(match))


def _after_next(match: re.Match[str], today: datetime.date) -> Span | None:
    return period(match["unit"].lower(), today, 2)


def _named_month(match: re.Match[str], today: datetime.date) -> Span | None:
    """Only where there is one answer: in November, `next March` is of next year."""
    which, number = match["which"].lower(), _MONTHS.index(match["month"].lower()) + 1
    edge = _edge_of(match)
    if which == "this":
        return month(today.year, number, edge)
    if which == "next" and number <= today.month:
        return month(today.year + 1, number, edge)
    if which == "last" and number >= today.month:
        return month(today.year - 1, number, edge)
    return None


def _counted(match: re.Match[str], today: datetime.date) -> Span | None:
    words = match["count"].lower()
    count = _NUMBERS.get(words)
    count = int(words) if count is None else count
    unit = match["unit"].lower().rstrip("s")
    if unit == "fortnight":
        unit, count = "week", count * 2
    back = (match.groupdict().get("side") or "").lower() == "ago"
    return shifted(unit, today, -count if back else count)


def _weekdays_ago(match: re.Match[str], today: datetime.date) -> Span | None:
    words, weekday = match["count"].lower(), weekday_number(match["weekday"])
    count = _NUMBERS.get(words)
    count = int(words) if count is None else count
    return day(gone(today, weekday) - datetime.timedelta(days=7 * (count - 1))) if count else None


def _end_of(match: re.Match[str], today: datetime.date) -> Span | None:
    unit = match["unit"].lower()
    which = (match["which"] or "this").lower()
    if unit == "day":
        return day(today + datetime.timedelta(days=_BEFORE[which]))
    if unit.startswith("weekend"):
        return None
    return period({"yr": "year"}.get(unit, unit), today, _BEFORE[which], "the end of")


def _short_end(match: re.Match[str], today: datetime.date) -> Span | None:
    unit = match["short"].lower()[-1]
    if unit == "d":
        return day(today)
    if unit == "w":
        return week(today, "the end of")
    name = {"m": "month", "q": "quarter", "y": "year"}[unit]
    return period(name, today, 0, "the end of")


def _day_of_month(match: re.Match[str], today: datetime.date) -> Span | None:
    there = period("month", today, _BEFORE[match["which"].lower()])
    return in_month(there, int(match["number"]))


def coming_weekday(match: re.Match[str], today: datetime.date) -> Span | None:
    """`by Friday`; on a Friday nobody knows which one is meant."""
    weekday = weekday_number(match["weekday"])
    if weekday == today.weekday():
        return None
    return day(coming(today, weekday), (match["part"] or "").lower())


def past_weekday(match: re.Match[str], today: datetime.date) -> Span | None:
    weekday = weekday_number(match["weekday"])
    if weekday == today.weekday():
        return None
    return day(gone(today, weekday), (match["part"] or "").lower())


def _rule(pattern: str, resolve: Resolve) -> tuple[re.Pattern[str], Resolve]:
    whole = rf"(?<![\w/.'’@#-])(?:{pattern})(?!\.?[\w’'-](?<![’']))"
    return re.compile(whole, re.IGNORECASE), resolve


PREPOSITION: Final = r"(?P<pre>on|by|until|till|before|due|since|starting|from|for|to)\s+"


@cache
def rules() -> tuple[tuple[re.Pattern[str], Resolve], ...]:
    """What says itself when it is; in the order in which they are tried."""
    return tuple(_rule(pattern, resolve) for pattern, resolve in _RULES)


_RULES: Final[tuple[tuple[str, Resolve], ...]] = (
    (
        r"(?P<word>(?:the\s+)?day\s+(?:before\s+yesterday|after\s+tomorrow)|yesterday|tomorrow"
        rf"|(?:earlier\s+|later\s+)?today|tonight|last\s+night|this\s+(?:{'|'.join(_PARTS)}))"
        rf"{_PART}",
        _named_day,
    ),
    (rf"{_WHICH}\s+{_DAY}{_PART}{_NOT_OF}", _weekday),
    (
        rf"{_DAY}\s+(?:(?:of|from)\s+)?(?P<which_week>last|previous|this|next)\s+week\b",
        _weekday_of_week,
    ),
    (rf"(?:the\s+)?{_DAY}\s+after\s+next", _weekday_after_next),
    (
        rf"{_EDGE}(?P<which>last|previous|next|this)\s+"
        rf"(?P<unit>week(?:[\s-]?end)?|month|quarter|qtr|year|yr){_NOT_OF}",
        _period,
    ),
    (r"(?:the\s+)?(?P<unit>week|month|year)\s+after\s+next", _after_next),
    (
        rf"{_EDGE}(?P<which>last|next|this)\s+(?P<month>{'|'.join(_MONTHS)}){_NOT_OF}"
        r"(?!\s+be\b|\s+\d)",
        _named_month,
    ),
    (
        rf"{_COUNT}\s+(?P<unit>days?|weeks?|fortnights?|months?|years?)\s+"
        r"(?P<side>ago|from\s+(?:now|today)|hence)",
        _counted,
    ),
    (
        rf"(?P<within>in)\s+{_COUNT}\s+(?P<unit>days?|weeks?|fortnights?|months?|years?)"
        rf"(?!\s+(?:of|or|to)\b|['’]|-\w)",
        _counted,
    ),
    (rf"{_COUNT}\s+{_DAY}s?\s+ago", _weekdays_ago),
    (
        r"(?:the\s+)?end\s+of\s+(?:the\s+|(?P<which>this|next)\s+)?"
        rf"(?P<unit>day|week(?:end)?|month|quarter|year|yr){_NOT_OF}(?!\s+after)",
        _end_of,
    ),
    (r"(?P<short>eo[dwmqy])", _short_end),
    (
        r"(?:the\s+)?(?P<number>\d{1,2})(?:st|nd|rd|th)?\s+(?:day\s+)?of\s+(?:the\s+)?"
        r"(?P<which>last|previous|this|next)\s+month",
        _day_of_month,
    ),
)


@cache
def weekday() -> re.Pattern[str]:
    """`on Friday`: what stands around it says whether it was or will be."""
    return _rule(
        rf"{PREPOSITION}{_DAY}{_PART}{_NOT_OF}"
        r"(?!\s+(?:(?:of|from)\s+)?(?:last|previous|this|next)\s+week|\s+after\s+next)",
        coming_weekday,
    )[0]
