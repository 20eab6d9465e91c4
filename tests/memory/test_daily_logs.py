"""Daily logs: one file a day, only ever appended to."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.core.errors import Refused
from sevenfold.memory.daily_logs import (
    LARGEST,
    DailyLogs,
    append_note,
    is_append_only,
    make_log_path,
    parse_log_day,
)


def at(text: str) -> float:
    """A local time."""
    return datetime.datetime.fromisoformat(text).astimezone().timestamp()


NOON = at("2026-03-05 12:30:00")


def test_a_log_lies_under_year_and_month() -> None:
    assert make_log_path(NOON) == "logs/2026/03/2026-03-05.md"
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


def test_notes_are_appended_with_their_time(tmp_path: Path) -> None:
    logs = DailyLogs(tmp_path / "memory")
    path = logs.append("Ann prefers short answers\nand tables", NOON)
    logs.append("second\r\n", NOON + 60)
    assert path == tmp_path / "memory/logs/2026/03/2026-03-05.md"
    assert path.read_text(encoding="utf-8") == (
        "# 2026-03-05\n\n- 12:30 Ann prefers short answers\n  and tables\n- 12:31 second\n"
    )
    assert path.stat().st_mode & 0o777 == 0o600
    logs.append("next day", at("2026-03-06 00:00:00"))
    assert logs.days() == ["2026-03-05", "2026-03-06"]
    assert logs.read("2026-03-06") == "# 2026-03-06\n\n- 00:00 next day\n"


def test_without_a_folder_there_are_no_days(tmp_path: Path) -> None:
    logs = DailyLogs(tmp_path / "none")
    assert logs.days() == []
    assert logs.read("2026-03-05") == ""
    assert not (tmp_path / "none").exists()


@given(st.binary(max_size=60), st.text(st.characters(exclude_categories=["Cs"])))
def test_what_stood_in_a_log_stays_byte_for_byte(data: bytes, text: str) -> None:
    new = append_note(data, text, NOON)
    assert is_append_only(data, new)
    assert len(new) > len(data)


def test_a_rewritten_log_is_no_append() -> None:
    assert not is_append_only(b"- 12:30 one\n", b"- 12:30 two\n- 12:31 three\n")


@pytest.mark.parametrize("day", ["2026-02-30", "../../etc", "2026-3-5", ""])
def test_what_is_no_day_is_refused(tmp_path: Path, day: str) -> None:
    with pytest.raises(Refused):
        DailyLogs(tmp_path).read(day)


def test_an_empty_note_and_a_full_day_are_refused(tmp_path: Path) -> None:
    logs = DailyLogs(tmp_path)
    with pytest.raises(Refused):
        logs.append(" \n", NOON)
    with pytest.raises(Refused, match="full"):
        logs.append("x" * LARGEST, NOON)


def test_a_link_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/logs").symlink_to(tmp_path / "outside")
    with pytest.raises(Refused):
        DailyLogs(tmp_path / "memory").append("x", NOON)
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.real
def test_several_processes_lose_no_note(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from sevenfold.memory.daily_logs import DailyLogs\n"
        "for n in range(20): DailyLogs(Path(sys.argv[1])).append(f'{sys.argv[2]}-{n}', float(sys.argv[3]))"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path, str(n), str(NOON)], env=os.environ)
        for n in range(4)
    ]
    assert [process.wait(60) for process in running] == [0] * 4
    lines = DailyLogs(tmp_path).read("2026-03-05").splitlines()
    notes = {line.split()[-1] for line in lines if line.startswith("- ")}
    assert notes == {f"{one}-{n}" for one in range(4) for n in range(20)}
