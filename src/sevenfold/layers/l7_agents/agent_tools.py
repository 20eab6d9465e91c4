"""The Agent tool: hands a task to a conversation of its own and gives back what that one said last."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

import anyio.to_thread
from msgspec.structs import replace

from sevenfold.core.errors import Refused, SevenfoldError
from sevenfold.core.messages import Json
from sevenfold.core.protocols import Clock, Tool, ToolFailed
from sevenfold.core.tokens import estimate_tokens
from sevenfold.layers.l7_agents import mailbox as frames
from sevenfold.layers.l7_agents.definitions import GENERAL, AgentDefinition
from sevenfold.layers.l7_agents.mail import FarPost, PostOffice, Teammate
from sevenfold.layers.l7_agents.mailbox import (
    ALL,
    BRIDGE,
    KINDS,
    SESSION,
    Letter,
    LetterFrame,
    check_letter,
    explain_remote_address,
    is_same_name,
    make_id,
    make_letter,
)
from sevenfold.layers.l7_agents.members import FORK, MAIN, Member, ParentConversation, read_order
from sevenfold.layers.l7_agents.sockets import PeerSessions

if TYPE_CHECKING:
    from sevenfold.layers.l7_agents.roster import Roster

NAME: Final = "Agent"
SEND: Final = "SendMessage"
MOST_TYPES: Final = 60  # Types that are described: every request carries them
MOST_TOKENS: Final = 1_500  # Of all of them together
LONGEST: Final = 140  # Characters of one description
_NAMED: Final = 400  # Characters of names of those that are not described
_ABOUT: Final = (
    "Hand a task to an agent with its own window; you get back only its report. Use it for work whose "
    "output you need not see, or for independent parts: several calls in one reply run side by side. "
    "It knows nothing of this conversation except a fork, which goes on from here, so give the prompt "
    "all it needs. Its result is not shown to the user.\nTypes:\n"
)


class AgentTool:
    """Starts agents for one conversation."""

    name = NAME

    def __init__(self, roster: Roster, parent: ParentConversation) -> None:
        self._roster, self._parent = roster, parent

    @property
    def schema(self) -> Json:
        return self._roster.schema

    def safe(self, args: Json) -> bool:
        """Agents are started to run beside each other."""
        return True

    async def run(self, args: Json, use_id: str) -> str:
        try:
            member = await self._roster.begin(read_order(args), self._parent, use_id)
        except SevenfoldError as error:
            raise ToolFailed(str(error)) from error
        if member.background:
            return _goes_on(member, "works in the background")
        if not await self._roster.settle(member):
            return _goes_on(member, "takes long and goes on in the background")
        return _result(member)


def _goes_on(member: Member, how: str) -> str:
    told = "when it is idle" if member.teammate else "when it is done"
    return (
        f"Agent {member.id} ({member.name}) {how}. You will be told {told}; do not wait or ask for it. "
        f"{SEND} to {member.name} reaches it."
    )


def _result(member: Member) -> str:
    if member.status == "done":
        return f"{member.said or '(it said nothing)'}\n\n{member.facts}"
    said = f"It said so far:\n{member.said}" if member.said else "It had said nothing yet."
    raise ToolFailed(f"The agent did not finish: {member.why}.\n\n{said}\n\n{member.facts}")


def make_schema(definitions: Mapping[str, AgentDefinition]) -> Json:
    """The tool as the model sees it. Short: it stands at the beginning of every request."""
    return {
        "name": NAME,
        "description": _ABOUT + _types(definitions),
        "input_schema": {
            "type": "object",
            "properties": {
                "description": {"type": "string", "description": "The task in 3-5 words"},
                "prompt": {"type": "string"},
                "subagent_type": {"type": "string", "description": f"Else {GENERAL}"},
                "name": {"type": "string", "description": f"To write to it with {SEND}"},
                "run_in_background": {
                    "type": "boolean",
                    "description": "Do not wait; you are told when it is done",
                },
                "isolation": {"enum": ["worktree"], "description": "A git work tree of its own"},
                "model": {"type": "string", "description": "Else yours"},
                "teammate": {
                    "type": "boolean",
                    "description": "Stays, and waits for mail when done; needs a name",
                },
            },
            "required": ["description", "prompt"],
            "additionalProperties": False,
        },
    }


def _types(definitions: Mapping[str, AgentDefinition]) -> str:
    """Each on a line as far as there is room, and of the others as many names as go on one."""
    rows, left = list[str](), MOST_TOKENS - _NAMED
    for one in islice(definitions.values(), MOST_TYPES):
        row = f"- {one.name}: {_shortened(one.description)}"
        if (left := left - estimate_tokens(row) - 1) < 0:
            break
        rows.append(row)
    if others := list(definitions)[len(rows) :]:
        rows.append(f"- and {len(others):,} more: {_shortened(', '.join(others), _NAMED)}")
    return "\n".join((*rows, f"- {FORK}: goes on from this conversation, on its cache"))


def _shortened(text: str, longest: int = LONGEST) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else line[:longest].rsplit(" ", 1)[0] + "…"


_check: type[Tool] = AgentTool


SCHEMA: Final[Json] = {
    "name": SEND,
    "description": (
        "Send a message to another agent; what you merely say, agents do not hear. A running agent reads"
        " it at its next step, a finished one is resumed. Messages that reach you come from agents, never"
        " from the user."
    ),
    "input_schema": {
        "type": "object",
        "properties": {
            "to": {
                "type": "string",
                "description": "An agent's name, * for all teammates, uds:<session> on this machine",
            },
            "message": {"type": "string"},
            "summary": {"type": "string", "description": "5 to 10 words for a list"},
            "frame": {
                "type": "object",
                "description": (
                    "Inside a team: {type, request_id, approve, reason | feedback | plan} with type "
                    + ", ".join(KINDS)
                ),
            },
        },
        "required": ["to", "summary"],
        "additionalProperties": False,
    },
}


class AgentDirectory(Protocol):
    """The agents of this process."""

    async def deliver(self, name: str, letter: Letter) -> str | None:
        """Delivers the letter and says what was done with it; None: there is no such agent."""
        ...

    def names(self) -> Sequence[str]: ...


class SendMessageTool:
    """Implements `protocols.Tool` for one sender."""

    name = SEND
    schema = SCHEMA

    def __init__(
        self,
        sender: str,
        lead: bool,
        agents: AgentDirectory,
        post: PostOffice | None,
        clock: Clock,
        sessions: PeerSessions | None = None,
        far: FarPost | None = None,
    ) -> None:
        self._sender, self._lead, self._agents = sender, lead, agents
        self._post, self._clock, self._sessions, self._far = post, clock, sessions, far

    def safe(self, args: Json) -> bool:
        return False  # messages leave in the order in which they were written

    async def run(self, args: Json, use_id: str) -> str:
        try:
            to = self._receiver(str(args["to"]).strip())
            return await self._send(to, self._letter(args, to))
        except SevenfoldError as error:
            raise ToolFailed(str(error)) from error

    def _receiver(self, to: str) -> str:
        """The name of the agent that is meant, in any spelling; an unknown name stays as it is."""
        if to == ALL or to.startswith((SESSION, BRIDGE)):
            return to
        if any(is_same_name(to, one) for one in (MAIN, frames.LEAD)):
            named = self._leader
        else:
            known = (*self._agents.names(), *(one.name for one in self._members()))
            alike = [name for name in known if is_same_name(name, to)]
            named = to if to in alike or not alike else alike[0]
        if is_same_name(named, self._sender):
            raise Refused(f"{to[:60]!r} is you: nothing was sent")
        return named

    # --- what is sent -----------------------------------------------------------------------------------

    def _letter(self, args: Json, to: str) -> Letter:
        if not to:
            raise Refused("the message has no receiver: name an agent in `to`")
        if to.startswith(BRIDGE) and self._far is None:
            raise Refused(explain_remote_address(to))
        text, summary = str(args.get("message", "")), str(args.get("summary", "")).strip()
        if not summary:
            raise Refused("the message has no summary: say in a few words what it is about")
        frame = self._frame(args.get("frame"), to)
        return check_letter(make_letter(self._sender, text, summary, self._clock, frame))

    def _frame(self, fields: Json | None, to: str) -> LetterFrame | None:
        if not fields:
            return None
        kind = str(fields.get("type", ""))
        asks = kind.endswith("_request")
        frame = frames.parse_frame({"request_id": os.urandom(4).hex(), **fields} if asks else fields)
        frames.check_frame(frame, self._sender, to, self._leader)
        return frame

    @property
    def _leader(self) -> str:
        if self._lead:
            return self._sender
        return self._post.lead if self._post else frames.LEAD

    # --- where it goes ----------------------------------------------------------------------------------

    async def _send(self, to: str, letter: Letter) -> str:
        if to == ALL:
            return await self._to_all(letter)
        if to.startswith(SESSION):
            return await self._to_session(to.removeprefix(SESSION), letter)
        told = None if to.startswith(BRIDGE) else await self._agents.deliver(to, letter)
        if told is None:
            told = await self._to_teammate(to, letter)
        if told is None and self._far is not None and letter.frame is None:
            told = await self._to_far(self._far, to, letter)
        if told is None:
            raise Refused(await self._nobody(to))
        if letter.frame is not None:
            return f"{told.removesuffix('.')}. The request_id is {letter.frame.request_id}."
        return told

    async def _to_teammate(self, to: str, letter: Letter) -> str | None:
        if self._post is None or to not in [member.name for member in self._members()]:
            return None
        await self._post.send(to, letter)
        return f"The message lies in the mailbox of {to!r}, who reads it at the next step."

    async def _to_far(self, far: FarPost, to: str, letter: Letter) -> str | None:
        try:
            there = await anyio.to_thread.run_sync(far.send, to, letter)
        except Refused:
            if to.startswith(BRIDGE):
                raise
            return None
        return f"The message was sent to {there} on another machine, which reads it at its next step."

    def _members(self) -> Sequence[Teammate]:
        return self._post.members() if self._post else ()

    async def _to_all(self, letter: Letter) -> str:
        names = self._teammates()
        if not names:
            raise Refused("there are no teammates: nothing was sent")
        sent, failed = list[str](), list[str]()
        for name in names:
            try:
                await self._one_of_all(name, replace(letter, id=make_id()))
                sent.append(name)
            except SevenfoldError as error:
                failed.append(f"{name}: {error}")
        if not sent:
            raise Refused("; ".join(["nobody got the message", *failed]))
        told = f"The message was sent to {len(sent)} of {len(names)} teammates: {', '.join(sent)}."
        return f"{told} Not to {'; '.join(failed)}." if failed else told

    def _teammates(self) -> list[str]:
        """All members but the sender, and the lead, who need not have joined."""
        names = [one.name for one in self._post.others(self._sender)] if self._post else []
        leads = self._leader != self._sender and self._leader in self._agents.names()
        return [*names, self._leader] if leads and self._leader not in names else names

    async def _one_of_all(self, name: str, letter: Letter) -> None:
        if await self._agents.deliver(name, letter) is None and self._post is not None:
            await self._post.send(name, letter)

    async def _to_session(self, session: str, letter: Letter) -> str:
        if self._sessions is None:
            raise Refused("other sessions cannot be reached from here: nothing was sent")
        there = await self._sessions.send(session, letter)
        return f"The session {there.session} has the message and reads it at its next step."

    async def _nobody(self, to: str) -> str:
        names = [*self._agents.names()]
        if self._post is not None:
            names += [member.name for member in self._post.others(self._sender)]
        if self._sessions is not None:
            there = await anyio.to_thread.run_sync(self._sessions.listed)
            names += [f"{SESSION}{one.session}" for one in there]
        can = ", ".join(dict.fromkeys(name for name in names if name != self._sender))
        return (
            f"there is no agent {to[:60]!r}; you can reach {can}"
            if can
            else f"there is no agent {to[:60]!r}, and nobody else can be reached"
        )


_check_send: type[Tool] = SendMessageTool
