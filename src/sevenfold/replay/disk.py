"""What the files of a recorded session held, as far as its own calls show: no disk is looked at.

A file is known from the moment it was read or written as a whole, and each edit is carried out on it. One
that was only read in part was too long to be read at once, or nobody wanted more.
"""

from __future__ import annotations

import re
from typing import Final

from sevenfold.messages import ToolResult, ToolUse

PATH: Final = "file_path"
TOO_LONG: Final = " " * 120_000
"""Stands for a file of which only a part was ever shown: it would not be shown again as a whole."""
_NUMBERED: Final = re.compile(r"^\s*\d+[→\t]", re.M)
_REMINDER: Final = "<system-reminder>"


class Disk:
    """Files by path, as they are now."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._results: dict[str, str] = {}
        """Of files that were last read: the very texts of the recording, which are there anyway."""

    def read(self, path: str) -> str | None:
        result = self._results.get(path)
        return self._files.get(path) if result is None else _plain(result)

    def take(self, use: ToolUse, result: ToolResult) -> None:
        """A call and what came of it."""
        path = use.input.get(PATH)
        if not isinstance(path, str) or result.is_error:
            return
        match use.name:
            case "Read":
                self._shown(path, use, result.text)
            case "Write":
                self._keep(path, str(use.input.get("content", "")))
            case "Edit":
                self._edited(path, use.input)
            case "MultiEdit":
                edits = use.input.get("edits")
                for edit in edits if isinstance(edits, list) else ():
                    if isinstance(edit, dict):
                        self._edited(path, edit)
            case _:
                pass

    def _shown(self, path: str, use: ToolUse, text: str) -> None:
        if use.input.get("offset") or use.input.get("limit"):
            if path not in self._results:
                self._files.setdefault(path, TOO_LONG)
            return
        self._files.pop(path, None)
        self._results[path] = text

    def _edited(self, path: str, edit: dict[str, object]) -> None:
        old, new = str(edit.get("old_string", "")), str(edit.get("new_string", ""))
        if not old or (text := self.read(path)) is None:
            return
        self._keep(path, text.replace(old, new, -1 if edit.get("replace_all") else 1))

    def _keep(self, path: str, text: str) -> None:
        self._results.pop(path, None)
        self._files[path] = text


def _plain(result: str) -> str:
    """What a file holds, of what reading it showed."""
    return _NUMBERED.sub("", result.partition(_REMINDER)[0].rstrip("\n"))
