"""Whom a session works with: its agents, their mail, and other sessions on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

import anyio
from anyio.abc import TaskGroup, TaskStatus

from sevenfold.background import Tray
from sevenfold.capping import Capped
from sevenfold.errors import Refused, SevenfoldError
from sevenfold.events import Notice
from sevenfold.layers.l7_agents.agent_memory import AgentMemory, memory_for
from sevenfold.layers.l7_agents.agent_snapshots import begin_with_snapshot
from sevenfold.layers.l7_agents.agent_tool import AgentTool
from sevenfold.layers.l7_agents.definitions import Definition, definition_folders, find_definitions
from sevenfold.layers.l7_agents.delivery import Delivery
from sevenfold.layers.l7_agents.frames import LEAD
from sevenfold.layers.l7_agents.letters import Letter, shortened
from sevenfold.layers.l7_agents.parents import MAIN, Parent
from sevenfold.layers.l7_agents.post_office import PostOffice
from sevenfold.layers.l7_agents.reachable import runtime_folder
from sevenfold.layers.l7_agents.roster import Roster
from sevenfold.layers.l7_agents.send_message import SendMessage
from sevenfold.layers.l7_agents.sockets import Listener, Sessions
from sevenfold.layers.l7_agents.worktrees import Worktrees
from sevenfold.protocols import Attach, Clock, Forker, Handback, Tool
from sevenfold.spawning import FOLDER, Spawning
from sevenfold.spending import Spending
from sevenfold.tools.toolbox import checked
from sevenfold.tools.workspace import program
from sevenfold.transcript import View
from sevenfold.workplace import Workplace


class Where(TypedDict):
    """Where the memories of agents are."""

    home: Path
    tree: Path
    state_home: Path
    trusted: bool
    clock: Clock


class Company:
    """Of one session. With agents switched off it is nobody, and costs nothing."""

    def __init__(self, spawning: Spawning, tasks: TaskGroup, *, interactive: bool) -> None:
        self._spawning, self._of, at = spawning, spawning.session, spawning.session.at
        session = spawning.session
        self._emit, self._clock = session.emit, session.clock
        self._settings, self._interactive = at.settings.agents, interactive
        self._tasks, self._listens = tasks, False
        self._leaving, self._left = anyio.Event(), anyio.Event()
        self.post = PostOffice(at.environment.home, session.id, self._clock, self._emit)
        self._unreachable = ""
        self.sessions = self._other_sessions()
        self._worktrees = self._work_trees()
        self.roster = Roster(
            spawn=spawning,
            background=Tray(tasks, self._emit),
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
            forker=self._beside() if session.flags.agent_summaries else None,
        )
        self._mail = Delivery([self.post.inbox(LEAD)], self._emit, self.roster.heard)
        on = self._settings.enabled
        self.attach: tuple[Attach, ...] = (self._mail, self.roster.notices) if on else ()

    def joining(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """These tools and those by which agents are started and written to."""
        tools = checked(tools)
        if not self._settings.enabled:
            return tools
        main = AgentTool(self.roster, Parent(MAIN, 0, lambda: self._of.request))
        there = {tool.name for tool in tools}
        own = (tool for tool in (main, self._messenger(LEAD)) if tool.name not in there)
        return (*own, *tools)

    @property
    def heard(self) -> bool:
        """Whether somebody has something to say that the main conversation does not know yet."""
        return bool(self.roster.notices.ids) or bool(self._mail.waiting(self._of.view))

    async def news(self) -> bool:
        """Wait for the agents at work; whether any of them has something to say then."""
        if not self.heard:
            await self.roster.wait()
        return self.heard

    async def send(self, to: str, text: str) -> str:
        """Write to somebody by hand, as the lead; what was done, in words. `ToolFailed` says why not."""
        args = {"to": to, "message": text, "summary": shortened(text)}
        return await self._messenger(LEAD).run(args, "")

    # --- who there is -----------------------------------------------------------------------------------

    def _definitions(self) -> dict[str, Definition]:
        at = self._of.at
        if not self._settings.enabled:
            return {}
        found = find_definitions(
            definition_folders(_shared(at), at.places.tree if at.trusted else None)
        )
        for text in found.problems:
            self._emit(Notice(text, "warning"))
        for text in found.notes:
            self._emit(Notice(text))
        hidden = definition_folders(at.environment.home, at.places.tree)[1:]
        if not at.trusted and any(folder.is_dir() for folder in hidden):
            self._emit(
                Notice(f"the agents of {at.places.tree} are left out: it is not trusted", "warning")
            )
        return found.definitions

    def _work_trees(self) -> Worktrees:
        at = self._of.at
        environment = at.environment.tool_environment(at.settings.env)
        return Worktrees(
            at.places.tree,
            at.places.project / "worktrees",
            program("git", environment),
            environment,
            trusted=at.trusted,
        )

    def _memory(self, definition: Definition) -> AgentMemory:
        at = self._of.at
        where: Where = {
            "home": _shared(at),
            "tree": at.places.tree,
            "state_home": at.environment.home,
            "trusted": at.trusted,
            "clock": self._clock,
        }
        if at.memory.off is None and at.trusted:
            begin_with_snapshot(definition, self._emit, **where)
        return memory_for(definition, off=at.memory.off, **where)

    def _messenger(self, sender: str) -> SendMessage:
        lead = sender == LEAD
        sessions = self.sessions if lead else None
        return SendMessage(sender, lead, self.roster, self.post, self._clock, sessions)

    def _other_sessions(self) -> Sessions | None:
        at = self._of.at
        try:
            self._sockets = runtime_folder(at.environment.home, at.environment.variables)
        except Refused as error:
            self._unreachable = str(error)
            return None
        return Sessions(self._sockets, self._of.id, self._clock)

    def _beside(self) -> Forker:
        """How an agent is asked what it does: nobody waits for it, so the day's money limits it."""
        at, prices = self._of.at, self._of.ledger.prices
        limit = at.settings.daily_background_limit
        spending = Spending(at.environment.home, limit, self._clock)
        return Capped(self._spawning.fork, prices, spending, self._emit)

    # --- coming and going -------------------------------------------------------------------------------

    async def start(self, folder: Path, view: View) -> None:
        """Take up agents of an earlier run, and be reachable where somebody wants that."""
        if not self._settings.enabled:
            return
        self.roster.restore(folder / FOLDER, view)
        self.roster.background.start("work trees", self._tidy)
        wanted = self._settings.reachable
        if not (self._interactive if wanted is None else wanted):
            return
        if self.sessions is None:
            self._emit(Notice(f"no other session can write to this one: {self._unreachable}"))
            return
        listener = Listener(
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
        """Written down before it is acknowledged; whoever sits at the terminal hears of it at once."""
        if await self.post.inbox(LEAD).accept(letter):
            text = f"{letter.sender} writes: {letter.summary} (Enter lets the conversation read it)"
            self._emit(Notice(text))

    async def _tidy(self) -> Sequence[Handback]:
        """Work trees that a crash left go, unless there is work in them."""
        for text in await self._worktrees.tidy():
            self._emit(Notice(text))
        return ()

    async def _listen(self, listener: Listener, *, task_status: TaskStatus[None]) -> None:
        try:
            async with listener:
                task_status.started()
                await self._leaving.wait()
        finally:  # also when it is cancelled: whoever closes the session waits for it
            self._left.set()

    async def close(self) -> None:
        await self.roster.close()
        self._leaving.set()
        if self._listens:
            await self._left.wait()
        with suppress(SevenfoldError):  # what cannot be looked at is left as it is
            self.post.clear()


def _shared(at: Workplace) -> Path:
    """Where the user's own definitions are: beside another program's, if its folder is shared."""
    return at.environment.shared or at.environment.home
