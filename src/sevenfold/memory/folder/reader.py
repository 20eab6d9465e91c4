"""Reads memories, and recalls them.

`FolderReader` reads a file again only if its stamp changed. `RecallReader` keeps the search index in
step with the files and turns hits into memories.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from sevenfold.core.errors import Refused, StorageFailure
from sevenfold.memory.backend import HEAD, FileStamp, FolderListing, MemoryBackend, OpenMemories, is_topic
from sevenfold.memory.folder.folder import FolderPart, is_settled, read_file_clock
from sevenfold.memory.folder.names import ENDING, INDEX_NAME, explain_bad_file, find_meant_file, make_slug
from sevenfold.memory.recall_results import Recalled
from sevenfold.memory.search.index import SearchIndex

if TYPE_CHECKING:
    from sevenfold.memory.search.embedding import Embedder
    from sevenfold.memory.search.scoring import SearchHit, VectorProgress
    from sevenfold.memory.topic_file import Topic

LARGEST_INDEX: Final = 4 << 20  # Bytes of an index that are looked at


class FolderReader:
    """Reads without the lock: every file is written whole, so there is never half of one to see."""

    def __init__(self, files: MemoryBackend) -> None:
        self._files = files
        self._kept: dict[str, tuple[FileStamp, Topic]] = {}

    def listing(self) -> FolderListing:
        """The content of the folder; empty if there is none."""
        try:
            with self._files.opened() as at:
                return at.list()
        except FileNotFoundError:
            return FolderListing()

    def topics(self) -> list[Topic]:
        """Every memory, in the order of the files."""
        try:
            with self._files.opened() as at:
                now = at.list()
                topics = list(self._current(at, ((file, now.files[file]) for file in now.topics)))
        except FileNotFoundError:
            return []
        kept = self._kept
        self._kept = {topic.file: kept[topic.file] for topic in topics if topic.file in kept}
        return topics

    def some(self, wanted: Iterable[str]) -> list[tuple[Topic, FileStamp]]:
        """These memories, without those that are gone or cannot be read."""
        found: list[tuple[Topic, FileStamp]] = []
        try:
            with self._files.opened() as at:
                for file in wanted:
                    if is_topic(file) and not explain_bad_file(file) and (stamp := _stamp(at, file)):
                        found += [(topic, stamp) for topic in self._current(at, [(file, stamp)])]
        except FileNotFoundError:
            pass
        return found

    def get(self, asked: str) -> Topic:
        """The memory that is meant: by name, by file, or by a beginning that only one has."""
        for file in (asked, make_slug(asked) + ENDING):
            for topic, _ in self.some([file]):
                if asked in (file, topic.name):
                    return topic
        topics = {topic.file: topic for topic in self.topics()}
        return topics[find_meant_file(asked, {file: topic.name for file, topic in topics.items()})]

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

    def make_index(self, part: FolderPart, times: Mapping[str, float]) -> str:
        """An index of the memories of a part. `times` are those of its files, as the index calls them."""
        names = {file: "" for file in times if part.lists(part.outer(file))}
        if not names:
            return ""
        from sevenfold.memory.index_update import complete_index

        def read(file: str) -> Topic | None:
            found = self.some([part.outer(file)])
            return msgspec.structs.replace(found[0][0], file=file) if found else None

        return complete_index("", names, (), recency=times.__getitem__, read=read)

    def _current(self, at: OpenMemories, files: Iterable[tuple[str, FileStamp]]) -> Iterable[Topic]:
        now = read_file_clock()
        for file, stamp in files:
            kept = self._kept.get(file)
            if kept is None or kept[0] != stamp or not is_settled(stamp, now):
                if (kept := _read(at, file)) is None:
                    continue
                self._kept[file] = kept
            yield kept[1]


def _stamp(at: OpenMemories, file: str) -> FileStamp | None:
    try:
        return at.stamp(file)
    except (StorageFailure, Refused):
        return None


def _read(at: OpenMemories, file: str) -> tuple[FileStamp, Topic] | None:
    """A topic file; of a huge one the head. None when it went away just now.

    One that is there and cannot be read is a memory without a text, and says why.
    """
    from sevenfold.memory.topic_file import read_topic

    try:
        data, stamp = at.read(file, HEAD)
    except (StorageFailure, Refused) as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        bare = read_topic(b"", file)
        return FileStamp(0, 0, 0, 0), msgspec.structs.replace(bare, problems=(str(error),))
    topic = read_topic(data, file)
    if stamp.size > len(data):
        why = f"it has {stamp.size:,} bytes; only the first {HEAD:,} are read, so split it up"
        topic = msgspec.structs.replace(topic, problems=(*topic.problems, why))
    return stamp, topic


SHARE: Final = 0.05  # The part of the time that may go into looking at files that have probably not changed
MEANING_FROM: Final = 10
"""From so many memories on they are found by meaning too: of fewer, the index shows every one."""
AT_ONCE: Final = 0.02  # Seconds: a look that takes longer than this is taken in the background
FEW: Final = 100  # New files that are read before an answer; more are read in the background
SCAN_SECONDS: Final = 0.2  # The time to look through files that are not in the index yet
MOMENT: Final = 0.1  # The time that an answer waits for the vectors of a few new memories, in seconds
SCANNED: Final = 16_384  # Bytes of a file that are looked through then


class RecallReader:
    """Finds the memories that answer a question."""

    def __init__(
        self,
        files: MemoryBackend,
        reading: FolderReader,
        embedder: Embedder | None,
        say: Callable[[str], None],
    ) -> None:
        self.index = SearchIndex(files.local, embedder)
        self._files, self._reading, self._say = files, reading, say
        self._folders: dict[str, int] = {}
        self._listed: list[tuple[str, int, int]] = []
        self._looked, self._took = 0.0, 0.0
        self._stale, self._built = True, False
        self._behind: tuple[str, ...] = ()  # All files, the newest first, while many are not in the index
        self._thread: threading.Thread | None = None
        self._one = threading.Lock()
        self._stopping = threading.Event()

    def changed(self) -> None:
        """Something was written: look before the next answer."""
        self._stale = True

    def find(
        self,
        query: str,
        limit: int,
        skip: frozenset[str] = frozenset(),
        *,
        silent: bool = True,
        wait: float | None = 0.0,
    ) -> list[Recalled]:
        """The memories that answer this, the best first; often there are none.

        Without `silent` it is everything that shares a word with it. `wait` is the time for the index to
        be complete, in seconds; None: a moment, if few memories are new.
        """
        if not query.strip() or limit < 1:
            return []
        self._keep_in_step()
        if wait is None:
            few = not self._behind and self._built and 0 < self.index.count_missing() <= FEW
            wait = MOMENT if few else 0.0
        if wait:
            self.settled(wait)
        if self._behind:
            found = self._scan(query, limit, skip, silent=silent)
            self._catch_up()
        else:
            found = self._search(query, limit, skip, silent=silent)
        hits = {hit.file: hit.score for hit in found}
        return [self._recalled(topic, stamp, hits[topic.file]) for topic, stamp in self._reading.some(hits)]

    def _search(self, query: str, limit: int, skip: frozenset[str], *, silent: bool) -> list[SearchHit]:
        found = self.index.search(query, limit, skip, silent=silent)
        if silent:
            return found
        # What shares only a meaning with it has to answer it.
        return [hit for hit in found if hit.lexical > 0] or self.index.search(query, limit, skip)

    def _scan(self, query: str, limit: int, skip: frozenset[str], *, silent: bool) -> list[SearchHit]:
        """By words alone, from the files themselves, the newest first."""
        from sevenfold.memory.search.scan import search_files

        until = time.perf_counter() + SCAN_SECONDS
        try:
            with self._files.opened() as at:
                return search_files(
                    self._behind,
                    lambda file: at.read(file, SCANNED)[0],
                    query,
                    limit,
                    skip,
                    silent=silent,
                    going=lambda: time.perf_counter() < until,
                )
        except FileNotFoundError:
            return []

    def newest(self, most: int) -> list[Recalled]:
        """The memories that were changed last, the newest first."""
        files = self._reading.listing().files
        topics = sorted(self._reading.topics(), key=lambda t: -files[t.file].modified)
        return [self._recalled(topic, files[topic.file], 0.0) for topic in topics[:most]]

    def prepare(self) -> None:
        """Look at every file, and open what a search needs; many new files are read in the background."""
        self.look()
        if self._behind:
            self._catch_up()
        else:
            self.index.search("how to warm up?", 1)

    def _recalled(self, topic: Topic, stamp: FileStamp, score: float) -> Recalled:
        return Recalled(
            name=topic.name,
            file=topic.file,
            path=self._files.path_of(topic.file),
            type=topic.type,
            description=topic.description,
            modified=stamp.modified / 1e9,
            score=score,
            text=topic.body,
        )

    def purge(self, file: str) -> None:
        self.index.purge(file)
        self._stale = True

    def look(self, *, whole: bool = False) -> None:
        """Look at every file now; many new ones are left for the background, unless with `whole`."""
        with self._one:
            began = time.perf_counter()
            self._stale = False
            try:
                with self._files.opened() as at:
                    before = at.versions(["", *self._folders])
                    now = at.list()
                    self._folders = {**at.versions(now.folders), **before}
                    self._refresh(at, now, whole=whole)
            except FileNotFoundError:
                self._folders, self._behind = {}, ()
                if self.index.exists:
                    self.index.refresh([], self._reading.data)
            self._looked = time.perf_counter()
            self._took = self._looked - began

    def settled(self, seconds: float) -> bool:
        """Wait until every memory can be found by its meaning too; False when that takes longer."""
        until = time.perf_counter() + seconds
        self._keep_in_step()
        if self._behind:
            self._catch_up().join(seconds)
        if self._behind:
            return False
        return self.index.wait(max(0.0, until - time.perf_counter()))

    def describe_progress(self) -> str:
        """A line for people about what is being built; empty when everything is."""
        if self._behind:
            done = len(self._behind) - self.index.count_changed(self._listed)
            return f"{done:,} of {len(self._behind):,} memories are in the index"
        return "" if self.index.wait(0) else str(self.index.progress())

    def build(self, tell: Callable[[VectorProgress], None] | None = None) -> None:
        """Build missing vectors in the background; `tell` is called with the progress."""
        self.look(whole=True)
        self.index.build(self._reading.data, tell)

    def close(self) -> None:
        """End what goes on in the background; what is done is kept, and the next process goes on."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self.index.close()
        self._stopping.clear()

    def _refresh(self, at: OpenMemories, now: FolderListing, *, whole: bool) -> None:
        listed = self._listed = _list_topics(now)
        if not whole and len(listed) > FEW and self.index.count_changed(listed) > FEW:
            self._behind = _sort_newest_first(listed)
            return
        known = self.index.refresh(
            listed, lambda file: at.read(file)[0], lambda: not self._stopping.is_set()
        )
        if self._stopping.is_set():
            return
        self._behind = ()
        if len(now.topics) >= MEANING_FROM and (not self._built or known.added or known.changed):
            self._built = True
            self.index.build(self._reading.data)
        if self.index.problem:
            self._say(self.index.problem)

    def _list_newest(self) -> tuple[str, ...]:
        return _sort_newest_first(_list_topics(self._reading.listing()))

    def _catch_up(self) -> threading.Thread:
        """Read what is not in the index yet, in the background."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._look_quietly, name="index", daemon=True)
            self._thread.start()
        return self._thread

    def _keep_in_step(self) -> None:
        if self._behind and self._thread is not None and self._thread.is_alive():
            if self._stale or self._moved():  # all files are being read; the list of them is renewed
                self._behind = self._list_newest()
            return
        if self._stale or self._moved():
            self.look()
        elif time.perf_counter() - self._looked > self._took / SHARE:
            if self._took < AT_ONCE:
                self.look()
            else:
                self._catch_up()

    def _look_quietly(self) -> None:
        try:
            self.look(whole=True)
        except (StorageFailure, Refused) as error:
            self._stale = True  # the next recall raises the error
            self._say(str(error))

    def _moved(self) -> bool:
        try:
            with self._files.opened() as at:
                return at.versions(list(self._folders)) != self._folders
        except FileNotFoundError:
            return bool(self._folders)


def _list_topics(now: FolderListing) -> list[tuple[str, int, int]]:
    """The memories as the search index compares them: file, time, size."""
    return [
        (file, max(now.files[file].modified, now.files[file].changed), now.files[file].size)
        for file in now.topics
    ]


def _sort_newest_first(listed: list[tuple[str, int, int]]) -> tuple[str, ...]:
    return tuple(file for file, _, _ in sorted(listed, key=lambda one: one[1], reverse=True))
