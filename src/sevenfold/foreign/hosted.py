"""A turn whose loop is somebody else's: the layers act, the caller asks the model and runs the tools."""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any

import msgspec

from sevenfold.background import Tray, owned_tasks
from sevenfold.errors import Mistake
from sevenfold.messages import Block, ToolResult, ToolUse
from sevenfold.models import capabilities
from sevenfold.protocols import (
    After,
    Background,
    Capabilities,
    Handback,
    Model,
    Tools,
    Work,
)
from sevenfold.request import Request
from sevenfold.transcript import Reply
from sevenfold.turn import Turn


class HostedTurn(Turn):
    """Takes results in and lets the layers work at rest, with the turn's own care for their failures."""

    def taken_in(self, results: tuple[ToolResult, ...]) -> tuple[ToolResult, ...]:
        """How the layers decide to show these results, which come next in the view."""
        for layer in self.layers.intake:
            with self._degrading(layer):
                results = layer.intake(results, self.transcript.view)
        return results

    async def rested(self, layers: Sequence[After]) -> None:
        """Let these layers do what they do in the background, and write what they hand back."""
        async with owned_tasks() as tasks:
            self.background = tray = Tray(tasks, self.emit)
            self._after(layers)
            await tray.drain(math.inf)
        self.collect()


class Named(msgspec.Struct, frozen=True):
    """A model of which only the name is known: enough to measure by, not to ask."""

    name: str
    capabilities: Capabilities

    def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        raise Mistake(
            f"this Context only knows the name of {self.name}; give it a Model to let layers ask one"
        )


def measured_by(model: str | Model, window: int | None) -> Model:
    """The model itself, or what is known of the model of this name."""
    if not isinstance(model, str):
        return model
    if not model.strip():
        raise Mistake("a Context needs the name of a model, such as 'claude-sonnet-4-5'")
    return Named(model, capabilities(model, window=window))


class CallersTools:
    """The caller runs its tools itself."""

    def safe(self, use: ToolUse) -> bool:
        return False

    async def call(self, use: ToolUse) -> ToolResult:
        raise Mistake(f"{use.name} is a tool of the caller, who runs it")


class OwnLoop:
    """Lets plain code run async work, always in the same event loop: connections are bound to theirs."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._close: Callable[[], object] = lambda: None

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if _in_a_loop():
            raise Mistake("rest_sync() is for code without an event loop: here, await rest()")
        if self._runner is None:
            self._runner = asyncio.Runner()
            self._close = weakref.finalize(self, _closed, self._runner)
        self._runner.run(work())

    def close(self, model: Model) -> None:
        """What the model has connected in here ends with this; ours connect anew when asked again."""
        end = getattr(model, "close", None)
        if self._runner is not None and end is not None and not _in_a_loop():
            self._runner.run(end())
        self._close()


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _closed(runner: asyncio.Runner) -> None:
    if _in_a_loop():  # nothing of it can run any more
        runner.get_loop().close()
    else:
        runner.close()


class NothingWaiting:
    """No work is going on between two calls of the caller."""

    def start(self, name: str, work: Work) -> None:
        raise Mistake(f"{name} can only work inside rest()")

    def collect(self) -> list[tuple[str, Sequence[Handback]]]:
        return []


_model: type[Model] = Named
_tools: type[Tools] = CallersTools
_background: type[Background] = NothingWaiting
