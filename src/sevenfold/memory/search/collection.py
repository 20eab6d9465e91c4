"""The search index as it is in memory, kept in step with the memory files and with the shelf.

Whatever is on the shelf was made from the files and can be made again: a missing, damaged or foreign list
or file means starting anew, never an error. Where the shelf cannot be written (read-only disk, full disk,
a lock that is not let go), changes stay in memory and the answers are the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from sevenfold.errors import StorageFailure
from sevenfold.memory.search import vectors as parts
from sevenfold.memory.search.arrays import Array, Damaged
from sevenfold.memory.search.lexical import Lexical
from sevenfold.memory.search.segment import Segment, unpacked
from sevenfold.memory.search.shelf import Contents, Shelf, listed, signed
from sevenfold.memory.search.vectors import Meaning, Vectors
from sevenfold.storage.files import failure

LONGER: Final = 12
"""How many times as long as otherwise a purge waits for another writer: it has to be on the disk."""
_TRIES: Final = 5


class Collection:
    """Segments and vectors in memory; every change goes to the shelf where that is possible."""

    def __init__(
        self,
        folder: Path,
        made: str,
        *,
        embedder: str = "",
        dimensions: int = 0,
        patience: float,
    ) -> None:
        self.lexical, self.meaning = Lexical(), Meaning()
        self.looking = threading.RLock()
        """Held while the state in memory is read or changed: for milliseconds."""
        self.problem = ""
        """Why the shelf could not be written the last time; empty when it could."""
        self.version = 0
        """Another one after every change of what is said about files."""
        self._changing = threading.RLock()
        self._shelf = Shelf(folder)
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
                    contents = listed(raw) or Contents(self._made)
                    self._install(raw, self._words(contents), self._vectors(contents))
                except OSError:
                    if self._shelf.raw() != raw:  # another process wrote a new list while we read
                        continue
                    self._install(raw, Lexical(), Meaning())
                return

    def _words(self, contents: Contents) -> Lexical:
        """The segments on the shelf; none when one of them is damaged or they are by other code."""
        here = {segment.name: segment for segment in self.lexical.segments if segment.name}
        lexical = Lexical()
        if contents.made == self._made:
            try:
                for name in contents.segments:
                    lexical.add(here.get(name) or unpacked(name, *self._shelf.get(name)))
            except Damaged:
                return Lexical()
        return lexical

    def _vectors(self, contents: Contents) -> Meaning:
        """The vectors on the shelf; none when one of them is damaged or they are another embedder's."""
        if not self._embedder or contents.embedder != self._embedder:
            return Meaning()
        here = {part.name: part for part in self.meaning.parts if part.name}
        found: list[Vectors] = []
        try:
            for name in contents.vectors:
                part = here.get(name)
                if part is None:
                    part = parts.unpacked(name, self._shelf.get(name)[1], self._dimensions)
                found.append(part)
        except (Damaged, OSError):
            return Meaning()
        return Meaning(found) if [*here] != [part.name for part in found] else self.meaning

    def _install(self, raw: bytes, lexical: Lexical, meaning: Meaning) -> None:
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
            self._raw, self.problem = signed(contents), ""

    def _put(
        self, parts: Sequence[Segment | Vectors], now: Callable[[], Contents]
    ) -> Contents | None:
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
        return str(failure(error, error.filename2 or error.filename or self._shelf.folder))

    def _contents(self) -> Contents:
        words = tuple(segment.name for segment in self.lexical.segments)
        before = listed(self._raw)
        if not self._embedder and before is not None:  # somebody else's vectors: left as they are
            return Contents(self._made, words, before.embedder, before.vectors)
        return Contents(
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

    def clear(self) -> None:
        """Start anew; the next `refresh` reads every file."""
        with self.writing() as mine:
            self._install(self._raw, Lexical(), Meaning())
            if mine:
                self._save()

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
            count += int(lacking.sum())
            owners = np.unique(segment.owner[lacking])
            found += zip(
                segment.stamps[owners].tolist(), (segment.files[at] for at in owners), strict=True
            )
        return [file for _, file in sorted(found, reverse=True)], count

    def lacking(self, file: str) -> set[int]:
        """The keys of its passages that have no vector yet."""
        with self.looking:
            if self.lexical.place(file) is None:
                return set()
            keys = self.lexical.keys(file)
            return set(keys[(self.meaning.find(keys) < 0) & (keys != 0)].tolist())

    def sync_vectors(self) -> None:
        """Take over the vectors another process has made, and leave the rest as it is."""
        with self._changing:
            contents = listed(self._shelf.raw())
            if contents is not None:
                self.meaning = self._vectors(contents)

    def add_vectors(self, keys: Array, matrix: Array) -> None:
        """Take in these vectors, as far as they belong to a passage that is still there.

        What another process has written about files is left for the next `refresh`: what is answered
        does not change under the feet of who asks.
        """
        with self._locked() as mine:
            raw = self._shelf.raw() if mine else self._raw
            contents = listed(raw) if mine else None
            there = self.lexical
            if contents is not None and raw != self._raw:
                there = self._words(contents)
                self.meaning = self._vectors(contents)
            self._extend(parts.vectors(keys, matrix), there)
            if contents is not None and contents.made == self._made:
                self._save_vectors(contents, raw)

    def _extend(self, part: Vectors, there: Lexical) -> None:
        here = [s.keys[there.living(at)] for at, s in enumerate(there.segments)]
        wanted = self.meaning.find(part.keys) < 0
        wanted &= np.isin(part.keys, np.concatenate(here)) if here else False
        if wanted.any():
            self.meaning = self.meaning.extended(part.those(wanted), self.lexical)
            self._merge_vectors(complete=False)

    def _save_vectors(self, contents: Contents, raw: bytes) -> None:
        """Enter our vectors into a list whose segments may be another process's."""

        def now() -> Contents:
            names = tuple(part.name for part in self.meaning.parts)
            return msgspec.structs.replace(contents, embedder=self._embedder, vectors=names)

        new = self._put(self.meaning.parts, now)
        if new is not None and raw == self._raw:
            self._raw = signed(new)
