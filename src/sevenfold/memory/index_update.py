"""Plans the indexes when memories change, before anything is written.

An index has a limit and a folder has none. Lines that we made for the memories that were changed or
recalled least recently make room for newer ones, what a person wrote stays, and the last line says how
many memories are not listed.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final
from urllib.parse import quote, unquote

from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.memory.backend import HEAD, is_topic
from sevenfold.memory.folder.folder import (
    A_SECRET,
    OWN,
    PARTS,
    RECORDED,
    SHARED,
    FolderPart,
    FolderTransaction,
)
from sevenfold.memory.folder.names import make_file_key
from sevenfold.memory.index import (
    CHARACTERS,
    LINES,
    UNLISTED,
    begin_list,
    drop_pointers,
    find_dead_pointers,
    find_missing_pointers,
    format_pointer,
    format_pointer_link,
    format_unlisted,
    reconcile_index,
    split_unlisted,
)
from sevenfold.memory.topic_file import Topic, read_topic

_BULLETS: Final = "-*+"
_LINKED: Final = re.compile(r"\]\(<?([^()<>\n]+)>?\)")
_ALL: Final = 1_000_000  # Revisions in which a file that is gone is looked for: all of them
_SWAPPED: Final = 20
"""Memories at most that get a line whatever their time: more than that come from elsewhere."""

Files = Mapping[str, bytes | None]  # Some files; None for one that is not there, or goes


def plan_index_update(
    desk: FolderTransaction, created: Iterable[str], retold: Mapping[str, tuple[bytes, bytes]]
) -> dict[str, bytes]:
    """The indexes that are not as they should be with the files that are there, as they should be.

    `retold` are the files that say something else now: what they said, and what they say.
    """
    created = list(created)
    found = {part.index: _IndexUpdate(desk, part).up_to_date(created, retold) for part in PARTS}
    return {file: data for file, data in found.items() if data is not None}


def drop_removed(desk: FolderTransaction, text: str, names: Mapping[str, str]) -> str:
    """An index without pointers to files that were there once: what they said is in the history.

    `names` are the files that may be pointed to, with their names.
    """
    if not (dead := find_dead_pointers(text, names)):
        return text
    with contextlib.suppress(StorageFailure):
        every = desk.past.ask(lambda history: history.log(limit=_ALL))
        ever = {make_file_key(change.file) for revision in every for change in revision.files}
        return drop_pointers(text, [file for file in dead if make_file_key(file) in ever])
    return text


def plan_changed_indexes(desk: FolderTransaction, changes: Files, before: Files) -> dict[str, bytes]:
    """The indexes that change with these changes, as they are then.

    `before` has the files as they are. When an index itself is among the changes, its new text is the
    one to begin with.
    """
    found: dict[str, bytes] = {}
    for part in PARTS:
        own = any(part.holds(file) for file in changes)
        gone = part == OWN and None in changes.values()  # its index may point to what others list
        index = _IndexUpdate(desk, part)
        if own or (gone and index.data() is not None):
            new = index.with_changes(changes, before)
            found |= {part.index: new} if new is not None else {}
    return found


class _IndexUpdate:
    """The index of one part. Files are called here what the index calls them."""

    def __init__(self, desk: FolderTransaction, part: FolderPart) -> None:
        self._desk, self._part, self._file = desk, part, part.index

    @cached_property
    def _there(self) -> list[str]:
        """The files that may be pointed to: one's own index may point to the team's memories, too."""
        files, part = self._desk.ledger.rows, self._part
        return [part.inner(file) for file in files if file.startswith(part.folder)]

    def up_to_date(self, created: Iterable[str], retold: Mapping[str, tuple[bytes, bytes]]) -> bytes | None:
        """The index with the files that are there; None when it is so already."""
        old = self.data()
        if old is None:
            return None
        told = [
            (self._topic(file, before), self._topic(file, after))
            for file, (before, after) in retold.items()
            if self._part.lists(file)
        ]
        own = [self._part.inner(file) for file in created if self._part.holds(file)]
        first = own if len(own) <= _SWAPPED else []
        new = encode_index(self._planned(retell_index(decode_index(old), told), {}, first))
        return None if new == old else new

    def with_changes(self, changes: Files, before: Files) -> bytes | None:
        """The index after these changes, or None when it stays as it is."""
        old, stamp = self.data(), self._desk.stamp(self._file)
        if old is None and stamp is not None and stamp.size > RECORDED:
            self._desk.say(
                f"{self._desk.folder / self._file} has {stamp.size:,} bytes and stays as it is: new "
                f"memories get no line in it. Recall finds them; shorten it to {RECORDED:,} bytes at most."
            )
            return None
        if old is None:
            raise Refused(
                f"{self._desk.folder / self._file} cannot be read: no memory is written before that is "
                "mended"
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
        text = drop_pointers(text, [*gone, *map(self._name, gone)])
        new = encode_index(self._text(retell_index(text, told), fresh, whole=self._file in changes))
        return None if new == old else new

    def _text(self, text: str, fresh: Mapping[str, Topic | None], *, whole: bool) -> str:
        bare, unlisted = split_unlisted(text)
        if whole or None in fresh.values() or "[[" in text:
            return self._planned(text, fresh)
        new = {file for file in fresh if self._part.outer(file) not in self._desk.ledger.rows}
        if not new and not unlisted:
            return text  # every line that is needed is there
        listed = set(map(make_file_key, find_linked_files(bare)))
        own = {file: topic for file, topic in fresh.items() if topic and self._lists(file)}
        lacking = {file: topic for file, topic in own.items() if make_file_key(file) not in listed}
        if not unlisted and _fits(filled := self._with_lines(bare, list(own.values()))):
            return filled
        if len(lacking) < len(new):  # it mentions a file that was not there
            return self._planned(text, fresh)
        recalled = [
            file for file in self._recalls if make_file_key(file) not in listed and self._is_there(file)
        ]
        wanted = [*lacking, *recalled[:_SWAPPED]]
        return self._fitted(bare, wanted, unlisted + len(new & lacking.keys()), own)

    def data(self) -> bytes | None:
        """The index as it is; empty when there is none, None when it cannot be used."""
        desk = self._desk
        if self._file not in desk.ledger.rows:
            return b"" if not any(odd.file == self._file for odd in desk.listing.odd) else None
        try:
            data, _ = desk.at.read(self._file, RECORDED + 1)
        except (StorageFailure, Refused):
            return None
        desk.indexes[self._file] = data
        return data if len(data) <= RECORDED else None

    def _planned(self, text: str, fresh: Mapping[str, Topic | None], first: Collection[str] = ()) -> str:
        """The text when these topics are new, changed or gone, and with what it lacks.

        Memories in `first` get a line before others.
        """
        names = {file: self._name(file) for file in self._there if file not in fresh and self._wanted(file)}
        there = [file for file in self._there if file not in fresh or fresh[file] is not None]
        also = [file for file in there if not self._wanted(file)]
        own = {file: topic for file, topic in fresh.items() if topic and self._lists(file)}
        names |= {file: topic.name for file, topic in own.items()}
        newest = {*own, *first}
        known = {**dict.fromkeys(also, ""), **names}
        if self._part == OWN:
            text = drop_removed(self._desk, text, known)
        else:  # what dead lines say is for members of the team who have the file
            text = drop_pointers(text, find_dead_pointers(text, known))

        def recency(file: str) -> float:
            return math.inf if file in newest else self._recency(file)

        return complete_index(
            text, names, also, recency=recency, read=lambda file: own.get(file) or self._read(file)
        )

    def _fitted(self, text: str, wanted: Sequence[str], unlisted: int, own: Mapping[str, Topic]) -> str:
        return fit_index(
            text,
            wanted,
            unlisted,
            recency=lambda file: math.inf if file in own else self._recency(file),
            read=lambda file: own.get(file) or self._read(file),
            name_of=self._name_if_known,
        )

    def _with_lines(self, text: str, topics: list[Topic]) -> str:
        """With a line for each of these new memories, in the style of the last line."""
        if not any(topic.file in text or quote(topic.file) in text for topic in topics):
            start, bullet, nl = begin_list(text)
            return start + "".join(f"{format_pointer(topic, bullet)}{nl}" for topic in topics)
        new = {topic.file for topic in topics}
        return reconcile_index(text, topics, [file for file in self._there if file not in new])

    @cached_property
    def _recalls(self) -> dict[str, float]:
        """The times of recalls by file, the newest first; a team's index is the same for all members."""
        if self._part == SHARED:
            return {}
        times = self._desk.recalls.load()
        return dict(sorted(times.items(), key=lambda one: -one[1]))

    def _is_there(self, file: str) -> bool:
        return self._part.outer(file) in self._desk.ledger.rows and self._wanted(file)

    def _lists(self, file: str) -> bool:
        return self._part.lists(self._part.outer(file))

    def _wanted(self, file: str) -> bool:
        """True if it should have a line here: the name or the description of a secret is no hook."""
        row = self._desk.ledger.rows.get(self._part.outer(file))
        return self._lists(file) and not (row and row.held == A_SECRET)

    def _name(self, file: str) -> str:
        return self._desk.ledger.rows[self._part.outer(file)].name

    def _name_if_known(self, file: str) -> str:
        row = self._desk.ledger.rows.get(self._part.outer(file))
        return row.name if row else ""

    def _recency(self, file: str) -> float:
        """The time in seconds when a memory was last changed or recalled."""
        stamp = self._desk.stamp(self._part.outer(file))
        return max(stamp.modified / 1e9 if stamp else 0.0, self._recalls.get(file, 0.0))

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


def plan_text(text: str, names: Mapping[str, str], also: Collection[str]) -> tuple[str, list[str]]:
    """The index without dead lines and without its last one, and the memories that it does not list.

    `names` are the memories that should have a line, by file, and `also` are files that may be pointed to.
    """
    text, _ = split_unlisted(text)
    absent = find_missing_pointers(text, names, names.items())
    lacking = set(absent)
    kept = [make_bare_topic(file, name) for file, name in names.items() if file not in lacking]
    return reconcile_index(text, kept, also), absent


def complete_index(
    text: str,
    names: Mapping[str, str],
    also: Collection[str],
    *,
    recency: Callable[[str], float],
    read: Callable[[str], Topic | None],
) -> str:
    """The index without dead lines and with lines for the memories of the greatest `recency`.

    `names` and `also` are those of `plan_text`; `read` reads a memory that is to get or lose a line.
    """
    planned, absent = plan_text(text, names, also)
    wanted = sorted(absent, key=lambda file: (-recency(file), file))[:LINES]
    return fit_index(
        planned, wanted, len(absent), recency=recency, read=read, name_of=lambda f: names.get(f, "")
    )


def fit_index(
    text: str,
    wanted: Iterable[str],
    unlisted: int,
    *,
    recency: Callable[[str], float],
    read: Callable[[str], Topic | None],
    name_of: Callable[[str], str] = lambda file: "",
) -> str:
    """The index with lines for as many of the `wanted` files as its limits allow, the first ones first.

    Lines that we made for files of less `recency` make room. `text` has no last line yet; `unlisted` are
    the memories without a line in it, the wanted ones among them. `name_of` knows the names of some.
    """
    draft = _IndexDraft(text, unlisted, recency, read, name_of)
    for file in wanted:
        if not draft.add(file):
            break
    return draft.finish()


class _IndexDraft:
    """An index whose lines come and go."""

    def __init__(
        self,
        text: str,
        unlisted: int,
        recency: Callable[[str], float],
        read: Callable[[str], Topic | None],
        name_of: Callable[[str], str],
    ) -> None:
        self._text, self._unlisted, self._recency = text, unlisted, recency
        self._read, self._name_of = read, name_of
        self._start, self._bullet, self._nl = begin_list(text)
        self._lines, self._size = len(self._start.splitlines()), len(self._start)
        self._added: dict[str, str] = {}
        self._gone: set[str] = set()

    @cached_property
    def _oldest(self) -> list[str]:
        """The listed files, those of the greatest recency first: the end is taken off."""
        return sorted(find_linked_files(self._text), key=lambda file: (-self._recency(file), file))

    @cached_property
    def _there(self) -> set[str]:
        return {line.rstrip("\r\n") for line in self._start.splitlines(keepends=True)}

    def add(self, file: str) -> bool:
        """Give a memory its line; False if there is no room for it."""
        if (topic := self._read(file)) is None:
            return True
        line = format_pointer(topic, self._bullet)
        while not self._has_room(len(line) + len(self._nl), 1, self._unlisted - 1):
            if not self._drop_oldest(self._recency(file)):
                return False
        self._added[file] = line
        self._lines, self._size = self._lines + 1, self._size + len(line) + len(self._nl)
        self._unlisted -= 1
        return True

    def _has_room(self, size: int, lines: int, unlisted: int) -> bool:
        last = unlisted > 0
        return self._size + size + last * UNLISTED <= CHARACTERS and self._lines + lines + last <= LINES

    def _drop_oldest(self, recency: float) -> bool:
        """Take out the line of the oldest memory, if we made it and its recency is less."""
        while self._oldest and self._recency(self._oldest[-1]) < recency:
            file = self._oldest.pop()
            name = self._name_of(file)
            if name and format_pointer_link(file, name) not in self._start:
                continue  # a person wrote it: the memory need not be read
            topic = self._read(file)
            for line in {format_pointer(topic, each) for each in _BULLETS} & self._there if topic else ():
                self._gone.add(line)
                self._lines, self._size = self._lines - 1, self._size - len(line) - len(self._nl)
                self._unlisted += 1
                return True
        return False

    def finish(self) -> str:
        """The text with all that came and without what went."""
        while not self._has_room(0, 0, self._unlisted) and self._drop_oldest(math.inf):
            pass
        if not self._added and not self._gone and not self._unlisted:
            return self._text
        lines = self._start.splitlines(keepends=True)
        kept = "".join(line for line in lines if line.rstrip("\r\n") not in self._gone)
        new = "".join(f"{self._added[file]}{self._nl}" for file in sorted(self._added))
        last = f"{format_unlisted(self._unlisted)}{self._nl}" if self._unlisted else ""
        return f"{kept}{new}{last}"


def find_linked_files(text: str) -> set[str]:
    """The files that an index links to, as it calls them."""
    return {unquote(file) if "%" in file else file for file in _LINKED.findall(text)}


def _fits(text: str) -> bool:
    """True if an index is within its limits; `list_exceeded_limits` says which it exceeds."""
    return len(text) <= CHARACTERS and len(text.splitlines()) <= LINES


def make_bare_topic(file: str, name: str) -> Topic:
    """A topic that has its line already: only its file and its name count."""
    return Topic(file, b"", name or file, "", None, "")


def decode_index(data: bytes) -> str:
    """The text of an index; bytes that are no UTF-8 survive."""
    return data.decode("utf-8", "surrogateescape")


def encode_index(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
