"""Going back: one memory or the whole folder as it was; and taking a memory out for good."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from sevenfold.errors import Mistake, Refused
from sevenfold.memory.errors import NoSuchMemory
from sevenfold.memory.folder.folder import (
    Action,
    Desk,
    Saved,
    check_private,
    digest,
    is_topic,
    name_in,
)
from sevenfold.memory.folder.names import ENDING, key, meant, slug, wrong_with_file, wrong_with_name
from sevenfold.memory.folder.record import NONE
from sevenfold.memory.folder.write import applied
from sevenfold.memory.history.revisions import Author

if TYPE_CHECKING:
    from sevenfold.memory.history.history import History

_FAR: Final = 1000
"""Revisions in which a memory that is gone is looked for."""
_NEAR: Final = 50
"""Revisions of one memory in which the time of a text is looked for."""


def undone(desk: Desk, author: Author, asked: str | None, to: str | None) -> list[Saved]:
    """Undo the last change of one memory or of the folder, or all changes since a revision.

    It is a revision of its own, so that undoing again brings back what was undone.
    """
    if asked is None and to is None and desk.ledger.purged == desk.ledger.head:
        raise Refused(
            "the last change was a purge, which cannot be undone; name a memory to undo its last change, "
            "or go back to a revision with --to"
        )
    file = None if asked is None else ever(desk, asked)
    changes = desk.past.ask(lambda history: history.undone(file, to))
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
    revision = applied(desk, changes, author, what, strict=False, times=times_of(desk, changes))
    return [
        Saved(names[each], desk.folder / each, revision, actions[each])
        for each in changes
        if is_topic(each)
    ]


def times_of(desk: Desk, changes: Mapping[str, bytes | None]) -> dict[str, float]:
    """When the texts were written that come back: they are as old as they were."""
    found: dict[str, float] = {}
    for file, data in changes.items():
        if data is None or not is_topic(file):
            continue
        known = desk.ledger.times.get(digest(data))
        at = known / 1e9 if known is not None else desk.past.ask(partial(_written, file, data))
        if at is not None:
            found[file] = min(at, desk.now)
    return found


def _written(file: str, data: bytes, history: History) -> float | None:
    """When a text was first recorded, as far back as is worth looking."""
    at = None
    for revision in history.log(file, limit=_NEAR):
        if history.file_at(revision.id, file) == data:
            at = revision.at
        elif at is not None:
            break
    return at


def purged(desk: Desk, asked: str) -> Saved:
    """Take a memory out of the folder, the index and the history. It cannot be undone."""
    file = ever(desk, asked)
    name = _name(desk, file, None)
    if desk.past.head(desk.now) == NONE:
        desk.past.ask(lambda history: history.log(limit=1))  # says why nothing can be purged there
    if file in desk.ledger.rows:
        applied(desk, {file: None}, Author("user"), "removed a memory")
    desk.past.ask(lambda history: history.purge(file, at=desk.now))
    desk.ledger.head = desk.ledger.purged = desk.past.head(desk.now)
    desk.ledger.times.clear()  # not even a digest stays
    desk.dirty = True
    desk.settle()
    desk.ledgers.withdraw()
    return Saved(name, desk.folder / file, "", "removed")


def ever(desk: Desk, asked: str) -> str:
    """The file of a memory that is there, or that was there once."""
    try:
        return meant(asked, desk.names)
    except NoSuchMemory:
        if (found := desk.past.ask(lambda history: once(history, asked))) is not None:
            return found
        raise


def once(history: History, asked: str) -> str | None:
    """The file of a memory that is only in the history."""
    for file in (asked, asked + ENDING, "" if wrong_with_name(asked) else slug(asked) + ENDING):
        if not wrong_with_file(file) and history.log(file, limit=1):
            return file
    return _removed(history, asked)


def _removed(history: History, asked: str) -> str | None:
    """A file that is gone and held a memory of this name."""
    newer = history.log(limit=_FAR)
    for revision, older in pairwise(newer):
        for change in revision.files:
            if change.action != "removed" or not is_topic(change.file):
                continue
            data = history.file_at(older.id, change.file)
            if data is not None and key(name_in(change.file, data)) == key(asked):
                return change.file
    return None


def _name(desk: Desk, file: str, data: bytes | None) -> str:
    if data is not None:
        return name_in(file, data)
    row = desk.ledger.rows.get(file)
    return row.name if row else file


def _action(desk: Desk, file: str, data: bytes | None) -> Action:
    if data is None:
        return "removed"
    return "updated" if file in desk.ledger.rows else "created"
