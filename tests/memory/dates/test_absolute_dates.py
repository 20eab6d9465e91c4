"""Relative dates become calendar dates where they are sure; where people differ they stay."""

from __future__ import annotations

import datetime
import gzip
import hashlib
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.memory.dates.days import DaySpan
from sevenfold.memory.dates.relative import find_relative_dates, list_relative_dates, make_dates_absolute

DATES = Path(__file__).parents[4] / "shared/data/dates_dev.jsonl.gz"


def moment(day: str, hour: int = 12) -> float:
    said = datetime.date.fromisoformat(day)
    return datetime.datetime.combine(said, datetime.time(hour)).timestamp()


TUESDAY = moment("2026-11-03")


@pytest.mark.parametrize(
    ("text", "dated"),
    [
        ("The freeze is on Thursday.", "The freeze is on 2026-11-05."),
        ("We met on Monday and agreed.", "We met on 2026-11-02 and agreed."),
        ("Tomorrow we ship the beta.", "On 2026-11-04 we ship the beta."),
        ("Tomorrow is the deadline.", "2026-11-04 is the deadline."),
        ("It broke the day before yesterday", "It broke on 2026-11-01"),
        ("the demo is next Friday at 3pm", "the demo is 2026-11-13 at 3pm"),
        ("Finish by Friday.", "Finish by 2026-11-06."),
        ("since Monday the build is red", "since 2026-11-02 the build is red"),
        ("the release moved to Thursday", "the release moved to 2026-11-05"),
        ("on Friday next week we freeze", "on 2026-11-13 we freeze"),
        ("I was in Osaka last week", "I was in Osaka in the week of 2026-10-26"),
        ("done by the end of the month", "done by the end of 2026-11"),
        ("We move early next year.", "We move in early 2027."),
        ("ready by the end of next quarter", "ready by the end of 2027-Q1"),
        ("In two weeks we migrate.", "On 2026-11-17 we migrate."),
        ("We will be done in 3 months.", "We will be done in 2027-02."),
        ("It was reported 3 days ago.", "It was reported on 2026-10-31."),
        ("today I fixed the parser", "on 2026-11-03 I fixed the parser"),
        ("the 15th of next month", "2026-12-15"),
        ("上线时间定在下周五", "上线时间定在2026-11-13"),
        ("明天下午3点开会", "2026-11-04下午3点开会"),
        ("昨晚服务挂了", "2026-11-02晚上服务挂了"),
        ("周五前必须合并", "2026-11-06前必须合并"),
        ("下个月15号截止，月底前交付", "2026-12-15截止，2026年11月底前交付"),
        ("两周前开始的", "2026-10-20开始的"),
        ("明年3月搬家", "2027年3月搬家"),
        ("会议改到周四，请通知大家", "会议改到2026-11-05，请通知大家"),
        ("後天部署", "2026-11-05部署"),
    ],
)
def test_sure_dates_are_written_as_calendar_dates(text: str, dated: str) -> None:
    assert make_dates_absolute(text, TUESDAY) == dated


@pytest.mark.parametrize(
    "text",
    [
        "We deploy on Friday every week.",
        "last Monday it rained",  # yesterday, or the week before
        "this Monday",  # gone already
        "next weekend",
        "a few days ago",
        "over the last week the tests were flaky",
        "for the next month we only fix bugs",
        "in Berlin on Friday",
        "LLMs today are good",
        "today's models",
        "It took him in two weeks to learn",
        "two days after next Friday",
        '"next Friday" is what he said, `tomorrow` too',
        "last Friday, 2026-10-30, we stopped",
        "The freeze begins this Thursday (2026-11-05)",
        "The next step is a last resort",
        "每周五发布",
        "上线三天后再观察",
        "先天不足，后天努力",
        "no date at all",
        "",
    ],
)
def test_what_is_not_sure_stays_as_it_is(text: str) -> None:
    assert make_dates_absolute(text, TUESDAY) == text


def test_a_weekday_beside_another_week_may_be_of_either() -> None:
    dated = make_dates_absolute("next week's demo moved to Wednesday", TUESDAY)
    assert dated == "the week of 2026-11-09's demo moved to Wednesday"


def test_next_march_is_sure_only_when_march_is_over() -> None:
    assert make_dates_absolute("we move next March", TUESDAY) == "we move in 2027-03"
    assert make_dates_absolute("we move next March", moment("2026-02-03")) == "we move next March"


def test_a_date_is_counted_from_the_day_it_was_said_not_from_any_other() -> None:
    assert make_dates_absolute("due tomorrow", moment("2024-02-28")) == "due 2024-02-29"
    assert make_dates_absolute("due tomorrow", moment("2026-12-31", 23)) == "due 2027-01-01"


@pytest.mark.parametrize(
    ("expression", "first", "last"),
    [
        ("next week", "2026-11-09", "2026-11-15"),
        ("this weekend", "2026-11-07", "2026-11-08"),
        ("next month", "2026-12-01", "2026-12-31"),
        ("last year", "2025-01-01", "2025-12-31"),
        ("by Friday", "2026-11-06", "2026-11-06"),
        ("two weeks ago", "2026-10-20", "2026-10-20"),
        ("EOQ", "2026-10-01", "2026-12-31"),
        ("下周", "2026-11-09", "2026-11-15"),
        ("上个月", "2026-10-01", "2026-10-31"),
    ],
)
def test_an_expression_alone_gives_its_days(expression: str, first: str, last: str) -> None:
    span = _first(expression, TUESDAY)
    assert span is not None
    assert (span.first.isoformat(), span.last.isoformat()) == (first, last)


@pytest.mark.parametrize("expression", ["", "soon", "on Tuesday", "next weekend", "the parser"])
def test_an_expression_that_is_not_sure_gives_nothing(expression: str) -> None:
    assert _first(expression, TUESDAY) is None


@pytest.mark.parametrize("at", [math.nan, math.inf, -1e18, 1e18])
def test_a_moment_that_no_calendar_knows_changes_nothing(at: float) -> None:
    assert make_dates_absolute("due tomorrow", at) == "due tomorrow"
    assert find_relative_dates("tomorrow", at) == []


_EXPRESSIONS = (
    *("tomorrow", "next Friday", "last week", "on Thursday", "by EOD", "in two weeks", "this month"),
    *("the week after next", "3 days ago", "tonight", "下周五", "月底前", "昨晚", "明年3月", "上个月"),
)


@given(
    st.lists(
        st.one_of(
            st.sampled_from(_EXPRESSIONS), st.sampled_from(["we ship", "was", "，", ". ", "\n", "it is"])
        ),
        max_size=8,
    ),
    st.integers(0, 4_000),
)
def test_what_was_dated_once_is_not_dated_again(parts: list[str], days: int) -> None:
    text, at = " ".join(parts), TUESDAY + days * 86_400
    once = make_dates_absolute(text, at)
    assert make_dates_absolute(once, at) == once


@given(st.text(max_size=200), st.integers(0, 100_000))
def test_every_text_is_taken_and_only_the_places_found_change(text: str, hours: int) -> None:
    at = TUESDAY + hours * 3600
    found = find_relative_dates(text, at)
    assert all(a.end <= b.start for a, b in pairwise(found))
    if not found:
        assert make_dates_absolute(text, at) == text


# --- the shared expressions -----------------------------------------------------------------------------


def _reference(row: dict[str, Any]) -> float | None:
    """The moment of a row; chrono gives it as an argument of JavaScript's Date."""
    if "reference" in row:
        return datetime.datetime.fromisoformat(row["reference"]).timestamp()
    given_as = str(row["reference_js"] or "")
    try:
        if given_as.startswith('"'):
            day = datetime.datetime.strptime(given_as.strip('"')[:15].strip(), "%a %b %d %Y")
            return day.replace(hour=12).timestamp()
        year, number, day_of, *rest = (_number(part) for part in given_as.split(","))
        hour, minute = ([*rest, 0, 0])[:2]
        return datetime.datetime(year, number + 1, day_of, hour, minute).timestamp()
    except ValueError:
        return None


def _number(text: str) -> int:
    left, minus, right = text.strip().partition(" - ")
    return int(left) - int(right) if minus else int(left)


def _expected(row: dict[str, Any]) -> list[datetime.date]:
    days = []
    for value in row["values"]:
        start = value.get("value") or value.get("start")
        if isinstance(start, str):
            days.append(datetime.date.fromisoformat(start[:10]))
        elif isinstance(start, dict) and {"year", "month", "day"} <= start.keys() and start["year"] > 0:
            days.append(datetime.date(start["year"], start["month"], start["day"]))
    return days


def _first(text: str, at: float) -> DaySpan | None:
    found = find_relative_dates(text, at)
    return found[0].span if found else None


@pytest.mark.skipif(not DATES.exists(), reason="the shared data is not beside this checkout")
@pytest.mark.parametrize(("tuned", "least"), [(True, 125), (False, 60)])
def test_shared_expressions_are_dated_right_or_left_as_they_are(tuned: bool, least: int) -> None:
    """Two expressions of three were looked at while the rules were made; the third was only counted.

    Right: the day that the suite expects is one of those we name. Of the expressions that are found, 134
    are right, 5 wrong and 42 left as written in the part that was looked at; 69, 1 and 20 in the other.
    What counts as wrong is a weekend that begins on Friday evening, `after this year` as a day of the next
    one, and `by` a month as the days until then.
    """
    right, wrong, left = 0, list[str](), 0
    with gzip.open(DATES, "rt", encoding="utf-8") as file:
        rows = [row for row in map(json.loads, file) if _is_tuned(row["text"]) is tuned]
    for row in rows:
        at, expected = _reference(row), _expected(row)
        if at is None or len(row["text"]) > 300 or (not expected and row["type"] != "none"):
            continue
        span = _first(row["text"], at)
        if span is None:
            left += bool(list_relative_dates(row["text"]))
        elif any(span.first <= day <= span.last for day in expected):
            right += 1
        else:
            wrong.append(row["text"])
    assert right >= least
    assert right >= 25 * len(wrong), wrong
    assert left <= right / 3


def _is_tuned(text: str) -> bool:
    return hashlib.sha256(text.encode()).digest()[0] % 3 != 0
