"""Stretches of the view that a short message stands for: how they are recorded, found and put back.

Snipping and collapsing leave the same traces: an edit that puts one message in place of a stretch, the
record of what it stands for, and the boundary that ends the write. Taking the edit back brings every
message back as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from sevenfold.boundary import BOUNDARY, record_name, record_of
from sevenfold.facts import line
from sevenfold.messages import Message, Opaque
from sevenfold.transcript import Entry, Id, Mark, Placed, Replace, Transcript, Undo, View

EXPANDED: Final = "expanded"
"""The mark that lists what the user has put back: it is left alone until the window is full."""
SERVER_SUMMARY: Final = "compaction"
"""The kind of block by which a provider says what stood before it."""
KEEP_ROUNDS: Final = 5
"""So many of the newest rounds always stay."""
LISTED: Final = 20
"""Files, commands and errors that a message names, of each."""


class Fold(msgspec.Struct, frozen=True):
    """A stretch that one message stands for."""

    id: Id
    """Of the edit, and of the message that stands for the stretch."""
    first: Id
    last: Id
    at: float
    rounds: int = 0
    tokens: int = 0


# --- what is told ---------------------------------------------------------------------------------------


def replies_in(stretch: Iterable[Placed]) -> int:
    """How many rounds these messages are: each begins with a reply of the model."""
    return sum(placed.message.role == "assistant" for placed in stretch)


def listed(title: str, lines: Sequence[str], most: int = LISTED) -> list[str]:
    """The newest of them under a title, and how many there were before; nothing when there are none."""
    if not lines:
        return []
    gone = len(lines) - most
    note = [f"- (earlier ones are not named: {gone:,})"] if gone > 0 else []
    return [title, *note, *(f"- {text}" for text in lines[-most:])]


def named(paths: Sequence[str]) -> str:
    """Files on one line, the newest when there are many."""
    shown = ", ".join(line(path, 300) for path in paths[-LISTED:])
    gone = len(paths) - LISTED
    return f"{shown} (and {gone:,} earlier ones)" if gone > 0 else shown


# --- where the view begins, and what of it stays --------------------------------------------------------


def seen_from(view: View) -> int:
    """Where what the model sees begins: at the newest summary that the provider made, if there is one."""
    return next((at for at in range(len(view) - 1, -1, -1) if server_summary(view[at].message)), 0)


def newest(view: View) -> int:
    """Where the newest rounds begin, which stay."""
    left = KEEP_ROUNDS
    for at in range(len(view) - 1, -1, -1):
        left -= view[at].message.role == "assistant"
        if not left:
            return at
    return 0


def server_summary(message: Message) -> str:
    """The provider's own summary in a reply; empty when there is none, or it failed to make one."""
    for block in message.content:
        if isinstance(block, Opaque) and block.kind == SERVER_SUMMARY:
            return _content(block)
    return ""


def _content(block: Opaque) -> str:
    try:
        content = msgspec.json.decode(block.raw).get("content")
    except (msgspec.DecodeError, AttributeError):
        return ""
    return content if isinstance(content, str) else ""


# --- what was folded, and putting it back -------------------------------------------------------------


def folds(transcript: Transcript, by: str) -> list[Fold]:
    """The stretches that this layer's messages in the view stand for, in the order of the view."""
    found = [fold for group in _writes(transcript, by) for fold in _folds_of(transcript, group)]
    return sorted(found, key=lambda fold: transcript.view.where(fold.id) or 0)


def expand(transcript: Transcript, by: str, ids: Iterable[Id]) -> tuple[Undo, Mark] | tuple[()]:
    """What puts these stretches back, and keeps them from being folded again at once.

    Nothing when none of them is in the view. It is written as any layer's hand-back, so that thinking
    which is bound to the shorter prefix goes with it.
    """
    wanted, undone, back = frozenset(ids), set[Id](), list[Fold]()
    for group in _writes(transcript, by):
        here = _folds_of(transcript, group)
        chosen = [fold for fold in here if fold.id in wanted]
        if chosen:
            back += chosen
            undone |= {fold.id for fold in chosen}
            undone |= {e.id for e in group if _belongs(e, chosen, transcript)}
        if chosen and len(chosen) == len(here):  # nothing is left of this write
            undone |= {e.id for e in group if _is_boundary(e)}
    if not back:
        return ()
    known = expanded(transcript.view)
    return Undo(frozenset(undone)), Mark(EXPANDED, [*known, *([f.first, f.last] for f in back)])


def expanded(view: View) -> list[list[Id]]:
    """First and last message of each stretch that was put back."""
    value = view.marks.get(EXPANDED)
    pairs = value if isinstance(value, list | tuple) else ()
    return [list(p) for p in pairs if isinstance(p, list | tuple) and len(p) == 2]


def put_back(view: View) -> frozenset[int]:
    """Where in the view the messages stand that were put back."""
    places: set[int] = set()
    for first, last in expanded(view):
        a, b = view.where(first), view.where(last)
        if a is not None and b is not None:
            places.update(range(a, b + 1))
    return frozenset(places)


def _writes(transcript: Transcript, by: str) -> Iterator[list[Entry]]:
    """What the layer wrote, one list for each time; a boundary ends each."""
    group: list[Entry] = []
    for entry in transcript.entries:
        if entry.by != by:
            group = []
            continue
        group.append(entry)
        if _is_boundary(entry):
            yield group
            group = []


def _folds_of(transcript: Transcript, group: Sequence[Entry]) -> list[Fold]:
    """Those of this write that still stand in the view as they were written."""
    view, out = transcript.view, list[Fold]()
    for entry in group:
        what = entry.what
        at = view.where(entry.id) if isinstance(what, Replace) else None
        if at is None or not isinstance(what, Replace) or view[at].message not in what.by:
            continue
        marks = {e.what.name: e.what.value for e in group if isinstance(e.what, Mark)}
        record = record_of(view[at], marks)
        rounds, tokens = (record.rounds, record.tokens) if record else (0, 0)
        out.append(Fold(entry.id, what.first, what.last, entry.at, rounds, tokens))
    return out


def _belongs(entry: Entry, chosen: Sequence[Fold], transcript: Transcript) -> bool:
    """Whether this is the record of one of them."""
    view = transcript.view
    places = (view.where(fold.id) for fold in chosen)
    own = {record_name(view[at].message) for at in places if at is not None}
    return isinstance(entry.what, Mark) and entry.what.name in own


def _is_boundary(entry: Entry) -> bool:
    return isinstance(entry.what, Mark) and entry.what.name == BOUNDARY
