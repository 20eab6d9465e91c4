"""The contract with hook scripts, as values: their settings, and the meaning of their answers.

It is the contract that existing scripts are written for. Exit 0: the output counts, as JSON (`{…}`)
or, where context can be added, as plain text. Exit 2: refused, and stderr is the reason. Anything else,
and a timeout, is shown and changes nothing.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from sevenfold.core.messages import Json

TIMEOUT: Final = 60.0
MOST_OUTPUT: Final = 1_000_000
"""Most bytes of stdout, and of stderr, that are kept; the rest is read and dropped."""
MOST_TOLD: Final = 100_000
"""Most characters of a tool's result that a hook gets: commands may print many megabytes."""


# --- settings -------------------------------------------------------------------------------------------


class HookCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One command of the user."""

    type: Annotated[str, Meta(description="Only `command` is run.", examples=["command"])] = "command"
    command: Annotated[str, Meta(description="Run by `sh -c`.", examples=["./check.sh"])] = ""
    timeout: Annotated[
        float, Meta(gt=0, description="Seconds; then it and all it started are ended.", examples=[60])
    ] = TIMEOUT


class HookMatcher(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Commands, and the names they run for."""

    matcher: Annotated[
        str,
        Meta(
            description="A regular expression for the whole name; empty or `*`: every one.",
            examples=["Edit|Write"],
        ),
    ] = ""
    hooks: Annotated[
        tuple[HookCommand, ...],
        Meta(
            description="The commands; they run side by side.",
            examples=[[{"type": "command", "command": "./check.sh"}]],
        ),
    ]

    def matches(self, name: str) -> bool:
        return self.matcher in ("", "*") or re.fullmatch(self.matcher, name) is not None


Matchers: TypeAlias = tuple[HookMatcher, ...]
_EXAMPLE: Final = [{"matcher": "", "hooks": [{"type": "command", "command": "./check.sh"}]}]


def _describe_moment(description: str) -> Meta:
    return Meta(description=description, examples=[_EXAMPLE])


class HookEvents(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True):
    """The hooks of each moment."""

    session_start: Annotated[
        Matchers,
        _describe_moment(
            "A session opens; matched on `startup`, `resume`, `clear` or `compact`. Adds context."
        ),
    ] = ()
    user_prompt_submit: Annotated[
        Matchers, _describe_moment("The user said something. Adds context, or refuses the prompt.")
    ] = ()
    pre_tool_use: Annotated[
        Matchers,
        _describe_moment("Before a tool; matched on its name. Allows, asks, refuses or changes the input."),
    ] = ()
    post_tool_use: Annotated[
        Matchers,
        _describe_moment("After a tool that worked; matched on its name. Adds to what the model reads."),
    ] = ()
    pre_compact: Annotated[
        Matchers,
        _describe_moment("Before a compaction; matched on `manual` or `auto`. Adds to it or refuses."),
    ] = ()
    post_compact: Annotated[
        Matchers, _describe_moment("After a compaction; matched on `manual` or `auto`.")
    ] = ()
    stop: Annotated[Matchers, _describe_moment("A turn is about to end. Refusing makes it go on.")] = ()
    subagent_stop: Annotated[
        Matchers, _describe_moment("The same for a sub-agent; matched on its type.")
    ] = ()
    session_end: Annotated[Matchers, _describe_moment("A session closes; matched on the reason.")] = ()
    notification: Annotated[
        Matchers, _describe_moment("The user is told something; matched on the kind of notification.")
    ] = ()


_ADDS_TEXT: Final = frozenset({"SessionStart", "UserPromptSubmit"})
"""Events whose plain output is context for the model."""
_CAN_REFUSE: Final = frozenset(
    {"UserPromptSubmit", "PreToolUse", "PostToolUse", "PreCompact", "Stop", "SubagentStop"}
)
MATCHED_ON: Final = {
    "SessionStart": "source",
    "PreToolUse": "tool_name",
    "PostToolUse": "tool_name",
    "PreCompact": "trigger",
    "PostCompact": "trigger",
    "SubagentStop": "agent_type",
    "SessionEnd": "reason",
    "Notification": "notification_type",
}


def shorten_for_hook(text: str) -> str:
    """A text as a hook gets it; of a long one both ends and a note between them."""
    if len(text) <= MOST_TOLD:
        return text
    half = (MOST_TOLD - 100) // 2  # the rest is for the note
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


# --- answers --------------------------------------------------------------------------------------------


class HookOutcome(msgspec.Struct, frozen=True):
    """The combined answer of all hooks of one moment."""

    block: bool = False
    reason: str = ""  # The reason of a refusal: for the model, but after `UserPromptSubmit` for the user
    stop: bool = False  # The session is to stop here; `reason` is for the user
    contexts: tuple[str, ...] = ()
    permission: str | None = None  # `allow`, `ask` or `deny`, for a tool that is about to run
    permission_reason: str = ""
    updated_input: Json | None = None
    messages: tuple[str, ...] = ()  # Messages for the user; they were shown when the hook had run


NOTHING: Final = HookOutcome()
_STRICT: Final = ("deny", "ask", "allow")


def combine_outcomes(outcomes: list[HookOutcome]) -> HookOutcome:
    """Combine: deny beats ask beats allow; contexts in the order of the settings."""
    changed = [o for o in outcomes if o.updated_input is not None]
    said = {o.permission for o in outcomes}
    permission = next((p for p in _STRICT if p in said), None)
    if permission == "allow" and changed and changed[-1].permission != "allow":
        permission = None  # the allowed input is not the one that would run
    return HookOutcome(
        block=any(o.block for o in outcomes),
        reason="\n".join(o.reason for o in outcomes if o.reason),
        stop=any(o.stop for o in outcomes),
        contexts=tuple(text for o in outcomes for text in o.contexts),
        permission=permission,
        permission_reason="\n".join(
            o.permission_reason for o in outcomes if o.permission == permission and o.permission_reason
        ),
        updated_input=changed[-1].updated_input if changed else None,
        messages=tuple(text for o in outcomes for text in o.messages),
    )


class _HookSpecificOutput(msgspec.Struct, rename="camel"):
    hook_event_name: str | None = None
    additional_context: str | None = None
    permission_decision: str | None = None
    permission_decision_reason: str | None = None
    updated_input: Json | None = None


class _HookOutput(msgspec.Struct, rename="camel"):
    go_on: bool | None = msgspec.field(default=None, name="continue")
    stop_reason: str | None = None
    decision: str | None = None
    reason: str | None = None
    system_message: str | None = None
    hook_specific_output: _HookSpecificOutput | None = None


def _parse_output(event: str, said: _HookOutput) -> HookOutcome:
    more = said.hook_specific_output or _HookSpecificOutput()
    if more.hook_event_name not in (None, event):
        more = _HookSpecificOutput()  # meant for another moment
    messages = (said.system_message,) if said.system_message else ()
    contexts = (more.additional_context,) if more.additional_context else ()
    outcome = HookOutcome(contexts=contexts, messages=messages)
    if said.go_on is False:
        why = said.stop_reason or said.reason or "a hook ended it"
        return replace(outcome, stop=True, reason=why)
    if event == "PreToolUse":
        older = {"approve": "allow", "block": "deny"}.get(said.decision or "")
        decision = more.permission_decision or older
        why = more.permission_decision_reason or said.reason or ""
        return replace(
            outcome,
            block=decision == "deny",
            reason=why if decision == "deny" else "",
            permission=decision if decision in _STRICT else None,
            permission_reason=why,
            updated_input=more.updated_input,
        )
    if said.decision == "block" and event in _CAN_REFUSE:
        return replace(outcome, block=True, reason=said.reason or NO_REASON)
    return outcome


NO_REASON: Final = "a hook refused and gave no reason"


class HookRun(msgspec.Struct, frozen=True):
    """The exit code and the output of a hook."""

    code: int | None = None  # None: it did not end in time
    out: str = ""
    err: str = ""
    cut: bool = False  # True if its output was longer than `MOST_OUTPUT`


def judge_hook_run(event: str, hook: HookCommand, ran: HookRun) -> tuple[str, HookOutcome]:
    """The result in one word, and the outcome."""
    if ran.code is None:
        said = f"{event} hook was ended after {hook.timeout:g} s: {shorten_message(hook.command)}"
        return "timeout", HookOutcome(messages=(said,))
    if ran.code == 2:
        why = ran.err or NO_REASON
        if event not in _CAN_REFUSE:
            return "failed", HookOutcome(messages=(f"{event} hook: {why}",))
        if event == "PreToolUse":
            return "blocked", HookOutcome(block=True, reason=why, permission="deny", permission_reason=why)
        return "blocked", HookOutcome(block=True, reason=why)
    if ran.code != 0:
        said = f"{event} hook failed with exit code {ran.code}: {shorten_message(ran.err or hook.command)}"
        return "failed", HookOutcome(messages=(said,))
    if ran.out.startswith("{"):
        return _judge_json(event, ran)
    return "ok", HookOutcome(contexts=(ran.out,) if ran.out and event in _ADDS_TEXT else ())


def _judge_json(event: str, ran: HookRun) -> tuple[str, HookOutcome]:
    try:
        outcome = _parse_output(event, msgspec.json.decode(ran.out, type=_HookOutput))
    except (msgspec.DecodeError, RecursionError) as error:
        why = f"it is longer than {MOST_OUTPUT:,} bytes" if ran.cut else str(error)
        said = f"{event} hook answered with JSON that cannot be used, so it was ignored: {why}"
        return "malformed", HookOutcome(messages=(said,))
    return "blocked" if outcome.block or outcome.stop else "ok", outcome


def shorten_message(text: str) -> str:
    return text if len(text) <= 200 else text[:199] + "…"
