"""The history of a memory folder: every change is a revision that can be listed, compared and undone.

It is a bare git repository beside the folder, made on the first change. The user's git configuration is
not read, and no git program is needed; `git log` works in it. The writers (`record`, `purge`, `mend`) need
the folder's write lock; reading and `pack` need no lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from sevenfold.core.errors import Mistake, StorageFailure
from sevenfold.memory.history import maintenance
from sevenfold.memory.history.maintenance import PurgeReport
from sevenfold.memory.history.objects import (
    BLOB,
    COMMIT,
    NOTHING,
    change_tree,
    decode_path,
    encode_path,
    find_in_tree,
    hash_object,
    iterate_files,
)
from sevenfold.memory.history.reader import HistoryReader
from sevenfold.memory.history.revisions import (
    NAMED,
    Author,
    Revision,
    RevisionChange,
    StoredCommit,
    TakenRevisions,
    classify_change,
    describe_changes,
    encode_commit,
)

__all__ = ["Author", "MemoryHistory", "PurgeReport", "Revision", "RevisionChange"]

Files = Mapping[str, bytes]


class MemoryHistory(HistoryReader):
    """The revisions of one folder, for reading and writing.

    `tell` gets a sentence for the user when a damaged history was repaired.
    """

    def __init__(
        self, repository: Path, tell: Callable[[str], None] = lambda sentence: None, *, sync: bool = False
    ) -> None:
        super().__init__(repository, sync=sync)
        self.tell = tell

    def record(
        self,
        files: Files | Callable[[], Files],
        author: Author,
        summary: str,
        at: float,
        changed: Mapping[str, bytes | None] | None = None,
        takes_back: TakenRevisions | None = None,
    ) -> Revision | None:
        """Add a revision with the folder as it is now; None if nothing changed.

        With `changed` (None for a removed file) only these files are compared, and `files`, the whole
        folder, is called only if there is no history yet. `takes_back`: it is an undo or a redo.
        """
        try:
            commit = self._next(files, author, summary, at, changed)
        except StorageFailure:  # damaged below the last revision's own folder
            self._objects.forget()
            if not (said := self._mend(at)):
                raise
            self.tell(said)
            commit = self._next(files, author, summary, at, changed)
        if commit is None:
            return None
        commit = replace(commit, takes_back=takes_back)
        id = self._objects.put(COMMIT, encode_commit(commit))
        packed = self._objects.flush()
        self._objects.set_head(id)
        if packed and commit.parent is None:
            maintenance.record_packed(self._objects, commit.number)
        if maintenance.count_unpacked(self._objects, commit) >= maintenance.OVERDUE:
            with contextlib.suppress(StorageFailure):  # the revision is safe without packing
                self.pack()
        return commit.revision(id, self._files(commit))

    def _next(
        self,
        files: Files | Callable[[], Files],
        author: Author,
        summary: str,
        at: float,
        changed: Mapping[str, bytes | None] | None,
    ) -> StoredCommit | None:
        head = self._last_for_writing(at)
        if head is not None and changed is not None:
            return self._follow(head, _of(changed), author, summary, at)
        told = {name: data for name, data in (changed or {}).items() if data is not None}
        whole = {**(files() if callable(files) else files), **told}
        found = head is None and told.keys() != whole.keys()
        before = iterate_files(self._objects, head[1].tree) if head else ()
        now = _of(whole)
        now |= {path: None for path, _ in before if path not in now}
        return self._follow(head, now, author, summary, at, found)

    def purge(self, *names: str, at: float = 0.0) -> PurgeReport:
        """Remove files, by all names they had, from every revision; ids change from the first one on."""
        if not names:
            raise Mistake("no file to purge was named; name the file")
        if self._last_for_writing(at) is None:
            return PurgeReport(names, {}, maintenance.remove_set_aside(self.path))
        maintenance.begin_purge(self._objects, names)
        return maintenance.finish_purge(self._objects, names)

    def mend(self, at: float, *, deep: bool = False) -> str:
        """Repair the history after a crash; returns a sentence for the user, empty if all is well.

        Finishes a purge that was interrupted. With `deep` every revision is read, otherwise only the last
        one; a damaged history is set aside.
        """
        try:
            if deep and self.path.is_dir() and self.check():
                return maintenance.set_history_aside(self.path, at)
            return self._mend(at)
        except StorageFailure as error:
            return f"{error}; until then changes to memories have no history"

    def _mend(self, at: float) -> str:
        if not self.path.exists() and not self.path.is_symlink():
            return ""
        self._objects.forget()
        said = (
            "" if maintenance.is_usable(self._objects) else maintenance.recover_history(self._objects, at)
        )
        if self.path.is_dir():
            self._objects.prepare()
            if names := maintenance.read_pending_purge(self._objects):
                maintenance.finish_purge(self._objects, names)
        return said

    @property
    def due(self) -> bool:
        """True if it is worth calling `pack` when the program is idle."""
        last = self._last()
        return last is not None and maintenance.count_unpacked(self._objects, last[1]) >= maintenance.EVERY

    def pack(self) -> int:
        """Pack loose objects and return their number. Needs no lock and may run in a thread."""
        return maintenance.pack_objects(self.path)

    def _last_for_writing(self, at: float) -> tuple[bytes, StoredCommit] | None:
        """The last revision, after finishing an interrupted purge and repairing damage."""
        try:
            last = self._last()
            if last is not None:
                self._objects.folder(last[1].tree)
                if not maintenance.read_pending_purge(self._objects):
                    return last
        except StorageFailure:
            pass
        if said := self._mend(at):
            self.tell(said)
        self._objects.prepare()
        return self._last()

    def _follow(
        self,
        head: tuple[bytes, StoredCommit] | None,
        now: Mapping[bytes, bytes | None],
        author: Author,
        summary: str,
        at: float,
        found: bool = False,
    ) -> StoredCommit | None:
        """The next commit, with its objects staged; None if nothing changed."""
        tree, number = (head[1].tree, head[1].number) if head else (None, 0)
        changes: dict[bytes, bytes | None] = {}
        named: list[RevisionChange] = []
        for path, data in now.items():
            id = None if data is None else hash_object(BLOB, data)
            was = find_in_tree(self._objects, tree, path) if tree else None
            if id == was:
                continue
            changes[path] = id
            named.append(RevisionChange(decode_path(path), classify_change(was, id)))
            if data is not None:
                self._objects.put(BLOB, data)
        if not changes:
            return None
        new = change_tree(self._objects, tree, changes) or self._objects.put_folder(NOTHING)
        ordered = tuple(sorted(named, key=lambda change: change.file))
        return StoredCommit(
            new,
            head[0] if head else None,
            at,
            author,
            summary or describe_changes(ordered),
            number + 1,
            ordered if len(ordered) <= NAMED else None,
            found,
        )


def _of(files: Mapping[str, bytes | None]) -> dict[bytes, bytes | None]:
    return {encode_path(name): data for name, data in files.items()}
