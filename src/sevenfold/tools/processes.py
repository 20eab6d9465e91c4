"""Runs a program in a process group of its own, with bounded memory and a certain end.

The output comes through a pipe of our own: so waiting for the program does not wait for processes that
it left behind with the same output.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from sevenfold.tools.sandbox import Sandbox

MOST_KEPT: Final = 100_000
"""Default for the bytes of output held in memory: half from the beginning, half from the end."""
TERM_GRACE: Final = 2.0  # Seconds between asking a group to end and ending it
HELD_GRACE: Final = 0.5  # Seconds to read output after the program ended, if another process holds it open
_POLL: Final = 0.05
_CHUNK: Final = 1 << 16
_PROC: Final = Path("/proc")
# It reads which groups run and which have ended; when its input ends, it ends those that still run.
_WATCHER: Final = """
trap '' HUP INT TERM
all=
while read -r sign id; do
  left=
  for one in $all; do [ "$one" = "$id" ] || left="$left $one"; done
  [ "$sign" = + ] && all="$left $id" || all=$left
done
for id in $all; do kill -s TERM -- "-$id"; done
[ -z "$all" ] || sleep 1
for id in $all; do kill -s KILL -- "-$id"; done
"""


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
    left: bool  # True if processes of its group still run


class ChildProcess:
    """A program that was started, the leader of a process group of its own."""

    def __init__(self, started: subprocess.Popen[bytes]) -> None:
        self._started = started

    @property
    def pid(self) -> int:
        return self._started.pid

    @property
    def returncode(self) -> int | None:
        return self._started.poll()

    async def wait(self) -> int:
        if not hasattr(os, "pidfd_open"):
            return await anyio.to_thread.run_sync(self._started.wait, abandon_on_cancel=True)
        if self._started.poll() is None:
            end = os.pidfd_open(self.pid)
            try:
                await anyio.wait_readable(end)
            finally:
                os.close(end)
        return self._started.wait()


@dataclass(eq=False)
class GroupWatch:
    """Ends process groups when our own process ends without ending them, killed for instance.

    A shell waits at a pipe for that; it is started with the first group. The system's signal at the death
    of a parent would reach the first process of a group alone, and comes when a mere thread ends.
    """

    _watcher: subprocess.Popen[bytes] | None = None

    def add(self, group: int) -> None:
        if self._watcher is None:
            self._watcher = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHER],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.defpath},
                start_new_session=True,
            )
            weakref.finalize(self, _end_watcher, self._watcher)
        self._tell("+", group)

    def remove(self, group: int) -> None:
        self._tell("-", group)

    def _tell(self, sign: str, group: int) -> None:
        if self._watcher is not None and self._watcher.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # another program has ended it
                self._watcher.stdin.write(f"{sign} {group}\n".encode("ascii"))


def _end_watcher(watcher: subprocess.Popen[bytes]) -> None:
    if watcher.stdin is not None:
        watcher.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):  # a fork of ours holds the pipe: then it goes on
        watcher.wait(2 * TERM_GRACE)


async def run_program(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    seconds: float,
    watch: GroupWatch,
    most: int = MOST_KEPT,
    keep: Sequence[int] = (),
    sandbox: Sandbox | None = None,
) -> ProcessRun:
    """Run to the end, or for so many seconds. On cancellation or timeout the whole group is ended."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    process: ChildProcess | None = None
    output, at_end = ProcessOutput(most), anyio.Event()
    try:
        try:
            process = start_program(
                argv, cwd=cwd, env=env, output=writing, watch=watch, keep=keep, sandbox=sandbox
            )
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
            watch.remove(process.pid)
        raise
    finally:
        os.close(reading)
    code = None if limit.cancelled_caught else process.returncode
    left = is_group_alive(process.pid)
    if not left:
        watch.remove(process.pid)
    return ProcessRun(code, output, not at_end.is_set(), process.pid, left)


def start_program(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    output: int,
    watch: GroupWatch,
    keep: Sequence[int] = (),
    sandbox: Sandbox | None = None,
) -> ChildProcess:
    """Start a program as the leader of its own session, both outputs going to one place."""

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env=env,
            start_new_session=True,
            pass_fds=keep,
        )

    if sandbox is None:
        process = ChildProcess(start())
    else:
        from sevenfold.tools.sandbox import start_in_sandbox  # slow, and most starts run no command

        process = ChildProcess(start_in_sandbox(sandbox, start))
    watch.add(process.pid)
    return process


async def _read_output(reading: int, output: ProcessOutput, at_end: anyio.Event) -> None:
    while True:
        await anyio.wait_readable(reading)
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(reading, _CHUNK)
            if not chunk:
                at_end.set()
                return
            output.add_chunk(chunk)


async def _end_process(process: ChildProcess) -> None:
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
