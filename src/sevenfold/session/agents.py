"""The session's agents, their mail, and other sessions on this machine.

Begins conversations beside the main one: agents with a prompt and tools of their own, and forks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec.structs import replace

from sevenfold.core.errors import Refused, SevenfoldError
from sevenfold.core.events import Denied, Event, Notice
from sevenfold.core.messages import Message, ToolUse
from sevenfold.core.protocols import (
    Agent,
    AgentSpec,
    Attach,
    Change,
    Clock,
    ForkReply,
    Layers,
    Model,
    Spawner,
    Tool,
    ToolFailed,
    Tools,
)
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Mark, PlacedMessage, Reply, View
from sevenfold.hooks.hooks import HookedTools
from sevenfold.layers.l5_durable_memory.prompt import LOADED, InstructionLoader, is_opening
from sevenfold.layers.l7_agents import memory as agent_memory
from sevenfold.layers.l7_agents.agent_tools import AgentTool, SendMessageTool
from sevenfold.layers.l7_agents.definitions import (
    AgentDefinition,
    find_definitions,
    list_definition_folders,
)
from sevenfold.layers.l7_agents.forks import PASSED_ON as FROM_FORKS
from sevenfold.layers.l7_agents.forks import (
    SOURCE,
    CountedAccounts,
    ForkRunner,
    NoBackground,
    PermittedTools,
    answer_open_calls,
    filter_event,
)
from sevenfold.layers.l7_agents.mail import FarMail, FarPost, MailDelivery, PostOffice
from sevenfold.layers.l7_agents.mailbox import LEAD, Letter, summarise_text
from sevenfold.layers.l7_agents.members import MAIN, ParentConversation
from sevenfold.layers.l7_agents.memory import AgentMemory, open_agent_memory, start_from_snapshot
from sevenfold.layers.l7_agents.roster import Roster
from sevenfold.layers.l7_agents.sockets import PeerSessions, SessionListener, find_runtime_folder
from sevenfold.layers.l7_agents.worktrees import Worktrees
from sevenfold.layers.ladder import make_standard_layers
from sevenfold.layers.parts import PlainConversation
from sevenfold.layers.shared.background import BackgroundTasks
from sevenfold.layers.shared.restore import CompactionHooks, Restorer
from sevenfold.layers.shared.side_work import SideWork
from sevenfold.session.commands import run_until_hooks_agree
from sevenfold.session.frame import (
    adapt_frame,
    check_message,
    choose_first_budget,
    describe_surroundings,
    make_news_message,
    make_thresholds,
)
from sevenfold.session.log import RESULTS, TranscriptFile
from sevenfold.session.project import FREE, Project
from sevenfold.session.spending import CappedForker, SpendingFile
from sevenfold.session.wiring import make_side_work
from sevenfold.storage.results import ResultStore
from sevenfold.tools.permissions import Permissions
from sevenfold.tools.toolbox import Toolbox, check_tools, make_standard_tools
from sevenfold.tools.workspace import Workspace, find_program, is_inside, resolve_path
from sevenfold.turn import Turn

if TYPE_CHECKING:
    from sevenfold.session.session import Session

FOLDER: Final = "agents"  # The folder with the transcripts of a session's agents
BY: Final = "session"
_FETCHED, _ANNOUNCED = (
    1.0,
    20,
)  # Seconds between two looks for letters of other machines, looks between signs
PASSED_ON: Final = (*FROM_FORKS, Notice, Denied)
"""Events of an agent that the session passes on. The agent's words and tool calls are its own."""


@dataclass
class AgentSpawner:
    """Implements `protocols.Spawner` for one session, and `protocols.Forker` for its agents."""

    session: Session
    beside: dict[str, ForkRunner] = field(default_factory=dict)
    """By the source of an agent's requests: asks its model something beside it."""
    at_work: dict[str, AgentConversation] = field(default_factory=dict)  # By id
    _models: dict[str, Model] = field(default_factory=dict)

    def __call__(
        self,
        spec: AgentSpec,
        own: Callable[[Agent], Sequence[Tool]] = lambda agent: (),
        attach: Sequence[Attach] = (),
    ) -> AgentConversation:
        return AgentConversation(self, spec, own, attach)

    async def fork(
        self,
        request: Request,
        directive: Message,
        *,
        kind: str,
        steps: int = 1,
        tools: Tools | None = None,
        max_tokens: int = 0,
        counted: Callable[[Usage], None] | None = None,
    ) -> ForkReply:
        """Ask the model of the agent that this request is of, beside it."""
        forks = self.beside.get(request.source)
        if forks is None:
            raise Refused(f"{kind} was asked for, and {request.source} is no agent of this session")
        if request.source.startswith(SOURCE):  # a fork at work is an agent like any other
            request = replace(request, source=f"agent:{request.source.removeprefix(SOURCE)}")
        return await forks(
            *(request, directive),
            kind=kind,
            steps=steps,
            tools=tools,
            max_tokens=max_tokens,
            counted=counted,
        )

    def connected(self, name: str | None) -> Model:
        main = self.session.model
        if name is None or name == main.name:
            return main
        if name not in self._models:
            self._models[name] = self.session.connect(name)
        return self._models[name]


class AgentConversation:
    """Implements `protocols.Agent`."""

    def __init__(
        self,
        spawning: AgentSpawner,
        spec: AgentSpec,
        own: Callable[[Agent], Sequence[Tool]],
        attach: Sequence[Attach],
    ) -> None:
        self.spec, self._spawning, self._of = spec, spawning, spawning.session
        session = self._of
        self._parent = spawning.at_work.get(spec.parent)
        self._watched = spec.asks
        self.permissions: Permissions
        path = session.folder / FOLDER / f"{spec.id}.jsonl"
        self._recording = TranscriptFile(path, session.clock, self._aside)
        stored = self._recording.resume(session.clock) if spec.resumes else None
        model = spec.on.frame.model if spec.on else spec.model
        self._model = spawning.connected(stored.model if stored else model)
        self._workspace = self._own_workspace()
        self._used = CountedAccounts(session.ledger)
        self._instructing = self._own_instructions()
        tools = self._all_tools(own)
        frame = spec.on.frame if spec.on else stored or self._frame(tools)
        self._turn = Turn(
            model=self._model,
            frame=frame,
            tools=self._guarded(tools),
            layers=self._layers(tuple(attach)),
            transcript=self._recording.transcript,
            background=NoBackground(),
            accounts=self._used,
            clock=session.clock,
            emit=self._aside,
            thresholds=make_thresholds(self._model, session.settings),
            max_steps=spec.max_steps or session.at.settings.max_steps,
            max_tokens=choose_first_budget(self._model, session.at.settings),
            source=self._source,
        )
        if not spec.resumes:
            session.ledger.forget(self._source)
            self._begin(frame)
        spawning.at_work[spec.id] = self

    # --- what it is -------------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        return self._recording.path

    @property
    def request(self) -> Request:
        return self._turn.request

    @property
    def usage(self) -> Usage:
        return self._used.usage

    @property
    def steps(self) -> int:
        return len(self._used.replies)

    @property
    def _source(self) -> str:
        return f"{SOURCE}{self.spec.id}" if self.spec.on else f"agent:{self.spec.name}"

    def unattended(self) -> None:
        self._watched = False

    # --- what it does -----------------------------------------------------------------------------------

    async def run(self, said: Message | None = None) -> Reply:
        if said is not None:
            check_message(said, self._turn.thresholds.block - self._turn.frame.tokens)
        try:
            about = {"agent_id": self.spec.id, "agent_type": self.spec.kind}
            hooks = self._of.tools.hooks
            return await run_until_hooks_agree(self._turn, said, hooks, "SubagentStop", about)
        finally:
            self._recording.sync()

    async def close(self) -> None:
        self._spawning.beside.pop(self._source, None)
        self._spawning.at_work.pop(self.spec.id, None)
        self._recording.close()
        await self._workspace.close()

    # --- how it is made ---------------------------------------------------------------------------------

    def _own_workspace(self) -> Workspace:
        """The workspace. A fork has read what its parent has read; an agent has read nothing yet."""
        spec, main = self.spec, self._of.tools.workspace
        parent = self._parent._workspace if self._parent else main
        seen = dict(parent.seen) if spec.on else {}
        root = spec.folder or parent.root
        own = with_fields(parent, root=root, seen=seen, background=[], leftovers=set())
        own.window = self._model.capabilities.window
        own.project = main.root if own.root != main.root else None
        inside = parent.cwd.is_relative_to(parent.root)
        own.cwd = own.root / parent.cwd.relative_to(parent.root) if inside else parent.cwd
        if not own.cwd.is_dir():  # not checked out there
            own.cwd = own.root
        if spec.memory and not spec.on and (keeper := self._of.knowledge.keeper_of(spec.memory)):
            own.keeper = keeper
        return own

    def _own_instructions(self) -> InstructionLoader:
        """The project's instructions: all for an agent, for a fork those its parent has not seen."""
        spec, knowledge = self.spec, self._of.knowledge
        view = spec.on.view if spec.on else self._recording.transcript.view

        def own() -> tuple[Message, ...]:
            if spec.memory is None:
                return spec.opening
            said = agent_memory.make_opening(knowledge.index_of(spec.memory))
            return (said,) if said else ()

        known = view.marks.get(LOADED)
        return knowledge.beside(spec.memory, own, _opens, self._near, self._aside, known)

    def _near(self, path: str) -> Path:
        """The project file that a tool means: in a work tree, instructions are the project's too."""
        there, root = self._workspace.locate(path), self._workspace.root
        main = self._of.tools.workspace.root
        return main / there.relative_to(root) if there.is_relative_to(root) else there

    def _all_tools(self, own: Callable[[Agent], Sequence[Tool]]) -> list[Tool]:
        """Those that hold something of their conversation are its own; the others are the session's."""
        parent, spec = self._of.tools, self.spec
        made = {tool.name: tool for tool in (*make_standard_tools(self._workspace), *own(self))}
        theirs = {tool.name: tool for tool in parent.own if tool.name not in FREE}
        wanted = spec.tools
        if spec.on:  # what its parent was not given, a fork has not either
            wanted = tuple(str(tool.get("name")) for tool in spec.on.frame.tools)
        known = {**made, **theirs}.items()
        return [tool for name, tool in known if wanted is None or name in wanted]

    def _guarded(self, tools: Sequence[Tool]) -> Tools:
        spec, session = self.spec, self._of.tools
        who, watched = f"agent {spec.name}", lambda: self._watched
        gate = session.gate.make_agent_gate(self._permissions(), self._workspace, who, watched)
        toolbox = Toolbox(tools, gate, self._aside)
        permitted: Tools = toolbox
        if spec.for_memory and spec.memory:
            permitted = PermittedTools(toolbox, self._only_memory)
        return HookedTools(
            permitted,
            session.hooks,
            gate.approve,
            gate.confirm,
            session.hooked.stop,
            gate.forget,
            toolbox.take_seconds,
        )

    def _permissions(self) -> Permissions:
        spec = self.spec
        parent = self._parent.permissions if self._parent else self._of.tools.permissions
        if spec.on and spec.folder == (self._parent.spec.folder if self._parent else None):
            self.permissions = parent
        else:
            own = (spec.memory,) if spec.memory else ()
            folders = None if spec.on else own
            apart = spec.folder is not None
            self.permissions = parent.make_agent_permissions(folders, apart=apart, looks=spec.only_looks)
        return self.permissions

    def _only_memory(self, use: ToolUse) -> str | None:
        """An agent that was to change nothing must not change everything because it remembers."""
        spec = self.spec
        if use.name not in spec.for_memory or spec.memory is None:
            return None
        path = use.input.get("file_path")
        with suppress(ToolFailed):
            if isinstance(path, str) and is_inside(resolve_path(self._workspace.locate(path)), spec.memory):
                return None
        return f"{use.name} is there for your memory alone: files in {spec.memory}"

    def _frame(self, tools: Sequence[Tool]) -> Frame:
        session = self._of
        schemas = tuple(tool.schema for tool in tools)
        frame = Frame(self._model.name, self.spec.system, schemas, ttl=session.at.settings.cache_ttl)
        return adapt_frame(self._model, frame, session.at, session.flags)

    def _layers(self, attach: tuple[Attach, ...]) -> Layers:
        """A fork lives on its parent's view and fits nothing; an agent compacts its own."""
        session, path = self._of, self._recording.path
        conversation = PlainConversation(
            self._model, thresholds=make_thresholds(self._model, session.settings), transcript_path=path
        )
        forks = ForkRunner(conversation, session.ledger, session.clock, session.emit)
        self._spawning.beside[self._source] = forks
        parts = with_fields(
            session.parts,
            conversation=conversation,
            emit=self._aside,
            expect=lambda why: session.ledger.expect(why, self._source),
            results=ResultStore(lambda: path.with_suffix("") / RESULTS),
            fork=forks,
            background_fork=None,
            restorer=Restorer(standing=self._instructing),
            hooks=CompactionHooks(),
            instructions=self._instructing,
            mail=attach,
        )
        forks.layers = make_standard_layers("fork", parts)
        return make_standard_layers("fork" if self.spec.on else "agent", parts)

    def _begin(self, frame: Frame) -> None:
        """Write down who it is, and what it needs to know before it is asked anything."""
        spec, at, recording = self.spec, self._of.at, self._recording
        about = {
            "id": spec.id,
            "session": self._of.id,
            "root": str(at.places.root),
            "model": self._model.name,
            "window": self._model.capabilities.window,
            "agent": {
                "name": spec.name,
                "kind": spec.kind,
                "depth": spec.depth,
                "tools": spec.tools,
                "max_steps": spec.max_steps,
                "folder": str(spec.folder) if spec.folder else None,
                "memory": str(spec.memory) if spec.memory else None,
                "for_memory": spec.for_memory,
                "only_looks": spec.only_looks,
            },
        }
        if spec.on:
            recording.branch(spec.on.view, self._of.clock)
            self._turn.transcript = recording.transcript
            recording.transcript.add(Mark("session", about), by=BY)
            if answers := answer_open_calls(spec.on.view):
                recording.transcript.add(*answers, by="fork")
            return
        recording.begin(about, frame, None)
        here = describe_surroundings(self._of.clock.now(), self._workspace.cwd, self._workspace.root)
        said = make_news_message({}, here)
        opened = (*self._instructing.opening(), *((said,) if said else ()))
        recording.transcript.add(*opened, Mark("surroundings", here), by=BY)

    def _aside(self, event: Event) -> None:
        if (told := filter_event(event, PASSED_ON)) is not None:
            self._of.emit(told)


def _opens(placed: PlacedMessage) -> bool:
    """True for a message with the project's instructions, or with the index of an agent's memory."""
    return is_opening(placed) or agent_memory.is_opening(placed)


_check: tuple[type[Spawner], type[Agent]] = (AgentSpawner, AgentConversation)


class AgentMemoryPaths(TypedDict):
    """The folders of agents' memories."""

    home: Path
    tree: Path
    state_home: Path
    trusted: bool
    clock: Clock


class SessionAgents:
    """The agents of one session. With agents switched off there are none, at no cost."""

    def __init__(self, spawning: AgentSpawner, tasks: TaskGroup, *, interactive: bool) -> None:
        self._spawning, self._of, at = spawning, spawning.session, spawning.session.at
        session = spawning.session
        self._emit, self._clock = session.emit, session.clock
        self._settings, self._interactive = at.settings.agents, interactive
        self._tasks, self._listens = tasks, False
        self._leaving, self._left, self._fetched = anyio.Event(), anyio.Event(), anyio.Event()
        self._fetched.set()  # nothing is on its way from other machines
        self.post = PostOffice(at.environment.home, session.id, self._clock, self._emit)
        self._unreachable = ""
        self.sessions = self._other_sessions()
        store = session.knowledge.store
        shared: object = store.backend if store is not None else None
        self._far = shared.open_post(session.id) if isinstance(shared, FarMail) else None
        self._worktrees = self._work_trees()
        self.roster = Roster(
            spawn=spawning,
            background=BackgroundTasks(tasks, self._emit),
            definitions=self._definitions(),
            clock=self._clock,
            emit=self._emit,
            settings=self._settings,
            tools=lambda: [tool.name for tool in session.tools.all],
            messenger=self._messenger,
            post=self.post,
            session=session.id,
            worktrees=self._worktrees,
            memory=self._memory,
            side_work=self._beside() if session.flags.agent_summaries else None,
        )
        self._mail = MailDelivery([self.post.inbox(LEAD)], self._emit, self.roster.heard)
        on = self._settings.enabled
        self.attach: tuple[Attach, ...] = (self._mail, self.roster.notices) if on else ()

    def joining(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """These tools and those by which agents are started and written to."""
        tools = check_tools(tools)
        if not self._settings.enabled:
            return tools
        main = AgentTool(self.roster, ParentConversation(MAIN, 0, lambda: self._of.request))
        there = {tool.name for tool in tools}
        own = (tool for tool in (main, self._messenger(LEAD)) if tool.name not in there)
        return (*own, *tools)

    @property
    def heard(self) -> bool:
        """True if an agent or a session said something that the main conversation does not know."""
        return bool(self.roster.notices.ids) or bool(self._mail.waiting(self._of.view))

    async def news(self) -> bool:
        """Wait for the agents at work; whether any of them has something to say then."""
        if not self.heard:
            await self.roster.wait()
        return self.heard

    async def send(self, to: str, text: str) -> str:
        """Write to an agent or a session by hand, as the lead. Returns what was done, in words."""
        args = {"to": to, "message": text, "summary": summarise_text(text)}
        return await self._messenger(LEAD).run(args, "")

    # --- who there is -----------------------------------------------------------------------------------

    def _definitions(self) -> dict[str, AgentDefinition]:
        at = self._of.at
        if not self._settings.enabled:
            return {}
        found = find_definitions(
            list_definition_folders(_shared(at), at.places.tree if at.trusted else None)
        )
        for text in found.problems:
            self._emit(Notice(text, "warning"))
        for text in found.notes:
            self._emit(Notice(text))
        hidden = list_definition_folders(at.environment.home, at.places.tree)[1:]
        if not at.trusted and any(folder.is_dir() for folder in hidden):
            self._emit(Notice(f"the agents of {at.places.tree} are left out: it is not trusted", "warning"))
        return found.definitions

    def _work_trees(self) -> Worktrees:
        at = self._of.at
        environment = at.environment.tool_environment(at.settings.env)
        return Worktrees(
            at.places.tree,
            at.places.project / "worktrees",
            find_program("git", environment),
            environment,
            trusted=at.trusted,
        )

    def _memory(self, definition: AgentDefinition) -> AgentMemory:
        at = self._of.at
        where: AgentMemoryPaths = {
            "home": _shared(at),
            "tree": at.places.tree,
            "state_home": at.environment.home,
            "trusted": at.trusted,
            "clock": self._clock,
        }
        if at.memory.off is None and at.trusted:
            start_from_snapshot(definition, self._emit, **where)
        return open_agent_memory(definition, off=at.memory.off, **where)

    def _messenger(self, sender: str) -> SendMessageTool:
        lead = sender == LEAD
        sessions = self.sessions if lead else None
        return SendMessageTool(sender, lead, self.roster, self.post, self._clock, sessions, self._far)

    def _other_sessions(self) -> PeerSessions | None:
        at = self._of.at
        try:
            self._sockets = find_runtime_folder(at.environment.home, at.environment.variables)
        except Refused as error:
            self._unreachable = str(error)
            return None
        return PeerSessions(self._sockets, self._of.id, self._clock)

    def _beside(self) -> SideWork:
        """Asks a running agent what it does. That is background work, so the day's limit holds."""
        at, prices = self._of.at, self._of.ledger.prices
        limit = at.settings.daily_background_limit
        spending = SpendingFile(at.environment.home, limit, self._clock)
        fork = CappedForker(self._spawning.fork, prices, spending, self._emit)
        return make_side_work(self._of, fork, spending)

    # --- coming and going -------------------------------------------------------------------------------

    async def start(self, folder: Path, view: View) -> None:
        """Take up agents of an earlier run, and be reachable where the settings say so."""
        if not self._settings.enabled:
            return
        self.roster.restore(folder / FOLDER, view)
        self.roster.background.start("work trees", self._tidy)
        wanted = self._settings.reachable
        if not (self._interactive if wanted is None else wanted):
            return
        if self._far is not None:
            self._fetched = anyio.Event()
            self._tasks.start_soon(self._fetch, self._far)
        if self.sessions is None:
            self._emit(Notice(f"no other session can write to this one: {self._unreachable}"))
            return
        listener = SessionListener(
            self._of.id,
            self._receive,
            self._sockets,
            self._clock,
            self._emit,
            project=str(self._of.at.places.tree),
        )
        self._listens = True
        await self._tasks.start(self._listen, listener)

    async def _receive(self, letter: Letter) -> None:
        """Write a letter down before it is acknowledged, and tell the user at once."""
        if await self.post.inbox(LEAD).accept(letter):
            text = f"{letter.sender} writes: {letter.summary} (Enter lets the conversation read it)"
            self._emit(Notice(text))

    async def _fetch(self, far: FarPost) -> None:
        """Letters of other machines, once in a second, until the session ends."""
        said, turn = "", 0
        while not self._leaving.is_set():
            try:
                if turn % _ANNOUNCED == 0:
                    names = [one.name for one in self.post.members() if one.name != LEAD]
                    await anyio.to_thread.run_sync(far.announce, names)
                for one in await anyio.to_thread.run_sync(far.take):
                    known = any(member.name == one.agent for member in self.post.members())
                    if known and one.agent != LEAD:
                        await self.post.inbox(one.agent).accept(one.letter)
                    else:
                        await self._receive(one.letter)
                    await anyio.to_thread.run_sync(far.keep, one.id)
                turn, said = turn + 1, ""
            except SevenfoldError as error:  # what was not kept comes again
                if str(error) != said:
                    said = str(error)
                    self._emit(Notice(f"letters of other machines wait: {said}", "warning"))
                turn = 0
            with anyio.move_on_after(_FETCHED):
                await self._leaving.wait()
        with suppress(SevenfoldError):
            await anyio.to_thread.run_sync(far.withdraw)
        self._fetched.set()

    async def _tidy(self) -> Sequence[Change]:
        """Work trees that a crash left go, unless there is work in them."""
        for text in await self._worktrees.tidy():
            self._emit(Notice(text))
        return ()

    async def _listen(self, listener: SessionListener, *, task_status: TaskStatus[None]) -> None:
        try:
            async with listener:
                task_status.started()
                await self._leaving.wait()
        finally:  # also when it is cancelled: closing the session waits for it
            self._left.set()

    async def close(self) -> None:
        await self.roster.close()
        self._leaving.set()
        if self._listens:
            await self._left.wait()
        await self._fetched.wait()
        with suppress(SevenfoldError):  # what cannot be looked at is left as it is
            self.post.clear()


def _shared(at: Project) -> Path:
    """The folder of the user's own definitions: another program's, if that is shared."""
    return at.environment.shared or at.environment.home
