"""What the index becomes when memories change: worked out before anything is written.

A new memory needs its line: when that does not fit, the write is refused with the reason. Where others
have put more memories into the folder than an index can hold, the lines that we made for the oldest
make room for the newest, and that is said; what a hand wrote stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import quote, unquote

from sevenfold.errors import Refused, StorageFailure
from sevenfold.memory.folder.desk import RECORDED, Desk
from sevenfold.memory.folder.files import HEAD
from sevenfold.memory.folder.ledger import A_SECRET
from sevenfold.memory.folder.listing import is_topic
from sevenfold.memory.folder.naming import INDEX_NAME
from sevenfold.memory.index import (
    CHARACTERS,
    LINES,
    missing,
    over_limit,
    pointer_line,
    reconciled,
)
from sevenfold.memory.topic import Topic, read_topic

TEAM: Final = "team/"
"""The memories of the team have an index of their own."""
ARCHIVE: Final = "archive/"
"""What a dream took out of the index because it is stale; recall still finds it."""
_BULLETS: Final = "-*+"
_ITEMS: Final = ("- ", "* ", "+ ")
_LINKED: Final = re.compile(r"\]\(<?([^()<>\n]+)>?\)")
_SWAPPED: Final = 20
"""New memories at most that push out lines of the oldest: more than that come from elsewhere."""

Topics = Mapping[str, Topic | None]
"""What becomes of some files: None for one that goes."""


def brought_up_to_date(desk: Desk, created: Iterable[str]) -> bytes | None:
    """The index as it should be with the files that are there; None when it is so already."""
    old = index_bytes(desk)
    if old is None:
        return None
    text = planned(desk, _decoded(old), {})
    own = [file for file in created if _wanted(desk, file)]
    if own and len(own) <= _SWAPPED and (lacking := missing(text, own, _names(desk))):
        topics = [topic for file in lacking if (topic := _read(desk, file)) is not None]
        text = _with_room_for(desk, text, topics) or text
    new = _encoded(text)
    return None if new == old else new


def with_changes(
    desk: Desk,
    changes: Mapping[str, bytes | None],
    before: Mapping[str, bytes | None],
    *,
    strict: bool = True,
) -> bytes | None:
    """The index after these changes, or None when it stays as it is.

    `before` has the files as they are. When the index itself is among the changes, its new text is the
    one to begin with. `Refused` when there is no room, unless it is not `strict`.
    """
    old = index_bytes(desk)
    if old is None:
        raise Refused(
            f"{desk.folder / INDEX_NAME} is larger than {RECORDED:,} bytes or cannot be read: "
            "no memory is written before that is mended"
        )
    text = _decoded((changes[INDEX_NAME] or b"") if INDEX_NAME in changes else old)
    fresh: dict[str, Topic | None] = {}
    for file, data in changes.items():
        if is_topic(file):
            fresh[file] = None if data is None else read_topic(data, file)
            text = _retold(text, before.get(file), fresh[file])
    own = [one for one in fresh.values() if one and is_listed(one.file)]
    if INDEX_NAME in changes or None in fresh.values() or "[[" in text:
        new = planned(desk, text, fresh)
    elif all(file in desk.ledger.rows for file in fresh):
        new = text  # every line that is needed is there
    else:
        new = _with_lines(desk, text, own)
        if desk.ledger.full and not _fits(new):
            new = _with_room_for(desk, text, own) or new
    if strict and len(new) > len(_decoded(old)) and not _fits(new):
        raise Refused(over_limit(new))
    return None if _encoded(new) == old else _encoded(new)


def index_bytes(desk: Desk) -> bytes | None:
    """The index as it is; empty when there is none, None when it cannot be used."""
    if INDEX_NAME not in desk.ledger.rows:
        return b"" if not any(odd.file == INDEX_NAME for odd in desk.listing.odd) else None
    try:
        data, _ = desk.at.read(INDEX_NAME, RECORDED + 1)
    except (StorageFailure, Refused):
        return None
    return data if len(data) <= RECORDED else None


def planned(desk: Desk, text: str, fresh: Topics) -> str:
    """The text of the index when these topics are new, changed or gone, and with what it lacks."""
    rows = desk.ledger.rows
    there = [file for file in rows if file not in fresh and _wanted(desk, file)]
    also = [file for file in rows if not _wanted(desk, file)]
    own = [topic for file, topic in fresh.items() if topic and is_listed(file)]
    absent = set(missing(text, there, _names(desk)))
    kept = [_bare(file, rows[file].name) for file in there if file not in absent]
    new = reconciled(text, [*kept, *own], also)
    desk.ledger.full = bool(absent)
    if not absent or not _fits(new):
        return new
    return _filled(desk, new, absent, lambda more: reconciled(text, [*kept, *own, *more], also))


def _filled(desk: Desk, text: str, absent: set[str], drawn: Callable[[list[Topic]], str]) -> str:
    """With as many of the missing lines as fit, those of the newest memories."""
    newest = sorted(absent, key=lambda file: (-_modified(desk, file), file))
    chosen = newest[: max(0, LINES - text.count("\n"))]
    while chosen:
        topics = [topic for file in sorted(chosen) if (topic := _read(desk, file)) is not None]
        if _fits(new := drawn(topics)):
            text = new
            break
        chosen = chosen[: len(chosen) * 9 // 10]
    desk.ledger.full = len(absent) > len(chosen)
    if desk.ledger.full:
        _tell_full(desk)
    return text


def _with_room_for(desk: Desk, text: str, topics: list[Topic]) -> str | None:
    """The index with these lines in place of those that were made for the oldest; None if none were."""
    new = {topic.file for topic in topics}
    pointed = {unquote(file) for file in _LINKED.findall(text)} - new
    there = [file for file in pointed if file in desk.ledger.rows]
    for file in sorted(there, key=lambda file: (_modified(desk, file), file)):
        if (oldest := _read(desk, file)) is None:
            continue
        ours = {pointer_line(oldest, bullet) for bullet in _BULLETS}
        lines = text.splitlines(keepends=True)
        kept = [line for line in lines if line.rstrip("\r\n") not in ours]
        if len(kept) == len(lines):
            continue  # a hand wrote it
        text = "".join(kept)
        if _fits(filled := _with_lines(desk, text, topics)):
            desk.ledger.full = True
            _tell_full(desk)
            return filled
    return None


def _with_lines(desk: Desk, text: str, topics: list[Topic]) -> str:
    """With a line for each of these new memories, in the style of the last line."""
    last = text.removesuffix("\n").rpartition("\n")[2]
    usual = not text or (text.endswith("\n") and "\r" not in text and last[:2] in _ITEMS)
    if usual and not any(_named(text, topic.file) for topic in topics):
        bullet = last[:1] or "-"
        return text + "".join(f"{pointer_line(topic, bullet)}\n" for topic in topics)
    new = {topic.file for topic in topics}
    return reconciled(text, topics, [file for file in desk.ledger.rows if file not in new])


def _named(text: str, file: str) -> bool:
    return file in text or quote(file) in text


def incomplete(text: str, names: Iterable[tuple[str, str]]) -> bool:
    """Whether there are memories that the index has no line for."""
    names = list(names)
    return bool(missing(text, [file for file, _ in names], names))


def _names(desk: Desk) -> list[tuple[str, str]]:
    return [(file, row.name) for file, row in desk.ledger.rows.items() if _wanted(desk, file)]


def _tell_full(desk: Desk) -> None:
    desk.say(
        f"{desk.folder / INDEX_NAME} is full: it has lines for the newest memories only. Recall finds "
        "the others all the same; merge or remove some to make room."
    )


def _retold(text: str, before: bytes | None, after: Topic | None) -> str:
    """The line that was made from the old description says the new one; a hand-written one stays."""
    if before is None or after is None:
        return text
    old = read_topic(before, after.file)
    for bullet in _BULLETS:
        line, new = pointer_line(old, bullet), pointer_line(after, bullet)
        if line != new and line in text:
            lines = text.splitlines(keepends=True)
            return "".join(
                new + each[len(line) :] if each.rstrip("\r\n") == line else each for each in lines
            )
    return text


def _fits(text: str) -> bool:
    """Whether an index is within its limits; `over_limit` says the same, with the reason."""
    return len(text) <= CHARACTERS and len(text.splitlines()) <= LINES


def is_listed(file: str) -> bool:
    """Whether a file should have a line in the index."""
    return is_topic(file) and not file.startswith((TEAM, ARCHIVE))


def _wanted(desk: Desk, file: str) -> bool:
    """Whether it should have a line here: the name or the description of a secret is no hook."""
    row = desk.ledger.rows.get(file)
    return is_listed(file) and not (row and row.held == A_SECRET)


def _modified(desk: Desk, file: str) -> int:
    stamp = desk.stamp(file)
    return stamp.modified if stamp else 0


def _read(desk: Desk, file: str) -> Topic | None:
    try:
        return read_topic(desk.at.read(file, HEAD)[0], file)
    except (StorageFailure, Refused):
        return None


def _bare(file: str, name: str) -> Topic:
    """A topic that has its line already: only its file and its name count."""
    return Topic(file, b"", name or file, "", None, "")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
