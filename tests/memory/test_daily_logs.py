"""Daily logs: one file a day, found by its name."""

from __future__ import annotations

import pytest

from sevenfold.memory.daily_logs import parse_log_day


def test_a_log_lies_under_year_and_month() -> None:
    assert parse_log_day("logs/2026/03/2026-03-05.md") == "2026-03-05"


@pytest.mark.parametrize(
    "file",
    [
        "logs/2026/04/2026-03-05.md",
        "logs/2026/02/2026-02-31.md",
        "logs/2026-03-05.md",
        "2026/03/2026-03-05.md",
        "logs/2026/03/notes.md",
        "logs/2026/03/2026-03-05.md/..",
    ],
)
def test_other_files_are_no_logs(file: str) -> None:
    assert parse_log_day(file) == ""
