"""The files of a memory folder while they are consolidated: read once, changed in memory, written once.

What a consolidation did: each change with the evidence for it, and what it left alone as unclear.
Links that led to a memory that was merged or moved lead to where it is now, in memories and index.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from sevenfold.memory.consolidation.sentences import with_text
from sevenfold.memory.dreams.losses import Explained, Shelf
from sevenfold.memory.dreams.plan import changeable
from sevenfold.memory.dreams.statements import stated
from sevenfold.memory.folder.files import HEAD, MemoryFiles
from sevenfold.memory.folder.folder import ARCHIVE, listed
from sevenfold.memory.folder.names import INDEX_NAME, key, slug
from sevenfold.memory.frontmatter import find_frontmatter, whole
from sevenfold.memory.index import pointers_of, rows_of
from sevenfold.memory.links import file_links, local_file, target, without_code
from sevenfold.memory.topic_file import (
    Topic,
    changed,
    decoded,
    encoded,
    not_text,
    read_topic,
    shortened,
)

TEXT: Final = 40_000
"""Bytes of a memory that is worked on sentence by sentence; a longer one is a document."""


class StagedFiles:
    """What the folder holds and what it is to hold. Nothing is written before `write`."""

    def __init__(self, folder: Path, modified: Mapping[str, float]) -> None:
        self._files = MemoryFiles(folder)
        self.before: dict[str, bytes] = {}
        self.now: dict[str, bytes] = {}
        self.times: dict[str, float] = {}
        self.taken: set[str] = set()
        self._topics: dict[str, Topic] = {}
        try:
            with self._files.opened() as at:
                there = listed(at)
                self.taken = there.taken
                for file, stamp in sorted(there.files.items()):
                    self.times[file] = modified.get(file, stamp.modified / 1e9)
                    if stamp.size <= HEAD:
                        self.before[file] = at.read(file)[0]
        except FileNotFoundError:
            return
        self.now = dict(self.before)

    @property
    def index(self) -> str:
        return self.now.get(INDEX_NAME, b"").decode("utf-8", "surrogateescape")

    @index.setter
    def index(self, text: str) -> None:
        if text or INDEX_NAME in self.now:
            self.now[INDEX_NAME] = text.encode("utf-8", "surrogateescape")

    def active(self) -> list[Topic]:
        """The memories that may be changed, in the order of their files: no log, no team, no archive."""
        return [self.topic(file) for file in sorted(self.now) if _is_active(file)]

    def workable(self) -> list[Topic]:
        """Those of them that can be worked on sentence by sentence."""
        return [topic for topic in self.active() if _is_workable(topic)]

    def topic(self, file: str) -> Topic:
        data = self.now[file]
        known = self._topics.get(file)
        if known is None or known.data is not data:
            known = self._topics[file] = read_topic(data, file)
        return known

    def put(self, file: str, data: bytes, at: float | None = None) -> None:
        """A file as it is to be, with what was said at a time. It becomes no younger than that."""
        if data == self.now.get(file):
            return
        self.now[file] = data
        self.taken.add(key(file))
        if at is not None:
            self.times[file] = max(at, self.times.get(file, at))

    def drop(self, file: str) -> None:
        del self.now[file]

    def changed(self) -> list[str]:
        """The files that are new, different or gone."""
        files = {*self.before, *self.now}
        return sorted(file for file in files if self.before.get(file) != self.now.get(file))

    def write(self) -> None:
        """Bring the folder to what it is to be: first what is new, then what goes."""
        if not (changed := self.changed()):
            return
        gone = [file for file in changed if file not in self.now]
        with self._files.opened(make=True) as at:
            for file in changed:
                if file in self.now:
                    at.write(file, self.now[file], at.stamp(file), lasting=False)
                    self._keep_time(at.real / file, self.times.get(file))
            for file in gone:
                if (stamp := at.stamp(file)) is not None:
                    at.remove(file, stamp)

    def _keep_time(self, path: Path, at: float | None) -> None:
        if at is not None:
            with contextlib.suppress(OSError, OverflowError, ValueError):
                os.utime(path, (at, at))


def _is_active(file: str) -> bool:
    return changeable(file) and not file.startswith(ARCHIVE)


@lru_cache(maxsize=5_000)
def _is_workable(topic: Topic) -> bool:
    """Whole text in UTF-8, with a frontmatter that can be changed in place."""
    if len(topic.data) > TEXT or not topic.body or not_text(topic.data):
        return False
    text = decoded(topic.data)
    found = find_frontmatter(text)
    return whole(text) == text and (found is None or found.closed)


class Merged(msgspec.Struct, frozen=True):
    """Two memories that said the same and are one now."""

    file: str
    """The one that is gone."""
    into: str
    why: str


class Superseded(msgspec.Struct, frozen=True):
    """A statement that a newer one took the place of."""

    file: str
    old: str
    new: str
    by: str
    """The file that has the newer statement."""
    because: str
    """What shows that it is the newer one."""


class Archived(msgspec.Struct, frozen=True):
    """A memory about work that is over."""

    file: str
    to: str
    why: str


class Dated(msgspec.Struct, frozen=True):
    """A sentence in which a relative date became a calendar date."""

    file: str
    before: str
    after: str
    against: str
    """The day that was taken as the one on which it was said, and where it is from."""


class Learned(msgspec.Struct, frozen=True):
    """A memory that was made from a daily log."""

    file: str
    log: str


class Unclear(msgspec.Struct, frozen=True):
    """Two statements that may contradict each other: both stay."""

    file: str
    text: str
    other_file: str
    other: str
    why: str


class Report(msgspec.Struct, frozen=True):
    """Everything that a consolidation did."""

    merged: tuple[Merged, ...] = ()
    superseded: tuple[Superseded, ...] = ()
    archived: tuple[Archived, ...] = ()
    dated: tuple[Dated, ...] = ()
    learned: tuple[Learned, ...] = ()
    index: tuple[str, ...] = ()
    """What was changed in the index, in sentences."""
    unclear: tuple[Unclear, ...] = ()
    changed: tuple[str, ...] = ()
    """The files that are different, new or gone, the index too."""
    explained: Mapping[str, Explained] = {}
    """For every statement that is not where it was: what became of it, for the commit of a dream."""


_WIKI: Final = re.compile(
    r"(?<![\[!])\[\[(?![\s\[])([^\[\]|#\n]{1,200})([|#][^\[\]\n]{0,200})?\]\](?!\])"
)
_BARE: Final = re.compile(r"[\s\-*+>|,;.:()\[\]]*")


class Move(msgspec.Struct, frozen=True):
    """A memory that is somewhere else now."""

    old: Topic
    new: Topic


def relink(files: StagedFiles, moves: list[Move]) -> None:
    """Every link to a memory that is gone leads to the one that has what it said."""
    if not moves:
        return
    still = frozenset(way for topic in files.active() for way in _ways(topic))
    gone = {way: move for move in moves for way in _ways(move.old) - still}
    for topic in files.active():
        if not_text(topic.data) or not (b"[[" in topic.data or b"](" in topic.data):
            continue
        text = decoded(topic.data)
        new = _wiki(text, gone)
        for move in moves:
            new = relinked(new, move.old.file, move.new.file)
        if new != text:
            files.put(topic.file, encoded(new) + topic.data[len(encoded(text)) :])
    files.index = _repointed(files, {key(move.old.file): move for move in moves})


def _repointed(files: StagedFiles, moves: dict[str, Move]) -> str:
    """The index without the lines of memories that are gone; what only those lines said is kept."""
    rows = rows_of(files.index)
    pointed = {key(link.file) for row in rows for link in row.links}
    out: list[str] = []
    for row in rows:
        text = row.text
        mine = [(one, moves[key(one.file)]) for one in pointers_of(row) if key(one.file) in moves]
        if row.pointing and len(row.links) == 1 and mine:
            pointer, move = mine[0]
            if key(move.new.file) in pointed or move.new.file.startswith(ARCHIVE):
                keep_hook(files, move.new.file, pointer.hook)
                continue
            pointed.add(key(move.new.file))
        for _, move in mine:
            text = relinked(text, move.old.file, move.new.file)
        out.append(text)
    return "".join(out)


def keep_hook(files: StagedFiles, file: str, hook: str) -> None:
    """What a line of the index says and its memory does not is added to the memory."""
    topic = files.topic(file)
    text = " ".join(hook.split())
    if not text.strip("…. ") or says(topic, text):
        return
    line = text if text[-1:] in ".!?。！？" else f"{text}."
    files.put(file, changed(topic, body=with_text(topic.body, line)))


def says(topic: Topic, text: str) -> bool:
    """Whether a memory says what a hook says; one that was cut short is part of its description."""
    cut = text.rstrip("…").strip()
    if cut != text and shortened(topic.description, len(text)).startswith(cut):
        return True
    plain = " ".join(f"{topic.name} {topic.description} {topic.body}".split()).casefold()
    if cut.casefold().rstrip(".") in plain:
        return True
    sought = stated(f"{cut}\n".encode(), topic.file)
    shelf = Shelf({topic.file: topic.data})
    return bool(sought) and all(shelf.holder(one) for one in sought)


def linked(files: StagedFiles, topic: Topic) -> int:
    """How many other memories link to this one."""
    ways = _ways(topic)
    return sum(
        other.file != topic.file and any(_way(link) in ways for link in other.links)
        for other in files.active()
    )


def _ways(topic: Topic) -> frozenset[str]:
    return _named(topic.file, topic.name)


@lru_cache(maxsize=20_000)
def _named(file: str, name: str) -> frozenset[str]:
    """Every way in which a link may name a memory."""
    path = PurePosixPath(file)
    named = {name, file, file.removesuffix(".md"), path.name, path.stem}
    return frozenset({*map(_way, named), slug(name), slug(path.stem)} - {""})


def _way(name: str) -> str:
    return key(name.strip())


def _wiki(text: str, gone: Mapping[str, Move]) -> str:
    if "[[" not in text:
        return text
    plain = without_code(text)
    for found in reversed(list(_WIKI.finditer(plain))):
        name, rest = found[1].strip(), found[2] or ""
        move = gone.get(_way(name)) or gone.get(slug(name))
        if move is None:
            continue
        by_name = _way(name) == _way(move.old.name)
        into = move.new.name if by_name else PurePosixPath(move.new.file).stem
        shown = rest if rest.startswith("|") else ""
        if not shown and _stands_alone(plain, found):
            shown = f"|{name}"  # the name is all that this line says
        text = text[: found.start()] + f"[[{into}{shown}]]" + text[found.end() :]
    return text


def _stands_alone(text: str, found: re.Match[str]) -> bool:
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.end())
    line = text[start : found.start()] + text[found.end() : end if end >= 0 else len(text)]
    return _BARE.fullmatch(_WIKI.sub("", line)) is not None


def relinked(text: str, old: str, new: str) -> str:
    """A text whose markdown links to one file lead to another; a link never spans lines."""
    if "](" not in text or not _mentions(text, old):
        return text
    lines, plain = text.split("\n"), without_code(text).split("\n")
    for at, line in enumerate(plain):
        for link in reversed(file_links(line)):
            if key(link.file) == key(old):
                raw = lines[at]
                aimed = _aimed(raw[link.start : link.end], new)
                lines[at] = raw[: link.start] + aimed + raw[link.end :]
    return "\n".join(lines)


def _mentions(text: str, file: str) -> bool:
    """Whether a link to this file may be there at all; most texts have none."""
    name = file.rpartition("/")[2]
    return not name.isascii() or name.casefold() in text.casefold() or "%" in text


def _aimed(link: str, new: str) -> str:
    """The same link to another file."""
    head, _, behind = link.rpartition("](")
    place = target(new)
    titled = re.search(r"[ \t]+(\"[^\"\n]*\"|'[^'\n]*')[ \t]*\)$", behind)
    tail = f" {titled[1]}" if titled else ""
    made = f"{head}]({place}{tail})"
    return made if local_file(place.strip("<>")) else link
