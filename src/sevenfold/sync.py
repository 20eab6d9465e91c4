"""The one door from plain code into async code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def run_sync(work: Callable[..., Awaitable[T]], *args: object) -> T:
    """Run an async function to its end and return what it returns.

    There is no sync twin of anything: write the part that talks to a `Session` as one async function
    and call it here. From inside a running event loop, `await` it instead.
    """
    import anyio

    return anyio.run(work, *args)
