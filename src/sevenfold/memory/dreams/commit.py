"""Takes a dream over into the memory folder, all of it or nothing, as one revision that can be undone.

A process that dies on the way leaves a journal; the next one to take the lock finishes the commit or takes
it back. Undoing a dream keeps what others wrote since, merged line by line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.memory.backend import ConcurrentWrite, FileStamp, MemoryBackend, OpenMemories, is_topic
from sevenfold.memory.dreams.journal import DreamJournal, JournalIntent, JournalStep, is_commit_pending
from sevenfold.memory.dreams.losses import Explanations, StatementIndex, add_plain_keys
from sevenfold.memory.dreams.merge import Files
from sevenfold.memory.dreams.plan import (
    CommitPlan,
    DreamInput,
    DreamOutcome,
    append_facts,
    is_changeable,
    plan_commit,
)
from sevenfold.memory.dreams.stage import DreamStage, discard_stage
from sevenfold.memory.dreams.statements import MemoryFact, read_facts
from sevenfold.memory.folder.folder import RECORDED, FolderTransaction, PendingWrite, digest_bytes
from sevenfold.memory.folder.names import INDEX_NAME
from sevenfold.memory.folder.undo import LeftFile, undo_newest
from sevenfold.memory.history.revisions import Author, to_safe_line
from sevenfold.memory.merge import merge_lines
from sevenfold.memory.store import MemoryStore

if TYPE_CHECKING:
    from sevenfold.memory.guard.user_words import SpokenWords

_RECENT = 20  # Revisions among which a dream is looked for that was recorded and not noted as done
_TRIES = 20


def finish_pending_dream(desk: FolderTransaction, backend: MemoryBackend) -> str:
    """Go on or go back, under the lock and before anything else is done; says which, in a sentence."""
    journal = DreamJournal(backend)
    intent = journal.read()
    if intent is not None:
        desk.now = intent.at
    if intent is None or _recorded(desk, intent):
        journal.end()
        return ""
    for _ in range(_TRIES):
        try:
            forward = not journal.turned_back and all(_known(desk.at, step) for step in intent.steps)
            said = _forward(desk, journal, intent) if forward else take_back_dream(desk, journal, intent)
        except ConcurrentWrite:  # somebody writes there right now: look again
            continue
        desk.ledgers.forget()  # what it knows is from before the crash
        return said
    return ""


def take_back_dream(desk: FolderTransaction, journal: DreamJournal, intent: JournalIntent) -> str:
    """Every file that still is what the dream wrote becomes what it was before."""
    journal.turn_back()
    whole = True
    for number in reversed(range(len(intent.steps))):
        try:
            _step_back(desk.at, journal, number, intent.steps[number])
        except (StorageFailure, Refused, ConcurrentWrite):
            whole = False
    if not whole or not _all_said(desk.at, journal, intent):
        # the journal stays: the next one tries again
        return (
            f"A dream could not be taken back completely in {desk.folder}: free some space, or make "
            "the folder writable; what it held is kept until then."
        )
    _record(desk, intent, "took back a dream that was cut off")
    journal.end()
    return "A dream that was cut off while it was saved has been taken back; nothing is changed."


def _step_back(at: OpenMemories, journal: DreamJournal, number: int, step: JournalStep) -> None:
    """One file as it was. Where somebody has written since, only what the dream did is taken out."""
    for tries in range(_TRIES):
        data, stamp = _now(at, step.file)
        if _is(data, step.old):
            return
        wanted = journal.content(number, "old", step.old)
        if not _is(data, step.new):
            if data is None or wanted is None or not step.new:
                return  # removed by somebody, or written where nothing was: it is theirs
            made = journal.content(number, "new", step.new)
            wanted = merge_lines(made or b"", wanted, data)
            if wanted is None or len(wanted) > RECORDED:
                return
        try:
            return _put(at, step.file, wanted, stamp)
        except ConcurrentWrite:
            if tries == _TRIES - 1:
                raise


def _all_said(at: OpenMemories, journal: DreamJournal, intent: JournalIntent) -> bool:
    """Add statements that the dream had moved elsewhere to the file they came from."""
    before: dict[str, bytes] = {}
    after: dict[str, bytes] = {}
    made: dict[str, bytes] = {}
    try:
        for number, step in enumerate(intent.steps):
            if not is_topic(step.file):
                continue
            data = _now(at, step.file)[0]
            after |= {step.file: data} if data is not None else {}
            for which, digest_, files in (("old", step.old, before), ("new", step.new, made)):
                if (kept := journal.content(number, which, digest_)) is not None:
                    files[step.file] = kept
        for file, facts in _moved_out(before, made, after).items():
            data, stamp = _now(at, file)
            at.write(file, append_facts(data or b"", facts, ""), stamp)
    except (StorageFailure, Refused):
        return False
    return True


def _moved_out(before: Files, made: Files, after: Files) -> dict[str, list[MemoryFact]]:
    """The statements that are nowhere now, and had left the file before another process wrote there."""
    there = StatementIndex(after, before)
    found: dict[str, list[MemoryFact]] = {}
    for file, data in before.items():
        if after.get(file) == data:
            continue
        left = StatementIndex({file: made[file]} if file in made else {})
        facts = [one.fact for one in read_facts(data, file) if not (there.holder(one) or left.holder(one))]
        found |= {file: facts} if facts else {}
    return found


def _forward(desk: FolderTransaction, journal: DreamJournal, intent: JournalIntent) -> str:
    try:
        new = [journal.content(at, "new", step.new) for at, step in enumerate(intent.steps)]
        for step, wanted in zip(intent.steps, new, strict=True):
            data, stamp = _now(desk.at, step.file)
            if not _is(data, step.new):
                _put(desk.at, step.file, wanted, stamp)
    except (StorageFailure, Refused):
        return take_back_dream(desk, journal, intent)
    _record(desk, intent, intent.summary)
    journal.end()
    return "A dream that was cut off while it was saved has been completed."


def _record(desk: FolderTransaction, intent: JournalIntent, summary: str) -> None:
    """In the history stands what is there now; nothing new where nothing changed."""
    files: dict[str, bytes | None] = {}
    for step in intent.steps:
        row = desk.ledger.rows.get(step.file)
        data, _ = _now(desk.at, step.file)
        ours = _is(data, step.old) or _is(data, step.new)
        if ours and not (row and row.held):
            files[step.file] = data
    desk.record(files, intent.author, summary)


def _recorded(desk: FolderTransaction, intent: JournalIntent) -> bool:
    """True if it had come as far as the history: then it was complete."""
    try:
        recent = desk.past.ask(lambda history: history.log(limit=_RECENT))
    except StorageFailure:
        return False
    same = (intent.author, intent.summary, intent.at)
    return any((one.author, one.summary, one.at) == same for one in recent)


def _known(at: OpenMemories, step: JournalStep) -> bool:
    try:
        data, _ = _now(at, step.file)
    except (StorageFailure, Refused):
        return False
    return _is(data, step.old) or _is(data, step.new)


def _is(data: bytes | None, expected: str) -> bool:
    return ("" if data is None else digest_bytes(data)) == expected


def _now(at: OpenMemories, file: str) -> tuple[bytes | None, FileStamp | None]:
    return (None, None) if at.stamp(file) is None else at.read(file, RECORDED + 1)


def _put(at: OpenMemories, file: str, data: bytes | None, stamp: FileStamp | None) -> None:
    if data is not None:
        at.write(file, data, stamp)
    elif stamp is not None:
        at.remove(file, stamp)


def commit_dream(
    store: MemoryStore,
    staged: DreamStage,
    author: Author,
    explained: Explanations | None = None,
    sessions: Collection[str] = (),
    said: Callable[[], SpokenWords] | None = None,
) -> DreamOutcome:
    """Make the dream's changes part of the folder; the copy is discarded when that is done.

    `explained` says why statements or files were let go, `sessions` which may be named as evidence, `said`
    what the user said in them.
    `Refused` or `StorageFailure`: nothing has changed, and the copy is still there.
    """
    with _read_through(_wanted(staged, author, explained, sessions, said)) as wanted:
        outcome = store.changing(lambda desk: _committed(desk, store, wanted))
    discard_stage(staged)
    return outcome


def preview_dream(
    store: MemoryStore,
    staged: DreamStage,
    author: Author,
    explained: Explanations | None = None,
    sessions: Collection[str] = (),
    said: Callable[[], SpokenWords] | None = None,
) -> DreamOutcome:
    """Plan what `commit_dream` would do now, with its diff; nothing is changed."""
    from sevenfold.memory.history.diff import make_unified_diff

    with _read_through(_wanted(staged, author, explained, sessions, said)) as wanted:
        plan = store.changing(lambda desk: plan_commit(desk, wanted, keep_orders=False))
    diff = "".join(make_unified_diff(file, plan.old[file], data) for file, data in plan.new.items())
    return msgspec.structs.replace(plan.outcome, diff=diff)


def _wanted(
    staged: DreamStage,
    author: Author,
    explained: Explanations | None,
    sessions: Collection[str],
    said: Callable[[], SpokenWords] | None,
) -> DreamInput:
    return DreamInput(
        before=staged.before(),
        dreamt=staged.dreamt(),
        author=Author(author.kind, to_safe_line(author.session), to_safe_line(author.reason)),
        explained=add_plain_keys(explained or {}),
        sessions=frozenset(sessions),
        times=staged.times(),
        said=said,
    )


@contextmanager
def _read_through(wanted: DreamInput) -> Iterator[DreamInput]:
    """Do the long part before the folder is locked: nobody should wait for it."""
    try:
        for files in (wanted.before, wanted.dreamt):
            for file, data in files.items():
                if is_changeable(file):
                    read_facts(data, file)
        yield wanted
    finally:
        read_facts.cache_clear()


def _committed(desk: FolderTransaction, store: MemoryStore, wanted: DreamInput) -> DreamOutcome:
    if is_commit_pending(store.backend):  # an attempt of ours that could not be taken back at once
        finish_pending_dream(desk, store.backend)
        raise ConcurrentWrite
    plan = plan_commit(desk, wanted)
    if not plan.new:
        return plan.outcome
    summary = _told(plan.outcome)
    journal = DreamJournal(store.backend)
    intent = journal.begin(wanted.author, summary, desk.now, plan.old, plan.new)
    digests = {file: "" if data is None else digest_bytes(data) for file, data in plan.new.items()}
    desk.ledgers.announce(PendingWrite(desk.ledger.head, wanted.author, summary, digests))
    _apply(desk, journal, intent, plan)
    row = desk.ledger.rows.get(INDEX_NAME)
    files = {file: data for file, data in plan.new.items() if file != INDEX_NAME}
    if INDEX_NAME in plan.new and not (row and row.held):
        files[INDEX_NAME] = plan.new[INDEX_NAME]
    revision = desk.record(files, wanted.author, summary)
    desk.settle()
    journal.end()
    return msgspec.structs.replace(plan.outcome, revision=revision)


def _apply(desk: FolderTransaction, journal: DreamJournal, intent: JournalIntent, plan: CommitPlan) -> None:
    """Write what is new before anything goes; whatever is in the way takes everything back."""
    try:
        for file, data in plan.new.items():
            if data is None:
                desk.remove(file)
            else:
                row = desk.ledger.rows.get(file)
                modified = plan.times[file] / 1e9 if file in plan.times else None
                desk.write(file, data, held=row.held if row else "", modified=modified)
    except (ConcurrentWrite, StorageFailure, Refused):
        take_back_dream(desk, journal, intent)
        raise


def _told(outcome: DreamOutcome) -> str:
    named = {"merged": outcome.merged, "superseded": outcome.superseded, "archived": outcome.archived}
    parts = [f"{len(ones)} {what}" for what, ones in named.items() if ones]
    parts.append(f"{len(outcome.files)} {'file' if len(outcome.files) == 1 else 'files'} written")
    return f"dreamt: {', '.join(parts)}"


def undo_dream(store: MemoryStore, author: Author | None = None) -> list[LeftFile]:
    """Take back the last dream that is in force, as a revision of its own, the index included.

    Returns the files that others have changed since in the same lines: they stay as they are.
    `Mistake` when there is no dream, or nothing of it is left.
    """
    by = author or store.author
    return store.changing(lambda desk: undo_newest(desk, by, "dream"))
