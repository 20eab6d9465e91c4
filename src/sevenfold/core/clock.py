"""Time as an argument: the only module that asks the machine what time it is.

The one door from plain code into async code.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar, cast


class SystemClock:
    """The wall clock, and real waiting."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        import anyio

        await anyio.sleep(seconds)


def format_date(at: float) -> str:
    """The local calendar day of a moment, as people write it."""
    return datetime.datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d")


T = TypeVar("T")
_PATIENCE: Final = 100  # Times that work which may not wait is told so


def run_sync(work: Callable[..., Awaitable[T]], *args: object) -> T:
    """Run an async function to its end and return what it returns.

    There is no sync twin of anything: write the part that talks to a `Session` as one async function
    and call it here. From inside a running event loop, `await` it instead.
    """
    import anyio

    return anyio.run(work, *args)


def run_without_waiting(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits, so that plain code may call it anywhere.

    Whatever in it does wait gets a `RuntimeError` where it waits, so that those around it can go on.
    """
    waiting = RuntimeError("this may not wait: it was called from plain code")
    try:
        work.send(None)
        for _ in range(_PATIENCE):
            work.throw(waiting)
    except StopIteration as done:
        return cast(T, done.value)
    finally:
        work.close()
    raise waiting
