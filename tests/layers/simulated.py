"""A conversation with our Anthropic client on the simulator's port, whose model reads files for a while."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sevenfold.cache.ledger import CacheWarmth, Ledger
from sevenfold.cache.prices import Prices
from sevenfold.core.events import Event
from sevenfold.core.messages import Json, ToolUse
from sevenfold.core.protocols import Layers
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import Thresholds
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.models import ModelAccess
from sevenfold.models.anthropic import AnthropicModel
from sevenfold.simulator import ManualClock, Simulator
from sevenfold.streaming import RetryPolicy
from sevenfold.testing import FakeTools, Postponed
from sevenfold.turn import Turn

MODEL = "claude-opus-4-8"
"""A window of a million tokens, five-minute writes at 1.25 and reads at 0.1 of the input price."""
PRICES = Prices.load()
TOOLS = tuple({"name": name, "input_schema": {"type": "object"}} for name in ("Read", "Edit"))
FRAME = Frame(MODEL, ("rule " * 2_000, "session " * 1_000), TOOLS)


class Clock(ManualClock):
    """The simulator's clock, for the conversation as well; waiting moves it."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


def reading(reads: int, tool: str = "Read") -> Callable[[Json], Any]:
    """A model that reads so many files for each thing the user says, and then is done."""

    def reply(body: Json) -> list[Json]:
        results, done = 0, 0
        for message in body["messages"]:
            for block in message["content"]:
                results += block["type"] == "tool_result"
            spoken = message["role"] == "assistant" and message["content"][0]["type"] == "text"
            done = results if spoken else done
        if results - done < reads:
            path = f"src/f{results}.py"
            args = {"file_path": path}
            return [{"type": "tool_use", "id": f"t{results}", "name": tool, "input": args}]
        return [{"type": "text", "text": "Done with all of them."}]

    return reply


class Watched:
    """The ledger, and what every request does to the life of the cache."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger, self._clock, self.warmth = ledger, clock, CacheWarmth()

    def before(self, request: Request) -> None:
        self.warmth.begin(request.source, self._clock.now())
        self._ledger.before(request)

    def after(self, request: Request, reply: Reply) -> float | None:
        self.warmth.record_usage(request, reply.usage, self._clock.now())
        return self._ledger.after(request, reply)


@dataclass
class Conversation:
    """What a test needs to hold on to."""

    sim: Simulator
    model: AnthropicModel
    clock: Clock
    events: list[Event] = field(default_factory=list)
    frame: Frame = FRAME

    def __post_init__(self) -> None:
        self.ledger = Ledger(PRICES, self.clock, self.events.append)
        self.accounts = Watched(self.ledger, self.clock)

    def turn(
        self,
        layers: Layers | None = None,
        transcript: Transcript | None = None,
        size: int = 4_000,
        **fields: Any,
    ) -> Turn:
        """Turns whose tool results have so many characters."""

        def content(use: ToolUse) -> str:
            return f"{use.input['file_path']}\n".ljust(size, "x")

        able = self.model.capabilities
        fields.setdefault("accounts", self.accounts)
        return Turn(
            model=self.model,
            frame=self.frame,
            tools=FakeTools({"Read": content, "Edit": content}),
            layers=layers or Layers(),
            transcript=transcript or Transcript(self.clock.now),
            background=Postponed(),
            clock=self.clock,
            emit=self.events.append,
            thresholds=Thresholds.of(able.window, able.max_output),
            retry=RetryPolicy(chance=lambda: 1.0),
            **fields,
        )

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def conversation(
    replies: Callable[[Json], Any], *, frame: Frame = FRAME, **access: Any
) -> AsyncIterator[Conversation]:
    clock = Clock()
    async with Simulator(clock=clock, replies=replies) as sim:
        reached = ModelAccess(anthropic_base_url=sim.url, anthropic_key="k", **access)
        model = AnthropicModel(frame.model, reached, clock=clock)
        try:
            yield Conversation(sim, model, clock, frame=frame)
        finally:
            await model.close()
