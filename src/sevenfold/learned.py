"""What was learned about each model's tokens, kept from session to session in one small file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from sevenfold.errors import StorageFailure
from sevenfold.storage.files import write_atomic
from sevenfold.tokens import Calibration

MOST_EVIDENCE: Final = 200_000.0
"""In tokens: what a session starts with must not outweigh what it sees itself."""


class Learned:
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
