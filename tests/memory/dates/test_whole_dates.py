"""Only a whole expression that means one day gets a date; every other text comes back byte for byte."""

from __future__ import annotations

import datetime
import gzip
import json
import re
from pathlib import Path

import pytest

from sevenfold.memory.consolidation.dates import resolve_dates
from sevenfold.memory.dates.relative import find_relative_dates, list_relative_dates, make_dates_absolute

FILES = Path(__file__).parents[4] / "shared/data/memory_files_dev.jsonl.gz"
TUESDAY = datetime.datetime(2026, 11, 3, 12).timestamp()

AS_WRITTEN = (
    "This may surprise callers.",
    "This may, however, break.",
    "THIS MAY BREAK",
    "This May Surprise You",
    "We march on; next march is longer.",
    "The review is on monday the twenty seventh.",
    "It is due on Friday the 27th.",
    "due Friday (20.11.)",
    "scheduled for Saturday, February 14th, at 7",
    "Delete sessions last used > 7 days ago.",
    "Files older than 3 days are removed.",
    "If the last run was 3 days ago, start again.",
    "It broke about two weeks ago, or 2 to 3 days ago.",
    "We meet every Monday.",
    "study on Wednesday mornings",
    "call on Monday or Tuesday",
    "She will call today or tomorrow.",
    "next tuesday +10 days",
    "tomorrow afternoonish",
    "we will see in 4 years at 5pm",
    "today in one hour",
    "She called a week ago last Tuesday.",
    "The move is a week from tomorrow.",
    "They met on Friday week.",
    "See the Monday after next week's release.",
    "Write to tomorrow@example.org.",
    "Invoices are due in 14 days.",
    "An invoice is due in 14 days.",
    "Kangding (End of Day 4)",
    "At the end of the day it is a matter of taste.",
    "| Metric | Current month | Previous Month | Change |",
    "your upcoming Saturday session",
    "behaves exactly as today",
    "the raw bytes pass through verbatim today",
    "Today, if a field is added, nothing happens.",
    "today := time.Date(2026, 1, 22)",
    "Date:      yesterday,",
    "List recent commits in last week",
    "expected today's checkpoints before yesterday's, got:",
    "I tried those wines this weekend.",
    "The lesson is tomorrow, Sunday.",
    "On 15 April 2022 Nate said that he dyed his hair last week.",
    "The test is this afternoon or tomorrow.",
    "Friday tonight is out.",
    "Not tonight, please.",
    "My brain is often hazy by Friday.",
    "a short look before Wednesday's session",
    "Today, I'm excited to share a recipe.",
    "eggs prepped on Sunday for the week",
    "Plans\nfor next\n\nweek 7 is long",
)


@pytest.mark.parametrize("text", AS_WRITTEN)
def test_what_is_no_whole_date_comes_back_byte_for_byte(text: str) -> None:
    assert make_dates_absolute(text, TUESDAY) == text


@pytest.mark.parametrize("text", ["This may surprise callers.", "This may be late.", "THIS MAY BREAK"])
def test_may_that_is_no_month_is_no_relative_date(text: str) -> None:
    assert list_relative_dates(text) == []


@pytest.mark.parametrize(
    ("text", "dated"),
    [
        ("It broke 2 weeks and 2 days ago.", "It broke on 2026-10-18."),
        ("We will ship in 1 week and 3 days.", "We will ship on 2026-11-13."),
        ("The lesson is tomorrow, Wednesday.", "The lesson is 2026-11-04, Wednesday."),
        ("We moved this May.", "We moved in 2026-05."),
        ("Tomorrow finish the port.", "On 2026-11-04 finish the port."),
        ("She is worried about next week.", "She is worried about the week of 2026-11-09."),
        (
            "Glad to hear that the session on Friday worked.",
            "Glad to hear that the session on 2026-10-30 worked.",
        ),
        ("done by the EOM", "done by the end of 2026-11"),
        ("done by the end of the day", "done by 2026-11-03"),
        ("it is planned for *tomorrow*", "it is planned for *2026-11-04*"),
        ("Last week was wild.", "The week of 2026-10-26 was wild."),
        (
            "I was thinking of a walk on Thursday evening.",
            "I was thinking of a walk on 2026-11-05 evening.",
        ),
        ("我们明天v2发布", "我们2026-11-04 v2发布"),
    ],
)
def test_a_whole_expression_gets_its_date(text: str, dated: str) -> None:
    assert make_dates_absolute(text, TUESDAY) == dated


@pytest.mark.parametrize(
    "text", [*AS_WRITTEN, "The audit begins on Monday.", "明天v2发布", "Ship it by Friday."]
)
def test_a_dream_dates_what_a_write_dates(text: str) -> None:
    assert resolve_dates(text, TUESDAY) == make_dates_absolute(text, TUESDAY)


@pytest.mark.skipif(not FILES.exists(), reason="the shared data is not beside this checkout")
def test_in_real_memory_files_only_the_places_found_change() -> None:
    with gzip.open(FILES, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    changed = 0
    for text in texts:
        dated = make_dates_absolute(text, TUESDAY)
        places = find_relative_dates(text, TUESDAY)
        changed += dated != text
        if not places:
            assert dated == text
        kept = [text[:at] for at in (places[0].start,)] if places else []
        assert all(dated.startswith(part) for part in kept)
        assert re.sub(r"\s+", "", text[places[-1].end :] if places else "") in re.sub(r"\s+", "", dated)
    assert changed <= 10
