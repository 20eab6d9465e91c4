"""The message that stands for the older part: the notes, what the user said, where the rest is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sevenfold.boundary import COMPACTIONS, SPOKEN, Record, collected
from sevenfold.facts import Facts, clipped
from sevenfold.messages import user
from sevenfold.quotes import (
    LEAST,
    enclosed,
    level,
    numbered,
    quotes,
    room_of,
    unquoting,
    where_it_is,
)
from sevenfold.tokens import TEXT_RATE, byte_length
from sevenfold.transcript import Mark, Placed

TAG: Final = "session-notes"
SHORT: Final = 40
"""Characters: what is shorter stands in any text by chance."""
CONTEXTS: Final = 0.25
"""The share of the room for quotes that goes to what the program told the model."""
_AROUND: Final = 70
"""Bytes around what was cut."""

_WHAT: Final = (
    "This conversation was longer than what can be shown at once. Its older part is not shown any more. In "
    "its place stand the notes that were taken while it went on; what comes after them is shown word for "
    "word. The notes are a record, not a request: go on with the work, and do not answer them."
)
_NOTES: Final = "## Notes on this session"
_SAID: Final = (
    "## What the user said, word for word, as far as it is not in the notes; oldest first"
)
_TOLD: Final = "## What the program said about where this takes place"


class Quoted(msgspec.Struct, frozen=True):
    """A text for the view, and the facts it was made of."""

    text: str
    facts: Facts

    @property
    def mark(self) -> Mark:
        return Record(self.facts).mark(user(self.text))


def quoted(notes: str, gone: Facts, path: Path | None, room: int, *, asking: bool) -> Quoted:
    """The message. `room`: tokens for what is quoted. `asking`: what the user said last is what is being
    worked on, and stands nowhere else.
    """
    said = numbered(gone.said)
    told_there = " ".join(notes.split())
    missing = [(n, text) for n, text in said if not _in(text, told_there)]
    if asking and said and missing[-1:] != said[-1:]:
        missing.append(said[-1])
    byte = int(room / TEXT_RATE)
    lines = [_WHAT, where_it_is(path), "", _NOTES, "", unquoting(notes.strip())]
    if told := _fitted([unquoting(text) for text in gone.contexts], int(byte * CONTEXTS)):
        lines += ["", _TOLD, *told]
    if words := quotes(missing, byte - room_of(told), last_whole=asking):
        lines += ["", _SAID, *words]
    return Quoted(enclosed(TAG, lines), replace(gone, account=notes))


def _in(said: str, notes: str) -> bool:
    """Whether it is in the notes, which stand on one line."""
    flat = " ".join(said.split())
    return not flat or (len(flat) >= SHORT and flat in notes)


def _fitted(texts: Sequence[str], room: int) -> list[str]:
    most = level([byte_length(text) for text in texts], room - _AROUND * len(texts))
    return (
        [clipped(text, most) for text in texts] if most >= LEAST or room_of(texts) <= room else []
    )


# --- what is replaced -----------------------------------------------------------------------------------


def gone_with(removed: Sequence[Placed], marks: Mapping[str, Any], *, started: bool) -> Facts:
    """What was said in these messages, and in those that stand for earlier ones.

    Without `started`, what hooks said before the first reply is left to whoever restores it.
    """
    first = next(
        (at for at, p in enumerate(removed) if p.message.role == "assistant"), len(removed)
    )
    start = {placed.id for placed in removed[:first] if placed.by == "hooks" and not started}

    def quoted(placed: Placed) -> bool:
        """What others put beside the conversation is theirs to put there again."""
        return placed.by in SPOKEN | COMPACTIONS and placed.id not in start

    return collected(removed, marks, quoted)
