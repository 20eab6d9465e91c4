"""The MCP server of a memory: answers each request of a client, whatever carries it.

`transport_stdio` and `transport_http` bring the requests. What needs the memory is imported when the first
such request comes, so that `initialize` is answered at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from sevenfold.mcp.client_calls import DISCOVER, INITIALIZE, ClientCall, InputRequired, choose_version
from sevenfold.mcp.protocol import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    NO_RESOURCE,
    SERVER_KEY,
    UNKNOWN_METHOD,
    VERSIONS,
    Json,
    RpcError,
)

if TYPE_CHECKING:
    from sevenfold.mcp.memory_tools import ServedMemory, ToolAnswer

QUICK: Final = frozenset(
    {INITIALIZE, DISCOVER, "ping", "tools/list", "prompts/list", "resources/templates/list"}
)
"""Methods that need no memory: a transport may answer them while others wait."""
APART: Final = frozenset({"dream", "forget"})
"""Tools that may wait for a person or for minutes: a transport runs them beside the others."""
HOUR: Final = 3_600_000
INSTRUCTIONS: Final = (
    "Call recall with the task in hand before you begin on it: it finds what this user and this project "
    "told agents in other sessions. Call remember for a lasting fact that no file of the project says; a "
    "rule, or a fact about the user, then waits for the user's word. Memories are data of their day: check "
    "them against the files before you rely on them."
)


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `sevenfold mcp`."""

    project: str = ""  # Empty: found by the environment, by the client's roots, or where we are
    home: str = ""
    read_only: bool = False
    plugin: bool = False


class McpServer:
    """Answers requests. Safe to call from several threads: the memory is used by one at a time."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self._memory: ServedMemory | None = None
        self._opening = threading.Lock()

    @property
    def memory(self) -> ServedMemory:
        """The memory behind the tools; its modules are imported here."""
        with self._opening:
            if self._memory is None:
                from sevenfold.mcp.memory_tools import ServedMemory

                self._memory = ServedMemory(self.options)
            return self._memory

    def warm_up(self) -> None:
        """Open the memory before it is asked for. A problem is told to the first call that has it."""
        try:
            self.memory.warm_up()
        except Exception as error:
            self.log_error(error)

    def close(self) -> None:
        """End what the memory does in the background."""
        if self._memory is not None:
            self._memory.close()

    def answer(self, call: ClientCall) -> Json:
        """The result of a request. Raises `RpcError` for the error that answers it instead."""
        try:
            result = self._answer(call)
        except InputRequired as asked:
            return asked.result
        except RpcError:
            raise
        except Exception as error:
            raise RpcError(INTERNAL_ERROR, self.log_error(error)) from error
        return {"resultType": "complete", **result} if call.modern else result

    def _answer(self, call: ClientCall) -> Json:
        match call.request.method:
            case "initialize":
                version = choose_version(call.request.params.get("protocolVersion"))
                return {"protocolVersion": version, "serverInfo": _describe_server(), **_describe_offer()}
            case "server/discover":
                about = {"_meta": {SERVER_KEY: _describe_server()}, "supportedVersions": list(VERSIONS)}
                return {**about, **_describe_offer(), **_cache(call, HOUR)}
            case "ping":
                return {}
            case "tools/list":
                from sevenfold.mcp.tools import list_tools

                options = self.options
                tools = list_tools(read_only=options.read_only, plugin=options.plugin)
                return {"tools": list(tools), **_cache(call, HOUR)}
            case "tools/call":
                return self._call_tool(call)
            case "prompts/list" | "prompts/get" | "resources/list" | "resources/read":
                return self._answer_reader(call)
            case "resources/templates/list":
                from sevenfold.mcp.resources import TEMPLATES

                return {"resourceTemplates": list(TEMPLATES), **_cache(call, HOUR)}
            case method:
                raise RpcError(UNKNOWN_METHOD, f"there is no method {method}")

    def _call_tool(self, call: ClientCall) -> Json:
        from sevenfold.mcp.tools import HOOK, TOOLS, is_reading

        name, arguments = call.request.params.get("name"), call.request.params.get("arguments", {})
        is_hook = name == HOOK and self.options.plugin
        if not isinstance(name, str) or not (is_hook or name in TOOLS):
            raise RpcError(INVALID_PARAMS, f"there is no tool {name!r}; the tools are: {', '.join(TOOLS)}")
        if self.options.read_only and (is_hook or not is_reading(name)):
            return _make_result(f"{name} was not run: this server only reads", is_error=True)
        if is_hook:
            return self._run(lambda: self._hook(arguments))
        try:
            given = msgspec.convert(arguments or {}, TOOLS[name])
        except msgspec.ValidationError as error:
            return _make_result(f"{name} was not run: {error}", is_error=True)
        return self._run(lambda: self.memory.run(given, call))

    def _hook(self, event: object) -> ToolAnswer:
        from sevenfold.mcp.memory_tools import ToolAnswer

        if not isinstance(event, dict):
            raise RpcError(INVALID_PARAMS, "hook takes an event with its fields")
        return ToolAnswer(self.memory.answer_hook(event))

    def _run(self, work: Callable[[], ToolAnswer]) -> Json:
        """Run a tool. The sentences of our own errors reach the model as they are written."""
        from sevenfold.core.errors import SevenfoldError

        try:
            answer = work()
        except SevenfoldError as error:
            return _make_result(str(error), is_error=True)
        except (RpcError, InputRequired):
            raise
        except Exception as error:
            return _make_result(self.log_error(error), is_error=True)
        return _make_result(answer.text, answer.value, answer.notices)

    def _answer_reader(self, call: ClientCall) -> Json:
        """The prompts and resources, which are data for the client and no tools of the model."""
        from sevenfold.core.errors import SevenfoldError
        from sevenfold.mcp import resources

        params = call.request.params
        try:
            match call.request.method:
                case "prompts/list":
                    return {"prompts": list(resources.PROMPTS), **_cache(call, HOUR)}
                case "prompts/get":
                    return resources.get_prompt(self.memory, params, call)
                case "resources/list":
                    return {**resources.list_resources(self.memory, params, call), **_cache(call, 0)}
                case _:
                    return {**resources.read_resource(self.memory, params, call), **_cache(call, 0)}
        except SevenfoldError as error:
            reading = call.request.method == "resources/read" and not call.modern
            raise RpcError(NO_RESOURCE if reading else INVALID_PARAMS, str(error)) from error

    def log_error(self, error: Exception) -> str:
        """Write an error that is not on purpose to the log file; returns what the client may know of it."""
        from sevenfold.mcp.memory_tools import record_error

        where = record_error(self.options, error)
        return f"sevenfold failed: {type(error).__name__}" + (f"; see {where}" if where else "")


def _describe_server() -> Json:
    from sevenfold import __version__

    return {"name": "sevenfold", "title": "Sevenfold memory", "version": __version__}


def _describe_offer() -> Json:
    offered: Json = {"tools": {}, "resources": {}, "prompts": {}}
    return {"capabilities": offered, "instructions": INSTRUCTIONS}


def _cache(call: ClientCall, milliseconds: int) -> Json:
    return {"ttlMs": milliseconds, "cacheScope": "private"} if call.modern else {}


def _make_result(
    text: str, value: Json | None = None, notices: tuple[str, ...] = (), *, is_error: bool = False
) -> Json:
    content = [{"type": "text", "text": one} for one in (*notices, text)]
    made: Json = {"content": content, "isError": is_error}
    return made | ({"structuredContent": value} if value is not None else {})
