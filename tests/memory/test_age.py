"""How old a memory is: local days, and a caveat from two whole days on."""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.memory.recall_results import DAY, format_age, format_caveat


def at(text: str) -> float:
    """A local time."""
    return datetime.datetime.fromisoformat(text).astimezone().timestamp()


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("2026-03-05 12:00:00", "today"),
        ("2026-03-05 00:00:00", "today"),
        ("2026-03-04 23:59:59", "yesterday"),
        ("2026-03-04 00:00:00", "yesterday"),
        ("2026-03-03 23:59:00", "2 days ago"),
        ("2025-03-05 12:00:00", "365 days ago"),
    ],
)
def test_the_age_counts_local_days(then: str, said: str) -> None:
    assert format_age(at(then), at("2026-03-05 12:00:00")) == said


def test_days_are_those_of_the_place_and_not_of_greenwich(new_york: None) -> None:
    assert format_age(at("2026-03-04 20:30:00"), at("2026-03-04 23:30:00")) == "today"
    assert format_age(at("2026-03-07 23:30:00"), at("2026-03-08 23:00:00")) == "yesterday"  # 23 hours


def test_a_clock_that_jumped_back_says_today_and_gives_no_caveat() -> None:
    assert format_age(2_000_000.0, 1_000_000.0) == "today"
    assert format_caveat(2_000_000.0, 1_000_000.0) == ""


def test_the_caveat_begins_at_two_whole_days() -> None:
    now = at("2026-03-05 12:00:00")
    assert format_caveat(now - 2 * DAY + 1, now) == ""
    assert "2 days ago" in format_caveat(now - 2 * DAY, now)
    assert "47 days ago" in format_caveat(now - 47 * DAY, now)


@given(st.floats(), st.floats())
def test_no_number_is_too_odd(modified: float, now: float) -> None:
    assert format_age(modified, now) == "today" or format_age(modified, now).endswith(
        ("yesterday", "days ago")
    )
    if math.isnan(modified) or math.isnan(now):
        assert format_caveat(modified, now) == ""
