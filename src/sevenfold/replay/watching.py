"""Watches what layers do to the view of a session that is driven again, and puts it into the books."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sevenfold.events import Added, Compacted, Event, Stored
from sevenfold.messages import THOUGHTS, Message
from sevenfold.replay.absence import Absence
from sevenfold.replay.provider import Provider
from sevenfold.replay.tallying import COMPACTION, MICRO, NOTES, TOOL_RESULTS, Tally
from sevenfold.transcript import Id, Placed, Replace, Results, Transcript, Unthink, View

NAMES: Final = {
    "Microcompaction": MICRO,
    "Counting": MICRO,
    "PayOut": NOTES,
    "NotesKeeping": NOTES,
    "Compaction": COMPACTION,
    "Digest": COMPACTION,
}


class Watching:
    """Told of every event; `view` is what was there before it."""

    def __init__(
        self, tally: Tally, absence: Absence, transcript: Transcript, provider: Provider
    ) -> None:
        self._tally, self._absence = tally, absence
        self._transcript, self._provider = transcript, provider
        self.view: View = transcript.view
        self.weigh: Callable[[Placed], int] = lambda placed: 0
        self._compacted: Compacted | None = None
        self._stored: set[str] = set()
        """Results that layer 1 has put on disk, of those that are just coming in."""

    def heard(self, event: Event) -> None:
        match event:
            case Compacted():
                self._compacted = event
            case Stored():
                self._stored.add(event.use_id)
            case Added(by, whats):
                self._added(NAMES.get(by, by), by, whats)
            case _:
                pass

    def stored(self, whole: Message) -> None:
        """Results of this message that layer 1 has put on disk; another wording of one is no removal."""
        short = [r for r in whole.results if r.tool_use_id in self._stored]
        self._stored.clear()
        if not short:
            return
        ids = {r.tool_use_id for r in short}
        lost = self._absence.results_went([r.tool_use_id for r in short], TOOL_RESULTS)
        self._tally.removed(lost)
        placed = self._transcript.view[-1]
        left = self._absence.as_shown(r for r in placed.message.results if r.tool_use_id in ids)
        tokens = sum(one.tokens for one in lost) - left
        self._tally.happened(TOOL_RESULTS, f"stored {len(short)} results", max(0, tokens))

    def _added(self, layer: str, by: str, whats: tuple[object, ...]) -> None:
        before, after = self.view, self._transcript.view
        self.view = after
        edits = [w for w in whats if isinstance(w, Results | Replace | Unthink)]
        if not edits:
            return
        freed = self._freed(before, after)
        for edit in edits:
            if isinstance(edit, Results):
                lost = self._absence.results_went(edit.shown, layer)
                self._tally.removed(lost)
                self._tally.happened(layer, f"cleared {len(lost)} results", freed, "cleared")
        if any(isinstance(edit, Unthink) for edit in edits):
            self._thoughts(before, after, layer)
        if any(isinstance(edit, Replace) for edit in edits):
            self._replaced(before, after, layer, by, freed)

    def _freed(self, before: View, after: View) -> int:
        old = {id(placed): placed for placed in before}
        kept = [placed for placed in after if old.pop(id(placed), None) is None]
        return sum(map(self.weigh, old.values())) - sum(map(self.weigh, kept))

    def _thoughts(self, before: View, after: View, layer: str) -> None:
        went = [p.id for p in before if _thinks(p) and self._unthought(after, p.id)]
        self._absence.thoughts_went(went, layer)

    @staticmethod
    def _unthought(after: View, id: Id) -> bool:
        at = after.where(id)
        return at is not None and not _thinks(after[at])

    def _replaced(self, before: View, after: View, layer: str, by: str, freed: int) -> None:
        gone = [placed for placed in before if after.where(placed.id) is None]
        self._tally.removed(self._absence.messages_went(gone, layer))
        whole = self._provider.unseen + sum(map(self.weigh, before))
        told, self._compacted = self._compacted, None
        made = told.by if told else by
        self._tally.happened(layer, f"replaced the older part ({made})", freed, "compacted")
        self._tally.compacted(made, whole, whole - freed, told.fidelity if told else None)


def _thinks(placed: Placed) -> bool:
    return any(isinstance(block, THOUGHTS) for block in placed.message.content)
