"""What a project hands an agent's memory to begin with, and whether it goes into the user's own.

    <tree>/.sevenfold/agent-memory-snapshots/<type>/snapshot.json     {"updatedAt": "2026-03-01T09:00:00Z"}
                                                    *.md              the memories

    look()        `initialise`: the user has nothing yet · `update`: it is newer than what was taken over
                  last · `nothing`. Nothing is written.
    initialise()  copies it
    accept()      merges it: what the user has not changed since is replaced, what they changed stays, with
                  the new text in a file beside it
    decline()     not offered again until there is a newer one

Every text passes the guard, so that a secret is refused and an order to the agent is quarantined. What was
taken over last is written down in `.snapshot-synced.json` in the memory folder.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.errors import Refused, SevenfoldError, StorageFailure
from sevenfold.memory.agents.merging import Merge, Taken
from sevenfold.memory.agents.scopes import SNAPSHOTS, folder_name, in_project
from sevenfold.memory.folder import reaching
from sevenfold.memory.folder.desk import Desk
from sevenfold.memory.folder.files import HEAD, MemoryFiles, Opened
from sevenfold.memory.folder.ledger import digest
from sevenfold.memory.folder.listing import Listing, is_topic, listed
from sevenfold.memory.folder.naming import INDEX_NAME, TEAM
from sevenfold.memory.store import MemoryStore
from sevenfold.protocols import Clock

Action: TypeAlias = Literal["initialise", "update", "nothing"]

HEAD_FILE: Final = "snapshot.json"
MARKER: Final = ".snapshot-synced.json"
MOST_FILES: Final = 200
"""Memories of a snapshot: as many as an index has lines."""
MOST_BYTES: Final = 2_000_000
_LARGEST_HEAD: Final = 1 << 16
_LARGEST_MARKER: Final = 1 << 20
_AHEAD: Final = 86_400.0
"""Seconds that a snapshot may be from the future: clocks differ, but not by more than a day."""


class Offer(msgspec.Struct, frozen=True):
    """What is to be done about a snapshot."""

    action: Action
    updated: str = ""
    """When the snapshot was made, as it says itself."""
    said: str = ""
    """What the user should be told: an offer, or what is wrong."""


class _Head(msgspec.Struct, frozen=True):
    updated: str = msgspec.field(name="updatedAt")


class Marker(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was taken over last: of which snapshot, and the texts as they were in it."""

    updated: str = msgspec.field(name="updatedAt", default="")
    files: dict[str, str] = {}


class _Damaged(Exception):
    """Why a snapshot cannot be used."""


class Snapshots:
    """The snapshot of one project for one kind of agent, and the user's memory that it may go into."""

    def __init__(
        self, kind: str, store: MemoryStore, tree: Path, clock: Clock, *, trusted: bool
    ) -> None:
        """`store` is of the agent's memory in the scope `user`. Untrusted, there is nothing to do."""
        self._kind, self._store, self._tree = kind, store, tree
        self._clock, self._trusted = clock, trusted
        self._local = MemoryFiles(store.folder)

    def look(self) -> Offer:
        """What is to be done. Never raises: what is wrong is said, and then there is nothing to do."""
        try:
            with self._opened() as at:
                head = self._head(at)
                marker = self._marker()
                if marker is None and self._nothing_local():
                    return Offer("initialise", head.updated)
                if marker is not None and not _newer(head.updated, marker.updated):
                    return Offer("nothing", head.updated)
                if not self._changes(self._texts(at), marker or Marker()):
                    return Offer("nothing", head.updated)
        except FileNotFoundError:
            return Offer("nothing")
        except (_Damaged, SevenfoldError) as error:
            return Offer("nothing", said=str(error))
        return Offer(
            "update",
            head.updated,
            f"the project brings a newer memory for the agent {self._kind!r}, of {_day(head.updated)}; "
            "nothing of yours is overwritten if you take it",
        )

    def initialise(self) -> Taken:
        """Copy the snapshot, if there still is nothing; `Refused` says why it cannot be."""
        return self._take(only_if_empty=True)

    def accept(self) -> Taken:
        """Merge the snapshot into what is there; `Refused` says why it cannot be."""
        return self._take(only_if_empty=False)

    def decline(self) -> None:
        """Leave everything as it is, and do not offer this one again."""
        try:
            with self._opened() as at:
                head = self._head(at)
        except FileNotFoundError:
            return
        except _Damaged as error:
            raise Refused(str(error)) from error
        known = self._marker() or Marker()
        self._mark(Marker(head.updated, known.files))

    # --- inside ---------------------------------------------------------------------------------------

    def _take(self, *, only_if_empty: bool) -> Taken:
        try:
            with self._opened() as at:
                head, texts = self._head(at), self._texts(at)
        except FileNotFoundError:
            return Taken()
        except _Damaged as error:
            raise Refused(str(error)) from error
        marker = self._marker() or Marker()

        def work(desk: Desk) -> tuple[Taken, set[str]]:
            if only_if_empty and any(map(is_topic, desk.ledger.rows)):
                return Taken(there=True), set()
            merge = Merge(desk, marker.files, _day(head.updated))
            return merge.taken(texts), merge.held

        taken, held = self._store.changing(work)
        if not taken.there:
            known = {file: digest(data) for file, data in texts.items() if file not in held}
            self._mark(Marker(head.updated, known))
        return taken

    def _opened(self) -> AbstractContextManager[Opened]:
        """The snapshot's folder; `FileNotFoundError` when there is none, or none that counts."""
        if not self._trusted:
            raise FileNotFoundError
        folder, _ = in_project(self._tree, SNAPSHOTS, folder_name(self._kind))
        return MemoryFiles(folder).opened()

    def _head(self, at: Opened) -> _Head:
        """When the snapshot was made, and that it was made at a time at all."""
        path = at.real / HEAD_FILE
        if at.stamp(HEAD_FILE) is None:
            raise FileNotFoundError
        data, _ = at.read(HEAD_FILE, _LARGEST_HEAD)
        try:
            head = msgspec.json.decode(data, type=_Head)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _Damaged(_bad(path, "it is not JSON with a text 'updatedAt'")) from error
        when = _moment(head.updated)
        if when is None:
            raise _Damaged(_bad(path, "its 'updatedAt' is no date such as 2026-03-01T09:00:00Z"))
        if when > self._clock.now() + _AHEAD:
            raise _Damaged(_bad(path, f"its 'updatedAt', {head.updated[:40]}, is yet to come"))
        return head

    def _texts(self, at: Opened) -> dict[str, bytes]:
        """The memories of the snapshot, and its index; `_Damaged` when there is too much of it."""
        found = listed(at)
        files = [file for file in sorted(found.files) if _counts(file)]
        if odd := _in_the_way(found):
            raise _Damaged(_bad(at.real / odd[0], odd[1]))
        if len(files) > MOST_FILES + 1:
            why = f"it holds {len(files):,} files, and {MOST_FILES} are the most"
            raise _Damaged(_bad(at.real, why))
        total = sum(found.files[file].size for file in files)
        large = [file for file in files if found.files[file].size > HEAD]
        if large or total > MOST_BYTES:
            where = at.real / large[0] if large else at.real
            raise _Damaged(
                _bad(where, f"it is larger than {HEAD if large else MOST_BYTES:,} bytes")
            )
        return {file: at.read(file, HEAD)[0] for file in files}

    def _marker(self) -> Marker | None:
        """What was taken over last; None when nothing was. A damaged one knows nothing, but is there."""
        try:
            with self._local.opened() as at:
                if at.stamp(MARKER) is None:
                    return None
                data, _ = at.read(MARKER, _LARGEST_MARKER)
            return msgspec.json.decode(data, type=Marker)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Marker()

    def _mark(self, marker: Marker) -> None:
        data = msgspec.json.format(msgspec.json.encode(marker), indent=1) + b"\n"
        try:
            with self._local.opened(make=True) as at, at.alone(), at.folder("") as folder:
                name = MARKER if folder is not None else str(at.real / MARKER)
                known = reaching.stamp(name, folder)
                reaching.replaced(name, folder, data, known, lasting=True)
        except (OSError, reaching.Overtaken) as error:
            raise StorageFailure(
                f"{self._store.folder / MARKER} could not be written: {error}; what was taken over will "
                "be offered again"
            ) from error

    def _nothing_local(self) -> bool:
        return not self._store.listing().topics and not self._store.index_text().strip()

    def _changes(self, texts: Mapping[str, bytes], marker: Marker) -> bool:
        """Whether anything would come of taking it."""
        mine = {topic.file: digest(topic.data) for topic in self._store.topics()}
        theirs = {file: digest(data) for file, data in texts.items() if file != INDEX_NAME}
        known = marker.files
        gone = [file for file in known if file not in theirs and mine.get(file) == known[file]]
        new = [f for f, one in theirs.items() if one not in (mine.get(f), known.get(f))]
        return bool(gone or new)


def _counts(file: str) -> bool:
    """The index, and memories; not other indexes, daily logs, or what is a team's."""
    return file == INDEX_NAME or (is_topic(file) and not file.startswith(TEAM))


def _in_the_way(found: Listing) -> tuple[str, str] | None:
    """The first thing in the folder that does not belong into one."""
    return next(((odd.file, odd.why) for odd in found.odd), None)


def _bad(path: Path, why: str) -> str:
    return f"the snapshot is not used: {path}: {why}; mend it, or remove it"


def _moment(text: str) -> float | None:
    try:
        moment = datetime.datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return moment.timestamp()
    except (ValueError, OverflowError):
        return None


def _day(text: str) -> str:
    return datetime.datetime.fromtimestamp(_moment(text) or 0.0, datetime.UTC).strftime("%Y-%m-%d")


def _newer(one: str, than: str) -> bool:
    known = _moment(than)
    return known is None or (_moment(one) or 0.0) > known
