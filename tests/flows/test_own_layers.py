"""`Session(layers=...)`: a layer of the caller's acts among the standard ones, and may fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sevenfold import Session
from sevenfold.core.errors import Mistake
from sevenfold.core.events import Event, Failed
from sevenfold.core.messages import Message, user
from sevenfold.core.protocols import Change, Layers
from sevenfold.core.request import Request
from sevenfold.core.tokens import Pressure
from sevenfold.core.transcript import Mark, View
from sevenfold.layers.l1_tool_results.tool_results import ToolResults
from sevenfold.layers.ladder import BlockCheck
from sevenfold.testing import ScriptedModel

pytestmark = pytest.mark.anyio
RULE = user("<context>\nAnswer in one sentence.\n</context>")


class AddsRule:
    def attach(self, view: View) -> Sequence[Message | Mark]:
        return () if "rule" in view.marks else (RULE, Mark("rule", True))


class Raises:
    label = "mine"

    def attach(self, view: View) -> Sequence[Message | Mark]:
        raise ZeroDivisionError("attach")

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        raise ZeroDivisionError("fit")

    async def __call__(self, request: Request) -> Sequence[Change]:
        raise ZeroDivisionError("replied")


def opened(folder: Path, *script: str, **options: Any) -> tuple[Session, ScriptedModel]:
    model = ScriptedModel(script)
    return Session(model, folder, home=folder / "home", **options), model


async def test_a_layer_of_the_callers_acts_beside_the_standard_ones(tmp_path: Path) -> None:
    def add(standard: Layers) -> Layers:
        return replace(standard, attach=(*standard.attach, AddsRule()))

    session, model = opened(tmp_path, "one", "two", layers=add)
    async with session:
        await session.ask("first")
        await session.ask("second")
        assert any(isinstance(layer, ToolResults) for layer in session.turn.layers.intake)

    assert [request.view.messages.count(RULE) for request in model.requests] == [1, 1]
    assert [placed.by for placed in session.view if placed.message == RULE] == ["AddsRule"]


async def test_a_standard_layer_can_be_left_out(tmp_path: Path) -> None:
    def without_intake(standard: Layers) -> Layers:
        return replace(standard, intake=())

    session, _ = opened(tmp_path, "one", layers=without_intake)
    async with session:
        await session.ask("first")
        assert session.turn.layers.intake == ()
        assert isinstance(session.turn.layers.fit[-1], BlockCheck)


async def test_when_it_raises_an_event_says_so_and_the_turn_goes_on(tmp_path: Path) -> None:
    events: list[Event] = []
    own = Raises()

    def add(standard: Layers) -> Layers:
        return replace(
            standard,
            attach=(own, *standard.attach),
            fit=(own, *standard.fit),
            replied=(own, *standard.replied),
        )

    session, _ = opened(tmp_path, "fine", layers=add)
    async with session:
        session.subscribe(events.append)
        reply = await session.ask("first")

    failed = [event for event in events if isinstance(event, Failed)]
    assert reply.message.text == "fine"
    assert {event.by for event in failed} == {"mine"}
    assert sorted(event.cause for event in failed) == [
        f"ZeroDivisionError('{moment}')" for moment in ("attach", "fit", "replied")
    ]


async def test_what_is_no_set_of_layers_is_a_mistake_that_says_how(tmp_path: Path) -> None:
    session, _ = opened(tmp_path, layers=lambda standard: [standard])
    with pytest.raises(Mistake, match=r"returned a list: it has to return Layers"):
        async with session:
            pass


def test_a_layer_alone_is_made_as_the_reference_says() -> None:
    page = Path(__file__).parents[2] / "docs/reference/library.md"
    blocks = page.read_text(encoding="utf-8").split("```python\n")[1:]
    [block] = [text.split("```")[0] for text in blocks if "LayerParts(" in text]
    names: dict[str, Any] = {}
    exec(block, names)
    assert isinstance(names["layer"], ToolResults)
