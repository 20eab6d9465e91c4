"""Turns relative dates in memories into calendar dates, against the day the memory comes from.

That day is given by a date in the sentence, the origin of the memory, or the file's time.
"""

from __future__ import annotations

import datetime
import math
import re
from functools import lru_cache
from typing import Final, Literal

import msgspec

from sevenfold.memory.consolidation.sentences import read_description
from sevenfold.memory.consolidation.staged_memories import DatedSentence, StagedFiles
from sevenfold.memory.dates.relative import make_dates_absolute
from sevenfold.memory.dates.written_dates import WrittenDay, find_dates
from sevenfold.memory.folder.names import make_file_key
from sevenfold.memory.index import split_rows
from sevenfold.memory.recall_results import DAY
from sevenfold.memory.topic_file import Topic, change_topic

_SINCE: Final = re.compile(
    r"(?:\b(?:since|as\s+of|starting(?:\s+from)?|effective(?:\s+from)?|updated(?:\s+on)?|valid\s+from"
    r"|from)|自从?|从|從|截至)\s*$",
    re.IGNORECASE,
)
_FROM: Final = re.compile(r"(?:\b(?:from|starting|effective|valid)|从|從|自)[^,;]{0,12}$", re.I)
_OPENING: Final = re.compile(r"^[\s*_(\[（【]*$")
_CLOSING: Final = re.compile(r"^[\s*_)\]）】.。]*$")


class SpokenAt(msgspec.Struct, frozen=True):
    """The time at which a sentence was said, and how that is known."""

    at: float
    how: Literal["text", "origin", "file"]
    file_at: float
    written: float  # The time of the memory by its origin or its file, whatever day the sentence names

    def words(self) -> str:
        source = {"text": "as the text says", "origin": "by its origin", "file": "by the file's time"}
        return f"{format_day(self.at)}, {source[self.how]}"


def date_sentence(text: str, topic: Topic, modified: float) -> SpokenAt:
    """The time at which a sentence of a memory was said."""
    at = find_origin_time(topic)
    written = modified if at is None else at
    for day in find_dates(text):
        if _dates_the_sentence(text, day):
            return SpokenAt(find_noon(day.date), "text", modified, written)
    return SpokenAt(written, "file" if at is None else "origin", modified, written)


def find_reference_time(topic: Topic, modified: float) -> tuple[float, str]:
    """The moment against which the relative dates of a memory count, and where it is from."""
    if (at := find_origin_time(topic)) is not None:
        return at, "origin"
    stem = topic.file.rpartition("/")[2].removesuffix(".md")
    named = [day.date for text in (topic.name, stem) for day in find_dates(text.replace("_", "-"))]
    if len(set(named)) == 1:
        return find_noon(named[0]), "its name"
    return modified, "file time"


def find_origin_time(topic: Topic) -> float | None:
    """Noon of the day the memory comes from, if it says so."""
    written = topic.origin.date if topic.origin else ""
    day = next(find_dates(written[:40]), None)
    return find_noon(day.date) if day is not None else None


def explain_newer(new: SpokenAt, old: SpokenAt, *, marked: bool, now: float) -> str:
    """The evidence that one sentence is newer than another; empty when there is none.

    `marked` says that the new one has a word like "now" or "no longer", which is evidence by itself.
    """
    if new.at > now + DAY:
        return ""  # it does not hold yet
    first, second = count_days(old.at), count_days(new.at)
    against = new.how == "origin" and old.how == "origin" and new.file_at < old.file_at - DAY
    if second > first and not against:
        return f"the newer is of {new.words()}; the older of {old.words()}"
    if marked and second == first:
        return "it says itself that this changed"
    if marked and old.how != "text" and count_days(new.written) >= first:
        return "it says itself since when, and was written no earlier"
    return ""


def is_in_future(text: str, now: float) -> bool:
    """True if a sentence says that it holds from a day on that is still to come."""
    return any(
        find_noon(day.date) > now and _FROM.search(text[: day.start]) is not None
        for day in find_dates(text)
    )


def find_noon(date: datetime.date) -> float:
    """The middle of a local day."""
    try:
        return datetime.datetime.combine(date, datetime.time(12)).timestamp()
    except (OverflowError, OSError, ValueError):
        return 0.0


def format_day(at: float) -> str:
    """A moment as its local day, `2026-03-05`."""
    number = count_days(at)
    return datetime.date.fromordinal(number).isoformat() if number > 0 else "an unknown day"


def count_days(at: float) -> int:
    if not math.isfinite(at):
        return 0
    try:
        return datetime.datetime.fromtimestamp(at).astimezone().toordinal()
    except (OverflowError, OSError, ValueError):
        return 0


def _dates_the_sentence(text: str, day: WrittenDay) -> bool:
    """`since 2026-10-01`, `2026-10-01: …` and `… (2026-10-01)` date it; `due 2026-10-01` does not."""
    before, behind = text[: day.start], text[day.end :]
    if _SINCE.search(before):
        return True
    if _OPENING.match(before) and re.match(r"[\s*_)\]）】]*[:：–—-]", behind):
        return True
    return bool(re.search(r"[(\[（【]\s*$", before)) and bool(_CLOSING.match(behind))


resolve_dates: Final = lru_cache(maxsize=5_000)(make_dates_absolute)
"""Sentences come again and again in one dream; the finder is the one of every write."""


def resolve_memory_dates(files: StagedFiles) -> list[DatedSentence]:
    """Rewrite what is sure; the origin of a memory counts before the time of its file."""
    done: list[DatedSentence] = []
    for topic in files.workable():
        at, source = find_reference_time(topic, files.times.get(topic.file, 0.0))
        body, said = resolve_dates(topic.body, at), read_description(topic)
        told = resolve_dates(said, at)
        if body == topic.body and told == said:
            continue
        files.put(topic.file, change_topic(topic, body=body, description=told if told != said else None))
        lines = [(said, told), *_changed_lines(topic.body, body)]
        against = f"{format_day(at)} ({source})"
        done += [DatedSentence(topic.file, old, new, against) for old, new in lines if old != new]
    return [*done, *_hooks(files)]


def _changed_lines(before: str, after: str) -> list[tuple[str, str]]:
    old, new = before.split("\n"), after.split("\n")
    if len(old) != len(new):
        return [(before, after)]
    return [(a.strip(), b.strip()) for a, b in zip(old, new, strict=True) if a != b]


def _hooks(files: StagedFiles) -> list[DatedSentence]:
    """The same in the lines of the index, each against the day of its memory."""
    done: list[DatedSentence] = []
    there = {make_file_key(topic.file): topic for topic in files.active()}
    out: list[str] = []
    for row in split_rows(files.index):
        text, alone = row.text, row.pointing and len(row.links) == 1
        if alone and (topic := there.get(make_file_key(row.links[0].file))) is not None:
            at, source = find_reference_time(topic, files.times.get(topic.file, 0.0))
            end = row.links[0].end
            text = row.text[:end] + resolve_dates(row.text[end:], at)
            if text != row.text:
                against = f"{format_day(at)} ({source})"
                done.append(DatedSentence("MEMORY.md", row.text.strip(), text.strip(), against))
        out.append(text)
    if done:
        files.index = "".join(out)
    return done
