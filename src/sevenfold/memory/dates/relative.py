"""Finds relative dates in prose and turns those that are sure into calendar dates.

    make_dates_absolute("the freeze is on Thursday", at)     "the freeze is on 2026-11-05"
    find_relative_dates("下周五上线", at)                      [RelativeDate(0, 3, DaySpan(…"2026-11-13"))]
    list_relative_dates("it broke a few days ago")           ["a few days ago"]

A wrong date is worse than a relative one. So what may mean two things stays as it is: `next weekend`,
`last Monday` on a Tuesday, `on Friday` without a sign of whether it was or will be, `a few days ago`.
What is quoted or code is no relative date, and neither is an expression with its date beside it.
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
from sevenfold.memory.dates.english import Resolve, is_standing_chinese, is_standing_expression
from sevenfold.memory.dates.wholeness import is_no_date, is_part_of_more
from sevenfold.memory.text.markdown import blank_out_code

LONGEST: Final = 200_000  # Characters of a text that are looked at
MOST: Final = 50  # Expressions that are reported of one text

_HAN: Final = re.compile("[\u4e00-\u9fff]")
_GLUED: Final = re.compile("[A-Za-z0-9]")
_HINT: Final = re.compile(
    r"day|week|fortnight|month|quarter|qtr|year|\byr|morrow|night|morning|evening|noon|\bago\b|hence|from\s+now"
    r"|\beo[dwmqy]\b|\b(?:mon|tue|wed|thu|fri)\b|\b(?:last|next|this|past|previous|coming)\s+"
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|spring|summer|autumn|winter)",
    re.IGNORECASE,
)
"""Every expression in English has one of these words."""
_AROUND: Final = 80
"""No expression in English begins or ends further from its hint than this, in characters."""
_QUOTED: Final = re.compile(r"\"[^\"\n]{1,300}\"|“[^”\n]{1,300}”|「[^」\n]{1,300}」")
_DATE: Final = re.compile(
    r"\d{4}[-/.年]\d{1,2}(?:[-/.月]\d{1,2}[日号號]?)?"
    r"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+\d{1,2}(?:st|nd|rd|th)?\b"
    r"|\b\d{1,2}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
    r"|\d{1,2}月\d{1,2}[日号號]|\b\d{1,2}[/-]\d{1,2}\b|\b\d{1,2}\.\d{1,2}\.|\b(?:19|20)\d\d\b",
    re.IGNORECASE,
)
_BESIDE: Final = re.compile(r"^\s?[(（,，=:：]?\s?(?:which\s+is\s+|i\.?e\.?,?\s+|on\s+|the\s+|即|也就是)?")
_NEAR: Final = 20
_WEEKDAY_BEHIND: Final = re.compile(rf"[\s,*_(（]{{1,5}}({english_dates.WEEKDAY})\b", re.IGNORECASE)
_WEEKDAY_BEFORE: Final = re.compile(rf"\b({english_dates.WEEKDAY})[\s,*_(（]{{1,3}}$", re.IGNORECASE)
_CLAUSE: Final = re.compile(r"[.!?;\n。！？；]+(?:\s|$)|\n|[。！？；]")
_REPEATING: Final = re.compile(
    r"\b(?:every|each|always|never|usually|normally|typically|often|sometimes|weekly|daily|monthly|cron"
    r"|recurring|regularly)\b|每|总是|通常",
    re.IGNORECASE,
)
_WAS: Final = re.compile(
    r"\b(?:was|were|did|went|met|said|told|sent|made|found|got|began|gave|came|took|saw|ran|had|broke"
    r"|(?!need)\w{3,}ed)\b(?!\s+(?:thinking|planning|hoping|going|considering|wondering)\b)",
    re.IGNORECASE,
)
_WAS_THEN: Final = re.compile(
    r"\s+(?:was|were|went|broke|(?!need|schedul|plann|book|mov|postpon|delay|push|reschedul)\w{3,}ed)\b",
    re.IGNORECASE,
)
"""`the session on Friday worked`: nothing tells the time better than the verb behind it."""
_WILL: Final = re.compile(
    r"\b(?:will|shall|is|are|be|due|starts?|begins?|ends?|launch(?:es)?|releases?|deadline|ships?|deploys?"
    r"|going|thinking|hoping|plan(?:s|ned|ning)?|scheduled|moved|postponed|pushed|rescheduled|delayed|booked|set|leav(?:e|es|ing)"
    r"|meets?|meeting|review|demo|migrat\w+|freez\w+|finish|submit|deliver|needs?|must|have\s+to|to\s+\w+"
    r"|appointment|flight|exam|interview|can|should|let['’]?s)\b|['’](?:ll|s|re|m)\b",
    re.IGNORECASE,
)
_TODAY: Final = re.compile(
    r"(?<!\ba\s)(?<!\ban\s)(?<!\bthe\s)(?<!\bof\s)(?<!['’]m\s)(?<!['’]re\s)(?<!ing\s)(?<!\bare\s)\b(?:(?!need|us|bas|relat|requir|suppos|expect)\w{2,}ed"
    r"|was|were|did|went|met|said|told|sent|made|found|got|began|gave|came|took|saw|ran|had|bought|felt|left"
    r"|due|deadline|by|until|starting|later|as\s+of|appointment|will)\b"
    r"|['’](?:ll|ve)\b",
    re.IGNORECASE,
)
_OPENED: Final = re.compile(r"[(（:—–]\s*")
_EVENT: Final = re.compile(
    r"['’]s\s+(?:\w+\s+)?(?:meeting|call|standup|stand-up|deploy\w*|release|demo|review|workout"
    r"|class|lesson|incident|outage|appointment|exam|interview)\b",
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
_A_WEEK: Final = re.compile(
    r"\b(?:last|next|this|coming|following)\s+week\b|\bweek\s+of\b|for\s+the\s+(?:entire\s+|whole\s+)?week\b",
    re.IGNORECASE,
)
"""Beside it nobody knows which Friday is meant."""
_SUBJECT: Final = re.compile(
    r"\s+(?:is|was|will|are|were|would|works?|has|had|did|does|could|should)(?:n['’]t)?\b", re.IGNORECASE
)
_COUNTED: Final = re.compile(
    r"\b\w+\s+(?:days?|weeks?|months?|years?)\s+(?:before|after)\s*$", re.IGNORECASE
)
"""`two days after` what follows."""
_PREPOSITION: Final = re.compile(r"\b(?:by|until|till|before|due|since)\s+$", re.IGNORECASE)
_MANY_DAYS: Final = re.compile(r"\b(?:\d+|two|three|four|five|several|few)\s+day$", re.IGNORECASE)
"""`2 day before yesterday`."""


class DatePlace(msgspec.Struct, frozen=True):
    """An expression where it stands; `resolve` says which days it means, or None when that is not sure."""

    match: re.Match[str]
    start: int
    end: int  # The part that a calendar date would replace ends here
    resolve: Resolve
    preposition: str  # The one before it, if there is one: `by `, `since `


class RelativeDate(msgspec.Struct, frozen=True):
    """An expression where it stands, and what it means."""

    start: int
    end: int
    span: DaySpan


def make_dates_absolute(text: str, at: float, kept: Collection[str] = ()) -> str:
    """The text with calendar dates in place of the relative ones that are sure; `kept` lines stay."""
    out, done = [], 0
    for place in find_relative_dates(text, at):
        line = text[text.rfind("\n", 0, place.start) + 1 :].split("\n", 1)[0] if kept else ""
        if kept and line in kept:
            continue
        out += [text[done : place.start], _written(text, place)]
        done = place.end
    return "".join([*out, text[done:]])


def list_relative_dates(text: str) -> list[str]:
    """The relative dates of a text, sure or not, as they stand there, in order, each once."""
    found = (f"{place.preposition}{place.match.group()}" for place in find_date_places(text))
    return list(dict.fromkeys(" ".join(one.split()) for one in found))[:MOST]


def find_relative_dates(text: str, at: float) -> list[RelativeDate]:
    """The relative dates of a text that are sure, in order."""
    if (today := _day(at)) is None:
        return []
    return [
        RelativeDate(place.start, place.end, span)
        for place in find_date_places(text)
        if (span := _safely(place.resolve, place.match, today)) is not None
        and _is_that_weekday(text, place, span)
    ]


def _is_that_weekday(text: str, place: DatePlace, span: DaySpan) -> bool:
    """False if the weekday beside an expression is another: "tomorrow, Sunday" said on a Monday."""
    before = text[max(0, place.match.start() - _NEAR) : place.match.start()]
    beside = (_WEEKDAY_BEHIND.match(text, place.end), _WEEKDAY_BEFORE.search(before))
    named = [english_dates.parse_weekday(found[1]) for found in beside if found]
    return not named or (span.first == span.last and set(named) == {span.first.weekday()})


def find_date_places(text: str) -> list[DatePlace]:
    """Every relative date of a text, in order; what is no date, or has its date beside it, is left out."""
    head = text[:LONGEST]
    wide = not head.isascii() and _HAN.search(head) is not None
    windows = _find_windows(head)
    if not wide and not windows:
        return []
    plain = _QUOTED.sub(lambda quoted: " " * len(quoted.group()), blank_out_code(head))
    found = sorted(_matches(plain, windows, wide), key=lambda one: (one[0].start(), -one[0].end()))
    kept: list[DatePlace] = []
    taken = 0
    for match, resolve in found:
        if match.start() < taken:
            continue
        taken = match.end()  # also by what is no date: no part of it is one then
        if resolve is not None and not _is_dated(plain, match):
            kept.append(_make_place(plain, match, resolve))
    return kept


def _make_place(text: str, match: re.Match[str], resolve: Resolve) -> DatePlace:
    groups = match.re.groupindex
    start = match.end("pre") + 1 if "pre" in groups else match.start()
    end = match.start("post") if "post" in groups else match.end()
    before = "" if "pre" in groups else text[max(0, match.start() - 10) : match.start()]
    while start < len(text) and text[start].isspace():
        start += 1
    preposition = _PREPOSITION.search(before)
    return DatePlace(match, start, end, resolve, preposition[0] if preposition else "")


def _find_windows(text: str) -> list[tuple[int, int]]:
    """The parts of a text around its hints: most of a long text has none."""
    windows: list[tuple[int, int]] = []
    for hint in _HINT.finditer(text):
        start, end = max(0, hint.start() - _AROUND), min(len(text), hint.end() + _AROUND)
        if windows and windows[-1][1] >= start:
            windows[-1] = (windows[-1][0], end)
        else:
            windows.append((start, end))
    return windows


def _matches(
    plain: str, windows: list[tuple[int, int]], wide: bool
) -> Iterator[tuple[re.Match[str], Resolve | None]]:
    """Everything that looks like a relative date; without a way to resolve it, it is none."""
    weekday = english_dates.make_weekday_pattern()
    for start, end in windows:
        for pattern, resolve in english_dates.make_rules():
            for match in pattern.finditer(plain, start, end):
                yield match, _if_meant(plain, match, resolve)
        for match in weekday.finditer(plain, start, end):
            yield match, _weekday(plain, match)
    for pattern, resolve in chinese_dates.make_rules() if wide else ():
        for match in pattern.finditer(plain):
            before, behind = _around(plain, match)
            yield match, None if is_standing_chinese(before, match.group(), behind) else resolve


def _safely(resolve: Resolve, match: re.Match[str], today: datetime.date) -> DaySpan | None:
    try:
        return resolve(match, today)
    except (OverflowError, ValueError):  # a year that no calendar knows
        return None


def _day(at: float) -> datetime.date | None:
    try:
        today = datetime.datetime.fromtimestamp(at).astimezone().date()
    except (OverflowError, OSError, ValueError):
        return None
    return today if EARLIEST < today.year < LATEST else None


# --- what stands around it ------------------------------------------------------------------------------


def _is_dated(text: str, match: re.Match[str]) -> bool:
    behind = text[match.end() : match.end() + _NEAR].split("\n", 1)[0]
    beside = _BESIDE.match(behind)
    before = text[max(0, match.start() - _NEAR) : match.start()].rsplit("\n", 1)[-1]
    near = _DATE.match(behind, beside.end() if beside else 0)
    return bool(near) or any(
        re.fullmatch(r"\s?[(（,，=:：]?\s?", before[found.end() :]) for found in _DATE.finditer(before)
    )


def _if_meant(text: str, match: re.Match[str], resolve: Resolve) -> Resolve | None:
    """`resolve`; None when `today` means nowadays, `in two weeks` how long it takes, or a habit is told."""
    groups, (before, behind) = match.re.groupindex, _around(text, match)
    if is_no_date(before, match.group(), behind):
        return None
    if is_part_of_more(before, match.group(), behind):
        return english_dates.resolve_nothing
    if _COUNTED.search(before) or _MANY_DAYS.search(before + match.group()[:3]):
        return english_dates.resolve_nothing
    if is_standing_expression(before, match.group(), behind) or not _is_owner(behind):
        return None
    meant = True
    if "word" in groups and match["word"].lower() == "today":
        if match.end() < len(text) and text[match.end()] in "'’":
            meant = _EVENT.match(text, match.end()) is not None
        else:
            said = _OPENED.split(before)[-1] + (behind[:40] if not before.strip(" \t*_>-") else "")
            meant = _TODAY.search(said) is not None or not f"{before}{behind}".strip()
    elif re.fullmatch(r"this\s+week-?end", match.group(), re.IGNORECASE) and _WAS.search(before):
        return english_dates.resolve_nothing  # the last one, said on a Monday
    elif "within" in groups and match["within"]:
        meant = not (before.strip() and not _WILL.search(before)) and not _WAS.search(before + behind)
    elif "unit" in groups and "which" in groups and not match.group("which"):
        meant = not _REPEATING.search(before + behind)
    elif "unit" in groups and re.match(r"last|previous|next", match.group(), re.IGNORECASE):
        meant = not re.search(r"\bthe\s*$", before, re.IGNORECASE)
    return resolve if meant else None


def _is_owner(behind: str) -> bool:
    """`yesterday's outage` was one; `yesterday's partitions` are others every day, unless it is told."""
    if not behind.startswith(("'s", "’s")) or _EVENT.match(behind):
        return True
    return behind[2:3] == " " and bool(
        _WAS.search(behind[2:]) or re.search(r"\bwill\b", behind, re.IGNORECASE)
    )


def _weekday(text: str, match: re.Match[str]) -> Resolve | None:
    """`on Friday`: the nearest sign before it, else behind it, says whether it was or will be."""
    coming, past = english_dates.resolve_coming_weekday, english_dates.resolve_past_weekday
    before, behind = _around(text, match)
    if is_standing_expression(before, match.group(), behind):
        return None
    if is_part_of_more(before, match.group(), behind) or not _is_owner(behind):
        return english_dates.resolve_nothing
    pre = match["pre"].lower()
    if pre in ("from", "for", "to"):
        return coming if _MOVED.search(before) and not _A_WEEK.search(before + behind) else None
    if _A_WEEK.search(before + behind):
        return english_dates.resolve_nothing
    if pre == "since":
        return past
    if pre in ("by", "until", "till", "due"):
        over = _WAS.search(before) is not None and _WILL.search(before) is None
        return english_dates.resolve_nothing if over else coming
    if _WAS_THEN.match(behind):
        return past
    was, will = _last(_WAS, before), _last(_WILL, before)
    if was == will < 0:
        was, will = -_first(_WAS, behind), -_first(_WILL, behind)
    if was == will:
        return english_dates.resolve_nothing
    return past if was > will else coming


def _around(text: str, match: re.Match[str]) -> tuple[str, str]:
    """The rest of its sentence."""
    before, behind = (
        text[max(0, match.start() - 120) : match.start()],
        text[match.end() : match.end() + 120],
    )
    return _CLAUSE.split(before)[-1], _CLAUSE.split(behind)[0]


def _last(pattern: re.Pattern[str], text: str) -> int:
    return max((found.end() for found in pattern.finditer(text)), default=-1)


def _first(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return found.start() if found else len(text) + 1


# --- how it is written ----------------------------------------------------------------------------------


def _written(text: str, place: RelativeDate) -> str:
    """The date, with a preposition where an English sentence needs one."""
    span, before = place.span, text[max(0, place.start - 20) : place.start].rstrip("*_")
    inside = text[place.start : place.end]
    chinese = _HAN.search(inside) or _HAN.search(before[-2:])
    owner = text[place.end : place.end + 2] in ("'s", "’s")
    if chinese:
        return _set_apart(text, place)
    if owner or _JOINED.search(before) or _SUBJECT.match(text, place.end):
        begins = inside[:1].isupper() and not before.strip(" \t*_>-")
        return span.words[0].upper() + span.words[1:] if begins else span.words
    alone = not before.strip() and not text[: place.start].strip() and place.end == len(text.rstrip())
    if alone and not re.match(r"in\s|by\s", inside, re.IGNORECASE):
        return span.words
    return f"{span.join.capitalize() if inside[:1].isupper() else span.join}{span.words}"


def _set_apart(text: str, place: RelativeDate) -> str:
    """With a space where the date would run into a word or a number: Chinese needs none there."""
    before = " " if _GLUED.match(text[max(0, place.start - 1) : place.start]) else ""
    behind = " " if _GLUED.match(text[place.end : place.end + 1]) else ""
    return f"{before}{place.span.words}{behind}"
