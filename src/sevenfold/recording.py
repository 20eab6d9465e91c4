"""A transcript on disk: begun at the first word, resumed to the same bytes, never half a pair."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.acting import interrupted
from sevenfold.errors import FromTheFuture, SessionNotFound
from sevenfold.events import Emit, Notice
from sevenfold.mending import mend
from sevenfold.messages import Json
from sevenfold.protocols import Clock
from sevenfold.request import Frame
from sevenfold.storage.jsonl import Log, read_log
from sevenfold.storage.results import ResultStore
from sevenfold.tokens import Calibration
from sevenfold.transcript import FORMAT, Mark, Transcript, View

RESULTS: Final = "tool-results"
"""The folder of a session's whole tool results."""
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

    def branch(self, view: View, clock: Clock) -> None:
        """Go on from another conversation's view; only what is added from here on is in this file."""
        self.transcript = Transcript.on(view, clock.now, self._write)

    def resume(self, clock: Clock) -> Frame | None:
        """Read it back, mend what a crash left open, and return the frame it was sent with."""
        lines = self.load(clock)
        self._mend(lines)
        if unanswered := interrupted(self.transcript.view):
            self.transcript.add(unanswered, by="resume")
        return self.frame()

    def load(self, clock: Clock) -> bytes:
        """Read it back as it is; returns its lines."""
        if not self.path.is_file():
            raise SessionNotFound(
                f"there is no session {self.path.stem} in {self.path.parent}; "
                "'sevenfold sessions' lists those that are"
            )
        try:
            Transcript.load(read_log(self.path, HEAD), clock.now)
        except FromTheFuture as error:  # before it is opened, so that it is not touched
            raise FromTheFuture(f"{self.path}: {error}") from None
        self._log = Log(self.path, create=False)
        lines = self._log.read()
        self.transcript = Transcript.load(lines, clock.now, self._write)
        if self._log.repaired:
            self._emit(Notice(self._log.repaired, "warning"))
        return lines

    def _mend(self, lines: bytes) -> None:
        """Make the view whole where lines were lost, and say what that means."""
        store = ResultStore(lambda: self.path.with_suffix("") / RESULTS)
        mending = mend(self.transcript, lines, store.find, self.path.name)
        for by, writes in groupby(mending.writes, key=lambda write: write[0]):
            self.transcript.add(*(what for _, what in writes), by=by)
        for text in mending.told:
            self._emit(Notice(text, "warning"))

    def frame(self) -> Frame | None:
        """The frame that the last request of this transcript was sent with, if it can be read."""
        stored = self.transcript.view.marks.get("frame")
        try:
            return msgspec.convert(stored, Frame) if stored else None
        except msgspec.ValidationError as error:
            text = f"{self.path.name}: the stored system prompt and tools are damaged ({error}); "
            self._emit(Notice(text + "the session goes on with those of now", "warning"))
            self.transcript.add(Mark("frame", None), by="resume")
            return None

    def sync(self) -> None:
        if self._log:
            self._log.sync()

    def close(self) -> None:
        if self._log:
            self._log.close()
            self._log = None


def frame_mark(frame: Frame) -> Mark:
    return Mark("frame", msgspec.to_builtins(frame))
