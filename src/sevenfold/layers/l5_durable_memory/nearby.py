"""Instruction files near what the model works on: loaded when a file below them is first touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from sevenfold.events import Emit, Notice
from sevenfold.facts import call_of
from sevenfold.memory.instructions import rendered_later
from sevenfold.memory.instructions.values import Loaded
from sevenfold.messages import Message
from sevenfold.protocols import Attach
from sevenfold.restore import context
from sevenfold.transcript import Id, Mark, View

LOADED: Final = "instructions"
"""The mark that lists which instruction files the conversation has."""
TOUCHING: Final = ("read", "change")


class Nearby:
    """Attaches what the folders of a touched file say, each file of instructions once."""

    def __init__(
        self,
        bring: Callable[[Path], Loaded],
        known: Callable[[], Sequence[str]],
        locate: Callable[[str], Path],
        emit: Emit,
    ) -> None:
        """`bring`: what a touched file brings in. `known`: all that the conversation has by then."""
        self._bring, self._known, self._locate, self._emit = bring, known, locate, emit
        self._seen: Id | None = None
        self._touched: set[str] = set()

    def forget(self) -> None:
        """What was brought in has left the conversation: files that are touched again bring it again."""
        self._touched.clear()

    def attach(self, view: View) -> Sequence[Message | Mark]:
        found: list[Loaded] = []
        for placed in view.since(self._seen):
            if placed.message.role == "assistant":
                for use in placed.message.tool_uses:
                    call = call_of(use)
                    if call.kind in TOUCHING and call.about not in self._touched:
                        self._touched.add(call.about)
                        found.append(self._bring(self._locate(call.about)))
        if len(view):
            self._seen = view[-1].id
        for text in dict.fromkeys(said for one in found for said in one.warnings):
            self._emit(Notice(text, "warning"))
        new = tuple(one for each in found for one in each.instructions)
        if not new:
            return ()
        return context(rendered_later(Loaded(new))), Mark(LOADED, list(self._known()))


_check: type[Attach] = Nearby
