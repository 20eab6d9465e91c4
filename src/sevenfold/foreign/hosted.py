"""A turn whose loop is somebody else's: the layers act, the caller asks the model and runs the tools."""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any

import anyio
import msgspec

from sevenfold.background import Tray, owned_tasks
from sevenfold.cache.prices import own_limits
from sevenfold.errors import Mistake
from sevenfold.messages import Block, ToolResult, ToolUse
from sevenfold.models import Access, capabilities, connect
from sevenfold.protocols import (
    After,
    Background,
    Capabilities,
    Clock,
    Handback,
    Model,
    Tools,
    Work,
)
from sevenfold.request import Request
from sevenfold.settings import Environment, Settings
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


def measured_by(model: str | Model, settings: Settings) -> Model:
    """The model itself, or what is known of the model of this name."""
    if not isinstance(model, str):
        return model
    if not model.strip():
        raise Mistake("a Context needs the name of a model, such as 'claude-sonnet-4-5'")
    own = own_limits(settings.prices)(model)
    return Named(model, capabilities(model, window=settings.window, own=own))


class Reached(msgspec.Struct, frozen=True):
    """Whom layers may ask while the caller rests: the model that was given, or the one of this name."""

    model: Model | None = None
    why: str = ""
    """Why there is nobody to ask."""
    ours: bool = False
    """Connected by us, so closed by us: after each rest, for who knows whether there is another."""

    @classmethod
    def by(
        cls, model: str | Model, format: str, at: Environment, settings: Settings, clock: Clock
    ) -> Reached:
        """Nothing is sent before the first question; a name without its key is nobody."""
        if not isinstance(model, str):
            return cls(model)
        access = Access(
            anthropic_key=at.anthropic_key,
            anthropic_token=at.anthropic_token,
            anthropic_base_url=settings.anthropic_base_url,
            openai_key=at.openai_key,
            openai_base_url=settings.openai_base_url,
            window=settings.window,
            limits_of=own_limits(settings.prices),
        )
        name = f"openai:{model}" if format == "openai" and ":" not in model else model
        try:
            return cls(connect(name, access, clock=clock), ours=True)
        except Mistake as error:
            return cls(None, str(error))

    async def close(self) -> None:
        if self.ours and (end := getattr(self.model, "close", None)):
            with anyio.CancelScope(shield=True):
                await end()


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
