"""A memory as a search gives it back, and the tag by which recalled text is known for what it is.

What was recalled is a copy: it is shown as data, and nobody may take it for something that was said and
save it a second time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from sevenfold.messages import Message, Text
from sevenfold.transcript import Placed

TAG: Final = "recalled-memories"
BY: Final = "Recall"
"""Who attaches recalled memories: the `by` of their entries in the transcript."""
_OPENING: Final = f"<{TAG} "


class Recalled(msgspec.Struct, frozen=True):
    """One memory that a search has found."""

    name: str
    file: str
    """Its path below the memory folder, with forward slashes."""
    path: Path
    type: str | None
    description: str
    modified: float
    score: float
    text: str
    """The whole body."""


def is_recalled(what: Placed | Message) -> bool:
    """Whether this is recalled text. Of a message in a view it also counts who put it there."""
    if isinstance(what, Placed):
        return what.by == BY and is_recalled(what.message)
    if what.role != "user" or not what.content:
        return False
    first = what.content[0]
    return isinstance(first, Text) and first.text.startswith(_OPENING)
