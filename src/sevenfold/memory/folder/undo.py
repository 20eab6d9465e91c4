"""Undo and redo of one memory or of the folder, and purge of a memory.

An undo is a revision that takes another back, and a redo takes an undo back. What others wrote since stays:
only the lines that the revision changed go back, and a file that others changed in the same lines is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, takewhile
from typing import Final

import msgspec

from sevenfold.core.errors import Mistake, Refused
from sevenfold.memory.backend import RevisionLog, is_topic
from sevenfold.memory.errors import NoSuchMemory
from sevenfold.memory.folder.changes import apply_changes
from sevenfold.memory.folder.folder import (
    INDEXES,
    NONE,
    RECORDED,
    Action,
    FolderTransaction,
    PendingWrite,
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
from sevenfold.memory.history.revisions import REDID, UNDID, Author, Kind, Revision, TakenRevisions
from sevenfold.memory.index_update import plan_changed_indexes
from sevenfold.memory.merge import merge_lines

_ALL: Final = 1_000_000  # Revisions among which one to take back is looked for: all of them
_FAR: Final = 1000  # Revisions in which a memory that is gone is looked for
_NEAR: Final = 50  # Revisions of one memory in which the time of a text is looked for


def undo_changes(desk: FolderTransaction, author: Author, asked: str | None, to: str | None) -> list[Saved]:
    """Undo the last change of one memory or of the folder, or return to a revision.

    A change that was undone is passed over, so that the next undo goes one step further back. Of the
    folder only changes that were made through us are undone: what was found in it is undone by name.
    """
    _check_purge(desk, asked, to)
    file = None if asked is None else find_file_ever(desk, asked)
    if to is not None:
        return _return_to(desk, author, file, to)

    def is_wanted(one: Revision) -> bool:
        ordinary = one.takes_back is None or one.takes_back.redo
        return ordinary and (file is not None or one.author.kind != "other")

    nothing = f"there is nothing to undo{f' of {asked}' if asked else ''}"
    if asked is None:
        nothing += "; name a memory to undo what was written in the folder itself"
    step = _find_step(desk, is_wanted, file, nothing)
    saved, _ = take_back(desk, author, step, f"{UNDID}{_subject(step.revision)}")
    return saved


def redo_changes(desk: FolderTransaction, author: Author, asked: str | None) -> list[Saved]:
    """Bring back what the last undo took back, of one memory or of the folder.

    A change that the author of the undo made afterwards ends that, those of others do not.
    """
    _check_purge(desk, asked, None)
    file = None if asked is None else find_file_ever(desk, asked)
    since = set[str]()

    def is_wanted(one: Revision) -> bool:
        if one.takes_back is None:
            since.add(one.author.kind)
        undo = one.takes_back is not None and not one.takes_back.redo
        return undo and one.author.kind not in since

    step = _find_step(desk, is_wanted, file, f"there is nothing to redo{f' of {asked}' if asked else ''}")
    saved, _ = take_back(desk, author, step, f"{REDID}{_subject(step.revision)}", redo=True)
    return saved


def undo_newest(desk: FolderTransaction, author: Author, kind: Kind) -> list[LeftFile]:
    """Undo the last revision by one kind of author; returns the files that stay as they are."""
    nothing = f"there is no {kind} to undo: the history has none that is in force"
    step = _find_step(desk, lambda one: one.author.kind == kind, None, nothing, passes=False)
    return take_back(desk, author, step, f"{UNDID} the {kind} {step.revision.id}")[1]


def _check_purge(desk: FolderTransaction, asked: str | None, to: str | None) -> None:
    if asked is None and to is None and desk.ledger.purged == desk.ledger.head:
        raise Refused(
            "the last change was a purge, which cannot be undone; name a memory to undo its last change, "
            "or go back to a revision with --to"
        )


def _subject(revision: Revision) -> str:
    """The change that a revision made, for the summary of the one that takes it back."""
    for word in (UNDID, REDID):
        if revision.summary.startswith((f"{word} ", f"{word}: ")):
            return revision.summary.removeprefix(word)
    return f": {revision.summary}"


class LeftFile(msgspec.Struct, frozen=True):
    """A file that an undo leaves as it is, and why."""

    file: str
    why: str


class UndoStep(msgspec.Struct, frozen=True):
    """A revision that can be taken back, and what that changes; None: the file goes."""

    revision: Revision
    changes: dict[str, bytes | None]
    indexes: dict[str, bytes | None]  # The same for indexes, which nobody has changed since
    drafts: dict[str, bytes]  # Indexes that were changed since, without what the revision did
    conflicts: tuple[LeftFile, ...] = ()


def _find_step(
    desk: FolderTransaction,
    is_wanted: Callable[[Revision], bool],
    file: str | None,
    nothing: str,
    *,
    passes: bool = True,
) -> UndoStep:
    """The newest revision that is in force and can be taken back; `Mistake` with `nothing` if none is.

    One of which nothing is left to take back is passed over, unless `passes` is False.
    """
    history = _read_revisions(desk, file)
    for at, files, whole in find_files_in_force(history):
        revision = history[at]
        if (file is not None and file not in files) or not is_wanted(revision):
            continue
        older = history[at + 1] if at + 1 < len(history) else None
        if revision.found:
            raise Mistake(
                f"revision {revision.id} cannot be undone: the history begins with it, and what "
                "was before is not known; edit or remove the memory instead"
            )
        step = _plan_step(desk, revision, older, files if file is None else {file})
        if step.changes or step.indexes or step.drafts:
            return step
        if step.conflicts and whole:  # otherwise an undo has left these files before
            raise Mistake(
                f"{step.conflicts[0].file} was changed since by others, and this would take back what "
                "they did; name that memory to undo their change first"
            )
        if not passes:
            raise Mistake(f"nothing of revision {revision.id} is left to undo")
    raise Mistake(nothing)


def _read_revisions(desk: FolderTransaction, file: str | None) -> list[Revision]:
    if file is not None:  # a history that is kept elsewhere too has all of a file that is asked for
        desk.past.ask(lambda history: history.log(file, limit=1))
    return desk.past.ask(lambda history: history.log(limit=_ALL))


def find_files_in_force(history: Sequence[Revision]) -> Iterator[tuple[int, set[str], bool]]:
    """The places of the revisions that were not taken back, each with the files for which that is so.

    The last value is True if that is all of its files. `history` has the newest first. An index counts
    only where a revision changed nothing else.
    """
    takers: list[tuple[TakenRevisions, set[str], set[str]]] = []
    for at, one in enumerate(history):
        named = {change.file for change in one.files}
        counted = named.difference(INDEXES) or named
        gone = {file for file in counted if any(_covers(each, one.number, file) for each in takers)}
        if one.takes_back is not None:
            takers.append((one.takes_back, counted - gone, gone))
        if counted - gone:
            yield at, counted - gone, not gone


def _covers(taker: tuple[TakenRevisions, set[str], set[str]], number: int, file: str) -> bool:
    taken, in_force, gone = taker
    if not taken.first <= number <= taken.last:
        return False
    if taken.first == taken.last:
        return file in in_force
    return file not in gone and taken.file in ("", file)


def _plan_step(
    desk: FolderTransaction, revision: Revision, older: Revision | None, files: set[str]
) -> UndoStep:
    named = {change.file for change in revision.files}
    texts, indexes = sorted(files.difference(INDEXES)), sorted(named.intersection(INDEXES))
    made, was = (_read_at(desk, one, [*texts, *indexes]) for one in (revision, older))
    changes: dict[str, bytes | None] = {}
    conflicts: list[LeftFile] = []
    for file in texts:
        data, why = _take_back_text(made.get(file), was.get(file), now := _now(desk, file))
        conflicts += [LeftFile(file, why)] if why else []
        changes |= {file: data} if data != now else {}
    if texts and not changes:
        return UndoStep(revision, {}, {}, {}, tuple(conflicts))
    whole = not conflicts and named.difference(INDEXES) == set(texts)
    exact: dict[str, bytes | None] = {}
    drafts: dict[str, bytes] = {}
    for index in indexes:
        before, after, there = was.get(index), made.get(index), _now(desk, index)
        if whole and there == after:
            exact[index] = before
        elif (draft := take_back_lines(after or b"", before or b"", there or b"")) != (there or b""):
            drafts[index] = draft
    return UndoStep(revision, changes, exact, drafts, tuple(conflicts))


def _take_back_text(made: bytes | None, was: bytes | None, now: bytes | None) -> tuple[bytes | None, str]:
    """A file without what a revision made of it, or as it is, with the reason why it stays so."""
    if now in (made, was):
        return was, ""
    if now is None:
        return now, "it was removed since"
    if was is None or made is None:
        return now, "it was changed since" if was is None else "it was written anew since"
    merged = merge_lines(made, was, now)
    return (now, "the same lines were changed since") if merged is None else (merged, "")


def take_back_lines(made: bytes, was: bytes, now: bytes) -> bytes:
    """An index without the lines that a revision added, and with those that it removed.

    Lines that others have changed since stay as they are.
    """
    if (merged := merge_lines(made, was, now)) is not None:
        return merged
    old, new, lines = (text.splitlines(keepends=True) for text in (was, made, now))
    lines = [line for line in lines if line not in new or line in old]
    for at, line in enumerate(old):
        if line in new or line in lines:
            continue
        before = next((one for one in reversed(old[:at]) if one in lines), None)
        lines.insert(0 if before is None else lines.index(before) + 1, line)
    return b"".join(lines)


def _read_at(desk: FolderTransaction, revision: Revision | None, files: Iterable[str]) -> dict[str, bytes]:
    if revision is None:
        return {}
    id = revision.id
    found = desk.past.ask(lambda history: {file: history.file_at(id, file) for file in files})
    return {file: data for file, data in found.items() if data is not None}


def _now(desk: FolderTransaction, file: str) -> bytes | None:
    return None if desk.stamp(file) is None else desk.at.read(file, RECORDED)[0]


def take_back(
    desk: FolderTransaction, author: Author, step: UndoStep, summary: str, *, redo: bool = False
) -> tuple[list[Saved], list[LeftFile]]:
    """Write an undo or a redo as a revision; returns the memories, and the files that stay as they are."""
    for one in step.conflicts:
        desk.say(f"{one.file} stays as it is: {one.why}")
    number = step.revision.number
    return _restore(desk, author, step, summary, TakenRevisions(number, number, redo=redo)), list(
        step.conflicts
    )


def _return_to(desk: FolderTransaction, author: Author, file: str | None, to: str) -> list[Saved]:
    """Bring back the folder, or one file, as it was right after a revision, whoever changed it since."""
    target = desk.past.ask(lambda history: history.find(to))
    since = list(takewhile(lambda one: one.id != target.id, _read_revisions(desk, file)))
    named = {change.file for one in since for change in one.files}
    texts = sorted(named.difference(INDEXES) if file is None else named & {file})
    then = _read_at(desk, target, [*texts, *INDEXES])
    changes = {each: then.get(each) for each in texts if then.get(each) != _now(desk, each)}
    indexes = {
        index: then.get(index)
        for index in INDEXES
        if file is None and index in named and then.get(index) != _now(desk, index)
    }
    if not changes and not indexes:
        raise Mistake(f"there is nothing to undo: {file or 'the folder'} is as it was at {to}")
    taken = TakenRevisions(since[-1].number, since[0].number, file or "")
    summary = (
        f"{UNDID} everything since {target.id}" if file is None else f"{UNDID}: {file} is as of {target.id}"
    )
    return _restore(desk, author, UndoStep(target, changes, indexes, {}), summary, taken)


def _restore(
    desk: FolderTransaction, author: Author, step: UndoStep, summary: str, taken: TakenRevisions
) -> list[Saved]:
    """Write these texts and indexes, byte for byte, as one revision."""
    changes = step.changes
    for file, data in changes.items():
        desk.gate.refuse_secrets(data or b"")
        check_private(data, file)
    names = {file: _name(desk, file, data) for file, data in changes.items()}
    actions = {file: _action(desk, file, data) for file, data in changes.items()}
    times, old = find_write_times(desk, changes), {file: _now(desk, file) for file in changes}
    indexes: dict[str, bytes | None] = {**step.drafts}
    if changes:
        indexes |= plan_changed_indexes(desk, {**changes, **step.drafts}, old)
    indexes |= step.indexes
    digests = {
        file: "" if data is None else digest_bytes(data) for file, data in {**changes, **indexes}.items()
    }
    desk.ledgers.announce(PendingWrite(desk.ledger.head, author, summary, digests))
    for file, data in sorted(changes.items(), key=lambda one: one[1] is None):
        if data is None:
            desk.remove(file)
        else:
            desk.write(file, data, modified=times.get(file))
    for file, data in indexes.items():
        if data is None:
            desk.remove(file)
        else:
            desk.write(file, data, held=desk.holding(file, data))
    rows = desk.ledger.rows
    files = changes | {
        file: data for file, data in indexes.items() if file not in rows or not rows[file].held
    }
    revision = desk.record(files, author, summary, taken)
    desk.settle()
    return [
        Saved(names[file], desk.folder / file, revision, actions[file])
        for file in changes
        if is_topic(file)
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


def purge_file(desk: FolderTransaction, file: str) -> Saved:
    """Take a memory out of the folder, the index and the history. It cannot be undone."""
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
