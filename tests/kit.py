"""Builders shared by the tests of the core."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sevenfold.cache.prices import Prices
from sevenfold.core.events import Emit, Event
from sevenfold.core.messages import Message, ToolUse, assistant
from sevenfold.core.protocols import Capabilities, Clock, Layers, Model
from sevenfold.core.request import Frame
from sevenfold.core.tokens import Thresholds
from sevenfold.core.transcript import Transcript
from sevenfold.layers.l7_agents.forks import ForkRunner
from sevenfold.layers.parts import LayerParts, PlainConversation
from sevenfold.layers.shared.restore import CompactionCut
from sevenfold.storage.results import ResultStore
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


PRICES: Final = Prices.load()


def make_parts(
    model: Model | None = None,
    *,
    able: Capabilities | None = None,
    thresholds: Thresholds | None = None,
    path: Path | None = None,
    folder: Path | None = None,
    events: list[Event] | None = None,
    expected: list[str] | None = None,
    **fields: Any,
) -> LayerParts:
    """The parts for a layer alone. `path`: its transcript; `folder`: whole results."""
    known = PlainConversation(model, capabilities=able, thresholds=thresholds, transcript_path=path)
    fields.setdefault("conversation", known)
    fields.setdefault("prices", PRICES)
    if events is not None:
        fields.setdefault("emit", events.append)
    if expected is not None:
        fields.setdefault("expect", expected.append)
    if folder is not None:
        fields.setdefault("results", ResultStore(lambda: folder))
    return LayerParts(**fields)


def make_forks(
    model: Model, emit: Emit, clock: Clock | None = None, *, thresholds: Thresholds | None = None
) -> ForkRunner:
    """Forks that ask this model, with nobody counting."""
    conversation = PlainConversation(model, thresholds=thresholds)
    return ForkRunner(conversation, NoAccounts(), clock or FakeClock(), emit)


@dataclass
class RestoredBy:
    """Restores what a function gives for a cut and its room."""

    read: Callable[[CompactionCut, int], Message | None]
    name: str = "by a function"

    def restored(self, cut: CompactionCut, room: int) -> Message | None:
        return self.read(cut, room)
