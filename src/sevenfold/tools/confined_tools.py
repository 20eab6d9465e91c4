"""The tools of a fork that keeps memory: it reads, and changes Markdown files in one folder.

Its requests have the parent's list of tools, because another list would be another prefix. Each call is
checked here: Read, Grep, Glob, commands that only read, and Write and Edit of `.md` files in the folder are
allowed. Refusals are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from sevenfold.core.events import Denied, Event
from sevenfold.core.messages import ToolResult, ToolUse
from sevenfold.core.protocols import ToolFailed, Tools
from sevenfold.tools.permission_settings import PermissionRules
from sevenfold.tools.permissions import EDITORS, READERS, Permissions, parse_call
from sevenfold.tools.shell import classify_within
from sevenfold.tools.toolbox import Toolbox, ToolGate, make_standard_tools
from sevenfold.tools.workspace import FileKeeper, Workspace, is_inside, resolve_path

COMMANDS: Final = frozenset({"ls", "find", "grep", "cat", "stat", "wc", "head", "tail"})
"""Programs that may be run if they only read."""
_ENDING: Final = ".md"
_SEARCHES: Final = frozenset({"grep"})


class ConfinedTools:
    """Implements `protocols.Tools` for a fork; what is not allowed is denied without a question."""

    def __init__(
        self,
        folder: Path,
        parent: Workspace,
        rules: PermissionRules,
        *,
        readable: Sequence[Path] = (),
        transcripts: Path | None = None,
        keeper: FileKeeper | None = None,
        wrap: Callable[[Toolbox], Tools] = lambda tools: tools,
    ) -> None:
        """`folder`: it may change this one. `rules`: the user's; those that deny or ask deny here.

        `readable`: more folders that it may read. `transcripts`: a folder whose `.jsonl` files it may
        search, but not read whole. `wrap` puts the user's hooks around the tools.
        """
        self.folder = resolve_path(folder)
        self._transcripts = resolve_path(transcripts) if transcripts else None
        self.denied = 0
        self.reasons: list[str] = []  # The reason of each denial
        self.workspace = Workspace(
            parent.root,
            parent.home,
            parent.environment,
            parent.outputs,
            parent.clock,
            seen=dict(parent.seen),
            most_output=parent.most_output,
            window=parent.window,
            watch=parent.watch,
            sandbox=parent.sandbox,
        )
        self.workspace.cwd = self.folder
        if keeper is not None:
            self.workspace.keeper = keeper
        held = PermissionRules("dontAsk", ask=rules.ask, deny=rules.deny)
        looks = (*readable, *((transcripts,) if transcripts else ()))
        permissions = Permissions(held, readable=looks, memory_dirs=(self.folder,))
        gate = ToolGate(permissions, self.workspace)
        self._tools = wrap(Toolbox(make_standard_tools(self.workspace), gate, self._note_denial))

    def safe(self, use: ToolUse) -> bool:
        return self._tools.safe(use)

    async def call(self, use: ToolUse) -> ToolResult:
        why = self._find_objection(use)
        return self.refuse(use, why) if why else await self._tools.call(use)

    def refuse(self, use: ToolUse, why: str) -> ToolResult:
        """Count a refusal, and make the result of the call."""
        self._count_denial(why)
        return ToolResult(use.id, f"not allowed here: {why}", is_error=True)

    def find_changed_file(self, use: ToolUse) -> str:
        """The file in the folder that a call changes, relative to it; empty: none."""
        path = use.input.get("file_path")
        if use.name not in EDITORS or not isinstance(path, str):
            return ""
        try:
            place = resolve_path(self.workspace.locate(path))
        except ToolFailed:
            return ""
        return place.relative_to(self.folder).as_posix() if is_inside(place, self.folder) else ""

    def _note_denial(self, event: Event) -> None:
        """Count what the user's rules deny; the event goes nowhere else."""
        if isinstance(event, Denied):
            self._count_denial(event.reason)

    def _count_denial(self, why: str) -> None:
        self.denied += 1
        self.reasons.append(why)

    def _find_objection(self, use: ToolUse) -> str:
        if use.name in READERS:
            return self._check_transcript(use) if use.name == "Read" else ""
        if use.name == "Bash":
            return self._check_command(use)
        if use.name not in EDITORS:
            return f"{use.name} is not; Read, Grep, Glob, looking with Bash, Write and Edit are"
        file = self.find_changed_file(use)
        if not file:
            return f"only files in {self.folder} may be changed"
        return "" if file.endswith(_ENDING) else f"only {_ENDING} files may be changed"

    def _check_command(self, use: ToolUse) -> str:
        command = use.input.get("command")
        if not isinstance(command, str) or use.input.get("run_in_background", False):
            return "a command may only look, and nothing runs in the background"
        verdict = classify_within(command, COMMANDS)
        if not verdict.read_only:
            known = ", ".join(sorted(COMMANDS))
            return f"only commands that look are ({known}), and {verdict.why}"
        if classify_within(command, _SEARCHES).read_only:
            return ""
        return self._check_transcript(use)

    def _check_transcript(self, use: ToolUse) -> str:
        """The reason if the call reads a transcript: they are too long and must be searched."""
        if self._transcripts is None:
            return ""
        try:
            places = parse_call(use, self.workspace).places
        except ToolFailed:
            return ""  # the tool itself says what is wrong
        for place in places:
            if place.real.suffix == ".jsonl" and is_inside(place.real, self._transcripts):
                return f"{place.real.name} is a transcript: search it with Grep for a few exact words"
        return ""


_check: type[Tools] = ConfinedTools
