"""Work beside the conversation: started by a turn, collected at the next step, drained at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup

from sevenfold.core.errors import SevenfoldError
from sevenfold.core.events import Emit, Failed, get_label
from sevenfold.core.protocols import Background, Change, Work
from sevenfold.turn import Turn


@asynccontextmanager
async def open_task_group() -> AsyncIterator[TaskGroup]:
    """A task group that ends with its owner, and through which the owner's own errors pass as they are."""
    failed: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except Exception as error:  # raised below: the group would wrap it in a group
            failed = error
        tasks.cancel_scope.cancel()
    if failed:
        raise failed


BREAKS: Final = 2  # So often in a row work is broken off; then it is let finish, or it never would


class BackgroundTasks:
    """Runs work in the session's task group and keeps what it hands back until the turn collects it."""

    def __init__(self, tasks: TaskGroup, emit: Emit) -> None:
        self._tasks, self._emit = tasks, emit
        self._done: list[tuple[str, Sequence[Change]]] = []
        self._running: dict[int, tuple[str, anyio.CancelScope, anyio.Event]] = {}
        self._broken = Counter[str]()  # How often work of a name was broken off since it came to something
        self._started = 0
        self._quiet = anyio.Event()
        self._quiet.set()

    @property
    def running(self) -> tuple[str, ...]:
        """The names of what is going on, for the footer."""
        return tuple(name for name, *_ in self._running.values())

    def start(self, name: str, work: Work, *, broken: int = 0) -> None:
        """Start it. `broken`: how often the same work was broken off before."""
        self._broken[name] += broken
        if not self._running:
            self._quiet = anyio.Event()
        self._started += 1
        scope = anyio.CancelScope()
        self._running[self._started] = name, scope, anyio.Event()
        self._tasks.start_soon(self._run, self._started, name, scope, work)

    async def stop(self, *names: str) -> None:
        """End the work of these names, which knows how to begin anew, unless it is to finish now.

        Returns when all that is ending has ended, and what began meanwhile.
        """
        names = tuple(name for name in names if self._broken[name] < BREAKS)
        while ends := [one for one in self._running.values() if one[0] in names or one[1].cancel_called]:
            for _, scope, _ in ends:
                scope.cancel()
            for *_, ended in ends:
                await ended.wait()

    def collect(self) -> list[tuple[str, Sequence[Change]]]:
        done, self._done = self._done, []
        return done

    async def drain(self, seconds: float) -> tuple[str, ...]:
        """Wait for what is running; what is still not done then is named, and left to be cancelled."""
        with anyio.move_on_after(seconds):
            await self._quiet.wait()
        return self.running

    async def _run(self, number: int, name: str, scope: anyio.CancelScope, work: Work) -> None:
        try:
            with scope:
                if handed := await work():
                    self._done.append((name, handed))
                    self._broken[name] = 0
        except SevenfoldError as error:
            self._emit(Failed(name, str(error)))
        except Exception as error:
            self._emit(Failed(name, repr(error)))
        finally:
            self._broken[name] += scope.cancelled_caught
            self._running.pop(number)[-1].set()
            if not self._running:
                self._quiet.set()


_check: type[Background] = BackgroundTasks


TICK: Final = 15.0  # Seconds between two looks at the clock


async def watch_idle(turn: Turn, tray: BackgroundTasks, busy: Callable[[], bool]) -> None:
    """Never ends by itself; `busy` says that a turn is running."""
    while True:
        await turn.clock.sleep(TICK)
        replied_at = turn.transcript.view.replied_at
        if busy() or replied_at is None:
            continue
        try:
            turn.collect()
        except SevenfoldError as error:  # the disk, for instance: the next turn will say so too
            turn.emit(Failed("idle", str(error)))
        ask_idle_layers(turn, tray, turn.clock.now() - replied_at)


def ask_idle_layers(turn: Turn, tray: BackgroundTasks, idle: float) -> None:
    """Ask the layers that act on silence, after so many seconds of it; one may say that nothing waits."""
    for layer in turn.layers.idle:
        name, waiting = get_label(layer), getattr(layer, "waiting", True)
        if waiting and name not in tray.running:
            tray.start(name, partial(layer, turn.request, idle))
