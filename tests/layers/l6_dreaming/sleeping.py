"""A memory folder, a conversation at rest beside it, and a model that dreams as it is told."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit import make, make_forks, make_parts

from sevenfold.core.events import Event, Failed, Progress
from sevenfold.core.messages import Message, ToolUse, assistant, user
from sevenfold.core.request import Frame, Request
from sevenfold.core.transcript import Transcript
from sevenfold.layers.l6_dreaming.dreaming import Dreaming, DreamRunner
from sevenfold.layers.parts import DreamParts
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.store import MemoryStore
from sevenfold.settings.layers import DreamSettings
from sevenfold.settings.schema import Settings
from sevenfold.testing import FakeClock, ScriptedModel
from sevenfold.testing.doubles import Line
from sevenfold.tools.confined_tools import ConfinedTools
from sevenfold.tools.permission_settings import PermissionRules
from sevenfold.tools.toolbox import make_standard_tools
from sevenfold.tools.workspace import FileKeeper, Workspace

TOPIC = "---\nname: {name}\ndescription: {about}\ntype: {type}\n---\n\n{body}\n"
NOON = 1_900_000_000.0
"""A day in March 2030: every file that a test makes is older."""
DAY = 86_400.0
_STAGED = re.compile(r"^    (/\S+/staged)$", re.MULTILINE)
NOTHING_GONE = '```json\n{"gone": []}\n```'


def topic(name: str, about: str, body: str, type: str = "project") -> str:
    return TOPIC.format(name=name, about=about, body=body, type=type)


def staged(request: Request) -> Path:
    """The copy that the directive of a dream names."""
    for placed in request.view:
        if found := _STAGED.search(placed.message.text):
            return Path(found[1])
    raise AssertionError("no directive of a dream in this request")


def directive(request: Request) -> str:
    return next(p.message.text for p in request.view if p.message.text.startswith("<directive"))


def calling(*calls: tuple[str, dict[str, Any]]) -> Callable[[Request], Message]:
    """A reply that calls tools side by side; `{staged}` in a text is the copy."""

    def reply(request: Request) -> Message:
        place, number = str(staged(request)), len(request.view)
        uses = [
            ToolUse(
                f"d{number}-{at}",
                name,
                {k: v.replace("{staged}", place) if isinstance(v, str) else v for k, v in args.items()},
            )
            for at, (name, args) in enumerate(calls)
        ]
        return assistant(*uses)

    return reply


def read(*files: str) -> Callable[[Request], Message]:
    return calling(*(("Read", {"file_path": f"{{staged}}/{file}"}) for file in files))


def write(**files: str) -> Callable[[Request], Message]:
    """`a_file="text"` writes a-file.md; an empty text removes it."""
    named = ((name.replace("_", "-") + ".md", text) for name, text in files.items())
    return calling(
        *(("Write", {"file_path": f"{{staged}}/{file}", "content": text}) for file, text in named)
    )


def write_log(folder: Path, text: str, at: float) -> None:
    """A daily log with one note, as an agent writes it."""
    day = datetime.datetime.fromtimestamp(at).astimezone()
    path = folder / f"logs/{day:%Y/%m/%Y-%m-%d}.md"
    path.parent.mkdir(mode=0o700, parents=True)
    path.write_text(f"# {day:%Y-%m-%d}\n\n- {day:%H:%M} {text}\n", encoding="utf-8")


@dataclass
class Bed:
    """Everything that a dream needs, on a real disk."""

    top: Path
    settings: DreamSettings = field(default_factory=DreamSettings)
    rules: PermissionRules = field(default_factory=PermissionRules)
    events: list[Event] = field(default_factory=list)
    clock: FakeClock = field(default_factory=lambda: FakeClock(NOON))
    nightly: bool = False

    def __post_init__(self) -> None:
        self.project = self.top / "project"
        self.transcripts = self.top / "home" / "projects" / "p"
        for folder in (self.project, self.transcripts):
            folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.state = self.transcripts / "memory", self.transcripts / "memory-state"
        self.store = MemoryStore(
            FolderBackend(self.folder, self.state), self.clock, emit=self.events.append
        )
        self.workspace = Workspace(
            self.project, self.top, {"PATH": os.defpath}, self.top / "shells", self.clock
        )
        self.dreams = DreamRunner(
            self.store, self.transcripts, self.clock, self.events.append, self.settings, session="now"
        )

    def save(self, name: str, about: str, body: str, type: str = "project") -> Path:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        path = self.folder / f"{name}.md"
        path.write_text(topic(name, about, body, type), encoding="utf-8")
        return path

    def sessions(self, count: int, at: float = NOON - 60) -> None:
        for number in range(count):
            path = self.transcripts / f"s{number}.jsonl"
            path.write_text("{}\n", encoding="utf-8")
            os.utime(path, (at, at))

    def confined(self, folder: Path, keeper: FileKeeper) -> ConfinedTools:
        return ConfinedTools(
            folder,
            self.workspace,
            self.rules,
            readable=(self.folder,),
            transcripts=self.transcripts,
            keeper=keeper,
        )

    def model(self, *script: Line) -> ScriptedModel:
        return ScriptedModel(["Nice to meet you.", *script])

    async def layer(self, model: ScriptedModel) -> tuple[Dreaming, Request]:
        """The layer, and the request with which a conversation of one turn came to rest."""
        turn = make(model, transcript=Transcript(self.clock.now), clock=self.clock)
        schemas = tuple(tool.schema for tool in make_standard_tools(self.workspace))
        turn.frame = Frame(model.name, ("You are an agent.",), schemas)
        await turn.run(user("Hello, I am Ada."))
        parts = make_parts(
            model,
            clock=self.clock,
            events=self.events,
            settings=Settings(assistant_mode=self.nightly),
            fork=make_forks(model, self.events.append, self.clock),
            dreams=DreamParts(self.dreams, self.confined),
        )
        return Dreaming(parts), turn.request

    async def rest(self, *script: Line) -> ScriptedModel:
        """One turn, and the rest after it."""
        model = self.model(*script)
        layer, request = await self.layer(model)
        await layer(request)
        return model

    # --- afterwards -------------------------------------------------------------------------------------

    def text(self, name: str) -> str:
        return (self.folder / f"{name}.md").read_text(encoding="utf-8")

    def files(self) -> dict[str, str]:
        found = sorted(self.folder.rglob("*.md"))
        return {p.relative_to(self.folder).as_posix(): p.read_text("utf-8") for p in found}

    def copies(self) -> list[Path]:
        """What dreams left behind of their copies."""
        return list((self.state / "dreams").glob("*"))

    def said(self) -> list[str]:
        return [event.said for event in self.events if isinstance(event, Progress)]

    def failures(self) -> list[str]:
        return [event.cause for event in self.events if isinstance(event, Failed)]
