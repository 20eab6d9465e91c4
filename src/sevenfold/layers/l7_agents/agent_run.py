"""One agent from its first words to its end: its turns, its rests, and what has to be closed behind it.

A few words on what a background agent is doing, every half minute, from a fork of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Final

import anyio
import anyio.lowlevel

from sevenfold.core.errors import Refused, SevenfoldError, StepLimitReached
from sevenfold.core.events import AgentEnded, AgentStarted, Emit, Failed, Progress
from sevenfold.core.messages import Message, user, write_directive
from sevenfold.core.protocols import Agent, Clock
from sevenfold.layers.l7_agents.members import AgentStatus, Member
from sevenfold.layers.l7_agents.worktrees import Worktrees
from sevenfold.layers.shared.background import open_task_group
from sevenfold.layers.shared.side_work import SideQuestion, SideWork, make_lean_messages

KIND: Final = "status"
ANSWER: Final = 64  # Tokens of the answer
ASKED: Final = 100  # Tokens of the question
LONGEST: Final = 60  # Characters of it that are shown
FAILURES: Final = 3  # After so many in a row an agent is not asked any more: each costs a request


@dataclass(slots=True)
class StatusSummaries:
    """Asks agents in the background for their status."""

    side_work: SideWork | None  # None: no agent is asked
    clock: Clock
    emit: Emit
    seconds: float

    async def watch(self, member: Member) -> None:
        """Until it is cancelled. Nothing new since the last status: nothing is asked."""
        if self.side_work is None or not self.seconds:
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
            since, told = told, view[-1].id
            try:
                await self._ask(member, self.side_work, since, told)
                failed = 0
            except Refused as error:  # it will be the next time too
                self.emit(Failed("agent status", str(error)))
                return
            except SevenfoldError as error:
                failed += 1
                ends = f"; {member.name} is not asked any more" if failed == FAILURES else ""
                self.emit(Failed("agent status", f"{error}{ends}"))

    async def _ask(self, member: Member, side_work: SideWork, since: int, at: int) -> None:
        if member.agent is None:
            return
        directive = user(write_directive(KIND, f"{member.id}.{at}", _asking()))
        request = member.agent.request
        new = make_lean_messages(request.view.since(since), request.view)
        question = SideQuestion(KIND, new, asked=ASKED, output=ANSWER)
        answer = await side_work.choose(request, question)(directive, max_tokens=ANSWER)
        if words := extract_status(answer.reply.message.text):
            member.doing = words
            self.emit(Progress(f"agent {member.name}", words))


def extract_status(text: str) -> str:
    """The first line that says something, short and without a full stop."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    words = " ".join(line.split()).strip("\"'`*# ").rstrip(".…")
    return words if len(words) <= LONGEST else words[:LONGEST].rsplit(" ", 1)[0] + "…"


@cache
def _asking() -> str:
    return Path(__file__).with_name("status.md").read_text(encoding="utf-8").strip()


LOOK: Final = 1.0
"""Seconds between two looks into the mailbox of an idle teammate: others on this machine write there."""
_WHY: Final = {"failed": "it broke off", "stopped": "it was stopped before it was done"}
SHOWN: Final = 400  # Characters of its last words in the event


@dataclass(slots=True)
class AgentRunner:
    """Runs agents. Where something is to be said about one, `tell` knows to whom."""

    summaries: StatusSummaries
    worktrees: Worktrees | None
    clock: Clock
    emit: Emit
    tell: Callable[[Member], None]
    moved: Callable[[Member], None]  # Hears of every change of an agent's status

    async def work(self, member: Member, said: Message | None) -> tuple[()]:
        """Everything from here to its end. Stopped or broken, what it has open is closed."""
        began = perf_counter()
        status: AgentStatus = "failed"
        try:
            self._started(member)
            with member.scope:
                await anyio.lowlevel.checkpoint()  # it may have been stopped before it began
                status = await self._beside(member, said)
            if member.scope.cancelled_caught:
                status = "stopped"
        except anyio.get_cancelled_exc_class():
            status = "stopped"
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await self._end(member, status, perf_counter() - began)
        return ()

    async def until_rest(self, member: Member, seconds: float) -> bool:
        """True if it came to rest within so many seconds; 0: however long it takes."""
        async with anyio.create_task_group() as race:
            if seconds:

                async def late() -> None:
                    await self.clock.sleep(seconds)
                    race.cancel_scope.cancel()

                race.start_soon(late)
            await member.resting.wait()
            race.cancel_scope.cancel()
        return member.resting.is_set()

    async def _beside(self, member: Member, said: Message | None) -> AgentStatus:
        """Its turns, and beside them the question how it is going."""
        try:
            async with open_task_group() as tasks:
                tasks.start_soon(self.summaries.watch, member)
                await self._turns(member, said)
        except StepLimitReached as error:
            member.why = f"it was not done: {StepLimitReached(error.steps, agent=True)}"
        except (SevenfoldError, OSError) as error:
            member.why = f"it failed: {error}"
        else:
            return "done"
        return "failed"

    async def _turns(self, member: Member, said: Message | None) -> None:
        agent, before = _agent(member), frozenset[str]()
        while True:
            reply = await agent.run(said)
            member.said, said = reply.message.text.strip(), None
            called = member.called()
            if called - before:  # it came while the last reply was on its way
                before = called
                continue
            if not member.teammate or member.leaving:
                return
            await self._idle(member, before := called)
            if member.leaving:
                return
            self._started(member)

    async def _idle(self, member: Member, unread: frozenset[str]) -> None:
        """Waits until mail comes. A letter that could not be delivered before does not count."""
        member.status = "idle"
        self._ended(member, 0.0)
        self.tell(member)
        member.resting.set()
        while not (member.called() - unread) and not member.leaving:
            with anyio.move_on_after(LOOK):
                await member.woken.wait()
            member.woken = anyio.Event()
        member.status, member.resting = "running", anyio.Event()

    async def _end(self, member: Member, status: AgentStatus, seconds: float) -> None:
        agent = _agent(member)
        if status != "done" or not member.said:
            member.said = member.last_words() or member.said
        try:
            await agent.close()
            if member.worktree is not None and self.worktrees is not None:
                member.left = await self.worktrees.leave(member.worktree, member.id)
        except (SevenfoldError, OSError) as error:
            self.emit(Failed(f"agent {member.name}", str(error)))
        finally:
            member.closed()
            member.status, member.doing = status, ""
            if status != "done":
                member.why = member.why or _WHY[status]
            member.resting.set()  # first: a subscriber may fail, and others wait for this
            member.gone.set()
            self._ended(member, seconds)
            self.tell(member)

    def _started(self, member: Member) -> None:
        spec = member.spec
        self.moved(member)
        self.emit(
            AgentStarted(spec.id, spec.name, spec.kind, member.description, member.background, spec.depth)
        )

    def _ended(self, member: Member, seconds: float) -> None:
        at = member.listed
        self.moved(member)
        said = (at.said or at.why)[:SHOWN]
        self.emit(AgentEnded(at.id, at.name, at.kind, at.status, said, at.steps, at.usage, seconds))


def _agent(member: Member) -> Agent:
    if member.agent is None:
        raise ValueError(f"agent {member.id} has no conversation")
    return member.agent
