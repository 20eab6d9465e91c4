"""The last touch on a memory before it is written, whoever writes it: its dates and where it is from.

A relative date becomes a calendar date, counted from now, in what is new; what stood in the file, what is
quoted and what is code stays. The origin is ours to say: a text cannot give itself another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sevenfold.clock import date_of
from sevenfold.memory.calendar.absolute_dates import absolute
from sevenfold.memory.merging import is_quote
from sevenfold.memory.revisions import Author
from sevenfold.memory.topic import Origin, Topic
from sevenfold.memory.topics.changes import changed
from sevenfold.memory.topics.reading import not_text

_SHOWN: Final = 3


def origin_of(author: Author, at: float) -> Origin:
    """For a memory of which nothing more is known."""
    return Origin(author.session, (), date_of(at), author.kind)


def dated(text: str, at: float, kept: Sequence[str] = ()) -> str:
    """The text with calendar dates in all lines but these, and those that quote."""
    lines = frozenset(line for line in text.split("\n") if is_quote(line)) | set(kept)
    return absolute(text, at, lines)


def finished(new: Topic, old: Topic | None, at: float, origin: Origin) -> bytes:
    """The bytes of a whole new text; `old` is what its file says now, `origin` that of a new memory."""
    if not_text(new.data):
        return new.data
    body = dated(new.body, at, old.body.split("\n") if old else ())
    same = old is not None and new.description == old.description
    description = new.description if same else dated(new.description, at)
    if old is not None:
        origin = old.origin or new.origin or origin
    return changed(
        new,
        description=description if description != new.description else None,
        body=body if body != new.body else None,
        origin=origin if old is None or origin != new.origin else None,
    )


def written_out(before: str, after: str) -> str:
    """Which dates were written out, in a sentence; empty: none."""
    old, new = before.split("\n"), after.split("\n")
    if before == after or len(old) != len(new):
        return ""
    lines = [line.strip() for was, line in zip(old, new, strict=True) if was != line]
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    told = "; ".join(line.rstrip(".") for line in lines[:_SHOWN])
    return f"Dates were written out: {told}{more}."
