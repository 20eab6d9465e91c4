"""The progress of a dream, in this process and for others through a small file.

    <state>/dream.json     what the dream of now does, or how the last one ended
    <state>/dream-stop     a request to stop the dream with this id

No signals are sent: the dream looks for the second file and stops itself, so that no process
can be hit by mistake.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.core.errors import StorageFailure
from sevenfold.core.events import Emit, Progress
from sevenfold.core.messages import ToolUse
from sevenfold.core.protocols import Clock
from sevenfold.memory.dreams.lock import LockProcess, read_current_process
from sevenfold.storage.files import make_private_dir, read_if_there, write_atomic

BY: Final = "dream"
KEPT: Final = 30  # Turns of the model that are kept for display
STATUS: Final = "dream.json"
STOP: Final = "dream-stop"
DreamStatus: TypeAlias = Literal["running", "waiting", "completed", "failed", "killed"]
DreamPhase: TypeAlias = Literal["starting", "updating"]
_LARGEST: Final = 1 << 20
_WIDE: Final = 60
_SHOWN: Final = 3


class DreamSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A dream at one moment."""

    id: str
    owner: LockProcess
    began: float
    session: str = ""
    status: DreamStatus = "running"
    phase: DreamPhase = "starting"
    turns: tuple[str, ...] = ()  # The last of them, the oldest first: what was called
    touched: tuple[str, ...] = ()  # The files that were written or removed
    denied: int = 0
    ended: float | None = None
    said: str = ""  # The end of it, in a sentence
    revision: str = ""

    @property
    def running(self) -> bool:
        """True if it goes on: a dream whose process died does not, whatever it wrote last."""
        return self.status == "running" and self.owner.lives()


def read_last_snapshot(state: Path) -> DreamSnapshot | None:
    """The state of the dream of now, or of the last one; None when there was none."""
    with contextlib.suppress(StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
        data = read_if_there(state / STATUS, _LARGEST, nofollow=True)
        return msgspec.json.decode(data, type=DreamSnapshot) if data is not None else None
    return None


def ask_to_stop(state: Path) -> DreamSnapshot | None:
    """Let the dream that goes on stop by itself, soon; None when none does."""
    known = read_last_snapshot(state)
    if known is None or not known.running:
        return None
    write_atomic(state / STOP, known.id.encode("ascii"), nofollow=True)
    return known


class DreamWatch:
    """Follows one dream and tells about it."""

    def __init__(self, id: str, state: Path, session: str, clock: Clock, emit: Emit) -> None:
        self.id, self._state, self._session = id, state, session
        self._clock, self._emit = clock, emit
        self.began = clock.now()
        self.phase: DreamPhase = "starting"
        self.status: DreamStatus = "running"
        self.turns: deque[str] = deque(maxlen=KEPT)
        self.touched: dict[str, None] = {}
        self.denied = 0
        self.said = ""
        self._revision = ""
        self._ended: float | None = None
        self._running = 0
        self._forget_wish()
        self._keep()
        emit(Progress(BY, "dreaming: starting"))

    # --- what happens -----------------------------------------------------------------------------------

    def calls(self, use: ToolUse) -> None:
        """A call begins; those that run beside each other are one turn."""
        what = describe_call(use)
        if self._running and self.turns:
            self.turns[-1] = f"{self.turns[-1]} · {what}"
        else:
            self.turns.append(what)
        self._running += 1

    def answered(self) -> None:
        self._running -= 1
        self._keep()

    def wrote(self, file: str) -> None:
        """A file of the copy was changed."""
        self.phase = "updating"
        if file not in self.touched:
            self.touched[file] = None
            self._emit(Progress(BY, f"dreaming: updating {format_names(tuple(self.touched))}"))

    def end(self, status: DreamStatus, said: str, revision: str = "") -> None:
        self.status, self.said, self._revision = status, said, revision
        self._ended = self._clock.now()
        self._forget_wish()
        self._keep()
        if status != "failed":  # a failure is told as one
            self._emit(Progress(BY, said, done=True, outcome=status))

    # --- looking ----------------------------------------------------------------------------------------

    @property
    def wished_away(self) -> bool:
        """True if it is asked to stop."""
        with contextlib.suppress(StorageFailure):
            return read_if_there(self._state / STOP, 64, nofollow=True) == self.id.encode("ascii")
        return False

    @property
    def now(self) -> DreamSnapshot:
        return DreamSnapshot(
            id=self.id,
            owner=read_current_process(),
            began=self.began,
            session=self._session,
            status=self.status,
            phase=self.phase,
            turns=tuple(self.turns),
            touched=tuple(self.touched),
            denied=self.denied,
            ended=self._ended,
            said=self.said,
            revision=self._revision,
        )

    def _keep(self) -> None:
        """For others; a disk that refuses costs them the view and nothing else."""
        with contextlib.suppress(StorageFailure):
            make_private_dir(self._state)
            write_atomic(self._state / STATUS, msgspec.json.encode(self.now), nofollow=True)

    def _forget_wish(self) -> None:
        with contextlib.suppress(OSError):
            (self._state / STOP).unlink()


def format_names(files: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    shown = ", ".join(files[-_SHOWN:])
    more = len(files) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def describe_call(use: ToolUse) -> str:
    """One call of a tool in a few words."""
    for name in ("file_path", "pattern", "command", "path"):
        if isinstance(value := use.input.get(name), str):
            text = os.path.basename(value) if name == "file_path" else value  # noqa: PTH119
            text = " ".join(text.split())
            return f"{use.name} {text if len(text) <= _WIDE else text[: _WIDE - 1] + '…'}"
    return use.name
