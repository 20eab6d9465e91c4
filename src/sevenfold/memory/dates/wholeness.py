"""Tells a whole expression from a part of a longer one: of those a date for the part would be wrong.

`2 days ago` in "2 weeks and 2 days ago", `on Monday` in "on Monday the 27th", `7 days ago` in
"> 7 days ago".
"""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = r"(?:minutes?|mins?|hours?|hrs?|days?|weeks?|fortnights?|months?|quarters?|years?)"
_NUMBERS: Final = (
    r"(?:\d+(?:[.,]\d+)?|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|half|several"
    r"|a\s+few|a\s+couple(?:\s+of)?)"
)
_ORDINALS: Final = (
    r"(?:\d{1,2}(?:st|nd|rd|th)|(?:twenty|thirty)?[\s-]?(?:first|second|third|fourth|fifth|sixth|seventh"
    r"|eighth|ninth)|tenth|eleventh|twelfth|\w+teenth|twentieth|thirtieth)\b"
)
_DAYS: Final = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?s?\b"
_NEAR: Final = r"(?:yesterday|today|tomorrow|tonight)\b"
_GOES_ON: Final = re.compile(
    rf"\s*,?\s*(?:on\s+)?(?:the\s+)?{_ORDINALS}"  # the 27th, the twenty seventh
    rf"|\s*[+-]\s*\d+\s*{_UNITS}"  # + 10 days
    rf"|\s*(?:,|and|&|,\s*and|plus|minus)\s+{_NUMBERS}\s+{_UNITS}"
    rf"|\s+in\s+{_NUMBERS}\s+{_UNITS}"  # today in one hour
    rf"|\s*(?:or|to|through|thru|and|[-–—/&])\s*(?:on\s+)?(?:{_DAYS}|{_NEAR}|so\b|\d+\s+{_UNITS})"
    r"|\s+(?:before|after)\s+(?:last|next|that|this)\b"
    r"|@|\s+weeks?\b"  # Friday week
    r"|(?:\s+(?:at\s+|in\s+between\s+|around\s+)?[\d:-]*\s*|\s+(?:morning|afternoon|evening|night|noon))ish\b"
    r"|\s*\+|\s+\d+\b(?!\s*(?:-\s*\d+\s*)?(?:am|pm|a\.m|p\.m|:|h\b|o['’]clock))"  # end of day 4
    r"|\s+(?:morning|afternoon|evening|night)s\b",
    re.IGNORECASE,
)
_GOES_BEFORE: Final = re.compile(
    rf"(?:\b{_NUMBERS}\s+{_UNITS}\s*(?:,|and|&|,\s*and|plus|minus|from)\s*"  # 2 weeks and
    rf"|\b{_NUMBERS}\s*(?:to|or|-|–)\s*"
    r"|[<>≤≥~≈]\s*=?\s*|\bor\s+"
    r"|\b(?:than|around|roughly|approximately|approx\.?|almost|nearly|circa|ca\.|perhaps|maybe|probably)\s+"
    rf"|\b(?:{_DAYS}|{_NEAR})\s*(?:or|to|through|thru|and|[-–—/&])\s*)$",
    re.IGNORECASE,
)
_AGO: Final = re.compile(r"\bago\s*$", re.IGNORECASE)
_THAT_DAY: Final = re.compile(rf"\s*(?:last|next|this)\s+{_DAYS}", re.IGNORECASE)  # a week ago last Tuesday
_MONTHS: Final = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_ANOTHER_DAY: Final = re.compile(
    rf"\b\d{{4}}-\d\d-\d\d\b|\b\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTHS},?\s+\d{{4}}\b"
    rf"|\b{_MONTHS}\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}}\b",
    re.IGNORECASE,
)
"""A sentence that names its own day first counts from that: "on 15 April 2022 he said that last week …"."""
_RULE: Final = re.compile(r"\b(?:if|unless|whenever|until|as\s+long\s+as)\b", re.IGNORECASE)
_OF_A_KIND: Final = re.compile(  # invoices are due in 14 days: any of them
    r"^\W*(?:(?!(?:the|our|all|these|those|my|his|her|their|both)\b)\w+s\s+are|an?\s+[\w ]+\s+is)"
    r"\s+(?:due|payable)\s+$",
    re.IGNORECASE,
)
_ROUGHLY: Final = re.compile(r"\b(?:about|some|most|least|over|under)\s+$", re.IGNORECASE)
_AT_A_TIME: Final = re.compile(r"\s+at\s+\d", re.IGNORECASE)
_PART_OF_DAY: Final = re.compile(r"this\s+(?:morning|afternoon|evening)", re.IGNORECASE)
_UNCLEAR_TIME: Final = re.compile(r"\s+at\s+(?:12|[1-4])\b(?!\s*(?:am|pm|a\.m|p\.m|:))", re.IGNORECASE)
_LONG: Final = re.compile(r".*(?:months?|quarters?|years?)$", re.IGNORECASE)
_COUNTED: Final = re.compile(rf"(?:in\s+)?{_NUMBERS}\s+{_UNITS}\b", re.IGNORECASE)
_MODAL: Final = re.compile(r"(?:[Tt]his|THIS|[Ll]ast|[Nn]ext)\s+(?:may|march|MAY|MARCH)")
_NAMED: Final = re.compile(r"\s+[A-Z]")
_NOW: Final = re.compile(r"today|this\s", re.IGNORECASE)
_SOON: Final = re.compile(r"tomorrow|tonight", re.IGNORECASE)
_NONE: Final = re.compile(r"\b(?:none|nothing|never|nobody)\b", re.IGNORECASE)
_FROM: Final = re.compile(r"\bfrom\s+$", re.IGNORECASE)
_NOT: Final = re.compile(r"\b(?:no|none|nothing|never|not|nobody)\b|n['’]t\b", re.IGNORECASE)
_NEGATED: Final = re.compile(r"\bnot\s+$", re.IGNORECASE)
_CODE_BEHIND: Final = re.compile(r"\s*(?::=|=|\()|,$")  # `yesterday := …`, `Date: yesterday,`
_CODE_BEFORE: Final = re.compile(r"[:=({,]\s*$|^\s*(?:\d+\W+)?$")
_ONE_WORD: Final = re.compile(r"today|yesterday|tomorrow|tonight")
_PERIOD: Final = re.compile(r"last\s+(?:week|month|quarter|year)", re.IGNORECASE)
_IN: Final = re.compile(r"\bin\s+$", re.IGNORECASE)


def is_no_date(before: str, expression: str, behind: str) -> bool:
    """True for words that only look like a date: "this may surprise", "nothing imports it today"."""
    if _MODAL.fullmatch(expression) or (_PERIOD.fullmatch(expression) and _IN.search(before)):
        return True  # "in last week" is the seven days before any day
    if _ONE_WORD.fullmatch(expression) and _CODE_BEFORE.search(before) and _CODE_BEHIND.match(behind):
        return True
    if expression.endswith((" May", " March")) and _NAMED.match(behind):
        return True  # "This May Surprise You" is a title
    if _NEGATED.search(before):
        return True
    said = before + behind
    if _NOW.match(expression):
        return bool(_NOT.search(said))
    return bool(_SOON.match(expression) and _NONE.search(said) and not _FROM.search(before))


_WHICH: Final = re.compile(r"(?:upcoming|coming|last|next|previous|this)\s", re.IGNORECASE)
_DETERMINER: Final = re.compile(
    r"\b(?:your|my|our|his|her|their|an?|each|every|its|any)\s+$", re.IGNORECASE
)
_END_OF_DAY: Final = re.compile(r"(?:the\s+)?end\s+of\s+(?:the\s+)?day", re.IGNORECASE)
_BY: Final = re.compile(r"\b(?:by|before|until|till|due)\s+$", re.IGNORECASE)
_CELL: Final = re.compile(r"\s*\|")


def is_part_of_more(before: str, expression: str, behind: str) -> bool:
    """True if the words beside an expression change which day is meant."""
    if _GOES_ON.match(behind) or _GOES_BEFORE.search(before) or _ANOTHER_DAY.search(before):
        return True
    if (_AGO.search(expression) and _THAT_DAY.match(behind)) or (
        _AGO.search(before) and _THAT_DAY.match(expression)
    ):
        return True
    if _COUNTED.match(expression) and any(one.search(before) for one in (_RULE, _ROUGHLY, _OF_A_KIND)):
        return True  # "if the last run was 3 days ago" is so on any day
    if _WHICH.match(expression) and (_DETERMINER.search(before) or _is_cell(before, behind)):
        return True  # "your upcoming Saturday session", "| Previous month |"
    if _END_OF_DAY.fullmatch(expression):
        return not _BY.search(before)  # "at the end of the day" means after all
    if _UNCLEAR_TIME.match(behind) and _PART_OF_DAY.fullmatch(expression):
        return True
    return bool(_AT_A_TIME.match(behind) and _LONG.fullmatch(expression))


def _is_cell(before: str, behind: str) -> bool:
    """True for what stands alone in a cell of a table: the head of a column."""
    return before.rstrip().endswith("|") and bool(_CELL.match(behind))
