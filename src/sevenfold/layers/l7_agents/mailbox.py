"""A mailbox: a file with the letters that wait for one agent, and the last ones that it has read.

    [{"id": "5f0c…", "from": "lead", "text": "…", "timestamp": "…", "read": false, "summary": "…"}, …]

Whoever writes holds the lock and replaces the file as a whole, so reading needs none. A letter that `post`
returned from is on the disk. An entry that is no letter is set aside in `<name>.damaged.jsonl`, a file that
is no list in `<name>.damaged-1.json`; both are said, and neither stops anybody. Keys that we do not know
stay where they are.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio.to_thread

from sevenfold.errors import Refused, StorageFailure
from sevenfold.events import Emit, Notice
from sevenfold.layers.l7_agents.letters import Letter, MailboxFull, checked, entry_of, letter_of
from sevenfold.layers.l7_agents.set_aside import keep_entries, keep_file, listed, written
from sevenfold.layers.l7_agents.short_lock import Busy, held
from sevenfold.messages import Json
from sevenfold.protocols import Clock
from sevenfold.storage.files import failure, read_head, write_atomic

MOST_WAITING: Final = 50
REMEMBERED: Final = 256
"""Letters that were read and stay in the file, so that one that is sent again is recognised."""
KEPT_TEXT: Final = 200
"""Characters that stay of a letter that was read: the transcript has all of it."""
LARGEST: Final = 32_000_000
"""Bytes of a mailbox; ours stay far below."""
SETTLED: Final = 0.05
"""Seconds after which a change of a file is sure to have changed what `stat` says of it."""

_Stamp: TypeAlias = tuple[int, int, int, int]


class Mailbox:
    """The mailbox of one agent. `post` for those who write to it; `waiting` and `settle` for itself."""

    def __init__(
        self, path: Path, clock: Clock, emit: Emit, *, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self.path = path
        self._clock, self._emit, self._sleep = clock, emit, sleep
        self._stamp: _Stamp | None = None
        self._waiting: tuple[Letter, ...] = ()
        self._said: list[str] = []
        """Sentences for the user that have not been told yet: a thread tells nobody anything."""

    @property
    def owner(self) -> str:
        return self.path.stem

    # --- for those who write ----------------------------------------------------------------------------

    def post(self, letter: Letter) -> bool:
        """Put a letter in; it is on the disk when this returns. False: it was there already.

        `MailboxFull` when too many wait, `Busy` when the lock cannot be had soon.
        """
        try:
            return self._post(letter)
        finally:
            self._tell()

    async def accept(self, letter: Letter) -> bool:
        """The same, beside the event loop."""
        try:
            return await anyio.to_thread.run_sync(self._post, letter)
        finally:
            self._tell()

    def _post(self, letter: Letter) -> bool:
        checked(letter)
        with held(self.path, self._sleep):
            entries = self._entries()
            if any(entry["id"] == letter.id for entry in entries):
                return False
            if sum(not _is_read(entry) for entry in entries) >= MOST_WAITING:
                raise MailboxFull(
                    f"{MOST_WAITING} messages wait for {self.owner!r} already, and this one was not "
                    "sent: wait until some are read"
                )
            self._store([*entries, entry_of(letter)])
        return True

    # --- for its owner ----------------------------------------------------------------------------------

    def waiting(self) -> tuple[Letter, ...]:
        """The letters that have not been settled, oldest first. One `stat` when nothing has changed."""
        stamp, modified = self._look()
        if stamp is None:
            self._stamp, self._waiting = None, ()
        elif stamp != self._stamp:
            self._waiting = self._read()
            # A second change in the same tick of the disk's clock could look like none.
            aged = self._clock.now() - modified > SETTLED
            self._stamp = stamp if aged else None
        self._tell()
        return self._waiting

    def settle(self, ids: Collection[str], *, retries: int = 0) -> bool:
        """These have been delivered. False: somebody is writing just now, settle them later."""
        try:
            with held(self.path, self._sleep, retries):
                entries = self._entries()
                new = [_settled(entry) if entry["id"] in ids else entry for entry in entries]
                if new != entries:
                    self._store(_trimmed(new))
        except Busy:
            return False
        finally:
            self._tell()
        return True

    # --- the file ---------------------------------------------------------------------------------------

    def _look(self) -> tuple[_Stamp | None, float]:
        try:
            found = os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return None, 0.0
        except OSError as error:
            raise failure(error, self.path, "read") from error
        if not stat.S_ISREG(found.st_mode):
            raise StorageFailure(
                f"{self.path} is not read: it is a link, a folder or a device; move it away"
            )
        stamp = (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
        return stamp, found.st_mtime

    def _read(self) -> tuple[Letter, ...]:
        """Without the lock; it is taken only to set something aside."""
        found = listed(self._bytes())
        letters, damaged = _sorted_out(found or ())
        if found is None or damaged:
            with contextlib.suppress(Busy), held(self.path, self._sleep, 0):
                letters, _ = _sorted_out(self._entries())
        return _unread(letters)

    def _bytes(self) -> bytes:
        try:
            return read_head(self.path, LARGEST + 1, nofollow=True)
        except StorageFailure as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                return b""
            raise

    def _entries(self) -> list[Json]:
        """What is in the file, each with a letter in it; the rest is set aside. Needs the lock."""
        data = self._bytes()
        found = listed(data) if len(data) <= LARGEST else None
        if found is None:
            aside = keep_file(self.path)
            self._said.append(
                f"the mailbox {self.path} could not be read as one and was set aside as {aside.name}; "
                "messages in it were not delivered"
            )
            return []
        good, bad = list[Json](), list[Any]()
        for entry in found:
            (good if _is_letter(entry) else bad).append(entry)
        if bad:
            aside = keep_entries(self.path, bad)
            self._store(good)
            many = "1 entry" if len(bad) == 1 else f"{len(bad)} entries"
            self._said.append(
                f"{many} of the mailbox {self.path} could not be read as a message and went to "
                f"{aside.name}; the others are delivered"
            )
        return good

    def _store(self, entries: Sequence[Json]) -> None:
        write_atomic(self.path, written(entries), nofollow=True)

    def _tell(self) -> None:
        while self._said:
            self._emit(Notice(self._said.pop(0), "warning"))


def _sorted_out(found: Sequence[Any]) -> tuple[list[Letter], int]:
    """The letters, and how many entries are none."""
    letters = [letter for entry in found if (letter := _letter(entry))]
    return letters, len(found) - len(letters)


def _is_letter(entry: Any) -> bool:
    return _letter(entry) is not None


def _letter(entry: Any) -> Letter | None:
    try:
        return letter_of(entry)
    except Refused:
        return None


def _is_read(entry: Json) -> bool:
    return entry.get("read") is True


def _unread(letters: Sequence[Letter]) -> tuple[Letter, ...]:
    """Each id once, and none that was read before."""
    seen = {letter.id for letter in letters if letter.read}
    fresh: dict[str, Letter] = {}
    for letter in letters:
        if letter.id not in seen:
            fresh.setdefault(letter.id, letter)
    return tuple(fresh.values())


def _settled(entry: Json) -> Json:
    if _is_read(entry):
        return entry
    text = str(entry["text"])
    short = text if len(text) <= KEPT_TEXT else f"{text[: KEPT_TEXT - 1]}…"
    return {**entry, "text": short, "read": True}


def _trimmed(entries: Sequence[Json]) -> list[Json]:
    """Without the oldest of those that were read."""
    extra = max(0, sum(map(_is_read, entries)) - REMEMBERED)
    kept = list[Json]()
    for entry in entries:
        if extra and _is_read(entry):
            extra -= 1
        else:
            kept.append(entry)
    return kept
