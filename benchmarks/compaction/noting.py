"""A model that keeps notes as sparingly as it can: what is being done, and one line for what was."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sevenfold.core.events import Event
from sevenfold.core.messages import Json
from sevenfold.layers.l3_session_memory.notes import NotesWording
from sevenfold.layers.l3_session_memory.notes_update import EDIT
from sevenfold.simulator.cache import TEXT_BYTES

STATE: Final = 100
"""Tokens that are written anew each time; the rest of the notes is one line an update."""


class Keeper:
    """After so many updates the notes have so many tokens."""

    def __init__(self, path: Path, tokens: int, updates: int) -> None:
        sections = {s.title: s.description for s in NotesWording.load(None, _ignored).form.sections}
        self._path = str(path)
        self._state, self._worklog = sections["Current state"], sections["Worklog"]
        self._each = int((tokens - STATE) / updates) * TEXT_BYTES - 1
        self.updates = 0

    def edits(self) -> list[Json]:
        """The calls of one update: a new state instead of the old one, and a line below the last one."""
        self.updates += 1
        n = self.updates
        state = f"Step {n} is being done. ".ljust(STATE * TEXT_BYTES, ".")
        end = f"(end of {n})"  # enough to find it by
        line = f"Step {n} ".ljust(self._each - len(end), ".") + end
        above = f"{self._state}\n" if n == 1 else ""
        last = self._worklog if n == 1 else f"(end of {n - 1})"
        calls = [self._edit(self._state, above + state), self._edit(last, f"{last}\n{line}")]
        self._state = state
        return calls

    def _edit(self, old: str, new: str) -> Json:
        args = {"file_path": self._path, "old_string": old, "new_string": new}
        return {"type": "tool_use", "name": EDIT, "input": args}


def _ignored(event: Event) -> None:
    return None
