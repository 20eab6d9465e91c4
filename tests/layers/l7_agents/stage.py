"""A main conversation and its agents, made of turns over scripted models, with a clock moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from kit import PRICES

from sevenfold.core.events import AgentEnded, AgentStarted, Event
from sevenfold.core.messages import Json, Message, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Agent, AgentSpec, Attach, Layers, Spawner, Tool
from sevenfold.core.request import Frame, Request, find_open_uses
from sevenfold.core.tokens import Thresholds, Usage
from sevenfold.core.transcript import Mark, Reply, Transcript, View
from sevenfold.layers.l7_agents.agent_tools import AgentTool
from sevenfold.layers.l7_agents.definitions import BUILT_IN, AgentDefinition
from sevenfold.layers.l7_agents.forks import PLACEHOLDER, CountedAccounts, ForkRunner
from sevenfold.layers.l7_agents.mailbox import Letter, make_letter
from sevenfold.layers.l7_agents.members import AgentNotices, ParentConversation
from sevenfold.layers.l7_agents.roster import Roster
from sevenfold.layers.parts import PlainConversation
from sevenfold.layers.shared.background import BackgroundTasks, open_task_group
from sevenfold.layers.shared.side_work import SideWork
from sevenfold.session.log import TranscriptFile
from sevenfold.settings.layers import AgentSettings
from sevenfold.testing import NoAccounts, Postponed, ScriptedModel
from sevenfold.testing.doubles import Line
from sevenfold.tools.toolbox import Toolbox
from sevenfold.turn import Turn


async def settled() -> None:
    """Come back when nothing more happens by itself: nothing here waits for the real clock."""
    for _ in range(400):
        await anyio.lowlevel.checkpoint()


async def until(true: Callable[[], object]) -> None:
    """For what threads, files or other programs have to do first."""
    with anyio.fail_after(20):
        while not true():  # noqa: ASYNC110
            await anyio.sleep(0.002)


@dataclass
class HandClock:
    """Stands still until it is moved; whoever sleeps wakes when their time has come."""

    time: float = 1_000_000.0
    _sleeping: list[tuple[float, anyio.Event]] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        entry = (self.time + seconds, anyio.Event())
        self._sleeping.append(entry)
        try:
            await entry[1].wait()
        finally:
            self._sleeping.remove(entry)

    async def advance(self, seconds: float) -> None:
        """Move, and come back when nothing more happens by itself."""
        await settled()
        self.time += seconds
        for due, woken in self._sleeping:
            if due <= self.time:
                woken.set()
        await settled()


class Held:
    """A tool that takes until it is let go."""

    name = "Work"

    def __init__(self) -> None:
        self.schema = {"name": "Work", "description": "", "input_schema": {"type": "object"}}
        self.let_go = anyio.Event()

    def safe(self, args: Json) -> bool:
        return True

    def once(self) -> None:
        """Let go of the calls of now; later ones are held again."""
        self.let_go.set()
        self.let_go = anyio.Event()

    async def run(self, args: Json, use_id: str) -> str:
        await self.let_go.wait()
        return "worked"


class Actor:
    """Implements `protocols.Agent`: a turn over a transcript in a file, or on its parent's view."""

    def __init__(
        self,
        stage: Stage,
        spec: AgentSpec,
        own: Callable[[Agent], Sequence[Tool]],
        attach: Sequence[Attach],
    ) -> None:
        self.spec, self._used = spec, CountedAccounts(NoAccounts())
        self.recording = TranscriptFile(stage.folder / f"{spec.id}.jsonl", stage.clock, stage.emit)
        self.closed = False
        self.tools = [*own(self), stage.held]
        model = stage.model_of(spec)
        frame = Frame(model.name, spec.system, tuple(tool.schema for tool in self.tools))
        if spec.resumes:
            frame = self.recording.resume(stage.clock) or frame
        transcript = self.recording.transcript
        if spec.on:
            frame, transcript = spec.on.frame, self._branch(spec.on.view, stage)
        elif not spec.resumes:
            about = {"agent": {"name": spec.name, "kind": spec.kind, "depth": spec.depth}}
            self.recording.begin(about, frame, None)
            if spec.opening:
                transcript.add(*spec.opening, by="session")
        able = model.capabilities
        self.turn = Turn(
            model=model,
            frame=frame,
            tools=Toolbox(self.tools, _allowed, stage.emit),
            layers=Layers(attach=tuple(attach)),
            transcript=transcript,
            background=Postponed(),
            accounts=self._used,
            clock=stage.clock,
            emit=lambda event: None,
            thresholds=Thresholds.of(able.window, able.max_output),
            max_steps=spec.max_steps or 100,
            source=f"agent:{spec.name}",
        )

    def _branch(self, view: View, stage: Stage) -> Transcript:
        transcript = Transcript.on(view, stage.clock.now)
        if unanswered := find_open_uses(view):
            results = tuple(ToolResult(id, PLACEHOLDER) for id in unanswered)
            transcript.add(Message("user", results), by="fork")
        return transcript

    @property
    def path(self) -> Path:
        return self.recording.path

    @property
    def request(self) -> Request:
        return self.turn.request

    @property
    def usage(self) -> Usage:
        return self._used.usage

    def unattended(self) -> None:
        self.watched = False

    @property
    def steps(self) -> int:
        return len(self._used.replies)

    async def run(self, said: Message | None = None) -> Reply:
        return await self.turn.run(said)

    async def close(self) -> None:
        self.recording.close()
        self.closed = True


class Stage:
    """The main conversation, its roster, and who plays which agent."""

    def __init__(self, folder: Path, script: Iterable[Line] = (), **fields: Any) -> None:
        self.folder = folder / "agents"
        self.clock, self.held = HandClock(), Held()
        self.events: list[Event] = []
        self.emit = self.events.append
        self.scripts: dict[str, ScriptedModel] = {}
        self.actors: dict[str, Actor] = {}
        self.model = ScriptedModel(script)
        self._fields = fields

    def having(self, **fields: Any) -> None:
        """More of what the roster is made of."""
        self._fields.update(fields)

    def plays(self, name: str, *lines: Line) -> ScriptedModel:
        """What the agent of this name, or of this kind, will say."""
        self.scripts[name] = ScriptedModel(lines)
        return self.scripts[name]

    def model_of(self, spec: AgentSpec) -> ScriptedModel:
        return self.scripts.get(spec.name) or self.scripts.get(spec.kind) or self.model

    def __call__(
        self,
        spec: AgentSpec,
        own: Callable[[Agent], Sequence[Tool]] = lambda agent: (),
        attach: Sequence[Attach] = (),
    ) -> Actor:
        self.actors[spec.name] = Actor(self, spec, own, attach)
        return self.actors[spec.name]

    @asynccontextmanager
    async def open(self, view: Transcript | None = None) -> AsyncIterator[Stage]:
        async with open_task_group() as tasks:
            self._fields.setdefault("definitions", dict(BUILT_IN))
            self._fields.setdefault("tools", lambda: ("Agent", "Work", "SendMessage"))
            self._fields.setdefault("settings", AgentSettings())
            self.roster = Roster(
                spawn=self,
                background=BackgroundTasks(tasks, self.emit),
                clock=self.clock,
                emit=self.emit,
                **self._fields,
            )
            self.tasks = tasks
            self.parent = ParentConversation("main", 0, lambda: self.turn.request)
            self.tool = AgentTool(self.roster, self.parent)
            self.turn = self._main(view or Transcript(self.clock.now))
            yield self
            await self.roster.close()

    def _main(self, transcript: Transcript) -> Turn:
        able = self.model.capabilities
        tools: list[Tool] = [self.tool, self.held]
        return Turn(
            model=self.model,
            frame=Frame("scripted", ("static", "own"), tuple(tool.schema for tool in tools)),
            tools=Toolbox(tools, _allowed, self.emit),
            layers=Layers(attach=(self.roster.notices,)),
            transcript=transcript,
            background=Postponed(),
            accounts=NoAccounts(),
            clock=self.clock,
            emit=self.emit,
            thresholds=Thresholds.of(able.window, able.max_output),
        )

    # --- what happened ----------------------------------------------------------------------------------

    async def ask(self, text: str = "go") -> Reply:
        return await self.turn.run(user(text))

    async def call(self, **args: Any) -> str:
        """Call the tool as the main conversation would."""
        return await self.tool.run({"description": "a task", "prompt": "do it", **args}, "u")

    def letter(self, text: str, sender: str = "peer", **fields: Any) -> Letter:
        return make_letter(sender, text, "a summary", self.clock, **fields)

    @property
    def results(self) -> list[ToolResult]:
        return [result for placed in self.turn.transcript.view for result in placed.message.results]

    @property
    def told(self) -> list[str]:
        """The notices that stand in the main conversation."""
        view = self.turn.transcript.view
        return [placed.message.text for placed in view if placed.by == AgentNotices.label]

    @property
    def ended(self) -> list[tuple[str, str]]:
        return [(e.name, e.status) for e in self.events if isinstance(e, AgentEnded)]

    @property
    def started(self) -> list[str]:
        return [e.name for e in self.events if isinstance(e, AgentStarted)]

    def side_work(self) -> SideWork:
        """Asks beside an agent, with the agent's own model."""
        fork = ForkRunner(
            PlainConversation(self.scripts["status"], thresholds=Thresholds.of(200000, 32000)),
            NoAccounts(),
            self.clock,
            self.emit,
        )
        return SideWork(fork, PRICES, self.clock, self.emit)


def agent(id: str = "u", **args: Any) -> Message:
    """A reply that calls the Agent tool."""
    return assistant(agent_use(id, **args))


def agent_use(id: str, **args: Any) -> ToolUse:
    return ToolUse(id, "Agent", {"description": "a task", "prompt": "do it", **args})


def work(id: str = "w") -> Message:
    """A reply that calls the tool which takes until it is let go."""
    return assistant(ToolUse(id, "Work", {}))


def defined(name: str, **fields: Any) -> dict[str, AgentDefinition]:
    """The built-in definitions and one more."""
    fields = {"description": "for a test", "prompt": "You test.", "path": Path("x.md"), **fields}
    return {**BUILT_IN, name: AgentDefinition(name=name, **fields)}


def marks(transcript: Transcript, name: str) -> list[Any]:
    return [e.what.value for e in transcript.entries if isinstance(e.what, Mark) and e.what.name == name]


async def _allowed(use: ToolUse) -> str | None:
    return None


_check: tuple[type[Spawner], type[Agent]] = (Stage, Actor)
