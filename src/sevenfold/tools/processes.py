"""Runs a program in a process group of its own, with bounded memory and a certain end.

The output comes through a pipe of our own: so waiting for the program does not wait for processes that
it left behind with the same output.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process

MOST_KEPT: Final = 100_000
"""Default for the bytes of output held in memory: half from the beginning, half from the end."""
TERM_GRACE: Final = 2.0  # Seconds between asking a group to end and ending it
HELD_GRACE: Final = 0.5  # Seconds to read output after the program ended, if another process holds it open
_POLL: Final = 0.05
_CHUNK: Final = 1 << 16
_PROC: Final = Path("/proc")


@dataclass(slots=True)
class ProcessOutput:
    """The beginning and the end of an output, and how much is missing between them."""

    most: int = MOST_KEPT
    total: int = 0
    _head: bytearray = field(default_factory=bytearray)
    _tail: bytearray = field(default_factory=bytearray)

    def add_chunk(self, chunk: bytes) -> None:
        self.total += len(chunk)
        room = max(0, self.most // 2 - len(self._head))
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > self.most:  # trimmed now and then, not at every chunk
            del self._tail[: -(self.most // 2)]

    @property
    def dropped(self) -> int:
        return max(0, self.total - len(self._head) - self.most // 2)

    @property
    def text(self) -> str:
        head = self._head.decode("utf-8", "replace")
        if not self.dropped:
            return (self._head + self._tail).decode("utf-8", "replace")
        tail = self._tail[-(self.most // 2) :].decode("utf-8", "replace")
        return f"{head}\n[… {self.dropped:,} bytes left out …]\n{tail}"


@dataclass(slots=True)
class ProcessRun:
    """The end of a program: `code` is negative for a signal, None when its time was up."""

    code: int | None
    output: ProcessOutput
    held: bool  # True if a process that it started still has the output open
    group: int


async def run_program(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    seconds: float,
    most: int = MOST_KEPT,
    keep: Sequence[int] = (),
) -> ProcessRun:
    """Run to the end, or for so many seconds. On cancellation or timeout the whole group is ended."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    process: Process | None = None
    output, at_end = ProcessOutput(most), anyio.Event()
    try:
        try:
            process = await start_program(argv, cwd=cwd, env=env, output=writing, keep=keep)
        finally:
            os.close(writing)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_output, reading, output, at_end)
            with anyio.move_on_after(seconds) as limit:
                await process.wait()
            if limit.cancelled_caught:
                await _end_process(process)
            with anyio.move_on_after(HELD_GRACE):
                await at_end.wait()
            tasks.cancel_scope.cancel()
    except BaseException:  # cancelled: end everything, also what the shell has left behind
        if process is not None:
            await _end_process(process)
        raise
    finally:
        os.close(reading)
    code = None if limit.cancelled_caught else process.returncode
    return ProcessRun(code, output, not at_end.is_set(), process.pid)


async def start_program(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: int, keep: Sequence[int] = ()
) -> Process:
    """Start a program as the leader of its own session, both outputs going to one place."""
    return await anyio.open_process(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=cwd,
        env=env,
        start_new_session=True,
        pass_fds=keep,
    )


async def _read_output(reading: int, output: ProcessOutput, at_end: anyio.Event) -> None:
    while True:
        await anyio.wait_readable(reading)
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(reading, _CHUNK)
            if not chunk:
                at_end.set()
                return
            output.add_chunk(chunk)


async def _end_process(process: Process) -> None:
    with anyio.CancelScope(shield=True):
        await end_groups({process.pid})
        await process.wait()


async def end_groups(groups: Iterable[int]) -> None:
    """Ask every process of these groups to end, and end those that do not; never interrupted."""
    with anyio.CancelScope(shield=True):
        left = {group for group in groups if signal_group(group, signal.SIGTERM)}
        for _ in range(int(TERM_GRACE / _POLL)):
            left = {group for group in left if is_group_alive(group)}
            if not left:
                return
            await anyio.sleep(_POLL)
        for group in left:
            signal_group(group, signal.SIGKILL)


def is_group_alive(group: int) -> bool:
    """True if a process of the group still runs. Zombies do not count: a container may never reap them."""
    if not signal_group(group, 0):
        return False
    if not _PROC.is_dir():
        return True
    for stat in _PROC.glob("[0-9]*/stat"):
        try:
            state, _parent, of = stat.read_bytes().rpartition(b")")[2].split()[:3]
        except (OSError, ValueError):  # it ended while we looked
            continue
        if int(of) == group and state not in (b"Z", b"X"):
            return True
    return False


def signal_group(group: int, number: int) -> bool:
    """Send a signal to every process of a group; False when none is left."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # it runs as another user now
    return True
