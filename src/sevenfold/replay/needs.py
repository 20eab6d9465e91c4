"""Which tool results a recorded session went back to, and when.

A result counts as needed by a reply when something in the reply can only have come from there: a line that
an Edit replaces, or a rare word (an identifier, a path, a number with a shape of its own) that stands in
that result and nowhere else in the view. Where several results hold it, each of them would have done.
Needs of meaning, without such a trace, are not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from sevenfold.messages import Json, Message, Text, ToolUse
from sevenfold.transcript import Entry, Id, Replace, Reply

SHORTEST_LINE: Final = 12
"""A shorter line (a bracket, a return) could have come from anywhere."""
SHORTEST_WORD: Final = 5
MOST_SOURCES: Final = 3
"""A word that stands in more results than this is not rare."""
ROBUST: Final = 2
"""So many rare words of one result in one reply are no accident."""
ELSEWHERE: Final = ""
"""The source of what the user or the model itself said."""

_NUMBERED: Final = re.compile(r"^\s*\d+[→\t:-]")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[./-][A-Za-z0-9_]+)*|\d[\d.]{3,}\d")
_SHAPED: Final = re.compile(r"[_\d./-]|[a-z][A-Z]")


class Need(msgspec.Struct, frozen=True):
    """Something in a reply that these results, and nothing else in the view, could have told."""

    sources: tuple[str, ...]
    """Tool-use ids, oldest first."""
    line: bool
    """A line that an Edit replaces; else a rare word."""


class Missed(msgspec.Struct, frozen=True):
    """What a reply needed of one result that was not in the view."""

    use_id: str
    robust: bool


def needs_of(entries: Iterable[Entry]) -> dict[Id, tuple[Need, ...]]:
    """By the id of the reply that needed them."""
    found: dict[Id, tuple[Need, ...]] = {}
    seen = _Seen()
    for entry in entries:
        match entry.what:
            case Reply(message):
                if needs := tuple(seen.needs(message)):
                    found[entry.id] = needs
                seen.take(message)
            case Message() as message:
                seen.take(message)
            case Replace(by=messages):
                seen = _Seen()  # what was read before has left every view alike
                for message in messages:
                    seen.take(message)
            case _:
                pass
    return found


def missed(needs: Sequence[Need], gone: AbstractSet[str]) -> list[Missed]:
    """The results among `gone` that these needs go back to; of several the newest would do."""
    words: dict[str, int] = {}
    lines: set[str] = set()
    for need in needs:
        if all(source in gone for source in need.sources):
            newest = need.sources[-1]
            words[newest] = words.get(newest, 0) + 1
            if need.line:
                lines.add(newest)
    return [Missed(use, use in lines or count >= ROBUST) for use, count in words.items()]


class _Seen:
    """Where each line and each rare word of the view stands."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        self._words: dict[str, list[str]] = {}

    def take(self, message: Message) -> None:
        for result in message.results:
            self._note(result.text, result.tool_use_id)
        for text in _own_words(message):
            self._note(text, ELSEWHERE)

    def needs(self, message: Message) -> Iterator[Need]:
        for use in message.tool_uses:
            for old in _replaced(use):
                yield from _needs(self._lines, lines_of(old), True)
        spoken = {word for text in _own_words(message) for word in words_of(text)}
        yield from _needs(self._words, spoken, False)

    def _note(self, text: str, source: str) -> None:
        for known, parts in ((self._lines, lines_of(text)), (self._words, words_of(text))):
            for part in parts:
                sources = known.setdefault(part, [])
                if source not in sources and len(sources) <= MOST_SOURCES:
                    sources.append(source)


def _needs(known: Mapping[str, list[str]], parts: Iterable[str], line: bool) -> Iterator[Need]:
    for part in parts:
        sources = known.get(part, ())
        if sources and len(sources) <= MOST_SOURCES and ELSEWHERE not in sources:
            yield Need(tuple(sources), line)


def _replaced(use: ToolUse) -> Iterator[str]:
    """The texts that a call to an editor puts others in place of."""
    edits = use.input.get("edits") if use.name == "MultiEdit" else None
    for edit in (use.input, *(edits if isinstance(edits, list) else ())):
        if use.name in ("Edit", "MultiEdit") and isinstance(edit, dict):
            yield str(edit.get("old_string", ""))


def _own_words(message: Message) -> Iterator[str]:
    for block in message.content:
        if isinstance(block, Text):
            yield block.text
        elif isinstance(block, ToolUse):
            yield from _strings(block.input)


def _strings(value: Json | list[object] | object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def lines_of(text: str) -> set[str]:
    """The lines of a text that are long enough to be recognised, without line numbers and margins."""
    stripped = (_NUMBERED.sub("", line).strip() for line in text.splitlines())
    return {line for line in stripped if len(line) >= SHORTEST_LINE}


def words_of(text: str) -> set[str]:
    """Identifiers, paths and numbers; plain words of a language say nothing about where they are from."""
    return {
        word for word in _WORD.findall(text) if len(word) >= SHORTEST_WORD and _SHAPED.search(word)
    }
