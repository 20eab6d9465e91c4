"""One turn: from what the user said to the agent at rest. Read this file first.

Steps follow each other until the model calls no more tools: attach -> fit -> ask -> answer; then `rest`.
The turn is the only writer of the transcript. Layers are shown values and hand back values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

from msgspec.structs import replace

from sevenfold.acting import CONTINUATIONS, CONTINUE, Retry, Streamed
from sevenfold.cache.breakpoints import place
from sevenfold.errors import ModelFailure, PromptTooLong, SevenfoldError, StepLimitReached
from sevenfold.events import Acted, Added, Declined, Emit, Failed, Replied, Retrying
from sevenfold.invariants import applies, breaks_open_loop, unbound
from sevenfold.messages import Message, ToolResult, assistant, user
from sevenfold.protocols import Accounts, After, Background, Clock, Handback, Layers, Model, Tools
from sevenfold.request import TTL_SECONDS, Frame, Request
from sevenfold.tokens import Pressure, Thresholds
from sevenfold.transcript import Mark, Pin, Reply, Transcript, Undo, Unthink


@dataclass(slots=True)
class Turn:
    """Takes turns over one transcript, which nobody else writes to while a turn runs."""

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
    retry: Retry = field(default_factory=Retry)
    max_steps: int = 100
    max_tokens: int = 0
    """The most a reply may hold at first; a reply cut there is asked for again with all there is."""
    source: str = "main"

    async def run(self, said: Message | None = None) -> Reply:
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
        return Request(self.frame, view, None, place(view), self.max_tokens, self.source)

    async def _step(self) -> Reply:
        self.attach()
        await self.fit()
        try:
            return await self._whole_reply()
        except PromptTooLong:
            if not await self.fit(refused=True):
                raise
            return await self._whole_reply()

    def collect(self) -> None:
        """Write what the background has handed back."""
        for name, handed in self.background.collect():
            self._append(name, handed)

    def attach(self) -> None:
        """Take in what the background has handed back and what has arrived meanwhile."""
        self.collect()
        for layer in self.layers.attach:
            with self._degrading(layer):
                self._append(_name(layer), layer.attach(self.transcript.view))

    async def fit(self, refused: bool = False) -> bool:
        """Offer the request to each layer, cheapest first. True: something gave."""
        warm, start = self.transcript.view, self.transcript.view.tokens
        for layer in self.layers.fit:
            pressure = self.pressure(refused and self.transcript.view.tokens >= start)
            with self._degrading(layer):
                request = replace(self.request, warm=warm)
                self._append(_name(layer), await layer.fit(request, pressure))
        return self.transcript.view.tokens < start

    async def _whole_reply(self) -> Reply:
        """A reply cut at its length limit is asked for again with more room, then continued."""
        reply = await self._ask(self.request)
        if reply.stop == "max_tokens" and not reply.message.tool_uses and self.max_tokens:
            if reply.message.content:
                self.transcript.add(Undo(frozenset({self.transcript.entries[-1].id})), by="turn")
            reply = await self._ask(replace(self.request, max_tokens=0))
        for _ in range(CONTINUATIONS):
            if reply.stop != "max_tokens" or reply.message.tool_uses:
                break
            self.transcript.add(user(CONTINUE), by="turn")
            reply = await self._ask(replace(self.request, max_tokens=0))
        return reply

    async def _ask(self, request: Request) -> Reply:
        self.accounts.before(request)
        attempt = 0
        while True:
            try:
                return await self._stream(request)
            except ModelFailure as error:
                attempt += 1
                if (wait := self.retry.wait(error, attempt)) is None:
                    raise
                self.emit(Retrying(str(error), attempt, wait))
                await self.clock.sleep(wait)

    async def _stream(self, request: Request) -> Reply:
        written: list[Reply] = []
        began = perf_counter()

        def write(reply: Reply) -> None:
            self.transcript.add(reply, by="model")
            written.append(reply)
            cost, took = self.accounts.after(request, reply), perf_counter() - began
            said = (reply.message, reply.usage, reply.stop)
            self.emit(Replied(*said, took, cost, reply.model, request.source))

        streamed = Streamed(self.model, self.tools, self.emit, write)
        try:
            await streamed.run(request)
        finally:  # cancelled or not, and nothing in here waits: the view is whole afterwards
            if streamed.reply and not written:
                write(streamed.reply)
            self._answer(streamed.results)
        self._after(self.layers.replied)
        return written[0] if written else Reply(assistant(), stop=streamed.stop)

    def _answer(self, results: tuple[ToolResult, ...]) -> None:
        for layer in self.layers.intake:
            with self._degrading(layer):
                results = layer.intake(results, self.transcript.view)
        if results:
            self.transcript.add(Message("user", results), by="tools")
            self.emit(Acted(results))

    def _append(self, by: str, handed: Sequence[Handback]) -> None:
        """Write what was handed back in one write, or none of it if it refers to what is gone."""
        if not handed:
            return
        edits = [what for what in handed if not isinstance(what, Message | Pin | Mark)]
        view, after = self.transcript.view, self.transcript.preview(*edits)
        first = unbound(view, after) if edits and self._binds_thinking else None
        if not all(applies(edit, view) for edit in edits) or (
            first is not None and breaks_open_loop(after, first)
        ):
            self.emit(Declined(by, tuple(handed)))
            return
        if first is not None:
            handed = (*handed, Unthink(first))
        self.transcript.add(*handed, by=by)
        self.emit(Added(by, tuple(handed)))

    @contextmanager
    def _degrading(self, layer: object) -> Iterator[None]:
        """A layer that fails hands back nothing and says so; the turn goes on."""
        try:
            yield
        except SevenfoldError:
            raise
        except Exception as error:
            self.emit(Failed(_name(layer), repr(error)))

    @property
    def _binds_thinking(self) -> bool:
        able = self.model.capabilities
        return able.binds_thinking and not able.drops_thinking

    def _after(self, layers: Sequence[After]) -> None:
        for layer in layers:
            self.background.start(_name(layer), partial(layer, self.request))

    def pressure(self, refused: bool = False) -> Pressure:
        view, window = self.transcript.view, self.thresholds.window
        idle = max(0.0, self.clock.now() - view.replied_at) if view.replied_at is not None else 0.0
        tokens = view.tokens + (self.frame.tokens if view.reported is None else 0)
        warm = idle < TTL_SECONDS[self.frame.ttl]
        return Pressure(
            max(tokens, window) if refused else tokens, self.thresholds, idle, refused, warm
        )


def _name(layer: object) -> str:
    return getattr(layer, "__name__", type(layer).__name__)
