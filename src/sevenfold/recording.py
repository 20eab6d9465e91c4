"""A transcript on disk: begun at the first word, resumed to the same bytes, never half a pair."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from sevenfold.acting import interrupted
from sevenfold.errors import FromTheFuture, SessionNotFound
from sevenfold.events import Emit, Notice
from sevenfold.messages import Json
from sevenfold.protocols import Clock
from sevenfold.request import Frame
from sevenfold.storage.jsonl import Log, read_log
from sevenfold.tokens import Calibration
from sevenfold.transcript import FORMAT, Mark, Transcript

HEAD: Final = 65_536
"""The first record says which format it is; this much of the file holds it."""


class Recording:
    """One session's file. Nothing is created before there is something to keep."""

    def __init__(self, path: Path, clock: Clock, emit: Emit) -> None:
        self.path = path
        self._emit = emit
        self._log: Log | None = None
        self.transcript = Transcript(clock.now, self._write)

    def _write(self, lines: bytes) -> None:
        if self._log is None:
            self._log = Log(self.path)
        self._log.append(lines)

    @property
    def begun(self) -> bool:
        return self._log is not None

    def begin(self, about: Json, frame: Frame, calibration: Calibration | None) -> None:
        """Write down what a later resume needs to send the very same bytes."""
        marks = [Mark("session", {"format": FORMAT, **about}), frame_mark(frame)]
        if calibration is not None:
            marks.append(Mark("calibration", msgspec.to_builtins(calibration)))
        self.transcript.add(*marks, by="session")

    def resume(self, clock: Clock) -> Frame | None:
        """Read it back, mend what a crash left open, and return the frame it was sent with."""
        if not self.path.is_file():
            raise SessionNotFound(
                f"there is no session {self.path.stem} in {self.path.parent}; "
                "'sevenfold sessions' lists those that are"
            )
        try:
            Transcript.load(read_log(self.path, HEAD), clock.now)
        except FromTheFuture as error:  # before it is opened, so that it is not touched
            raise FromTheFuture(f"{self.path}: {error}") from None
        self._log = Log(self.path)
        self.transcript = Transcript.load(self._log.read(), clock.now, self._write)
        self._say_what_was_mended()
        if unanswered := interrupted(self.transcript.view):
            self.transcript.add(unanswered, by="resume")
        stored = self.transcript.view.marks.get("frame")
        return msgspec.convert(stored, Frame) if stored else None

    def _say_what_was_mended(self) -> None:
        if self._log and self._log.repaired:
            self._emit(Notice(self._log.repaired, "warning"))
        for problem in self.transcript.problems:
            where = f"{self.path.name}:{problem.line}"
            self._emit(
                Notice(f"{where} cannot be read and was passed over: {problem.why}", "warning")
            )

    def sync(self) -> None:
        if self._log:
            self._log.sync()

    def close(self) -> None:
        if self._log:
            self._log.close()
            self._log = None


def frame_mark(frame: Frame) -> Mark:
    return Mark("frame", msgspec.to_builtins(frame))
