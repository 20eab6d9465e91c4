"""What an extraction may do, decided when it calls: look around, and write memories. Nothing else.

The tools of the conversation stay in the request, since another list would be another prefix. Reads go
to the session's own tools, with nobody to ask; writes go to `MemoryWriter`. Every refusal has a reason,
which the model reads, and is counted.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

import anyio.to_thread
import msgspec

from sevenfold.errors import StorageFailure
from sevenfold.events import Emit, Remembered
from sevenfold.layers.l5_durable_memory.extraction_writing import KIND, MemoryWriter
from sevenfold.layers.l5_durable_memory.founding import Unfit
from sevenfold.layers.l5_durable_memory.quiet_tools import May
from sevenfold.messages import Json, ToolResult, ToolUse
from sevenfold.protocols import Tools
from sevenfold.tools.arguments import cleaned, problem
from sevenfold.tools.confined import COMMANDS
from sevenfold.tools.editing import EDIT_SCHEMA, WRITE_SCHEMA
from sevenfold.tools.rules import EDITORS, READERS
from sevenfold.tools.shell import classify_within

_SCHEMAS: Final[dict[str, Json]] = {
    schema["name"]: schema["input_schema"] for schema in (WRITE_SCHEMA, EDIT_SCHEMA)
}


class Refusal(msgspec.Struct, frozen=True):
    """A call that was not carried out."""

    kind: str
    """tool, command, outside, rule, source, known, unread, index, form, secret or instructions."""
    tool: str
    why: str


class ExtractionTools:
    """Implements `protocols.Tools` for one extraction."""

    def __init__(self, tools: Tools, writer: MemoryWriter, may: May, emit: Emit) -> None:
        self._tools, self._writer, self._may, self._emit = tools, writer, may, emit
        self.refusals: list[Refusal] = []
        self.broken: StorageFailure | None = None
        """The disk refused: what was to be saved is not."""

    @property
    def denied(self) -> int:
        return len(self.refusals)

    @property
    def kinds(self) -> Counter[str]:
        """How many refusals of each kind."""
        return Counter(one.kind for one in self.refusals)

    def safe(self, use: ToolUse) -> bool:
        return use.name not in EDITORS and self._tools.safe(use)

    async def call(self, use: ToolUse) -> ToolResult:
        try:
            if use.name in EDITORS:
                return ToolResult(use.id, await self._write(use))
            self._check(use)
        except Unfit as unfit:
            self.refusals.append(Refusal(unfit.kind, use.name, unfit.why))
            return ToolResult(use.id, f"not done: {unfit.why}", is_error=True)
        result = await self._tools.call(use)
        if use.name == "Read" and not result.is_error:
            self._writer.was_read(str(use.input.get("file_path", "")))
        return result

    def _check(self, use: ToolUse) -> None:
        """`Unfit` unless it only looks."""
        if use.name in READERS:
            return
        if use.name != "Bash":
            raise Unfit(
                "tool",
                f"{use.name} is not for this: Read, Grep and Glob are, Bash with "
                f"{', '.join(sorted(COMMANDS))}, and Write and Edit of memories",
            )
        verdict = classify_within(str(use.input.get("command", "")), COMMANDS)
        if not verdict.read_only or use.input.get("run_in_background", False):
            why = verdict.why if not verdict.read_only else "nothing may go on in the background"
            raise Unfit("command", f"only {', '.join(sorted(COMMANDS))} may be run: {why}")

    async def _write(self, use: ToolUse) -> str:
        args: Json = cleaned(use.input)
        if wrong := problem(_SCHEMAS[use.name], args):
            raise Unfit("form", wrong)
        self._writer.file_of(args["file_path"])
        if (why := await self._may(use)) is not None:
            raise Unfit("rule", why)
        work = self._writer.write if use.name == "Write" else self._writer.edit
        before = dict(self._writer.saved)
        try:  # not abandoned on cancel: half-known is worse than late
            said = await anyio.to_thread.run_sync(partial(work, args))
        except StorageFailure as error:
            self.broken = error
            raise Unfit("form", str(error)) from error
        for file, one in self._writer.saved.items():
            if one != before.get(file):
                self._emit(Remembered(one.name, str(one.path), one.action, one.revision, KIND))
        return said


_check: type[Tools] = ExtractionTools
