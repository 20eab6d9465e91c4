"""The day's money for background work: shared, never passed, and closed when nobody can count."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

from sevenfold.core.errors import StorageFailure
from sevenfold.session.spending import SpendingFile
from sevenfold.testing import FakeClock


def test_what_would_pass_the_limit_is_not_spent(tmp_path: Path) -> None:
    money = SpendingFile(tmp_path, 1.0, FakeClock())
    assert money.reserve("a", 0.6)
    assert not money.reserve("b", 0.5)
    assert money.reserve("b", 0.4)
    assert money.today.spent == pytest.approx(1.0)
    assert money.today.by == {"a": 0.6, "b": 0.4}


def test_what_was_reserved_too_much_is_given_back(tmp_path: Path) -> None:
    money = SpendingFile(tmp_path, 1.0, FakeClock())
    reserved = money.reserve("a", 0.9)
    assert reserved
    money.settle(reserved, 0.1)
    assert money.today.spent == pytest.approx(0.1)
    assert money.reserve("a", 0.9)


def test_sessions_share_it_and_a_new_day_begins_with_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    assert SpendingFile(tmp_path, 1.0, clock).reserve("a", 1.0)
    assert not SpendingFile(tmp_path, 1.0, clock).reserve("a", 0.1)
    clock.time += 86_400
    assert SpendingFile(tmp_path, 1.0, clock).reserve("a", 0.1)
    assert SpendingFile(tmp_path, 1.0, clock).today.spent == pytest.approx(0.1)


def test_no_limit_is_no_limit_and_nothing_is_nothing(tmp_path: Path) -> None:
    assert SpendingFile(tmp_path, None, FakeClock()).reserve("a", 1_000.0)
    assert SpendingFile(tmp_path, None, FakeClock()).today.spent == pytest.approx(1_000.0)
    assert not SpendingFile(tmp_path / "other", 0.0, FakeClock()).reserve("a", 0.001)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"day": 3}', b"\xff"])
def test_a_damaged_ledger_lets_nothing_be_spent_until_tomorrow(tmp_path: Path, damage: bytes) -> None:
    clock = FakeClock()
    (tmp_path / "spending.json").write_bytes(damage)
    assert not SpendingFile(tmp_path, 1.0, clock).reserve("a", 0.1)
    clock.time += 86_400
    assert SpendingFile(tmp_path, 1.0, clock).reserve("a", 0.1)


def test_a_ledger_that_cannot_be_kept_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageFailure, match="file"):
        SpendingFile(tmp_path / "file", 1.0, FakeClock()).reserve("a", 0.1)


def test_a_ledger_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / "spending.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageFailure):
        SpendingFile(tmp_path, None, FakeClock()).reserve("a", 0.1)
    assert (tmp_path / "elsewhere").read_bytes() == b""


def test_work_costs_what_was_recorded_for_it(tmp_path: Path) -> None:
    money = SpendingFile(tmp_path, 1.0, FakeClock())
    work = money.reserve("dream", 0.6)
    assert work
    assert money.charge(work, "dream", 0.1)
    assert money.today.by == {"dream": 0.6}
    assert not money.charge(work, "dream", 1.0), "the limit is reached"
    money.settle(work)
    assert money.today.by == {"dream": pytest.approx(1.1)}


def test_the_first_work_of_a_day_may_be_expected_to_cost_more_than_the_limit(tmp_path: Path) -> None:
    money = SpendingFile(tmp_path, 1.0, FakeClock())
    assert not money.reserve("notes", 7.0)
    assert money.reserve("dream", 7.0, first=True)
    assert not money.reserve("extraction", 0.1)
    assert not SpendingFile(tmp_path / "other", 0.0, FakeClock()).reserve("dream", 7.0, first=True)


def test_work_that_ends_on_another_day_costs_that_day_what_was_spent_on_it(tmp_path: Path) -> None:
    clock = FakeClock()
    money = SpendingFile(tmp_path, 1.0, clock)
    work = money.reserve("dream", 0.6)
    assert work
    clock.time += 86_400
    money.charge(work, "dream", 0.2)
    money.settle(work)
    assert money.today.by == {"dream": 0.2}


DYING = """
import os, signal, sys
from pathlib import Path
from sevenfold.session.spending import SpendingFile
from sevenfold.testing import FakeClock
money = SpendingFile(Path(sys.argv[1]), 5.0, FakeClock())
work = money.reserve("dream", 3.65)
money.charge(work, "dream", 0.25)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_of_a_killed_process_only_what_was_recorded_counts(tmp_path: Path) -> None:
    for _ in range(3):
        subprocess.run([sys.executable, "-c", DYING, str(tmp_path)], check=False)
    money = SpendingFile(tmp_path, 5.0, FakeClock())
    assert money.today.by == {"dream": pytest.approx(0.75)}
    assert money.reserve("extraction", 4.0)


def _spend(home: Path, times: int) -> int:
    money = SpendingFile(home, 1.0, FakeClock())
    return sum(bool(money.reserve("a", 0.01)) for _ in range(times))


def test_processes_together_do_not_pass_the_limit(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as workers:
        allowed = workers.starmap(_spend, [(tmp_path, 60)] * 3, chunksize=1)
        workers.close()
        workers.join()
    assert sum(allowed) in (99, 100)  # a hundred cents, or one less: they are floats
