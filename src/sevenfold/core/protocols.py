"""The seams: protocols and the values that cross them. No logic."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from sevenfold.core.messages import Block, Json, Message, ToolResult, ToolUse
from sevenfold.core.request import Request
from sevenfold.core.tokens import Pressure, Usage
from sevenfold.core.transcript import Edit, Mark, Pin, Reply, View


class Clock(Protocol):
    """Tells the time, and waits."""

    def now(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class Capabilities(msgspec.Struct, frozen=True):
    """The abilities of a model that a layer may rely on."""

    window: int = 200_000
    max_output: int = 32_000
    binds_thinking: bool = False  # Thinking is signed and refused when what stands before it has changed
    drops_thinking: bool = False  # The provider drops thinking it cannot read, instead of refusing it
    edits_cache: bool = False
    context_management: bool = False
    server_compaction: bool = False
    caches_prompts: bool = True
    images: bool = True
    one_at_a_time: bool = False  # It runs on this machine, where a request waits for the one before

    @property
    def loses_thinking(self) -> bool:
        """True if thinking has to go when what stands before it changes."""
        return self.binds_thinking and not self.drops_thinking


class Model(Protocol):
    """Something that answers. `stream` yields text deltas, each block when complete, then the reply."""

    @property
    def name(self) -> str: ...
    @property
    def capabilities(self) -> Capabilities: ...
    def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]: ...


class Tool(Protocol):
    """One thing the model may do."""

    @property
    def name(self) -> str: ...
    @property
    def schema(self) -> Json:
        """`name`, `description` and `input_schema`, as the wire has them."""
        ...

    def safe(self, args: Json) -> bool:
        """True if it may run beside others: it changes nothing."""
        ...

    async def run(self, args: Json, use_id: str) -> str | tuple[Block, ...]:
        """Do it. Raise `ToolFailed` with what the model should read when it did not work."""
        ...


class ToolFailed(Exception):
    """A tool did not work; the message is what the model reads."""


class Tools(Protocol):
    """All the tools of a session, with whatever decides whether they may run."""

    def safe(self, use: ToolUse) -> bool: ...
    async def call(self, use: ToolUse) -> ToolResult: ...


Change: TypeAlias = Message | Edit | Pin | Mark
Work: TypeAlias = Callable[[], Awaitable[Sequence[Change]]]


class Background(Protocol):
    """Background work. What it hands back is collected at the next step."""

    def start(self, name: str, work: Work) -> None: ...
    def collect(self) -> list[tuple[str, Sequence[Change]]]: ...


class Accounts(Protocol):
    """Watches what every request does to the provider's cache, before and after."""

    def before(self, request: Request) -> None: ...
    def after(self, request: Request, reply: Reply) -> float | None:
        """Returns what the request cost, where a price is known."""
        ...


class ForkReply(msgspec.Struct, frozen=True):
    """The last reply of a fork, and the usage of all its replies."""

    reply: Reply
    usage: Usage
    steps: int = 1
    denied: int = 0  # Calls of tools that were not allowed
    cut: bool = False  # True if one of its replies ended at its length limit


class Forker(Protocol):
    """Asks the model something beside the conversation, on the same prefix."""

    async def __call__(
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
        """`tools` decides what the fork's calls do; without it every call is denied.

        `counted` gets the usage of each reply as soon as it is there.
        """
        ...


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An order for a conversation beside the main one."""

    id: str
    name: str  # The name that others use
    kind: str  # The definition it follows, or `fork`
    depth: int = 1  # 1 for an agent of the main conversation, 2 for an agent of such an agent
    parent: str = ""  # The id of the agent that started it; empty: the main conversation did
    system: tuple[str, ...] = ()  # The system prompt of its requests, instead of the session's own
    opening: tuple[Message, ...] = ()
    """Messages in its transcript before its first question: the index of its memory."""
    tools: tuple[str, ...] | None = None  # The names of the tools it has; None: all there are
    model: str | None = None  # None: the model of the conversation it comes from
    max_steps: int = 0  # 0: as many as the session has
    folder: Path | None = None  # A work tree of its own
    memory: Path | None = None  # The folder of its own memory
    for_memory: tuple[str, ...] = ()  # Tools that it has for that folder alone
    only_looks: bool = False  # True if it may change nothing, whatever the rules say
    asks: bool = True  # True if a person may be asked for permission; not where none watches
    on: Request | None = None  # The request that a fork goes on from
    resumes: bool = False  # True if it goes on from its file


class Agent(Protocol):
    """A conversation beside the main one. It is asked one thing after another."""

    @property
    def spec(self) -> AgentSpec: ...
    @property
    def path(self) -> Path:
        """Its transcript."""
        ...

    @property
    def request(self) -> Request:
        """The request that it would send now; a fork of it goes on from here."""
        ...

    @property
    def usage(self) -> Usage:
        """Of all its requests so far."""
        ...

    @property
    def steps(self) -> int: ...

    def unattended(self) -> None:
        """It goes on in the background, so no person is asked."""
        ...

    async def run(self, said: Message | None = None) -> Reply:
        """One turn; without words it goes on with what was attached meanwhile."""
        ...

    async def close(self) -> None: ...


class Spawner(Protocol):
    """Begins conversations beside the main one, or takes them up again."""

    def __call__(
        self,
        spec: AgentSpec,
        own: Callable[[Agent], Sequence[Tool]] = lambda agent: (),
        attach: Sequence[Attach] = (),
    ) -> Agent:
        """`own` makes the tools that are its alone; `attach` brings what arrives for it."""
        ...


# The moments. What a layer hands back, the turn appends.


class Attach(Protocol):
    """Before every request. Not async: what takes time was started earlier and is picked up."""

    def attach(self, view: View) -> Sequence[Message | Mark]: ...


class Intake(Protocol):
    """A batch of results arrives: decide once how each is shown. Not async: it cannot be cut."""

    def intake(self, batch: tuple[ToolResult, ...], view: View) -> tuple[ToolResult, ...]: ...


class Fit(Protocol):
    """Before every request: relieve the pressure, or hand back nothing."""

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]: ...


class BackgroundStep(Protocol):
    """In the background: `replied` after each reply, `rest` after the last one of a turn."""

    async def __call__(self, request: Request) -> Sequence[Change]: ...


class IdleStep(Protocol):
    """By the session's timer while the user is silent, with the seconds since the last reply."""

    async def __call__(self, request: Request, idle: float) -> Sequence[Change]: ...


@dataclass(frozen=True, slots=True)
class Layers:
    attach: tuple[Attach, ...] = ()
    intake: tuple[Intake, ...] = ()
    fit: tuple[Fit, ...] = ()
    replied: tuple[BackgroundStep, ...] = ()
    rest: tuple[BackgroundStep, ...] = ()
    idle: tuple[IdleStep, ...] = ()
