"""What a note in a daily log becomes where no model is asked: one memory, in the words of the note.

Whoever made the note has judged already that it is worth keeping. It gets a name and a type by a few
signs, and calendar dates against the time at which it was made.
"""

from __future__ import annotations

import msgspec

from sevenfold.memory.dates.relative import absolute
from sevenfold.memory.topic_file import Type, summary
from sevenfold.offline.memorise import name_of, type_of


class NotedDown(msgspec.Struct, frozen=True):
    """A memory to be."""

    type: Type
    name: str
    description: str
    body: str


def from_note(text: str, at: float) -> list[NotedDown]:
    """The memory that a note makes; none when it says nothing."""
    text = absolute(text.strip(), at)
    if not text:
        return []
    return [NotedDown(type_of(text), name_of(text), summary(text), text)]
