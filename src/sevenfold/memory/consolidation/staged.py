"""The files of a memory folder while they are consolidated: read once, changed in memory, written once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from sevenfold.memory.dreams.draft import changeable
from sevenfold.memory.folder.files import HEAD, MemoryFiles
from sevenfold.memory.folder.listing import listed
from sevenfold.memory.folder.naming import INDEX_NAME, key
from sevenfold.memory.indexing import ARCHIVE
from sevenfold.memory.topic import Topic, read_topic
from sevenfold.memory.topics.frontmatter import find_frontmatter, whole
from sevenfold.memory.topics.reading import decoded, not_text

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
