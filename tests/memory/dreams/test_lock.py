"""The dream lock: one at a time, never blocked by the dead, and its time goes back when a dream fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sevenfold.core.errors import StorageFailure
from sevenfold.memory.dreams.lock import (
    STALE,
    DreamLock,
    DreamLockBusy,
    HeldDreamLock,
    LockProcess,
    is_alive,
    read_current_process,
)
from sevenfold.testing import FakeClock

NOW = 1_800_000_000.0
DAY = 86_400.0

RACE = """
import os, sys
from pathlib import Path
from sevenfold.core.clock import SystemClock
from sevenfold.memory.dreams.lock import DreamLock, HeldDreamLock

lock = DreamLock(Path(sys.argv[1]), Path(sys.argv[2]), SystemClock())
start, go = os.pipe()
won, tell = os.pipe()
rest, end = os.pipe()
children = []
for _ in range(int(sys.argv[3])):
    child = os.fork()
    if child == 0:
        os.close(go)
        os.close(end)
        os.read(start, 1)
        os.write(tell, b"1" if isinstance(lock.acquire(), HeldDreamLock) else b"0")
        os.read(rest, 1)
        os._exit(0)
    children.append(child)
os.close(start)
os.close(go)
got = b""
while len(got) < len(children):
    got += os.read(won, 100)
os.close(end)
for child in children:
    os.waitpid(child, 0)
print(got.count(b"1"))
"""

HOLD = """
import sys
from pathlib import Path
from sevenfold.memory.dreams.lock import DreamLock
from sevenfold.testing import FakeClock

held = DreamLock(Path(sys.argv[1]), Path(sys.argv[2]), FakeClock(float(sys.argv[3]))).acquire()
print(type(held).__name__, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
def lock(tmp_path: Path, clock: FakeClock) -> DreamLock:
    return DreamLock(tmp_path / "memory", tmp_path / "state", clock)


def another(tmp_path: Path, at: float) -> subprocess.Popen[str]:
    """Another process that holds the lock, with the time it believes it is."""
    arguments = [str(tmp_path / "memory"), str(tmp_path / "state"), repr(at)]
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout
    assert other.stdout.readline() == "HeldDreamLock\n"
    return other


def killed(other: subprocess.Popen[str]) -> None:
    other.send_signal(signal.SIGKILL)
    other.communicate()


def acquired(lock: DreamLock) -> HeldDreamLock:
    held = lock.acquire()
    assert isinstance(held, HeldDreamLock)
    return held


def test_while_dreaming_the_body_is_our_number_and_the_time_is_the_beginning(lock: DreamLock) -> None:
    held = acquired(lock)

    assert lock.path.name == ".consolidate-lock"
    assert lock.path.read_text("ascii") == str(os.getpid())
    assert lock.last() == NOW
    assert lock.path.stat().st_mode & 0o077 == 0
    assert held.ours()
    assert lock.holder() == DreamLockBusy(os.getpid(), NOW)
    assert isinstance(lock.acquire(), DreamLockBusy)


def test_when_it_is_done_the_time_is_now_and_nobody_holds_it(lock: DreamLock, clock: FakeClock) -> None:
    held = acquired(lock)
    clock.time += 300
    held.done()

    assert lock.last() == NOW + 300
    assert lock.path.read_bytes() == b""
    assert lock.holder() is None
    assert isinstance(lock.acquire(), HeldDreamLock)


def test_after_a_failure_the_time_goes_back_or_the_file_goes(lock: DreamLock, clock: FakeClock) -> None:
    acquired(lock).give_back()
    assert not lock.path.exists()
    assert lock.last() is None

    acquired(lock).done()
    clock.time += DAY
    acquired(lock).give_back()
    assert lock.last() == NOW


@pytest.mark.real
def test_among_fifty_processes_that_try_at_once_one_dreams(tmp_path: Path) -> None:
    arguments = [str(tmp_path / "memory"), str(tmp_path / "state"), "50"]
    out = subprocess.run(
        [sys.executable, "-c", RACE, *arguments], capture_output=True, text=True, check=True
    )

    assert out.stdout == "1\n"


@pytest.mark.real
def test_a_live_holder_is_respected_and_a_killed_one_is_reclaimed_at_once(
    tmp_path: Path, lock: DreamLock, clock: FakeClock
) -> None:
    acquired(lock).done()
    clock.time += 2 * DAY
    other = another(tmp_path, clock.time)

    found = lock.acquire()
    assert found == DreamLockBusy(other.pid, clock.time)
    assert str(other.pid) in str(found)
    killed(other)
    clock.time += 1
    held = acquired(lock)
    held.give_back()
    assert lock.last() == NOW, "not the beginning of the dream that was killed"


@pytest.mark.real
def test_the_time_goes_back_after_a_crash_as_soon_as_somebody_looks(
    tmp_path: Path, lock: DreamLock, clock: FakeClock
) -> None:
    killed(another(tmp_path, clock.time))
    assert lock.last() == NOW
    lock.settle()
    assert lock.last() is None

    acquired(lock).done()
    clock.time += DAY
    killed(another(tmp_path, clock.time))
    lock.settle()
    assert lock.last() == NOW


@pytest.mark.real
def test_a_holder_older_than_an_hour_blocks_nobody_and_does_not_take_the_lock_back(
    tmp_path: Path, lock: DreamLock, clock: FakeClock
) -> None:
    slow = acquired(lock)
    clock.time += STALE - 1
    assert isinstance(lock.acquire(), DreamLockBusy)
    clock.time += 1
    other = another(tmp_path, clock.time)

    assert not slow.ours()
    slow.done()
    slow.give_back()
    assert lock.path.read_text("ascii") == str(other.pid)
    assert lock.last() == clock.time
    assert not slow.touch()
    killed(other)


def test_a_dream_that_takes_long_says_that_it_is_still_there(lock: DreamLock, clock: FakeClock) -> None:
    held = acquired(lock)
    for _ in range(3):
        clock.time += STALE - 1
        assert held.touch()
        assert isinstance(lock.acquire(), DreamLockBusy)
    held.give_back()
    assert lock.last() is None


def test_a_number_that_was_given_to_another_process_does_not_block(tmp_path: Path, lock: DreamLock) -> None:
    acquired(lock)
    record = tmp_path / "state/dream-lock.json"
    began = read_current_process().began
    assert began
    record.write_text(record.read_text("utf-8").replace(began, "another-boot:1"), "utf-8")

    assert isinstance(lock.acquire(), HeldDreamLock)


def test_a_lock_of_another_program_is_understood(lock: DreamLock, clock: FakeClock) -> None:
    """Only its number and its time are known: a live one blocks for an hour, a dead one not at all."""
    lock.path.parent.mkdir()
    lock.path.write_text(f"{os.getppid()}\n", "ascii")
    os.utime(lock.path, (NOW - 60, NOW - 60))
    assert lock.acquire() == DreamLockBusy(os.getppid(), NOW - 60)

    clock.time = NOW - 60 + STALE
    held = acquired(lock)
    held.give_back()
    assert lock.last() == NOW - 60

    clock.time = NOW
    lock.path.write_text("1999999999", "ascii")
    os.utime(lock.path, (NOW - 60, NOW - 60))
    assert isinstance(lock.acquire(), HeldDreamLock)


@pytest.mark.parametrize("body", ["", "nonsense", "-1", "0", "9" * 60, "12 34", "\0\0"])
def test_a_body_that_is_no_number_blocks_nobody(lock: DreamLock, body: str) -> None:
    lock.path.parent.mkdir()
    lock.path.write_text(body, "ascii")
    os.utime(lock.path, (NOW, NOW))

    assert isinstance(lock.acquire(), HeldDreamLock)


@pytest.mark.parametrize(("ahead", "blocked"), [(STALE - 60, True), (STALE + 60, False), (1e9, False)])
def test_a_time_in_the_future_blocks_for_an_hour_at_the_most(
    lock: DreamLock, ahead: float, blocked: bool
) -> None:
    lock.path.parent.mkdir()
    lock.path.write_text(str(os.getppid()), "ascii")
    os.utime(lock.path, (NOW + ahead, NOW + ahead))

    assert isinstance(lock.acquire(), DreamLockBusy) == blocked


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path, lock: DreamLock) -> None:
    lock.path.parent.mkdir()
    target = tmp_path / "precious"
    target.write_text("precious", "ascii")
    lock.path.symlink_to(target)

    with pytest.raises(StorageFailure, match="symbolic link"):
        lock.acquire()
    assert target.read_text("ascii") == "precious"


def test_nothing_is_made_by_looking(tmp_path: Path, lock: DreamLock) -> None:
    assert lock.holder() is None
    assert lock.last() is None
    lock.settle()
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_ended_is_not_alive_even_when_nobody_has_buried_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "print()"], stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.read()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(child.pid)
    assert is_alive(os.getpid())
    assert read_current_process().lives()
    assert not LockProcess(os.getpid(), "another").lives()
