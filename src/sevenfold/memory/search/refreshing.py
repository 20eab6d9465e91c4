"""Bringing the index in step with the files: compare, read what differs, take it in, until nothing does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from sevenfold.errors import SevenfoldError
from sevenfold.memory.search.answers import Refreshed
from sevenfold.memory.search.collection import Collection
from sevenfold.memory.search.lexical import Listed
from sevenfold.memory.search.segment import Indexed, Segment, Stamp, built, digest, pieces
from sevenfold.protocols import Clock

Read: TypeAlias = Callable[[str], bytes]

CHUNK: Final = 2_000
"""Files that are read before what was made of them is written: so much is lost when the process dies."""
GRANULARITY: Final = 2.0
"""Seconds between a write and a reading of the file below which its time may not tell them apart."""
_PATIENCE: Final = 10
"""How often others may undo what we did (they know other files than we) before we work in memory."""


@dataclass(slots=True)
class _Work:
    """One look at the files, and what became of them."""

    listing: Mapping[str, Listed]
    read: Read
    clock: Clock
    added: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)
    checked: set[str] = field(default_factory=set)
    """Files that were read: their text is known for sure."""


def refresh(collection: Collection, files: Iterable[Listed], read: Read, clock: Clock) -> Refreshed:
    """Make the index say what these files say; only what changed is read.

    Another process that was shown other files may write in between; so it is compared again until all
    is as listed, and after too many rounds finished in memory, where nobody else writes.
    """
    work = _Work({listed[0]: listed for listed in files}, read, clock)
    rounds = _PATIENCE + 2 * len(work.listing) // CHUNK
    collection.sync()
    version, (stale, gone) = collection.version, _differs(collection, work)
    while stale or gone:
        rounds -= 1
        with collection.writing(together=rounds > 0) as mine:
            if collection.version != version:
                stale, gone = _differs(collection, work)
            segment = _taken(collection, work, stale[:CHUNK], gone)
            if segment is not None:
                collection.take(segment, mine=mine, complete=len(stale) <= CHUNK)
            if len(stale) <= CHUNK:  # nobody came in between: now all is as listed
                break
        version, (stale, gone) = collection.version, _differs(collection, work)
    return Refreshed(*map(_in_order, (work.added, work.changed, work.removed, work.unreadable)))


def _in_order(files: set[str]) -> tuple[str, ...]:
    return tuple(sorted(files))


def _differs(collection: Collection, work: _Work) -> tuple[list[str], set[str]]:
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
    collection: Collection, work: _Work, files: Sequence[str], gone: set[str]
) -> Segment | None:
    """What these files say now, as a segment; None when it says nothing new."""
    lexical = collection.lexical
    rows: list[Indexed] = []
    stamped: list[Stamp] = []
    for file in files:
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
        key = digest(data)
        if old is None or lexical.digest(file) != key:
            rows.append(Indexed(stamp, key, pieces(data, file)))
            (work.added if old is None else work.changed).add(file)
        elif old != work.listing[file] or stamp.fresh != (file in lexical.fresh):
            stamped.append(stamp)
    work.removed |= gone
    return built(rows, gone, stamped) if rows or stamped or gone else None


def _stamp(clock: Clock, file: str, mtime_ns: int, size: int) -> Stamp:
    near = abs(clock.now() - mtime_ns / 1e9) <= GRANULARITY
    return Stamp(file, mtime_ns, size, near)
