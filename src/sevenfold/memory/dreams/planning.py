"""Works out what a commit will write: all checks in their order, before the first byte changes.

What others wrote meanwhile comes first, then the guard, then the loss report, then links and the index.
A check that says no drops the dream's change of that file; what was moved there is then put back by the
loss report. Only an index that cannot be made to fit refuses the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache

import msgspec

from sevenfold.errors import Refused, StorageFailure
from sevenfold.memory.dreams.draft import Altered, Draft, Moved, Outcome, changeable
from sevenfold.memory.dreams.facts import Stated, same_words, stated
from sevenfold.memory.dreams.keeping import (
    archive_stale,
    drop_what_came_back,
    keep_what_is_not_accounted_for,
    merged_files,
    superseded,
)
from sevenfold.memory.dreams.linking import mend_links
from sevenfold.memory.dreams.losses import Explanations, said_in
from sevenfold.memory.dreams.merging import Conflict, Files, joined
from sevenfold.memory.dreams.pointing import index_after, joined_index, keep_lines
from sevenfold.memory.dreams.shelf import Shelf
from sevenfold.memory.folder.desk import RECORDED, Desk
from sevenfold.memory.folder.ledger import digest
from sevenfold.memory.folder.listing import is_topic
from sevenfold.memory.folder.naming import INDEX_NAME
from sevenfold.memory.folder.reaching import Overtaken
from sevenfold.memory.indexing import ARCHIVE
from sevenfold.memory.revisions import Author


class Wanted(msgspec.Struct, frozen=True):
    """What a dream hands in."""

    before: dict[str, bytes]
    dreamt: dict[str, bytes]
    author: Author
    explained: Explanations
    sessions: frozenset[str] = frozenset()
    """The sessions that may be named as evidence."""
    times: dict[str, int] = {}
    """Times that the dream gave to files itself."""


class Plan(msgspec.Struct, frozen=True):
    """What will be written, in this order; None: the file goes."""

    old: dict[str, bytes | None]
    new: dict[str, bytes | None]
    outcome: Outcome
    times: dict[str, int] = {}
    """When files that say nothing new were written: a dream makes no memory younger."""


def planned(desk: Desk, wanted: Wanted, *, keep_orders: bool = True) -> Plan:
    """What is to be done with this dream in the folder as it is now.

    With `keep_orders` a text that the guard holds back is put into the quarantine.
    """
    draft = _drafted(desk, wanted)
    _guard(desk, draft, wanted, keep_orders)
    gone = _taken_out(wanted.before, draft)
    drop_what_came_back(draft, gone)
    archive_stale(draft)
    index = joined_index(draft, wanted.before.get(INDEX_NAME), wanted.dreamt.get(INDEX_NAME))
    index = keep_lines(draft, _harmless(desk, draft, wanted, index))
    keep_what_is_not_accounted_for(draft)
    merged = merged_files(draft)
    names = {file: row.name for file, row in desk.ledger.rows.items() if is_topic(file)}
    mend_links(draft, names, dict(merged))
    plan = _plan(desk, draft, index_after(desk, draft, index), merged)
    return msgspec.structs.replace(plan, times=_times(desk, draft, plan, wanted))


def _drafted(desk: Desk, wanted: Wanted) -> Draft:
    now = dict(_as_it_is(desk, wanted))
    taken = desk.listing.taken
    found = joined(wanted.before, wanted.dreamt, now, taken)
    rows = desk.ledger.rows
    draft = Draft(
        now=now,
        changes=found.changes,
        explained=wanted.explained,
        known=frozenset({*wanted.before, *rows, *wanted.sessions}),
        others=cache(lambda: Shelf(_untouched(desk, draft))),
        conflicts=list(found.conflicts),
    )
    for file in list(draft.changes):
        if not changeable(file):
            draft.drop(file, "a dream changes neither daily logs nor what belongs to the team")
        elif file in rows and rows[file].held:
            draft.drop(file, f"it is left alone: {rows[file].held}")
    draft.touched = frozenset(draft.changes)
    return draft


def _as_it_is(desk: Desk, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
    """The files that the dream knew or wrote, as they are in the folder."""
    for file in {*wanted.before, *wanted.dreamt}:
        row = desk.ledger.rows.get(file)
        if row is None or row.held:
            continue
        old = wanted.before.get(file)
        if old is not None and row.digest == digest(old):
            yield file, old
            continue
        data, stamp = desk.at.read(file, RECORDED)
        if stamp != row.stamp:
            raise Overtaken
        yield file, data


def _untouched(desk: Desk, draft: Draft) -> Files:
    """Every memory that the dream does not change; read when something is looked for there."""
    found: dict[str, bytes] = {}
    for file in desk.ledger.rows:
        if not is_topic(file) or file in draft.touched:
            continue
        if file in draft.now:
            found[file] = draft.now[file]
            continue
        try:
            found[file] = desk.at.read(file, RECORDED)[0]
        except (StorageFailure, Refused):
            continue
    return found


def _taken_out(before: Files, draft: Draft) -> list[Stated]:
    """What others removed from the folder while the dream went on."""
    changed = [file for file in before if is_topic(file) and draft.now.get(file) != before[file]]
    if not changed:
        return []
    there = Shelf({file: data for file, data in draft.now.items() if is_topic(file)})
    others = draft.others()
    return [
        one for one in said_in(before, changed) if not (there.holder(one) or others.holder(one))
    ]


def _guard(desk: Desk, draft: Draft, wanted: Wanted, keep_orders: bool) -> None:
    """What the guard holds back is not written; what stood in the folder before is no finding."""
    lines: set[str] | None = None
    for file, data in list(draft.changes.items()):
        if data is None or desk.gate.check(data, wanted.author.kind).passed:
            continue
        lines = _lines(wanted.before, draft.now) if lines is None else lines
        fresh = [one for one in data.splitlines(keepends=True) if _plain(one) not in lines]
        verdict = desk.gate.check(b"".join(fresh), wanted.author.kind)
        if len(data) <= RECORDED and verdict.passed:
            continue
        why = verdict.explanation or "it is too large"
        if keep_orders:
            try:
                desk.gate.let_pass(file, data, b"", wanted.author)
            except Refused as error:
                why = str(error)
        draft.drop(file, why)


def _harmless(desk: Desk, draft: Draft, wanted: Wanted, index: str) -> str:
    """The index that the dream wrote, or the one that is there when the guard says no."""
    data, now = index.encode("utf-8", "surrogateescape"), draft.now.get(INDEX_NAME, b"")
    if data == now or desk.gate.check(data, wanted.author.kind).passed:
        return index
    lines = _lines(wanted.before, draft.now)
    fresh = [one for one in data.splitlines(keepends=True) if _plain(one) not in lines]
    verdict = desk.gate.check(b"".join(fresh), wanted.author.kind)
    if verdict.passed:
        return index
    draft.conflicts.append(Conflict(INDEX_NAME, verdict.explanation))
    return now.decode("utf-8", "surrogateescape")


def _lines(*all_files: Files) -> set[str]:
    return {
        _plain(one) for files in all_files for data in files.values() for one in data.splitlines()
    }


def _plain(line: bytes) -> str:
    return same_words(line.decode("utf-8", "replace"))


def _plan(
    desk: Desk, draft: Draft, index: bytes | None, merged: Collection[tuple[str, str]]
) -> Plan:
    changes = {file: data for file, data in draft.changes.items() if data != draft.now.get(file)}
    written = {file: data for file, data in sorted(changes.items()) if data is not None}
    new: dict[str, bytes | None] = dict(written)
    if index is not None:
        new[INDEX_NAME] = index
    new |= dict.fromkeys(sorted(changes.keys() - written.keys()))
    old = {file: draft.now.get(file) for file in new}
    topics = {file for file in desk.ledger.rows if is_topic(file)}
    after = {file for file in {*topics, *written} if new.get(file, b"") is not None}
    outcome = Outcome(
        files=tuple(_altered(file, old[file], data) for file, data in new.items()),
        merged=tuple(Moved(*pair) for pair in merged if not pair[1].startswith(ARCHIVE)),
        superseded=tuple(superseded(draft)),
        archived=tuple(Moved(*pair) for pair in merged if pair[1].startswith(ARCHIVE)),
        kept=tuple(draft.kept),
        conflicts=tuple(_once(draft.conflicts)),
        files_before=len(topics),
        files_after=len(after),
    )
    return Plan(old, new, outcome)


def _times(desk: Desk, draft: Draft, plan: Plan, wanted: Wanted) -> dict[str, int]:
    """Of the files that only say what was known, the time of the newest that said it."""
    before = Shelf({file: data for file, data in draft.now.items() if file in draft.touched})
    times: dict[str, int] = {}
    for file, data in plan.new.items():
        if data is None or file == INDEX_NAME:
            continue
        if file in wanted.times and wanted.dreamt.get(file) == data:
            times[file] = wanted.times[file]
            continue
        said = [msgspec.structs.replace(one, subject=frozenset()) for one in stated(data, file)]
        found = [before.holder(one) or draft.others().holder(one) for one in said]
        stamps = [desk.stamp(one) for one in {*found, file} if one is not None]
        known = [stamp.modified for stamp in stamps if stamp is not None]
        if known and None not in found:
            times[file] = max(known)
    return times


def _altered(file: str, old: bytes | None, new: bytes | None) -> Altered:
    if old is None:
        return Altered(file, "created")
    return Altered(file, "removed" if new is None else "changed")


def _once(conflicts: list[Conflict]) -> list[Conflict]:
    return list(dict.fromkeys(conflicts))
