"""The journal of a dream: what it will write, kept on the disk before the first file changes.

`<n>.old` and `<n>.new` are the files before and after. `intent.json` is written last: from then on the next
process to take the folder's lock can go on to the end, or back. Without it nothing has happened yet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final

import msgspec

from sevenfold.core.errors import StorageFailure
from sevenfold.memory.backend import MemoryBackend
from sevenfold.memory.folder.folder import RECORDED, digest_bytes
from sevenfold.memory.history.revisions import Author

JOURNAL: Final = "dream-journal"
INTENT: Final = "intent.json"
BACK: Final = "back.json"
"""The name of the intent when the commit failed and is only to be taken back: it needs no room."""
_LARGEST: Final = 64 << 20


class JournalStep(msgspec.Struct, frozen=True):
    """One file and the digests of what it was and what it will be; empty: not there."""

    file: str
    old: str
    new: str


class JournalIntent(msgspec.Struct, frozen=True):
    """All files of one commit, in the order in which they are written."""

    author: Author
    summary: str
    at: float
    steps: tuple[JournalStep, ...]


def is_commit_pending(backend: MemoryBackend) -> bool:
    """True if a commit was begun and not ended: one look at the disk."""
    return backend.state(JOURNAL).exists()


class DreamJournal:
    """The journal of one folder; only touched under the folder's lock."""

    def __init__(self, backend: MemoryBackend) -> None:
        self._state = backend.state(JOURNAL)

    def begin(
        self,
        author: Author,
        summary: str,
        at: float,
        old: Mapping[str, bytes | None],
        new: Mapping[str, bytes | None],
    ) -> JournalIntent:
        """Keep everything there is to know, for good, before anything is done."""
        self.end()
        try:
            steps = []
            for number, (file, data) in enumerate(new.items()):
                self._keep(f"{number}.old", old[file])
                self._keep(f"{number}.new", data)
                steps.append(JournalStep(file, _digest(old[file]), _digest(data)))
            intent = JournalIntent(author, summary, at, tuple(steps))
            self._state.write(INTENT, msgspec.json.encode(intent))
        except BaseException:
            self._state.clear()
            raise
        return intent

    def read(self) -> JournalIntent | None:
        """The entry of a commit that was begun; None when there is none that can be understood."""
        with contextlib.suppress(StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
            data = self._state.read(BACK if self.turned_back else INTENT, _LARGEST)
            return msgspec.json.decode(data, type=JournalIntent) if data is not None else None
        return None

    def content(self, number: int, which: str, expected: str) -> bytes | None:
        """One file of the journal; `StorageFailure` when it is not what was kept. None: no file."""
        if not expected:
            return None
        name = f"{number}.{which}"
        data = self._state.read(name, RECORDED)
        if data is None or digest_bytes(data) != expected:
            path = self._state.path_of(name)
            raise StorageFailure(f"{path} is damaged; the history of the memories has what it held")
        return data

    def turn_back(self) -> None:
        """From now on this commit is only taken back."""
        with contextlib.suppress(StorageFailure):
            self._state.rename(INTENT, BACK)

    @property
    def turned_back(self) -> bool:
        return BACK in self._state.sizes()

    def end(self) -> None:
        """It is done, or taken back: the intent goes first, then the rest."""
        for name in (INTENT, BACK):
            with contextlib.suppress(StorageFailure):
                self._state.remove(name)
        self._state.clear()

    def _keep(self, name: str, data: bytes | None) -> None:
        if data is not None:
            self._state.write(name, data)


def _digest(data: bytes | None) -> str:
    return "" if data is None else digest_bytes(data)
