"""Dates that only mean something on the day they were written: `yesterday`, `next Friday`, `两天后`.

A memory is read weeks later, so it should hold the date itself. What is found here is surely such an
expression; when in doubt it is left alone (`the last 30 days`, `the next step`, `last resort`), and so
is one with its date beside it (`last Friday, 2026-03-06`).
"""

from __future__ import annotations

import re
from typing import Final

from sevenfold.memory.links import without_code

MOST: Final = 50
"""Expressions that are reported of one text."""
LONGEST: Final = 200_000
"""Characters of a text that are looked at."""

_DAY: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_MONTH: Final = (
    r"(?:january|february|march|april|may(?!\s+be)|june|july|august|september|october|november"
    r"|december)"
)
_UNIT: Final = r"(?:days?|weeks?|fortnights?|months?|quarters?|years?)"
_PERIOD: Final = (
    r"(?:week(?:-?end)?|fortnight|month|quarter|qtr|year|yr|spring|summer|autumn|winter)"
)
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
_DATE: Final = re.compile(
    r"\d{4}[-/.年]\d{1,2}(?:[-/.月]\d{1,2})?"
    r"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+\d{1,2}\b"
    r"|\b\d{1,2}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
    r"|\d{1,2}月\d{1,2}[日号號]|\b\d{1,2}[/-]\d{1,2}\b|\b(?:19|20)\d\d\b",
    re.IGNORECASE,
)
_REPEATING: Final = re.compile(
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
_QUOTED: Final = re.compile(r"\"[^\"\n]{1,300}\"|“[^”\n]{1,300}”|「[^」\n]{1,300}」")
_HABIT: Final = re.compile(r"^(?:on|by|before|until|since)\s", re.IGNORECASE)
_NEAR: Final = 24
_AROUND: Final = 80
_HAN: Final = re.compile("[\u4e00-\u9fff]")
_WORDS: Final = (
    "day", "week", "month", "night", "year", "quarter", "morrow", " ago", "morning", "noon", "evening",
    "now", "hence", "qtr", "yr", "eo", "spring", "summer", "autumn", "winter", "next ", "last ",
)  # fmt: skip


def relative_dates(text: str) -> list[str]:
    """The relative dates of a text, as they stand there, in order, each once."""
    text = text[:LONGEST]
    wide = not text.isascii() and _HAN.search(text) is not None
    windows = _windows(text)
    if not wide and not windows:
        return []
    plain = _QUOTED.sub(_blank, without_code(text))
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
        if not _is_dated(plain, match) and not _is_a_habit(plain, match) and _is_meant(plain, match)
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


def _is_dated(text: str, match: re.Match[str]) -> bool:
    """Whether the date itself stands beside it."""
    behind = text[match.end() : match.end() + _NEAR].split("\n", 1)[0]
    before = text[max(0, match.start() - _NEAR) : match.start()].rsplit("\n", 1)[-1]
    return bool(_DATE.search(behind) or _DATE.search(before))


def _is_a_habit(text: str, match: re.Match[str]) -> bool:
    """`the report runs on Friday`: a rule for every Friday, not a date."""
    if not _HABIT.match(match.group()):
        return False
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return bool(_REPEATING.search(text[start : end if end >= 0 else len(text)]))


def _is_meant(text: str, match: re.Match[str]) -> bool:
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
