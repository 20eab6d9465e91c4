"""How long a user is usually silent outlives a session, and never stands in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from sevenfold.layers.shared.idle_gaps import GapCounts
from sevenfold.session.log import IdleGapFile
from sevenfold.testing import FakeClock


def session(home: Path, clock: FakeClock, *gaps: float) -> None:
    """Somebody speaks again after each of these, and then leaves."""
    habits = IdleGapFile(home, clock)
    habits.spoke(None)
    for gap in gaps:
        replied = clock.now()
        clock.time += gap
        habits.spoke(replied)
    habits.leave()


def test_gaps_are_kept_from_session_to_session(tmp_path: Path) -> None:
    clock = FakeClock()
    session(tmp_path, clock, 20, 400)
    session(tmp_path, clock, 400)
    known = IdleGapFile(tmp_path, clock).gaps()
    assert known == GapCounts().after(20).after(400).after(400).leaving().leaving()


def test_what_was_learned_in_this_session_counts_at_once(tmp_path: Path) -> None:
    clock = FakeClock()
    session(tmp_path, clock, 20)
    habits = IdleGapFile(tmp_path, clock)
    replied = clock.now()
    clock.time += 400
    habits.spoke(replied)
    assert habits.gaps().seen == 3


def test_the_time_since_an_earlier_session_is_no_gap(tmp_path: Path) -> None:
    clock = FakeClock()
    habits = IdleGapFile(tmp_path, clock)
    habits.spoke(clock.now() - 600)
    assert habits.gaps() == GapCounts()


def test_a_session_of_one_question_says_nothing(tmp_path: Path) -> None:
    session(tmp_path, FakeClock())
    assert not (tmp_path / "gaps.json").exists()


def test_two_sessions_at_once_both_count(tmp_path: Path) -> None:
    clock = FakeClock()
    first, second = IdleGapFile(tmp_path, clock), IdleGapFile(tmp_path, clock)
    replied = clock.now()
    clock.time += 20
    for habits in (first, second):
        habits.gaps()
        habits.spoke(replied)
    first.leave()
    second.leave()
    assert IdleGapFile(tmp_path, clock).gaps().seen == 4


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"counts": [1]}', b'{"counts": []}', b'{"left": -1}', b"\xff"]
)
def test_a_damaged_file_is_as_good_as_none_and_is_mended(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "gaps.json").write_bytes(damage)
    clock = FakeClock()
    assert IdleGapFile(tmp_path, clock).gaps() == GapCounts()
    session(tmp_path, clock, 20)
    assert IdleGapFile(tmp_path, clock).gaps().seen == 2


def test_a_home_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    session(tmp_path / "file", FakeClock(), 20)
    assert IdleGapFile(tmp_path / "file", FakeClock()).gaps() == GapCounts()
