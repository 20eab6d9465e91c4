"""Finds `@path` in the text of a file: what may be an include, if there is such a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from sevenfold.memory.instructions.markdown import Piece

_MENTION: Final = re.compile(
    r"""
    (?<![A-Za-z0-9_.+%/@\\`-])@          # not after a letter: that is an e-mail address
    ((?:\\[ ]|[^\s\\@`<>"|，。；：、！？）】」』”’])
     (?:\\[ ]|[^\s`<>"|，。；：、！？）】」』”’]){0,1023})
    """,
    re.VERBOSE,
)
_TRAILING: Final = ".,;:!?)]}'*_"


def mentions(text: str, cut: Sequence[Piece]) -> Iterator[tuple[str, ...]]:
    """For each mention outside code and comments the paths it may mean, the likeliest first."""
    for kind, start, end in cut:
        if kind != "text":
            continue
        at = text.find("@", start, end)
        if at < 0:
            continue
        for found in _MENTION.finditer(text, at, end):
            yield _readings(found[1].replace("\\ ", " "))


def _readings(mention: str) -> tuple[str, ...]:
    """As written, without the punctuation of the sentence around it, without `#section`."""
    bare = mention.rstrip(_TRAILING)
    return tuple(dict.fromkeys(filter(None, (mention, bare, bare.partition("#")[0]))))
