"""A fork: the model is asked something beside the conversation, on the very prefix it has in its cache.

A fork sends the same system bytes, tools, model, parameters and messages as its parent, and one message
more: the directive. What its tools may do is decided when they are called, because another list of tools
would be another prefix. It writes nothing to the parent's transcript and hands back what was said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from msgspec.structs import replace

from sevenfold.cache.ledger import FORK, MAIN, OF
from sevenfold.core.errors import Refused, StepLimitReached
from sevenfold.core.events import CacheBroke, Emit, Event, Failed, Forked, Replied, Retrying, Sending
from sevenfold.core.messages import Message, ToolResult, ToolUse, assistant, parse_directive
from sevenfold.core.protocols import Accounts, Change, Clock, Forker, ForkReply, Layers, Tools, Work
from sevenfold.core.request import Request, find_open_uses, measure_pressure
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply, Transcript, View
from sevenfold.layers.parts import Conversation
from sevenfold.turn import Turn

SOURCE: Final = FORK
"""The first part of the source of a fork's requests; the ledger keeps a column for each kind."""
PLACEHOLDER: Final = "[still running: its result goes to the conversation this was taken from]"
"""The answer that forks see for a call of their parent that is still open. One for all: one prefix."""
PASSED_ON: Final = (Sending, CacheBroke, Failed, Retrying)
"""Events of a fork that the session passes on. The fork's words and tool calls are its own."""


def filter_event(event: Event, kinds: tuple[type[Event], ...] = PASSED_ON) -> Event | None:
    """The event as the session passes it on: of a reply only its usage; None: it is not passed on."""
    if isinstance(event, Replied):
        return replace(event, message=assistant())
    if isinstance(event, Retrying) and Retrying in kinds:
        return replace(event, beside=True)
    return event if isinstance(event, kinds) else None


def name_fork_source(kind: str, parent: str) -> str:
    """The source of a fork in the ledger; a fork of an agent is compared with that agent's requests."""
    return SOURCE + kind + ("" if parent == MAIN else f"{OF}{parent}")


def answer_open_calls(view: View) -> tuple[Message, ...]:
    """An answer to every open call, the same in every fork; none where none is open."""
    results = tuple(ToolResult(id, PLACEHOLDER) for id in find_open_uses(view))
    return (Message("user", results),) if results else ()


class RefusedTools:
    """Every call is answered with the reason why it is not run."""

    def __init__(self, why: str = "tools are not run here: answer in words") -> None:
        self._why = why

    def safe(self, use: ToolUse) -> bool:
        return True

    async def call(self, use: ToolUse) -> ToolResult:
        return ToolResult(use.id, self._why, is_error=True)


class PermittedTools:
    """The parent's tools, as far as `allow` lets them run: it gives None, or the reason why not."""

    def __init__(self, tools: Tools, allow: Callable[[ToolUse], str | None]) -> None:
        self._tools, self._allow = tools, allow
        self.denied = 0

    def safe(self, use: ToolUse) -> bool:
        return self._tools.safe(use)

    async def call(self, use: ToolUse) -> ToolResult:
        if (why := self._allow(use)) is None:
            return await self._tools.call(use)
        self.denied += 1
        return ToolResult(use.id, f"not allowed here: {why}", is_error=True)


class NoBackground:
    """A fork starts nothing beside itself."""

    def start(self, name: str, work: Work) -> None:
        return None

    def collect(self) -> list[tuple[str, Sequence[Change]]]:
        return []


@dataclass
class ForkRunner:
    """Implements `protocols.Forker` for one conversation. A fork cannot fork."""

    conversation: Conversation  # Says which model is asked, and how large its window is
    accounts: Accounts
    clock: Clock
    emit: Emit
    source: str = SOURCE
    """The first part of the source of its requests; a lean request is no fork, and keeps no cache."""
    layers: Layers = field(default_factory=Layers)
    """The layers of a fork. Its own tool results go through layer 1; a fork uses no other moment."""

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
        if request.source.startswith(SOURCE):
            raise Refused(f"a fork ({request.source}) cannot fork again, and {kind} was asked for")
        if parse_directive(directive.text) is None:
            raise ValueError("a directive begins with its tag: see models.directives")
        used = CountedAccounts(self.accounts, counted)
        turn = self._child(request, used, kind, steps, tools or RefusedTools(), max_tokens)
        began = perf_counter()
        try:
            reply = await turn.run(directive)
        except StepLimitReached:  # it was given so many steps: what it has done stands
            reply = used.replies[-1]
        denied = getattr(tools, "denied", 0)
        self.emit(
            Forked(kind, len(used.replies), used.usage, used.usage.hit_rate, denied, perf_counter() - began)
        )
        cut = any(one.stop == "max_tokens" for one in used.replies)
        return ForkReply(reply, used.usage, len(used.replies), denied, cut)

    def _child(
        self, request: Request, accounts: Accounts, kind: str, steps: int, tools: Tools, max_tokens: int
    ) -> Turn:
        transcript = Transcript.on(request.view, self.clock.now)
        if answers := answer_open_calls(request.view):
            transcript.add(*answers, by="fork")
        return Turn(
            model=self.conversation.model,
            frame=request.frame,
            tools=tools,
            layers=Layers(intake=self.layers.intake),
            transcript=transcript,
            background=NoBackground(),
            accounts=accounts,
            clock=self.clock,
            emit=self._aside,
            thresholds=self.conversation.thresholds,
            max_steps=steps,
            max_tokens=max_tokens,
            extends=False,  # the caller set the length, and a runaway is paid for each time
            source=name_fork_source(kind, request.source) if self._forks else f"{self.source}{kind}",
            writes=self._writes(request, steps),
            sent=request.sent,
        )

    def _writes(self, request: Request, steps: int) -> bool | None:
        """A prefix that is not read again is not worth its price, least of all a cold one."""
        if not self._forks:
            return None
        if steps > 1:
            return True
        pressure = measure_pressure(request, self.conversation.thresholds, self.clock.now())
        return False if pressure.warm else None

    @property
    def _forks(self) -> bool:
        return self.source == SOURCE

    def _aside(self, event: Event) -> None:
        if (told := filter_event(event)) is not None:
            self.emit(told)


class CountedAccounts:
    """The session's accounts, and what this one conversation used."""

    def __init__(self, accounts: Accounts, counted: Callable[[Usage], None] | None = None) -> None:
        """`counted` gets the usage of each reply."""
        self._accounts, self._counted = accounts, counted
        self.replies: list[Reply] = []
        self.usage = Usage()

    def before(self, request: Request) -> None:
        self._accounts.before(request)

    def after(self, request: Request, reply: Reply) -> float | None:
        self.replies.append(reply)
        self.usage += reply.usage
        cost = self._accounts.after(request, reply)
        if self._counted is not None:
            self._counted(reply.usage)
        return cost


_check: type[Forker] = ForkRunner
