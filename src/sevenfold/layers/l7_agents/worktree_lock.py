"""One at a time: git loses its way when several work trees are added or removed together.

Within this process a lock that is had in turn; between processes a file beside the folder, of which the
system lets go with the process.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from sevenfold.errors import StorageFailure
from sevenfold.layers.l7_agents.short_lock import opened, taken
from sevenfold.storage.files import make_private_dir

LOOK: Final = 0.02
"""Seconds between two tries for what another process has."""


class OneAtATime:
    """For the work trees of one folder."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._file, self._seconds = folder.with_name(f"{folder.name}.lock"), seconds
        self._here = anyio.Lock()

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        """Nobody else adds or removes one; `StorageFailure` when that cannot be had in time."""
        async with self._here:
            make_private_dir(self._file.parent)
            fd = opened(self._file)
            try:
                await self._wait(fd)
                yield
            finally:
                os.close(fd)

    async def _wait(self, fd: int) -> None:
        try:
            with anyio.fail_after(self._seconds):
                while not taken(fd, self._file):  # noqa: ASYNC110 - a lock of the system has no event
                    await anyio.sleep(LOOK)
        except TimeoutError:
            raise StorageFailure(
                f"{self._file} is held by another process for more than {self._seconds:.0f} seconds; "
                "look what it waits for, or try again later"
            ) from None
