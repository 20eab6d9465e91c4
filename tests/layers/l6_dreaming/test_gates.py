"""The gates of dreaming: cheapest first, one look at the disk when closed, and no transcript is read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from sevenfold.layers.l6_dreaming.dreaming import ClosedGate, DreamGates
from sevenfold.memory.dreams.lock import DreamLock, HeldDreamLock
from sevenfold.settings.layers import DreamSettings
from sevenfold.testing import FakeClock

NOW = 1_800_000_000.0
HOUR = 3_600.0
LOOKS = {"stat", "lstat", "scandir", "open", "read", "listdir", "kill", "access", "fstat", "utime"}


class Place:
    """A project with sessions, a lock and a clock."""

    def __init__(self, folder: Path, settings: DreamSettings | None = None) -> None:
        self.folder, self.clock, self.on = folder, FakeClock(NOW), True
        (folder / "memory").mkdir()
        self.lock = DreamLock(folder / "memory", folder / "memory-state", self.clock)
        set_to = settings or DreamSettings()
        self.gates = DreamGates(self.lock, folder, "current", set_to, self.clock, enabled=lambda: self.on)

    def session(self, name: str, at: float, size: int = 10) -> None:
        path = self.folder / f"{name}.jsonl"
        with path.open("wb") as file:
            file.truncate(size)
        os.utime(path, (at, at))

    def dreamt(self, at: float) -> None:
        self.lock.path.touch()
        os.utime(self.lock.path, (at, at))

    @property
    def closed(self) -> str:
        found = self.gates.check()
        return found.gate if found else ""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def looks(work: Callable[[], object]) -> list[str]:
    """Every call of the system that looks at the disk, as the interpreter sees it."""
    found: list[str] = []

    def note(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ in LOOKS:
            found.append(called.__name__)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def test_each_gate_in_its_order(place: Place) -> None:
    place.on = False
    assert place.closed == "off"
    place.on = True
    place.dreamt(NOW - 23.9 * HOUR)
    assert place.closed == "time"
    place.dreamt(NOW - 24 * HOUR)
    for n in range(4):
        place.session(f"s{n}", NOW - HOUR)
    assert place.closed == "sessions"
    place.session("s4", NOW - HOUR)
    assert place.closed == "scan"
    place.clock.time += 600
    assert place.closed == ""
    held = place.gates.take()
    assert isinstance(held, HeldDreamLock)
    place.clock.time += 600
    found = place.gates.take()
    assert isinstance(found, ClosedGate)
    assert found.gate == "lock"
    held.give_back()


def test_a_folder_that_never_dreamed_waits_for_sessions_only(place: Place) -> None:
    assert place.closed == "sessions"
    for n in range(5):
        place.session(f"s{n}", 1.0)
    place.clock.time += 600

    assert isinstance(place.gates.enter(), HeldDreamLock)


def test_the_current_session_untouched_ones_empty_ones_and_other_files_do_not_count(place: Place) -> None:
    place.dreamt(NOW - 48 * HOUR)
    for n in range(4):
        place.session(f"s{n}", NOW - HOUR)
    place.session("current", NOW)
    place.session("old", NOW - 49 * HOUR)
    place.session("empty", NOW, size=0)
    (place.folder / "notes.txt").write_text("x", "utf-8")
    (place.folder / "folder.jsonl.d").mkdir()
    (place.folder / "dangling.jsonl").symlink_to("nowhere")

    found = place.gates.check()
    assert found == ClosedGate("sessions", "fewer than 5 sessions since the last dream")


def test_a_closed_gate_costs_one_look_at_the_disk_and_a_switched_off_one_none(place: Place) -> None:
    place.dreamt(NOW - 12 * HOUR)
    assert len(looks(place.gates.check)) == 1

    place.dreamt(NOW - 48 * HOUR)
    place.gates.check()
    for _ in range(3):
        assert len(looks(place.gates.check)) == 1, "the sessions were counted a moment ago"

    place.on = False
    assert looks(place.gates.check) == []


def test_ten_thousand_large_transcripts_are_only_looked_at_and_not_read(place: Place) -> None:
    place.dreamt(NOW - 48 * HOUR)
    for n in range(10_000):
        place.session(f"s{n}", NOW - 100 * HOUR, size=5 << 19)

    called = looks(place.gates.check)
    assert {"open", "read"}.isdisjoint(called)
    assert called.count("scandir") == 1
    assert called.count("stat") + called.count("lstat") <= 10_001
    assert place.gates.check() is not None


def test_counting_ends_when_there_are_enough(place: Place) -> None:
    place.dreamt(NOW - 48 * HOUR)
    for n in range(500):
        place.session(f"s{n}", NOW - HOUR)

    called = looks(place.gates.check)
    assert called.count("stat") + called.count("lstat") == 6


@pytest.mark.parametrize(
    ("ahead", "gate"), [(60.0, "time"), (3_500.0, "time"), (9_000.0, "sessions"), (1e9, "sessions")]
)
def test_a_lock_from_the_future_is_believed_for_an_hour_only(place: Place, ahead: float, gate: str) -> None:
    place.dreamt(NOW + ahead)
    for n in range(9):
        place.session(f"s{n}", NOW - 25 * HOUR)

    assert place.closed == gate
    for n in range(5):
        place.session(f"s{n}", NOW - HOUR)
    place.clock.time += 601
    assert place.closed == ("time" if gate == "time" else "")


def test_a_clock_that_goes_back_does_not_keep_the_scan_gate_closed(place: Place) -> None:
    assert place.closed == "sessions"
    place.clock.time -= 30 * HOUR
    assert place.closed == "sessions"


def test_a_dream_that_was_killed_leaves_the_gate_open(place: Place) -> None:
    """Its process is gone: what it set the time to counts no longer, once somebody looks."""
    for n in range(5):
        place.session(f"s{n}", NOW - HOUR)
    held = place.gates.enter()
    assert isinstance(held, HeldDreamLock)
    record = place.folder / "memory-state/dream-lock.json"
    dead = record.read_text("utf-8").replace(f'"pid":{os.getpid()}', '"pid":1999999999')
    place.clock.time += 601
    assert place.closed == "time"

    record.write_text(dead, "utf-8")
    stamp = place.lock.path.stat().st_mtime_ns
    place.lock.path.write_text("1999999999", "ascii")
    os.utime(place.lock.path, ns=(stamp, stamp))
    assert place.closed == "time", "it was looked at a short while ago"
    place.clock.time += 601
    assert place.closed == ""


def test_the_numbers_are_settings(tmp_path: Path) -> None:
    place = Place(tmp_path, DreamSettings(hours=1, sessions=0, scan_minutes=0))
    place.dreamt(NOW - 2 * HOUR)

    assert place.closed == ""
    assert place.closed == ""
    assert DreamSettings() == DreamSettings(
        hours=24, sessions=5, scan_minutes=10, stale_minutes=60, review=False
    )


def test_a_project_whose_folder_is_gone_does_not_dream(place: Place, tmp_path: Path) -> None:
    gates = DreamGates(
        place.lock, tmp_path / "gone", "current", DreamSettings(), place.clock, enabled=lambda: True
    )

    found = gates.check()
    assert found
    assert found.gate == "sessions"
