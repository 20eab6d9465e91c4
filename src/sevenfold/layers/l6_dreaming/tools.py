"""What the calls of a dream do: they look around, and change the copy it was given."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from sevenfold.layers.l6_dreaming.progress import Watch
from sevenfold.memory.age import age
from sevenfold.memory.folder.files import HEAD
from sevenfold.memory.folder.naming import LOGS
from sevenfold.memory.guard.guard import Guard
from sevenfold.messages import ToolResult, ToolUse
from sevenfold.protocols import Clock, ToolFailed, Tools
from sevenfold.tools.confined import Confined
from sevenfold.tools.paths import real
from sevenfold.tools.workspace import Keeper

KEPT_APART: Final = (f"{LOGS}/", "team/")
"""What a dream reads and does not change."""


class DreamTools:
    """Implements `protocols.Tools` on a `Confined` that may change the copy."""

    def __init__(self, confined: Confined, watch: Watch) -> None:
        self._confined, self._watch = confined, watch

    @property
    def denied(self) -> int:
        return self._confined.denied

    def safe(self, use: ToolUse) -> bool:
        return self._confined.safe(use)

    async def call(self, use: ToolUse) -> ToolResult:
        file = self._confined.changed_by(use)
        self._watch.calls(use)
        try:
            if file.startswith(KEPT_APART):
                why = f"{file} is read and not changed in a dream"
                result = self._confined.refused(use, why)
            else:
                result = await self._confined.call(use)
            if file and not result.is_error:
                result = self._changed(use, file, result)
        finally:
            self._watch.denied = self.denied
            self._watch.answered()
        return result

    def _changed(self, use: ToolUse, file: str, result: ToolResult) -> ToolResult:
        self._watch.wrote(file)
        path = self._confined.folder / file
        with contextlib.suppress(OSError):
            if path.stat().st_size < _BLANK and not path.read_bytes().strip():
                path.unlink()
                self._confined.workspace.seen.pop(path, None)
                return ToolResult(use.id, f"Removed {file}.")
        return result


_BLANK: Final = 1024


class StagedKeeper:
    """Tells how old a memory of the copy is, and lets no secret in: that is found out at once."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder, self._clock = real(folder), clock
        self._guard = Guard(largest=HEAD)

    def keeps(self, path: Path) -> bool:
        return path.is_relative_to(self._folder)

    def instead(self, path: Path, data: bytes) -> str | None:
        return None

    def before_write(self, path: Path, data: bytes) -> bytes:
        verdict = self._guard.check(data, source="dream")
        if verdict.action == "refuse":
            raise ToolFailed(verdict.explanation)
        return data

    def after_write(self, path: Path) -> str:
        return ""

    def remark(self, path: Path) -> str:
        try:
            modified = path.stat().st_mtime
        except OSError:
            return ""
        return f"[a memory, saved {age(modified, self._clock.now())}]"


_check: tuple[type[Tools], type[Keeper]] = (DreamTools, StagedKeeper)
