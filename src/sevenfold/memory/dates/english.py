"""Rules for relative dates in English, and the days they mean.

Weeks begin on Monday, and `next Friday` is the Friday of the next calendar week. Where people differ
about an expression (`last Monday` on a Tuesday, `next March` in February) there is no answer.
A sentence that tells a habit has none either: `the job cleans up yesterday's partitions` is so every day.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias

from sevenfold.memory.dates.days import (
    DaySpan,
    find_day_in_month,
    find_next_weekday,
    find_previous_weekday,
    find_weekday_of_week,
    make_day_span,
    make_month_span,
    make_night_span,
    make_period_span,
    shift_span,
)

Resolve: TypeAlias = Callable[[re.Match[str], datetime.date], DaySpan | None]

WEEKDAY: Final = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
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
_PERIODS: Final = r"(?:week(?:-?end)?|fortnight|month|quarter|qtr|year|yr|spring|summer|autumn|winter)"
_UNITS: Final = r"(?:days?|weeks?|fortnights?|months?|quarters?|years?)"
_SOME: Final = rf"(?:\d{{1,4}}(?:\.\d)?|a\s+few|a\s+couple(?:\s+of)?|several|many|{'|'.join(_NUMBERS)})"
_BEFORE: Final = {"last": -1, "previous": -1, "this": 0, "next": 1}


def parse_weekday(name: str) -> int:
    return _DAYS.index(name[:3].lower())


def _named_day(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    words = " ".join(match["word"].lower().split())
    by = next(n for start, n in _DAY_WORDS if words.removeprefix("the ").startswith(start))
    date = today + datetime.timedelta(days=by)
    if words in ("tonight", "last night") or (match["part"] or "").lower() == "night":
        return make_night_span(date)
    part = match["part"] or next((p for p in _PARTS if words.endswith(p)), "")
    return make_day_span(date, part.lower())


_PARTS: Final = ("morning", "afternoon", "evening")
_DAY_WORDS: Final = (
    ("day before", -2), ("day after", 2), ("yesterday", -1), ("tomorrow", 1), ("today", 0),
    ("earlier today", 0), ("later today", 0), ("tonight", 0), ("last night", -1), ("this", 0),
)  # fmt: skip


def _weekday(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    which = " ".join(match["which"].lower().split())
    date = _that_weekday(which, parse_weekday(match["weekday"]), today)
    return None if date is None else make_day_span(date, (match["part"] or "").lower())


def _that_weekday(which: str, weekday: int, today: datetime.date) -> datetime.date | None:
    """None where people differ: `last Monday` on a Tuesday, `this Monday` on a Wednesday."""
    if which == "next":
        return find_weekday_of_week(today, weekday, 1)
    if which in ("last", "previous"):
        date = find_previous_weekday(today, weekday)
        return date if date < find_weekday_of_week(today, 0) or today.weekday() == weekday else None
    if which == "this past":
        return find_previous_weekday(today, weekday)
    if which == "this":
        date = find_weekday_of_week(today, weekday)
        if date < today and today.weekday() != 6:  # on a Sunday the new week is meant
            return None
        return date if date >= today else find_next_weekday(today, weekday)
    return find_next_weekday(today, weekday)


def _weekday_of_week(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    by = _BEFORE[match["which_week"].lower()]
    return make_day_span(find_weekday_of_week(today, parse_weekday(match["weekday"]), by))


def _weekday_after_next(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    """The one after the next that comes; on the day itself nobody knows which is counted."""
    weekday = parse_weekday(match["weekday"])
    date = find_next_weekday(today, weekday) + datetime.timedelta(days=7)
    return None if weekday == today.weekday() else make_day_span(date)


def _edge_of(match: re.Match[str]) -> str:
    edge = " ".join((match["edge"] or "").lower().split())
    return f"the {edge}" if edge.startswith(("end", "beginning", "start", "middle")) else edge


def _period(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    which, unit = match["which"].lower(), re.sub(r"[\s-]", "", match["unit"].lower())
    if unit == "weekend" and (which == "next" or today.weekday() >= 5):
        return None  # the coming one for some, the one after it for others; on a weekend all are unclear
    return make_period_span(unit, today, _BEFORE[which], _edge_of(match))


def _after_next(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    return make_period_span(match["unit"].lower(), today, 2)


def _named_month(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    """Only where there is one answer: in November, `next March` is of next year."""
    which, number = match["which"].lower(), _MONTHS.index(match["month"].lower()) + 1
    edge = _edge_of(match)
    if which == "this":
        return make_month_span(today.year, number, edge)
    if which == "next" and number <= today.month:
        return make_month_span(today.year + 1, number, edge)
    if which == "last" and number >= today.month:
        return make_month_span(today.year - 1, number, edge)
    return None


def _counted(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    count = _NUMBERS.get(match["count"].lower()) or int(match["count"])
    unit = match["unit"].lower().rstrip("s")
    if unit == "fortnight":
        unit, count = "week", count * 2
    back = (match.groupdict().get("side") or "").lower() == "ago"
    return shift_span(unit, today, -count if back else count)


def _weeks_and_days(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    """`2 weeks and 2 days ago`; without `in` or `ago` it is a length of time."""
    side = (match["side"] or "").lower()
    if bool(side) == bool(match["within"]):
        return None
    weeks, days = (_NUMBERS.get(match[name].lower()) or int(match[name]) for name in ("count", "days"))
    span = datetime.timedelta(days=7 * weeks + days)
    return make_day_span(today - span if side == "ago" else today + span)


def _weekdays_ago(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    count = _NUMBERS.get(match["count"].lower()) or int(match["count"])
    last = find_previous_weekday(today, parse_weekday(match["weekday"]))
    return make_day_span(last - datetime.timedelta(days=7 * (count - 1))) if count else None


def _end_of(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    unit, which = match["unit"].lower(), (match["which"] or "this").lower()
    if unit == "day":
        return make_day_span(today + datetime.timedelta(days=_BEFORE[which]))
    if unit.startswith("weekend"):
        return None
    return make_period_span({"yr": "year"}.get(unit, unit), today, _BEFORE[which], "the end of")


def _short_end(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    unit = match["short"].lower()[-1]
    if unit == "d":
        return make_day_span(today)
    name = {"w": "week", "m": "month", "q": "quarter", "y": "year"}[unit]
    return make_period_span(name, today, 0, "the end of")


def _day_of_month(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    there = make_period_span("month", today, _BEFORE[match["which"].lower()])
    return find_day_in_month(there, int(match["number"]))


def resolve_coming_weekday(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    """`by Friday`; on a Friday nobody knows which one is meant."""
    weekday, part = parse_weekday(match["weekday"]), (match["part"] or "").lower()
    return None if weekday == today.weekday() else make_day_span(find_next_weekday(today, weekday), part)


def resolve_past_weekday(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    weekday, part = parse_weekday(match["weekday"]), (match["part"] or "").lower()
    return (
        None if weekday == today.weekday() else make_day_span(find_previous_weekday(today, weekday), part)
    )


_GAP: Final = (
    r"(?:[ \t\xa0]+(?:\n[ \t]*)?|\n[ \t]*)"  # One line break at most: a paragraph ends an expression
)


def _rule(pattern: str, resolve: Resolve) -> tuple[re.Pattern[str], Resolve]:
    pattern = pattern.replace(r"\s+", _GAP)
    whole = rf"(?<![\w/.'’@#-])(?:{pattern})(?!\.?[\w’'-](?<![’']))"
    return re.compile(whole, re.IGNORECASE), resolve


PREPOSITION: Final = r"(?P<pre>on|by|until|till|before|due|since|starting|from|for|to)\s+"


def resolve_nothing(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    """For what is a relative date but means no certain day: `a few days ago`, `later this year`."""
    return None


@cache
def make_rules() -> tuple[tuple[re.Pattern[str], Resolve], ...]:
    """The rules for expressions that need no context, in the order in which they are tried."""
    return tuple(_rule(pattern, resolve) for pattern, resolve in _RULES)


_RULES: Final[tuple[tuple[str, Resolve], ...]] = (
    (
        r"(?P<word>(?:the\s+)?day\s+(?:before\s+yesterday|after\s+tomorrow)|yesterday|tomorrow"
        rf"|(?:earlier\s+|later\s+)?today|tonight|last\s+night|this\s+(?:{'|'.join(_PARTS)}))"
        rf"{_PART}",
        _named_day,
    ),
    (rf"{_WHICH}\s+{_DAY}{_PART}{_NOT_OF}", _weekday),
    (rf"{_DAY}\s+(?:(?:of|from)\s+)?(?P<which_week>last|previous|this|next)\s+week\b", _weekday_of_week),
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
    (
        rf"(?:(?P<within>in)\s+)?{_COUNT}\s+weeks?(?:\s+and|,(?:\s+and)?)\s+"
        rf"(?P<days>\d{{1,3}}|{'|'.join(_NUMBERS)})\s+days?(?:\s+(?P<side>ago|from\s+(?:now|today)|hence))?",
        _weeks_and_days,
    ),
    (rf"{_COUNT}\s+{_DAY}s?\s+ago", _weekdays_ago),
    (
        r"(?:the\s+)?end\s+of\s+(?:the\s+|(?P<which>this|next)\s+)?"
        rf"(?P<unit>day|week(?:end)?|month|quarter|year|yr){_NOT_OF}(?!\s+after)",
        _end_of,
    ),
    (r"(?:the\s+)?(?P<short>eo[dwmqy])", _short_end),
    (
        r"(?:the\s+)?(?P<number>\d{1,2})(?:st|nd|rd|th)?\s+(?:day\s+)?of\s+(?:the\s+)?"
        r"(?P<which>last|previous|this|next)\s+month",
        _day_of_month,
    ),
    (
        rf"(?:(?:{_EDGES}|earlier|later)[\s-]+)?(?:last|next|past|previous|coming|this(?:\s+(?:past|coming))?)\s+"
        rf"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:mon|tue|wed|thu|fri)\b|{_PERIODS}"
        rf"|{'|'.join(_MONTHS)}(?!\s+be\b|\s+\d)){_NOT_OF}(?!\s+in\b)",
        resolve_nothing,
    ),
    (
        rf"{_SOME}\s+(?:business\s+|working\s+)?(?:{_UNITS}|(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
        r"|minutes?|mins?|hours?|hrs?|h)\s+(?:ago|from\s+(?:now|today)|hence)|\d{1,3}\s?(?:d|w|mo|y)\s+ago",
        resolve_nothing,
    ),
    (
        rf"(?P<within>in)\s+(?:about\s+|around\s+|roughly\s+)?{_SOME}\s+{_UNITS}(?!\s+(?:of|in|or|to)\b|['’]|-)",
        resolve_nothing,
    ),
)


@cache
def make_weekday_pattern() -> re.Pattern[str]:
    """`on Friday`: what stands around it says whether it was or will be."""
    return _rule(
        rf"{PREPOSITION}{_DAY}{_PART}{_NOT_OF}"
        r"(?!\s+(?:(?:of|from)\s+)?(?:last|previous|this|next)\s+week|\s+after\s+next)",
        resolve_coming_weekday,
    )[0]


_OFTEN: Final = re.compile(
    r"\b(?:always|never|usually|normally|typically|generally|often|sometimes|regularly|periodically"
    r"|against|compared\s+(?:to|with)|versus|vs|(?:older|newer)\s+than"
    r"|automatically|whenever|(?:mon|tues|wednes|thurs|fri|satur|sun)days)\b",
    re.IGNORECASE,
)
_EVERY: Final = re.compile(
    r"\b(?:every|each|weekly|nightly|daily|hourly|monthly|yearly|quarterly|cron|crontab|recurring)\b",
    re.IGNORECASE,
)
_DONE: Final = re.compile(
    r"\b(?:are|is|gets?)\s+(?:\w+ly\s+)?(?!schedul|plann|book|mov|postpon|delay|expect|push|cancel|need)"
    r"(?:\w{3,}ed|sent|made|run|taken|written|built|kept|held|done|given|cut|drawn)\b",
    re.IGNORECASE,
)
"""`are archived`: what is done again and again."""
_DOES: Final = re.compile(
    r"\b(?:aggregates|analy[sz]es|announces|archives|averages|backs\s+up|calculates|checks|cleans"
    r"|closes|collects|compacts|compares|compresses|computes|contains|copies|counts|covers|creates"
    r"|deletes|displays|downloads|drops|emails|expires|exports|fetches|generates|hides|imports|includes"
    r"|indexes|ingests|keeps|lists|loads|looks\s+at|mails|measures|merges|monitors|moves|opens|picks\s+up|pings|plots|posts"
    r"|precomputes|prepares|prints|processes|produces|prunes|publishes|pulls|purges|pushes|queries"
    r"|reads|rebuilds|recalculates|recomputes|refers|refreshes|removes|replays|reports|resends"
    r"|retries|returns|rolls\s+up|rotates|scans|sends|shows|snapshots|stores|summari[sz]es|sums|sweeps"
    r"|syncs|takes|tells|tracks|trims|truncates|updates|uploads|uses|verifies|wipes|writes)\b",
    re.IGNORECASE,
)
_AT_WORK: Final = re.compile(
    r"\b(?:cron\s*)?(?:jobs?|scripts?|bots?|pipelines?|workflows?|timers?|schedulers?|dashboards?"
    r"|digests?|quer(?:y|ies)|daemons?|backups?|reports?)\s+(?:that\s+|which\s+)?(?:only\s+|also\s+)?"
    r"(?!was|is|has|this|us)(?:[a-z]{2,}[^s\W]s|clean|cover|show|use|read|run|compare|delete|rotate)\b",
    re.IGNORECASE,
)
_HELD: Final = re.compile(
    r"\b(?:happens?|occurs?|takes?\s+place|runs?|meets|stand-?ups?|retros?|retrospectives?|office\s+hours"
    r"|on-?call|deploys|deployments|releases|builds|meetings|reviews|shifts|calls|syncs|sprints?"
    r"|backups?|rotations?|schedules?|days\s+off|plannings?|do\s+not|don['’]t|no|only"
    r"|(?:we|they|people|teams|everybody|everyone)\s+(?:\w+ly\s+)?(?:only\s+)?"
    r"(?:deploy|deploys|ship|ships|release|meet|merge|publish|rotate|clean|work)(?![^.;]*\d))\b",
    re.IGNORECASE,
)
_WAS: Final = re.compile(
    r"\b(?:was|were|did|had|went|met|said|told|sent|made|found|got|began|gave|came|took|saw|ran|broke|froze"
    r"|(?!need|schedul|unus|relat|requir|expir)\w{3,}ed)\b",
    re.IGNORECASE,
)
_SINCE: Final = re.compile(r"\b(?:since|as\s+of)\s*$", re.IGNORECASE)
_SURELY_WAS: Final = re.compile(r"\b(?:was|were|did|had|broke|failed|began)\b", re.IGNORECASE)
_WILL: Final = re.compile(
    r"\b(?:will|shall|due|deadline|by|until|must|going\s+to|moved|postponed|rescheduled|cancell?ed)\b"
    r"|['’]ll\b",
    re.IGNORECASE,
)
_AHEAD: Final = re.compile(
    r"(?:the\s+day\s+after\s+)?tomorrow|next|in\s|coming|upcoming|by\s|(?:the\s+)?(?:end|week|month|year)\b"
    r"|.*\b(?:from\s+(?:now|today)|hence|after\s+next)$",
    re.IGNORECASE,
)
_OWNED: Final = re.compile(r"['’]s?\b")
_WEEKDAY: Final = re.compile(
    r"(?:on\s+)?(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|satur|sun)(?:day)?\b", re.IGNORECASE
)
_HAN_HABIT: Final = re.compile(
    "每|总是|總是|通常|一般|定期|例会|例會|站会|站會|周会|週會|晨会|定时|定時|惯例|都会|都會|照例"
)
_HAN_AT_WORK: Final = re.compile(
    "(?:任务|任務|脚本|腳本|作业|作業|机器人|機器人|流水线|流水線|报表|報表|看板|备份|備份|日报|日報|cron|job)"
    "(?!.{0,12}[了过過])",
    re.IGNORECASE,
)
_HAN_ONCE: Final = re.compile("[了过過]|已经|已經|截止|改为|改為|改到|推迟|推遲|将于|將於|必须|必須")
_HAN_PAST: Final = re.compile("昨|前天|上|去年|今|本|这|這|.*前$")


def is_standing_expression(before: str, expression: str, behind: str) -> bool:
    """`before` and `behind` are the rest of the sentence around an expression in English."""
    sentence = f"{before}{expression}{behind}"
    if _WEEKDAY.match(expression):
        return _weekday_habits(before, sentence)
    if _AHEAD.match(expression):
        often = _OFTEN.search(sentence) or _EVERY.search(sentence)
        works = _OWNED.match(behind) and (_DOES.search(before) or _AT_WORK.search(before))
        return bool(often or works) and not _WILL.search(before + behind)
    return not _SINCE.search(before) and _past(sentence)


def _past(sentence: str) -> bool:
    """The first verb decides: what follows may tell of single things, as in `files changed yesterday`."""
    signs = [one.search(sentence) for one in (_OFTEN, _DOES, _AT_WORK, _DONE)]
    if not _SURELY_WAS.search(sentence):
        signs.append(_EVERY.search(sentence))
    habits = [sign.start() for sign in signs if sign]
    was = _WAS.search(sentence)
    return bool(habits) and (was is None or was.start() > min(habits))


def _weekday_habits(before: str, sentence: str) -> bool:
    """`on Friday evening`: of every week, unless something says that it is this one."""
    if _OFTEN.search(sentence) or (_EVERY.search(sentence) and not _SURELY_WAS.search(before)):
        return True
    if _WILL.search(sentence):
        return False
    held = any(one.search(sentence) for one in (_HELD, _DOES, _AT_WORK))
    return _DONE.search(sentence) is not None or (held and not _WAS.search(before))


def is_standing_chinese(before: str, expression: str, behind: str) -> bool:
    """The same for an expression in Chinese, which has no tenses: some words tell of one time."""
    sentence = f"{before}{expression}{behind}"
    if _HAN_ONCE.search(re.split("[，,]", before)[-1] + re.split("[，,]", behind)[0]):
        return False
    return bool(
        _HAN_HABIT.search(sentence) or (_HAN_PAST.match(expression) and _HAN_AT_WORK.search(before))
    )
