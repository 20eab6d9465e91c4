"""The search index as it is in memory, kept in step with the memory files and with the shelf.

Whatever is on the shelf was made from the files and can be made again: a missing, damaged or foreign list
or file means starting anew, never an error. Where the shelf cannot be written (read-only disk, full disk,
a lock that is not let go), changes stay in memory and the answers are the same.

A refresh compares with the files and reads what differs, until nothing does. A thread makes the vectors of
passages that have none.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import numpy as np

from sevenfold.core.errors import SevenfoldError, StorageFailure
from sevenfold.core.protocols import Clock
from sevenfold.memory.search import ranking as parts
from sevenfold.memory.search.ranking import LexicalIndex, ListedFile, VectorIndex, VectorPart
from sevenfold.memory.search.scoring import RefreshReport, VectorProgress, read_texts
from sevenfold.memory.search.segment import (
    EMBEDDING,
    Array,
    DamagedSegment,
    IndexedFile,
    IndexedStamp,
    Segment,
    SegmentShelf,
    ShelfContents,
    build_segment,
    digest_text,
    encode_contents,
    hash_text,
    parse_contents,
    read_pieces,
    unpack_segment,
)
from sevenfold.storage.files import make_storage_failure

if TYPE_CHECKING:
    from sevenfold.memory.search.embedding import Embedder

LONGER: Final = 12  # A purge waits this many times as long for another writer: it has to be on the disk
_TRIES: Final = 5


class SearchCollection:
    """Segments and vectors in memory; every change goes to the shelf where that is possible."""

    def __init__(
        self, folder: Path, made: str, *, embedder: str = "", dimensions: int = 0, patience: float
    ) -> None:
        self.lexical, self.meaning = LexicalIndex(), VectorIndex()
        self.looking = threading.RLock()
        """Held while the state in memory is read or changed: for milliseconds."""
        self.problem = ""
        """The reason why the shelf could not be written the last time; empty when it could."""
        self.version = 0  # Another one after every change of what is said about files
        self._changing = threading.RLock()
        self._shelf = SegmentShelf(folder)
        self._raw = b""
        self._made = made
        self._embedder, self._dimensions, self._patience = embedder, dimensions, patience

    # -- what is on the shelf

    def sync(self) -> None:
        """Take over what another process has written."""
        with self._changing:
            for _ in range(_TRIES):
                raw = self._shelf.raw()
                if raw == self._raw:
                    return
                try:
                    contents = parse_contents(raw) or ShelfContents(self._made)
                    self._install(raw, self._words(contents), self._vectors(contents))
                except OSError:
                    if self._shelf.raw() != raw:  # another process wrote a new list while we read
                        continue
                    self._install(raw, LexicalIndex(), VectorIndex())
                return

    def _words(self, contents: ShelfContents) -> LexicalIndex:
        """The segments on the shelf; none when one of them is damaged or they are by other code."""
        here = {segment.name: segment for segment in self.lexical.segments if segment.name}
        lexical = LexicalIndex()
        if contents.made == self._made:
            try:
                for name in contents.segments:
                    lexical.add(here.get(name) or unpack_segment(name, *self._shelf.get(name)))
            except DamagedSegment:
                return LexicalIndex()
        return lexical

    def _vectors(self, contents: ShelfContents) -> VectorIndex:
        """The vectors on the shelf; none when one of them is damaged or they are another embedder's."""
        if not self._embedder or contents.embedder != self._embedder:
            return VectorIndex()
        here = {part.name: part for part in self.meaning.parts if part.name}
        found: list[VectorPart] = []
        try:
            for name in contents.vectors:
                part = here.get(name)
                if part is None:
                    part = parts.unpack_vectors(name, self._shelf.get(name)[1], self._dimensions)
                found.append(part)
        except (DamagedSegment, OSError):
            return VectorIndex()
        return VectorIndex(found) if [*here] != [part.name for part in found] else self.meaning

    def _install(self, raw: bytes, lexical: LexicalIndex, meaning: VectorIndex) -> None:
        with self.looking:
            self._raw, self.lexical, self.meaning = raw, lexical, meaning
            self.version += 1

    @contextmanager
    def writing(self, times: int = 1, *, together: bool = True) -> Iterator[bool]:
        """True when changes may be written; the state is then what the shelf has.

        Not together with others means in memory only, where they cannot come in between.
        """
        if not together:
            with self._changing:
                self.problem = "other processes keep changing it"
                yield False
            return
        with self._locked(times) as mine:
            if mine:
                self.sync()
            yield mine

    @contextmanager
    def _locked(self, times: int = 1) -> Iterator[bool]:
        with self._changing, ExitStack() as stack:
            mine = False
            try:
                mine = stack.enter_context(self._shelf.alone(times * self._patience))
                if not mine:
                    self.problem = "another process keeps it locked"
            except OSError as error:
                self.problem = self._why(error)
            yield mine

    def _save(self) -> None:
        """Write what is in memory only, then the list. Only while writing."""
        contents = self._put([*self.lexical.segments, *self.meaning.parts], self._contents)
        if contents is not None:
            self._raw, self.problem = encode_contents(contents), ""

    def _put(
        self, parts: Sequence[Segment | VectorPart], now: Callable[[], ShelfContents]
    ) -> ShelfContents | None:
        """Those in memory only, and then the list as it is now; None when the disk refused."""
        new = [part for part in parts if not part.name]
        try:
            for part in new:
                kind = "words" if isinstance(part, Segment) else "vectors"
                part.name = self._shelf.put(kind, *part.packed())
            contents = now()
            self._shelf.enter(contents)
            self._shelf.sweep(contents)
        except OSError as error:
            self.problem = self._why(error)
            for part in new:  # nobody lists them, so the next writer sweeps them away
                part.name = ""
            return None
        return contents

    def _why(self, error: OSError) -> str:
        return str(make_storage_failure(error, error.filename2 or error.filename or self._shelf.folder))

    def _contents(self) -> ShelfContents:
        words = tuple(segment.name for segment in self.lexical.segments)
        before = parse_contents(self._raw)
        if not self._embedder and before is not None:  # somebody else's vectors: left as they are
            return ShelfContents(self._made, words, before.embedder, before.vectors)
        return ShelfContents(
            self._made, words, self._embedder, tuple(part.name for part in self.meaning.parts)
        )

    def _merge_words(self) -> None:
        """Many small segments become one; in memory, to be saved."""
        at = self.lexical.tail()
        if at is not None:
            segment = self.lexical.joined(at)
            self.meaning.learn(segment, self.lexical.segments[:at])
            with self.looking:
                self.lexical.swap(at, segment)

    def _merge_vectors(self, *, complete: bool) -> None:
        """The same for vectors; those of files that are gone go when all files are known."""
        if not self.meaning.parts:
            return
        used = self.meaning.used(self.lexical)
        if not complete:
            used[:] = True
        at = self.meaning.tail(used)
        if at is not None:
            self.meaning = self.meaning.replaced(at, used, self.lexical)

    def take(self, segment: Segment, *, mine: bool, complete: bool) -> None:
        """Add what is new; on the shelf when it is ours to write. Only while writing."""
        with self.looking:
            self.lexical.add(segment)
            self.version += 1
        self._merge_words()
        if complete:
            self._merge_vectors(complete=True)
        if mine:
            self._save()

    def purge(self, file: str) -> None:
        """Leave no trace of this file on the disk. Raises `StorageFailure` when that cannot be done."""
        with self.writing(LONGER) as mine:
            with self.looking:
                self.lexical.forget(file)
                self.version += 1
                if self.lexical.segments:
                    self.lexical.swap(0, self.lexical.joined(0))
            if self.meaning.parts:
                used = self.meaning.used(self.lexical)
                self.meaning = self.meaning.replaced(0, used, self.lexical)
            left: list[Path] = []
            if mine:
                if not self._embedder:  # which vectors are the file's is not known here: all go
                    self._raw = b""
                self._save()
                left = self._shelf.sweep(self._contents())
            if left or (self.problem and self._shelf.folder.exists()):
                why = self.problem or f"{left[0].name} could not be removed"
                raise StorageFailure(
                    f"{file} is still in the search index {self._shelf.folder}: {why}; "
                    "remove that folder, it is made again by itself"
                )

    # -- the vectors

    def waiting(self) -> tuple[list[str], int]:
        """Files with passages that have no vector yet, the newest first; how many such passages."""
        with self.looking:
            segments, meaning = list(self.lexical.segments), self.meaning
            living = [self.lexical.living(at) for at in range(len(segments))]
        count = 0
        found: list[tuple[int, str]] = []
        for segment, alive, rows in zip(segments, living, meaning.rows(segments), strict=True):
            lacking = alive & (rows < 0) & (segment.keys != 0)
            if not lacking.any():
                continue  # `np.unique` loads a part of numpy that nothing else here needs
            count += int(lacking.sum())
            owners = np.unique(segment.owner[lacking])
            found += zip(segment.stamps[owners].tolist(), (segment.files[at] for at in owners), strict=True)
        return [file for _, file in sorted(found, reverse=True)], count

    def lacking(self, file: str) -> set[int]:
        """The keys of its passages that have no vector yet."""
        with self.looking:
            if (place := self.lexical.place(file)) is None:
                return set()
            at, units = self.lexical.units(place)
            keys = self.lexical.segments[at].keys[units]
            return set(keys[(self.meaning.find(keys) < 0) & (keys != 0)].tolist())

    def sync_vectors(self) -> None:
        """Take over the vectors another process has made, and leave the rest as it is."""
        with self._changing:
            contents = parse_contents(self._shelf.raw())
            if contents is not None:
                self.meaning = self._vectors(contents)

    def add_vectors(self, keys: Array, matrix: Array) -> None:
        """Take in these vectors, as far as they belong to a passage that is still there.

        What another process has written about files is left for the next `refresh_collection`: what
        is answered does not change under the feet of who asks.
        """
        with self._locked() as mine:
            raw = self._shelf.raw() if mine else self._raw
            contents = parse_contents(raw) if mine else None
            there = self.lexical
            if contents is not None and raw != self._raw:
                there = self._words(contents)
                self.meaning = self._vectors(contents)
            self._extend(parts.make_vectors(keys, matrix), there)
            if contents is not None and contents.made == self._made:
                self._save_vectors(contents, raw)

    def _extend(self, part: VectorPart, there: LexicalIndex) -> None:
        here = [s.keys[there.living(at)] for at, s in enumerate(there.segments)]
        wanted = self.meaning.find(part.keys) < 0
        wanted &= np.isin(part.keys, np.concatenate(here)) if here else False
        if wanted.any():
            self.meaning = self.meaning.extended(part.those(wanted), self.lexical)
            self._merge_vectors(complete=False)

    def _save_vectors(self, contents: ShelfContents, raw: bytes) -> None:
        """Enter our vectors into a list whose segments may be another process's."""

        def now() -> ShelfContents:
            names = tuple(part.name for part in self.meaning.parts)
            return msgspec.structs.replace(contents, embedder=self._embedder, vectors=names)

        new = self._put(self.meaning.parts, now)
        if new is not None and raw == self._raw:
            self._raw = encode_contents(new)


ReadFile: TypeAlias = Callable[[str], bytes]

CHUNK: Final = 1_000
"""Files that are read before what was made of them is written: so much is lost when the process dies."""
GRANULARITY: Final = 2.0
"""Seconds between a write and a reading of the file below which its time may not tell them apart."""
_PATIENCE: Final = 10
"""Work in memory after others undid our work this often (they know other files than we)."""


@dataclass(slots=True)
class _SyncWork:
    """One look at the files, and what became of them."""

    listing: Mapping[str, ListedFile]
    read: ReadFile
    clock: Clock
    going: Callable[[], bool]
    added: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)
    checked: set[str] = field(default_factory=set)  # Files that were read: their text is known for sure


def refresh_collection(
    collection: SearchCollection,
    files: Iterable[ListedFile],
    read: ReadFile,
    clock: Clock,
    going: Callable[[], bool] = lambda: True,
) -> RefreshReport:
    """Make the index say what these files say; only what changed is read.

    It ends early when `going` says no; what was read until then is kept.

    Another process that was shown other files may write in between; so it is compared again until all
    is as listed, and after too many rounds finished in memory, where nobody else writes.
    """
    work = _SyncWork({listed[0]: listed for listed in files}, read, clock, going)
    rounds = _PATIENCE + 2 * len(work.listing) // CHUNK
    collection.sync()
    version, (stale, gone) = collection.version, _differs(collection, work)
    while (stale or gone) and going():
        rounds -= 1
        with collection.writing(together=rounds > 0) as mine:
            if collection.version != version:
                stale, gone = _differs(collection, work)
            segment = _taken(collection, work, stale[:CHUNK], gone)
            if segment is not None:
                collection.take(segment, mine=mine, complete=len(stale) <= CHUNK and going())
            if len(stale) <= CHUNK:  # nobody came in between: now all is as listed
                break
        version, (stale, gone) = collection.version, _differs(collection, work)
    found = (work.added, work.changed, work.removed, work.unreadable)
    return RefreshReport(*(tuple(sorted(files)) for files in found))


def _differs(collection: SearchCollection, work: _SyncWork) -> tuple[list[str], set[str]]:
    """The files that have to be read (not known so, or not known for sure), and those that are gone."""
    known, fresh, listing = collection.lexical.known, collection.lexical.fresh, work.listing
    if known == listing:
        return [file for file in fresh if file not in work.checked], set()
    stale = [file for file, now in listing.items() if known.get(file) != now]
    stale += [file for file in fresh if file not in work.checked and file in listing]
    if work.unreadable:
        stale = [file for file in stale if file not in work.unreadable]
    return list(dict.fromkeys(stale)), known.keys() - listing.keys()


def _taken(
    collection: SearchCollection, work: _SyncWork, files: Sequence[str], gone: set[str]
) -> Segment | None:
    """The files as a segment; None when it says nothing new."""
    lexical = collection.lexical
    rows: list[IndexedFile] = []
    stamped: list[IndexedStamp] = []
    for file in files:
        if not work.going():
            break
        old = lexical.known.get(file)
        try:
            data = work.read(file)
        except (OSError, SevenfoldError):
            work.unreadable.add(file)
            if old is not None:  # what it said may no longer be so
                gone.add(file)
            continue
        work.checked.add(file)
        stamp = _stamp(work.clock, *work.listing[file])
        key = digest_text(data)
        if old is None or lexical.digest(file) != key:
            rows.append(IndexedFile(stamp, key, read_pieces(data, file)))
            (work.added if old is None else work.changed).add(file)
        elif old != work.listing[file] or stamp.fresh != (file in lexical.fresh):
            stamped.append(stamp)
    work.removed |= gone
    return build_segment(rows, gone, stamped) if rows or stamped or gone else None


def _stamp(clock: Clock, file: str, mtime_ns: int, size: int) -> IndexedStamp:
    near = abs(clock.now() - mtime_ns / 1e9) <= GRANULARITY
    return IndexedStamp(file, mtime_ns, size, near)


BATCH: Final = 256  # Passages the embedder is given at once
KEEP: Final = 8_192  # Vectors that are made before they are written, or
KEEP_SECONDS: Final = 5.0  # the seconds before they are: so much is lost when the process dies
_LOOK: Final = 0.2  # Seconds between two looks whether another process is done with them


class VectorBuild:
    """One thread that ends when every passage has its vector, or when it is told to."""

    def __init__(
        self,
        collection: SearchCollection,
        shelf: SegmentShelf,
        embedder: Embedder,
        read: ReadFile,
        tell: Callable[[VectorProgress], None] | None = None,
    ) -> None:
        self._collection, self._shelf = collection, shelf
        self._embedder, self._read, self._tell = embedder, read, tell
        self._stop = threading.Event()
        self._made: dict[int, Array] = {}
        self._kept = self._began = 0.0
        self._progress = VectorProgress(running=True)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run_to_end, name="vectors", daemon=True)

    def start(self) -> None:
        atexit.register(self.stop)  # a thread that is still at work when Python ends would end it badly
        self._thread.start()

    def stop(self) -> None:
        """Ends after the batch that is being made."""
        atexit.unregister(self.stop)
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def wait(self, timeout: float | None = None) -> bool:
        """True when it has ended. It may not have begun yet: another thread can ask at once."""
        return self._ended.wait(timeout)

    @property
    def progress(self) -> VectorProgress:
        return self._progress

    def _run_to_end(self) -> None:
        try:
            self._run()
        finally:
            self._ended.set()

    def _run(self) -> None:
        problem = ""
        try:
            with ExitStack() as stack:
                if self._turn(stack):
                    self._all()
        except (SevenfoldError, OSError, ValueError, RuntimeError) as error:
            problem = str(error) or type(error).__name__
        self._say(running=False, problem=problem)
        atexit.unregister(self.stop)

    def _turn(self, stack: ExitStack) -> bool:
        """Wait until no other process makes the same vectors; False when there is nothing left to do."""
        while not self._stop.is_set():
            self._collection.sync_vectors()
            if not self._collection.waiting()[1]:
                return False
            try:
                if stack.enter_context(self._shelf.alone(0, EMBEDDING)):
                    return True
            except OSError:  # no disk to lock on: made for this process alone
                return True
            stack.pop_all().close()
            self._stop.wait(_LOOK)
        return False

    def _all(self) -> None:
        self._began = self._kept = time.monotonic()
        before = 0
        self._embedder.prepare(lambda: not self._stop.is_set())
        while not self._stop.is_set():
            files, count = self._collection.waiting()
            if not count or (before and count >= before):  # what is left cannot be read, or is gone
                break
            before = count
            self._say(total=self._progress.done + count)
            self._pass(files)
        self._keep()

    def _pass(self, files: list[str]) -> None:
        batch: dict[int, str] = {}
        for file in files:
            if self._stop.is_set():
                return
            batch.update(self._texts(file))
            while len(batch) >= BATCH:
                first = dict(list(batch.items())[:BATCH])
                self._embed(first)
                batch = {key: text for key, text in batch.items() if key not in first}
        if batch:
            self._embed(batch)
        self._keep()

    def _texts(self, file: str) -> dict[int, str]:
        lacking = self._collection.lacking(file) - self._made.keys()
        if not lacking:
            return {}
        try:
            found, _ = read_texts(self._read(file), file)
        except (OSError, SevenfoldError):
            return {}
        keys = {hash_text(part.text): part.text for part in found}
        return {key: text for key, text in keys.items() if key in lacking}

    def _embed(self, batch: dict[int, str]) -> None:
        matrix = np.asarray(self._embedder.embed(list(batch.values())), np.float32)
        self._made.update(zip(batch, matrix, strict=True))
        spent = max(time.monotonic() - self._began, 1e-9)
        done = self._progress.done + len(batch)
        self._say(done=done, total=max(done, self._progress.total), rate=done / spent)
        if len(self._made) >= KEEP or time.monotonic() - self._kept >= KEEP_SECONDS:
            self._keep()

    def _keep(self) -> None:
        if self._made:
            keys = np.array(list(self._made), np.uint64)
            self._collection.add_vectors(keys, np.stack(list(self._made.values())))
            self._made = {}
        self._kept = time.monotonic()

    def _say(self, **changes: object) -> None:
        self._progress = msgspec.structs.replace(self._progress, **changes)
        if self._tell is not None:
            self._tell(self._progress)
