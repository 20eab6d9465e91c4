"""Undo of one memory or of the folder, and purge of a memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Final

from sevenfold.core.errors import Mistake, Refused
from sevenfold.memory.backend import RevisionLog, is_topic
from sevenfold.memory.errors import NoSuchMemory
from sevenfold.memory.folder.changes import apply_changes
from sevenfold.memory.folder.folder import (
    NONE,
    Action,
    FolderTransaction,
    Saved,
    check_private,
    digest_bytes,
    read_memory_name,
)
from sevenfold.memory.folder.names import (
    ENDING,
    explain_bad_file,
    explain_bad_name,
    find_meant_file,
    make_file_key,
    make_slug,
)
from sevenfold.memory.history.revisions import Author

_FAR: Final = 1000  # Revisions in which a memory that is gone is looked for
_NEAR: Final = 50  # Revisions of one memory in which the time of a text is looked for


def undo_changes(desk: FolderTransaction, author: Author, asked: str | None, to: str | None) -> list[Saved]:
    """Undo the last change of one memory or of the folder, or all changes since a revision.

    It is a revision of its own, so that undoing again brings back what was undone.
    """
    if asked is None and to is None and desk.ledger.purged == desk.ledger.head:
        raise Refused(
            "the last change was a purge, which cannot be undone; name a memory to undo its last change, "
            "or go back to a revision with --to"
        )
    file = None if asked is None else find_file_ever(desk, asked)
    changes = desk.past.ask(lambda history: history.plan_undo(file, to))
    if not changes:
        raise Mistake(
            f"there is nothing to undo: {asked or 'the folder'} is as it was at {to or 'the start'}"
        )
    for each, data in changes.items():
        desk.gate.refuse_secrets(data or b"")
        check_private(data, each)
    names = {each: _name(desk, each, data) for each, data in changes.items()}
    actions = {each: _action(desk, each, data) for each, data in changes.items()}
    what = f"undid the last change of {asked or 'the folder'}"
    if to is not None:
        what = f"brought back {asked or 'the folder'} as of {to}"
    revision = apply_changes(desk, changes, author, what, times=find_write_times(desk, changes))
    return [
        Saved(names[each], desk.folder / each, revision, actions[each])
        for each in changes
        if is_topic(each)
    ]


def find_write_times(desk: FolderTransaction, changes: Mapping[str, bytes | None]) -> dict[str, float]:
    """The times of the texts that come back, so that they keep their age."""
    found: dict[str, float] = {}
    for file, data in changes.items():
        if data is None or not is_topic(file):
            continue
        known = desk.ledger.times.get(digest_bytes(data))
        at = known / 1e9 if known is not None else desk.past.ask(partial(_written, file, data))
        if at is not None:
            found[file] = min(at, desk.now)
    return found


def _written(file: str, data: bytes, history: RevisionLog) -> float | None:
    """The time a text was first recorded, among the last revisions."""
    at = None
    for revision in history.log(file, limit=_NEAR):
        if history.file_at(revision.id, file) == data:
            at = revision.at
        elif at is not None:
            break
    return at


def purge_memory(desk: FolderTransaction, asked: str) -> Saved:
    """Take a memory out of the folder, the index and the history. It cannot be undone."""
    file = find_file_ever(desk, asked)
    name = _name(desk, file, None)
    if desk.past.head(desk.now) == NONE:
        desk.past.ask(lambda history: history.log(limit=1))  # says why nothing can be purged there
    if file in desk.ledger.rows:
        apply_changes(desk, {file: None}, Author("user"), "removed a memory")
    desk.past.ask(lambda history: history.purge(file, at=desk.now))
    desk.ledger.head = desk.ledger.purged = desk.past.head(desk.now)
    desk.ledger.times.clear()  # not even a digest stays
    desk.dirty = True
    desk.settle()
    desk.ledgers.withdraw()
    return Saved(name, desk.folder / file, "", "removed")


def find_file_ever(desk: FolderTransaction, asked: str) -> str:
    """The file of a memory that is there, or that was there once."""
    try:
        return find_meant_file(asked, desk.names)
    except NoSuchMemory:
        if (found := desk.past.ask(lambda history: find_file_in_history(history, asked))) is not None:
            return found
        raise


def find_file_in_history(history: RevisionLog, asked: str) -> str | None:
    """The file of a memory that is only in the history."""
    for file in (asked, asked + ENDING, "" if explain_bad_name(asked) else make_slug(asked) + ENDING):
        if not explain_bad_file(file) and history.log(file, limit=1):
            return file
    return _removed(history, asked)


def _removed(history: RevisionLog, asked: str) -> str | None:
    """A file that is gone and held a memory of this name."""
    newer = history.log(limit=_FAR)
    for revision, older in pairwise(newer):
        for change in revision.files:
            if change.action != "removed" or not is_topic(change.file):
                continue
            data = history.file_at(older.id, change.file)
            if data is not None and make_file_key(read_memory_name(change.file, data)) == make_file_key(
                asked
            ):
                return change.file
    return None


def _name(desk: FolderTransaction, file: str, data: bytes | None) -> str:
    if data is not None:
        return read_memory_name(file, data)
    row = desk.ledger.rows.get(file)
    return row.name if row else file


def _action(desk: FolderTransaction, file: str, data: bytes | None) -> Action:
    if data is None:
        return "removed"
    return "updated" if file in desk.ledger.rows else "created"
