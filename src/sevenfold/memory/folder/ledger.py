"""What of the memory folder was seen last, so that only what changed is read again.

A cache beside the history: one row a file. Whenever it is missing, damaged or does not belong to the
newest revision, everything is compared with the history itself. `Pending` is the note that is left
before our own write, so that what a dying process wrote is not taken for somebody else's work.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.clock import SystemClock
from sevenfold.errors import StorageFailure
from sevenfold.memory.folder.reaching import Stamp
from sevenfold.memory.revisions import Author
from sevenfold.storage.files import PRIVATE_FILE, make_private_dir

SEEN: Final = "seen.json"
PENDING: Final = "pending.json"
UNKNOWN: Final = "?"
"""The revision of a ledger that belongs to none: everything is to be compared."""
SETTLED: Final = 100_000_000
"""Nanoseconds after which a file cannot change any more without its stamp changing: file systems count
time in steps, and two writes within one step may look the same."""
_FORMAT: Final = 2
_TOKEN: Final = 16
_TIMES: Final = 1_000
"""Texts that are gone whose time is known."""


A_SECRET: Final = "it holds a secret"
"""Why a file is neither in the history nor in the index."""


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One file as it was seen last."""

    stamp: Stamp | None
    digest: str
    name: str = ""
    held: str = ""
    """Why it is not in the history; empty when it is."""


class Ledger(msgspec.Struct):
    """All rows, and the revision they belong to."""

    head: str = UNKNOWN
    rows: dict[str, Row] = {}
    full: set[str] = set()
    """The parts of the folder that hold memories for which their index has no room."""
    purged: str | None = None
    """The newest revision after a purge, which itself is none; None: nothing was purged."""
    format: int = _FORMAT
    times: dict[str, int] = {}
    """When texts that are gone had been written, by their digest: one that comes back is as old again."""

    def copy(self) -> Ledger:
        return Ledger(
            self.head, dict(self.rows), set(self.full), self.purged, times=dict(self.times)
        )

    def gone(self, row: Row) -> None:
        """A text is replaced or removed."""
        if row.stamp is not None and row.digest:
            self.times.pop(row.digest, None)
            self.times[row.digest] = row.stamp.modified
            while len(self.times) > _TIMES:
                del self.times[next(iter(self.times))]


class Pending(msgspec.Struct, frozen=True):
    """What is about to be written, by whom: file to digest, empty for a removal.

    It counts as long as no revision followed the one that was the newest then.
    """

    head: str
    author: Author
    summary: str
    digests: dict[str, str]


class LedgerFile:
    """The ledger of one folder; only touched under the folder's lock.

    Nothing here fails: a state folder that cannot be written costs time, not memories.
    """

    def __init__(self, state: Path) -> None:
        self.state = state
        self._kept: tuple[bytes, Ledger] | None = None

    def load(self) -> Ledger:
        """The ledger; an empty one that belongs to no revision when it cannot be read."""
        with (
            contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError),
            (self.state / SEEN).open("rb") as file,
        ):
            token = file.readline(_TOKEN + 1)
            if self._kept is None or self._kept[0] != token:
                ledger = msgspec.json.decode(file.read(), type=Ledger)
                if ledger.format != _FORMAT:
                    return Ledger()
                self._kept = (token, ledger)
            return self._kept[1].copy()
        return Ledger()

    def save(self, ledger: Ledger) -> None:
        """Keep it for the next time. A power cut may cost it, never anything else."""
        token = secrets.token_hex(_TOKEN // 2).encode("ascii") + b"\n"
        if _put(self.state / SEEN, token + msgspec.json.encode(ledger)):
            self._kept = (token, ledger.copy())
        else:
            self.forget()

    def forget(self) -> None:
        """The next one compares everything with the history."""
        self._kept = None
        with contextlib.suppress(OSError):
            (self.state / SEEN).unlink()

    def announce(self, pending: Pending) -> None:
        _put(self.state / PENDING, msgspec.json.encode(pending))

    def announced(self, head: str) -> Pending | None:
        """What was about to be written when this was the newest revision."""
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            data = (self.state / PENDING).read_bytes()
            pending = msgspec.json.decode(data, type=Pending)
            return pending if pending.head == head else None
        return None

    def withdraw(self) -> None:
        """Leave no note behind, not even a name."""
        with contextlib.suppress(OSError):
            (self.state / PENDING).unlink()


def digest(data: bytes) -> str:
    """Short, and the same for the same bytes only."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def file_time() -> int:
    """Now, in the nanoseconds of the clock that stamps files: that of the machine, whatever ours says."""
    return int(SystemClock().now() * 1e9)


def settled(stamp: Stamp, now: int) -> bool:
    """Whether another change of this file would have to show in its stamp."""
    return abs(now - stamp.changed) > SETTLED


def _put(path: Path, data: bytes) -> bool:
    """All or nothing, but without waiting for the disk; False when it could not be written."""
    new = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        make_private_dir(path.parent)
        new.touch(PRIVATE_FILE)
        new.write_bytes(data)
        new.replace(path)
    except (OSError, StorageFailure):
        with contextlib.suppress(OSError):
            new.unlink()
        return False
    return True
