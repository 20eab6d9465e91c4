"""What became of what was planted, told by reading the files afterwards, not by asking the dream."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.dreaming.folders import Planted, topics
from sevenfold.memory.folder.names import make_file_key
from sevenfold.memory.index import HOOK, list_exceeded_limits, read_index
from sevenfold.memory.topic_file import read_topic

_MARKS: Final = re.compile(r"[^\w/:.-]+|(?<!\w)[.:-]+|[.:-]+(?!\w)")
_ARTICLE: Final = re.compile(r"\b(?:the|this|a|an)\b")


class Found(msgspec.Struct):
    """The same counts for one folder or for many."""

    facts: int = 0
    lost: int = 0
    twins: int = 0
    joined: int = 0
    apart: int = 0
    wrongly_joined: int = 0
    changes: int = 0
    resolved: int = 0
    left: int = 0
    reversed: int = 0
    open: int = 0
    kept_open: int = 0
    dates: int = 0
    dated: int = 0
    wrongly_dated: int = 0
    over: int = 0
    archived: int = 0
    pointers: int = 0
    dangling: int = 0
    missing: int = 0
    long: int = 0
    over_limit: int = 0
    examples: list[str] = []

    def add(self, other: Found) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def measured(place: Path, planted: Planted) -> Found:
    """Look at a folder after a dream."""
    texts = {path.relative_to(place).as_posix(): path.read_text("utf-8") for path in topics(place)}
    parts = [plain(text) for text in texts.values()]
    found = Found(facts=len(planted.facts))
    for fact in planted.facts:
        if not any(plain(fact) in part for part in parts):
            found.lost += 1
            found.examples.append(f"lost: {fact}")
    _pairs(found, planted, texts)
    _changes(found, planted, parts)
    _dates(found, planted, texts)
    found.over = len(planted.over)
    found.archived = sum(f"archive/{file}" in texts for file in planted.over)
    _index(found, place, texts)
    return found


def plain(text: str) -> str:
    """A text without markup, case, articles and line breaks."""
    return " ".join(_ARTICLE.sub(" ", _MARKS.sub(" ", text.lower())).split())


def _pairs(found: Found, planted: Planted, texts: dict[str, str]) -> None:
    found.twins, found.apart = len(planted.twins), len(planted.apart)
    for twin in planted.twins:
        if twin.first in texts and twin.second in texts:
            found.examples.append(f"not merged: {twin.first}, {twin.second}")
        else:
            found.joined += 1
    for twin in planted.apart:
        if not _both_there(twin.first, twin.second, texts):
            found.wrongly_joined += 1
            found.examples.append(f"wrongly merged: {twin.first}, {twin.second}")


def _both_there(one: str, other: str, texts: dict[str, str]) -> bool:
    return all(file in texts or f"archive/{file}" in texts for file in (one, other))


def _changes(found: Found, planted: Planted, parts: list[str]) -> None:
    found.changes, found.open = len(planted.changes), len(planted.open)
    for change in planted.changes:
        old, new = (_says(text, parts) for text in (change.old, change.new))
        if new and not old:
            found.resolved += 1
        elif new and old:
            found.left += 1
            found.examples.append(f"both left ({change.style}): {change.old} | {change.new}")
        else:
            found.reversed += 1
            found.examples.append(f"wrong ({change.style}): {change.old} | {change.new}")
    for one, other in planted.open:
        both = _says(one, parts) and _says(other, parts)
        found.kept_open += both
        if not both:
            found.examples.append(f"decided without evidence: {one} | {other}")


def _says(sentence: str, parts: list[str]) -> bool:
    sought = re.compile(rf"(?<!\w){re.escape(plain(sentence))}(?![\w.])")
    return any(sought.search(part) for part in parts)


def _dates(found: Found, planted: Planted, texts: dict[str, str]) -> None:
    found.dates = len(planted.dates)
    everything = "\n".join(texts.values())
    for sentence, day in planted.dates:
        if sentence in everything:
            found.examples.append(f"still relative: {sentence}")
            continue
        name = next(word for word in re.findall(r"[A-Z][a-z]+", sentence) if word not in {"The"})
        mine = [text for text in texts.values() if name in text]
        if any(day in text for text in mine):
            found.dated += 1
        else:
            found.wrongly_dated += 1
            found.examples.append(f"wrong day: {sentence}, which is {day}")


def _index(found: Found, place: Path, texts: dict[str, str]) -> None:
    text = (place / "MEMORY.md").read_text("utf-8")
    read = read_index(text)
    there = {make_file_key(file) for file in texts}
    pointed = {make_file_key(one.file) for one in read.pointers}
    found.pointers = len(read.pointers)
    found.dangling = sum(make_file_key(one.file) not in there for one in read.pointers)
    found.missing = sum(make_file_key(file) not in pointed for file in texts if "/" not in file)
    found.long = sum(len(read.lines[one.line - 1].rstrip()) > HOOK for one in read.pointers)
    found.over_limit = int(bool(list_exceeded_limits(text)))


def sentences(place: Path) -> list[str]:
    """Every line of a folder that says something, for folders about which nothing is known."""
    found: list[str] = []
    for path in topics(place):
        topic = read_topic(path.read_bytes(), path.name)
        lines = [plain(line) for line in topic.body.split("\n")]
        found += [line for line in [*lines, plain(topic.description)] if len(line) > 3]
    return found
