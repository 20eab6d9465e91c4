"""The memories of a folder as they are now; a file is read again only when its stamp is another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from sevenfold.errors import Refused, StorageFailure
from sevenfold.memory.folder.files import HEAD, MemoryFiles, Opened
from sevenfold.memory.folder.finding import meant
from sevenfold.memory.folder.ledger import file_time, settled
from sevenfold.memory.folder.listing import Listing, is_topic, listed
from sevenfold.memory.folder.naming import ENDING, INDEX_NAME, slug, wrong_with_file
from sevenfold.memory.folder.reaching import Stamp
from sevenfold.memory.topic import Topic, read_topic

LARGEST_INDEX: Final = 4 << 20
"""Bytes of an index that are looked at."""


class Reading:
    """Reads without the lock: every file is written whole, so there is never half of one to see."""

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files
        self._kept: dict[str, tuple[Stamp, Topic]] = {}

    def listing(self) -> Listing:
        """What is in the folder; nothing when it is not there."""
        try:
            with self._files.opened() as at:
                return listed(at)
        except FileNotFoundError:
            return Listing()

    def topics(self) -> list[Topic]:
        """Every memory, in the order of the files."""
        try:
            with self._files.opened() as at:
                now = listed(at)
                topics = list(self._current(at, ((file, now.files[file]) for file in now.topics)))
        except FileNotFoundError:
            return []
        kept = self._kept
        self._kept = {topic.file: kept[topic.file] for topic in topics if topic.file in kept}
        return topics

    def some(self, wanted: Iterable[str]) -> list[tuple[Topic, Stamp]]:
        """These memories, without those that are gone or cannot be read."""
        found = list[tuple[Topic, Stamp]]()
        try:
            with self._files.opened() as at:
                for file in wanted:
                    if is_topic(file) and not wrong_with_file(file) and (stamp := _stamp(at, file)):
                        found += [(topic, stamp) for topic in self._current(at, [(file, stamp)])]
        except FileNotFoundError:
            pass
        return found

    def get(self, asked: str) -> Topic:
        """The memory that is meant: by name, by file, or by a beginning that only one has."""
        for file in (asked, slug(asked) + ENDING):
            for topic, _ in self.some([file]):
                if asked in (file, topic.name):
                    return topic
        topics = {topic.file: topic for topic in self.topics()}
        return topics[meant(asked, {file: topic.name for file, topic in topics.items()})]

    def data(self, file: str) -> bytes:
        """The head of a file; `StorageFailure` when it is gone."""
        with self._files.opened() as at:
            return at.read(file, HEAD)[0]

    def index_text(self, file: str = INDEX_NAME) -> str:
        """An index as it is; empty when there is none."""
        try:
            with self._files.opened() as at:
                if at.stamp(file) is None:
                    return ""
                return at.read(file, LARGEST_INDEX)[0].decode("utf-8", "surrogateescape")
        except FileNotFoundError:
            return ""

    def _current(self, at: Opened, files: Iterable[tuple[str, Stamp]]) -> Iterable[Topic]:
        now = file_time()
        for file, stamp in files:
            kept = self._kept.get(file)
            if kept is None or kept[0] != stamp or not settled(stamp, now):
                if (kept := _read(at, file)) is None:
                    continue
                self._kept[file] = kept
            yield kept[1]


def _stamp(at: Opened, file: str) -> Stamp | None:
    try:
        return at.stamp(file)
    except (StorageFailure, Refused):
        return None


def _read(at: Opened, file: str) -> tuple[Stamp, Topic] | None:
    """A topic file; of a huge one the head. None when it went away just now.

    One that is there and cannot be read is a memory without a text, and says why.
    """
    try:
        data, stamp = at.read(file, HEAD)
    except (StorageFailure, Refused) as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        bare = read_topic(b"", file)
        return Stamp(0, 0, 0, 0), msgspec.structs.replace(bare, problems=(str(error),))
    topic = read_topic(data, file)
    if stamp.size > len(data):
        why = f"it has {stamp.size:,} bytes; only the first {HEAD:,} are read, so split it up"
        topic = msgspec.structs.replace(topic, problems=(*topic.problems, why))
    return stamp, topic
