"""The files of a memory folder while they are consolidated, and the report on what was done.

Links to a memory that was merged or moved are changed in memories and index.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec

from sevenfold.memory.backend import HEAD
from sevenfold.memory.consolidation.sentences import append_paragraph
from sevenfold.memory.dreams.losses import LossReason, StatementIndex
from sevenfold.memory.dreams.plan import is_changeable
from sevenfold.memory.dreams.statements import read_facts
from sevenfold.memory.folder.files import MemoryFiles
from sevenfold.memory.folder.folder import ARCHIVE
from sevenfold.memory.folder.names import INDEX_NAME, make_file_key, make_slug
from sevenfold.memory.frontmatter import find_frontmatter, strip_broken_characters
from sevenfold.memory.index import parse_pointers, split_rows
from sevenfold.memory.text.links import (
    WIKI,
    find_file_links,
    format_link_target,
    list_link_names,
    make_link_key,
    parse_local_file,
    rewrite_wiki_links,
)
from sevenfold.memory.text.markdown import blank_out_code
from sevenfold.memory.topic_file import (
    Topic,
    change_topic,
    decode_text,
    encode_text,
    explain_not_text,
    read_topic,
    shorten_text,
)

if TYPE_CHECKING:
    from sevenfold.memory.consolidation.dates import SpokenAt

TEXT: Final = 40_000  # Bytes of a memory that is worked on sentence by sentence; a longer one is a document


class StagedFiles:
    """The files of the folder before and after. Nothing is written before `write`."""

    def __init__(self, folder: Path, modified: Mapping[str, float], removed: Collection[str] = ()) -> None:
        """`removed`: files that were removed before, whose lines in the index go."""
        self._files = MemoryFiles(folder)
        self.removed = tuple(removed)
        self.before: dict[str, bytes] = {}
        self.now: dict[str, bytes] = {}
        self.times: dict[str, float] = {}
        self.taken: set[str] = set()
        self.spoken: dict[tuple[str, str], SpokenAt] = {}
        """When a sentence was said that came from another file, by file and words."""
        self.newer: dict[str, str] = {}
        """The file that has the newer statement, by the file in which it took the older one's place."""
        self._topics: dict[str, Topic] = {}
        try:
            with self._files.opened() as at:
                there = at.list()
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
        return [
            self.topic(file)
            for file in sorted(self.now)
            if is_changeable(file) and not file.startswith(ARCHIVE)
        ]

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
        self.taken.add(make_file_key(file))
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
        with self._files.opened(make=True) as at:
            for file in changed:
                if file in self.now:
                    at.write(file, self.now[file], at.stamp(file), lasting=False)
                    if (time := self.times.get(file)) is not None:
                        with contextlib.suppress(OSError, OverflowError, ValueError):
                            os.utime(at.real / file, (time, time))
            for file in changed:
                if file not in self.now and (stamp := at.stamp(file)) is not None:
                    at.remove(file, stamp)


@lru_cache(maxsize=5_000)
def _is_workable(topic: Topic) -> bool:
    """Whole text in UTF-8, with a frontmatter that can be changed in place."""
    if len(topic.data) > TEXT or not topic.body or explain_not_text(topic.data):
        return False
    text = decode_text(topic.data)
    found = find_frontmatter(text)
    return strip_broken_characters(text) == text and (found is None or found.closed)


class MergedMemory(msgspec.Struct, frozen=True):
    """Two memories that said the same and are one now."""

    file: str  # The one that is gone
    into: str
    why: str


class SupersededStatement(msgspec.Struct, frozen=True):
    """A statement that a newer one took the place of."""

    file: str
    old: str
    new: str
    by: str  # The file that has the newer statement
    because: str  # The evidence that it is the newer one


class ArchivedMemory(msgspec.Struct, frozen=True):
    """A memory about work that is over."""

    file: str
    to: str
    why: str


class DatedSentence(msgspec.Struct, frozen=True):
    """A sentence in which a relative date became a calendar date."""

    file: str
    before: str
    after: str
    against: str  # The day that was taken as the one on which it was said, and where it is from


class LoggedMemory(msgspec.Struct, frozen=True):
    """A memory that was made from a daily log."""

    file: str
    log: str


class UnclearPair(msgspec.Struct, frozen=True):
    """Two statements that may contradict each other: both stay."""

    file: str
    text: str
    other_file: str
    other: str
    why: str


class ConsolidationReport(msgspec.Struct, frozen=True):
    """Everything that a consolidation did."""

    merged: tuple[MergedMemory, ...] = ()
    superseded: tuple[SupersededStatement, ...] = ()
    archived: tuple[ArchivedMemory, ...] = ()
    dated: tuple[DatedSentence, ...] = ()
    learned: tuple[LoggedMemory, ...] = ()
    index: tuple[str, ...] = ()  # The changes of the index, in sentences
    unclear: tuple[UnclearPair, ...] = ()
    changed: tuple[str, ...] = ()  # The files that are different, new or gone, the index too
    explained: Mapping[str, LossReason] = {}
    """For every statement that is not where it was: what became of it, for the commit of a dream."""


_BARE: Final = re.compile(r"[\s\-*+>|,;.:()\[\]]*")


class MemoryMove(msgspec.Struct, frozen=True):
    """A memory that is somewhere else now."""

    old: Topic
    new: Topic


def relink_files(files: StagedFiles, moves: list[MemoryMove]) -> None:
    """Every link to a memory that is gone leads to the one that has what it said."""
    if not moves:
        return
    still = frozenset(way for topic in files.active() for way in list_link_names(topic.file, topic.name))
    gone = {way: move for move in moves for way in list_link_names(move.old.file, move.old.name) - still}
    for topic in files.active():
        if explain_not_text(topic.data) or not (b"[[" in topic.data or b"](" in topic.data):
            continue
        text = decode_text(topic.data)
        new = _wiki(text, gone)
        for move in moves:
            new = relink_text(new, move.old.file, move.new.file)
        if new != text:
            files.put(topic.file, encode_text(new) + topic.data[len(encode_text(text)) :])
    files.index = _repointed(files, {make_file_key(move.old.file): move for move in moves})


def _repointed(files: StagedFiles, moves: dict[str, MemoryMove]) -> str:
    """The index without the lines of memories that are gone; what only those lines said is kept."""
    rows = split_rows(files.index)
    pointed = {make_file_key(link.file) for row in rows for link in row.links}
    out: list[str] = []
    for row in rows:
        text = row.text
        mine = [
            (one, moves[make_file_key(one.file)])
            for one in parse_pointers(row)
            if make_file_key(one.file) in moves
        ]
        if row.pointing and len(row.links) == 1 and mine:
            pointer, move = mine[0]
            if make_file_key(move.new.file) in pointed or move.new.file.startswith(ARCHIVE):
                save_hook(files, move.new.file, pointer.hook)
                continue
            pointed.add(make_file_key(move.new.file))
        for _, move in mine:
            text = relink_text(text, move.old.file, move.new.file)
        out.append(text)
    return "".join(out)


def save_hook(files: StagedFiles, file: str, hook: str) -> None:
    """Add what a line of the index says to its memory, unless the memory says it already."""
    topic = files.topic(file)
    text = " ".join(hook.split())
    if not text.strip("…. ") or has_hook(topic, text):
        return
    line = text if text[-1:] in ".!?。！？" else f"{text}."
    files.put(file, change_topic(topic, body=append_paragraph(topic.body, line)))


def has_hook(topic: Topic, text: str) -> bool:
    """True if a memory says what a hook says; one that was cut short is part of its description."""
    cut = text.rstrip("…").strip()
    if cut != text and shorten_text(topic.description, len(text)).startswith(cut):
        return True
    plain = " ".join(f"{topic.name} {topic.description} {topic.body}".split()).casefold()
    if cut.casefold().rstrip(".") in plain:
        return True
    sought = read_facts(f"{cut}\n".encode(), topic.file)
    shelf = StatementIndex({topic.file: topic.data})
    return bool(sought) and all(shelf.holder(one) for one in sought)


def count_links(files: StagedFiles, topic: Topic) -> int:
    """The number of other memories that link to this one."""
    ways = list_link_names(topic.file, topic.name)
    return sum(
        other.file != topic.file and any(make_link_key(link) in ways for link in other.links)
        for other in files.active()
    )


def _wiki(text: str, gone: Mapping[str, MemoryMove]) -> str:
    def rewrite(name: str, rest: str, found: re.Match[str]) -> str | None:
        move = gone.get(make_link_key(name)) or gone.get(make_slug(name))
        if move is None:
            return None
        by_name = make_link_key(name) == make_link_key(move.old.name)
        into = move.new.name if by_name else PurePosixPath(move.new.file).stem
        shown = rest if rest.startswith("|") else ""
        if not shown and _stands_alone(found.string, found):
            shown = f"|{name}"  # the name is all that this line says
        return f"[[{into}{shown}]]"

    return rewrite_wiki_links(text, rewrite)


def _stands_alone(text: str, found: re.Match[str]) -> bool:
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.end())
    line = text[start : found.start()] + text[found.end() : end if end >= 0 else len(text)]
    return _BARE.fullmatch(WIKI.sub("", line)) is not None


def relink_text(text: str, old: str, new: str) -> str:
    """A text whose markdown links to one file lead to another; a link never spans lines."""
    name = old.rpartition("/")[2]
    if "](" not in text or (name.isascii() and name.casefold() not in text.casefold() and "%" not in text):
        return text  # no link to this file can be there, as in most texts
    lines, plain = text.split("\n"), blank_out_code(text).split("\n")
    for at, line in enumerate(plain):
        for link in reversed(find_file_links(line)):
            if make_file_key(link.file) == make_file_key(old):
                raw = lines[at]
                lines[at] = raw[: link.start] + _aimed(raw[link.start : link.end], new) + raw[link.end :]
    return "\n".join(lines)


def _aimed(link: str, new: str) -> str:
    head, _, behind = link.rpartition("](")
    place = format_link_target(new)
    titled = re.search(r"[ \t]+(\"[^\"\n]*\"|'[^'\n]*')[ \t]*\)$", behind)
    tail = f" {titled[1]}" if titled else ""
    return f"{head}]({place}{tail})" if parse_local_file(place.strip("<>")) else link
