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
from sevenfold.memory.dates.relative import find_relative_dates, make_dates_absolute
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


_WEEKDAY: Final = re.compile(
    r"(?:(?:on|by|until|till|before|due|since|for|from|to)\s+)?(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"(?:\s+(?:morning|afternoon|evening|night))?|(?:周|週|星期|礼拜|禮拜)[一二三四五六日天]",
    re.IGNORECASE,
)
_ONCE: Final = re.compile(
    r"\b(?:will|due|deadline|by|until|was|were|met|said|told|sent|found|began|\w{3,}ed|demo|freeze|launch"
    r"|exam|interview|flight|appointment|presentation|hearing)\b|['’]ll\b|截止|到期|已|之前|演示|面试|航班|考试",
    re.IGNORECASE,
)
_HABIT: Final = re.compile(
    r"\b(?:happens?|deploy(?:s|ments)|runs?|meets?|always|never|every|each|usually|only|weekly|stand-?ups?"
    r"|days?|schedules?|releases|builds|meetings|reviews|shifts|calls|ships?)\b|每|总是|通常|例会|部署",
    re.IGNORECASE,
)
_LOOSE: Final = re.compile(r"today|tomorrow|this\s|tonight", re.IGNORECASE)
_NOT: Final = re.compile(r"\b(?:no|none|nothing|never|not|nobody)\b|n['’]t\b", re.IGNORECASE)
_GLUED: Final = re.compile("[A-Za-z0-9]")


@lru_cache(maxsize=5_000)
def resolve_dates(text: str, at: float) -> str:
    """The text with calendar dates, where an expression surely means one day.

    `Deploys happen on Friday` is a rule for every week, so it stays.
    """
    if not find_relative_dates(text, at):
        return text
    return make_dates_absolute(_spaced(text, at), at, is_sure=_is_sure)


def _spaced(text: str, at: float) -> str:
    """With a space where a date would run into a word or a number: Chinese needs none there."""
    for place in reversed(find_relative_dates(text, at)):
        if _GLUED.match(text[place.end : place.end + 1]):
            text = text[: place.end] + " " + text[place.end :]
        if place.start and _GLUED.match(text[place.start - 1]):
            text = text[: place.start] + " " + text[place.start :]
    return text


def _is_sure(text: str, at: int, end: int) -> bool:
    """True if an expression means one day: not a weekday of every week, and not `today` for nowadays."""
    start = max(text.rfind("\n", 0, at), text.rfind(". ", 0, at), text.rfind("。", 0, at)) + 1
    stop = text.find("\n", at)
    sentence = text[start : stop if stop >= 0 else len(text)]
    if _WEEKDAY.fullmatch(text[at:end]):
        return _ONCE.search(text[start:at]) is not None and _HABIT.search(sentence) is None
    return not (_LOOSE.match(text[at:end]) and _NOT.search(sentence))


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
