"""The history of a store that goes on without one.

If a library is missing or the disk refuses, the user is told once and every write goes on. Only a
question about the history itself raises the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from sevenfold.core.errors import StorageFailure
from sevenfold.memory.backend import RevisionLog
from sevenfold.memory.history.revisions import Author

NONE: Final = "-"  # Stands for the newest revision if the history cannot be read

T = TypeVar("T")


class FolderHistory:
    """The history, opened on first use. `record` and `head` need the write lock."""

    def __init__(
        self, open_log: Callable[[Callable[[str], None]], RevisionLog], say: Callable[[str], None]
    ) -> None:
        self._open = open_log
        self.mended = False  # True after a repair: the history may have lost revisions then
        self._say = say
        self._history: RevisionLog | None = None

    def ask(self, work: Callable[[RevisionLog], T]) -> T:
        """The answer of the history. Raises `StorageFailure` if there is none."""
        try:
            if self._history is None:
                self._history = self._open(self._mended)
            return work(self._history)
        except ImportError as error:
            raise StorageFailure(
                f"the history of memories cannot be kept, because a library is missing ({error}); "
                "install pygit2"
            ) from error

    def head(self, at: float) -> str:
        """The newest revision; empty if there is none, `NONE` if the history cannot be read."""
        try:
            try:
                newest = self.ask(lambda history: history.log(limit=1))
            except StorageFailure:
                if said := self.ask(lambda history: history.mend(at)):
                    self._mended(said)
                newest = self.ask(lambda history: history.log(limit=1))
        except StorageFailure as error:
            self._without(error)
            return NONE
        return newest[0].id if newest else ""

    def files(self, revision: str) -> dict[str, bytes]:
        """All files at a revision; none if there is no such revision."""
        return self._try(lambda history: history.at(revision), {}) if revision not in ("", NONE) else {}

    def file(self, revision: str, name: str) -> bytes | None:
        """One file at a revision; None if there is no such file or revision."""
        if revision in ("", NONE):
            return None
        return self._try(lambda history: history.file_at(revision, name), None)

    def record(
        self,
        changed: Mapping[str, bytes | None] | None,
        whole: Callable[[], Mapping[str, bytes]],
        author: Author,
        summary: str,
        at: float,
    ) -> str | None:
        """The new revision's id, empty if nothing was new; None if it could not be written.

        Without `changed` it is the whole folder as it was found, with an unknown past.
        """

        def record(history: RevisionLog) -> str:
            revision = history.record(whole, author, summary, at, changed=changed)
            return revision.id if revision else ""

        return self._try(record, None)

    def _try(self, work: Callable[[RevisionLog], T], otherwise: T) -> T:
        try:
            return self.ask(work)
        except StorageFailure as error:
            self._without(error)
            return otherwise

    def _mended(self, sentence: str) -> None:
        self.mended = True
        self._say(sentence)

    def _without(self, error: StorageFailure) -> None:
        self._say(f"Memories are saved, but without history: {error}")
