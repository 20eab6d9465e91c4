"""Our own step: the conversation goes through a real `Turn`, with the layers of a main conversation."""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.fit.accounting import Bill, Part
from benchmarks.fit.workload import BYTES_PER_TOKEN, Json
from sevenfold.cache.ledger import Ledger
from sevenfold.cache.prices import Prices
from sevenfold.core.errors import PromptTooLong
from sevenfold.core.events import Event, Failed
from sevenfold.core.messages import Block, Message, ToolResult, ToolUse, parse_message, user
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import TTL_SECONDS, Frame, Request, encode_view
from sevenfold.core.tokens import Thresholds, Usage
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.layers.ladder import make_standard_layers
from sevenfold.layers.parts import LayerParts, PlainConversation
from sevenfold.settings.layers import MicroSettings
from sevenfold.settings.schema import Settings
from sevenfold.storage.jsonl import JsonlLog
from sevenfold.storage.places import make_session_id
from sevenfold.storage.results import ResultStore
from sevenfold.testing import FakeClock, Postponed
from sevenfold.turn import Turn

MODEL: Final = "claude-sonnet-4-5"
ABLE: Final = Capabilities(window=100_000_000)
"""A window that nothing here fills: what is cleared is cleared because it pays."""
OUTPUT: Final = 50
"""Tokens that every reply is said to have."""
DEFAULT: Final = MicroSettings()
NEVER_WARM: Final = MicroSettings(margin=1e9)
"""Nothing is worth a break of the cache; once it is cold, there is none."""
SECONDS: Final = 10.0
"""Between two requests: the provider's cache stays warm."""


@dataclass
class Seen:
    """What one run of a conversation showed."""

    bill: Bill = field(default_factory=Bill)
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """The same by the clock of the processor: what else the machine does is not in it."""
    fired: list[bool] = field(default_factory=list)
    filing: list[float] = field(default_factory=list)
    """The part of each pass that went into writing results to files."""

    def quiet(self, newest: int, *, cpu: bool = False) -> list[float]:
        """Times of the steps that changed nothing, among so many of the newest."""
        newest_steps = list(zip(self.cpu if cpu else self.seconds, self.fired, strict=True))[-newest:]
        return [took for took, fired in newest_steps if not fired]

    @property
    def firing_cpu(self) -> list[float]:
        return [took for took, fired in zip(self.cpu, self.fired, strict=True) if fired]

    @property
    def firing(self) -> list[float]:
        return [took for took, fired in zip(self.seconds, self.fired, strict=True) if fired]

    @property
    def deciding(self) -> list[float]:
        """The same without what writing files took."""
        passes = zip(self.seconds, self.filing, self.fired, strict=True)
        return [took - filed for took, filed, fired in passes if fired]


class TimedTurn(Turn):
    """A turn that writes down how long each pass of its layers took."""

    seen: Seen

    async def fit(self, refused: PromptTooLong | None = None) -> bool:
        before = self.transcript.view.tokens
        self.seen.filing.append(0.0)
        began, cpu = time.perf_counter(), time.process_time()
        gave = await super().fit(refused)
        self.seen.seconds.append(time.perf_counter() - began)
        self.seen.cpu.append(time.process_time() - cpu)
        self.seen.fired.append(gave or self.transcript.view.tokens != before)
        return gave


class TimedStore(ResultStore):
    """A store that says how long it took to keep a result."""

    def __init__(self, folder: Path, seen: Seen) -> None:
        super().__init__(lambda: folder)
        self.seen = seen

    def keep(self, use_id: str, content: str | tuple[Block, ...], *, lasting: bool = True) -> Path:
        began = time.perf_counter()
        path = super().keep(use_id, content, lasting=lasting)
        if self.seen.filing:  # before the first pass there is none to charge it to
            self.seen.filing[-1] += time.perf_counter() - began
        return path


class Scripted:
    """A model that says what the conversation has next, and charges by bytes."""

    name = MODEL
    capabilities = ABLE

    def __init__(self, replies: Iterator[Message], bill: Bill, clock: FakeClock) -> None:
        self.replies, self.charging, self.clock = replies, Charging(bill), clock

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        self.clock.time += SECONDS
        usage = self.charging.usage(encode_view(request.view))
        message = next(self.replies)
        for block in message.content:
            yield block
        yield Reply(message, usage, "tool_use" if message.tool_uses else "end_turn", model=MODEL)


class Recorded:
    """Tools that answer what the conversation says they answered."""

    def __init__(self, results: dict[str, ToolResult]) -> None:
        self.results = results

    def safe(self, use: ToolUse) -> bool:
        return True

    async def call(self, use: ToolUse) -> ToolResult:
        return self.results[use.id]


class Charging:
    """A provider that counts bytes, and caches."""

    def __init__(self, bill: Bill) -> None:
        self.bill = bill
        self.parts: dict[bytes, Part] = {}

    def usage(self, wires: list[bytes]) -> Usage:
        known = self.parts
        for wire in wires:
            if wire not in known:
                known[wire] = Part(wire, len(wire) / BYTES_PER_TOKEN)
        read, written = self.bill.request([known[wire] for wire in wires])
        return Usage(cache_read=round(read), cache_write=round(written), output=OUTPUT)


def parsed(conversation: list[Json]) -> list[Message]:
    return [parse_message(message["role"], message["content"]) for message in conversation]


@contextmanager
def opened(messages: list[Message], folder: Path, seen: Seen, micro: MicroSettings) -> Iterator[TimedTurn]:
    """A turn at the beginning of this conversation, its transcript on disk."""
    clock = FakeClock()
    log = JsonlLog(folder / "transcript.jsonl")
    ledger = Ledger(Prices.load(), clock, watch)
    session = folder / "projects" / "home-somebody-work-shop" / make_session_id(clock.now())
    store = TimedStore(session / "tool-results", seen)  # as long a path as in a real session
    parts = LayerParts(
        conversation=PlainConversation(capabilities=ABLE),
        settings=Settings(micro=micro),
        emit=watch,
        clock=clock,
        prices=ledger.prices,
        expect=ledger.expect,
        results=store,
    )
    replies = (m for m in messages if m.role == "assistant")
    turn = TimedTurn(
        model=Scripted(replies, seen.bill, clock),
        frame=Frame(MODEL),
        tools=Recorded({r.tool_use_id: r for m in messages for r in m.results}),
        layers=make_standard_layers("main", parts),
        transcript=Transcript(clock.now, log.append),
        background=Postponed(),
        accounts=ledger,
        clock=clock,
        emit=watch,
        thresholds=Thresholds.of(ABLE.window, ABLE.max_output),
    )
    turn.seen = seen
    try:
        yield turn
    finally:
        log.close()


async def through(conversation: list[Json], folder: Path, micro: MicroSettings = DEFAULT) -> Seen:
    """The whole conversation, turn after turn."""
    messages, seen = parsed(conversation), Seen()
    with opened(messages, folder, seen, micro) as turn:
        for message in messages:
            if message.role == "user" and not message.results:
                await turn.run(message)
    return seen


async def at_once(conversation: list[Json], folder: Path) -> Seen:
    """One pass over a conversation that nobody has tidied before: everything is there to clear."""
    messages, seen = parsed(conversation), Seen()
    with opened(messages, folder, seen, DEFAULT) as turn:
        tokens = 0.0
        for message in messages[:-1]:
            if message.role == "assistant":
                usage = Usage(cache_read=round(tokens), output=OUTPUT)
                turn.transcript.add(Reply(message, usage), by="model")
            else:
                turn.transcript.add(message, by="tools" if message.results else "user")
            tokens += len(encode_view(turn.transcript.view)[-1]) / BYTES_PER_TOKEN
        gc.collect()
        await turn.fit()
    return seen


async def after_silence(conversation: list[Json], folder: Path) -> Seen:
    """One pass when the user is back after the cache went cold: all old results go, none went before."""
    messages, seen = parsed(conversation), Seen()
    with opened(messages, folder, seen, NEVER_WARM) as turn:
        for message in messages:
            if message.role == "user" and not message.results:
                await turn.run(message)
        for before in (seen.seconds, seen.cpu, seen.filing, seen.fired):
            before.clear()
        await turn.clock.sleep(2 * TTL_SECONDS["1h"])
        turn.transcript.add(user("go on"))
        gc.collect()
        await turn.fit()
    return seen


class LayerFailed(Exception):
    """A layer that fails hands back nothing, and would only look fast."""


def watch(event: Event) -> None:
    if isinstance(event, Failed):
        raise LayerFailed(f"{event.by}: {event.cause}")
