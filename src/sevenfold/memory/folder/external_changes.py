"""Records changes that other programs made in the memory folder: editors, tools, runs that were killed.

They become a revision in the name of their author before we write. Nothing is refused, since it is
there already; a file with a secret is reported and stays out of the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.memory.backend import FileStamp, is_topic
from sevenfold.memory.folder.folder import (
    A_SECRET,
    RECORDED,
    SETTLED,
    Action,
    FileRow,
    FolderTransaction,
    PendingWrite,
    Saved,
    digest_bytes,
    read_file_clock,
    read_memory_name,
)
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.index_update import plan_index_update


class _FileDifference(msgspec.Struct, frozen=True):
    """One file that differs from the ledger."""

    action: Action
    name: str
    data: bytes | None
    digest: str = ""
    held: bool = False


_Part: TypeAlias = tuple[Author, str, dict[str, _FileDifference]]


def record_external_changes(desk: FolderTransaction, author: Author) -> list[Saved]:
    """Record the changes, update the index, and return the changed memories."""
    desk.at.sweep(desk.listing.unfinished)
    anew = _compare_with_history(desk)
    found = _differences(desk)
    if not found and not anew:
        desk.settle()
        return []
    parts = _by_writer(found, desk.ledgers.announced(desk.ledger.head), author)
    created = [file for file, one in found.items() if one.action == "created"]
    for file, index in plan_index_update(desk, created, _retold(desk, found)).items():
        held = desk.holding(file, index)
        desk.write(file, index, held=held)
        ours = _FileDifference("updated", "", index, held=bool(held))
        if file in found or not parts:  # a change of the index by the user is a revision of its own
            parts.append((author, "brought the index up to date", {file: ours}))
        else:
            parts[-1][2][file] = ours
    saved = [one for part in parts for one in _recorded(desk, part)]
    desk.settle()
    return saved


def _retold(desk: FolderTransaction, found: dict[str, _FileDifference]) -> dict[str, tuple[bytes, bytes]]:
    """The old and the new text of memories that changed, as far as the history has the old."""
    told: dict[str, tuple[bytes, bytes]] = {}
    head = desk.ledger.head
    for file, one in found.items():
        if one.action != "updated" or one.data is None or one.held or not is_topic(file):
            continue
        if (before := desk.past.file(head, file)) is not None:
            told[file] = (before, one.data)
    return told


def _recorded(desk: FolderTransaction, part: _Part) -> Iterator[Saved]:
    author, summary, files = part
    kept = {file: one.data for file, one in files.items() if not one.held}
    revision = desk.record(kept, author, summary) if kept else ""
    for file, one in files.items():
        if is_topic(file):
            known = "" if one.held else revision
            yield Saved(one.name, desk.folder / file, known, one.action)


def _by_writer(
    found: dict[str, _FileDifference], pending: PendingWrite | None, author: Author
) -> list[_Part]:
    """Changes that a killed run of ours announced are recorded in its name."""
    rest = dict(found)
    parts = list[_Part]()
    announced = pending.digests if pending else {}
    done = {file: one for file, one in found.items() if announced.get(file) == one.digest}
    if pending and done:
        for file in done:
            del rest[file]
        parts.append((pending.author, pending.summary, done))
    if rest:
        parts.append((author, _told(rest), rest))
    return parts


def _told(files: dict[str, _FileDifference]) -> str:
    """The summary of a revision; it names the index only if no memory changed."""
    chosen = sorted(filter(is_topic, files)) or sorted(files)
    more = len(chosen) - 1
    rest = f" and {more:,} more" if more else ""
    return f"{files[chosen[0]].action} {files[chosen[0]].name}{rest}"


def _compare_with_history(desk: FolderTransaction) -> bool:
    """Rebuild the ledger from the history if it belongs to another revision; True if it did."""
    head = desk.past.head(desk.now)
    if desk.ledger.head == head:
        return False
    desk.past.mended = False
    desk.ledger.head = head
    desk.ledger.rows = {
        file: FileRow(None, digest_bytes(data)) for file, data in desk.past.files(head).items()
    }
    desk.dirty = True
    return True


def _differences(desk: FolderTransaction) -> dict[str, _FileDifference]:
    """All files that differ from the ledger, which is updated."""
    found = dict[str, _FileDifference]()
    rows, now = desk.ledger.rows, read_file_clock()
    for file, stamp in desk.listing.files.items():
        row = rows.get(file)
        if row is not None and row.stamp == stamp and abs(now - stamp.changed) > SETTLED:
            continue
        if (one := _looked_at(desk, file, stamp, row)) is not None:
            found[file] = one
    for file in rows.keys() - desk.listing.files.keys():
        found[file] = _FileDifference("removed", rows[file].name or file, None)
        desk.know(file, None)
    return found


def _looked_at(
    desk: FolderTransaction, file: str, stamp: FileStamp, row: FileRow | None
) -> _FileDifference | None:
    if stamp.size > RECORDED:
        _hold(desk, file, stamp, row, f"it has {stamp.size:,} bytes")
        return None
    try:
        data, stamp = desk.at.read(file, RECORDED)
    except (StorageFailure, Refused) as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None  # gone since it was listed: the next look says so
        _hold(desk, file, stamp, row, f"it cannot be read ({error})")
        return None
    known = digest_bytes(data)
    if row is not None and row.digest == known:
        if row.stamp != stamp:
            desk.know(file, FileRow(stamp, known, row.name or read_memory_name(file, data), row.held))
        return None
    return _changed(desk, file, stamp, row, data)


def _changed(
    desk: FolderTransaction, file: str, stamp: FileStamp, row: FileRow | None, data: bytes
) -> _FileDifference:
    findings = desk.gate.check(data, "other").findings
    findings += desk.gate.check(file.encode("utf-8", "replace"), "other").findings
    secret = any(each.kind == "secret" for each in findings)
    held = A_SECRET if secret else ""
    if findings:
        where = f"{desk.folder / file}, {findings[0].where}"
        desk.say(
            f"{where}: this looks like a secret ({findings[0].what}). Take it out: until then the file "
            "is left out of the history of memories."
            if secret
            else f"{where}: {findings[0].what}. Remove it, if you did not write it."
        )
    name, known = "" if secret else read_memory_name(file, data), digest_bytes(data)
    desk.know(file, FileRow(stamp, known, name, held))
    action: Action = "created" if row is None else "updated"
    return _FileDifference(action, name or file, data, known, bool(held))


def _hold(desk: FolderTransaction, file: str, stamp: FileStamp, row: FileRow | None, why: str) -> None:
    """Note a file that stays out of the history, and tell the user once."""
    if row is None or row.held != why:
        desk.say(f"{desk.folder / file} is left out of the history of memories: {why}")
    name = (row.name if row else "") or read_memory_name(file, b"")
    if row is None or row != FileRow(stamp, row.digest, name, why):
        desk.know(file, FileRow(stamp, row.digest if row else "", name, why))
