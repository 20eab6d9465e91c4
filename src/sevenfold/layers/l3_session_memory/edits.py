"""The tools of an update: Edit, on a copy of the one file, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from sevenfold.messages import Json, ToolResult, ToolUse
from sevenfold.protocols import ToolFailed, Tools
from sevenfold.request import Frame
from sevenfold.tools.arguments import cleaned, problem
from sevenfold.tools.edit_hints import why_not_found
from sevenfold.tools.editing import EDIT_SCHEMA, occurrences, replaced

EDIT: Final = "Edit"
_SCHEMA: Final[Json] = EDIT_SCHEMA["input_schema"]
LARGEST: Final = 1 << 20
"""Characters to which a copy may grow on the way."""


class NotesEdits:
    """Applies the calls of a fork to `text`; the file itself is not touched."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self.text = path, text
        self.made = self.failed = self.denied = 0

    def safe(self, use: ToolUse) -> bool:
        return False  # one after the other, in the order asked

    async def call(self, use: ToolUse) -> ToolResult:
        if why := self._not_allowed(use):
            self.denied += 1
            return ToolResult(use.id, f"not allowed here: {why}", is_error=True)
        try:
            self.text = self._edited(cleaned(use.input))
        except ToolFailed as error:
            self.failed += 1
            return ToolResult(use.id, str(error), is_error=True)
        self.made += 1
        return ToolResult(use.id, "Noted.")

    def _not_allowed(self, use: ToolUse) -> str:
        if use.name != EDIT:
            return f"only {EDIT} of {self._path} is, as this is about the notes alone"
        asked = use.input.get("file_path")
        if isinstance(asked, str) and os.path.normpath(asked) != os.path.normpath(self._path):
            return f"{asked} is another file than the notes, {self._path}"
        return ""

    def _edited(self, args: Json) -> str:
        if wrong := problem(_SCHEMA, args):
            raise ToolFailed(wrong)
        old, new = (args[name].replace("\r\n", "\n") for name in ("old_string", "new_string"))
        if not old or old == new:
            raise ToolFailed("old_string is empty, or the same as new_string; nothing would change")
        spans = _places(self.text, old)
        if not spans:
            raise ToolFailed(
                f"the notes do not contain old_string{why_not_found(self.text, old, new)}"
            )
        if len(spans) > 1 and not args.get("replace_all", False):
            raise ToolFailed(
                f"old_string occurs {len(spans)} times in the notes; add lines around it"
            )
        if len(self.text) + len(spans) * len(new) > LARGEST:
            raise ToolFailed("the notes would be far too large")
        return replaced(self.text, spans, new)


def _places(text: str, old: str) -> list[tuple[int, int]]:
    """As `occurrences`; where all lines end alike, which is what notes do, a plain search is enough."""
    if "\r" in text:
        return occurrences(text, old)
    spans, at = list[tuple[int, int]](), text.find(old)
    while at >= 0:
        spans.append((at, at + len(old)))
        at = text.find(old, at + len(old))
    return spans


def can_edit(frame: Frame) -> bool:
    """Whether the conversation offers Edit as we know it; its list of tools cannot be changed."""
    for tool in frame.tools:
        if tool.get("name") == EDIT and isinstance(schema := tool.get("input_schema"), dict):
            fields = schema.get("properties")
            return not isinstance(fields, dict) or set(_SCHEMA["required"]) <= set(fields)
    return False


_check: type[Tools] = NotesEdits
