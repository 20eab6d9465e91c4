"""The Agent tool: hands a task to a conversation of its own and gives back what that one said last."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from sevenfold.core.errors import SevenfoldError
from sevenfold.core.messages import Json
from sevenfold.core.protocols import Tool, ToolFailed
from sevenfold.core.tokens import estimate_tokens
from sevenfold.layers.l7_agents.definitions import GENERAL, AgentDefinition
from sevenfold.layers.l7_agents.members import FORK, Member, ParentConversation, read_order
from sevenfold.layers.l7_agents.send_message import NAME as SEND

if TYPE_CHECKING:
    from sevenfold.layers.l7_agents.roster import Roster

NAME: Final = "Agent"
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
