"""The memory folder while it is open and ours alone, with what was last known about its files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import msgspec

from sevenfold.errors import Refused, StorageFailure
from sevenfold.memory.folder.files import HEAD, Opened
from sevenfold.memory.folder.gating import Gate
from sevenfold.memory.folder.ledger import A_SECRET, UNKNOWN, Ledger, LedgerFile, Row, digest
from sevenfold.memory.folder.listing import Listing, is_topic
from sevenfold.memory.folder.reaching import Stamp
from sevenfold.memory.folder.recording import NONE, Recording
from sevenfold.memory.revisions import Author
from sevenfold.memory.topic import read_topic

RECORDED: Final = HEAD
"""Bytes of the largest file that is looked through and kept in the history; others are only listed."""

Action = Literal["created", "updated", "merged", "removed"]


class Saved(msgspec.Struct, frozen=True):
    """What became of one memory."""

    name: str
    path: Path
    revision: str
    """Empty when nothing changed, or the history could not be written."""
    action: Action


@dataclass(slots=True)
class Desk:
    """One piece of work under the lock."""

    at: Opened
    folder: Path
    ledgers: LedgerFile
    past: Recording
    gate: Gate
    now: float
    say: Callable[[str], None]
    listing: Listing
    ledger: Ledger = field(default_factory=Ledger)
    dirty: bool = False

    @property
    def names(self) -> dict[str, str]:
        """The name of the memory in each topic file."""
        return {file: row.name for file, row in self.ledger.rows.items() if is_topic(file)}

    def stamp(self, file: str) -> Stamp | None:
        """The stamp under which a file was last read here; None when it is not there."""
        row = self.ledger.rows.get(file)
        return row.stamp if row else None

    def know(self, file: str, row: Row | None) -> None:
        """From now on this is what is known of a file; None: it is gone."""
        self.dirty = True
        old = self.ledger.rows.get(file)
        if old is not None and is_topic(file) and (row is None or row.digest != old.digest):
            self.ledger.gone(old)
        if row is None:
            self.ledger.rows.pop(file, None)
        else:
            self.ledger.rows[file] = row

    def write(
        self, file: str, data: bytes, *, held: str = "", modified: float | None = None
    ) -> None:
        """Write a file that still is what it was when it was last read here.

        `modified`: when it was written first, where that was not now.
        """
        stamp = self.at.write(file, data, self.stamp(file), modified=modified)
        self.know(file, Row(stamp, digest(data), name_in(file, data), held))

    def remove(self, file: str) -> None:
        """Remove a file that still is what it was when it was last read here."""
        if (stamp := self.stamp(file)) is not None:
            self.at.remove(file, stamp)
        self.know(file, None)

    def record(self, files: Mapping[str, bytes | None], author: Author, summary: str) -> str:
        """Put into the history what these files are now; empty when that is not possible."""
        found = self.ledger.head == "" and author.kind == "other"
        revision = self.past.record(
            None if found else files, lambda: self.whole(files), author, summary, self.now
        )
        head = self.past.head(self.now)
        sure = revision is not None or head == NONE
        self.ledger.head = head if sure and not self.past.mended else UNKNOWN
        self.past.mended = False
        self.dirty = True
        return revision or ""

    def whole(self, files: Mapping[str, bytes | None]) -> dict[str, bytes]:
        """All that belongs into a history that begins now: these files and every other one."""
        found = {file: data for file, data in files.items() if data is not None}
        for file, row in self.ledger.rows.items():
            if file not in files and not row.held:
                with contextlib.suppress(StorageFailure, Refused):
                    found[file] = self.at.read(file, RECORDED)[0]
        return found

    def holding(self, file: str, index: bytes) -> str:
        """Why an index that we are about to write stays out of the history; empty: it does not.

        Lines that were harmless apart can become a secret when what stood between them goes.
        """
        from sevenfold.memory.guard.secrets import find_secrets

        row = self.ledger.rows.get(file)
        if row and row.held:
            return row.held
        return A_SECRET if find_secrets(index.decode("utf-8", "replace")) else ""

    def settle(self) -> None:
        """Keep what is known now. What was not recorded is compared again the next time."""
        if self.dirty:
            self.ledgers.save(self.ledger)
            self.dirty = False


def name_in(file: str, data: bytes) -> str:
    """The name of the memory in a topic file; the index and the logs have none."""
    return read_topic(data, file).name if is_topic(file) else ""
