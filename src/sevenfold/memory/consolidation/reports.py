"""What a consolidation did: each change with the evidence for it, and what it left alone as unclear."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sevenfold.memory.dreams.losses import Explained


class Merged(msgspec.Struct, frozen=True):
    """Two memories that said the same and are one now."""

    file: str
    """The one that is gone."""
    into: str
    why: str


class Superseded(msgspec.Struct, frozen=True):
    """A statement that a newer one took the place of."""

    file: str
    old: str
    new: str
    by: str
    """The file that has the newer statement."""
    because: str
    """What shows that it is the newer one."""


class Archived(msgspec.Struct, frozen=True):
    """A memory about work that is over."""

    file: str
    to: str
    why: str


class Dated(msgspec.Struct, frozen=True):
    """A sentence in which a relative date became a calendar date."""

    file: str
    before: str
    after: str
    against: str
    """The day that was taken as the one on which it was said, and where it is from."""


class Learned(msgspec.Struct, frozen=True):
    """A memory that was made from a daily log."""

    file: str
    log: str


class Unclear(msgspec.Struct, frozen=True):
    """Two statements that may contradict each other: both stay."""

    file: str
    text: str
    other_file: str
    other: str
    why: str


class Report(msgspec.Struct, frozen=True):
    """Everything that a consolidation did."""

    merged: tuple[Merged, ...] = ()
    superseded: tuple[Superseded, ...] = ()
    archived: tuple[Archived, ...] = ()
    dated: tuple[Dated, ...] = ()
    learned: tuple[Learned, ...] = ()
    index: tuple[str, ...] = ()
    """What was changed in the index, in sentences."""
    unclear: tuple[Unclear, ...] = ()
    changed: tuple[str, ...] = ()
    """The files that are different, new or gone, the index too."""
    explained: Mapping[str, Explained] = {}
    """For every statement that is not where it was: what became of it, for the commit of a dream."""
