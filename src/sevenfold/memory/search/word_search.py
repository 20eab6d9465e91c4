"""Search by words: the memories that hold all of them, with the best line of each."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sevenfold.core.clock import SystemClock
from sevenfold.memory.recall_results import count_days_ago
from sevenfold.memory.store import MemoryStore
from sevenfold.memory.topic_file import Topic
from sevenfold.storage.transcript_search import SearchWords


class ScoredMemory(msgspec.Struct, frozen=True):
    """One memory that was found."""

    name: str
    path: Path
    type: str | None
    description: str
    age_days: int
    score: float


class SearchRow(ScoredMemory, frozen=True):
    line: str  # The line with the words; empty if the memory only means the same


def search_memories(memory: MemoryStore, words: str, wanted: SearchWords, limit: int) -> list[SearchRow]:
    """The memories that hold all the words first, then those that the search finds."""
    now, ranked = SystemClock().now(), memory.search(words, limit)
    scores = {one.file: one.score for one in ranked}
    topics, modified = {topic.file: topic for topic in memory.topics()}, memory.modified()
    lines = {file: _find_best_line(topic, wanted) for file, topic in topics.items()}
    order = sorted(
        (file for file in topics if lines[file] or file in scores),
        key=lambda file: (not lines[file], -scores.get(file, 0.0), file),
    )
    return [
        SearchRow(
            name=topics[file].name,
            path=memory.path_of(file),
            type=topics[file].type,
            description=topics[file].description,
            age_days=count_days_ago(modified.get(file, now), now),
            score=round(scores.get(file, 0.0), 4),
            line=lines[file],
        )
        for file in order[:limit]
    ]


def _find_best_line(topic: Topic, wanted: SearchWords) -> str:
    """The best line: one with all the words, else one with any, if all of them are in the file."""
    lines = [topic.name, topic.description, *topic.body.split("\n")]
    if whole := next((line for line in lines if wanted.all_in(line)), ""):
        return wanted.cut_around(whole)
    if not wanted.all_in("\n".join(lines)):
        return ""
    text_first = [*lines[2:], *lines[:2]]  # the name and the description are shown anyway
    return wanted.cut_around(next((line for line in text_first if wanted.any_in(line)), ""))
