"""Rules for relative dates in Chinese, and the days they mean. Weeks begin on Monday."""

from __future__ import annotations

import datetime
import re
from functools import cache
from typing import Final

from sevenfold.memory.dates.days import (
    DaySpan,
    find_day_in_month,
    find_next_weekday,
    find_weekday_of_week,
    make_day_span,
    make_month_span,
    make_period_span,
    make_week_span,
    make_weekend_span,
    make_year_span,
    shift_span,
)
from sevenfold.memory.dates.english import Resolve, resolve_nothing

_DIGITS: Final = "零一二三四五六七八九"
_WEEK: Final = r"(?:周|週|星期|礼拜|禮拜)"
_WEEKDAY: Final = r"(?P<weekday>[一二三四五六日天])"
_NUMBER: Final = r"(?P<count>[一二两兩三四五六七八九十]{1,3}|\d{1,3})"
_SHIFT: Final = {"上上": -2, "上": -1, "本": 0, "这": 0, "這": 0, "下": 1, "下下": 2}
_WHICH: Final = r"(?P<which>上上|下下|[上下本这這])[个個]?"
_DAYS: Final = {
    "大前天": -3, "前天": -2, "昨": -1, "今": 0, "明": 1, "后天": 2, "後天": 2, "大后天": 3, "大後天": 3,
}  # fmt: skip
_PARTS: Final = {"晚": "晚上", "夜": "夜里", "早": "早上", "晨": "早晨"}
_UNITS: Final = {"天": "day", "日": "day", "月": "month", "年": "year"}
_YEARS: Final = {"前年": -2, "去年": -1, "今年": 0, "明年": 1, "后年": 2, "後年": 2}
_LONGEST_MONTH: Final = 31
_EDGE: Final = r"(?P<edge>底|末|初|中旬)?"


def parse_number(text: str) -> int:
    """`十五` is 15; 0 when it is no number we read."""
    if text.isdigit():
        return int(text)
    text = text.replace("两", "二").replace("兩", "二")
    tens, ten, ones = text.rpartition("十")
    if not ten:
        return _DIGITS.index(text) if len(text) == 1 else 0
    if len(tens) > 1 or len(ones) > 1:
        return 0
    return (_DIGITS.index(tens) if tens else 1) * 10 + (_DIGITS.index(ones) if ones else 0)


def _in_words(span: DaySpan, edge: str | None = None) -> DaySpan:
    """A month or a year as it is written in Chinese."""
    first = span.first
    whole = (span.last - first).days > _LONGEST_MONTH
    words = f"{first.year}年" if whole else f"{first.year}年{first.month}月"
    return DaySpan(first, span.last, f"{words}{edge or ''}", "")


def _named_day(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    word = match["word"]
    if word == "后天" and "先天" in match.string:
        return None  # born with, and made later: no date
    by = _DAYS.get(word, _DAYS.get(word[0], 0))
    date = today + datetime.timedelta(days=by)
    return DaySpan(date, date, f"{date.isoformat()}{_PARTS.get(word[-1], '')}", "")


def _weekday_number(character: str) -> int:
    return 6 if character in "日天" else _DIGITS.index(character) - 1


def _weekday(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    weekday = _weekday_number(match["weekday"])
    return make_day_span(find_weekday_of_week(today, weekday, _SHIFT[match["which"]]))


def _week(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    there = today + datetime.timedelta(days=7 * _SHIFT[match["which"]])
    span, words = (
        (make_weekend_span(there), "的周末") if match["end"] else (make_week_span(there), "那一周")
    )
    return DaySpan(span.first, span.last, f"{span.first.isoformat()}{words}", "")


def _month(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    there = make_month_span(today.year, today.month + _SHIFT[match["which"]])
    if match["number"]:
        return find_day_in_month(there, parse_number(match["number"]))
    return _in_words(there, match["edge"])


def _quarter(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    there = make_period_span("quarter", today, _SHIFT[match["which"]])
    return DaySpan(there.first, there.last, f"{there.words}{match['edge'] or ''}", "")


def _year(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    there = today.year + _YEARS[match["word"]]
    if not match["month"]:
        return _in_words(make_year_span(there), match["edge"])
    named = parse_number(match["month"])
    if not 1 <= named <= 12:
        return None
    whole = make_month_span(there, named)
    return find_day_in_month(whole, parse_number(match["number"])) if match["number"] else _in_words(whole)


def _this_end(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    """`月底前`: of this month, unless it is over already."""
    if match["word"].startswith("年"):
        return _in_words(make_year_span(today.year), "底")
    return _in_words(make_month_span(today.year, today.month), "底") if today.day < 25 else None


def _counted(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    count, unit = parse_number(match["count"]), _UNITS.get(match["unit"], "week")
    if not count:
        return None
    there = shift_span(unit, today, -count if match["side"] == "前" else count)
    return there if unit in ("day", "week") else _in_words(there)


def _coming_weekday(match: re.Match[str], today: datetime.date) -> DaySpan | None:
    weekday = _weekday_number(match["weekday"])
    return None if weekday == today.weekday() else make_day_span(find_next_weekday(today, weekday))


_SAID: Final = r"(?P<number>[一二三四五六七八九十]{1,3}|\d{1,2})"
_FROM_NOW: Final = (
    r"(?:(?<=[，。；！？、：,;:!?\s\n（(])|^|(?<=在)|(?<=于)|(?<=将)|(?<=會)|(?<=会)|(?<=到)|(?<=约)|(?<=们)"
    r"|(?<=我)|(?<=他)|(?<=她)|(?<=决定)|(?<=计划)|(?<=打算)|(?<=安排)|(?<=准备)|(?<=争取))"
)
"""`三天后` counts from now where nothing stands before it that it could count from."""


@cache
def make_rules() -> tuple[tuple[re.Pattern[str], Resolve], ...]:
    """In the order in which they are tried."""
    return tuple((re.compile(pattern), resolve) for pattern, resolve in _RULES)


_RULES: Final[tuple[tuple[str, Resolve], ...]] = (
    (
        r"(?P<word>大前天|(?<!大)前天|昨[天日晚夜]|今[天晚早晨]|今日(?!头条|頭條)|明[天早晚]|明日(?!方舟)"
        r"|大[后後]天|(?<![先以大])[后後]天(?![性的]))",
        _named_day,
    ),
    (rf"{_WHICH}{_WEEK}{_WEEKDAY}(?![期年])", _weekday),
    (rf"{_WHICH}{_WEEK}(?P<end>末)?(?![一二三四五六日天期年刊报岁歲])", _week),
    (rf"{_WHICH}月(?:{_SAID}[日号號]|{_EDGE})(?![台亮饼饼份])", _month),
    (rf"{_WHICH}季度{_EDGE}", _quarter),
    (
        r"(?P<word>[去今明]年|(?<![目以之先从從空提])前年(?!度)|(?<![今以之往])[后後]年(?!度))"
        rf"(?:(?P<month>[一二三四五六七八九十]{{1,2}}|\d{{1,2}})月(?:{_SAID}[日号號])?|年?(?P<edge>[底初]))?",
        _year,
    ),
    (
        r"(?<![\d一二三四五六七八九十个個上下本这這每去今明前后])(?P<word>[年月]底)(?P<post>[之以]?前)",
        _this_end,
    ),
    (
        rf"{_FROM_NOW}{_NUMBER}\s?[个個]?(?P<unit>天|日|周|週|星期|礼拜|禮拜|月|年)"
        r"[之以]?(?P<side>[前后後])(?![端台续續])",
        _counted,
    ),
    (rf"(?<![每毎上下本这這个個]){_WEEK}{_WEEKDAY}(?P<post>[之以]?前)", _coming_weekday),
    (
        rf"(?<=[在到至])(?<![现实存正]在){_WEEK}{_WEEKDAY}(?=[，。；！,;!]|$|上线|发布|交付|截止|冻结|开会|评审)",
        _coming_weekday,
    ),
    (
        rf"(?:(?<=截止)|(?<=截止日期是)|(?<=截止时间是)|(?<=改为)|(?<=就是)){_WEEK}{_WEEKDAY}",
        _coming_weekday,
    ),
    (
        r"(?<![\d月一二三四五六七八九十])(?:[一二两兩三四五六七八九十几幾数數半]{1,3}|\d{1,4})\s?[个個]?多?"
        rf"(?:工作日|天|日|{_WEEK}|月|季度|年|小时|小時|分钟|分鐘)[之以]?[前后後](?![端台续續])",
        resolve_nothing,
    ),
    (rf"{_WHICH}(?:学期|學期)(?:底|初|中旬|末)?", resolve_nothing),
)
