"""From what is asked for to the conversation that can be begun: definition, tools, memory, work tree."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from sevenfold.events import Emit, Notice
from sevenfold.layers.l7_agents.agent_memory import (
    AgentMemory,
    tools_for_memory,
    with_memory_tools,
)
from sevenfold.layers.l7_agents.definitions import Definition, fitted
from sevenfold.layers.l7_agents.orders import Order, first_words, system_of
from sevenfold.layers.l7_agents.parents import Parent
from sevenfold.layers.l7_agents.send_message import NAME as SEND
from sevenfold.layers.l7_agents.worktrees import Worktree, Worktrees
from sevenfold.messages import Message
from sevenfold.protocols import AgentSpec, ToolFailed
from sevenfold.request import Request


class Recruit(msgspec.Struct, frozen=True):
    """An agent that can be begun."""

    spec: AgentSpec
    said: Message
    """Its first words."""
    worktree: Worktree | None = None
    """The one it works in, which may be that of who started it."""


@dataclass(slots=True)
class Recruiting:
    """Prepares agents for one session."""

    definitions: Mapping[str, Definition]
    tools: Callable[[], Collection[str]]
    memory: Callable[[Definition], AgentMemory]
    worktrees: Worktrees | None
    emit: Emit
    _told: set[str] = field(default_factory=set)

    async def __call__(self, order: Order, parent: Parent, spec: AgentSpec, use_id: str) -> Recruit:
        """`spec` says who it is; what it is like comes from its definition, or from its parent."""
        of = parent.spec
        spec = replace(
            spec,
            parent=parent.id,
            folder=of.folder if of else None,
            only_looks=of is not None and of.only_looks,
        )
        if order.forks:
            spec = _forked(spec, of, await parent.written(use_id))
        else:
            spec = self._fitted(order, spec, parent)
        worktree = await self._worktree(order, spec)
        if worktree is not None:
            spec = replace(spec, folder=worktree.path)
        own = worktree.path if worktree and order.worktree else None
        return Recruit(spec, first_words(order, spec.id, own), worktree)

    def _fitted(self, order: Order, spec: AgentSpec, parent: Parent) -> AgentSpec:
        """No agent has more than who started it: it cannot be used to get round a list of tools."""
        wanted, model = self.definitions[order.kind], parent.request.frame.model
        if order.model:
            wanted = replace(wanted, model=order.model)
        there = tuple(name for name in self.tools() if not parent.spec or name in parent.tools)
        definition, said = fitted(wanted, there, model)
        if definition.tools is None and parent.spec:
            definition = replace(definition, tools=there)
        self._say(*said)
        system = system_of(definition, spec.name, teammate=order.teammate)
        tools, memory = definition.tools, self.memory(definition)
        self._say(memory.note)
        if order.teammate and tools is not None:
            tools = tuple(dict.fromkeys((*tools, SEND)))
        return replace(
            spec,
            system=(*system, memory.prompt) if memory.prompt else system,
            opening=(memory.opening,) if memory.opening else (),
            tools=with_memory_tools(tools) if memory.folder else tools,
            model=definition.model or model,
            only_looks=spec.only_looks or definition.only_looks,
            max_steps=definition.max_turns,
            memory=memory.folder,
            for_memory=tools_for_memory(tools) if memory.folder else (),
        )

    async def _worktree(self, order: Order, spec: AgentSpec) -> Worktree | None:
        """Its own, or the one of who started it: that stays as long as this agent works in it."""
        if not order.worktree:
            if self.worktrees is None or spec.folder is None:
                return None
            return await self.worktrees.join(spec.folder, spec.id)
        if self.worktrees is None:
            raise ToolFailed(
                "there is no git repository here, so no work tree: leave isolation out"
            )
        return await self.worktrees.make(spec.id)

    def _say(self, *texts: str) -> None:
        """Each once: the same agent may be started a hundred times."""
        for text in texts:
            if text and text not in self._told:
                self._told.add(text)
                self.emit(Notice(text, "warning"))


def _forked(spec: AgentSpec, of: AgentSpec | None, request: Request) -> AgentSpec:
    """A fork of an agent may do what that agent may."""
    if of is None:
        return replace(spec, on=request)
    return replace(
        spec,
        on=request,
        tools=of.tools,
        memory=of.memory,
        for_memory=of.for_memory,
        max_steps=of.max_steps,
    )
