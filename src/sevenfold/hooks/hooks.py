"""Runs the user's hooks: commands at fixed moments that get JSON and may add, change or refuse.

`hooks/hooks.py` has their input and the meaning of their answers. The settings decide which files may
bring hooks.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from msgspec.structs import replace

from sevenfold.core.events import Denied, Emit, HookRan, Notice
from sevenfold.core.messages import Json, Text, ToolResult, ToolUse
from sevenfold.core.protocols import Tools
from sevenfold.hooks.events import HookCommand, HookEvents, Matchers
from sevenfold.hooks.tool_responses import make_tool_response, read_original, shorten_for_hook

__all__ = ["HookOutcome", "HookedTools", "Hooks"]

GRACE: Final = 1.0
"""Seconds to read on after a hook ended, if a process that it started holds its output open."""


@dataclass(slots=True)
class Hooks:
    """Runs the user's hooks for one session. With none configured it does nothing, at once."""

    configured: HookEvents
    session_id: str
    transcript_path: Path
    project: Path
    cwd_of: Callable[[], Path]  # The working folder of the session now: hooks run there
    environment: Mapping[str, str]  # The environment of hooks, without the name of the project folder
    emit: Emit
    mode_of: Callable[[], str] = lambda: "default"  # The permission mode as it is now
    prompt_id: str = ""  # The id of what the user said last; empty before that
    _by_event: dict[str, Matchers] = field(init=False)

    def __post_init__(self) -> None:
        names = zip(HookEvents.__struct_encode_fields__, HookEvents.__struct_fields__, strict=True)
        pairs = ((event, getattr(self.configured, name)) for event, name in names)
        self._by_event = {event: matchers for event, matchers in pairs if matchers}

    async def run(self, event: str, fields: Json, match: str | None = None) -> HookOutcome:
        """Run the matching hooks of this moment side by side, and combine their outcomes.

        `match` is compared with the matchers; by default it is the field that belongs to the event.
        """
        if event not in self._by_event:
            return NOTHING
        if match is None and event in MATCHED_ON:
            match = str(fields.get(MATCHED_ON[event], ""))
        hooks = self._find_matching(event, match)
        if not hooks:
            return NOTHING
        payload = json.dumps(self._make_shared_fields(event) | fields).encode("ascii")
        outcomes = [NOTHING] * len(hooks)

        async def run_one(i: int, hook: HookCommand) -> None:
            outcomes[i] = await self._run_one(event, hook, payload)

        async with anyio.create_task_group() as tasks:
            for i, hook in enumerate(hooks):
                tasks.start_soon(run_one, i, hook)
        return combine_outcomes(outcomes)

    def _find_matching(self, event: str, match: str | None) -> list[HookCommand]:
        """Each command once, even when several matchers name it. None: this event has no matchers."""
        found: dict[str, HookCommand] = {}
        for matcher in self._by_event[event]:
            if match is None or matcher.matches(match):
                for hook in matcher.hooks:
                    if hook.type == "command":
                        found.setdefault(hook.command, hook)
        return list(found.values())

    def _make_shared_fields(self, event: str) -> Json:
        return {
            "session_id": self.session_id,
            "transcript_path": str(self.transcript_path),
            "cwd": str(self.cwd_of()),
            **({"prompt_id": self.prompt_id} if self.prompt_id else {}),
            "permission_mode": self.mode_of(),
            "hook_event_name": event,
        }

    async def _run_one(self, event: str, hook: HookCommand, payload: bytes) -> HookOutcome:
        try:
            ran = await self._execute(hook, payload)
        except (OSError, ValueError) as error:  # no such folder, no shell, a NUL in the command
            said = f"{event} hook could not be started: {error}"
            how, outcome = "failed", HookOutcome(messages=(said,))
        else:
            how, outcome = judge_hook_run(event, hook, ran)
        said = "\n".join(filter(None, (outcome.reason, *outcome.messages)))
        self.emit(HookRan(event, shorten_message(hook.command), how, said))
        level = "info" if how in ("ok", "blocked") else "warning"
        for text in outcome.messages:
            self.emit(Notice(text, level))
        return outcome

    def has_hooks(self, event: str) -> bool:
        """True if any hook is configured for this moment."""
        return event in self._by_event

    async def notify(self, kind: str, text: str) -> tuple[()]:
        """Run the `Notification` hooks; it is work for the background."""
        await self.run("Notification", {"message": text, "notification_type": kind})
        return ()

    async def _execute(self, hook: HookCommand, payload: bytes) -> HookRun:
        names = ("CLAUDE_PROJECT_DIR", "SEVENFOLD_PROJECT_DIR")
        # Shielded: a cancellation here would end only the shell, not the processes it has started.
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                ["/bin/sh", "-c", hook.command],
                cwd=self.cwd_of(),
                env={**self.environment, **dict.fromkeys(names, str(self.project))},
                start_new_session=True,
            )
        out, err, code = _CappedOutput(), _CappedOutput(), None
        try:
            with anyio.move_on_after(hook.timeout):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_send_payload, process.stdin, payload)
                    tasks.start_soon(out.read_stream, process.stdout)
                    tasks.start_soon(err.read_stream, process.stderr)
                    code = await process.wait()
                    tasks.cancel_scope.deadline = anyio.current_time() + GRACE
        finally:
            await _end_process(process)
        return HookRun(code, out.text, err.text, out.cut or err.cut)


@dataclass(slots=True)
class _CappedOutput:
    """The output of a process so far, up to the limit."""

    data: bytearray = field(default_factory=bytearray)
    cut: bool = False

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace").strip()

    async def read_stream(self, stream: ByteReceiveStream | None) -> None:
        if stream is not None:
            async for part in stream:
                room = MOST_OUTPUT - len(self.data)
                self.data += part[:room]
                self.cut = self.cut or len(part) > room


async def _send_payload(stdin: ByteSendStream | None, payload: bytes) -> None:
    if stdin is not None:
        # A hook need not read what it is given.
        with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await stdin.send(payload)
        await stdin.aclose()


async def _end_process(process: Process) -> None:
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await process.aclose()


# --- around the tools -----------------------------------------------------------------------------------


@dataclass(slots=True)
class HookedTools:
    """Tools with the user's hooks before and after each call."""

    inner: Tools
    hooks: Hooks
    approve: Callable[[str], Any] | None = None
    """Called with the id of a call that a hook allowed: the user is not asked. Deny rules still hold."""
    confirm: Callable[[str, str], Any] | None = None
    """Called with the id of a call that the user must be asked about, and the reason.

    Without it such a call is refused.
    """
    stop: Callable[[str], Any] | None = None
    """Called with the reason when a hook wants the session to stop after this call."""
    forget: Callable[[str], Any] | None = None
    """Called with the id of a call that is over: what was decided about it must not hold for another."""
    take_seconds: Callable[[str], float | None] | None = None
    """Called with the id of a call that is over: the time that the tool took, None if it did not run."""

    def safe(self, use: ToolUse) -> bool:
        return self.inner.safe(use)

    async def call(self, use: ToolUse) -> ToolResult:
        fields: Json = {"tool_name": use.name, "tool_input": use.input, "tool_use_id": use.id}
        before = await self.hooks.run("PreToolUse", fields)
        if refusal := self._find_refusal(use, before):
            self.hooks.emit(Denied(use, refusal))
            return ToolResult(use.id, f"A hook refused this call: {refusal}", True)
        if before.updated_input is not None:
            use = replace(use, input=before.updated_input)
        original = read_original(use, self.hooks.cwd_of()) if self.hooks.has_hooks("PostToolUse") else None
        began = perf_counter()
        try:
            result = await self.inner.call(use)
        finally:
            if self.forget is not None:
                self.forget(use.id)
        taken = perf_counter() - began if self.take_seconds is None else self.take_seconds(use.id)
        fields |= {"tool_input": use.input}
        after = NOTHING
        if taken is not None:
            fields |= {"duration_ms": round(taken * 1000)}
            after = await self._run_after(use, result, fields, original)
        if after.stop:
            self._stop(after.reason)
        said = (after.reason,) if after.block and not after.stop else ()
        return _add_texts(result, (*before.contexts, *said, *after.contexts))

    async def _run_after(
        self, use: ToolUse, result: ToolResult, fields: Json, original: str | None
    ) -> HookOutcome:
        """Run the hooks for a call that worked, or for one that failed."""
        if result.is_error:
            failed = {"error": shorten_for_hook(result.text), "is_interrupt": False}
            return await self.hooks.run("PostToolUseFailure", fields | failed)
        if not self.hooks.has_hooks("PostToolUse"):
            return NOTHING
        response = make_tool_response(use, result, self.hooks.cwd_of(), original)
        return await self.hooks.run("PostToolUse", fields | {"tool_response": response})

    def _find_refusal(self, use: ToolUse, before: HookOutcome) -> str:
        """The reason why hooks refuse this call; empty if they do not."""
        if before.stop:
            self._stop(before.reason)
            return before.reason
        if before.block or before.permission == "deny":
            return before.permission_reason or before.reason or NO_REASON
        if before.permission == "ask":
            why = before.permission_reason or "a hook wants it confirmed"
            if self.confirm is None:
                return f"{why} (it has to be confirmed, and nobody can be asked here)"
            self.confirm(use.id, why)
        if before.permission == "allow" and self.approve is not None:
            self.approve(use.id)
        return ""

    def _stop(self, reason: str) -> None:
        if self.stop is not None:
            self.stop(reason)


def _add_texts(result: ToolResult, added: tuple[str, ...]) -> ToolResult:
    if not added:
        return result
    text = "\n\n".join(f"[said by a hook] {part}" for part in added)
    if isinstance(result.content, str):
        return replace(result, content=f"{result.content}\n\n{text}".lstrip())
    return replace(result, content=(*result.content, Text(text)))


_check: type[Tools] = HookedTools


MOST_OUTPUT: Final = 1_000_000
"""Most bytes of stdout, and of stderr, that are kept; the rest is read and dropped."""


_ADDS_TEXT: Final = frozenset({"SessionStart", "UserPromptSubmit"})
"""Events whose plain output is context for the model."""
_CAN_REFUSE: Final = frozenset(
    {
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "PostToolUseFailure",
        "PreCompact",
        "Stop",
        "SubagentStop",
    }
)
MATCHED_ON: Final = {
    "SessionStart": "source",
    "PreToolUse": "tool_name",
    "PostToolUse": "tool_name",
    "PostToolUseFailure": "tool_name",
    "PreCompact": "trigger",
    "PostCompact": "trigger",
    "SubagentStop": "agent_type",
    "SessionEnd": "reason",
    "Notification": "notification_type",
}


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


def make_prompt_id() -> str:
    """A random UUID, version 4, made without the module `uuid`, whose import takes milliseconds."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def shorten_message(text: str) -> str:
    return text if len(text) <= 200 else text[:199] + "…"
