"""Takes a dream over into the memory folder, all of it or nothing, as one revision that can be undone.

    staged = stage(store)                     a fork works in staged.folder
    outcome = commit(store, staged, Author("dream", session), explained)
    store.undo(to=…)                          or `sevenfold dream undo`

Whoever dies on the way leaves a journal; whoever takes the lock next finishes the work.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import msgspec

from sevenfold.errors import Refused, StorageFailure
from sevenfold.memory.dreams.draft import Altered, Draft, Kept, Moved, Outcome, changeable
from sevenfold.memory.dreams.facts import Fact, stated
from sevenfold.memory.dreams.journal import Intent, Journal, pending
from sevenfold.memory.dreams.losses import (
    Account,
    Explained,
    Explanations,
    in_plain_words,
    lost_facts,
)
from sevenfold.memory.dreams.merging import Conflict
from sevenfold.memory.dreams.planning import Plan, Wanted, planned
from sevenfold.memory.dreams.recovering import finished, taken_back
from sevenfold.memory.dreams.staging import Staged, discard, stage
from sevenfold.memory.folder.desk import Desk
from sevenfold.memory.folder.ledger import Pending, digest
from sevenfold.memory.folder.naming import INDEX_NAME
from sevenfold.memory.folder.reaching import Overtaken
from sevenfold.memory.revisions import Author, one_line
from sevenfold.memory.store import MemoryStore

__all__ = [
    "Account",
    "Altered",
    "Conflict",
    "Draft",
    "Explained",
    "Fact",
    "Kept",
    "Moved",
    "Outcome",
    "Staged",
    "commit",
    "discard",
    "lost_facts",
    "preview",
    "stage",
]


def commit(
    store: MemoryStore,
    staged: Staged,
    author: Author,
    explained: Explanations | None = None,
    sessions: Collection[str] = (),
) -> Outcome:
    """Make the dream's changes part of the folder; the copy is discarded when that is done.

    `explained` says why statements or files were let go, `sessions` which may be named as evidence.
    `Refused` or `StorageFailure`: nothing has changed, and the copy is still there.
    """
    with _read_through(_wanted(staged, author, explained, sessions)) as wanted:
        outcome = store.changing(lambda desk: _committed(desk, store, wanted))
    discard(staged)
    return outcome


def preview(
    store: MemoryStore,
    staged: Staged,
    author: Author,
    explained: Explanations | None = None,
    sessions: Collection[str] = (),
) -> Outcome:
    """What `commit` would do now, with its diff; nothing is changed."""
    from sevenfold.memory.repository.diffing import unified

    with _read_through(_wanted(staged, author, explained, sessions)) as wanted:
        plan = store.changing(lambda desk: planned(desk, wanted, keep_orders=False))
    diff = "".join(unified(file, plan.old[file], data) for file, data in plan.new.items())
    return msgspec.structs.replace(plan.outcome, diff=diff)


def _wanted(
    staged: Staged,
    author: Author,
    explained: Explanations | None,
    sessions: Collection[str],
) -> Wanted:
    by = Author(author.kind, one_line(author.session), one_line(author.reason))
    return Wanted(
        before=staged.before(),
        dreamt=staged.dreamt(),
        author=by,
        explained=in_plain_words(explained or {}),
        sessions=frozenset(sessions),
        times=staged.times(),
    )


@contextmanager
def _read_through(wanted: Wanted) -> Iterator[Wanted]:
    """Do the long part before the folder is locked: nobody should wait for it."""
    try:
        for files in (wanted.before, wanted.dreamt):
            for file, data in files.items():
                if changeable(file):
                    stated(data, file)
        yield wanted
    finally:
        stated.cache_clear()


def _committed(desk: Desk, store: MemoryStore, wanted: Wanted) -> Outcome:
    if pending(store.state):  # an attempt of ours that could not be taken back at once
        finished(desk, store.state)
        raise Overtaken
    plan = planned(desk, wanted)
    if not plan.new:
        return plan.outcome
    summary = _told(plan.outcome)
    journal = Journal(store.state)
    intent = journal.begin(wanted.author, summary, desk.now, plan.old, plan.new)
    digests = {file: "" if data is None else digest(data) for file, data in plan.new.items()}
    desk.ledgers.announce(Pending(desk.ledger.head, wanted.author, summary, digests))
    _apply(desk, journal, intent, plan)
    row = desk.ledger.rows.get(INDEX_NAME)
    files = {file: data for file, data in plan.new.items() if file != INDEX_NAME}
    if INDEX_NAME in plan.new and not (row and row.held):
        files[INDEX_NAME] = plan.new[INDEX_NAME]
    revision = desk.record(files, wanted.author, summary)
    desk.settle()
    journal.end()
    return msgspec.structs.replace(plan.outcome, revision=revision)


def _apply(desk: Desk, journal: Journal, intent: Intent, plan: Plan) -> None:
    """Write what is new before anything goes; whatever is in the way takes everything back."""
    try:
        for file, data in plan.new.items():
            row = desk.ledger.rows.get(file)
            if data is None:
                desk.remove(file)
            else:
                desk.write(file, data, held=row.held if row else "")
                if file in plan.times:
                    _date(desk, file, plan.times[file])
    except (Overtaken, StorageFailure, Refused):
        taken_back(desk, journal, intent)
        raise


def _date(desk: Desk, file: str, modified: int) -> None:
    """Give a file that was just written the time of what it says."""
    row = desk.ledger.rows[file]
    folder, _, name = file.rpartition("/")
    try:
        with desk.at.folder(folder) as at:
            path = name if at is not None else os.fspath(desk.at.real / file)
            os.utime(path, ns=(modified, modified), dir_fd=at)
    except OSError:
        return  # then it is as young as the dream
    stamp = desk.at.stamp(file)
    if stamp is None or row.stamp is None or stamp.inode != row.stamp.inode:
        raise Overtaken
    desk.know(file, msgspec.structs.replace(row, stamp=stamp))


def _told(outcome: Outcome) -> str:
    """The summary of the revision, in words."""
    counts = {
        "merged": len(outcome.merged),
        "superseded": len(outcome.superseded),
        "archived": len(outcome.archived),
    }
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    parts.append(f"{len(outcome.files)} {'file' if len(outcome.files) == 1 else 'files'} written")
    return f"dreamt: {', '.join(parts)}"
