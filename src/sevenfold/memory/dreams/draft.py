"""A commit while it is being worked out: what will change, and what became of every statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from sevenfold.memory.dreams.facts import Fact
from sevenfold.memory.dreams.losses import Account, Afterwards, Explanations
from sevenfold.memory.dreams.merging import Conflict
from sevenfold.memory.dreams.shelf import Shelf
from sevenfold.memory.folder.listing import is_topic
from sevenfold.memory.indexing import TEAM


class Moved(msgspec.Struct, frozen=True):
    """A file that is gone because another one has what it said."""

    file: str
    into: str


class Kept(msgspec.Struct, frozen=True):
    """A statement that the dream let go without an account, and where it is now."""

    fact: Fact
    into: str


class Altered(msgspec.Struct, frozen=True):
    """What a commit does to one file."""

    file: str
    action: Literal["created", "changed", "removed"]


class Outcome(msgspec.Struct, frozen=True):
    """What became of a dream."""

    files: tuple[Altered, ...] = ()
    merged: tuple[Moved, ...] = ()
    superseded: tuple[Account, ...] = ()
    archived: tuple[Moved, ...] = ()
    kept: tuple[Kept, ...] = ()
    lost: tuple[Fact, ...] = ()
    """Always empty in what was committed: what is not accounted for is kept."""
    conflicts: tuple[Conflict, ...] = ()
    revision: str = ""
    """Empty when nothing changed, or the history could not be written."""
    files_before: int = 0
    files_after: int = 0
    diff: str = ""


@dataclass(slots=True)
class Draft:
    """What the commit would do, so far."""

    now: dict[str, bytes]
    """Every file that the dream knew or wrote and that is in the folder, as it is there."""
    changes: dict[str, bytes | None]
    explained: Explanations
    known: frozenset[str]
    """What may be named as evidence."""
    others: Callable[[], Shelf]
    """What the files say that the dream does not change."""
    conflicts: list[Conflict] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)
    touched: frozenset[str] = frozenset()
    """The files that were to be changed at first; `others` has all but these."""

    def afterwards(self) -> Afterwards:
        """What the folder will say."""
        files = {*self.touched, *self.changes}
        after = {file: data for file in files if (data := self.after(file)) is not None}
        return Afterwards(after, self.others, self.known, self.now)

    def after(self, file: str) -> bytes | None:
        """What a file will be; None: not there."""
        return self.changes[file] if file in self.changes else self.now.get(file)

    def drop(self, file: str, why: str) -> None:
        """The dream's change of this file is not made."""
        if self.changes.pop(file, self) is not self:
            self.conflicts.append(Conflict(file, why))


def changeable(file: str) -> bool:
    """Whether a dream may change this file: the logs and what belongs to the team are read only."""
    return is_topic(file) and not file.startswith(TEAM)
