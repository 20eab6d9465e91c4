"""The gates of a dream: four questions, the cheapest first, so that a closed gate costs nothing.

| gate | question | what it costs |
|---|---|---|
| off | is it switched on? | nothing |
| time | are the hours over since the lock's time? without a lock it never dreamed: open | one stat |
| scan | did the last count of sessions lie long enough back? | nothing |
| sessions | were enough sessions touched since? | one scandir, a stat for each, until there are enough |
| lock | does nobody else dream? | taking the lock |

No transcript is ever opened. A turn with a closed gate costs one stat.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.core.errors import SevenfoldError
from sevenfold.core.protocols import Clock
from sevenfold.memory.dreams.lock import DreamLock, DreamLockBusy, HeldDreamLock, is_credible_time
from sevenfold.settings.layers import DreamSettings

GateName: TypeAlias = Literal["off", "time", "scan", "sessions", "lock"]
TRANSCRIPT: Final = ".jsonl"


class ClosedGate(msgspec.Struct, frozen=True):
    """No dream now, and why, in a sentence."""

    gate: GateName
    why: str


class DreamGates:
    """The gates of one session. `sessions` is the folder of its project's transcripts."""

    def __init__(
        self,
        lock: DreamLock,
        sessions: Path,
        current: str,
        settings: DreamSettings,
        clock: Clock,
        enabled: Callable[[], bool],
    ) -> None:
        self.lock = lock
        self._sessions, self._current = sessions, current
        self._settings, self._clock, self._enabled = settings, clock, enabled
        self._scanned: float | None = None
        self._looked: float | None = None

    def enter(self) -> HeldDreamLock | ClosedGate:
        """Go through all gates. A dream that gets the lock has to give it back."""
        if (closed := self.check()) is not None:
            return closed
        return self.take()

    def take(self) -> HeldDreamLock | ClosedGate:
        """Only the last gate: for a dream by hand."""
        found = self.lock.acquire()
        return ClosedGate("lock", str(found)) if isinstance(found, DreamLockBusy) else found

    def check(self) -> ClosedGate | None:
        """All gates but the lock; None when it is time."""
        if not self._enabled():
            return ClosedGate("off", "dreaming is switched off")
        now = self._clock.now()
        since = self._last(now)
        hours = self._settings.hours
        if since is not None and now - since < hours * 3600:
            return ClosedGate("time", f"the last dream was less than {hours:g} hours ago")
        pause = self._settings.scan_minutes * 60
        if self._scanned is not None and 0 <= now - self._scanned < pause:
            return ClosedGate("scan", "the sessions were counted a short while ago")
        self._scanned = now
        if not self._enough(since or 0.0):
            least = self._settings.sessions
            return ClosedGate("sessions", f"fewer than {least} sessions since the last dream")
        return None

    def _last(self, now: float) -> float | None:
        """The time of the last dream.

        While one may be going on, its lock is read again now and then: one that died puts its time back.
        """
        stale, hours = self._settings.stale_minutes * 60, self._settings.hours
        last = self.lock.last()
        if last is not None and abs(now - last) < stale and self._may_look(now):
            with contextlib.suppress(SevenfoldError):  # a folder that cannot be written: it stays
                self.lock.settle()
            last = self.lock.last()
        if last is not None and not is_credible_time(last, now, stale):
            return now - hours * 3600 - 1  # a wrong clock set it: as if it had just become due
        return last

    def _may_look(self, now: float) -> bool:
        pause = self._settings.scan_minutes * 60
        if self._looked is not None and 0 <= now - self._looked < pause:
            return False
        self._looked = now
        return True

    def _enough(self, since: float) -> bool:
        """True if so many transcripts were written since; counting ends as soon as they are."""
        left = self._settings.sessions
        if left <= 0:
            return True
        own = f"{self._current}{TRANSCRIPT}"
        try:
            with os.scandir(self._sessions) as entries:
                for entry in entries:
                    left -= entry.name != own and _touched(entry, since)
                    if left <= 0:
                        return True
        except OSError:
            return False
        return False


def _touched(entry: os.DirEntry[str], since: float) -> bool:
    if not entry.name.endswith(TRANSCRIPT):
        return False
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:  # it went away just now
        return False
    return found.st_mtime > since and found.st_size > 0
