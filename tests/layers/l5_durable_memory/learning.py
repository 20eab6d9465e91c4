"""A conversation that is learned from: real tools, a real memory folder, a model that says its lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from kit import ReplaceableScript, make_forks, make_parts

from sevenfold.cache.prices import Prices
from sevenfold.core.events import Event
from sevenfold.core.messages import Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Forker
from sevenfold.core.request import Frame, Request
from sevenfold.core.transcript import Mark, Reply, Transcript, View
from sevenfold.layers.l5_durable_memory.extraction import Extraction
from sevenfold.layers.l5_durable_memory.extraction_tools import make_fork_tools
from sevenfold.layers.parts import ExtractionParts, PlainConversation
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import MemoryStore
from sevenfold.settings.layers import ExtractionSettings
from sevenfold.settings.schema import Settings
from sevenfold.testing import FakeClock, Postponed, ScriptedModel
from sevenfold.testing.doubles import Line
from sevenfold.tools.permission_settings import Mode, PermissionRules
from sevenfold.tools.permissions import Permissions
from sevenfold.tools.toolbox import make_standard_tools
from sevenfold.tools.workspace import Workspace

E = TypeVar("E", bound=Event)
NOON = 1_793_448_000.0
"""Saturday, 31 October 2026, about noon in most places."""
SESSION = "2026-10-31-one"


def topic(
    name: str, body: str, quote: str = "", *, type: str = "feedback", about: str = "", **more: str
) -> str:
    """The text of a memory file as a model writes it."""
    lines = [f"name: {name}", f"description: {about or body}", f"type: {type}"]
    lines += [f"{key}: {value}" for key, value in more.items()]
    quoted = f"\n\n> {quote}" if quote else ""
    return "---\n" + "\n".join(lines) + f"\n---\n{body}{quoted}\n"


@dataclass
class Learner:
    """What a test needs to hold on to."""

    folder: Path
    settings: ExtractionSettings = field(default_factory=ExtractionSettings)
    mode: Mode = "default"
    deny: tuple[str, ...] = ()
    place: Path | None = None
    """Where the memory folder is, if not here."""
    team: bool = True
    prices: Prices | None = None
    """What tokens cost; None: nothing."""
    clock: FakeClock = field(default_factory=lambda: FakeClock(NOON))
    events: list[Event] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.project, self.memory = self.folder / "project", self.place or self.folder / "memory"
        self.project.mkdir(exist_ok=True)
        self.answers = ReplaceableScript()
        self.model = ScriptedModel(self.answers)
        self.workspace = Workspace(
            self.project, self.folder, {"PATH": "/usr/bin:/bin"}, self.folder / "out", self.clock
        )
        rules = PermissionRules(self.mode, deny=self.deny)
        self.permissions = Permissions(rules, readable=(self.memory,), memory_dirs=(self.memory,))
        self.store = MemoryStore(
            FolderBackend(self.memory, self.folder / "state"),
            self.clock,
            emit=self.events.append,
            author=Author("agent", SESSION),
        )
        tools = tuple(tool.schema for tool in make_standard_tools(self.workspace))
        self.frame = Frame(
            "claude-sonnet-4-5" if self.prices else "m", ("static", "of this session"), tools
        )
        self.log = Transcript(self.clock.now, self.lines.append)
        self.tray = Postponed()
        self.kept_until: float | None = None
        """How long the provider keeps the prefix."""
        self.open()

    def open(self, fork: Forker | None = None) -> None:
        """Begin with a new layer, as a process does."""
        emit = self.events.append
        learning = ExtractionParts(
            self.store,
            SESSION,
            lambda: make_fork_tools(self.workspace, self.permissions),
            self.tray.start,
            self.workspace.locate,
            team=self.team,
        )
        self.parts = make_parts(
            conversation=PlainConversation(self.model, entries=self.log.entries),
            clock=self.clock,
            emit=emit,
            prices=self.prices or Prices({}, {}),
            settings=Settings(extraction=self.settings),
            fork=fork or make_forks(self.model, emit, self.clock),
            extraction=learning,
            cached_until=lambda frame: self.kept_until,
        )
        self.layer = Extraction(self.parts)

    def resume(self) -> None:
        self.log = Transcript.load(b"".join(self.lines), self.clock.now, self.lines.append)
        assert not self.log.problems
        self.open()

    # --- what happens -----------------------------------------------------------------------------------

    def says(self, *lines: Line) -> None:
        """What the model says from now on, in forks."""
        self.answers.lines = iter(lines)

    def say(self, text: str, answer: str = "Done.") -> None:
        """A turn: what a person typed and the last reply to it."""
        self.log.add(user(text))
        self.log.add(Reply(assistant(Text(answer))), by="model")

    def result(self, id: str, text: str, tool: str = "Read", **args: Any) -> None:
        """A tool call of the conversation, and what it gave."""
        self.log.add(Reply(assistant(ToolUse(id, tool, args)), stop="tool_use"), by="model")
        self.log.add(Message("user", (ToolResult(id, text),)), by="tools")

    def write(self, file: str, text: str) -> ToolUse:
        return ToolUse(f"w-{file}", "Write", {"file_path": str(self.memory / file), "content": text})

    def edit(self, file: str, old: str, new: str) -> ToolUse:
        args = {"file_path": str(self.memory / file), "old_string": old, "new_string": new}
        return ToolUse(f"e-{file}", "Edit", args)

    def read(self, file: str) -> ToolUse:
        return ToolUse(f"r-{file}", "Read", {"file_path": str(self.memory / file)})

    async def rest(self) -> list[Mark]:
        """The moment of rest; what it hands back is written."""
        handed = list(await self.layer(self.request))
        if handed:
            self.log.add(*handed, by="Extraction")
        return handed

    async def silent(self, seconds: float) -> list[Mark]:
        """Nobody has spoken for so long; what is handed back then is written."""
        handed = list(await self.layer.catch_up(self.request, seconds))
        if handed:
            self.log.add(*handed, by="LateExtraction")
        return handed

    async def learn(self, *calls: ToolUse, after: float = 0.0) -> list[str]:
        """One run in which the model makes these calls; what it was told about each. `after`: a silence."""
        before = len(self.model.requests)
        self.says(*(assistant(one) for one in calls), "Nothing else to save.")
        await (self.silent(after) if after else self.rest())
        answered = self.model.requests[before + 1 :]
        return [request.view[-1].message.results[0].text for request in answered]

    # --- what there is ----------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        return self.log.view

    @property
    def request(self) -> Request:
        return Request(self.frame, self.log.view)

    @property
    def files(self) -> dict[str, str]:
        """Every file a person would see in the memory folder."""
        paths = sorted(self.memory.rglob("*")) if self.memory.is_dir() else []
        return {
            path.relative_to(self.memory).as_posix(): path.read_text(encoding="utf-8")
            for path in paths
            if path.is_file() and not path.name.startswith(".")
        }

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def asked(self) -> list[str]:
        """What each run was asked."""
        texts = [placed.message.text for request in self.model.requests for placed in request.view]
        return list(dict.fromkeys(text for text in texts if text.startswith("<directive")))

    def saved(self) -> Sequence[str]:
        return [file for file in self.files if file != "MEMORY.md"]
