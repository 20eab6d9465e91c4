"""Layers in a caller's loop: one that fails or waits keeps nobody from going on."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest
from kit import FRAME

from sevenfold.clock import finished
from sevenfold.context.loop import CallersTools, HostedTurn, Named, NothingWaiting
from sevenfold.errors import Mistake
from sevenfold.events import Declined, Event, Failed
from sevenfold.messages import Text, ToolResult, ToolUse, assistant, user
from sevenfold.protocols import Capabilities, Handback, Layers
from sevenfold.request import Request
from sevenfold.streaming import Retry
from sevenfold.testing import FakeClock, NoAccounts
from sevenfold.tokens import Pressure, Thresholds
from sevenfold.transcript import Mark, Replace, Transcript, View


class Shouting:
    def intake(self, batch: tuple[ToolResult, ...], view: View) -> tuple[ToolResult, ...]:
        return tuple(ToolResult(r.tool_use_id, r.text.upper()) for r in batch)


class Broken:
    def intake(self, batch: tuple[ToolResult, ...], view: View) -> tuple[ToolResult, ...]:
        raise ValueError("no")

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Handback]:
        raise ValueError("no")


class Waiting:
    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Handback]:
        await anyio.sleep(1)
        return (Mark("waited", True),)


class Marking:
    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Handback]:
        return (Mark("fitted", True),)


async def noting(request: Request) -> Sequence[Handback]:
    await anyio.lowlevel.checkpoint()
    return (Mark("noted", len(request.view)),)


async def stale(request: Request) -> Sequence[Handback]:
    return (Replace(77, 78, (user("x"),)),)


async def failing(request: Request) -> Sequence[Handback]:
    raise ValueError("no")


def turn(layers: Layers, events: list[Event]) -> HostedTurn:
    clock = FakeClock()
    transcript = Transcript(clock.now)
    transcript.add(user("go"), assistant(Text("yes")))
    able = Capabilities()
    return HostedTurn(
        model=Named("m", able),
        frame=FRAME,
        tools=CallersTools(),
        layers=layers,
        transcript=transcript,
        background=NothingWaiting(),
        accounts=NoAccounts(),
        clock=clock,
        emit=events.append,
        thresholds=Thresholds.of(able.window, able.max_output),
        retry=Retry(),
    )


def test_a_layer_that_breaks_on_results_leaves_them_to_the_next() -> None:
    events: list[Event] = []
    taken = turn(Layers(intake=(Broken(), Shouting())), events).taken_in((ToolResult("a", "ok"),))
    assert taken[0].content == "OK"
    assert events == [Failed("Broken", "ValueError('no')")]


@pytest.mark.anyio
async def test_a_layer_that_would_wait_fails_and_the_others_act() -> None:
    events: list[Event] = []
    hosted = turn(Layers(fit=(Broken(), Waiting(), Marking())), events)
    finished(hosted.fit())
    assert hosted.transcript.view.marks == {"fitted": True}
    assert [e.by for e in events if isinstance(e, Failed)] == ["Broken", "Waiting"]
    assert "may not wait" in str(events)


@pytest.mark.anyio
async def test_at_rest_layers_work_side_by_side_and_what_they_hand_back_is_written() -> None:
    events: list[Event] = []
    hosted = turn(Layers(), events)
    await hosted.rested((noting, failing, stale))
    assert hosted.transcript.view.marks == {"noted": 2}
    assert [e.by for e in events if isinstance(e, Failed)] == ["failing"]
    assert [e.by for e in events if isinstance(e, Declined)] == ["stale"]
    await hosted.rested((noting,))
    assert hosted.transcript.view.marks == {"noted": 2}


@pytest.mark.anyio
async def test_what_the_caller_does_itself_is_not_done_by_us() -> None:
    use = ToolUse("a", "Bash", {})
    assert not CallersTools().safe(use)
    with pytest.raises(Mistake, match="the caller, who runs it"):
        await CallersTools().call(use)
    with pytest.raises(Mistake, match=r"only work inside rest\(\)"):
        NothingWaiting().start("x", lambda: noting(None))  # type: ignore[arg-type]
    assert NothingWaiting().collect() == []
