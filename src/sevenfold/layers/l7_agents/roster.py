"""The roster: every agent of a session, how it is begun, written to, stopped and taken up again."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from msgspec.structs import replace

from sevenfold.errors import Refused, SevenfoldError
from sevenfold.events import Emit, Failed
from sevenfold.layers.l7_agents.agent_memory import AgentMemory
from sevenfold.layers.l7_agents.agent_tool import AgentTool, schema_of
from sevenfold.layers.l7_agents.definitions import Definition, chosen
from sevenfold.layers.l7_agents.delivery import Delivery, Inbox, Queue
from sevenfold.layers.l7_agents.frames import LEAD, ShutdownResponse
from sevenfold.layers.l7_agents.letters import Letter
from sevenfold.layers.l7_agents.members import Listed, Member
from sevenfold.layers.l7_agents.names import same_name
from sevenfold.layers.l7_agents.notices import AgentNotice, Notices, awaited
from sevenfold.layers.l7_agents.orders import Order, check_depth, free_name, system_of
from sevenfold.layers.l7_agents.parents import FORK, MAIN, Parent
from sevenfold.layers.l7_agents.post_office import About, PostOffice
from sevenfold.layers.l7_agents.recruiting import Recruiting
from sevenfold.layers.l7_agents.restoring import read_members
from sevenfold.layers.l7_agents.running import Running
from sevenfold.layers.l7_agents.settings import AgentSettings
from sevenfold.layers.l7_agents.summaries import Summaries
from sevenfold.layers.l7_agents.worktrees import Worktrees
from sevenfold.messages import Json, Message
from sevenfold.protocols import (
    Agent,
    AgentSpec,
    Background,
    Clock,
    Forker,
    Spawner,
    Tool,
    ToolFailed,
)
from sevenfold.transcript import View

WORK: Final = "agents"
"""What their work is called where background work is listed."""


@dataclass(kw_only=True)
class Roster:
    """The agents of one session. Implements `Directory`: it takes letters for them."""

    spawn: Spawner
    background: Background
    """Runs them: what breaks in an agent must not end the session."""
    definitions: Mapping[str, Definition]
    clock: Clock
    emit: Emit
    settings: AgentSettings = field(default_factory=AgentSettings)
    tools: Callable[[], Collection[str]] = lambda: ()
    """The names of all tools that an agent could have."""
    messenger: Callable[[str], Tool] | None = None
    """Makes the tool by which the agent of this name writes to others."""
    post: PostOffice | None = None
    session: str = ""
    worktrees: Worktrees | None = None
    memory: Callable[[Definition], AgentMemory] = lambda definition: AgentMemory()
    forker: Forker | None = None
    """Asks an agent beside its work how it is going; None: nobody does."""
    random: Callable[[int], bytes] = os.urandom
    notices: Notices = field(default_factory=Notices)
    """For the main conversation, one of whose layers it is."""
    letters: Queue = field(default_factory=lambda: Queue(LEAD))
    """For the main conversation, where there is no post office."""
    schema: Json = field(init=False)
    """Of the Agent tool, the same in every conversation of the session."""
    _members: dict[str, Member] = field(init=False, default_factory=dict)
    _closing: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        asking = Summaries(self.forker, self.clock, self.emit, self.settings.summary_seconds)
        self._running = Running(
            asking, self.worktrees, self.clock, self.emit, self._tell, self._moved
        )
        self._recruit = Recruiting(
            self.definitions, self.tools, self.memory, self.worktrees, self.emit
        )
        self.schema = schema_of(self.definitions)

    # --- looking ----------------------------------------------------------------------------------------

    @property
    def agents(self) -> tuple[Listed, ...]:
        return tuple(member.listed for member in self._members.values())

    def names(self) -> Sequence[str]:
        """Whom a message can reach, the newest first."""
        names = dict.fromkeys(one.name for one in reversed(self._members.values()))
        return (*names, LEAD)

    @property
    def busy(self) -> tuple[str, ...]:
        """Who is at work; a teammate that waits for mail is not."""
        return tuple(one.name for one in self._members.values() if one.status == "running")

    def find(self, name: str) -> Member | None:
        """By id or by name; of several, one that is alive, else the newest."""
        if name in self._members:
            return self._members[name]
        found = [one for one in self._members.values() if same_name(one.name, name)]
        return next((one for one in found if one.alive), found[-1] if found else None)

    # --- beginning --------------------------------------------------------------------------------------

    async def begin(self, order: Order, parent: Parent, use_id: str) -> Member:
        """Start an agent; `ToolFailed`, or a mistake, says why it cannot be."""
        check_depth(order, parent, self.settings.depth)
        if not order.forks:
            order = order.by(chosen(self.definitions, order.kind, also=(FORK,)))
        member = self._reserve(order, parent)  # before anything waits: two may come at once
        try:
            recruit = await self._recruit(order, parent, member.spec, use_id)
            member.spec, member.worktree = recruit.spec, recruit.worktree
            self._spawn(member)
        except BaseException:
            del self._members[member.id]
            await self._undo(member)
            member.give_up()
            raise
        if member.background:
            self._teller(member.parent).expect(member.id)
        self._run(member, recruit.said)
        return member

    async def settle(self, member: Member) -> bool:
        """Wait for it as long as one waits. False: it goes on in the background from here on."""
        try:
            rests = await self._running.until_rest(member, self.settings.auto_background_seconds)
        except anyio.get_cancelled_exc_class():
            member.scope.cancel()
            with anyio.CancelScope(shield=True):
                await member.gone.wait()
            raise
        if not rests:
            member.background = True
            if member.agent is not None:
                member.agent.unattended()
            self._teller(member.parent).expect(member.id)
        return rests

    def _reserve(self, order: Order, parent: Parent) -> Member:
        self._check_room(ToolFailed)
        taken = [one.name for one in self._members.values()]
        alive = [one.name for one in self._members.values() if one.alive]
        if order.name and any(same_name(order.name, one) for one in alive):
            raise ToolFailed(
                f"{order.name} is at work already: send it a message, or take another name"
            )
        spec = AgentSpec(
            id=self._new_id(),
            name=order.name or free_name(order.kind, taken),
            kind=order.kind,
            depth=parent.depth + 1,
            asks=not order.background and self._watched(parent),
        )
        member = Member(
            spec,
            order.description,
            parent.id,
            background=order.background,
            teammate=order.teammate,
        )
        self._members[spec.id] = member
        return member

    def _watched(self, parent: Parent) -> bool:
        """Whether somebody may be asked: not by an agent of one that works in the background."""
        starter = self._members.get(parent.id)
        return starter is None or starter.spec.asks

    def _check_room(self, error: type[ToolFailed | Refused]) -> None:
        most = self.settings.most
        if sum(one.alive for one in self._members.values()) >= most:
            raise error(
                f"{most} agents are at work, and that is the most at once (agents.most): wait for "
                "one to end, or stop one"
            )

    def _new_id(self) -> str:
        while (id := f"a-{self.random(4).hex()}") in self._members:
            continue
        return id

    def _join(self, member: Member) -> None:
        if member.teammate and self.post is not None:
            self.post.join(member.name, About(member.spec.kind, self.session))

    def _spawn(self, member: Member) -> None:
        if self._closing:
            raise Refused(f"the session is closing: {member.name} is not begun any more")
        self._join(member)
        inboxes: list[Inbox] = [member.letters]
        if member.teammate and self.post is not None:
            inboxes.append(self.post.inbox(member.name))
        member.mail = Delivery(inboxes, self.emit)
        attach = (member.mail, member.notices)
        member.begin(self.spawn(member.spec, self._own_tools, attach))

    def _own_tools(self, agent: Agent) -> Sequence[Tool]:
        """A fork has its parent's list of tools, and hears of its limits when it calls one."""
        spec = agent.spec
        own: list[Tool] = []
        if spec.depth < self.settings.depth or spec.kind == FORK:
            own.append(AgentTool(self, Parent.of(agent)))
        if self.messenger is not None:
            own.append(self.messenger(spec.name))
        return own

    def _run(self, member: Member, said: Message | None) -> None:
        self.background.start(WORK, partial(self._running.work, member, said))

    async def _undo(self, member: Member) -> None:
        """It never began: nothing of it stays."""
        await self._out_of_tree(member)
        self._leave(member)

    async def _out_of_tree(self, member: Member) -> None:
        if member.worktree is not None and self.worktrees is not None:
            await self.worktrees.leave(member.worktree, member.id)

    def _leave(self, member: Member) -> None:
        with self._saying():
            if member.teammate and self.post is not None:
                self.post.leave(member.name)

    @contextmanager
    def _saying(self) -> Iterator[None]:
        """A list of members that cannot be written stops no agent."""
        try:
            yield
        except SevenfoldError as error:
            self.emit(Failed(WORK, str(error)))

    # --- telling ----------------------------------------------------------------------------------------

    def _teller(self, id: str) -> Notices:
        """What this conversation is told through; one that is over hands on to who started it."""
        while (member := self._members.get(id)) is not None:
            if member.alive:
                return member.notices
            id = member.parent
        return self.notices

    def _tell(self, member: Member) -> None:
        if not member.alive:
            for left in member.notices.take():
                self._teller(member.parent).post(left)
            if member.leaving:
                self._leave(member)
        if member.background and not self._closing:
            self._teller(member.parent).post(member.notice)

    def _moved(self, member: Member) -> None:
        with self._saying():
            if member.teammate and self.post is not None:
                self.post.say(member.name, member.status)

    # --- letters ----------------------------------------------------------------------------------------

    async def deliver(self, name: str, letter: Letter) -> str | None:
        """Hand a letter over, in words what was done; None: there is no such agent."""
        self.heard(letter)
        if name in (MAIN, LEAD):
            return await self._to_main(letter)
        member = self.find(name)
        if member is None:
            return None
        if member.name == letter.sender:
            raise Refused(f"{name!r} is you: nothing was sent")
        if not member.alive:
            return await self._resume(member, letter)
        if member.teammate and self.post is not None:
            await self.post.inbox(member.name).accept(letter)
        else:
            member.letters.post(letter)
        member.wake()
        if member.status == "idle":
            return f"delivered to {member.name}, which was idle and reads it now"
        return f"queued for {member.name}: it reads it after its current round of tools"

    async def _to_main(self, letter: Letter) -> str:
        if self.post is not None:
            await self.post.inbox(LEAD).accept(letter)
        else:
            self.letters.post(letter)
        return f"queued for {LEAD}, who reads it at the next step"

    def heard(self, letter: Letter) -> None:
        """A teammate that agrees to shut down ends when its turn is over."""
        frame, member = letter.frame, self.find(letter.sender)
        if member is None or not (member.alive and member.teammate):
            return
        if isinstance(frame, ShutdownResponse) and frame.approve:
            member.leaving = True
            member.wake()

    async def _resume(self, member: Member, letter: Letter) -> str:
        if member.spec.kind == FORK:
            raise Refused(
                f"{member.name} was a fork and is over, and a fork cannot be resumed: it worked on a copy "
                "of the conversation as it was then, which has gone on. What it said is in its result and "
                f"in {member.path}; start another fork, or an agent of a kind, which can be resumed"
            )
        self._check_room(Refused)
        member.letters.post(letter)
        was, member.status = member.status, "running"  # before anything waits, as in `begin`
        try:
            await self._again(member)
        except BaseException:
            member.status = was
            member.letters.settle([letter.id])
            await self._out_of_tree(member)
            raise
        member.leaving, member.background = False, True
        self._teller(member.parent).expect(member.id)
        self._run(member, None)
        return f"{member.name} was over and is resumed in the background with this message"

    async def _again(self, member: Member) -> None:
        spec, definition = member.spec, self.definitions.get(member.spec.kind)
        folder, member.worktree = spec.folder, None
        if folder is not None and self.worktrees is not None:
            theirs = folder.name != spec.id
            kept = await self.worktrees.join(folder, spec.id) if theirs else None
            kept = kept or await self.worktrees.take_up(spec.id)
            member.worktree = kept or await self.worktrees.make(spec.id)
            folder = member.worktree.path
        system = spec.system
        if not system and definition is not None:
            system = system_of(definition, spec.name, teammate=member.teammate)
        member.spec = replace(spec, system=system, folder=folder, resumes=True, asks=False)
        self._spawn(member)

    # --- ending -----------------------------------------------------------------------------------------

    def stop(self, name: str) -> bool:
        """Stop an agent, by id or name. Its transcript stays whole; False: it is not at work."""
        member = self.find(name)
        if member is None or not member.alive:
            return False
        member.scope.cancel()
        return True

    async def wait(self) -> None:
        """Until no agent is at work; a teammate that waits for mail is not."""
        while at_work := [one for one in self._members.values() if one.status == "running"]:
            await at_work[0].resting.wait()

    async def close(self) -> None:
        """Stop all of them. The session tells of them when it is resumed."""
        self._closing = True
        begun = [one for one in self._members.values() if one.alive and one.agent is not None]
        for member in begun:
            member.scope.cancel()
        for member in begun:
            await member.gone.wait()

    def restore(self, folder: Path, view: View) -> None:
        """Know the agents whose transcripts lie in this folder; tell of those that are waited for."""
        team = set[str]()
        with self._saying():
            team = {one.name for one in self.post.members()} if self.post is not None else team
        for member in read_members(folder):
            if member.id not in self._members:
                member.teammate = member.name in team
                self._members[member.id] = member
        for id in awaited(view.marks):
            known = self._members.get(id)
            if known is None:
                lost = "its transcript is gone, and nothing is known of it any more"
                self.notices.post(AgentNotice(id, id, "stopped", lost))
            elif not known.alive:
                self.notices.post(known.notice)
