"""A few words on what a background agent is doing, every half minute, from a fork of it.

The fork goes on from the agent's own request, so that what it reads is in the provider's cache already.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from sevenfold.errors import Refused, SevenfoldError
from sevenfold.events import Emit, Failed, Progress
from sevenfold.layers.l7_agents.members import Member
from sevenfold.messages import user
from sevenfold.models.directives import write_directive
from sevenfold.protocols import Clock, Forker

KIND: Final = "status"
ANSWER: Final = 64
"""Tokens of the answer."""
LONGEST: Final = 60
"""Characters of it that are shown."""
FAILURES: Final = 3
"""After so many in a row an agent is not asked any more: each costs a request."""


@dataclass(slots=True)
class Summaries:
    """Asks for the status of agents that nobody waits for."""

    fork: Forker | None
    """None: nobody is asked."""
    clock: Clock
    emit: Emit
    seconds: float

    async def watch(self, member: Member) -> None:
        """Until it is cancelled. Nothing new since the last status: nothing is asked."""
        if self.fork is None or not self.seconds:
            return
        told, failed = member.first, 0
        while failed < FAILURES:
            await self.clock.sleep(self.seconds)
            agent = member.agent
            if agent is None or not member.background or member.status != "running":
                continue
            view = agent.request.view
            if agent.steps == 0 or view[-1].id == told:
                continue
            told = view[-1].id
            try:
                await self._ask(member, self.fork, told)
                failed = 0
            except Refused as error:  # it will be the next time too
                self.emit(Failed("agent status", str(error)))
                return
            except SevenfoldError as error:
                failed += 1
                ends = f"; {member.name} is not asked any more" if failed == FAILURES else ""
                self.emit(Failed("agent status", f"{error}{ends}"))

    async def _ask(self, member: Member, fork: Forker, at: int) -> None:
        if member.agent is None:
            return
        directive = user(write_directive(KIND, f"{member.id}.{at}", _asking()))
        request = member.agent.request
        answer = await fork(request, directive, kind=KIND, max_tokens=ANSWER)
        if words := status_words(answer.reply.message.text):
            member.doing = words
            self.emit(Progress(f"agent {member.name}", words))


def status_words(text: str) -> str:
    """The first line that says something, short and without a full stop."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    words = " ".join(line.split()).strip("\"'`*# ").rstrip(".…")
    return words if len(words) <= LONGEST else words[:LONGEST].rsplit(" ", 1)[0] + "…"


@cache
def _asking() -> str:
    return Path(__file__).with_name("status.md").read_text(encoding="utf-8").strip()
