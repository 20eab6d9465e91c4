"""The seams: protocols and the values that cross them. No logic."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import msgspec

from sevenfold.messages import Block, Json, Message, ToolResult, ToolUse
from sevenfold.request import Request
from sevenfold.tokens import Pressure, Usage
from sevenfold.transcript import Edit, Mark, Pin, Reply, View


class Clock(Protocol):
    """What time it is, and waiting."""

    def now(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class Capabilities(msgspec.Struct, frozen=True):
    """What a model can do; what a layer may rely on."""

    window: int = 200_000
    max_output: int = 32_000
    binds_thinking: bool = False
    """Thinking is signed and refused when what stands before it has changed."""
    drops_thinking: bool = False
    """The provider drops thinking it cannot read, instead of refusing it."""
    edits_cache: bool = False
    context_management: bool = False
    server_compaction: bool = False
    caches_prompts: bool = True
    images: bool = True

    @property
    def loses_thinking(self) -> bool:
        """Whether thinking has to go when what stands before it changes."""
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
        """Whether it may run beside others: it changes nothing."""
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


Handback: TypeAlias = Message | Edit | Pin | Mark
Work: TypeAlias = Callable[[], Awaitable[Sequence[Handback]]]


class Background(Protocol):
    """Work that keeps nobody waiting. What it hands back is collected at the next step."""

    def start(self, name: str, work: Work) -> None: ...
    def collect(self) -> list[tuple[str, Sequence[Handback]]]: ...


class Accounts(Protocol):
    """Watches what every request does to the provider's cache, before and after."""

    def before(self, request: Request) -> None: ...
    def after(self, request: Request, reply: Reply) -> float | None:
        """Returns what the request cost, where a price is known."""
        ...


class ForkReply(msgspec.Struct, frozen=True):
    """What a fork said last, and what it used."""

    reply: Reply
    usage: Usage
    steps: int = 1
    denied: int = 0
    """Calls of tools that were not allowed."""


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
    ) -> ForkReply:
        """`tools` decides what the fork's calls do; without it every call is denied."""
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

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Handback]: ...


class After(Protocol):
    """In the background: `replied` after each reply, `rest` after the last one of a turn."""

    async def __call__(self, request: Request) -> Sequence[Handback]: ...


class Idle(Protocol):
    """By the session's timer while nobody speaks, with the seconds since the last reply."""

    async def __call__(self, request: Request, idle: float) -> Sequence[Handback]: ...


@dataclass(frozen=True, slots=True)
class Layers:
    attach: tuple[Attach, ...] = ()
    intake: tuple[Intake, ...] = ()
    fit: tuple[Fit, ...] = ()
    replied: tuple[After, ...] = ()
    rest: tuple[After, ...] = ()
    idle: tuple[Idle, ...] = ()
