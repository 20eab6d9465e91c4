"""Whether a memory is there already: what a new one repeats or corrects is not saved a second time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sevenfold.memory.merging import Resemblance, near, resembling
from sevenfold.memory.parts import part_of
from sevenfold.memory.topic import Topic

if TYPE_CHECKING:
    from sevenfold.memory.store import MemoryStore


def resemblance(store: MemoryStore, new: Topic) -> Resemblance | None:
    """The memory of the same part that a new one comes close to."""
    part = part_of(new.file)
    there = [one for one in store.topics() if part.holds(one.file)]
    return resembling(new, near(new, there))


def repeated(store: MemoryStore, new: Topic) -> str | None:
    """The file of the memory that is about the same, so that it gets the new text; None: there is none."""
    like = resemblance(store, new)
    return like.topic.file if like is not None and (like.same or like.known) else None
