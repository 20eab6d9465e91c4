"""`sevenfold memory recall` and `search`: what is remembered about something, and where it was said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

import msgspec

from sevenfold.cli.memory_showing import opened
from sevenfold.cli.options import Shared
from sevenfold.cli.output import result, say
from sevenfold.cli.past_words import Said, Sought, said_in, sought
from sevenfold.cli.surroundings import look
from sevenfold.cli.wording import moment, one_line
from sevenfold.clock import SystemClock
from sevenfold.errors import Mistake
from sevenfold.layers.l5_durable_memory.settings import SelectorName
from sevenfold.memory.age import age, days_ago
from sevenfold.memory.recalled import Recalled
from sevenfold.memory.store import MemoryStore
from sevenfold.memory.topic import Topic

SHOWN_LINES: Final = 12
"""Lines of a recalled memory that people are shown; the rest is named."""


class Remembered(msgspec.Struct, frozen=True):
    """One memory that was found."""

    name: str
    path: Path
    type: str | None
    description: str
    age_days: int
    score: float
    text: str


def _remembered(one: Recalled, now: float) -> Remembered:
    return Remembered(
        name=one.name,
        path=one.path,
        type=one.type,
        description=one.description,
        age_days=days_ago(one.modified, now),
        score=round(one.score, 4),
        text=one.text,
    )


# --- recall -------------------------------------------------------------------------------------------


def recall(shared: Shared, query: str, limit: int, selector: SelectorName | None) -> int:
    if not query.strip():
        raise Mistake("there is nothing to recall: ask something")
    with opened(shared) as memory:
        began = perf_counter()
        if selector == "hybrid" or (selector is None and _settled(shared) == "hybrid"):
            found, by = memory.recall(query, limit), "hybrid"
        else:
            from sevenfold.cli.memory_selecting import select

            chosen = select(shared, memory, query, limit, selector)
            found, by = list(chosen.memories), chosen.selector
        took = 1_000 * (perf_counter() - began)
    now = SystemClock().now()
    if not found:
        say(shared, "nothing that is remembered answers that")
    text = "\n\n".join(_drawn(one, now) for one in found)
    memories = [_remembered(one, now) for one in found]
    value = {"query": query, "took_ms": round(took, 1), "selector": by, "memories": memories}
    result(shared, text, value)
    return 0


def _settled(shared: Shared) -> SelectorName:
    return look(shared).settings().settings.recall.selector


def _drawn(one: Recalled, now: float) -> str:
    head = f"{one.name}  {one.type or 'untyped'} · {age(one.modified, now)} · {one.path}"
    lines = one.text.split("\n")
    if len(lines) > SHOWN_LINES:
        more = f"… {len(lines) - SHOWN_LINES:,} more lines: sevenfold memory show {one.file}"
        lines = [*lines[:SHOWN_LINES], more]
    return "\n".join([head, *(f"  {line}".rstrip() for line in [one.description, "", *lines])])


# --- search -------------------------------------------------------------------------------------------


class Place(msgspec.Struct, frozen=True):
    """One memory with the words in it, or about them."""

    name: str
    path: Path
    type: str | None
    description: str
    age_days: int
    score: float
    line: str
    """Where the words stand; empty when it only means the same."""


def search(shared: Shared, words: str, limit: int, transcripts: bool) -> int:
    wanted = sought(words)
    if wanted is None:
        raise Mistake("there is nothing to search for: give a word or a part of one")
    with opened(shared) as memory:
        places = _places(memory, words, wanted, limit)
    said: list[Said] = []
    if transcripts:
        said = list(said_in(look(shared).scoped(), wanted, limit))
    if not places and not said:
        more = "" if transcripts else "; --transcripts also searches what was said"
        say(shared, f"{words!r} was not found in memory{more}")
    value = {"query": words, "memories": places, **({"transcripts": said} if transcripts else {})}
    result(shared, "\n".join([*map(_memory_line, places), *map(_said_line, said)]), value)
    return 0


def _places(memory: MemoryStore, words: str, wanted: Sought, limit: int) -> list[Place]:
    """The memories that hold all the words first, then those that the search finds."""
    now, ranked = SystemClock().now(), memory.search(words, limit)
    scores = {one.file: one.score for one in ranked}
    topics, modified = {topic.file: topic for topic in memory.topics()}, memory.modified()
    lines = {file: _line(topic, wanted) for file, topic in topics.items()}
    order = sorted(
        (file for file in topics if lines[file] or file in scores),
        key=lambda file: (not lines[file], -scores.get(file, 0.0), file),
    )
    return [
        Place(
            name=topics[file].name,
            path=memory.folder / file,
            type=topics[file].type,
            description=topics[file].description,
            age_days=days_ago(modified.get(file, now), now),
            score=round(scores.get(file, 0.0), 4),
            line=lines[file],
        )
        for file in order[:limit]
    ]


def _line(topic: Topic, wanted: Sought) -> str:
    """The best line: one with all the words, else one with any, if all of them are in the file."""
    lines = [topic.name, topic.description, *topic.body.split("\n")]
    if whole := next((line for line in lines if wanted.all_in(line)), ""):
        return wanted.around(whole)
    if not wanted.all_in("\n".join(lines)):
        return ""
    return wanted.around(next((line for line in _last_first(lines) if wanted.any_in(line)), ""))


def _last_first(lines: Sequence[str]) -> Iterable[str]:
    """The text before the name and the description: they are shown anyway."""
    return [*lines[2:], *lines[:2]]


def _memory_line(place: Place) -> str:
    said = place.line or place.description
    return f"{place.path}: {one_line(said, 300)}"


def _said_line(said: Said) -> str:
    return f"{said.session}  {moment(said.at)}  {said.by}: {one_line(said.text, 300)}"
