"""The usual silences of this user, kept from session to session in one small file.

What was learned about each model's tokens, kept from session to session in one small file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from sevenfold.core.errors import StorageFailure
from sevenfold.core.protocols import Clock
from sevenfold.core.tokens import Calibration
from sevenfold.layers.shared.idle_gaps import EDGES, GapCounts
from sevenfold.storage.files import write_atomic


class IdleGapFile:
    """`<home>/gaps.json`. A file that cannot be read or written costs accuracy, nothing else."""

    def __init__(self, home: Path, clock: Clock) -> None:
        self._path, self._clock = home / "gaps.json", clock
        self._opened = clock.now()
        self._before: GapCounts | None = None
        self._new = GapCounts()

    def gaps(self) -> GapCounts:
        """The gaps of this user, the last minutes included."""
        if self._before is None:
            self._before = self._kept()
        return self._before + self._new

    def spoke(self, replied_at: float | None) -> None:
        """The user speaks; the last reply came then. One from before this session says nothing."""
        if replied_at is not None and replied_at >= self._opened:
            self._new = self._new.after(self._clock.now() - replied_at)

    def leave(self) -> None:
        """The session ends. If the user ever came back in it, this time they did not."""
        if not self._new.seen:
            return
        try:
            write_atomic(self._path, msgspec.json.encode(self._kept() + self._new.leaving()))
        except StorageFailure:
            return
        self._before, self._new = None, GapCounts()

    def _kept(self) -> GapCounts:
        try:
            kept = msgspec.json.decode(self._path.read_bytes(), type=GapCounts)
        except (OSError, msgspec.DecodeError):
            return GapCounts()
        sound = len(kept.counts) == len(EDGES) and min(kept.counts) >= 0 <= kept.left
        return kept if sound else GapCounts()


MOST_EVIDENCE: Final = 200_000.0
"""In tokens: what a session starts with must not outweigh what it sees itself."""


class CalibrationFile:
    """`<home>/calibration.json`. A file that cannot be read or written costs accuracy, nothing else."""

    def __init__(self, home: Path) -> None:
        self._path = home / "calibration.json"

    def of(self, model: str) -> Calibration | None:
        return self._all().get(model)

    def keep(self, model: str, learned: Calibration) -> None:
        evidence = max(learned.tt, learned.jj)
        if not evidence:
            return
        share = min(1.0, MOST_EVIDENCE / evidence)
        shrunk = Calibration(*(value * share for value in msgspec.structs.astuple(learned)))
        try:
            write_atomic(self._path, msgspec.json.encode({**self._all(), model: shrunk}))
        except StorageFailure:
            return

    def _all(self) -> dict[str, Calibration]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Calibration])
        except (OSError, msgspec.DecodeError):
            return {}
