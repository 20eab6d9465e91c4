"""What the log knows of the caller's messages: which there are, how each is shown, which were given up.

Worked out from the entries alone, one after the other, so that a resumed conversation knows what the one
before it knew. What the caller does to its history is in the log as edits of ours:

    Message, with a source       the caller said something new
    Mark "context.adopted"       the caller's own copy of the reply that was recorded
    Replace, with a source       the caller's copy differs, or it changed a message in its place
    Replace by "context"         the caller took these out
    Undo                         the caller changed what stands here: from here on it is learned anew
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from sevenfold.messages import THOUGHTS, Block, Message, ToolResult
from sevenfold.transcript import Entry, Id, Mark, Replace, Reply, Results, Undo, Unthink

BY: Final = "context"
ADOPTED: Final = "context.adopted"


@dataclass(slots=True)
class Group:
    """Messages of the caller that are one message of the view."""

    fingerprint: str
    id: Id
    """The entry by which the view has it."""
    place: Id
    """Where it stands: the first entry that stood there."""
    shown: Message
    """As the view shows it, or would if no summary stood in its place."""


class History:
    """Reads the log as it grows."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.awaited: Id | None = None
        """The reply that was recorded and that the caller has not sent back yet."""
        self._read = 0
        self._said: dict[Id, Message] = {}
        self._spans: dict[Id, tuple[Id, Id]] = {}
        self._departed: dict[str, list[Message]] = {}
        self._holders: dict[str, Group] = {}
        self._uses: dict[str, int] = {}

    def read(self, entries: Sequence[Entry]) -> None:
        """Take in the entries that have come since the last time."""
        for entry in entries[self._read :]:
            self._take(entry)
        self._read = len(entries)

    def _take(self, entry: Entry) -> None:
        match entry.what:
            case Message() as message:
                self._said[entry.id] = message
                if entry.source:
                    self._arrive(Group(entry.source, entry.id, entry.id, message))
            case Reply(message):
                self._said[entry.id] = message
                self._count(message, 1)
                self.awaited = entry.id
            case Mark(name, int(id)) if name == ADOPTED and id in self._said:
                self._adopt(Group(entry.source, id, id, self._said[id]))
            case Replace() as edit:
                self._replace(entry, edit)
            case Results(shown):
                self._show(shown)
            case Unthink(first):
                self._unthink(self._span(first)[0])
            case Undo(ids):
                self._undo(ids)

    def _replace(self, entry: Entry, edit: Replace) -> None:
        low, high = self._span(edit.first)[0], self._span(edit.last)[1]
        self._spans[entry.id] = low, high
        if entry.source and edit.by:
            new = Group(entry.source, entry.id, low, edit.by[0])
            if edit.first == self.awaited:
                self._adopt(new)
            else:
                self._swap(edit.first, new)
        elif entry.by == BY:
            self._depart([g for g in self.groups if low <= g.place <= high])

    def _span(self, id: Id) -> tuple[Id, Id]:
        return self._spans.get(id, (id, id))

    # --- coming and going -------------------------------------------------------------------------------

    def _arrive(self, group: Group, at: int | None = None) -> None:
        known = self._departed.get(group.fingerprint)
        if known:
            known.pop(0)
        self.groups.insert(len(self.groups) if at is None else at, group)
        self._count(group.shown, 1)
        for result in group.shown.results:
            self._holders[result.tool_use_id] = group

    def _adopt(self, group: Group) -> None:
        if self.awaited is not None and self.awaited in self._said:
            self._count(self._said[self.awaited], -1)
        self.awaited = None
        self._arrive(group)

    def _swap(self, old: Id, new: Group) -> None:
        at = next((i for i, g in enumerate(self.groups) if g.id == old), None)
        if at is not None:
            self._depart([self.groups[at]])
            self._arrive(new, at)

    def _depart(self, groups: Sequence[Group]) -> None:
        leaving = {id(group) for group in groups}
        self.groups = [g for g in self.groups if id(g) not in leaving]
        for group in reversed(groups):
            self._departed.setdefault(group.fingerprint, []).insert(0, group.shown)
            self._count(group.shown, -1)
            for result in group.shown.results:
                if self._holders.get(result.tool_use_id) is group:
                    del self._holders[result.tool_use_id]

    def _undo(self, ids: Iterable[Id]) -> None:
        gone = frozenset(ids)
        if self.awaited is not None and self.awaited in gone:
            self._count(self._said[self.awaited], -1)
            self.awaited = None
        for undone in gone:
            self._said.pop(undone, None)
            self._spans.pop(undone, None)
        self._depart([g for g in self.groups if g.id in gone])

    def _count(self, message: Message, by: int) -> None:
        for use in message.tool_uses:
            left = self._uses.get(use.id, 0) + by
            if left:
                self._uses[use.id] = left
            else:
                self._uses.pop(use.id, None)

    # --- how they are shown -----------------------------------------------------------------------------

    def _show(self, shown: dict[str, str]) -> None:
        for use, text in shown.items():
            if (group := self._holders.get(use)) is not None:
                group.shown = _mapped(group.shown, use, text)

    def _unthink(self, place: Id) -> None:
        for group in self.groups:
            if group.place >= place and any(isinstance(b, THOUGHTS) for b in group.shown.content):
                kept = (b for b in group.shown.content if not isinstance(b, THOUGHTS))
                group.shown = Message(group.shown.role, tuple(kept))

    # --- asking -----------------------------------------------------------------------------------------

    def shown_before(self, fingerprint: str) -> Message | None:
        """How a message was shown when it was last here; None if it never was, or still is."""
        known = self._departed.get(fingerprint)
        return known[0] if known else None

    def said(self, id: Id) -> Message | None:
        return self._said.get(id)

    def free_id(self, use: str, taken: Iterable[str] = ()) -> str:
        """This id for a tool call, or one like it, if another call has it: some callers count from 0."""
        id, n = use, 1
        while id in self._uses or id in taken:
            n += 1
            id = f"{use}~{n}"
        return id

    def from_here(self, at: int) -> frozenset[Id]:
        """All entries that an undo from this group on names."""
        place = self.groups[at].place
        said = {id for id in self._said if id >= place}
        return frozenset(said | {id for id, (_, high) in self._spans.items() if high >= place})


def _mapped(message: Message, use: str, text: str) -> Message:
    def shown(block: Block) -> Block:
        if isinstance(block, ToolResult) and block.tool_use_id == use:
            return replace(block, content=text)
        return block

    return Message(message.role, tuple(shown(block) for block in message.content))
