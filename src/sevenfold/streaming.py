"""One streamed reply: tools start as their blocks complete; every use is answered, in order."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import anyio

from sevenfold.core.errors import ModelFailure, SevenfoldError, Unreachable
from sevenfold.core.events import Delta, Emit, Failed, Retrying, ToolStarted, get_label
from sevenfold.core.messages import Block, Message, Text, ToolResult, ToolUse
from sevenfold.core.protocols import Clock, Model, Tools
from sevenfold.core.request import Request, find_open_uses
from sevenfold.core.transcript import Reply, View

CONTINUE: Final = "Your last reply was cut off at its length limit. Go on exactly where it stopped."
CONTINUATIONS: Final = 3
INTERRUPTED: Final = "[interrupted: this call was stopped before it finished]"


class FailureReport:
    """Around the work of a layer: one that fails hands back nothing and says so, and the turn goes on."""

    __slots__ = ("_emit", "_layer")

    def __init__(self, emit: Emit, layer: object) -> None:
        self._emit, self._layer = emit, layer

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, SevenfoldError):
            return False
        self._emit(Failed(get_label(self._layer), repr(error)))
        return True


class StreamedReply:
    """A reply while it is streamed. Whenever it stops, `reply` and `results` fit together."""

    def __init__(self, model: Model, tools: Tools, emit: Emit, written: Callable[[Reply], object]) -> None:
        self._model, self._tools, self._emit, self._written = model, tools, emit, written
        self._blocks: list[Block] = []
        self._partial = ""
        self._whole: Reply | None = None
        self._done: dict[str, ToolResult] = {}
        self._calls: list[tuple[bool, anyio.Event]] = []
        self._broken: Exception | None = None

    @property
    def reply(self) -> Reply | None:
        """The reply; when it was cut, the blocks that were complete and the text so far."""
        if self._whole:
            return self._whole if self._whole.message.says_something else None
        tail = (Text(self._partial.rstrip()),) if self._partial.strip() else ()
        cut = Message("assistant", (*self._blocks, *tail))
        return Reply(cut, stop="cut") if cut.says_something else None

    @property
    def results(self) -> tuple[ToolResult, ...]:
        uses = self.reply.message.tool_uses if self.reply else ()
        return tuple(self._done.get(u.id, ToolResult(u.id, INTERRUPTED, True)) for u in uses)

    async def run(self, request: Request) -> None:
        failed: Exception | None = None
        async with anyio.create_task_group() as tasks, aclosing(self._model.stream(request)) as stream:
            try:
                async for item in stream:
                    self._take(item)
                    if isinstance(item, ToolUse):
                        tasks.start_soon(self._call, item, *self._queued(item))
            except Exception as error:  # raised below: a task group would hide it in a group
                failed = error
        # Once a tool has run, asking again would run it twice: what is complete stands as the reply.
        if failed and not self.results:
            self._blocks, self._partial = [], ""
            raise failed
        if self._broken:
            raise self._broken
        if failed:
            self._emit(Failed("stream", repr(failed)))

    def _take(self, item: str | Block | Reply) -> None:
        if isinstance(item, str):
            self._partial += item
            self._emit(Delta(item))
        elif isinstance(item, Reply):
            self._whole = item
            self._written(item)  # paid for: on disk before its tools have finished
        else:
            self._blocks.append(item)
            self._partial = ""

    def _queued(self, use: ToolUse) -> tuple[list[anyio.Event], anyio.Event]:
        """The events to wait for: a safe call waits for unsafe ones before it, an unsafe one for all."""
        try:
            safe = self._tools.safe(use)
        except Exception:  # anyone's code; not knowing means alone
            safe = False
        before = [ended for was_safe, ended in self._calls if not (safe and was_safe)]
        self._calls.append((safe, anyio.Event()))
        return before, self._calls[-1][1]

    async def _call(self, use: ToolUse, before: list[anyio.Event], ended: anyio.Event) -> None:
        try:
            for call in before:
                await call.wait()
            self._done[use.id] = await self._run(use)
        except Exception as error:  # a subscriber's: raised by `run`, where no group hides it
            self._broken = self._broken or error
        finally:
            ended.set()

    async def _run(self, use: ToolUse) -> ToolResult:
        self._emit(ToolStarted(use))
        try:
            return await self._tools.call(use)
        except Exception as error:  # a tool may be anyone's code, and the turn outlives it
            self._emit(Failed(use.name, repr(error)))
            return ToolResult(use.id, f"{use.name} broke: {error!r}", True)


async def read_reply(model: Model, request: Request) -> Reply | None:
    """Asks beside the conversation: no tools are run, and only the whole reply counts."""
    reply: Reply | None = None
    async with aclosing(model.stream(request)) as stream:
        async for item in stream:
            if isinstance(item, Reply):
                reply = item
    return reply


def answer_interrupted_calls(view: View) -> Message | None:
    """The answer to calls that have none: what a crash or a full disk left open."""
    results = tuple(ToolResult(id, INTERRUPTED, True) for id in find_open_uses(view))
    return Message("user", results) if results else None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Sends a failed request again, so often and after such waits."""

    tries: int = 8
    tries_to_connect: int = 4
    """Fewer tries for a server that cannot be reached: its address is more often wrong."""
    first: float = 0.5
    most: float = 32.0
    longest_asked: float = 300.0
    """A provider that asks for a longer wait than this is not waited for."""
    chance: Callable[[], float] = random.random

    async def run(self, send: Callable[[], Awaitable[Reply]], clock: Clock, emit: Emit) -> Reply:
        """Send until there is a reply. Raises the last `ModelFailure` if it should not be tried again."""
        attempt = 0
        while True:
            try:
                return await send()
            except ModelFailure as error:
                attempt += 1
                if (wait := self.wait(error, attempt)) is None:
                    raise
                emit(Retrying(str(error), attempt, wait))
                await clock.sleep(wait)

    def wait(self, error: ModelFailure, attempt: int) -> float | None:
        """Seconds to wait before asking again; None: do not ask again."""
        tries = self.tries_to_connect if isinstance(error, Unreachable) else self.tries
        if not error.retryable or attempt >= tries:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.longest_asked else None
        longest = min(self.most, self.first * 2.0 ** (attempt - 1))
        return longest * (0.5 + self.chance() / 2)
