"""Daily logs become memories: what of each note has lasting value, dated by the note."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

from sevenfold.memory.consolidation.reports import Learned
from sevenfold.memory.consolidation.staged import StagedFiles
from sevenfold.memory.dreams.facts import stated
from sevenfold.memory.dreams.shelf import Shelf
from sevenfold.memory.folder.naming import file_for, key, wrong_with_name
from sevenfold.memory.logs import day_of
from sevenfold.memory.topic import TYPES, Origin, Type, new_topic

_NOTE: Final = re.compile(r"- (?:(\d{2}):(\d{2}) )?(.*\S)")
_NOON: Final = "12", "00"
"""The time of a note that does not say when it was made."""


class Lesson(Protocol):
    """Something that is worth remembering, as whoever reads a note makes it of it."""

    @property
    def type(self) -> Type: ...
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def body(self) -> str: ...


Learn: TypeAlias = Callable[[str, float], Sequence[Lesson]]
"""What is to be remembered of a note that was made at this time."""


def distil(files: StagedFiles, logs: Iterable[str], learn: Learn) -> list[Learned]:
    """Make memories of the notes in these logs, unless the folder says it already."""
    done: list[Learned] = []
    known = Shelf({topic.file: topic.data for topic in files.active()})
    fresh: dict[str, bytes] = {}
    names = {key(topic.name) for topic in files.active()}
    for log in sorted(set(logs)):
        day = day_of(log)
        if not day or log not in files.now:
            continue
        for text, at in notes(files.now[log].decode("utf-8", "replace"), day):
            for lesson in learn(text, at):
                made = _memory(lesson, day, names, files.taken)
                if made is None:
                    continue
                file, data = made
                mine = Shelf(fresh)
                said = stated(data, file)
                if all(known.holder(one) or mine.holder(one) for one in said):
                    continue
                fresh[file] = data
                names.add(key(lesson.name))
                files.put(file, data, at)
                done.append(Learned(file, log))
    return done


def notes(text: str, day: str) -> Iterator[tuple[str, float]]:
    """The notes of a log with their times; a line that is indented belongs to the note above it."""
    date = datetime.date.fromisoformat(day)
    note: list[str] = []
    at = 0.0
    for line in text.splitlines():
        found = _NOTE.fullmatch(line.rstrip())
        if found is None:
            if note and line.startswith("  "):
                note.append(line.strip())
            continue
        if note:
            yield "\n".join(note), at
        note = [found[3]]
        said = (found[1], found[2]) if found[1] else _NOON
        hour, minute = min(int(said[0]), 23), min(int(said[1]), 59)
        at = datetime.datetime.combine(date, datetime.time(hour, minute)).timestamp()
    if note:
        yield "\n".join(note), at


def _memory(lesson: Lesson, day: str, names: set[str], taken: set[str]) -> tuple[str, bytes] | None:
    """The file of a lesson; one whose name is in use gets the day behind it."""
    name = lesson.name if key(lesson.name) not in names else f"{lesson.name} {day}"
    if lesson.type not in TYPES or wrong_with_name(name) or not lesson.body.strip():
        return None
    file = file_for(name, taken)
    data = new_topic(
        file,
        name=name,
        description=lesson.description,
        type=lesson.type,
        body=lesson.body,
        origin=Origin(date=day, author="dream"),
    )
    return file, data
