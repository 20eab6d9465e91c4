"""Layers in a caller's loop: one that fails or waits keeps nobody from going on."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest
from kit import FRAME

from sevenfold.context.loop import CallerTools, HostedTurn, IdleBackground, NamedModel
from sevenfold.core.clock import run_without_waiting
from sevenfold.core.errors import Mistake
from sevenfold.core.events import Declined, Event, Failed
from sevenfold.core.messages import Text, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Capabilities, Change, Layers
from sevenfold.core.request import Request
from sevenfold.core.tokens import Pressure, Thresholds
from sevenfold.core.transcript import Mark, Replace, Transcript, View
from sevenfold.streaming import RetryPolicy
from sevenfold.testing import FakeClock, NoAccounts


class Shouting:
    def intake(self, batch: tuple[ToolResult, ...], view: View) -> tuple[ToolResult, ...]:
        return tuple(ToolResult(r.tool_use_id, r.text.upper()) for r in batch)


class Broken:
    def intake(self, batch: tuple[ToolResult, ...], view: View) -> tuple[ToolResult, ...]:
        raise ValueError("no")

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        raise ValueError("no")


class Waiting:
    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        await anyio.sleep(1)
        return (Mark("waited", True),)


class Marking:
    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        return (Mark("fitted", True),)


async def noting(request: Request) -> Sequence[Change]:
    await anyio.lowlevel.checkpoint()
    return (Mark("noted", len(request.view)),)


async def stale(request: Request) -> Sequence[Change]:
    return (Replace(77, 78, (user("x"),)),)


async def failing(request: Request) -> Sequence[Change]:
    raise ValueError("no")


def turn(layers: Layers, events: list[Event]) -> HostedTurn:
    clock = FakeClock()
    transcript = Transcript(clock.now)
    transcript.add(user("go"), assistant(Text("yes")))
    able = Capabilities()
    return HostedTurn(
        model=NamedModel("m", able),
        frame=FRAME,
        tools=CallerTools(),
        layers=layers,
        transcript=transcript,
        background=IdleBackground(),
        accounts=NoAccounts(),
        clock=clock,
        emit=events.append,
        thresholds=Thresholds.of(able.window, able.max_output),
        retry=RetryPolicy(),
    )


def test_a_layer_that_breaks_on_results_leaves_them_to_the_next() -> None:
    events: list[Event] = []
    taken = turn(Layers(intake=(Broken(), Shouting())), events).take_in((ToolResult("a", "ok"),))
    assert taken[0].content == "OK"
    assert events == [Failed("Broken", "ValueError('no')")]


@pytest.mark.anyio
async def test_a_layer_that_would_wait_fails_and_the_others_act() -> None:
    events: list[Event] = []
    hosted = turn(Layers(fit=(Broken(), Waiting(), Marking())), events)
    run_without_waiting(hosted.fit())
    assert hosted.transcript.view.marks == {"fitted": True}
    assert [e.by for e in events if isinstance(e, Failed)] == ["Broken", "Waiting"]
    assert "may not wait" in str(events)


@pytest.mark.anyio
async def test_at_rest_layers_work_side_by_side_and_what_they_hand_back_is_written() -> None:
    events: list[Event] = []
    hosted = turn(Layers(), events)
    await hosted.run_at_rest((noting, failing, stale))
    assert hosted.transcript.view.marks == {"noted": 2}
    assert [e.by for e in events if isinstance(e, Failed)] == ["failing"]
    assert [e.by for e in events if isinstance(e, Declined)] == ["stale"]
    await hosted.run_at_rest((noting,))
    assert hosted.transcript.view.marks == {"noted": 2}


@pytest.mark.anyio
async def test_what_the_caller_does_itself_is_not_done_by_us() -> None:
    use = ToolUse("a", "Bash", {})
    assert not CallerTools().safe(use)
    with pytest.raises(Mistake, match="the caller, who runs it"):
        await CallerTools().call(use)
    with pytest.raises(Mistake, match=r"only work inside rest\(\)"):
        IdleBackground().start("x", lambda: noting(None))  # type: ignore[arg-type]
    assert IdleBackground().collect() == []
