"""All the tools of a session behind one door: input is checked, the gate is asked, failures are told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias

import msgspec

from sevenfold.errors import Mistake, StorageFailure
from sevenfold.events import Denied, Emit
from sevenfold.messages import Block, Json, Text, ToolResult, ToolUse, whole_characters
from sevenfold.protocols import Tool, ToolFailed, Tools
from sevenfold.tools.arguments import cleaned, problem

Asked: TypeAlias = Callable[[ToolUse], Awaitable[str | None]]
"""Asked before a tool runs: None lets it, a text is why not."""
_NUL: Final = "\N{SYMBOL FOR NULL}"


def checked(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """These tools, if they are tools; else a `Mistake` that says what one lacks."""
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

    def __init__(self, tools: Iterable[Tool], gate: Asked, emit: Emit) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._gate, self._emit = gate, emit

    @property
    def schemas(self) -> tuple[Json, ...]:
        """For the request, in a fixed order."""
        return tuple(tool.schema for tool in self._tools.values())

    def safe(self, use: ToolUse) -> bool:
        """Whether it may run beside others. A call that will only be refused may."""
        tool, args = self._tools.get(use.name), cleaned(use.input)
        if tool is None or problem(tool.schema["input_schema"], args):
            return True
        return tool.safe(args)

    async def call(self, use: ToolUse) -> ToolResult:
        tool = self._tools.get(use.name)
        if tool is None:
            names = ", ".join(self._tools) or "none"
            return _failed(use, f"there is no tool {use.name}; the tools are: {names}")
        use = msgspec.structs.replace(use, input=cleaned(use.input))
        if wrong := problem(tool.schema["input_schema"], use.input):
            return _failed(use, f"{use.name} was not run: {wrong}")
        if (reason := await self._gate(use)) is not None:
            self._emit(Denied(use, reason))
            return _failed(use, f"{use.name} was not run: {reason}")
        try:
            return ToolResult(use.id, _plain(await tool.run(use.input, use.id)))
        except (ToolFailed, StorageFailure) as error:
            return _failed(use, str(error))
        except OSError as error:
            return _failed(use, f"{use.name} did not work: {_sentence(error)}")


def _failed(use: ToolUse, why: str) -> ToolResult:
    return ToolResult(use.id, _plain_text(why), True)


def _plain(content: str | tuple[Block, ...]) -> str | tuple[Block, ...]:
    if isinstance(content, str):
        return _plain_text(content)
    return tuple(
        msgspec.structs.replace(block, text=_plain_text(block.text))
        if isinstance(block, Text)
        else block
        for block in content
    )


def _plain_text(text: str) -> str:
    return whole_characters(text).replace("\0", _NUL)


def _sentence(error: OSError) -> str:
    why = (error.strerror or str(error) or type(error).__name__).lower()
    return f"{why}: {error.filename}" if error.filename else why


_check: type[Tools] = Toolbox
