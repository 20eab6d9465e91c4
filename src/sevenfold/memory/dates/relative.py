"""Relative dates become calendar dates, against the day on which they were said.

    absolute("the freeze is on Thursday", at)     "the freeze is on 2026-11-05"
    resolved("下周五", at)                         Span(2026-11-13, 2026-11-13, "2026-11-13")

A wrong date is worse than a relative one. So what may mean two things stays as it is: `next weekend`,
`last Monday` on a Tuesday, `on Friday` without a sign of whether it was or will be, `a few days ago`.
What is quoted or code stays too, and so does an expression with its date beside it.

Dates that only mean something on the day they were written: `yesterday`, `next Friday`, `两天后`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from sevenfold.memory.dates import chinese as chinese_dates
from sevenfold.memory.dates import english as english_dates
from sevenfold.memory.dates.days import EARLIEST, LATEST, DaySpan
from sevenfold.memory.dates.english import is_standing_chinese, is_standing_expression
from sevenfold.memory.markdown import blank_out_code

LONGEST: Final = 200_000
"""Characters of a text that are looked at."""

_HAN: Final = re.compile("[\u4e00-\u9fff]")
_HINT: Final = re.compile(
    r"day|week|month|quarter|qtr|year|\byr|morrow|tonight|night|morning|evening|noon|\bago|hence|\beo[dwmqy]"
    r"|\b(?:last|next|this|in|on|by|due|since)\b",
    re.IGNORECASE,
)
_QUOTED: Final = re.compile(r"\"[^\"\n]{1,300}\"|“[^”\n]{1,300}”|「[^」\n]{1,300}」")
_DATE: Final = re.compile(
    r"\d{4}[-/.年]\d{1,2}(?:[-/.月]\d{1,2})?"
    r"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+\d{1,2}\b"
    r"|\b\d{1,2}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
    r"|\d{1,2}月\d{1,2}[日号號]|\b\d{1,2}/\d{1,2}\b|\b(?:19|20)\d\d\b",
    re.IGNORECASE,
)
_BESIDE: Final = re.compile(r"^\s?[(（,，=:：]?\s?(?:which\s+is\s+|i\.?e\.?,?\s+|on\s+|the\s+|即|也就是)?")
_NEAR: Final = 20
_CLAUSE: Final = re.compile(r"[.!?;\n。！？；]+(?:\s|$)|\n|[。！？；]")
_REPEATING: Final = re.compile(
    r"\b(?:every|each|always|never|usually|normally|typically|often|sometimes|weekly|daily|monthly|cron"
    r"|recurring|regularly)\b|每|总是|通常",
    re.IGNORECASE,
)
_WAS: Final = re.compile(
    r"\b(?:was|were|did|went|met|said|told|sent|made|found|got|began|gave|came|took|saw|ran|had|broke"
    r"|(?!need)\w{3,}ed)\b",
    re.IGNORECASE,
)
_WILL: Final = re.compile(
    r"\b(?:will|shall|is|are|be|due|starts?|begins?|ends?|launch(?:es)?|releases?|deadline|ships?|deploys?"
    r"|going|plan(?:s|ned|ning)?|scheduled|moved|postponed|pushed|rescheduled|delayed|booked|set|leav(?:e|es|ing)"
    r"|meets?|meeting|review|demo|migrat\w+|freez\w+|finish|submit|deliver|needs?|must|have\s+to|to\s+\w+"
    r"|appointment|flight|exam|interview|can|should|let['’]?s)\b|['’](?:ll|s|re|m)\b",
    re.IGNORECASE,
)
_TODAY: Final = re.compile(
    r"\b(?:\w{2,}ed|was|were|did|went|met|said|told|sent|made|found|got|began|gave|came|took|saw|ran"
    r"|due|deadline|by|until|before|starting|from|call|meeting|releas\w*|launch\w*|later|as\s+of|is|for|have|will)\b",
    re.IGNORECASE,
)
_EVENT: Final = re.compile(
    r"['’]s\s+(?:\w+\s+)?(?:meeting|call|session|standup|stand-up|deploy\w*|release|demo|review|workout"
    r"|class|lesson|incident|outage|appointment|exam|run|date|interview)\b",
    re.IGNORECASE,
)
_JOINED: Final = re.compile(
    r"(?:\b(?:on|by|for|until|till|before|after|from|to|since|of|at|in|due|between|than|and|or|is|was"
    r"|are|were|be|during|through|throughout|around|about|approximately|as|starting|over|within|per"
    r"|the|until|unlike|vs)|[(:=,—–/-])\s*$",
    re.IGNORECASE,
)
_MOVED: Final = re.compile(
    r"\b(?:moved|postponed|pushed|rescheduled|delayed|scheduled|planned|booked|set|due)\s*$", re.IGNORECASE
)
_A_WEEK: Final = re.compile(r"\b(?:last|next|this|coming|following)\s+week\b|\bweek\s+of\b", re.IGNORECASE)
"""Beside it nobody knows which Friday is meant."""
_SUBJECT: Final = re.compile(r"\s+(?:is|was|will|are|were|would|works?)\b", re.IGNORECASE)
_COUNTED: Final = re.compile(
    r"\b\w+\s+(?:days?|weeks?|months?|years?)\s+(?:before|after)\s*$", re.IGNORECASE
)
"""`two days after` what follows."""
_MANY_DAYS: Final = re.compile(r"\b(?:\d+|two|three|four|five|several|few)\s+day$", re.IGNORECASE)
"""`2 day before yesterday`."""


class RelativeDate(msgspec.Struct, frozen=True):
    """An expression where it stands, and what it means."""

    start: int
    end: int
    span: DaySpan


def make_dates_absolute(text: str, at: float, kept: Collection[str] = ()) -> str:
    """The text with calendar dates in place of the relative ones that are sure; `kept` lines stay."""
    out, done = [], 0
    for place in find_relative_dates(text, at):
        if kept and _line_of(text, place.start) in kept:
            continue
        out += [text[done : place.start], _written(text, place)]
        done = place.end
    return "".join([*out, text[done:]])


def _line_of(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 :].split("\n", 1)[0]


def resolve_expression(expression: str, at: float) -> DaySpan | None:
    """What an expression that stands alone means; None when it is no relative date or not sure."""
    today = _day(at)
    words = " ".join(expression.split())
    if today is None or not words:
        return None
    for rules in (english_dates.make_rules(), chinese_dates.make_rules()):
        for pattern, resolve in rules:
            match = pattern.fullmatch(words)
            if match is not None:
                return _safely(resolve, match, today)
    match = english_dates.make_weekday_pattern().fullmatch(words)
    return _safely(english_dates.resolve_coming_weekday, match, today) if match else None


def find_relative_dates(text: str, at: float) -> list[RelativeDate]:
    """The relative dates of a text that are sure, in order."""
    today = _day(at)
    head = text[:LONGEST]
    wide = not head.isascii() and _HAN.search(head) is not None
    if today is None or not (wide or _HINT.search(head)):
        return []
    plain = _QUOTED.sub(lambda quoted: " " * len(quoted.group()), blank_out_code(head))
    found = sorted(_found(plain, today, wide), key=lambda one: (one[0].start(), -one[0].end()))
    kept: list[RelativeDate] = []
    taken = 0
    for match, span in found:
        if match.start() < taken:
            continue
        taken = match.end()  # also by what is not sure: no part of it is sure then
        if span is not None and not _is_dated(plain, match):
            start = match.end("pre") + 1 if "pre" in match.re.groupindex else match.start()
            kept.append(RelativeDate(_past_spaces(plain, start), match.end(), span))
    return kept


def _found(plain: str, today: datetime.date, wide: bool) -> Iterator[tuple[re.Match[str], DaySpan | None]]:
    for pattern, resolve in english_dates.make_rules():
        for match in pattern.finditer(plain):
            yield match, _safely(resolve, match, today) if _is_meant(plain, match) else None
    for match in english_dates.make_weekday_pattern().finditer(plain):
        yield match, _weekday(plain, match, today)
    for pattern, resolve in chinese_dates.make_rules() if wide else ():
        for match in pattern.finditer(plain):
            before, behind = _around(plain, match)
            meant = not is_standing_chinese(before, match.group(), behind)
            yield match, _safely(resolve, match, today) if meant else None


def _safely(resolve: english_dates.Resolve, match: re.Match[str], today: datetime.date) -> DaySpan | None:
    try:
        return resolve(match, today)
    except (OverflowError, ValueError):  # a year that no calendar knows
        return None


def _day(at: float) -> datetime.date | None:
    """The local day of a moment."""
    try:
        today = datetime.datetime.fromtimestamp(at).astimezone().date()
    except (OverflowError, OSError, ValueError):
        return None
    return today if EARLIEST < today.year < LATEST else None


# --- what stands around it ------------------------------------------------------------------------------


def _is_dated(text: str, match: re.Match[str]) -> bool:
    """Whether the date itself stands beside it."""
    behind = text[match.end() : match.end() + _NEAR].split("\n", 1)[0]
    beside = _BESIDE.match(behind)
    before = text[max(0, match.start() - _NEAR) : match.start()].rsplit("\n", 1)[-1]
    near = _DATE.match(behind, beside.end() if beside else 0)
    return bool(near) or any(
        re.fullmatch(r"\s?[(（,，=:：]?\s?", before[found.end() :]) for found in _DATE.finditer(before)
    )


def _is_meant(text: str, match: re.Match[str]) -> bool:
    """`today` may mean nowadays, `in two weeks` how long it takes, `the next month` a length of time."""
    groups = match.re.groupindex
    before, behind = _around(text, match)
    if _COUNTED.search(before) or _MANY_DAYS.search(before + match.group()[:3]):
        return False
    if is_standing_expression(before, match.group(), behind) or not _is_owner(before, behind):
        return False
    if "word" in groups and match["word"].lower() == "today":
        possessive = text[match.end() : match.end() + 1] in "'’" and match.end() < len(text)
        if possessive:
            return _EVENT.match(text, match.end()) is not None
        return not before.strip() or _TODAY.search(before) is not None
    if "within" in groups:
        will = not before.strip() or _WILL.search(before)
        return bool(will) and not _WAS.search(before + behind)
    if "unit" in groups and "which" in groups and not match.group("which"):
        return not _REPEATING.search(before + behind)
    if "unit" in groups and re.match(r"last|previous|next", match.group(), re.IGNORECASE):
        return not re.search(r"\bthe\s*$", before, re.IGNORECASE)
    return True


def _is_owner(before: str, behind: str) -> bool:
    """`yesterday's outage` was one; `yesterday's partitions` are others every day, unless it is told."""
    if not behind.startswith(("'s ", "’s ")) or _EVENT.match(behind):
        return True
    return bool(_WAS.search(before + behind[2:]) or re.search(r"\bwill\b", behind, re.IGNORECASE))


def _weekday(text: str, match: re.Match[str], today: datetime.date) -> DaySpan | None:
    """`on Friday`: the nearest sign before it, else behind it, says whether it was or will be."""
    before, behind = _around(text, match)
    if is_standing_expression(before, match.group(), behind) or _A_WEEK.search(before + behind):
        return None
    pre = match["pre"].lower()
    if pre in ("from", "for", "to"):
        moved = _MOVED.search(before) is not None
        return _safely(english_dates.resolve_coming_weekday, match, today) if moved else None
    if pre == "since":
        return _safely(english_dates.resolve_past_weekday, match, today)
    if pre in ("by", "until", "till", "due"):
        past = _WAS.search(before) is not None and _WILL.search(before) is None
        return None if past else _safely(english_dates.resolve_coming_weekday, match, today)
    was, will = _last(_WAS, before), _last(_WILL, before)
    if was == will < 0:
        was, will = -_first(_WAS, behind), -_first(_WILL, behind)
    if was == will:
        return None
    resolve = english_dates.resolve_past_weekday if was > will else english_dates.resolve_coming_weekday
    return _safely(resolve, match, today)


def _around(text: str, match: re.Match[str]) -> tuple[str, str]:
    """The rest of its sentence."""
    before = _CLAUSE.split(text[max(0, match.start() - 120) : match.start()])[-1]
    behind = _CLAUSE.split(text[match.end() : match.end() + 120])[0]
    return before, behind


def _last(pattern: re.Pattern[str], text: str) -> int:
    return max((found.end() for found in pattern.finditer(text)), default=-1)


def _first(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return found.start() if found else len(text) + 1


# --- how it is written ----------------------------------------------------------------------------------


def _past_spaces(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def _written(text: str, place: RelativeDate) -> str:
    """The date, with a preposition where an English sentence needs one."""
    span, before = place.span, text[max(0, place.start - 20) : place.start]
    inside = text[place.start : place.end]
    if _HAN.search(inside) or _HAN.search(before[-2:]):
        return span.words
    if text[place.end : place.end + 2] in ("'s", "’s") or _JOINED.search(before):
        return span.words
    if _SUBJECT.match(text, place.end):
        return span.words
    if re.match(r"in\s|by\s", inside, re.IGNORECASE):
        return f"{_cased(span.join, inside)}{span.words}"
    if not before.strip() and not text[: place.start].strip() and place.end == len(text.rstrip()):
        return span.words
    return f"{_cased(span.join, inside)}{span.words}"


def _cased(joint: str, inside: str) -> str:
    return joint.capitalize() if inside[:1].isupper() else joint


MOST: Final = 50
"""Expressions that are reported of one text."""
LONGEST_DATES: Final = 200_000
"""Characters of a text that are looked at."""

_DAY: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_MONTH: Final = (
    r"(?:january|february|march|april|may(?!\s+be)|june|july|august|september|october|november"
    r"|december)"
)
_UNIT: Final = r"(?:days?|weeks?|fortnights?|months?|quarters?|years?)"
_PERIOD: Final = r"(?:week(?:-?end)?|fortnight|month|quarter|qtr|year|yr|spring|summer|autumn|winter)"
_COUNT: Final = (
    r"(?:\d{1,4}(?:\.\d)?|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|"
    r"a\s+few|a\s+couple(?:\s+of)?|several|many)"
)
_SHORT: Final = r"(?:minutes?|mins?|hours?|hrs?|h)"
_PART: Final = r"(?:morning|afternoon|evening|night)"
_EDGE: Final = r"(?:early|late|mid|earlier|later|(?:the\s+)?(?:end|beginning|start|middle)\s+of)"
_NOT_OF: Final = r"(?!\s+(?:of|in)\b|['’-])"

_ENGLISH: Final = re.compile(
    rf"""(?<![\w/.'’"“‘-])(?:
      (?:the\s+)?day\s+(?:before\s+yesterday|after\s+tomorrow)
    | (?:yesterday|tomorrow)(?:\s+{_PART})?
    | (?:earlier|later)\s+today
    | (?P<today>today)
    | tonight | last\s+night | (?:earlier\s+|later\s+)?this\s+(?:morning|afternoon|evening)
    | (?:{_EDGE}[\s-]+)? (?:last|next|past|previous|coming|this(?:\s+(?:past|coming))?)\s+
      (?:{_DAY}|(?:mon|tue|wed|thu|fri)\b|{_PERIOD}|{_MONTH}) {_NOT_OF}
    | (?:{_DAY}|week|month)\s+after\s+next
    | {_COUNT}\s+(?:business\s+|working\s+)?(?:{_UNIT}|{_DAY}s?|{_SHORT})\s+
      (?:ago|from\s+(?:now|today)|hence)
    | \d{{1,3}}\s?(?:d|w|mo|y)\s+ago
    | (?:by|until|till|before|due|since)\s+(?:{_DAY}|eod|eow|eom|eoq|eoy|tomorrow)
    | (?:by|before|at|until)\s+(?:the\s+)?end\s+of\s+(?:the\s+|this\s+|next\s+)?
      (?:day|{_PERIOD}) {_NOT_OF}
    | (?P<within>in\s+(?:about\s+|around\s+|roughly\s+)?{_COUNT}\s+{_UNIT}) {_NOT_OF}
    | on\s+{_DAY}
    )(?!\.?[\w’'-])""",
    re.IGNORECASE | re.VERBOSE,
)
_NUMBER: Final = r"(?:[一二两兩三四五六七八九十几幾数數半]{1,3}|\d{1,4})"
_WEEK: Final = r"(?:周|週|星期|礼拜|禮拜)"
_WEEKDAY: Final = r"[一二三四五六日天末]"
_SPAN: Final = rf"(?:工作日|天|日|{_WEEK}|月|季度|年|小时|小時|分钟|分鐘)"
_CHINESE: Final = re.compile(
    rf"""大前天|前天|昨[天日晚夜]|今[天晚早晨]|今日(?!头条|頭條)|明[天早晚]|明日(?!方舟)|大[后後]天
    | (?<![先以])[后後]天(?![性的])
    | (?:上上|下下|[上下本这這])[个個]?{_WEEK}{_WEEKDAY}?(?![期年])
    | (?:上上|下下|[上下本这這])[个個]?(?:月(?!台)|季度|学期|學期)(?:底|初|中旬|末)?
    | [去今明]年(?:年?[底初])?
    | (?<![目以之先从從空提])前年(?!度) | (?<![今以之往])[后後]年(?!度)
    | {_NUMBER}\s?[个個]?多?{_SPAN}[之以]?(?:前|[后後])(?![端台续續])
    | (?<![每毎]){_WEEK}{_WEEKDAY}[之以]?前
    """,
    re.VERBOSE,
)
_DATE_DATES: Final = re.compile(
    r"\d{4}[-/.年]\d{1,2}(?:[-/.月]\d{1,2})?"
    r"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+\d{1,2}\b"
    r"|\b\d{1,2}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
    r"|\d{1,2}月\d{1,2}[日号號]|\b\d{1,2}[/-]\d{1,2}\b|\b(?:19|20)\d\d\b",
    re.IGNORECASE,
)
_REPEATING_DATES: Final = re.compile(
    r"\b(?:every|each|always|never|usually|weekly|daily|cron|schedule[ds]?|runs?|recurring|only)\b|每",
    re.IGNORECASE,
)
_HAPPENED: Final = re.compile(
    r"\b(?:\w{2,}ed|was|were|did|went|met|said|told|sent|made|found|got|began|gave|came|took|saw|ran|"
    r"due|deadline|by|until|before|starting|call|meeting|releas\w*|launch\w*|later)\b",
    re.IGNORECASE,
)
_PLANNED: Final = re.compile(
    r"\b(?:will|due|starts?|begins?|ends?|launch\w*|releas\w*|deadline|ships?|deploy\w*|going\s+to|plan\w*|"
    r"scheduled|leav\w+|back|again|meets?|meeting|review|demo|migrat\w*|freez\w*)\b|['’]ll\b",
    re.IGNORECASE,
)
_SENTENCE: Final = re.compile(r"[.!?;:\n。！？；：]\s|\n|[*\-]\s|[(*_]")
_QUOTED_DATES: Final = re.compile(r"\"[^\"\n]{1,300}\"|“[^”\n]{1,300}”|「[^」\n]{1,300}」")
_HABIT: Final = re.compile(r"^(?:on|by|before|until|since)\s", re.IGNORECASE)
_NEAR_DATES: Final = 24
_AROUND: Final = 80
_HAN_DATES: Final = re.compile("[\u4e00-\u9fff]")
_WORDS: Final = (
    "day", "week", "month", "night", "year", "quarter", "morrow", " ago", "morning", "noon", "evening",
    "now", "hence", "qtr", "yr", "eo", "spring", "summer", "autumn", "winter", "next ", "last ",
)  # fmt: skip


def list_relative_dates(text: str) -> list[str]:
    """The relative dates of a text, as they stand there, in order, each once."""
    text = text[:LONGEST_DATES]
    wide = not text.isascii() and _HAN_DATES.search(text) is not None
    windows = _windows(text)
    if not wide and not windows:
        return []
    plain = _QUOTED_DATES.sub(_blank, blank_out_code(text))
    found = [
        match
        for start, end in windows
        for match in _ENGLISH.finditer(plain, start, end)
        if match.end() < end or end == len(plain)  # else it may be half a word
    ]
    found += _CHINESE.finditer(plain) if wide else ()
    meant = [
        match
        for match in sorted(found, key=lambda one: one.start())
        if not _is_dated_dates(plain, match)
        and not _is_a_habit(plain, match)
        and _is_meant_dates(plain, match)
    ]
    return list(dict.fromkeys(" ".join(match.group().split()) for match in meant))[:MOST]


def _windows(text: str) -> list[tuple[int, int]]:
    """Where to look: around the words of which every expression has one."""
    low = text.lower()
    if len(low) != len(text):  # a few capitals become two letters
        return [(0, len(text))]
    places: list[int] = []
    for word in _WORDS:
        at = low.find(word)
        while at >= 0:
            places.append(at)
            at = low.find(word, at + 1)
    windows: list[tuple[int, int]] = []
    for at in sorted(places):
        start, end = max(0, at - _AROUND), min(len(text), at + _AROUND)
        if windows and windows[-1][1] >= start:
            windows[-1] = (windows[-1][0], end)
        else:
            windows.append((start, end))
    return windows


def _blank(match: re.Match[str]) -> str:
    return " " * len(match.group())  # what someone said stays as it was said


def _is_dated_dates(text: str, match: re.Match[str]) -> bool:
    """Whether the date itself stands beside it."""
    behind = text[match.end() : match.end() + _NEAR_DATES].split("\n", 1)[0]
    before = text[max(0, match.start() - _NEAR_DATES) : match.start()].rsplit("\n", 1)[-1]
    return bool(_DATE_DATES.search(behind) or _DATE_DATES.search(before))


def _is_a_habit(text: str, match: re.Match[str]) -> bool:
    """`the report runs on Friday`: a rule for every Friday, not a date."""
    if not _HABIT.match(match.group()):
        return False
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return bool(_REPEATING_DATES.search(text[start : end if end >= 0 else len(text)]))


def _is_meant_dates(text: str, match: re.Match[str]) -> bool:
    """`today` may mean nowadays, and `in two weeks` how long it takes: what stands before decides."""
    cue = _cue(match)
    if cue is None:
        return True
    before = text[max(0, match.start() - 80) : match.start()]
    sentence = _SENTENCE.split(before)[-1]
    return not sentence.strip() or cue.search(sentence) is not None


def _cue(match: re.Match[str]) -> re.Pattern[str] | None:
    if match.re is not _ENGLISH:
        return None
    if match["today"]:
        return _HAPPENED
    return _PLANNED if match["within"] else None
