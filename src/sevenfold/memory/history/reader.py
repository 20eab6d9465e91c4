"""Reads the history of a memory folder: its revisions and what they held.

Reading needs no lock: revisions never change. If a purge removes what is being read, the reading starts
again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from sevenfold.core.errors import Mistake, StorageFailure
from sevenfold.memory.history.objects import (
    ObjectStore,
    compare_trees,
    decode_path,
    encode_path,
    find_in_tree,
    iterate_files,
    make_unified_diff,
)
from sevenfold.memory.history.revisions import (
    SHORT,
    Revision,
    RevisionChange,
    StoredCommit,
    classify_change,
)

P = ParamSpec("P")
Result = TypeVar("Result")
LAST: Final = "last"
_AGAIN: Final = 5
_BACK: Final = re.compile(r"(?:HEAD|last|@)(?:~(\d*))?", re.IGNORECASE)
_DIGITS: Final = re.compile(r"[0-9a-f]{4,40}", re.IGNORECASE)


def _steady(
    read: Callable[Concatenate[HistoryReader, P], Result],
) -> Callable[Concatenate[HistoryReader, P], Result]:
    """Start a reading again if a purge removed what it was reading."""

    @wraps(read)
    def again(self: HistoryReader, /, *args: P.args, **named: P.kwargs) -> Result:
        for _ in range(_AGAIN):
            before = self._objects.head()
            try:
                return read(self, *args, **named)
            except StorageFailure:
                if self._objects.head() == before:
                    raise
        return read(self, *args, **named)

    return again


class HistoryReader:
    """The revisions of one folder, for reading."""

    def __init__(self, repository: Path, *, sync: bool = False) -> None:
        self.path = repository
        self._objects = ObjectStore(repository, sync=sync)

    @_steady
    def log(self, file: str | None = None, limit: int = 50) -> list[Revision]:
        """The newest revisions first; with `file` those that touched it (a rename: removed, created)."""
        out: list[Revision] = []
        for id, commit in self._walk():
            if len(out) >= limit:
                break
            if file is None or self._touches(commit, file):
                out.append(commit.revision(id, self._files(commit)))
        return out

    @_steady
    def at(self, revision: str) -> dict[str, bytes]:
        """The whole folder as it was right after a revision."""
        found = iterate_files(self._objects, self._resolve(revision)[1].tree)
        return {decode_path(path): self._objects.blob(id) for path, id in found}

    @_steady
    def file_at(self, revision: str, file: str) -> bytes | None:
        """One file as it was right after a revision; None when it was not there."""
        return self._content(self._resolve(revision)[1].tree, encode_path(file))

    @_steady
    def diff(self, older: str | None, newer: str = LAST, file: str | None = None) -> str:
        """The changes between two revisions as a unified diff; `older=None` is before the first."""
        old = self._resolve(older)[1].tree if older is not None else None
        return self._compared(old, self._resolve(newer)[1].tree, file)

    @_steady
    def changes(self, revision: str = LAST, file: str | None = None) -> str:
        """The changes of one revision as a unified diff."""
        commit = self._resolve(revision)[1]
        return self._compared(self._before(commit), commit.tree, file)

    @_steady
    def find(self, revision: str) -> Revision:
        """A revision by its name."""
        id, commit = self._resolve(revision)
        return commit.revision(id, self._files(commit))

    def check(self) -> list[str]:
        """Read the whole history; a sentence for each problem."""
        objects = ObjectStore(self.path)
        problems: list[str] = []
        try:
            id = objects.head()
            while id is not None:
                commit = objects.commit(id)
                for _, blob in iterate_files(objects, commit.tree):
                    try:
                        objects.blob(blob)
                    except StorageFailure as error:
                        problems.append(str(error))
                id = commit.parent
        except StorageFailure as error:
            problems.append(str(error))
        return list(dict.fromkeys(problems))

    # --- finding --------------------------------------------------------------------------------------

    def _last(self) -> tuple[bytes, StoredCommit] | None:
        id = self._objects.head()
        return (id, self._objects.commit(id)) if id else None

    def _walk(self) -> Iterator[tuple[bytes, StoredCommit]]:
        id = self._objects.head()
        while id is not None:
            commit = self._objects.commit(id)
            yield id, commit
            id = commit.parent

    def _resolve(self, text: str) -> tuple[bytes, StoredCommit]:
        if back := _BACK.fullmatch(text.strip()):
            wanted = int(back[1] or "1") if back[1] is not None else 0
            count = 0
            for count, found in enumerate(self._walk(), 1):
                if count == wanted + 1:
                    return found
            raise Mistake(
                f"there is no revision {text!r}: the history has {count}; see the list of revisions"
            )
        if not _DIGITS.fullmatch(text.strip()):
            raise Mistake(
                f"{text!r} is no revision: give the beginning of an id (four digits or more), "
                "'last', or 'HEAD~2' for two before the last"
            )
        return self._by_prefix(text.strip().lower())

    def _by_prefix(self, text: str) -> tuple[bytes, StoredCommit]:
        found = [(id, commit) for id, commit in self._walk() if id.hex().startswith(text)]
        if not found:
            raise Mistake(f"there is no revision {text!r}: see the list of revisions for their ids")
        if len(found) > 1:
            which = ", ".join(id.hex()[:SHORT] for id, _ in found[:3])
            raise Mistake(f"{text!r} is the beginning of several revisions ({which}): give more digits")
        return found[0]

    def _before(self, commit: StoredCommit) -> bytes | None:
        return self._objects.commit(commit.parent).tree if commit.parent else None

    def _content(self, tree: bytes | None, path: bytes) -> bytes | None:
        id = find_in_tree(self._objects, tree, path) if tree else None
        return self._objects.blob(id) if id else None

    def _touches(self, commit: StoredCommit, file: str) -> bool:
        if commit.files is not None:
            return any(change.file == file for change in commit.files)
        path, before = encode_path(file), self._before(commit)
        was = find_in_tree(self._objects, before, path) if before else None
        return was != find_in_tree(self._objects, commit.tree, path)

    def _files(self, commit: StoredCommit) -> tuple[RevisionChange, ...]:
        if commit.files is not None:
            return commit.files
        changed = compare_trees(self._objects, self._before(commit), commit.tree)
        return tuple(
            RevisionChange(decode_path(path), classify_change(was, now)) for path, was, now in changed
        )

    def _compared(self, old: bytes | None, new: bytes, file: str | None) -> str:
        if file is not None:
            path = encode_path(file)
            return make_unified_diff(file, self._content(old, path), self._content(new, path))
        blob = self._objects.blob
        return "".join(
            make_unified_diff(decode_path(path), blob(was) if was else None, blob(now) if now else None)
            for path, was, now in compare_trees(self._objects, old, new)
        )
