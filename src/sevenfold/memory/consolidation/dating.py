"""Relative dates in memories become calendar dates, against the day the memory comes from."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from sevenfold.memory.calendar.absolute_dates import absolute, places
from sevenfold.memory.consolidation.reports import Dated
from sevenfold.memory.consolidation.staged import StagedFiles
from sevenfold.memory.consolidation.statements import description
from sevenfold.memory.consolidation.timing import day_of, spoken_at
from sevenfold.memory.folder.naming import key
from sevenfold.memory.index_rows import rows_of
from sevenfold.memory.topic import changed

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
_HIDDEN: Final = "\ue000"


@lru_cache(maxsize=5_000)
def dated(text: str, at: float) -> str:
    """The text with calendar dates, where an expression surely means one day.

    `Deploys happen on Friday` is a rule for every week; in a memory there is nobody left to ask.
    """
    if _HIDDEN in text or not places(text, at):
        return text
    text = _spaced(text, at)
    hidden = [
        (place.start, place.end)
        for place in places(text, at)
        if not _is_sure(text, place.start, place.end)
    ]
    if not hidden:
        return absolute(text, at)
    masked = text
    for start, end in hidden:
        masked = masked[:start] + _HIDDEN * (end - start) + masked[end:]
    kept = iter([text[start:end] for start, end in hidden])
    return re.sub(f"{_HIDDEN}+", lambda _: next(kept), absolute(masked, at))


def _spaced(text: str, at: float) -> str:
    """With a space where a date would run into a word or a number: Chinese needs none there."""
    for place in reversed(places(text, at)):
        if _GLUED.match(text[place.end : place.end + 1]):
            text = text[: place.end] + " " + text[place.end :]
        if place.start and _GLUED.match(text[place.start - 1]):
            text = text[: place.start] + " " + text[place.start :]
    return text


def _is_sure(text: str, at: int, end: int) -> bool:
    """Whether an expression means one day: not a weekday of every week, and not `today` for nowadays."""
    start = max(text.rfind("\n", 0, at), text.rfind(". ", 0, at), text.rfind("。", 0, at)) + 1
    stop = text.find("\n", at)
    sentence = text[start : stop if stop >= 0 else len(text)]
    if _WEEKDAY.fullmatch(text[at:end]):
        return _ONCE.search(text[start:at]) is not None and _HABIT.search(sentence) is None
    return not (_LOOSE.match(text[at:end]) and _NOT.search(sentence))


def make_absolute(files: StagedFiles) -> list[Dated]:
    """Rewrite what is sure; the origin of a memory counts before the time of its file."""
    done: list[Dated] = []
    for topic in files.workable():
        at, source = spoken_at(topic, files.times.get(topic.file, 0.0))
        against = f"{day_of(at)} ({source})"
        body = dated(topic.body, at)
        said = description(topic)
        told = dated(said, at)
        if body == topic.body and told == said:
            continue
        files.put(topic.file, changed(topic, body=body, description=told if told != said else None))
        lines = [(said, told), *_changed_lines(topic.body, body)]
        done += [Dated(topic.file, old, new, against) for old, new in lines if old != new]
    return [*done, *_hooks(files)]


def _changed_lines(before: str, after: str) -> list[tuple[str, str]]:
    old, new = before.split("\n"), after.split("\n")
    if len(old) != len(new):
        return [(before, after)]
    return [(a.strip(), b.strip()) for a, b in zip(old, new, strict=True) if a != b]


def _hooks(files: StagedFiles) -> list[Dated]:
    """The same in the lines of the index, each against the day of its memory."""
    done: list[Dated] = []
    there = {key(topic.file): topic for topic in files.active()}
    out: list[str] = []
    for row in rows_of(files.index):
        topic = there.get(key(row.links[0].file)) if row.pointing and len(row.links) == 1 else None
        text = row.text
        if topic is not None:
            at, source = spoken_at(topic, files.times.get(topic.file, 0.0))
            end = row.links[0].end
            text = row.text[:end] + dated(row.text[end:], at)
            if text != row.text:
                against = f"{day_of(at)} ({source})"
                done.append(Dated("MEMORY.md", row.text.strip(), text.strip(), against))
        out.append(text)
    if done:
        files.index = "".join(out)
    return done
