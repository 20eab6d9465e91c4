"""The search index of a memory folder: kept beside it, made from its files, never the truth.

    index = SearchIndex(state, embedder)
    index.refresh(files, read)           every file with its time and size; only what changed is read
    index.build(read)                    vectors, in a thread of their own
    index.search("how do we test SQL?", 5)
    index.close()

It may be deleted at any time, by anyone, and comes again with the next `refresh`. Several processes may use
one folder. What it answers is what the last `refresh` of this object was told. Where it cannot be written
it answers from memory, and `problem` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sevenfold.core.clock import SystemClock
from sevenfold.core.protocols import Clock

if TYPE_CHECKING:
    from sevenfold.memory.search.collection import SearchCollection, VectorBuild
    from sevenfold.memory.search.embedding import Embedder
    from sevenfold.memory.search.scoring import RefreshReport, SearchHit, VectorProgress

FOLDER: Final = "search"
LIST: Final = "index.json"  # The list of what counts in that folder
PATIENCE: Final = 5.0  # Seconds to wait for another process that writes, before working in memory only
FORMAT: Final = "3"
"""Version of what an index holds. Raise it when words, passages or arrays change: indexes are made anew."""


class SearchIndex:
    """Nothing is read or started before it is asked for; `close` ends what was started."""

    def __init__(
        self,
        state: Path,
        embedder: Embedder | None = None,
        clock: Clock | None = None,
        *,
        patience: float = PATIENCE,
    ) -> None:
        self.folder = state / FOLDER
        self._embedder = embedder
        self._clock = clock or SystemClock()
        self._patience = patience
        self._opened: SearchCollection | None = None
        self._build: VectorBuild | None = None

    def __enter__(self) -> SearchIndex:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @property
    def problem(self) -> str:
        """The reason why the index is in memory only; empty when it is on the disk."""
        return self._opened.problem if self._opened else ""

    @property
    def exists(self) -> bool:
        """True if there is an index, in memory or on the disk; costs no more than a look."""
        return self._opened is not None or (self.folder / LIST).exists()

    def count_changed(self, files: Sequence[tuple[str, int, int]]) -> int:
        """The files that the index does not know as they are now."""
        if not self.exists:
            return len(files)
        known = self._collection().lexical.known
        return sum(known.get(listed[0]) != listed for listed in files)

    def count_missing(self) -> int:
        """The passages that have no vector yet."""
        return self._collection().waiting()[1] if self._embedder is not None else 0

    def refresh(
        self,
        files: Iterable[tuple[str, int, int]],
        read: Callable[[str], bytes],
        going: Callable[[], bool] = lambda: True,
    ) -> RefreshReport:
        """Take in what changed in these files: tuples of name, time in nanoseconds, size.

        It ends early when `going` says no, and keeps what it has.

        The time is compared and not understood, but for one thing: a file read within two seconds of it
        is read once more the next time, because a change right after would have had the same time. The
        later of the times of change and of inode change (`st_ctime_ns`) shows the most.
        """
        from sevenfold.memory.search.collection import refresh_collection

        return refresh_collection(self._collection(), files, read, self._clock, going)

    def search(
        self, query: str, limit: int = 5, skip: frozenset[str] = frozenset(), *, silent: bool = True
    ) -> list[SearchHit]:
        """The memories that answer this, the best first.

        Where the best of all is not good enough there is no answer; `silent=False` gives the ranking
        all the same, of whatever shares a word or a meaning with the question.
        """
        from sevenfold.memory.search.answers import answer_query

        return answer_query(self._collection(), self._embedder, query, limit, skip, silent=silent)

    def purge(self, file: str) -> None:
        """Leave nothing of this file on the disk; `StorageFailure` when that is not possible."""
        self._collection().purge(file)

    def build(
        self, read: Callable[[str], bytes], tell: Callable[[VectorProgress], None] | None = None
    ) -> None:
        """Start making the vectors that are missing; nothing happens while that is already going on.

        `read` and `tell` are called from another thread.
        """
        if self._embedder is None or (self._build and not self._build.wait(0)):
            return
        from sevenfold.memory.search.collection import VectorBuild
        from sevenfold.memory.search.segment import SegmentShelf

        collection = self._collection()
        self._build = VectorBuild(collection, SegmentShelf(self.folder), self._embedder, read, tell)
        self._build.start()

    def progress(self) -> VectorProgress:
        """The progress of `build`."""
        from sevenfold.memory.search.scoring import VectorProgress

        return self._build.progress if self._build else VectorProgress()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for `build`; True when it has ended."""
        return self._build is None or self._build.wait(timeout)

    def close(self) -> None:
        """End the making of vectors; those that are made are kept. The index can be used further."""
        if self._build is not None:
            self._build.stop()

    def _collection(self) -> SearchCollection:
        if self._opened is None:
            from sevenfold.memory.search.collection import SearchCollection

            name, dimensions = "", 0
            if self._embedder is not None:
                name, dimensions = self._embedder.name, self._embedder.dimensions
            self._opened = SearchCollection(
                self.folder, FORMAT, embedder=name, dimensions=dimensions, patience=self._patience
            )
            self._opened.sync()
        return self._opened
