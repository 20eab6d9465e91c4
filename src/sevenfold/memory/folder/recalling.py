"""Finding memories: keeps the search index in step with the files, and turns hits into memories.

Looking at every file costs about four microseconds each. That is done at once when a folder's own time
says that something came or went, and otherwise now and then, so that it takes a small part of the time
at most; for very many files in the background. A file that an editor changes in place is thus found by
its new words a moment later.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sevenfold.errors import Refused, StorageFailure
from sevenfold.memory.folder.files import MemoryFiles, Opened
from sevenfold.memory.folder.listing import Listing, listed
from sevenfold.memory.folder.reaching import Stamp
from sevenfold.memory.folder.reading import Reading
from sevenfold.memory.recalled import Recalled
from sevenfold.memory.search.index import SearchIndex
from sevenfold.memory.topic import Topic

if TYPE_CHECKING:
    from sevenfold.memory.search.answers import Progress
    from sevenfold.memory.search.embedding import Embedder

SHARE: Final = 0.05
"""The part of the time that may go into looking at files that have probably not changed."""
MEANING_FROM: Final = 10
"""From so many memories on they are found by meaning too: of fewer, the index shows every one."""
AT_ONCE: Final = 0.02
"""Seconds: a look that takes longer than this is taken in the background."""


class Recalling:
    """The way to the memories that answer a question."""

    def __init__(
        self,
        files: MemoryFiles,
        reading: Reading,
        state: Path,
        embedder: Embedder | None,
        say: Callable[[str], None],
    ) -> None:
        self.index = SearchIndex(state, embedder)
        self._files, self._reading, self._say = files, reading, say
        self._folders: dict[str, int] = {}
        self._looked, self._took = 0.0, 0.0
        self._stale, self._built = True, False
        self._thread: threading.Thread | None = None
        self._one = threading.Lock()

    def changed(self) -> None:
        """Something was written: look before the next answer."""
        self._stale = True

    def find(
        self, query: str, limit: int, skip: frozenset[str] = frozenset(), *, silent: bool = True
    ) -> list[Recalled]:
        """The memories that answer this, the best first; none is a good answer too.

        Without `silent` it is everything that shares a word with it.
        """
        if not query.strip() or limit < 1:
            return []
        self._keep_in_step()
        found = self.index.search(query, limit, skip, silent=silent)
        if not silent:  # what shares only a meaning with it has to answer it
            found = [hit for hit in found if hit.lexical > 0] or self.index.search(
                query, limit, skip
            )
        hits = {hit.file: hit.score for hit in found}
        return [
            self._recalled(topic, stamp, hits[topic.file])
            for topic, stamp in self._reading.some(hits)
        ]

    def newest(self, most: int) -> list[Recalled]:
        """The memories that were changed last, the newest first."""
        files = self._reading.listing().files
        topics = sorted(self._reading.topics(), key=lambda t: -files[t.file].modified)
        return [self._recalled(topic, files[topic.file], 0.0) for topic in topics[:most]]

    def prepare(self) -> None:
        """Look at every file, and open what a search needs."""
        self.look()
        self.index.search("warm up", 1)

    def _recalled(self, topic: Topic, stamp: Stamp, score: float) -> Recalled:
        return Recalled(
            name=topic.name,
            file=topic.file,
            path=self._files.folder / topic.file,
            type=topic.type,
            description=topic.description,
            modified=stamp.modified / 1e9,
            score=score,
            text=topic.body,
        )

    def purge(self, file: str) -> None:
        self.index.purge(file)
        self._stale = True

    def look(self) -> None:
        """Look at every file now."""
        with self._one:
            began = time.perf_counter()
            self._stale = False
            try:
                with self._files.opened() as at:
                    before = _times(at, ["", *self._folders])
                    now = listed(at)
                    self._folders = {**_times(at, now.folders), **before}
                    self._refresh(at, now)
            except FileNotFoundError:
                self._folders = {}
                self.index.refresh([], self._reading.data)
            self._looked = time.perf_counter()
            self._took = self._looked - began

    def settled(self, seconds: float) -> bool:
        """Wait until every memory can be found by its meaning too; False when that takes longer."""
        self._keep_in_step()
        return self.index.wait(seconds)

    def build(self, tell: Callable[[Progress], None] | None = None) -> None:
        """Make the vectors that are missing, in the background; `tell` hears how far it is."""
        self.look()
        self.index.build(self._reading.data, tell)

    def close(self) -> None:
        """Wait for what goes on in the background."""
        if self._thread is not None:
            self._thread.join()
        self.index.close()

    def _refresh(self, at: Opened, now: Listing) -> None:
        files = (
            (file, max(now.files[file].modified, now.files[file].changed), now.files[file].size)
            for file in now.topics
        )
        known = self.index.refresh(files, lambda file: at.read(file)[0])
        if len(now.topics) >= MEANING_FROM and (not self._built or known.added or known.changed):
            self._built = True
            self.index.build(self._reading.data)
        if self.index.problem:
            self._say(self.index.problem)

    def _keep_in_step(self) -> None:
        if self._stale or self._moved():
            self.look()
        elif time.perf_counter() - self._looked > self._took / SHARE:
            if self._took < AT_ONCE:
                self.look()
            elif self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._look_quietly, daemon=True)
                self._thread.start()

    def _look_quietly(self) -> None:
        try:
            self.look()
        except (StorageFailure, Refused) as error:
            self._stale = True  # the next answer fails with it, where somebody hears it
            self._say(str(error))

    def _moved(self) -> bool:
        try:
            with self._files.opened() as at:
                return _times(at, list(self._folders)) != self._folders
        except FileNotFoundError:
            return bool(self._folders)


def _times(at: Opened, folders: Iterable[str]) -> dict[str, int]:
    """When something last came into each of these folders, or went."""
    times = dict[str, int]()
    for name in folders:
        try:
            with at.folder(name) as place:
                found = (at.real / name).stat() if place is None else os.fstat(place)
        except (OSError, Refused):
            times[name] = 0
        else:
            times[name] = found.st_mtime_ns
    return times
