"""After a compaction: the names that stood in what is gone, by the file or tool they stood in.

A summary tells what was done. It seldom has the names of all functions, fields and branches that were seen,
and a model that needs one of them would read a whole file again to find it. A list of names is short, no
model has to write it, and it says where to look. Lines that look like credentials are passed over, and so
is what looks like a key: nobody looks for those by name, and the list is carried on for long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from sevenfold.facts import call_of
from sevenfold.fidelity import strings
from sevenfold.messages import Message, ToolUse
from sevenfold.restore import MARGIN, Cut, Restorable, context, given_back
from sevenfold.transcript import Placed

EACH: Final = 100
"""Names of one file or tool."""
SHORTEST, LONGEST = 5, 60
"""Letters of a name."""
LONGEST_PLACE: Final = 300
"""Of a longer path the tool is named."""
LONG: Final = 20_000
"""Characters of one text that are looked at."""
_WHAT: Final = (
    "The older part of the conversation was replaced. These names stood in what was read and written in"
    " it, the newest first, each under the file or the tool where it was seen last. They are names and no"
    " more: read the place before relying on one."
)
_NAME: Final = re.compile(r"\b[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*\b")
_SHAPED: Final = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]|_\w|[A-Za-z]\d")
"""Plain words say nothing about where they are from."""
_RANDOM: Final = re.compile(r"(?:[A-Za-z]*\d){4}|(?=\w{12})[A-Za-z]*\d+[A-Za-z]|[A-Z0-9]{16}")
"""How a key or a hash begins, between the dots and lines of a name."""
_PARTS: Final = re.compile(r"[._]")
_CREDENTIAL: Final = re.compile(
    r"^.*(?:(?:passw(?:or)?d|passphrase|secret|token|api_?key|credential|bearer)\w*[\"']?\s*[:=]"
    r"|\w://[^/\s:@]+:[^/\s@]+@).*$",
    re.IGNORECASE | re.MULTILINE,
)
_WORDS: Final = (
    *("passw", "passphrase", "secret", "token", "apikey", "api_key", "credential", "bearer"),
    "://",
)
"""One of these stands in every line that `_CREDENTIAL` finds."""
KNOWN: Final = 20_000
"""Names of which it is remembered whether they tell anything."""


class Glossary:
    """Gives back names, the newest first, as many as `most` tokens have room for; less in small windows."""

    name = "names"

    def __init__(self, most: int) -> None:
        self._most = most

    def restored(self, cut: Cut, room: int) -> Message | None:
        room = min(room, cut.scaled(self._most)) - cut.tokens(_WHAT) - MARGIN
        rate = cut.tokens("x" * 4_000) / 4_000
        found = _Found(int(room / rate) if rate else 0)
        for place, text in _texts(cut.removed):
            if found.full:
                break
            found.take(place, text)
        return context("\n".join([_WHAT, *found.lines])) if found.lines else None


class _Found:
    """Names by place. Each name stands once, and so many bytes are left for more."""

    def __init__(self, room: int) -> None:
        self._left = room
        self._seen: set[str] = set()
        self._places: dict[str, list[str]] = {}

    @property
    def full(self) -> bool:
        return self._left <= 0

    def take(self, place: str, text: str) -> None:
        here = self._places.get(place, [])
        if len(here) >= EACH:
            return
        for name in dict.fromkeys(_NAME.findall(_harmless(text[:LONG]))):
            if len(here) >= EACH or self._left <= 0:
                break
            if name in self._seen or not SHORTEST <= len(name) <= LONGEST or not _tells(name):
                continue
            self._seen.add(name)
            self._left -= len(name) + len(", ") + (0 if here else len(place.encode()) + len("- : "))
            here.append(name)
        if here:
            self._places[place] = here

    @property
    def lines(self) -> list[str]:
        return [f"- {place}: {', '.join(names)}" for place, names in self._places.items()]


@lru_cache(maxsize=KNOWN)
def _tells(name: str) -> bool:
    return bool(_SHAPED.search(name)) and not any(map(_RANDOM.match, _PARTS.split(name)))


def _harmless(text: str) -> str:
    """Without the lines that `_CREDENTIAL` finds. Only lines that have one of the words are looked at."""
    folded = text.casefold()
    places = {folded.rfind("\n", 0, at) + 1 for word in _WORDS for at in _each(word, folded)}
    if not places:
        return text
    if len(folded) != len(text):  # places in one are not places in the other
        return _CREDENTIAL.sub("", text)
    parts, kept = list[str](), 0
    for start in sorted(places):
        if start >= kept and (found := _CREDENTIAL.match(text, start)):
            parts.append(text[kept:start])
            kept = found.end()
    return "".join([*parts, text[kept:]])


def _each(word: str, text: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


def _texts(removed: Sequence[Placed]) -> Iterator[tuple[str, str]]:
    """What tools said and were told, and earlier lists of names, each with its place; the newest first."""
    uses = {use.id: use for placed in removed for use in placed.message.tool_uses}
    failed: set[str] = set()
    for placed in reversed(removed):
        yield from _listed(placed)
        for result in reversed(placed.message.results):
            use = uses.get(result.tool_use_id)
            if result.is_error:
                failed.add(result.tool_use_id)
            elif use is not None:
                yield _place(use), result.text
        for use in reversed(placed.message.tool_uses):
            if use.id not in failed:
                yield _place(use), "\n".join(strings(use.input))


def _listed(placed: Placed) -> Iterator[tuple[str, str]]:
    """The lines of an earlier list: what was seen then may be needed still."""
    for one in given_back(placed, _WHAT):
        place, colon, names = one.rpartition(": ")
        if colon:
            yield place, names


def _place(use: ToolUse) -> str:
    call = call_of(use)
    place = call.about if call.kind in ("read", "change") else use.name
    return place if place.isprintable() and len(place) <= LONGEST_PLACE else use.name


_check: type[Restorable] = Glossary
