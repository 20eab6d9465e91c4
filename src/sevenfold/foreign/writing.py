"""The messages of a request: the caller's own where nothing changed them, else as the view shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sevenfold.foreign.formats import Format, Written
from sevenfold.foreign.heard import Heard
from sevenfold.foreign.history import Group
from sevenfold.foreign.plain import snapshot
from sevenfold.foreign.remembered import Remembered
from sevenfold.messages import THOUGHTS, Block, Json, Message, ToolResult
from sevenfold.request import pinned
from sevenfold.transcript import View


class Writer:
    """Writes requests of one conversation; what it found out about the view it keeps for the next one."""

    def __init__(self, form: Format) -> None:
        self._form = form
        self._buffer: object = None
        self._length = 0
        self._in_order = True
        """The view is the caller's messages, each in its place and nothing between them."""
        self._altered: set[int] = set()

    def write(
        self, view: View, groups: Sequence[Group], known: Remembered, said: list[Any]
    ) -> Written:
        """`said` is what the caller has now, group for group what is known."""
        self._look(view, groups, known)
        if not self._in_order or len(view) != len(groups) or view.pins:
            return self._piece_by_piece(view, groups, known, said)
        out = list(said)
        ends = _Ends(known, len(groups))
        special = sorted(known.special | self._altered, reverse=True)
        for at in special:  # from the end, so that what is dropped does not move what comes next
            first, last = known.start(at), known.start(at + 1)
            new = self._as_shown(known[at], view[at].message, out[first:last])
            if len(new) != last - first:
                return self._piece_by_piece(view, groups, known, said)
            out[first:last] = new
        return Written(out, ends)

    def _look(self, view: View, groups: Sequence[Group], known: Remembered) -> None:
        """Find what of the view is not as the caller said it. Only what is new is looked at."""
        if view.buffer is not self._buffer or len(view) < self._length:
            self._buffer, self._length = view.buffer, 0
            self._in_order, self._altered = True, set()
        for at in range(self._length, len(view)):
            placed = view[at]
            if at >= len(groups) or groups[at].id != placed.id:
                self._in_order = False
                break
            if not _unchanged(known[at], placed.message):
                self._altered.add(at)
        self._length = len(view)

    def _piece_by_piece(
        self, view: View, groups: Sequence[Group], known: Remembered, said: list[Any]
    ) -> Written:
        where = {group.id: at for at, group in enumerate(groups)}
        pins = pinned(view)
        out: list[Any] = []
        ends: list[int] = []
        for placed in view:
            at = where.get(placed.id)
            if at is None:
                out += self._form.told(placed.message)
            else:
                own = said[known.start(at) : known.start(at + 1)]
                out += self._as_shown(known[at], placed.message, own)
            ends.append(len(out))
            for payload in pins.get(placed.id, ()):
                out.append({"role": "user", "content": [msgspec.json.decode(payload)]})
        return Written(out, ends)

    def _as_shown(self, heard: Heard, shown: Message, said: list[Any]) -> list[Any]:
        messages = said if heard.own is None else snapshot(heard.own)
        if _unchanged(heard, shown):
            return messages
        pairs = _matched(heard.message.content, shown.content)
        if pairs is None:
            return self._form.told(shown)
        out: list[Json] = []
        first = 0
        for message, size in zip(messages, heard.sizes, strict=True):
            before, after = heard.message.content[first : first + size], pairs[first : first + size]
            first += size
            if all(new is old for old, new in zip(before, after, strict=True)):
                out.append(message)
            elif (new := self._form.rewritten(message, before, after)) is not None:
                out.append(new)
        return out


class _Ends(Sequence[int]):
    """Where each group ends in the caller's list, looked up when asked."""

    def __init__(self, known: Remembered, length: int) -> None:
        self._known, self._length = known, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at: Any) -> Any:
        return self._known.start(at + 1)


def _unchanged(heard: Heard, shown: Message) -> bool:
    """Whether the view shows what the caller said; what was found equal once is found so at once."""
    if shown is heard.message:
        return True
    if shown != heard.message:
        return False
    heard.message = shown
    return True


def _matched(before: Sequence[Block], after: Sequence[Block]) -> list[Block | None] | None:
    """What is shown for each block; None for thinking that was dropped. None at all: they do not match."""
    out: list[Block | None] = []
    rest = iter(after)
    new = next(rest, None)
    for old in before:
        if new is not None and _stands_for(new, old):
            out.append(old if new == old else new)
            new = next(rest, None)
        elif isinstance(old, THOUGHTS):
            out.append(None)
        else:
            return None
    return out if new is None else None


def _stands_for(new: Block, old: Block) -> bool:
    if isinstance(new, ToolResult) and isinstance(old, ToolResult):
        return new.tool_use_id == old.tool_use_id
    return new == old
