"""Undoes the last dream, and only the dream: what others wrote since stays, merged line by line."""

from __future__ import annotations

from typing import Final

from sevenfold.errors import Mistake
from sevenfold.memory.dreams.merging import Conflict, joined
from sevenfold.memory.folder.desk import RECORDED, Desk
from sevenfold.memory.folder.naming import INDEX_NAME
from sevenfold.memory.folder.undoing import times_of
from sevenfold.memory.folder.writing import applied
from sevenfold.memory.revisions import Author, Revision
from sevenfold.memory.store import MemoryStore

_FAR: Final = 1_000
"""Revisions among which the last dream is looked for."""


def undo_dream(store: MemoryStore, author: Author | None = None) -> list[Conflict]:
    """Bring back what was before the last dream, as a revision of its own.

    Returns the files that others have changed since in the same lines: they stay as they are.
    `Mistake` when there is no dream, or nothing of it is left.
    """
    revisions = store.history(limit=_FAR)
    at = next(
        (at for at, one in enumerate(revisions[: _FAR - 1]) if one.author.kind == "dream"), None
    )
    if at is None:
        raise Mistake("there is no dream to undo: the history of the memories has none")
    if at + 1 == len(revisions) < _FAR:
        raise Mistake(f"dream {revisions[at].id} cannot be undone: the history begins with it")
    by = author or store.author
    return store.changing(lambda desk: _undone(desk, by, revisions[at], revisions[at + 1]))


def _undone(desk: Desk, author: Author, dream: Revision, older: Revision) -> list[Conflict]:
    files = [change.file for change in dream.files if change.file != INDEX_NAME]
    was, made = ({file: data for file in files if (data := _at(desk, one, file)) is not None}
                 for one in (older, dream))  # fmt: skip
    now = {file: desk.at.read(file, RECORDED)[0] for file in files if desk.stamp(file) is not None}
    found = joined(made, was, now, ())
    for data in found.changes.values():
        desk.gate.refuse_secrets(data or b"")
    if not found.changes:
        raise Mistake(f"nothing of the dream is left to undo: {dream.id} was undone or overwritten")
    times = times_of(desk, found.changes)
    applied(desk, found.changes, author, f"undid the dream {dream.id}", strict=False, times=times)
    return list(found.conflicts)


def _at(desk: Desk, revision: Revision, file: str) -> bytes | None:
    return desk.past.ask(lambda history: history.file_at(revision.id, file))
