"""The memories that a session of a client was shown: a small file, so that a restart knows them."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.core.errors import StorageFailure
from sevenfold.memory.recall_results import DAY, Recalled
from sevenfold.storage.files import make_private_dir, read_if_there, write_atomic

FOLDER: Final = "clients"
KEPT: Final = 30 * DAY  # Seconds after which the notes of a session are removed
_LARGEST: Final = 1 << 20
_LONGEST: Final = 100_000  # Characters of a summary that are kept
_PLAIN: Final = r"[A-Za-z0-9_-]{1,100}"


class _NotesFile(msgspec.Struct):
    shown: dict[str, float] = {}
    recalls: int = 0
    ignored_by: str = ""
    summary: str = ""
    learned: int = 0
    last_entry: int = -1


class ClientNotes:
    """The memories that a session of a client was shown, and whether it is to ignore memory."""

    def __init__(self, file: Path, session: str, content: _NotesFile) -> None:
        self._file, self.session, self._content = file, session, content

    @property
    def memories(self) -> dict[str, float]:
        """The memories that were shown, by file, with the time of the text; the newest last."""
        return self._content.shown

    @property
    def recalls(self) -> int:
        """The number of messages behind which memories were put."""
        return self._content.recalls

    @property
    def ignored_by(self) -> str:
        """The words of the user by which memory is to be ignored; empty: it is not."""
        return self._content.ignored_by

    @property
    def summary(self) -> str:
        """The newest summary by which the client has compacted the session."""
        return self._content.summary

    def note_summary(self, text: str) -> None:
        self._content.summary = text[:_LONGEST]
        self._save()

    @property
    def learned_bytes(self) -> int:
        """The bytes of the session's transcript for which an extraction was started."""
        return self._content.learned

    def note_learned(self, size: int) -> None:
        self._content.learned = size
        self._save()

    @property
    def last_entry(self) -> int:
        """The last entry of the session that an extraction looked at."""
        return self._content.last_entry

    def note_last_entry(self, last: int) -> None:
        self._content.last_entry = last
        self._save()

    def note_ignored(self, words: str) -> None:
        if words != self.ignored_by:
            self._content.ignored_by = words
            self._save()

    def list_shown(self, modified: Mapping[str, float]) -> frozenset[str]:
        """The files that were shown as they are now; one that changed since may be shown again."""
        return frozenset(file for file, at in self.memories.items() if modified.get(file) == at)

    def note_shown(self, memories: Iterable[Recalled]) -> None:
        news = {one.file: one.modified for one in memories}
        if news:
            kept = {file: at for file, at in self.memories.items() if file not in news}
            self._content.shown = kept | news
            self._content.recalls += 1
            self._save()

    def _save(self) -> None:
        """A note that cannot be written is no reason to stop the client."""
        with contextlib.suppress(StorageFailure):
            make_private_dir(self._file.parent)
            write_atomic(self._file, msgspec.json.encode(self._content) + b"\n")


def find_notes_file(local: Path, session: str) -> Path:
    """The file of a session. A name that is no plain word is written as a digest."""
    plain = re.fullmatch(_PLAIN, session) is not None
    return local / FOLDER / f"{session if plain else hashlib.sha256(session.encode()).hexdigest()}.json"


def load_notes(file: Path, session: str) -> ClientNotes:
    """The notes of a session; new ones if there are none or they cannot be read."""
    content = _NotesFile()
    with contextlib.suppress(StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
        content = msgspec.json.decode(read_if_there(file, _LARGEST) or b"{}", type=_NotesFile)
    return ClientNotes(file, session, content)


def sweep_notes(local: Path, now: float) -> None:
    """Remove the notes of sessions that ended long ago."""
    with contextlib.suppress(OSError):
        for file in (local / FOLDER).iterdir():
            if now - file.stat().st_mtime > KEPT:
                file.unlink()
