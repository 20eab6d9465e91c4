"""File locks: they wait, give up, can be cancelled, and count only while their file has its name."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from sevenfold.core.errors import StorageFailure
from sevenfold.storage.locks import (
    has_name,
    hold_file_lock,
    hold_lock,
    hold_lock_async,
    take_lock,
    try_lock,
)

_HOLD = """
import sys
from pathlib import Path
from sevenfold.storage.locks import hold_lock
with hold_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until it is told to end, or is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_free_lock_is_taken_and_its_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.lock"
    with hold_lock(path) as held:
        assert held
        assert path.stat().st_mode & 0o777 == 0o600
    with hold_lock(path, wait=0.0) as held:
        assert held


def test_the_lock_of_a_file_lies_beside_it(tmp_path: Path) -> None:
    with hold_file_lock(tmp_path / "a.json"), hold_lock(tmp_path / "a.json.lock", wait=0.0) as held:
        assert not held


def test_a_lock_of_another_process_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with holder(path) as process:
        assert process.stdin is not None
        threading.Timer(0.2, process.stdin.close).start()
        began = time.monotonic()
        with hold_lock(path) as held:
            assert held
        assert time.monotonic() - began >= 0.1


def test_it_is_given_up_after_its_time(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with hold_lock(path):
        began = time.monotonic()
        with hold_lock(path, wait=0.1) as held:
            assert not held
        assert 0.1 <= time.monotonic() - began < 5
        assert take_lock(path, wait=0.0) is None


def test_one_who_waits_can_be_told_to_stop(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    asked: list[int] = []

    def cancel() -> bool:
        asked.append(1)
        return len(asked) == 3

    with hold_lock(path):
        assert take_lock(path, cancel=cancel) is None
    assert len(asked) == 3


def test_a_lock_whose_file_was_replaced_while_it_was_waited_for_is_taken_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    taken: list[int] = []

    def wait_for_it() -> None:
        fd = take_lock(path)
        assert fd is not None
        taken.append(fd)

    with hold_lock(path):
        waiting = threading.Thread(target=wait_for_it)
        waiting.start()
        waiting.join(0.2)
        path.unlink()
        path.touch()
    waiting.join()
    assert has_name(taken[0], path)
    assert take_lock(path, wait=0.0) is None
    os.close(taken[0])


def test_the_name_of_a_file_that_was_removed_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    fd = take_lock(path)
    assert fd is not None
    assert has_name(fd, path)
    path.unlink()
    assert not has_name(fd, path)
    path.touch()
    assert not has_name(fd, path)
    os.close(fd)


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageFailure, match=r"a\.lock could not be locked: .*symbolic link"):
        take_lock(path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_holder_that_is_killed_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with holder(path) as process:
        assert take_lock(path, wait=0.0) is None
        process.kill()
        with hold_lock(path, wait=30.0) as held:
            assert held


def test_programs_that_are_started_do_not_inherit_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with hold_lock(path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    with child, hold_lock(path, wait=30.0) as held:
        assert held
        assert child.poll() is None
        child.communicate(b"\n")


def test_a_lock_in_an_open_folder_is_the_one_of_that_name_there(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    at = os.open(tmp_path / "folder", os.O_RDONLY | os.O_DIRECTORY)
    (tmp_path / "folder").rename(tmp_path / "moved")
    with (
        hold_lock(tmp_path / "folder" / "a.lock", dir_fd=at) as held,
        hold_lock(tmp_path / "moved" / "a.lock", wait=0.0) as other,
    ):
        assert held
        assert not other
    os.close(at)
    assert not (tmp_path / "folder").exists()


def test_a_file_is_only_made_if_that_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(StorageFailure) as missing:
        take_lock(tmp_path / "a.lock", flags=0)
    assert isinstance(missing.value.__cause__, FileNotFoundError)
    (tmp_path / "a.lock").touch()
    with pytest.raises(StorageFailure) as there:
        take_lock(tmp_path / "a.lock", flags=os.O_CREAT | os.O_EXCL)
    assert isinstance(there.value.__cause__, FileExistsError)


def test_an_open_file_is_locked_itself(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w", encoding="utf-8") as one, path.open(encoding="utf-8") as other:
        assert try_lock(one.fileno())
        assert not try_lock(other.fileno())


@pytest.mark.anyio
async def test_other_tasks_run_while_a_lock_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    fd = take_lock(path)
    assert fd is not None
    held: list[bool] = []

    async def wait_for_it() -> None:
        async with hold_lock_async(path, wait=30.0) as mine:
            held.append(mine)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_for_it)
        await anyio.sleep(0.05)
        assert held == []
        os.close(fd)
    assert held == [True]


@pytest.mark.anyio
async def test_a_task_gives_up_after_its_time(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "a.lock"):
        async with hold_lock_async(tmp_path / "a.lock", wait=0.05) as held:
            assert not held
