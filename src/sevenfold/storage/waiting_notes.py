"""Words that wait for an extraction, written down so that they survive any end of the process.

    <project>/waiting/<session>.json    {"last": 12, "off": [[20, 30]]}: the words after entry 12 of this
                                        session wait, but not those of 21 to 30
    <project>/waiting/<session>.jsonl   of a session of another program: a copy of its transcript

A session writes its file before the user's words go into its transcript, and removes it once all of them
were looked at. The words stay in the transcript. The next session of the project reads both and takes the
words up, unless the session that they belong to is still open, or another one takes them up already.
Words that were said with memory switched off never wait: a session that goes on so says where they begin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from sevenfold.core.errors import FromTheFuture, SessionBusy, SessionNotFound, StorageFailure
from sevenfold.core.transcript import Id, Mark, Transcript, View, encode_entry
from sevenfold.storage.files import make_private_dir, make_storage_failure, read_if_there, write_atomic
from sevenfold.storage.jsonl import JsonlLog, hold_closed_log, read_log
from sevenfold.storage.locks import hold_lock
from sevenfold.storage.places import WAITING, check_session_id

CURSOR: Final = "extraction"  # The mark that says how far an extraction has looked: `{"last": id}`
_ENDING: Final = ".json"
_CLAIM: Final = ".claim"  # The lock of the session that takes words up
_LARGEST: Final = 1_000  # Bytes of a note


Span: TypeAlias = tuple[Id, Id | None]  # After the first and up to the second; None: to the end


class WaitingNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """The note of one session whose words wait."""

    last: Id = -1  # The last entry that was looked at
    off: tuple[Span, ...] = ()  # Entries of the time in which memory was switched off

    def covers(self, id: Id) -> bool:
        """True if the words of this entry may be looked at."""
        return not any(after < id and (until is None or id <= until) for after, until in self.off)


class WaitingFolder:
    """The notes of a project, one for each session with words that wait."""

    def __init__(self, project: Path) -> None:
        self._project, self._folder = project, project / WAITING

    def write(self, session: str, last: Id, off: Sequence[Span] = ()) -> None:
        """Note that the words of a session after this entry wait, but for those said with memory off."""
        make_private_dir(self._folder)
        write_atomic(self._find(session), msgspec.json.encode(WaitingNote(last, tuple(off))) + b"\n")

    def switch(self, session: str, end: Id, *, on: bool) -> WaitingNote | None:
        """A session goes on with memory on or off: what follows `end` waits, or never will."""
        note = self.read(session)
        is_off = note is not None and bool(note.off) and note.off[-1][1] is None
        if note is None or is_off is not on:
            return note
        off = (*note.off[:-1], (note.off[-1][0], end)) if on else (*note.off, (end, None))
        self.write(session, note.last, off)
        return WaitingNote(note.last, off)

    def lay_copy(self, session: str, transcript: Transcript, last: Id) -> bool:
        """Let the words of another program's session wait; False while a session takes words up.

        What waits of an older copy goes on waiting in the new one.
        """
        with self.claim() as mine:
            if mine:
                earlier = self.read(session)
                lines = (encode_entry(entry) + b"\n" for entry in transcript.entries)
                make_private_dir(self._folder)
                write_atomic(self._copy_of(session), b"".join(lines))
                self.write(session, last if earlier is None else earlier.last)
        return mine

    def remove(self, session: str) -> None:
        """Nothing of this session waits any more."""
        for path in (self._find(session), self._copy_of(session)):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise make_storage_failure(error, path, "removed") from error

    def read(self, session: str) -> WaitingNote | None:
        """The note of a session; None: nothing waits. One that cannot be read means that all waits."""
        data = read_if_there(self._find(session), _LARGEST)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=WaitingNote)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return WaitingNote()

    def list_sessions(self) -> list[str]:
        """The sessions with a note, oldest first."""
        try:
            names = sorted(path.name for path in self._folder.iterdir())
        except OSError:
            return []
        return [name.removesuffix(_ENDING) for name in names if _is_note(name)]

    def claim(self) -> AbstractContextManager[bool]:
        """Hold the right to take words up; False if another session has it."""
        return hold_lock(self._folder / _CLAIM, wait=0.0)

    def load(self, session: str) -> Transcript | None:
        """The transcript of a session that has ended; None while it is open or cannot be read."""
        path = self._path_of(session)
        if not path.is_file():
            self.remove(session)  # it was deleted, and its words with it
            return None
        try:
            with hold_closed_log(path):
                return Transcript.load(read_log(path), lambda: 0.0)
        except (SessionBusy, FromTheFuture, StorageFailure):
            return None

    def settle(self, session: str, last: Id, now: Callable[[], float], *, all: bool) -> None:
        """Write down that the words of an ended session were looked at up to this entry.

        `all`: nothing of it waits any more. One that was resumed meanwhile keeps its own account.
        """
        try:
            with JsonlLog(self._path_of(session), create=False) as log:
                transcript = Transcript.load(log.read(), now, log.append)
                transcript.add(Mark(CURSOR, {"last": last}), by="Extraction")
                log.sync()
                if all:
                    self.remove(session)
                else:
                    self.write(session, last, (self.read(session) or WaitingNote()).off)
        except (SessionBusy, SessionNotFound):
            return

    def _find(self, session: str) -> Path:
        return self._folder / f"{check_session_id(session)}{_ENDING}"

    def _copy_of(self, session: str) -> Path:
        return self._folder / f"{check_session_id(session)}.jsonl"

    def _path_of(self, session: str) -> Path:
        copy = self._copy_of(session)
        return copy if copy.exists() else self._project / copy.name


def _is_note(name: str) -> bool:
    try:
        return name.endswith(_ENDING) and bool(check_session_id(name.removesuffix(_ENDING)))
    except SessionNotFound:
        return False


def find_cursor(view: View) -> Id:
    """The last entry that was looked at, by the mark in the transcript; -1: none."""
    mark = view.marks.get(CURSOR)
    last = mark.get("last") if isinstance(mark, dict) else None
    return last if isinstance(last, int) else -1
