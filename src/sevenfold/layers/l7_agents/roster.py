"""The roster: every agent of a session, how it is begun, written to, stopped and taken up again.

Agents of an earlier run are found by their transcripts. An order becomes a conversation with a definition,
tools, memory and a work tree.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
from msgspec.structs import replace

from sevenfold.core.errors import FromTheFuture, Refused, SevenfoldError, StorageFailure
from sevenfold.core.events import Emit, Failed, Notice
from sevenfold.core.messages import Json, Message
from sevenfold.core.protocols import Agent, AgentSpec, Background, Clock, Spawner, Tool, ToolFailed
from sevenfold.core.request import Request
from sevenfold.core.transcript import Entry, Mark, Reply, View, check_format, decode_entry
from sevenfold.layers.l7_agents.agent_run import AgentRunner, StatusSummaries
from sevenfold.layers.l7_agents.agent_tools import SEND, AgentTool, make_schema
from sevenfold.layers.l7_agents.definitions import AgentDefinition, choose_definition, fit_definition
from sevenfold.layers.l7_agents.mail import Inbox, MailDelivery, MemberInfo, MemoryInbox, PostOffice
from sevenfold.layers.l7_agents.mailbox import LEAD, Letter, ShutdownResponse, is_same_name
from sevenfold.layers.l7_agents.members import (
    FORK,
    MAIN,
    AgentNotice,
    AgentNotices,
    AgentOrder,
    AgentRow,
    AgentStatus,
    Member,
    ParentConversation,
    check_depth,
    find_awaited_agents,
    make_first_message,
    make_free_name,
    make_system_prompt,
)
from sevenfold.layers.l7_agents.memory import AgentMemory, add_memory_tools, find_missing_tools
from sevenfold.layers.l7_agents.worktrees import Worktree, Worktrees
from sevenfold.layers.shared.side_work import SideWork
from sevenfold.settings.layers import AgentSettings
from sevenfold.storage.jsonl import read_log

MARK: Final = "session"  # The mark that begins a transcript; an agent's says under `agent` what it is
LARGEST: Final = 256 << 20
HEAD: Final = 8  # Lines within which that mark stands


class AgentRecord(msgspec.Struct, frozen=True):
    """The value of the mark."""

    name: str
    kind: str
    depth: int = 1
    tools: tuple[str, ...] | None = None
    max_steps: int = 0
    folder: str | None = None
    memory: str | None = None
    for_memory: tuple[str, ...] = ()
    only_looks: bool = False


def read_members(folder: Path) -> list[Member]:
    """Those whose transcripts lie in this folder, the oldest first. What is damaged is left out."""
    try:
        with os.scandir(folder) as entries:
            found = [
                (entry.stat(follow_symlinks=False).st_mtime, entry.name)
                for entry in entries
                if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []
    members = (_member(folder / name) for _, name in sorted(found))
    return [member for member in members if member is not None]


def _member(path: Path) -> Member | None:
    try:
        lines = read_log(path, LARGEST).split(b"\n")
        record = next(_records(lines[:HEAD]), None)
    except (StorageFailure, FromTheFuture):
        return None
    if record is None:
        return None
    spec = AgentSpec(
        id=path.stem,
        name=record.name,
        kind=record.kind,
        depth=record.depth,
        tools=record.tools,
        max_steps=record.max_steps,
        folder=Path(record.folder) if record.folder else None,
        memory=Path(record.memory) if record.memory else None,
        for_memory=record.for_memory,
        only_looks=record.only_looks,
        asks=False,
    )
    status, said = _last(lines)
    member = Member(spec, background=True, status=status, said=said, path=path)
    if status == "stopped":
        member.why = "it was still at work when the session ended"
    member.resting.set()
    member.gone.set()
    return member


def _records(lines: list[bytes]) -> Iterator[AgentRecord]:
    for entry in _entries(lines):
        check_format(entry)
        match entry.what:
            case Mark(name, dict() as value) if name == MARK and "agent" in value:
                yield from _converted(value["agent"])


def _converted(value: Any) -> Iterator[AgentRecord]:
    try:
        yield msgspec.convert(value, AgentRecord)
    except msgspec.ValidationError:
        return


def _last(lines: list[bytes]) -> tuple[AgentStatus, str]:
    """The status and the last words. A reply that calls nothing is the end of its work."""
    for entry in _entries(reversed(lines)):
        match entry.what:
            case Reply(message, stop=stop):
                done = not message.tool_uses and stop != "cut"
                return ("done" if done else "stopped"), message.text.strip()
            case Message():
                return "stopped", ""
    return "stopped", ""


def _entries(lines: Any) -> Iterator[Entry]:
    for line in lines:
        if line.strip():
            try:
                yield decode_entry(line, 0)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue


class PreparedAgent(msgspec.Struct, frozen=True):
    """An agent that can be begun."""

    spec: AgentSpec
    said: Message  # Its first words
    worktree: Worktree | None = None  # The one it works in, which may be that of who started it


@dataclass(slots=True)
class AgentPreparer:
    """Prepares agents for one session."""

    definitions: Mapping[str, AgentDefinition]
    tools: Callable[[], Collection[str]]
    memory: Callable[[AgentDefinition], AgentMemory]
    worktrees: Worktrees | None
    emit: Emit
    _told: set[str] = field(default_factory=set)

    async def __call__(
        self, order: AgentOrder, parent: ParentConversation, spec: AgentSpec, use_id: str
    ) -> PreparedAgent:
        """`spec` says who it is; what it is like comes from its definition, or from its parent."""
        of = parent.spec
        spec = replace(
            spec,
            parent=parent.id,
            folder=of.folder if of else None,
            only_looks=of is not None and of.only_looks,
        )
        if order.forks:
            spec = _forked(spec, of, await parent.written(use_id))
        else:
            spec = self._fitted(order, spec, parent)
        worktree = await self._worktree(order, spec)
        if worktree is not None:
            spec = replace(spec, folder=worktree.path)
        own = worktree.path if worktree and order.worktree else None
        return PreparedAgent(spec, make_first_message(order, spec.id, own), worktree)

    def _fitted(self, order: AgentOrder, spec: AgentSpec, parent: ParentConversation) -> AgentSpec:
        """No agent has more than who started it: it cannot be used to get round a list of tools."""
        wanted, model = self.definitions[order.kind], parent.request.frame.model
        if order.model:
            wanted = replace(wanted, model=order.model)
        there = tuple(name for name in self.tools() if not parent.spec or name in parent.tools)
        definition, said = fit_definition(wanted, there, model)
        if definition.tools is None and parent.spec:
            definition = replace(definition, tools=there)
        self._say(*said)
        system = make_system_prompt(definition, spec.name, teammate=order.teammate)
        tools, memory = definition.tools, self.memory(definition)
        self._say(memory.note)
        if order.teammate and tools is not None:
            tools = tuple(dict.fromkeys((*tools, SEND)))
        return replace(
            spec,
            system=(*system, memory.prompt) if memory.prompt else system,
            opening=(memory.opening,) if memory.opening else (),
            tools=add_memory_tools(tools) if memory.folder else tools,
            model=definition.model or model,
            only_looks=spec.only_looks or definition.only_looks,
            max_steps=definition.max_turns,
            memory=memory.folder,
            for_memory=find_missing_tools(tools) if memory.folder else (),
        )

    async def _worktree(self, order: AgentOrder, spec: AgentSpec) -> Worktree | None:
        """Its own, or the one of who started it: that stays as long as this agent works in it."""
        if not order.worktree:
            if self.worktrees is None or spec.folder is None:
                return None
            return await self.worktrees.join(spec.folder, spec.id)
        if self.worktrees is None:
            raise ToolFailed("there is no git repository here, so no work tree: leave isolation out")
        return await self.worktrees.make(spec.id)

    def _say(self, *texts: str) -> None:
        """Each once: the same agent may be started a hundred times."""
        for text in texts:
            if text and text not in self._told:
                self._told.add(text)
                self.emit(Notice(text, "warning"))


def _forked(spec: AgentSpec, of: AgentSpec | None, request: Request) -> AgentSpec:
    """A fork of an agent may do what that agent may."""
    if of is None:
        return replace(spec, on=request)
    return replace(
        spec, on=request, tools=of.tools, memory=of.memory, for_memory=of.for_memory, max_steps=of.max_steps
    )


WORK: Final = "agents"  # The name of agents' work in the list of background work


@dataclass(kw_only=True)
class Roster:
    """The agents of one session. Implements `Directory`: it takes letters for them."""

    spawn: Spawner
    background: Background  # Runs them: what breaks in an agent must not end the session
    definitions: Mapping[str, AgentDefinition]
    clock: Clock
    emit: Emit
    settings: AgentSettings = field(default_factory=AgentSettings)
    tools: Callable[[], Collection[str]] = lambda: ()  # The names of all tools that an agent could have
    messenger: Callable[[str], Tool] | None = None
    """Makes the tool by which the agent of this name writes to others."""
    post: PostOffice | None = None
    session: str = ""
    worktrees: Worktrees | None = None
    memory: Callable[[AgentDefinition], AgentMemory] = lambda definition: AgentMemory()
    side_work: SideWork | None = None  # Asks an agent how it is going; None: it is not asked
    random: Callable[[int], bytes] = os.urandom
    notices: AgentNotices = field(default_factory=AgentNotices)
    """For the main conversation, one of whose layers it is."""
    letters: MemoryInbox = field(default_factory=lambda: MemoryInbox(LEAD))
    """For the main conversation, where there is no post office."""
    schema: Json = field(init=False)  # Of the Agent tool, the same in every conversation of the session
    _members: dict[str, Member] = field(init=False, default_factory=dict)
    _closing: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        asking = StatusSummaries(self.side_work, self.clock, self.emit, self.settings.summary_seconds)
        self._running = AgentRunner(asking, self.worktrees, self.clock, self.emit, self._tell, self._moved)
        self._recruit = AgentPreparer(self.definitions, self.tools, self.memory, self.worktrees, self.emit)
        self.schema = make_schema(self.definitions)

    # --- looking ----------------------------------------------------------------------------------------

    @property
    def agents(self) -> tuple[AgentRow, ...]:
        return tuple(member.listed for member in self._members.values())

    def names(self) -> Sequence[str]:
        """The names that a message can reach, the newest first."""
        names = dict.fromkeys(one.name for one in reversed(self._members.values()))
        return (*names, LEAD)

    @property
    def busy(self) -> tuple[str, ...]:
        """The agents at work; a teammate that waits for mail is not."""
        return tuple(one.name for one in self._members.values() if one.status == "running")

    def find(self, name: str) -> Member | None:
        """By id or by name; of several, one that is alive, else the newest."""
        if name in self._members:
            return self._members[name]
        found = [one for one in self._members.values() if is_same_name(one.name, name)]
        return next((one for one in found if one.alive), found[-1] if found else None)

    # --- beginning --------------------------------------------------------------------------------------

    async def begin(self, order: AgentOrder, parent: ParentConversation, use_id: str) -> Member:
        """Start an agent; `ToolFailed`, or a mistake, says why it cannot be."""
        check_depth(order, parent, self.settings.depth)
        if not order.forks:
            order = order.by(choose_definition(self.definitions, order.kind, also=(FORK,)))
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

    def _reserve(self, order: AgentOrder, parent: ParentConversation) -> Member:
        self._check_room(ToolFailed)
        taken = [one.name for one in self._members.values()]
        alive = [one.name for one in self._members.values() if one.alive]
        if order.name and any(is_same_name(order.name, one) for one in alive):
            raise ToolFailed(f"{order.name} is at work already: send it a message, or take another name")
        spec = AgentSpec(
            id=self._new_id(),
            name=order.name or make_free_name(order.kind, taken),
            kind=order.kind,
            depth=parent.depth + 1,
            asks=not order.background and self._watched(parent),
        )
        member = Member(
            spec, order.description, parent.id, background=order.background, teammate=order.teammate
        )
        self._members[spec.id] = member
        return member

    def _watched(self, parent: ParentConversation) -> bool:
        """True if a person may be asked; not by an agent of one in the background."""
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
            self.post.join(member.name, MemberInfo(member.spec.kind, self.session))

    def _spawn(self, member: Member) -> None:
        if self._closing:
            raise Refused(f"the session is closing: {member.name} is not begun any more")
        self._join(member)
        inboxes: list[Inbox] = [member.letters]
        if member.teammate and self.post is not None:
            inboxes.append(self.post.inbox(member.name))
        member.mail = MailDelivery(inboxes, self.emit)
        attach = (member.mail, member.notices)
        member.begin(self.spawn(member.spec, self._own_tools, attach))

    def _own_tools(self, agent: Agent) -> Sequence[Tool]:
        """A fork has its parent's list of tools, and hears of its limits when it calls one."""
        spec = agent.spec
        own: list[Tool] = []
        if spec.depth < self.settings.depth or spec.kind == FORK:
            own.append(AgentTool(self, ParentConversation.of(agent)))
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

    def _teller(self, id: str) -> AgentNotices:
        """The notices of this conversation, or, if it is over, those of its parent."""
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
            system = make_system_prompt(definition, spec.name, teammate=member.teammate)
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
        for id in find_awaited_agents(view.marks):
            known = self._members.get(id)
            if known is None:
                lost = "its transcript is gone, and nothing is known of it any more"
                self.notices.post(AgentNotice(id, id, "stopped", lost))
            elif not known.alive:
                self.notices.post(known.notice)
