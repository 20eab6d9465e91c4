"""Weighs a text: every sign of an attack in it, also in what is hidden, and the passage where it is worst.

What is hidden (invisible characters, base64, letters spaced apart) is read as well, and hiding counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sevenfold.memory.guard.found import Found, line
from sevenfold.memory.guard.reading import encoded, latin, plain, tagged
from sevenfold.memory.guard.scoring import Hit, Passage, hits, threshold, worst

_ANY: Final = re.compile(
    "[\u00ad\u200b-\u200d\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
)
_TAGS: Final = re.compile("(?<!\U0001f3f4)[\U000e0020-\U000e007e]{3,}(?!\U000e007f)")
"""Tag characters spell text that nobody sees; after a black flag they are the flag of a region."""
_OVERRIDES: Final = re.compile("[\u202d\u202e]")
_TURNED: Final = re.compile("[\u202a-\u202c\u2066-\u2069]")
"""Marks of direction that texts in Arabic or Hebrew have as well."""
_UNSEEN: Final = re.compile("[\u200b\u2060-\u2064\ufeff]{3,}|[\u200b-\u200d\u2060\ufeff]{5,}")
_SELECTORS: Final = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}")
_IN_WORDS: Final = re.compile("[A-Za-z][\u200b-\u200d\u2060\ufeff\u00ad][A-Za-z]")
_SPACED: Final = re.compile(r"(?<!\w)(?:\w[ .·_-]{1,2}){8,}\w(?!\w)")
_SPACES: Final = re.compile(r"[ .·_-]")
_RUN_ON: Final = re.compile(
    r"(?:ignore|disregard|forget)(?:all|any|the|your)*(?:previous|prior|above|instructions|rules)|"
    r"systemprompt|donottell|saythatyou|youmust|revealyour"
)
_ENCODED_ORDER: Final = 3.0
_IN_WORDS_MOST: Final = 2


def signs(text: str, source: str) -> list[Found]:
    """The signs in the passage that gives the text away; empty when it may be saved."""
    passage = weighed(text)
    if passage.score < threshold(source):
        return []
    shown = plain(text)
    return [
        Found("instruction", hit.said, line(shown, hit.at), f"sign: {hit.name}")
        for hit in passage.hits
    ]


def weighed(text: str) -> Passage:
    """The passage of a text that is most like an attack, whatever it comes to."""
    return worst([*_hidden(text), *_read(text)])


def _read(text: str) -> Iterator[Hit]:
    shown = plain(text)
    lower = latin(shown).lower()
    yield from hits(lower)
    yield from _spaced(lower)
    for at, said in encoded(shown):
        inside = worst(hits(latin(plain(said)).lower()))
        if inside.score >= _ENCODED_ORDER:
            yield Hit("base64", "hides an order in base64", _ENCODED_ORDER, at)
            yield from (Hit(hit.name, hit.said, hit.weight, at) for hit in inside.hits)


def _spaced(lower: str) -> Iterator[Hit]:
    """S p a c e d  o u t, to get past a search for words."""
    for run in _SPACED.finditer(lower):
        order = _RUN_ON.search(_SPACES.sub("", run[0]))
        if order:
            yield Hit("spaced letters", "spaces its letters out to hide an order", 6.0, run.start())


def _hidden(text: str) -> Iterator[Hit]:
    """Characters that show nothing and say something. Places are counted in the plain text."""
    if text.isascii() or not _ANY.search(text):
        return
    for at, said in tagged(text):
        if _TAGS.match(text, at):
            place = len(plain(text[:at]))
            yield Hit("invisible text", "holds text that nobody can see", 10.0, place)
            inside = worst(hits(said.lower()))
            yield from (Hit(hit.name, hit.said, hit.weight, place) for hit in inside.hits)
    for pattern, weight, name, said in _UNSEEN_SIGNS:
        if found := pattern.search(text):
            yield Hit(name, said, weight, len(plain(text[: found.start()])))
    if len(_IN_WORDS.findall(text)) > _IN_WORDS_MOST:
        first = _IN_WORDS.search(text)
        place = len(plain(text[: first.start()])) if first else 0
        yield Hit("split words", "splits words with invisible characters", 4.0, place)


_UNSEEN_SIGNS: Final = (
    (_OVERRIDES, 6.0, "turned letters", "turns its letters round, so that it reads otherwise"),
    (_TURNED, 2.0, "turned text", "turns the direction of its text"),
    (_UNSEEN, 5.0, "invisible characters", "holds runs of invisible characters"),
    (_SELECTORS, 6.0, "invisible text", "hides data in variation selectors"),
)
