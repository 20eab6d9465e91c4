"""Who starts an agent: the main conversation, or an agent itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio

from sevenfold.invariants import open_uses
from sevenfold.protocols import Agent, AgentSpec, ToolFailed
from sevenfold.request import Request

FORK: Final = "fork"
"""The kind of an agent that goes on from its parent's conversation."""
MAIN: Final = "main"
"""What the main conversation is called."""
LONGEST_REPLY: Final = 300.0
"""Seconds that a call waits for the rest of the reply it stands in."""
_LOOK: Final = 0.01


@dataclass(frozen=True, slots=True)
class Parent:
    """A conversation in which the Agent tool is called."""

    name: str
    depth: int
    """0 for the main conversation."""
    now: Callable[[], Request]
    """What it would send now."""
    is_fork: bool = False
    spec: AgentSpec | None = None
    """Of an agent; the main conversation has none."""
    patience: float = LONGEST_REPLY

    @classmethod
    def of(cls, agent: Agent) -> Parent:
        spec = agent.spec
        return cls(spec.name, spec.depth, lambda: agent.request, spec.kind == FORK, spec)

    @property
    def id(self) -> str:
        return self.spec.id if self.spec else ""

    @property
    def tools(self) -> tuple[str, ...]:
        """What it may hand on: not what it has for its own memory alone."""
        names = (str(tool.get("name")) for tool in self.request.frame.tools)
        kept = self.spec.for_memory if self.spec else ()
        return tuple(name for name in names if name not in kept)

    @property
    def request(self) -> Request:
        return self.now()

    async def written(self, use_id: str) -> Request:
        """The request whose last message is the whole reply that this call stands in.

        Tools start while the reply is still being streamed. One that was cut off is only written when
        its tools are done, so it is not waited for without end.
        """
        with anyio.move_on_after(self.patience):
            # A transcript has no event to wait for.
            while use_id not in open_uses((request := self.now()).view):  # noqa: ASYNC110
                await anyio.sleep(_LOOK)
            return request
        raise ToolFailed("the reply that asked for this fork was cut off: ask for it again")
