"""The toolbox of a session: checks arguments against the schema, asks the gate, runs the tool.

`ToolGate` decides about each call: first the permission rules, then the user.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter
from typing import Any, Final, Literal, TypeAlias

import anyio
import msgspec

from sevenfold.core.errors import Mistake, StorageFailure
from sevenfold.core.events import Denied, Emit
from sevenfold.core.messages import Block, Json, Text, ToolResult, ToolUse, strip_half_characters
from sevenfold.core.protocols import Tool, ToolFailed, Tools
from sevenfold.tools.bash_tool import BashTool
from sevenfold.tools.file_tools import EditTool, ReadTool, WriteTool
from sevenfold.tools.permissions import PermissionDecision, Permissions, find_refusal_rules
from sevenfold.tools.search_tools import GlobTool, GrepTool
from sevenfold.tools.workspace import Workspace

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_SHOWN: Final = 60


def clean_arguments(value: Any) -> Any:
    """The same value without lone surrogates, which files and command lines cannot hold."""
    if isinstance(value, str):
        return strip_half_characters(value)
    if isinstance(value, dict):
        return {strip_half_characters(key): clean_arguments(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_arguments(item) for item in value]
    return value


def find_argument_problem(schema: Json, args: Json) -> str | None:
    """The error in these arguments, in one sentence that names the field; None: there is none.

    Only the plain part of JSON Schema is checked; the tool itself checks the rest.
    """
    properties: Json = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in args:
            return f"the field {name} is missing; it takes {_describe_type(properties.get(name, {}))}"
    for name, value in args.items():
        if name not in properties:
            if schema.get("additionalProperties", True) is False:
                return f"there is no field {name}; the fields are {', '.join(properties)}"
        elif wrong := _find_mismatch(properties[name], value):
            return f"the field {name} takes {_describe_type(properties[name])}, not {wrong}"
    return None


def _find_mismatch(schema: Json, value: Any) -> str | None:
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        fits = isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
        if not fits:
            return _shorten_repr(value)
    if "enum" in schema and value not in schema["enum"]:
        return _shorten_repr(value)
    if "minimum" in schema and isinstance(value, int | float) and value < schema["minimum"]:
        return _shorten_repr(value)
    return None


def _describe_type(schema: Json) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    kind = schema.get("type", "a value")
    article = "an" if str(kind)[0] in "aeio" else "a"
    least = f" of at least {schema['minimum']}" if "minimum" in schema else ""
    return f"{article} {kind}{least}" if kind != "a value" else "a value"


def _shorten_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


ApproveCall: TypeAlias = Callable[[ToolUse], Awaitable[str | None]]
"""Called before a tool runs: None allows it, a text is the reason for a refusal."""
_NUL: Final = "\N{SYMBOL FOR NULL}"


def check_tools(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """The same tools; raises `Mistake` if one of them is no tool."""
    given = tuple(tools)
    for tool in given:
        lacks = [name for name in ("name", "schema", "safe", "run") if not hasattr(tool, name)]
        schema: object = None if lacks else tool.schema
        if not lacks and not (isinstance(schema, dict) and "input_schema" in schema):
            lacks = ["'input_schema' in its schema"]
        if lacks:
            raise Mistake(
                f"{tool!r} is no tool, it lacks {', '.join(lacks)}: a tool has a name, a schema (name, "
                "description, input_schema), safe(args) and async run(args, use_id)"
            )
    return given


class Toolbox:
    """Implements `protocols.Tools`. A call is always answered; only cancellation leaves it."""

    def __init__(self, tools: Iterable[Tool], gate: ApproveCall, emit: Emit) -> None:
        self._gate, self._emit = gate, emit
        self._seconds: dict[str, float] = {}
        self.set_tools(tools)

    def set_tools(self, tools: Iterable[Tool]) -> None:
        """From now on these are the tools; a call that runs goes on."""
        self._tools = {tool.name: tool for tool in tools}

    @property
    def schemas(self) -> tuple[Json, ...]:
        """The schemas for the request, in a fixed order."""
        return tuple(tool.schema for tool in self._tools.values())

    def safe(self, use: ToolUse) -> bool:
        """True if the call may run beside others; also if it will only be refused."""
        tool, args = self._tools.get(use.name), clean_arguments(use.input)
        if tool is None or find_argument_problem(tool.schema["input_schema"], args):
            return True
        return tool.safe(args)

    async def call(self, use: ToolUse) -> ToolResult:
        tool = self._tools.get(use.name)
        if tool is None:
            names = ", ".join(self._tools) or "none"
            return _make_failure(use, f"there is no tool {use.name}; the tools are: {names}")
        use = msgspec.structs.replace(use, input=clean_arguments(use.input))
        if wrong := find_argument_problem(tool.schema["input_schema"], use.input):
            return _make_failure(use, f"{use.name} was not run: {wrong}")
        if (reason := await self._gate(use)) is not None:
            self._emit(Denied(use, reason))
            return _make_failure(use, f"{use.name} was not run: {reason}")
        began = perf_counter()
        try:
            return ToolResult(use.id, _clean_result(await tool.run(use.input, use.id)))
        except (ToolFailed, StorageFailure) as error:
            return _make_failure(use, str(error))
        except OSError as error:
            return _make_failure(use, f"{use.name} did not work: {_describe_os_error(error)}")
        finally:
            self._seconds[use.id] = perf_counter() - began

    def take_seconds(self, use_id: str) -> float | None:
        """The time that the tool of a call took, without questions; None if it did not run. Once."""
        return self._seconds.pop(use_id, None)


def _make_failure(use: ToolUse, why: str) -> ToolResult:
    return ToolResult(use.id, _clean_text(why), True)


def _clean_result(content: str | tuple[Block, ...]) -> str | tuple[Block, ...]:
    if isinstance(content, str):
        return _clean_text(content)
    return tuple(
        msgspec.structs.replace(block, text=_clean_text(block.text)) if isinstance(block, Text) else block
        for block in content
    )


def _clean_text(text: str) -> str:
    return strip_half_characters(text).replace("\0", _NUL)


def _describe_os_error(error: OSError) -> str:
    why = (error.strerror or str(error) or type(error).__name__).lower()
    return f"{why}: {error.filename}" if error.filename else why


_check: type[Tools] = Toolbox


def make_standard_tools(workspace: Workspace) -> list[Tool]:
    """Read, Write, Edit, Bash, Grep and Glob over one workspace."""
    return [
        ReadTool(workspace),
        WriteTool(workspace),
        EditTool(workspace),
        BashTool(workspace),
        GrepTool(workspace),
        GlobTool(workspace),
    ]


class PermissionQuestion(msgspec.Struct, frozen=True):
    """A call that the user is asked about, and the rules that settle it for the future."""

    use: ToolUse
    reason: str
    workspace: Workspace  # Where the call would run: an agent may have a folder of its own
    always: tuple[str, ...] = ()  # Allow rules that "always" adds
    never: tuple[str, ...] = ()  # Deny rules that "never" adds


class RefusalReason(msgspec.Struct, frozen=True):
    """No, and the user's reason, which the model is told."""

    why: str


PermissionAnswer: TypeAlias = bool | Literal["always", "never"] | RefusalReason
AskPermission: TypeAlias = Callable[[PermissionQuestion], Awaitable[PermissionAnswer]]
"""Asks the user."""


class ToolGate:
    """Decides about a call: None allows it, a text is the reason. Questions are asked one at a time."""

    def __init__(
        self, permissions: Permissions, workspace: Workspace, ask: AskPermission | None = None
    ) -> None:
        self.permissions, self._workspace, self._ask = permissions, workspace, ask
        self._asking = anyio.Lock()
        self._who = ""
        self._asks: Callable[[], bool] = lambda: True
        self._approved: set[str] = set()
        self._confirm: dict[str, str] = {}
        # A file that may not be read is not found by searching either.
        workspace.hidden = lambda path: permissions.is_hidden(path, workspace)
        workspace.readable, workspace.writable = permissions.list_folders(workspace)

    def make_agent_gate(
        self, permissions: Permissions, workspace: Workspace, who: str, asks: Callable[[], bool]
    ) -> ToolGate:
        """The gate of an agent: it asks the same user, one question at a time, with the agent's name.

        `asks`: True while a user can be asked.
        """
        gate = ToolGate(permissions, workspace, self._ask)
        gate._asking, gate._who, gate._asks = self._asking, who, asks
        return gate

    def approve(self, use_id: str) -> None:
        """Allow this call without a question: a hook has allowed it."""
        self._approved.add(use_id)

    def confirm(self, use_id: str, why: str) -> None:
        """Ask the user about this call, even if rules allow it."""
        self._confirm[use_id] = why

    def forget(self, use_id: str) -> None:
        """Forget a call that is over: approvals must not hold for another with the same id."""
        self._approved.discard(use_id)
        self._confirm.pop(use_id, None)

    def decide(self, use: ToolUse) -> PermissionDecision:
        """The decision of the rules, with approvals and confirmations applied."""
        decision = self.permissions.decide(use, self._workspace)
        why = self._confirm.get(use.id)
        if why is not None and decision.behaviour == "allow":
            return PermissionDecision("ask", why)
        if why is None and use.id in self._approved and decision.behaviour == "ask":
            return msgspec.structs.replace(decision, behaviour="allow", reason="it was approved")
        return decision

    async def __call__(self, use: ToolUse) -> str | None:
        try:
            return await self._decide_or_ask(use)
        finally:
            self.forget(use.id)

    async def _decide_or_ask(self, use: ToolUse) -> str | None:
        decision = self.decide(use)
        if decision.behaviour == "ask" and self._ask is not None and self._asks():
            async with self._asking:
                decision = self.decide(use)  # "always" to the question before may decide this one
                if decision.behaviour == "ask":
                    return await self._ask_user(use, decision, self._ask)
        if decision.behaviour == "allow":
            self._note_approval(use, given=not decision.unasked)
            return None
        return decision.reason if decision.behaviour == "deny" else _explain_unasked(decision)

    async def _ask_user(self, use: ToolUse, decision: PermissionDecision, ask: AskPermission) -> str | None:
        why = f"{self._who}: {decision.reason}" if self._who else decision.reason
        never = find_refusal_rules(use, self._workspace)
        answer = await ask(PermissionQuestion(use, why, self._workspace, decision.remedies, never))
        if answer == "never":
            for rule in never:
                self.permissions.add_rule("deny", rule)
            return "the person said never to it: do not try it again"
        if isinstance(answer, RefusalReason):
            return f"the person said no to it, because: {answer.why}"
        if not answer:
            return "the person said no to it"
        if answer == "always":
            for rule in decision.remedies:
                self.permissions.allow(rule)
        self._note_approval(use, given=True)
        return None

    def _note_approval(self, use: ToolUse, *, given: bool) -> None:
        """What was approved runs as it is; the rest runs in the sandbox."""
        if use.name == "Bash":
            (self._workspace.approved.add if given else self._workspace.approved.discard)(use.id)


def _explain_unasked(decision: PermissionDecision) -> str:
    if not decision.remedies:
        return f"{decision.reason}; it must be confirmed, and nobody is here to be asked"
    rules = " ".join(f"--allow {_quote_rule(rule)}" for rule in decision.remedies)
    return (
        f"{decision.reason}; nobody is here to be asked. To allow it, start with {rules}, or name it in "
        "permissions.allow of the settings"
    )


def _quote_rule(rule: str) -> str:
    return "'" + rule.replace("'", "'\\''") + "'"
