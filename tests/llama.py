"""A conversation with a real model on llama.cpp. So small a model means nothing by what it says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from weights import NoWeights, smollm2

from sevenfold.cache.ledger import Ledger
from sevenfold.cache.prices import Prices
from sevenfold.core.events import Event, Replied
from sevenfold.core.messages import user, write_directive
from sevenfold.core.protocols import ForkReply, Layers
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import Thresholds, Usage
from sevenfold.core.transcript import Transcript
from sevenfold.layers.l7_agents.forks import ForkRunner
from sevenfold.layers.parts import PlainConversation
from sevenfold.models import ModelAccess, connect_model
from sevenfold.models.local import LocalModel
from sevenfold.streaming import RetryPolicy
from sevenfold.testing import FakeClock, FakeTools, Postponed
from sevenfold.turn import Turn

RULES = "You know rivers, hills and the sea, and you answer in one word. "
LETTER = "Dear friend, yesterday we walked along the river until the hills came into sight. "
ONE_WORD = {"temperature": 0.0, "stop_sequences": [" ", "\n", "."]}
"""A word is enough to end a turn, and takes no time."""


def weights_or_fail() -> Path:
    """Not a skip: what these tests show must be shown."""
    try:
        return smollm2()
    except NoWeights as error:
        pytest.fail(str(error))


@dataclass
class Talk:
    """What a test needs to hold on to."""

    model: LocalModel
    events: list[Event] = field(default_factory=list)
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        able = self.model.capabilities
        self.thresholds = Thresholds.of(able.window, able.max_output)
        self.ledger = Ledger(Prices.load(), self.clock, self.events.append)
        self.turn = Turn(
            model=self.model,
            frame=Frame(self.model.name, (RULES * 12, "The user is called Ada."), (), ONE_WORD),
            tools=FakeTools(),
            layers=Layers(),
            transcript=Transcript(self.clock.now),
            background=Postponed(),
            accounts=self.ledger,
            clock=self.clock,
            emit=self.events.append,
            thresholds=self.thresholds,
            retry=RetryPolicy(chance=lambda: 1.0),
        )

    async def say(self, text: str) -> Usage:
        await self.turn.run(user(text))
        return [e.usage for e in self.events if isinstance(e, Replied)][-1]

    async def fork(self, kind: str, request: Request | None = None) -> ForkReply:
        told, limits = self.events.append, self.thresholds
        forks = ForkRunner(PlainConversation(self.model, thresholds=limits), self.ledger, self.clock, told)
        directive = user(write_directive(kind, f"{kind}-1", f"Say something as {kind}."))
        return await forks(request or self.turn.request, directive, kind=kind)


@asynccontextmanager
async def talking(path: Path, window: int = 2_048) -> AsyncIterator[Talk]:
    model = connect_model(f"local:{path}", ModelAccess(window=window))
    assert isinstance(model, LocalModel)
    try:
        yield Talk(model)
    finally:
        await model.close()
