"""Where a caller's conversation is kept: in a folder, to go on with it later, or in this process alone.

<state>/<id>.jsonl              the transcript
<state>/<id>/tool-results/…     whole tool results
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Final

from sevenfold.errors import Mistake, SessionNotFound
from sevenfold.events import Emit, Event, Notice
from sevenfold.foreign.history import BY
from sevenfold.messages import Json
from sevenfold.protocols import Clock
from sevenfold.recording import RESULTS, Recording, frame_mark
from sevenfold.request import Frame
from sevenfold.storage.files import make_private_dir
from sevenfold.storage.places import checked_id
from sevenfold.transcript import Transcript

OURS: Final[Json] = {"kind": BY}
"""What the first record of a transcript says, if a `Context` wrote it."""


def conversation_id(id: str) -> str:
    """The id as given, if it can be one."""
    try:
        return checked_id(id)
    except SessionNotFound:
        raise Mistake(
            f"{id!r} cannot be the id of a Context, as it names a file: use letters, digits, '-', '_' "
            "and '.'"
        ) from None


class Kept:
    """The transcript of one conversation, and the folder for what is too big for it."""

    def __init__(self, state: str | Path | None, id: str, clock: Clock, emit: Emit) -> None:
        self._recording: Recording | None = None
        self._temporary: Path | None = None
        self.transcript = Transcript(clock.now)
        self.frame: Frame | None = None
        """The last one that was written down."""
        self._used: Frame | None = None
        if state is None:
            return
        folder = make_private_dir(Path(state).expanduser().absolute())
        self._recording = recording = Recording(folder / f"{id}.jsonl", clock, emit)
        if recording.path.is_file():
            recording.load(clock)
            self.frame = recording.frame()
        self.transcript = recording.transcript
        if self.transcript.view.marks.get("session", OURS).get("kind") != BY:
            recording.close()
            raise Mistake(
                f"{recording.path} is the transcript of a session, which a Context cannot go on with: "
                "give it another id, or another folder"
            )
        for lost in self.transcript.problems:  # the caller still has what was said there
            where = f"{recording.path.name}:{lost.line}"
            emit(Notice(f"{where} cannot be read and was passed over: {lost.why}", "warning"))

    @property
    def path(self) -> Path | None:
        """The file of the transcript, if it has one."""
        return self._recording.path if self._recording else None

    def results(self) -> Path:
        """The folder for whole tool results."""
        if self._recording:
            return self._recording.path.with_suffix("") / RESULTS
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="sevenfold-")).resolve()
        return self._temporary

    def keep(self, about: Json, frame: Frame) -> None:
        """Write down what a later process needs to go on: what this is, and how it is asked."""
        used, self._used = self._used, frame
        if self._recording is None or frame is self.frame:
            return
        if "session" not in self.transcript.view.marks:
            self._recording.begin({**OURS, **about}, frame, None)
        elif frame is used or self.frame is None:
            self.transcript.add(frame_mark(frame), by=BY)
        else:  # one that changes with every request is not worth a line each time
            return
        self.frame = frame

    def sync(self) -> None:
        if self._recording:
            self._recording.sync()

    def close(self) -> None:
        if self._recording:
            self._recording.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None


def weakly(emit: Emit) -> Emit:
    """The same without holding on to whose it is, who could then never be forgotten."""
    method = weakref.WeakMethod(emit)

    def told(event: Event) -> None:
        if (tell := method()) is not None:
            tell(event)

    return told
