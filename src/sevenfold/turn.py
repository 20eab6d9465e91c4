"""One turn: from the user's message to the agent at rest. Read this file first.

A step: attach -> fit -> ask -> answer, until no tool is called; then `rest`. Only the turn writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

from msgspec.structs import replace

from sevenfold.cache.prefix import choose_breakpoints
from sevenfold.core.errors import PromptTooLong, StepLimitReached
from sevenfold.core.events import Acted, Added, Declined, Emit, Replied, get_label
from sevenfold.core.messages import Message, ToolResult, assistant, user
from sevenfold.core.protocols import (
    Accounts,
    Background,
    BackgroundStep,
    Change,
    Clock,
    Layers,
    Model,
    Tools,
)
from sevenfold.core.request import Frame, Request, complete_changes, find_open_uses, measure_pressure
from sevenfold.core.tokens import Pressure, Thresholds
from sevenfold.core.transcript import Id, Reply, Transcript, View
from sevenfold.streaming import (
    CONTINUATIONS,
    CONTINUE,
    FailureReport,
    RetryPolicy,
    StreamedReply,
    answer_interrupted_calls,
)


@dataclass(slots=True)
class Turn:
    """Takes turns over one transcript. While a turn runs, only the turn writes to it."""

    model: Model
    frame: Frame
    tools: Tools
    layers: Layers
    transcript: Transcript
    background: Background
    accounts: Accounts
    clock: Clock
    emit: Emit
    thresholds: Thresholds
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_steps: int = 100
    max_tokens: int = 0
    """Longest reply asked for at first. One that is cut there is asked for again with all the room."""
    extends: bool = True
    """False: a reply that was cut is neither asked for again nor continued."""
    source: str = "main"
    writes: bool | None = True
    """True: the provider is asked to keep what is new in its cache. None: no cache marks at all."""
    sent: Id | None = None  # The end of a request with this prefix that the provider has in its cache

    async def run(self, said: Message | None = None) -> Reply:
        if unanswered := answer_interrupted_calls(self.transcript.view):  # the disk refused the results
            self.transcript.add(unanswered, by="turn")
        if said:
            self.transcript.add(said)
        for _ in range(self.max_steps):
            reply = await self._step()
            if not reply.message.tool_uses:
                self._after(self.layers.rest)
                return reply
        raise StepLimitReached(self.max_steps)

    @property
    def request(self) -> Request:
        view = self.transcript.view
        marks = () if self.writes is None else choose_breakpoints(view, writes=self.writes, sent=self.sent)
        return Request(self.frame, view, None, marks, self.max_tokens, self.source)

    async def _step(self) -> Reply:
        self.attach()
        await self.fit()
        try:
            return await self._whole_reply()
        except PromptTooLong as refused:
            if not await self.fit(refused):
                raise
            return await self._whole_reply()

    def collect(self) -> None:
        """Write what background work has handed back."""
        for name, handed in self.background.collect():
            self.append(name, handed)

    def attach(self) -> None:
        """Write what background work has handed back, and what the attach layers add."""
        self.collect()
        for layer in self.layers.attach:
            with FailureReport(self.emit, layer):
                self.append(get_label(layer), layer.attach(self.transcript.view))

    async def fit(self, refused: PromptTooLong | None = None) -> bool:
        """Offer the request to each layer, cheapest first. True: it became shorter."""
        warm, start = self.transcript.view, self.transcript.view.tokens
        wanted = refused.over or start // 5 if refused else 0
        seen: View | None = None
        for layer in self.layers.fit:
            if (view := self.transcript.view) is not seen:  # measured again after each that acted
                request, seen = replace(self.request, warm=warm), view
                short = refused is not None and start - view.tokens < wanted
                pressure = self.pressure(refused if short else None)
            with FailureReport(self.emit, layer):
                if handed := await layer.fit(request, pressure):
                    self.append(get_label(layer), handed)
        return self.transcript.view is not warm and self.transcript.view.tokens < start

    async def _whole_reply(self) -> Reply:
        """A reply cut at its length limit is asked for again with more room, then continued."""
        request = self.request
        reply = await self._ask(request)
        if reply.cut_short and request.max_tokens and self.extends:
            reply = await self._ask(replace(request, max_tokens=0), instead_of=reply)
        parts = [reply]
        while self.extends and parts[-1].cut_short and len(parts) <= CONTINUATIONS:
            self.transcript.add(user(CONTINUE), by="turn")
            parts.append(await self._ask(replace(self.request, max_tokens=0)))
        content = (block for part in parts for block in part.message.content)
        return replace(parts[-1], message=assistant(*content))

    async def _ask(self, request: Request, instead_of: Reply | None = None) -> Reply:
        async def send() -> Reply:
            self.accounts.before(request)
            return await self._stream(request, instead_of)

        return await self.retry.run(send, self.clock, self.emit)

    async def _stream(self, request: Request, instead_of: Reply | None) -> Reply:
        written: list[Reply] = []
        began = perf_counter()

        def write(reply: Reply) -> None:
            written.append(reply)
            if (message := reply.message).says_something:
                self.transcript.add(*self.transcript.make_undo(instead_of), reply, by="model")
            cost, took = self.accounts.after(request, reply), perf_counter() - began
            self.emit(Replied(message, reply.usage, reply.stop, took, cost, reply.model, request.source))

        streamed = StreamedReply(self.model, self.tools, self.emit, write)
        try:
            await streamed.run(request)
        finally:  # cancelled or not, and nothing in here waits: the view is whole afterwards
            try:
                if streamed.reply and not written:
                    write(streamed.reply)
            finally:
                self._answer(streamed.results)
        self._after(self.layers.replied)
        return written[0] if written else Reply(assistant(), stop="cut")

    def _answer(self, results: tuple[ToolResult, ...]) -> None:
        try:
            for layer in self.layers.intake:
                with FailureReport(self.emit, layer):
                    results = layer.intake(results, self.transcript.view)
        finally:  # every later request would be refused for a use without an answer
            if results and find_open_uses(self.transcript.view):
                self.transcript.add(Message("user", results), by="tools")
                self.emit(Acted(results))

    def append(self, by: str, handed: Sequence[Change]) -> None:
        """Write what was handed back in one write, or none of it if it refers to what is gone."""
        if not handed:
            return
        whole = complete_changes(handed, self.transcript, self.model.capabilities.loses_thinking)
        if whole is None:
            self.emit(Declined(by, tuple(handed)))
        else:
            self.transcript.add(*whole, by=by)
            self.emit(Added(by, whole))

    def _after(self, layers: Sequence[BackgroundStep]) -> None:
        for layer in layers:
            self.background.start(get_label(layer), partial(layer, self.request))

    def pressure(self, refused: PromptTooLong | None = None) -> Pressure:
        bare = Request(self.frame, self.transcript.view)  # its marks take time and weigh nothing
        return measure_pressure(bare, self.thresholds, self.clock.now(), refused)
