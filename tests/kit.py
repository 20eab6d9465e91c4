"""Builders shared by the tests of the core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sevenfold.core.events import Event
from sevenfold.core.messages import Message, ToolUse, assistant
from sevenfold.core.protocols import Layers
from sevenfold.core.request import Frame
from sevenfold.core.tokens import Thresholds
from sevenfold.core.transcript import Transcript
from sevenfold.streaming import RetryPolicy
from sevenfold.testing import FakeClock, FakeTools, NoAccounts, Postponed, ScriptedModel
from sevenfold.testing.doubles import Line
from sevenfold.turn import Turn

FRAME = Frame("m", ("static", "of this session"), ({"name": "Read", "input_schema": {}},))


def make(
    script: Sequence[Line] | ScriptedModel = (),
    layers: Layers | None = None,
    *,
    events: list[Event] | None = None,
    transcript: Transcript | None = None,
    tools: FakeTools | None = None,
    clock: FakeClock | None = None,
    **fields: Any,
) -> Turn:
    """A turn made of doubles; what is not said is as simple as can be."""
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    clock = clock or FakeClock()
    able = model.capabilities
    fields.setdefault("background", Postponed())
    fields.setdefault("thresholds", Thresholds.of(able.window, able.max_output))
    fields.setdefault("retry", RetryPolicy(chance=lambda: 1.0))
    return Turn(
        model=model,
        frame=FRAME,
        tools=tools or FakeTools(),
        layers=layers or Layers(),
        transcript=transcript or Transcript(clock.now),
        accounts=NoAccounts(),
        clock=clock,
        emit=(events if events is not None else []).append,
        **fields,
    )


class ReplaceableScript:
    """Lines for a `ScriptedModel` that a test may replace while the model is in use."""

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self.lines = iter(lines)

    def __iter__(self) -> Iterator[Line]:
        return self

    def __next__(self) -> Line:
        return next(self.lines)


def extends(earlier: list[bytes], later: list[bytes]) -> bool:
    return later[: len(earlier)] == earlier


def use(id: str, name: str = "Read", **args: Any) -> Message:
    return assistant(ToolUse(id, name, args))
