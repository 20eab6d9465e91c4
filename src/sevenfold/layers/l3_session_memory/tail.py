"""Which messages stay word for word when the notes stand in for those before them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from sevenfold.boundary import SPOKEN, last_boundary
from sevenfold.cutting import may_begin, padded, thinking_loop
from sevenfold.tokens import Size
from sevenfold.transcript import View


class Keep(msgspec.Struct, frozen=True):
    """How much is to stay: tokens as they are padded, and messages with words in them."""

    tokens: int
    messages: int
    most: int


def cut_at(view: View, anchor: int, keep: Keep) -> int | None:
    """Where the tail begins; None when nothing could go.

    All that follows the anchor stays, and at least the newest round. Before it, messages stay until
    there are enough of them, as long as they are not too many and none of them was there before the
    last compaction.
    """
    loop, last = thinking_loop(view), min(anchor + 1, len(view) - 1)
    cuts = [at for at in range(last, 0, -1) if may_begin(view, at, loop)]
    if not cuts:
        return None
    floor = after_boundary(view)
    chosen = cuts[0]  # a cut that splits nothing, whatever it has to keep for that
    for at, size, messages in _growing(view, cuts):
        if at != chosen and (size > keep.most or at < floor):
            break
        chosen = at
        if size >= keep.tokens and messages >= keep.messages:
            break
    return chosen


def _growing(view: View, cuts: list[int]) -> Iterator[tuple[int, int, int]]:
    """Each cut with the padded tokens and the messages with words behind it."""
    size, messages, end = Size(), 0, len(view)
    for at in cuts:
        for n in range(at, end):
            size += view[n].size
            messages += bool(view[n].message.text.strip())
        end = at
        yield at, padded(view, size), messages


def after_boundary(view: View) -> int:
    """Where the messages begin that no compaction has touched."""
    boundary = last_boundary(view)
    if boundary is None:
        return 0
    if (kept := view.where(boundary.kept_from)) is not None:
        return kept
    at = next((n for n, placed in enumerate(view) if placed.id > boundary.last), len(view))
    while at < len(view) and view[at].by not in SPOKEN:
        at += 1
    return at
