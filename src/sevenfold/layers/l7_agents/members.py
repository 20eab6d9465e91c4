"""One agent as the roster knows it: who it is, how far it has come, and how it is reached.

`ParentConversation` starts an agent: the main conversation, or another agent. `AgentOrder` is the task it
is given. `AgentNotices` tells the parent once how an agent in the background ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias

import anyio
import msgspec
from msgspec.structs import replace

from sevenfold.core.errors import Refused
from sevenfold.core.messages import Json, Message, strip_half_characters, user, write_directive
from sevenfold.core.protocols import Agent, AgentSpec, Attach, ToolFailed
from sevenfold.core.request import Request, find_open_uses
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Mark, View
from sevenfold.layers.l7_agents.definitions import GENERAL, AgentDefinition
from sevenfold.layers.l7_agents.mail import MailDelivery, MemoryInbox, frame_text
from sevenfold.layers.l7_agents.mailbox import LEAD, check_agent_name, is_posing_name, is_same_name
from sevenfold.layers.l7_agents.worktrees import Worktree

MARK: Final = "agents"
LONGEST: Final = 12_000  # Characters of what an agent said; its transcript has the rest
_TAG: Final = "agent-notice"
_NAME: Final = 80


class AgentNotice(msgspec.Struct, frozen=True):
    """One notice about an agent."""

    id: str
    name: str
    status: str  # done, failed, stopped or idle
    said: str
    facts: str = ""  # One line: what it took, and where its transcript is


class AgentNotices:
    """Waits with what is to be told, and hands it back at the next round of tools."""

    label: ClassVar[str] = "Notices"

    def __init__(self, wake: Callable[[], object] = lambda: None) -> None:
        self._wake = wake
        self._waiting: list[AgentNotice] = []
        self._new: list[str] = []

    @property
    def ids(self) -> tuple[str, ...]:
        """The agents that there is something to tell of."""
        return tuple(notice.id for notice in self._waiting)

    def expect(self, id: str) -> None:
        """This agent goes on in the background: the conversation is to hear of it."""
        self._new.append(id)

    def post(self, notice: AgentNotice) -> None:
        self._waiting.append(notice)
        self._wake()

    def take(self) -> list[AgentNotice]:
        """Takes the notices that were never told, for another conversation to tell."""
        taken, self._waiting = self._waiting, []
        return taken

    def expected(self, view: View) -> Sequence[Mark]:
        """The mark alone: the turn is over, or was stopped, and it is to be known who still works."""
        before = find_awaited_agents(view.marks)
        now = list(dict.fromkeys((*before, *self._new)))
        self._new = []
        return (Mark(MARK, {"awaited": now}),) if now != before else ()

    def attach(self, view: View) -> Sequence[Message | Mark]:
        if not self._waiting and not self._new:
            return ()
        told, self._waiting = self._waiting, []
        before = find_awaited_agents(view.marks)
        over = {notice.id for notice in told if notice.status != "idle"}
        now = [id for id in dict.fromkeys((*before, *self._new)) if id not in over]
        self._new = []
        messages = [user(render_notice(notice)) for notice in told]
        return (*messages, Mark(MARK, {"awaited": now})) if now != before else messages


def find_awaited_agents(marks: Mapping[str, Any]) -> list[str]:
    """The agents that a conversation had in the background and was not told the end of."""
    mark = marks.get(MARK)
    ids = mark.get("awaited") if isinstance(mark, dict) else None
    return [id for id in ids if isinstance(id, str)] if isinstance(ids, list) else []


def render_notice(notice: AgentNotice) -> str:
    """The words of a notice. Nothing that the agent said can end it or begin something else."""
    said = notice.said
    if len(said) > LONGEST:
        said = f"{said[:LONGEST]}\n[{len(said) - LONGEST:,} characters more, in its transcript]"
    about = [("id", notice.id, _NAME), ("name", notice.name, _NAME), ("status", notice.status, 20)]
    return frame_text(_TAG, about, f"{said}\n\n{notice.facts}".strip())


_check: type[Attach] = AgentNotices


AgentStatus: TypeAlias = Literal["running", "idle", "done", "failed", "stopped"]
ALIVE: Final = ("running", "idle")


class AgentRow(msgspec.Struct, frozen=True, kw_only=True):
    """An agent at one moment, to be shown."""

    id: str
    name: str
    kind: str
    description: str
    status: AgentStatus
    background: bool
    depth: int
    doing: str  # A few words on what it is at, while it runs in the background
    said: str  # Its last words
    why: str  # The reason of the failure
    steps: int
    usage: Usage
    path: Path | None
    worktree: str


@dataclass(slots=True, eq=False)
class Member:
    """An agent: running, waiting for mail, or over and to be resumed."""

    spec: AgentSpec
    description: str = ""
    parent: str = ""  # The id of the agent that started it; empty: the main conversation did
    background: bool = False
    teammate: bool = False
    status: AgentStatus = "running"
    doing: str = ""
    said: str = ""
    why: str = ""
    agent: Agent | None = None
    path: Path | None = None
    worktree: Worktree | None = None
    left: str = ""  # The state of its work tree
    leaving: bool = False  # It has agreed to end
    steps: int = 0  # Of earlier runs, like `usage`
    usage: Usage = field(default_factory=Usage)
    mail: MailDelivery | None = None
    letters: MemoryInbox = field(init=False)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    resting: anyio.Event = field(default_factory=anyio.Event)  # It has nothing more to do, for now
    gone: anyio.Event = field(default_factory=anyio.Event)
    """It is over, and everything it had open is closed."""
    woken: anyio.Event = field(default_factory=anyio.Event)
    notices: AgentNotices = field(init=False)  # Notices of its own agents
    first: int = -1
    """The place in its transcript where its own words begin: before them a fork has its parent's."""

    def __post_init__(self) -> None:
        self.letters = MemoryInbox(self.spec.name)
        self.notices = AgentNotices(self.wake)

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def alive(self) -> bool:
        return self.status in ALIVE

    def wake(self) -> None:
        self.woken.set()

    def called(self) -> frozenset[str]:
        """Ids of letters and notices for it that are not in its transcript yet."""
        if self.agent is None or self.mail is None:
            return frozenset()
        letters = self.mail.waiting(self.agent.request.view)
        return frozenset((*(letter.id for letter in letters), *self.notices.ids))

    def begin(self, agent: Agent) -> None:
        """Give it a conversation; callers that waited for its end wait anew."""
        view = agent.request.view
        self.agent, self.path = agent, agent.path
        self.first = view[-1].id if len(view) else -1
        self.status, self.why, self.said, self.left = "running", "", "", ""
        if self.gone.is_set():  # else it may have been stopped before it began
            self.scope = anyio.CancelScope()
            self.resting, self.gone, self.woken = anyio.Event(), anyio.Event(), anyio.Event()

    def give_up(self) -> None:
        """It never began; no caller waits for it."""
        self.status = "failed"
        self.resting.set()
        self.gone.set()

    def closed(self) -> None:
        """Keep what counts of a conversation that is over."""
        if self.agent is not None:
            self.steps, self.usage = self.steps + self.agent.steps, self.usage + self.agent.usage
            self.agent = None

    def last_words(self) -> str:
        """Its last words, as far as the view still has them."""
        if self.agent is None:
            return self.said
        for placed in reversed(list(self.agent.request.view)):
            if placed.id <= self.first:
                break
            if placed.message.role == "assistant" and placed.message.text.strip():
                return placed.message.text.strip()
        return ""

    @property
    def listed(self) -> AgentRow:
        now = self.agent
        return AgentRow(
            id=self.id,
            name=self.name,
            kind=self.spec.kind,
            description=self.description,
            status=self.status,
            background=self.background,
            depth=self.spec.depth,
            doing=self.doing,
            said=self.said,
            why=self.why,
            steps=self.steps + (now.steps if now else 0),
            usage=self.usage + (now.usage if now else Usage()),
            path=self.path,
            worktree=self.left or (str(self.worktree.path) if self.worktree else ""),
        )

    @property
    def facts(self) -> str:
        """One line on what it took and where it can be looked up."""
        at = self.listed
        parts = [
            f"agent {at.id} ({at.name}): {at.status}",
            f"{at.steps} step{'' if at.steps == 1 else 's'}",
            f"{at.usage.total:,} tokens",
            f"transcript: {at.path}",
        ]
        if at.worktree:
            parts.append(f"work tree: {at.worktree}")
        return f"[{'; '.join(parts)}]"

    @property
    def notice(self) -> AgentNotice:
        said = "\n\n".join(text for text in (self.said, self.why) if text)
        return AgentNotice(self.id, self.name, self.status, said, self.facts)


FORK: Final = "fork"  # The kind of an agent that goes on from its parent's conversation
MAIN: Final = "main"  # The name of the main conversation
LONGEST_REPLY: Final = 300.0  # Seconds that a call waits for the rest of the reply it stands in
_LOOK: Final = 0.01


@dataclass(frozen=True, slots=True)
class ParentConversation:
    """A conversation in which the Agent tool is called."""

    name: str
    depth: int  # 0 for the main conversation
    now: Callable[[], Request]  # The request that it would send now
    is_fork: bool = False
    spec: AgentSpec | None = None  # Of an agent; the main conversation has none
    patience: float = LONGEST_REPLY

    @classmethod
    def of(cls, agent: Agent) -> ParentConversation:
        spec = agent.spec
        return cls(spec.name, spec.depth, lambda: agent.request, spec.kind == FORK, spec)

    @property
    def id(self) -> str:
        return self.spec.id if self.spec else ""

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools that it may hand on, without those for its own memory."""
        names = (str(tool.get("name")) for tool in self.request.frame.tools)
        kept = self.spec.for_memory if self.spec else ()
        return tuple(name for name in names if name not in kept)

    @property
    def request(self) -> Request:
        return self.now()

    async def written(self, use_id: str) -> Request:
        """The request whose last message is the whole reply that this call stands in.

        Tools start while the reply is still being streamed. One that was cut off is only written when
        its tools are done, so it is not waited for without end.
        """
        with anyio.move_on_after(self.patience):
            # A transcript has no event to wait for.
            while use_id not in find_open_uses((request := self.now()).view):  # noqa: ASYNC110
                await anyio.sleep(_LOOK)
            return request
        raise ToolFailed("the reply that asked for this fork was cut off: ask for it again")


DIRECTIVE: Final = "agent"  # The kind of the directive that a fork begins with
_DESCRIBED: Final = 80
_OTHER: Final = r"[^A-Za-z0-9]+"
_PLACE: Final = r"\{\{(\w+)\}\}"


class AgentOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a call of the Agent tool."""

    description: str
    prompt: str
    kind: str = GENERAL
    name: str = ""
    background: bool = False
    worktree: bool = False
    model: str | None = None
    teammate: bool = False

    @property
    def forks(self) -> bool:
        return self.kind == FORK

    def by(self, definition: AgentDefinition) -> AgentOrder:
        """With what its definition says besides."""
        return replace(
            self,
            kind=definition.name,
            background=self.background or definition.background,
            worktree=self.worktree or definition.isolation == "worktree",
        )


def read_order(args: Json) -> AgentOrder:
    """The order. Raises `ToolFailed` with the reason if it cannot be carried out."""
    kind = args.get("subagent_type", "").strip() or GENERAL
    order = AgentOrder(
        description=" ".join(args["description"].split())[:_DESCRIBED],
        prompt=args["prompt"].strip(),
        kind=FORK if kind.casefold() == FORK else kind,
        name=args.get("name", "").strip(),
        background=bool(args.get("run_in_background") or args.get("teammate")),
        worktree=args.get("isolation") == "worktree",
        model=args.get("model", "").strip() or None,
        teammate=bool(args.get("teammate")),
    )
    if not order.prompt:
        raise ToolFailed("the prompt is empty: say what the agent is to do")
    if order.name:
        _check_name(order.name)
    elif order.teammate:
        raise ToolFailed("a teammate needs a name: others write to it by that")
    if order.forks and (order.teammate or order.model):
        what = "be a teammate" if order.teammate else "have another model"
        raise ToolFailed(f"a fork goes on from this very conversation and cannot {what}")
    return order


def _check_name(name: str) -> None:
    if name == LEAD:
        raise ToolFailed(f"the name {name} means somebody else: choose another")
    try:
        check_agent_name(name)
    except Refused as error:
        raise ToolFailed(str(error)) from None


def check_depth(order: AgentOrder, parent: ParentConversation, deepest: int) -> None:
    """Agents do not start agents for ever."""
    if order.forks and parent.is_fork:
        raise ToolFailed("a fork cannot fork: do this yourself, or start another type of agent")
    if parent.depth >= deepest:
        raise ToolFailed(
            f"agents go {deepest} deep at most (agents.depth), and this one is at {parent.depth}: "
            "do it yourself"
        )


def make_free_name(kind: str, taken: Collection[str]) -> str:
    """A free name made from its type."""
    stem = re.sub(_OTHER, "-", kind).strip("-").lower()[:40]
    if not stem or is_posing_name(f"{stem}-1"):
        stem = "agent"
    numbered = (f"{stem}-{n}" for n in count(1))
    return next(name for name in numbered if not any(is_same_name(name, one) for one in taken))


def make_system_prompt(definition: AgentDefinition, name: str, *, teammate: bool) -> tuple[str, ...]:
    """The system prompt. Agents of one kind share it, and so its cache."""
    said = definition.prompt.strip()
    if definition.path is not None:  # what is built in says it itself
        said += "\n\n" + _text("agent")
    if not teammate:
        return (strip_half_characters(said),)
    return (strip_half_characters(said), _filled("teammate", name=name, lead=LEAD))


def make_first_message(order: AgentOrder, id: str, folder: Path | None) -> Message:
    """The first message to the agent. In forks it is all that differs."""
    where = _filled("worktree", folder=str(folder)) if folder else ""
    if not order.forks:
        return user("\n\n".join(text for text in (where, order.prompt) if text))
    body = _filled("fork", folder=f" {where}" if where else "", task=order.prompt)
    return user(write_directive(DIRECTIVE, id, body))


def _filled(text: str, **values: str) -> str:
    return strip_half_characters(re.sub(_PLACE, lambda found: values[found[1]], _text(text)))


@cache
def _text(name: str) -> str:
    return Path(__file__).with_name(f"{name}.md").read_text(encoding="utf-8").strip()
