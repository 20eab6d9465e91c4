"""Writing memories: the topic file, then the index, then a revision, all under one lock.

Whatever is to be refused is refused before the first byte is written. A process that dies in between
leaves whole files and a note of what it was about; the next one to take the lock brings the index and
the history up to date.

The last touch on a memory before it is written, whoever writes it: its dates and where it is from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from sevenfold.clock import date_of
from sevenfold.errors import Mistake, Refused, StorageFailure
from sevenfold.memory.dates.relative import absolute
from sevenfold.memory.errors import Guarded
from sevenfold.memory.folder.files import HEAD, Overtaken
from sevenfold.memory.folder.folder import (
    A_SECRET,
    INDEXES,
    OWN,
    RECORDED,
    SHARED,
    Action,
    Desk,
    Pending,
    Row,
    Saved,
    check_private,
    check_team,
    digest,
    names_in,
    part_of,
)
from sevenfold.memory.folder.names import checked_name, file_for, key, meant, named, wrong_with_file
from sevenfold.memory.guard.gate import too_large
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.index_update import with_changes
from sevenfold.memory.similarity import is_quote, statement, words
from sevenfold.memory.topic_file import (
    TYPES,
    Origin,
    Topic,
    Type,
    changed,
    new_topic,
    not_text,
    read_topic,
)

_SHOWN: Final = 3


def origin_of(author: Author, at: float) -> Origin:
    """For a memory of which nothing more is known."""
    return Origin(author.session, (), date_of(at), author.kind)


def dated(text: str, at: float, kept: Sequence[str] = ()) -> str:
    """The text with calendar dates in all lines but these, and those that quote."""
    lines = frozenset(line for line in text.split("\n") if is_quote(line)) | set(kept)
    return absolute(text, at, lines)


def finished(new: Topic, old: Topic | None, at: float, origin: Origin) -> bytes:
    """The bytes of a whole new text; `old` is what its file says now, `origin` that of a new memory."""
    if not_text(new.data):
        return new.data
    body = dated(new.body, at, old.body.split("\n") if old else ())
    same = old is not None and new.description == old.description
    description = new.description if same else dated(new.description, at)
    if old is not None:
        origin = old.origin or new.origin or origin
    return changed(
        new,
        description=description if description != new.description else None,
        body=body if body != new.body else None,
        origin=origin if old is None or origin != new.origin else None,
    )


def written_out(before: str, after: str) -> str:
    """Which dates were written out, in a sentence; empty: none."""
    old, new = before.split("\n"), after.split("\n")
    if before == after or len(old) != len(new):
        return ""
    lines = [line.strip() for was, line in zip(old, new, strict=True) if was != line]
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    told = "; ".join(line.rstrip(".") for line in lines[:_SHOWN])
    return f"Dates were written out: {told}{more}."


Like: TypeAlias = Callable[[Topic], str | None]
"""The file of the memory that a new one is about the same as."""


def added(
    desk: Desk,
    author: Author,
    *,
    type: Type,
    name: str,
    description: str,
    body: str,
    origin: Origin | None,
    team: bool = False,
    like: Like | None = None,
) -> Saved:
    """A new memory, or a new text for the memory of that name; with `team` among those of the team.

    `like` finds the memory that a new one repeats or corrects: that one gets the new text.
    """
    name = checked_name(name)
    if type not in TYPES:
        raise Mistake(f"{type!r} is no type of memory: use {', '.join(TYPES)}")
    if team:
        check_team(desk.listing)
    part = SHARED if team else OWN
    file = named(name, names_in(part, desk.names))
    old = None if file is None else opened(desk, file)
    origin = origin or origin_of(author, desk.now)
    description, body = _dated(desk, description, body, old)
    if file is None or old is None:
        file = file_for(name, desk.listing.taken, part.folder)
        data = new_topic(
            file, name=name, description=description, type=type, body=body, origin=origin
        )
        if like and (found := like(read_topic(data, file))) is not None:
            return merged(desk, author, found, read_topic(data, file))
        return written(desk, author, file, data, "created", f"added {name}")
    same = changed(old, description=description, type=type, body=body) == old.data
    if same:
        return Saved(old.name, desk.folder / file, "", "updated")
    data = changed(old, description=description, type=type, body=body, origin=origin)
    return written(desk, author, file, data, "updated", f"updated {name}")


def merged(desk: Desk, author: Author, file: str, new: Topic) -> Saved:
    """Let a new memory take the place of one that is about the same; that one's name stays."""
    old = opened(desk, file)
    same = changed(old, description=new.description, type=new.type, body=new.body) == old.data
    if same or words(statement(old)) == words(statement(new)):
        return Saved(old.name, desk.folder / file, "", "merged")
    data = changed(
        old, description=new.description, type=new.type, body=new.body, origin=new.origin
    )
    return written(desk, author, file, data, "merged", f"merged {new.name} into {old.name}")


def _dated(desk: Desk, description: str, body: str, old: Topic | None) -> tuple[str, str]:
    """Both with calendar dates, where they are new; what was changed is said."""
    said = description
    if old is None or description != old.description:
        said = dated(description, desk.now)
    text = dated(body, desk.now, old.body.split("\n") if old else ())
    if told := written_out(f"{description}\n{body}", f"{said}\n{text}"):
        desk.say(told)
    return said, text


def edited(
    desk: Desk,
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
    file = meant(asked, desk.names)
    old = opened(desk, file)
    said, text = _dated(desk, description or "", body or "", old)
    data = changed(
        old,
        description=None if description is None else said,
        body=None if body is None else text,
        type=type,
    )
    if data == old.data:
        return Saved(old.name, desk.folder / file, "", "updated")
    return written(desk, author, file, data, "updated", f"edited {old.name}")


def removed(desk: Desk, author: Author, asked: str) -> Saved:
    """Remove a memory; what it said stays in the history."""
    file = meant(asked, desk.names)
    row = desk.ledger.rows[file]
    if row.held and row.held != A_SECRET:
        raise Refused(
            f"{desk.folder / file} is not in the history, so that its removal could not be undone "
            f"({row.held}); delete the file yourself"
        )
    revision = applied(desk, {file: None}, author, f"removed {row.name}")
    return Saved(row.name, desk.folder / file, revision, "removed")


def opened(desk: Desk, file: str) -> Topic:
    """A memory to change: the whole of it, and as it was when this work began."""
    data, stamp = desk.at.read(file, HEAD + 1)
    if stamp != desk.stamp(file):
        raise Overtaken
    if len(data) > HEAD:
        raise Guarded(too_large(stamp.size))
    return read_topic(data, file)


def written(
    desk: Desk, author: Author, file: str, data: bytes, action: Action, summary: str
) -> Saved:
    """Write one memory that the guard lets pass."""
    check_private(data, file)
    desk.gate.let_pass(file, data, _bytes(desk, file) or b"", author)
    revision = applied(desk, {file: data}, author, summary)
    return Saved(read_topic(data, file).name, desk.folder / file, revision, action)


def applied(
    desk: Desk,
    changes: Mapping[str, bytes | None],
    author: Author,
    summary: str,
    *,
    strict: bool = True,
    times: Mapping[str, float] = {},
) -> str:
    """Make these changes and what they mean for the index, as one revision.

    `times`: when the files were written that are not from now.
    """
    old = {file: _bytes(desk, file) for file in changes if _can_be_put_back(desk, file)}
    indexes = with_changes(desk, changes, old, strict=strict)
    topics = {file: data for file, data in changes.items() if file not in INDEXES}
    digests = {
        file: "" if data is None else digest(data) for file, data in {**topics, **indexes}.items()
    }
    desk.ledgers.announce(Pending(desk.ledger.head, author, summary, digests))
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


def _put(desk: Desk, file: str, data: bytes | None, modified: float | None = None) -> None:
    if data is None:
        desk.remove(file)
    else:
        desk.write(file, data, modified=modified)


def _can_be_put_back(desk: Desk, file: str) -> bool:
    stamp = desk.stamp(file)
    return file not in INDEXES and (stamp is None or stamp.size <= RECORDED)


def _bytes(desk: Desk, file: str) -> bytes | None:
    if desk.stamp(file) is None:
        return None
    data, stamp = desk.at.read(file, RECORDED)
    if stamp != desk.stamp(file):
        raise Overtaken
    return data


def _put_back(desk: Desk, old: Mapping[str, bytes | None]) -> None:
    """The disk said no half way: a memory is not left without its line. When even that fails, the
    next one to take the lock brings the index up to date."""
    for file, data in old.items():
        with contextlib.suppress(StorageFailure, Refused, Overtaken):
            if _bytes(desk, file) != data:
                _put(desk, file, data)


def _index_written(
    desk: Desk,
    changes: Mapping[str, bytes | None],
    old: Mapping[str, bytes | None],
    file: str,
    index: bytes | None,
) -> bytes | None:
    """The second step. When a hand was faster, its lines are taken into account."""
    while index is not None:
        try:
            row = desk.ledger.rows.get(file)
            desk.write(file, index, held=desk.holding(file, index))
        except Overtaken:
            stamp = desk.at.stamp(file)
            desk.know(file, Row(stamp, "", "", row.held if row else "") if stamp else None)
            index = with_changes(desk, changes, old, strict=False).get(file)
        else:
            return index
    return None


def released(desk: Desk, author: Author, file: str, data: bytes) -> Saved:
    """Make a memory of what the user lets out of the quarantine; one that is there is replaced."""
    desk.gate.refuse_secrets(data)
    topic = read_topic(data, file)
    there = file in desk.ledger.rows
    if not there and (wrong_with_file(file) or key(file) in desk.listing.taken):
        file = file_for(topic.name, desk.listing.taken, part_of(file).folder)
    check_private(data, file)
    revision = applied(desk, {file: data}, author, f"released {topic.name} from quarantine")
    return Saved(topic.name, desk.folder / file, revision, "updated" if there else "created")
