"""A team memory during a session: pulled at its start, pushed when the writing has paused, and at its end.

    pushing = Pushing(Team(…), folder, clock, emit)
    tasks.start_soon(pushing.run)         pulls at once, in a thread
    await pushing.pulled(2.0)             so that the session begins with what the team knows, if it can
    pushing.wrote(path)                   a file was written: it is sent two seconds after the last
    pushing.turned()                      a turn is over: what a command or a hand changed is sent, too
    await pushing.close(10.0)             what is not sent yet goes now, within these seconds

Whatever goes wrong is said once and never stands in the way of the session.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.to_thread

from sevenfold.errors import SevenfoldError
from sevenfold.events import Emit, Notice
from sevenfold.memory.parts import TEAM
from sevenfold.memory.team.telling import remarks
from sevenfold.memory.team.values import Synced
from sevenfold.protocols import Clock

QUIET: Final = 2.0
"""Seconds without a change after which changes are sent."""
LATEST: Final = 30.0
"""Seconds after which they are sent although there are still more."""


class Syncing(Protocol):
    """What of a `Team` is needed here."""

    def sync(self) -> Synced: ...
    def unsent(self) -> bool: ...
    def stop(self) -> None: ...


class Pushing:
    """Runs the syncs of one session, one after another, each in a thread. All calls in its event loop."""

    def __init__(
        self,
        team: Syncing,
        folder: Path,
        clock: Clock,
        emit: Emit,
        *,
        quiet: float = QUIET,
        taken: Callable[[Synced], None] | None = None,
    ) -> None:
        """`folder` is the memory folder; `taken` is told of every sync that changed files here."""
        self._team, self._clock, self._emit, self._quiet = team, clock, emit, quiet
        self._folder, self._taken = folder / TEAM.rstrip("/"), taken
        self._changes = 0
        self._sent = 0
        self._asked = anyio.Event()
        self._first = anyio.Event()
        self._turn = anyio.Lock()
        self._said: set[str] = set()

    def wrote(self, path: Path) -> None:
        """A memory file was written or removed; only those of the team count."""
        if path.is_relative_to(self._folder):
            self.changed()

    def changed(self) -> None:
        """Something of the team's changed here."""
        self._changes += 1
        self._asked.set()

    def turned(self) -> None:
        """Somebody may have changed something without a word: look."""
        self._asked.set()

    @property
    def answered(self) -> bool:
        """Whether the first sync is done."""
        return self._first.is_set()

    async def run(self) -> None:
        """Pull, then send what changes, until it is cancelled."""
        try:
            await self._sync()
        finally:
            self._first.set()
        while True:
            await self._asked.wait()
            self._asked = anyio.Event()
            if await self._unsent():
                await self._settled()
                await self._sync()

    async def pulled(self, seconds: float) -> bool:
        """Wait until the first sync is done, but no longer; whether it is."""
        with anyio.move_on_after(seconds):
            await self._first.wait()
        return self._first.is_set()

    async def close(self, seconds: float) -> None:
        """Send what is not sent yet, as far as that is possible in this time. Nothing is sent after it."""
        with anyio.move_on_after(seconds) as limit:
            if await self._unsent():
                await self._sync()
        if limit.cancelled_caught:
            self._say("Not all changes were sent to the team in time: they go with the next sync.")
        self._team.stop()

    async def _unsent(self) -> bool:
        """Whether there is anything to send."""
        if self._changes > self._sent:
            return True
        try:
            return await anyio.to_thread.run_sync(self._team.unsent, abandon_on_cancel=True)
        except SevenfoldError:
            return True  # the sync says what is wrong

    async def _settled(self) -> None:
        """Wait until nothing has changed for a while."""
        began, seen = self._clock.now(), -1
        while seen != self._changes and self._clock.now() - began < LATEST:
            seen = self._changes
            await self._clock.sleep(self._quiet)

    async def _sync(self) -> None:
        async with self._turn:
            seen, self._asked = self._changes, anyio.Event()
            try:
                synced = await anyio.to_thread.run_sync(self._team.sync, abandon_on_cancel=True)
            except SevenfoldError as error:
                self._say(f"The team memory is not synchronised: {error}.")
                return
            if synced.offline is None:
                self._sent = seen
            self._tell(synced)

    def _tell(self, synced: Synced) -> None:
        if (synced.pulled or synced.removed_here) and self._taken is not None:
            self._taken(synced)
        if synced.offline is not None:
            self._say(f"The team memory is not synchronised: {synced.offline}.")
        for line in remarks(synced):
            self._say(f"Team memory: {line}.")

    def _say(self, text: str) -> None:
        """Once each: a sync comes back to the same trouble every time."""
        if text not in self._said:
            self._said.add(text)
            self._emit(Notice(text, "warning"))
