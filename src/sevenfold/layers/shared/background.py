"""Work beside the conversation: started by a turn, collected at the next step, drained at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from sevenfold.core.errors import SevenfoldError
from sevenfold.core.events import Emit, Failed
from sevenfold.core.protocols import Background, Change, Work


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


class BackgroundTasks:
    """Runs work in the session's task group and keeps what it hands back until the turn collects it."""

    def __init__(self, tasks: TaskGroup, emit: Emit) -> None:
        self._tasks, self._emit = tasks, emit
        self._done: list[tuple[str, Sequence[Change]]] = []
        self._running: dict[int, str] = {}
        self._started = 0
        self._quiet = anyio.Event()
        self._quiet.set()

    @property
    def running(self) -> tuple[str, ...]:
        """The names of what is going on, for the footer."""
        return tuple(self._running.values())

    def start(self, name: str, work: Work) -> None:
        if not self._running:
            self._quiet = anyio.Event()
        self._started += 1
        self._running[self._started] = name
        self._tasks.start_soon(self._run, self._started, name, work)

    def collect(self) -> list[tuple[str, Sequence[Change]]]:
        done, self._done = self._done, []
        return done

    async def drain(self, seconds: float) -> tuple[str, ...]:
        """Wait for what is running; what is still not done then is named, and left to be cancelled."""
        with anyio.move_on_after(seconds):
            await self._quiet.wait()
        return self.running

    async def _run(self, number: int, name: str, work: Work) -> None:
        try:
            if handed := await work():
                self._done.append((name, handed))
        except SevenfoldError as error:
            self._emit(Failed(name, str(error)))
        except Exception as error:
            self._emit(Failed(name, repr(error)))
        finally:
            del self._running[number]
            if not self._running:
                self._quiet.set()


_check: type[Background] = BackgroundTasks
