"""Makes one memory of a note in a daily log, in its own words, where no model is asked.

The agent that made the note has judged already that it is worth keeping. It gets a name and a type by a few
signs, and calendar dates against the time at which it was made.
"""

from __future__ import annotations

import msgspec

from sevenfold.memory.dates.relative import make_dates_absolute
from sevenfold.memory.folder.labels import classify_memory, make_memory_name
from sevenfold.memory.topic_file import Type, summarise_body


class NotedLesson(msgspec.Struct, frozen=True):
    """A memory to be."""

    type: Type
    name: str
    description: str
    body: str


def make_lessons(text: str, at: float) -> list[NotedLesson]:
    """The memory that a note makes; none when it says nothing."""
    text = make_dates_absolute(text.strip(), at)
    if not text:
        return []
    return [NotedLesson(classify_memory(text), make_memory_name(text), summarise_body(text), text)]
