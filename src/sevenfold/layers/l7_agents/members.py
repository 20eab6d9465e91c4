"""One agent as the roster knows it: who it is, how far it has come, and how it is reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

import anyio
import msgspec

from sevenfold.layers.l7_agents.delivery import Delivery, Queue
from sevenfold.layers.l7_agents.notices import AgentNotice, Notices
from sevenfold.layers.l7_agents.worktrees import Worktree
from sevenfold.protocols import Agent, AgentSpec
from sevenfold.tokens import Usage

Status: TypeAlias = Literal["running", "idle", "done", "failed", "stopped"]
ALIVE: Final = ("running", "idle")


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """An agent at one moment, to be shown."""

    id: str
    name: str
    kind: str
    description: str
    status: Status
    background: bool
    depth: int
    doing: str
    """A few words on what it is at, while it runs in the background."""
    said: str
    """Its last words."""
    why: str
    """Why it failed."""
    steps: int
    usage: Usage
    path: Path | None
    worktree: str


@dataclass(slots=True, eq=False)
class Member:
    """An agent: running, waiting for mail, or over and to be resumed."""

    spec: AgentSpec
    description: str = ""
    parent: str = ""
    """The id of the agent that started it; empty: the main conversation did."""
    background: bool = False
    teammate: bool = False
    status: Status = "running"
    doing: str = ""
    said: str = ""
    why: str = ""
    agent: Agent | None = None
    path: Path | None = None
    worktree: Worktree | None = None
    left: str = ""
    """What became of its work tree."""
    leaving: bool = False
    """It has agreed to end."""
    steps: int = 0
    """Of earlier runs, like `usage`."""
    usage: Usage = field(default_factory=Usage)
    mail: Delivery | None = None
    letters: Queue = field(init=False)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    resting: anyio.Event = field(default_factory=anyio.Event)
    """It has nothing more to do, for now."""
    gone: anyio.Event = field(default_factory=anyio.Event)
    """It is over, and everything it had open is closed."""
    woken: anyio.Event = field(default_factory=anyio.Event)
    notices: Notices = field(init=False)
    """What its own agents have to tell it."""
    first: int = -1
    """Where in its transcript its own words begin: before them a fork has its parent's."""

    def __post_init__(self) -> None:
        self.letters = Queue(self.spec.name)
        self.notices = Notices(self.wake)

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
        """What waits for it and is not in its transcript yet."""
        if self.agent is None or self.mail is None:
            return frozenset()
        letters = self.mail.waiting(self.agent.request.view)
        return frozenset((*(letter.id for letter in letters), *self.notices.ids))

    def begin(self, agent: Agent) -> None:
        """It has a conversation now; whoever waited for its end waits anew."""
        view = agent.request.view
        self.agent, self.path = agent, agent.path
        self.first = view[-1].id if len(view) else -1
        self.status, self.why, self.said, self.left = "running", "", "", ""
        if self.gone.is_set():  # else somebody may have stopped it before it began
            self.scope = anyio.CancelScope()
            self.resting, self.gone, self.woken = anyio.Event(), anyio.Event(), anyio.Event()

    def give_up(self) -> None:
        """It never began; nobody waits for it."""
        self.status = "failed"
        self.resting.set()
        self.gone.set()

    def closed(self) -> None:
        """Keep what counts of a conversation that is over."""
        if self.agent is not None:
            self.steps, self.usage = self.steps + self.agent.steps, self.usage + self.agent.usage
            self.agent = None

    def last_words(self) -> str:
        """What it has said so far, as far as the view still has it."""
        if self.agent is None:
            return self.said
        for placed in reversed(list(self.agent.request.view)):
            if placed.id <= self.first:
                break
            if placed.message.role == "assistant" and placed.message.text.strip():
                return placed.message.text.strip()
        return ""

    @property
    def listed(self) -> Listed:
        now = self.agent
        return Listed(
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
