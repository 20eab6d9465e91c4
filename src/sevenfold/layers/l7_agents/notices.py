"""What became of agents in the background, told to the conversation that started them, once.

    <agent-notice id="a-1f" name="scout" status="done">
    what this is, in a sentence
    ---
    what it said last
    </agent-notice>

A mark in that conversation's transcript says which agents it still waits for: after a crash it learns of
each what became of it, and of none twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from sevenfold.layers.l7_agents.rendering import framed
from sevenfold.messages import Message, user
from sevenfold.protocols import Attach
from sevenfold.transcript import Mark, View

MARK: Final = "agents"
LONGEST: Final = 12_000
"""Characters of what an agent said; its transcript has the rest."""
_TAG: Final = "agent-notice"
_NAME: Final = 80


class AgentNotice(msgspec.Struct, frozen=True):
    """What is told about an agent."""

    id: str
    name: str
    status: str
    """done, failed, stopped or idle."""
    said: str
    facts: str = ""
    """One line: what it took, and where its transcript is."""


class Notices:
    """Waits with what is to be told, and hands it back at the next round of tools."""

    def __init__(self, wake: Callable[[], object] = lambda: None) -> None:
        self._wake = wake
        self._waiting: list[AgentNotice] = []
        self._new: list[str] = []

    @property
    def ids(self) -> tuple[str, ...]:
        """The agents that there is something to tell of."""
        return tuple(notice.id for notice in self._waiting)

    def expect(self, id: str) -> None:
        """This agent goes on in the background: the conversation is to hear of it."""
        self._new.append(id)

    def post(self, notice: AgentNotice) -> None:
        self._waiting.append(notice)
        self._wake()

    def take(self) -> list[AgentNotice]:
        """What was never told, for somebody else to tell."""
        taken, self._waiting = self._waiting, []
        return taken

    def expected(self, view: View) -> Sequence[Mark]:
        """The mark alone: the turn is over, or was stopped, and it is to be known who still works."""
        before = awaited(view.marks)
        now = list(dict.fromkeys((*before, *self._new)))
        self._new = []
        return (Mark(MARK, {"awaited": now}),) if now != before else ()

    def attach(self, view: View) -> Sequence[Message | Mark]:
        if not self._waiting and not self._new:
            return ()
        told, self._waiting = self._waiting, []
        before = awaited(view.marks)
        over = {notice.id for notice in told if notice.status != "idle"}
        now = [id for id in dict.fromkeys((*before, *self._new)) if id not in over]
        self._new = []
        messages = [user(render(notice)) for notice in told]
        return (*messages, Mark(MARK, {"awaited": now})) if now != before else messages


def awaited(marks: Mapping[str, Any]) -> list[str]:
    """The agents that a conversation had in the background and was not told the end of."""
    mark = marks.get(MARK)
    ids = mark.get("awaited") if isinstance(mark, dict) else None
    return [id for id in ids if isinstance(id, str)] if isinstance(ids, list) else []


def render(notice: AgentNotice) -> str:
    """The words of a notice. Nothing that the agent said can end it or begin something else."""
    said = notice.said
    if len(said) > LONGEST:
        said = f"{said[:LONGEST]}\n[{len(said) - LONGEST:,} characters more, in its transcript]"
    about = [("id", notice.id, _NAME), ("name", notice.name, _NAME), ("status", notice.status, 20)]
    return framed(_TAG, about, f"{said}\n\n{notice.facts}".strip())


_check: type[Attach] = Notices
