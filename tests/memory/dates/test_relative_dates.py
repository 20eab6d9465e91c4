"""Relative dates: what is surely one is found, what only looks like one is left alone."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.memory.dates.relative import list_relative_dates

SHARED = Path(__file__).parents[4] / "shared/data"
DATES = SHARED / "dates_dev.jsonl.gz"
FILES = SHARED / "memory_files_dev.jsonl.gz"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("We agreed yesterday to freeze.", ["yesterday"]),
        ("Yesterday evening it broke.", ["Yesterday evening"]),
        ("The freeze begins next Friday.", ["next Friday"]),
        ("It broke last week.", ["last week"]),
        ("Launch is in 3 days.", ["in 3 days"]),
        ("In two weeks we freeze merges.", ["In two weeks"]),
        ("She will be back in a couple of weeks", ["in a couple of weeks"]),
        ("Reported 3 days ago by Ann.", ["3 days ago"]),
        ("a week ago", ["a week ago"]),
        ("the day after tomorrow", ["the day after tomorrow"]),
        ("Ship by Thursday, no later.", ["by Thursday"]),
        ("Done by the end of the month", ["by the end of the month"]),
        ("Meeting on Monday with legal", ["on Monday"]),
        ("Today we decided to drop it.", ["Today"]),
        ("- Merged today: the parser", ["today"]),
        ("It happened this morning and last night", ["this morning", "last night"]),
        ("Later this year, maybe next quarter", ["Later this year", "next quarter"]),
        ("six months from now", ["six months from now"]),
        ("昨天决定冻结合并", ["昨天"]),
        ("两天后上线", ["两天后"]),
        ("下周五发布，上个月已通知", ["下周五", "上个月"]),
        ("3 天前修复；明年初重写", ["3 天前", "明年初"]),
        ("周五前完成", ["周五前"]),
        ("兩週後開會，後天部署", ["兩週後", "後天"]),
        ("yesterday and yesterday", ["yesterday"]),
    ],
)
def test_relative_dates_are_found(text: str, found: list[str]) -> None:
    assert list_relative_dates(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "It is a last resort.",
        "the next step is to test",
        "a daily build and weekly reports",
        "posts of the last 30 days",
        "show the past 7 days",
        "last but not least",
        "the last week of March 2026",
        "the last day of the month",
        "Friday, 2026-03-06",
        "On 2026-03-05 (yesterday) we froze merges",
        "next Friday, March 6",
        "decided last week (2026-W10)",
        "The job runs on Friday.",
        "Never deploy on Friday",
        "every Monday",
        "the API returns this today",
        "Nothing imports it today.",
        "today's date",
        "sorted in 3 days of work",
        "it took two weeks",
        "Finished the port in two weeks.",
        "`git log --since='2 weeks ago'`",
        "```\nnext week\n```",
        'When asked "what should I do today?", answer',
        "next/router and this.month",
        "tomorrow-land",
        "yesterday.md",
        "先天与后天性",
        "目前年薪",
        "每周五前提交",
        "后端重写，前台不变",
        "每天",
        "以后再说，之前说过",
        "2026年3月5日（昨天）",
        "",
    ],
)
def test_what_only_looks_like_one_is_left_alone(text: str) -> None:
    assert list_relative_dates(text) == []


@given(st.text())
def test_every_find_stands_in_the_text(text: str) -> None:
    for found in list_relative_dates(text):
        assert found in " ".join(text.split())


def test_a_large_text_has_a_bounded_answer() -> None:
    text = "\n".join(f"{n} days ago it broke, in {n} weeks it will again" for n in range(9_000))
    assert 0 < len(list_relative_dates(text)) <= 50


@pytest.mark.skipif(not DATES.exists(), reason="the development data is not here")
def test_most_expressions_of_public_suites_are_found() -> None:
    plain = re.compile(
        r"(?:on )?(?:yesterday|tomorrow|(?:last|next|this) (?:week|month|year|\w+day)"
        r"|(?:\w+|a) (?:days?|weeks?|months?|years?) ago|in (?:\d+|two) (?:days?|weeks?))",
        re.IGNORECASE,
    )
    with gzip.open(DATES, "rt", encoding="utf-8") as lines:
        texts = {json.loads(line)["text"].strip() for line in lines}
    relative = [text for text in texts if plain.fullmatch(text)]
    found = [text for text in relative if list_relative_dates(text)]
    assert len(relative) > 30
    assert len(found) / len(relative) > 0.95


@pytest.mark.skipif(not FILES.exists(), reason="the development data is not here")
def test_real_memories_give_few_alarms() -> None:
    with gzip.open(FILES, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    alarms = [row["path"] for row in rows if list_relative_dates(row["text"])]
    assert len(rows) == 382
    assert len(alarms) <= 10
