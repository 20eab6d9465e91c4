"""Before a request each layer is asked in turn, and sees what the one before it has done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from kit import make

from sevenfold.core.errors import PromptTooLong
from sevenfold.core.events import Added, Declined, Event, Failed
from sevenfold.core.messages import Message, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Change, Fit, Layers
from sevenfold.core.request import Request
from sevenfold.core.tokens import Pressure
from sevenfold.core.transcript import Mark, Reply, Results, Transcript
from sevenfold.testing import FakeClock
from sevenfold.turn import Turn

pytestmark = pytest.mark.anyio


@dataclass
class Layer:
    """Hands back the same once, and remembers what it was shown."""

    handback: Sequence[Change] = ()
    shown: list[tuple[Request, Pressure]] = field(default_factory=list)

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        self.shown.append((request, pressure))
        return self.handback

    @property
    def request(self) -> Request:
        return self.shown[-1][0]

    @property
    def pressure(self) -> Pressure:
        return self.shown[-1][1]


class Broken:
    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        raise ZeroDivisionError("of all things")


def turn_with(*layers: Fit, events: list[Event] | None = None) -> Turn:
    """Three results of 1,000 tokens each."""
    log = Transcript(FakeClock().now)
    log.add(user("go"))
    for n in range(3):
        log.add(Reply(assistant(ToolUse(f"t{n}", "Read", {}))), by="model")
        log.add(Message("user", (ToolResult(f"t{n}", "x" * 4_000),)), by="tools")
    return make([], Layers(fit=layers), transcript=log, events=events)


def gone(*uses: str) -> Results:
    return Results(dict.fromkeys(uses, ""))


async def test_who_comes_after_one_that_acted_sees_and_weighs_what_is_left() -> None:
    first, second = Layer([gone("t0")]), Layer()
    turn = turn_with(first, second)
    before = turn.transcript.view
    assert await turn.fit()

    assert first.request.view is before
    assert second.request.view is turn.transcript.view
    assert first.pressure.tokens - second.pressure.tokens == 1_000
    assert first.request.warm is second.request.warm is before, "what the provider still has"
    assert second.request.breakpoints == turn.request.breakpoints


async def test_nothing_is_weighed_again_when_nobody_acted() -> None:
    first, second, third = Layer(), Layer(), Layer()
    turn = turn_with(first, second, third)
    assert not await turn.fit()

    assert first.request is second.request is third.request
    assert first.pressure is second.pressure is third.pressure


async def test_a_mark_alone_frees_nothing() -> None:
    first, second = Layer([Mark("m", 1)]), Layer()
    turn = turn_with(first, second)
    assert not await turn.fit()

    assert second.request.view.marks["m"] == 1
    assert second.pressure == first.pressure


async def test_a_layer_that_fails_or_is_refused_leaves_the_next_one_where_it_was() -> None:
    events: list[Event] = []
    last = Layer()
    turn = turn_with(Broken(), Layer([gone("t0", "nobody")]), last, events=events)
    before = turn.transcript.view
    assert not await turn.fit()

    assert last.request.view is before
    assert [type(event) for event in events] == [Failed, Declined]
    assert not [event for event in events if isinstance(event, Added)]


@pytest.mark.parametrize(
    ("refused", "still"),
    [
        (PromptTooLong("too long", tokens=202_500, limit=200_000), [True, True, True, False]),
        (PromptTooLong("too long", tokens=201_000, limit=200_000), [True, False, False, False]),
        (PromptTooLong("too long"), [True, False, False, False]),
    ],
)
async def test_after_a_refusal_layers_are_pressed_until_enough_is_gone(
    refused: PromptTooLong, still: list[bool]
) -> None:
    layers = [Layer([gone(f"t{n}")]) for n in range(3)]
    last = Layer()
    turn = turn_with(*layers, last)
    assert await turn.fit(refused)

    assert [layer.pressure.refused for layer in (*layers, last)] == still
    window = turn.thresholds.window
    assert all(
        layer.pressure.tokens >= window
        for layer, pressed in zip((*layers, last), still, strict=True)
        if pressed
    )
    assert last.pressure.tokens < 1_000
