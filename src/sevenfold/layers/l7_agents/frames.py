"""Frames: the few messages between agents of a team that mean something to the program too.

    shutdown_request        somebody asks an agent to end
    shutdown_response       the agent agrees, or says why not; only the lead is told
    plan_approval_request   an agent shows what it wants to do
    plan_approval_response  the lead agrees, or says what to change

Each carries the `request_id` by which an answer finds its question. `check` holds the rules.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from sevenfold.errors import Refused
from sevenfold.messages import Json

ALL: Final = "*"
"""The address of all teammates."""
SESSION: Final = "uds:"
"""How the address of another session on this machine begins."""
BRIDGE: Final = "bridge:"
"""How the address of something on another machine would begin."""
LEAD: Final = "lead"
"""What the conversation that leads a team is called in it."""
LONGEST_ID: Final = 64
LONGEST_WORDS: Final = 16_000
"""Characters of a reason, of feedback and of a plan."""


class ShutdownRequest(msgspec.Struct, frozen=True, tag_field="type", tag="shutdown_request"):
    request_id: str
    reason: str = ""


class ShutdownResponse(msgspec.Struct, frozen=True, tag_field="type", tag="shutdown_response"):
    request_id: str
    approve: bool
    reason: str = ""


class PlanApprovalRequest(
    msgspec.Struct, frozen=True, tag_field="type", tag="plan_approval_request"
):
    request_id: str
    plan: str = ""


class PlanApprovalResponse(
    msgspec.Struct, frozen=True, tag_field="type", tag="plan_approval_response"
):
    request_id: str
    approve: bool
    feedback: str = ""


Frame: TypeAlias = ShutdownRequest | ShutdownResponse | PlanApprovalRequest | PlanApprovalResponse
KINDS: Final = (
    "shutdown_request",
    "shutdown_response",
    "plan_approval_request",
    "plan_approval_response",
)


def kind_of(frame: Frame) -> str:
    return str(frame.__struct_config__.tag)


def words_of(frame: Frame) -> str:
    """The reason, feedback or plan that it carries."""
    match frame:
        case PlanApprovalRequest(plan=plan):
            return plan
        case PlanApprovalResponse(feedback=feedback):
            return feedback
        case _:
            return frame.reason


def approval_of(frame: Frame) -> bool | None:
    """What an answer says; None of what is no answer."""
    return frame.approve if isinstance(frame, ShutdownResponse | PlanApprovalResponse) else None


def frame_from(fields: Json) -> Frame:
    """A frame as a model or a file gives it; `Refused` with what is wrong."""
    kind = fields.get("type")
    if kind not in KINDS:
        raise Refused(
            f"a frame has one of the types {', '.join(KINDS)}, and not {str(kind)[:60]!r}"
        )
    try:
        frame: Frame = msgspec.convert(fields, Frame)
    except msgspec.ValidationError as error:
        raise Refused(f"the frame {kind} is not complete: {error}") from None
    return frame


def check(frame: Frame, sender: str, to: str, lead: str = LEAD) -> None:
    """Raises `Refused` with the rule that this frame would break."""
    kind = kind_of(frame)
    if to == ALL:
        raise Refused(f"{kind} is never sent to all: name one agent")
    if to.startswith((SESSION, BRIDGE)):
        raise Refused(f"{kind} stays inside the team: other sessions take plain messages only")
    if not 0 < len(frame.request_id.strip()) <= LONGEST_ID:
        raise Refused(f"{kind} needs a request_id of at most {LONGEST_ID} characters")
    if len(words_of(frame)) > LONGEST_WORDS:
        raise Refused(f"{kind} says more than {LONGEST_WORDS:,} characters: write them to a file")
    _check_answer(frame, kind, sender, to, lead)


def _check_answer(frame: Frame, kind: str, sender: str, to: str, lead: str) -> None:
    if isinstance(frame, ShutdownResponse) and to != lead:
        raise Refused(f"{kind} goes to the lead only: send it to {lead!r}")
    if isinstance(frame, PlanApprovalResponse) and sender != lead:
        raise Refused(f"only the lead approves plans: {sender!r} is not {lead!r}")
    if approval_of(frame) is False and not words_of(frame).strip():
        said = "feedback" if isinstance(frame, PlanApprovalResponse) else "a reason"
        raise Refused(f"{kind} with approve=false needs {said}")


def elsewhere(to: str) -> str:
    """Why nothing is sent to an address on another machine."""
    return (
        f"{to[:60]!r} is an address on another machine, and messages stay on this one: write to "
        f"an agent by name, or to a session as {SESSION}<session>"
    )


def refused_address(to: str) -> str:
    """Why nothing can be sent there from outside of a session; empty: it may be somebody."""
    if to.startswith(BRIDGE):
        return elsewhere(to)
    if to == ALL:
        return (
            f"{ALL!r} means all teammates of a session, and this is none: write to one of them by name, "
            f"or to a session as {SESSION}<session>"
        )
    return ""
