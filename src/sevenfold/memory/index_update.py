"""Plans the indexes when memories change, before anything is written.

A new memory needs its line: when that does not fit, the write is refused with the reason. Where others
have put more memories into a part of the folder than its index can hold, the lines that we made for the
oldest make room for the newest, and the user is told; what a person wrote stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote, unquote

from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.memory.backend import HEAD, is_topic
from sevenfold.memory.folder.folder import A_SECRET, OWN, PARTS, RECORDED, FolderPart, FolderTransaction
from sevenfold.memory.index import (
    CHARACTERS,
    LINES,
    drop_dead_pointers,
    drop_pointers,
    explain_over_limit,
    find_missing_pointers,
    format_pointer,
    reconcile_index,
)
from sevenfold.memory.topic_file import Topic, read_topic

_BULLETS: Final = "-*+"
_ITEMS: Final = ("- ", "* ", "+ ")
_LINKED: Final = re.compile(r"\]\(<?([^()<>\n]+)>?\)")
_SWAPPED: Final = 20
"""New memories at most that push out lines of the oldest: more than that come from elsewhere."""

Files = Mapping[str, bytes | None]  # Some files; None for one that is not there, or goes


def plan_index_update(
    desk: FolderTransaction,
    created: Iterable[str],
    retold: Mapping[str, tuple[bytes, bytes]],
    removed: Mapping[str, str],
) -> dict[str, bytes]:
    """The indexes that are not as they should be with the files that are there, as they should be.

    `retold` are the files that say something else now: what they said, and what they say. The lines of
    those that were `removed` go; these are names by file.
    """
    created = list(created)
    found = {part.index: _IndexUpdate(desk, part).up_to_date(created, retold, removed) for part in PARTS}
    return {file: data for file, data in found.items() if data is not None}


def plan_changed_indexes(
    desk: FolderTransaction, changes: Files, before: Files, *, strict: bool = True
) -> dict[str, bytes]:
    """The indexes that change with these changes, as they are then.

    `before` has the files as they are. When an index itself is among the changes, its new text is the
    one to begin with. `Refused` when there is no room, unless it is not `strict`.
    """
    found: dict[str, bytes] = {}
    for part in PARTS:
        own = any(part.holds(file) for file in changes)
        gone = part == OWN and None in changes.values()  # its index may point to what others list
        index = _IndexUpdate(desk, part)
        if own or (gone and index.data() is not None):
            new = index.with_changes(changes, before, strict=strict and own)
            found |= {part.index: new} if new is not None else {}
    return found


def is_incomplete(text: str, names: Iterable[tuple[str, str]]) -> bool:
    """True if there are memories that the index has no line for."""
    names = list(names)
    return bool(find_missing_pointers(text, [file for file, _ in names], names))


class _IndexUpdate:
    """The index of one part. Files are called here what the index calls them."""

    def __init__(self, desk: FolderTransaction, part: FolderPart) -> None:
        self._desk, self._part, self._file = desk, part, part.index

    @cached_property
    def _there(self) -> list[str]:
        """The files that may be pointed to: one's own index may point to the team's memories, too."""
        files, part = self._desk.ledger.rows, self._part
        return [part.inner(file) for file in files if file.startswith(part.folder)]

    def up_to_date(
        self, created: Iterable[str], retold: Mapping[str, tuple[bytes, bytes]], removed: Mapping[str, str]
    ) -> bytes | None:
        """The index with the files that are there; None when it is so already."""
        old = self.data()
        if old is None:
            return None
        told = [
            (self._topic(file, before), self._topic(file, after))
            for file, (before, after) in retold.items()
            if self._part.lists(file)
        ]
        gone = [file for file in removed if file.startswith(self._part.folder)]
        text = self._without(
            decode_index(old), {self._part.inner(file): removed[file] for file in gone}, {}
        )
        text = self._planned(retell_index(text, told), {})
        inner = [self._part.inner(file) for file in created if self._part.holds(file)]
        own = [file for file in inner if self._wanted(file)]
        names = [(file, self._name(file)) for file in self._there if self._wanted(file)]
        if own and len(own) <= _SWAPPED and (lacking := find_missing_pointers(text, own, names)):
            topics = [topic for file in lacking if (topic := self._read(file)) is not None]
            text = self._with_room_for(text, topics) or text
        new = encode_index(text)
        return None if new == old else new

    def with_changes(self, changes: Files, before: Files, *, strict: bool) -> bytes | None:
        """The index after these changes, or None when it stays as it is."""
        old = self.data()
        if old is None:
            raise Refused(
                f"{self._desk.folder / self._file} is larger than {RECORDED:,} bytes or cannot be "
                "read: no memory is written before that is mended"
            )
        text = decode_index((changes[self._file] or b"") if self._file in changes else old)
        fresh: dict[str, Topic | None] = {}
        told: list[tuple[Topic, Topic]] = []
        for file, data in changes.items():
            if is_topic(file) and file.startswith(self._part.folder):
                topic = None if data is None else self._topic(file, data)
                fresh[self._part.inner(file)] = topic
                if topic is not None and (old_data := before.get(file)) is not None:
                    told.append((self._topic(file, old_data), topic))
        gone = [file for file, topic in fresh.items() if topic is None and file in self._there]
        names = {file: topic.name for file, topic in fresh.items() if topic is not None}
        text = self._without(text, {file: self._name(file) for file in gone}, names)
        new = self._text(retell_index(text, told), fresh, whole=self._file in changes)
        if strict and len(new) > len(decode_index(old)) and not _fits(new):
            raise Refused(explain_over_limit(new, self._file))
        return None if encode_index(new) == old else encode_index(new)

    def _without(self, text: str, gone: Mapping[str, str], fresh: Mapping[str, str]) -> str:
        """The text without the lines of these memories, which are names by file.

        In the index of a team all dead lines go: what they say is for members who have the file.
        """
        text = drop_pointers(text, [*gone, *gone.values()])
        if self._part == OWN:
            return text
        return drop_dead_pointers(text, {file: self._name(file) for file in self._there} | dict(fresh))

    def _text(self, text: str, fresh: Mapping[str, Topic | None], *, whole: bool) -> str:
        own = [one for file, one in fresh.items() if one and self._lists(file)]
        if whole or None in fresh.values() or "[[" in text:
            return self._planned(text, fresh)
        if all(self._part.outer(file) in self._desk.ledger.rows for file in fresh):
            return text  # every line that is needed is there
        new = self._with_lines(text, own)
        return (self._with_room_for(text, own) or new) if self._full and not _fits(new) else new

    def data(self) -> bytes | None:
        """The index as it is; empty when there is none, None when it cannot be used."""
        desk = self._desk
        if self._file not in desk.ledger.rows:
            return b"" if not any(odd.file == self._file for odd in desk.listing.odd) else None
        try:
            data, _ = desk.at.read(self._file, RECORDED + 1)
        except (StorageFailure, Refused):
            return None
        return data if len(data) <= RECORDED else None

    def _planned(self, text: str, fresh: Mapping[str, Topic | None]) -> str:
        """The text when these topics are new, changed or gone, and with what it lacks."""
        names = {file: self._name(file) for file in self._there if file not in fresh and self._wanted(file)}
        there = [file for file in self._there if file not in fresh or fresh[file] is not None]
        also = [file for file in there if not self._wanted(file)]
        own = [topic for file, topic in fresh.items() if topic and self._lists(file)]

        def rank(file: str) -> tuple[int, str]:
            return -self._modified(file), file

        planned, left_out = plan_text(text, names, also, own=own, rank=rank, read=self._read)
        self._full = left_out > 0
        if left_out and _fits(planned):
            self._tell_full()
        return planned

    def _with_room_for(self, text: str, topics: list[Topic]) -> str | None:
        """With these lines in place of those that were made for the oldest; None if none were."""
        new = {topic.file for topic in topics}
        there = ({unquote(file) for file in _LINKED.findall(text)} - new) & {*self._there}
        for file in sorted(there, key=lambda file: (self._modified(file), file)):
            if (oldest := self._read(file)) is None:
                continue
            ours = {format_pointer(oldest, bullet) for bullet in _BULLETS}
            lines = text.splitlines(keepends=True)
            kept = [line for line in lines if line.rstrip("\r\n") not in ours]
            if len(kept) == len(lines):
                continue  # a hand wrote it
            text = "".join(kept)
            if _fits(filled := self._with_lines(text, topics)):
                self._full = True
                self._tell_full()
                return filled
        return None

    def _with_lines(self, text: str, topics: list[Topic]) -> str:
        """With a line for each of these new memories, in the style of the last line."""
        last = text.removesuffix("\n").rpartition("\n")[2]
        usual = not text or (text.endswith("\n") and "\r" not in text and last[:2] in _ITEMS)
        if usual and not any(topic.file in text or quote(topic.file) in text for topic in topics):
            bullet = last[:1] or "-"
            return text + "".join(f"{format_pointer(topic, bullet)}\n" for topic in topics)
        new = {topic.file for topic in topics}
        return reconcile_index(text, topics, [file for file in self._there if file not in new])

    @property
    def _full(self) -> bool:
        return self._part.folder in self._desk.ledger.full

    @_full.setter
    def _full(self, full: bool) -> None:
        change = self._desk.ledger.full.add if full else self._desk.ledger.full.discard
        change(self._part.folder)

    def _tell_full(self) -> None:
        self._desk.say(
            f"{self._desk.folder / self._file} is full: it has lines for the newest memories only. "
            "Recall finds the others all the same; merge or remove some to make room."
        )

    def _lists(self, file: str) -> bool:
        return self._part.lists(self._part.outer(file))

    def _wanted(self, file: str) -> bool:
        """True if it should have a line here: the name or the description of a secret is no hook."""
        row = self._desk.ledger.rows.get(self._part.outer(file))
        return self._lists(file) and not (row and row.held == A_SECRET)

    def _name(self, file: str) -> str:
        return self._desk.ledger.rows[self._part.outer(file)].name

    def _modified(self, file: str) -> int:
        stamp = self._desk.stamp(self._part.outer(file))
        return stamp.modified if stamp else 0

    def _read(self, file: str) -> Topic | None:
        try:
            return read_topic(self._desk.at.read(self._part.outer(file), HEAD)[0], file)
        except (StorageFailure, Refused):
            return None

    def _topic(self, file: str, data: bytes) -> Topic:
        return read_topic(data, self._part.inner(file))


def retell_index(text: str, retold: Iterable[tuple[Topic, Topic]]) -> str:
    """The lines that were made from old descriptions say the new ones; hand-written ones stay.

    `retold` are memories as they were and as they are.
    """
    told = {
        format_pointer(old, each): format_pointer(new, each) for old, new in retold for each in _BULLETS
    }
    if all(old == new for old, new in told.items()):
        return text
    lines = [(line.rstrip("\r\n"), line) for line in text.splitlines(keepends=True)]
    return "".join(told.get(bare, bare) + line[len(bare) :] for bare, line in lines)


def plan_text(
    text: str,
    names: Mapping[str, str],
    also: Collection[str],
    *,
    own: Sequence[Topic] = (),
    rank: Callable[[str], Any] = str,
    read: Callable[[str], Topic | None] = lambda file: None,
) -> tuple[str, int]:
    """The index without dead lines, with lines for `own` and as many others as fit; and how many did not.

    `names` are the memories that should have a line, by file, and `also` are files that may be pointed to.
    Of those without a line, the first by `rank` are read and get one while there is room.
    """
    absent = set(find_missing_pointers(text, names, names.items()))
    kept = [make_bare_topic(file, name) for file, name in names.items() if file not in absent]
    planned = reconcile_index(text, [*kept, *own], also)
    if not _fits(planned):
        return planned, len(absent)
    chosen = sorted(absent, key=rank)[: max(0, LINES - len(planned.splitlines()))]
    while chosen:
        topics = [topic for file in sorted(chosen) if (topic := read(file)) is not None]
        if _fits(filled := reconcile_index(text, [*kept, *own, *topics], also)):
            return filled, len(absent) - len(chosen)
        chosen = chosen[: len(chosen) * 9 // 10]
    return planned, len(absent)


def _fits(text: str) -> bool:
    """True if an index is within its limits; `explain_over_limit` says the same, with the reason."""
    return len(text) <= CHARACTERS and len(text.splitlines()) <= LINES


def make_bare_topic(file: str, name: str) -> Topic:
    """A topic that has its line already: only its file and its name count."""
    return Topic(file, b"", name or file, "", None, "")


def decode_index(data: bytes) -> str:
    """The text of an index; bytes that are no UTF-8 survive."""
    return data.decode("utf-8", "surrogateescape")


def encode_index(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
