"""Writes memories: the topic file, then the index, then a revision, all under one lock.

All refusals happen before the first byte is written. A process that dies in between leaves whole files
and an announcement; the next process with the lock brings index and history up to date. Dates and origin
are completed before each write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from sevenfold.core.clock import format_date
from sevenfold.core.errors import Mistake, Refused, StorageFailure
from sevenfold.memory.backend import HEAD, ConcurrentWrite, FileStamp, is_topic
from sevenfold.memory.dates.relative import make_dates_absolute
from sevenfold.memory.errors import Guarded
from sevenfold.memory.folder.folder import (
    A_SECRET,
    INDEXES,
    OWN,
    RECORDED,
    SETTLED,
    SHARED,
    Action,
    FileRow,
    FolderTransaction,
    LedgerLookup,
    PendingWrite,
    Saved,
    check_private,
    check_team,
    digest_bytes,
    find_part,
    make_file_row,
    read_file_clock,
    read_memory_name,
)
from sevenfold.memory.folder.names import (
    check_memory_name,
    choose_file,
    explain_bad_file,
    find_meant_file,
    find_named_file,
    find_suspicious_names,
    make_file_key,
)
from sevenfold.memory.guard.gate import make_size_verdict
from sevenfold.memory.guard.text import GuardFinding
from sevenfold.memory.history.revisions import FOUND, Author
from sevenfold.memory.index_update import plan_changed_indexes, plan_index_update
from sevenfold.memory.merge import merge_texts
from sevenfold.memory.similarity import digest_statement, extract_statement, find_similar, is_quote
from sevenfold.memory.text.words import split_words
from sevenfold.memory.topic_file import (
    TYPES,
    Origin,
    Topic,
    Type,
    change_topic,
    encode_new_topic,
    explain_not_text,
    read_topic,
)

_SHOWN: Final = 3


def make_origin(author: Author, at: float) -> Origin:
    """For a memory of which nothing more is known."""
    return Origin(author.session, (), format_date(at), author.kind)


def resolve_dates(text: str, at: float, kept: Sequence[str] = ()) -> str:
    """The text with calendar dates in all lines but these, and those that quote."""
    lines = frozenset(line for line in text.split("\n") if is_quote(line)) | set(kept)
    return make_dates_absolute(text, at, lines)


def finish_text(new: Topic, old: Topic | None, at: float, origin: Origin) -> bytes:
    """The bytes of a whole new text; `old` is what its file says now, `origin` that of a new memory."""
    if explain_not_text(new.data):
        return new.data
    body = resolve_dates(new.body, at, old.body.split("\n") if old else ())
    same = old is not None and new.description == old.description
    description = new.description if same else resolve_dates(new.description, at)
    if old is not None:
        origin = old.origin or new.origin or origin
    return change_topic(
        new,
        description=description if description != new.description else None,
        body=body if body != new.body else None,
        origin=origin if old is None or origin != new.origin else None,
    )


def describe_resolved_dates(before: str, after: str) -> str:
    """A sentence with the dates that were written out; empty if there are none."""
    old, new = before.split("\n"), after.split("\n")
    if before == after or len(old) != len(new):
        return ""
    lines = [line.strip() for was, line in zip(old, new, strict=True) if was != line]
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    told = "; ".join(line.rstrip(".") for line in lines[:_SHOWN])
    return f"Dates were written out: {told}{more}."


def add_memory(
    desk: FolderTransaction,
    author: Author,
    *,
    type: Type,
    name: str,
    description: str,
    body: str,
    origin: Origin | None,
    team: bool = False,
    new: bool = False,
) -> Saved:
    """A new memory, or a new text for the memory of that name; with `team` among those of the team.

    Unless it is `new`, the memory that it repeats or corrects gets the new text.
    """
    name = check_memory_name(name)
    if type not in TYPES:
        raise Mistake(f"{type!r} is no type of memory: use {', '.join(TYPES)}")
    if team:
        check_team(desk.ledger.folders)
    part = SHARED if team else OWN
    file = find_named_file(name, desk.list_named(name, part))
    old = None if file is None else load_for_update(desk, file)
    origin = origin or make_origin(author, desk.now)
    description, body = _dated(desk, description, body, old)
    if file is None or old is None:
        file = choose_file(name, desk.taken_keys, part.folder)
        data = encode_new_topic(
            file, name=name, description=description, type=type, body=body, origin=origin
        )
        if not new and (found := find_repeated_file(desk, read_topic(data, file))) is not None:
            return merge_into(desk, author, found, read_topic(data, file))
        return write_file(desk, author, file, data, "created", f"added {name}")
    same = change_topic(old, description=description, type=type, body=body) == old.data
    if same:
        return Saved(old.name, desk.folder / file, "", "updated")
    data = change_topic(old, description=description, type=type, body=body, origin=origin)
    return write_file(desk, author, file, data, "updated", f"updated {name}")


def find_repeated_file(desk: FolderTransaction, new: Topic) -> str | None:
    """The file of the memory that is about the same, so that it gets the new text; None: there is none."""
    part = find_part(new.file)
    files = {
        *desk.list_named(new.name, part, exact=False),
        *desk.lookup.list_stating(digest_statement(new)),
    }
    known: list[Topic] = []
    for file in sorted(file for file in files if part.holds(file)):
        with contextlib.suppress(StorageFailure, Refused):  # one that cannot be read is not compared
            known.append(load_for_update(desk, file))
    like = find_similar(new, known) if known else None
    return like.topic.file if like is not None and (like.same or like.known) else None


def merge_into(desk: FolderTransaction, author: Author, file: str, new: Topic) -> Saved:
    """Let a new memory take the place of one that is about the same; that one's name stays."""
    old = load_for_update(desk, file)
    same = change_topic(old, description=new.description, type=new.type, body=new.body) == old.data
    if same or split_words(extract_statement(old)) == split_words(extract_statement(new)):
        return Saved(old.name, desk.folder / file, "", "merged")
    data = change_topic(old, description=new.description, type=new.type, body=new.body, origin=new.origin)
    return write_file(desk, author, file, data, "merged", f"merged {new.name} into {old.name}")


def _dated(desk: FolderTransaction, description: str, body: str, old: Topic | None) -> tuple[str, str]:
    """Both with calendar dates, where they are new; what was changed is said."""
    said = description
    if old is None or description != old.description:
        said = resolve_dates(description, desk.now)
    text = resolve_dates(body, desk.now, old.body.split("\n") if old else ())
    if told := describe_resolved_dates(f"{description}\n{body}", f"{said}\n{text}"):
        desk.say(told)
    return said, text


def edit_memory(
    desk: FolderTransaction,
    author: Author,
    asked: str,
    *,
    description: str | None,
    body: str | None,
    type: Type | None,
) -> Saved:
    """Change what is given of one memory."""
    if type is not None and type not in TYPES:
        raise Mistake(f"{type!r} is no type of memory: use {', '.join(TYPES)}")
    file = find_meant_file(asked, desk.names)
    old = load_for_update(desk, file)
    said, text = _dated(desk, description or "", body or "", old)
    data = change_topic(
        old,
        description=None if description is None else said,
        body=None if body is None else text,
        type=type,
    )
    if data == old.data:
        return Saved(old.name, desk.folder / file, "", "updated")
    saved = write_file(desk, author, file, data, "updated", f"edited {old.name}")
    report_contradiction(desk, read_topic(data, file))
    return saved


def report_contradiction(desk: FolderTransaction, topic: Topic) -> None:
    """Tell the user if the text of a memory contradicts its description."""
    from sevenfold.memory.consolidation.contradictions import find_contradiction

    if (clash := find_contradiction(topic)) is not None:
        desk.say(
            f"{topic.file}: its text says {clash.text!r}, and its description says "
            f"{clash.description!r}. Recall judges by the description: correct it too "
            "(sevenfold memory edit --description)."
        )


def remove_memory(desk: FolderTransaction, author: Author, asked: str) -> Saved:
    """Remove a memory; what it said stays in the history."""
    file = find_meant_file(asked, desk.names)
    row = desk.ledger.rows[file]
    if row.held and row.held != A_SECRET:
        raise Refused(
            f"{desk.folder / file} is not in the history, so that its removal could not be undone "
            f"({row.held}); delete the file yourself"
        )
    revision = apply_changes(desk, {file: None}, author, f"removed {row.name}")
    return Saved(row.name, desk.folder / file, revision, "removed")


def load_for_update(desk: FolderTransaction, file: str) -> Topic:
    """A memory to change: the whole of it, and as it was when this work began."""
    data, stamp = desk.at.read(file, HEAD + 1)
    if stamp != desk.stamp(file):
        raise ConcurrentWrite
    if len(data) > HEAD:
        raise Guarded(make_size_verdict(stamp.size))
    return read_topic(data, file)


def write_file(
    desk: FolderTransaction, author: Author, file: str, data: bytes, action: Action, summary: str
) -> Saved:
    """Write one memory that the guard lets pass."""
    check_private(data, file)
    checked = desk.gate.let_pass(file, data, _bytes(desk, file) or b"", author)
    revision = apply_changes(desk, {file: checked.data}, author, summary)
    return Saved(read_topic(data, file).name, desk.folder / file, revision, action, checked.said)


def apply_changes(
    desk: FolderTransaction,
    changes: Mapping[str, bytes | None],
    author: Author,
    summary: str,
    *,
    times: Mapping[str, float] = {},
) -> str:
    """Make these changes and what they mean for the index, as one revision.

    `times`: when the files were written that are not from now.
    """
    old = {file: _bytes(desk, file) for file in changes if _can_be_put_back(desk, file)}
    indexes = plan_changed_indexes(desk, changes, old)
    topics = {file: data for file, data in changes.items() if file not in INDEXES}
    digests = {
        file: "" if data is None else digest_bytes(data) for file, data in {**topics, **indexes}.items()
    }
    desk.ledgers.announce(PendingWrite(desk.ledger.head, author, summary, digests))
    try:
        for file, data in topics.items():
            _put(desk, file, data, times.get(file))
        indexes = {
            file: last
            for file, data in indexes.items()
            if (last := _index_written(desk, changes, old, file, data)) is not None
        }
    except StorageFailure:
        _put_back(desk, old)
        raise
    files = dict(topics)
    files |= {file: data for file, data in indexes.items() if not desk.ledger.rows[file].held}
    revision = desk.record(files, author, summary)
    desk.settle()
    return revision


def _put(desk: FolderTransaction, file: str, data: bytes | None, modified: float | None = None) -> None:
    if data is None:
        desk.remove(file)
    else:
        desk.write(file, data, modified=modified)


def _can_be_put_back(desk: FolderTransaction, file: str) -> bool:
    stamp = desk.stamp(file)
    return file not in INDEXES and (stamp is None or stamp.size <= RECORDED)


def _bytes(desk: FolderTransaction, file: str) -> bytes | None:
    if desk.stamp(file) is None:
        return None
    data, stamp = desk.at.read(file, RECORDED)
    if stamp != desk.stamp(file):
        raise ConcurrentWrite
    return data


def _put_back(desk: FolderTransaction, old: Mapping[str, bytes | None]) -> None:
    """The disk said no half way: a memory is not left without its line. When even that fails, the
    next one to take the lock brings the index up to date."""
    for file, data in old.items():
        with contextlib.suppress(StorageFailure, Refused, ConcurrentWrite):
            if _bytes(desk, file) != data:
                _put(desk, file, data)


def _index_written(
    desk: FolderTransaction,
    changes: Mapping[str, bytes | None],
    old: Mapping[str, bytes | None],
    file: str,
    index: bytes | None,
) -> bytes | None:
    """Second step: write the index, merged with lines that another program wrote meanwhile."""
    while index is not None:
        try:
            row = desk.ledger.rows.get(file)
            desk.write(file, index, held=desk.holding(file, index))
        except ConcurrentWrite:
            stamp = desk.at.stamp(file)
            desk.know(file, FileRow(stamp, "", "", row.held if row else "") if stamp else None)
            index = plan_changed_indexes(desk, changes, old).get(file)
        else:
            return index
    return None


def release_memory(
    desk: FolderTransaction, author: Author, file: str, data: bytes, part: bytes = b""
) -> Saved:
    """Make a memory of what the user lets out of the quarantine; one that is there is replaced.

    `part`: what was saved of it. What the file says beside that stays, if both can be merged.
    """
    if part and file in desk.ledger.rows:
        data = merge_texts(part, _bytes(desk, file) or b"", data) or data
    desk.gate.refuse_secrets(data)
    topic = read_topic(data, file)
    there = file in desk.ledger.rows
    if not there and (explain_bad_file(file) or make_file_key(file) in desk.taken_keys):
        file = choose_file(topic.name, desk.taken_keys, find_part(file).folder)
    check_private(data, file)
    revision = apply_changes(desk, {file: data}, author, f"released {topic.name} from quarantine")
    return Saved(topic.name, desk.folder / file, revision, "updated" if there else "created")


class _FileDifference(msgspec.Struct, frozen=True):
    """One file that differs from the ledger."""

    action: Action
    name: str
    data: bytes | None
    digest: str = ""
    held: bool = False


_Part: TypeAlias = tuple[Author, str, dict[str, _FileDifference], float]


def is_up_to_date(desk: FolderTransaction) -> bool:
    """True if the ledger can be relied on without a look at all files."""
    return desk.is_unchanged() and desk.past.head(desk.now) == desk.ledger.head


def record_external_changes(
    desk: FolderTransaction, author: Author, file: str = "", *, tidy: bool = True
) -> list[Saved]:
    """Record the changes, update the index, and return the changed memories.

    With `file` only that one is the author's, and only it is returned: what else is found was written by
    others. Without `tidy` the index stays as it is.
    """
    desk.look()
    desk.at.sweep(desk.listing.unfinished)
    anew = _compare_with_history(desk)
    found = _differences(desk)
    if not found and not anew:
        desk.settle()
        return []
    parts = _by_writer(found, desk.ledgers.announced(desk.ledger.head), author, file)
    created = [file for file, one in found.items() if one.action == "created"]
    planned = plan_index_update(desk, created, _retold(desk, found)) if tidy else {}
    for index, data in planned.items():
        held = desk.holding(index, data)
        desk.write(index, data, held=held)
        ours = _FileDifference("updated", "", data, held=bool(held))
        if index in found or not parts:  # a change of the index by the user is a revision of its own
            parts.append((FOUND, "brought the index up to date", {index: ours}, 0.0))
        else:
            parts[-1][2][index] = ours
    saved = [one for part in parts for one in _recorded(desk, part)]
    desk.settle()
    return [one for one in saved if not file or one.path == desk.folder / file]


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
    author, summary, files, at = part
    kept = {file: one.data for file, one in files.items() if not one.held}
    revision = desk.record(kept, author, summary, at=at) if kept else ""
    for file, one in files.items():
        if is_topic(file):
            known = "" if one.held else revision
            yield Saved(one.name, desk.folder / file, known, one.action)


def _by_writer(
    found: dict[str, _FileDifference], pending: PendingWrite | None, author: Author, file: str
) -> list[_Part]:
    """Changes that a run of ours announced are recorded in its name, what else is found in nobody's.

    With `file` only that one is the author's.
    """
    announced = pending.digests if pending else {}
    done = {file: one for file, one in found.items() if announced.get(file) == one.digest}
    rest = {file: one for file, one in found.items() if file not in done}
    parts = list[_Part]()
    if pending and done:
        parts.append((pending.author, pending.summary or _told(done), done, pending.at))
    mine = {file: rest.pop(file)} if file in rest else {}
    if rest:
        parts.append((author if not file else FOUND, _told(rest), rest, 0.0))
    if mine:
        parts.append((author, _told(mine), mine, 0.0))
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
    rows = {file: FileRow(None, digest_bytes(data)) for file, data in desk.past.files(head).items()}
    desk.changed |= desk.ledger.rows.keys() | rows.keys()
    desk.ledger.rows, desk.lookup, desk.dirty = rows, LedgerLookup(rows), True
    return True


def _differences(desk: FolderTransaction) -> dict[str, _FileDifference]:
    """All files that differ from the ledger, which is updated."""
    found = dict[str, _FileDifference]()
    rows, now = desk.ledger.rows, read_file_clock()
    fresh = [file for file in desk.listing.files if file not in rows]
    names = set(find_suspicious_names(fresh, lambda text: bool(_find_in_name(desk, text))))
    for file, stamp in desk.listing.files.items():
        row = rows.get(file)
        if row is not None and row.stamp == stamp and abs(now - stamp.changed) > SETTLED:
            continue
        if (one := _looked_at(desk, file, stamp, row, file in names)) is not None:
            found[file] = one
    for file in rows.keys() - desk.listing.files.keys():
        found[file] = _FileDifference("removed", rows[file].name or file, None)
        desk.know(file, None)
    return found


def _find_in_name(desk: FolderTransaction, name: str) -> tuple[GuardFinding, ...]:
    return desk.gate.check(name.encode("utf-8", "replace"), "other").findings


def _looked_at(
    desk: FolderTransaction, file: str, stamp: FileStamp, row: FileRow | None, odd_name: bool
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
            same = row.name and row.core
            new = FileRow(stamp, known, row.name, row.held, row.core)
            desk.know(file, new if same else make_file_row(file, data, stamp, row.held))
        return None
    findings = desk.gate.check(data, "other").findings
    if odd_name or row is not None:
        findings += _find_in_name(desk, file)
    return _changed(desk, file, stamp, row, data, findings)


def _changed(
    desk: FolderTransaction,
    file: str,
    stamp: FileStamp,
    row: FileRow | None,
    data: bytes,
    findings: Sequence[GuardFinding],
) -> _FileDifference:
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
    new = make_file_row(file, data, stamp, held)
    desk.know(file, new)
    action: Action = "created" if row is None else "updated"
    return _FileDifference(action, new.name or file, data, new.digest, bool(held))


def _hold(desk: FolderTransaction, file: str, stamp: FileStamp, row: FileRow | None, why: str) -> None:
    """Note a file that stays out of the history, and tell the user once."""
    if row is None or row.held != why:
        desk.say(f"{desk.folder / file} is left out of the history of memories: {why}")
    name = (row.name if row else "") or read_memory_name(file, b"")
    new = FileRow(stamp, row.digest if row else "", name, why)
    if row != new:
        desk.know(file, new)
