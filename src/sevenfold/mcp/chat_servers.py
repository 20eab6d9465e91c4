"""The tools of other people's MCP servers in a chat, frozen for the session.

    async with ChatServers(found, environment, root, home) as servers:
        async with Session(tools=servers.tools) as session:
            servers.follow(session)

The tools stay as they were when the session began: another list would break the provider's cache. A list
that changes is taken up at the next compaction. Descriptions and results are data, never the user's words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
import msgspec
from anyio.abc import TaskGroup

from sevenfold.core.errors import Failure, SettingsError
from sevenfold.core.events import Compacted, Event, Notice
from sevenfold.core.messages import Block, Image, Json, Text
from sevenfold.core.protocols import Tool, ToolFailed
from sevenfold.layers.shared.background import open_task_group
from sevenfold.mcp.known_tools import KnownTools
from sevenfold.mcp.server_connections import (
    CALL_SECONDS,
    START_SECONDS,
    HttpConnection,
    McpServerFailed,
    ServerConnection,
    StdioConnection,
    begin_handshake,
)
from sevenfold.mcp.server_entries import FoundServers, ServerEntry, expand_entry

if TYPE_CHECKING:
    from sevenfold.session.session import Session

PREFIX: Final = "mcp__"
LONGEST_NAME: Final = 64
LONGEST_ABOUT: Final = 2_000  # Characters of a description; the rest is left out
LARGEST_SCHEMA: Final = 20_000  # Bytes
MOST_TOOLS: Final = 100  # Of one server
MOST_PAGES: Final = 20
MOST_CHANGES: Final = 20  # Times that one server's list is asked for again in a session
_CHANGED: Final = "notifications/tools/list_changed"
_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")
_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")


class ServerTool:
    """One tool of a server. It may do anything, so it is never allowed by default."""

    def __init__(self, server: ChatServer, tool: Json) -> None:
        self._server, self._its_name = server, str(tool["name"])
        self.name = f"{PREFIX}{server.name}__{_ODD.sub('_', self._its_name)}"
        about = tool.get("description")
        self.schema: Json = {
            "name": self.name,
            "description": about[:LONGEST_ABOUT] if isinstance(about, str) else "",
            "input_schema": tool["inputSchema"],
        }

    def safe(self, args: Json) -> bool:
        return False

    async def run(self, args: Json, use_id: str) -> str | tuple[Block, ...]:
        try:
            result = await self._server.call(self._its_name, args)
        except (McpServerFailed, SettingsError) as error:
            raise ToolFailed(f"the MCP server {self._server.name} failed: {error}") from error
        blocks = tuple(_read_content(result))
        if result.get("isError") is True:
            raise ToolFailed("\n".join(one.text for one in blocks if isinstance(one, Text)) or "it failed")
        return blocks or "(no output)"


_check: type[Tool] = ServerTool


def _read_content(result: Json) -> list[Block]:
    content = result.get("content")
    found: list[Block] = []
    for one in content if isinstance(content, list) else ():
        match one:
            case {"type": "text", "text": str(text)}:
                found.append(Text(text))
            case {"type": "image", "data": str(data), "mimeType": str(kind)} if kind in _IMAGES:
                found.append(Image({"type": "base64", "media_type": kind, "data": data}))
            case {"type": "resource", "resource": {"text": str(text)}}:
                found.append(Text(text))
            case {"type": "resource_link", "uri": str(uri)}:
                found.append(Text(f"[a resource: {uri}]"))
            case {"type": str(kind)}:
                found.append(Text(f"[{kind} is left out]"))
    if not found and "structuredContent" in result:
        found.append(Text(msgspec.json.encode(result["structuredContent"]).decode("utf-8")))
    return found


class ChatServer:
    """One server: its connection, and the tools that it offers now."""

    def __init__(self, name: str, entry: ServerEntry, around: ChatServers) -> None:
        self.name, self._entry, self._around = name, entry, around
        self._connection: ServerConnection | None = None
        self._opening = anyio.Lock()
        self._changes = 0
        self.tools: tuple[ServerTool, ...] = ()
        seconds = entry.timeout / 1_000 if entry.timeout else CALL_SECONDS
        self._seconds, self._start_seconds = seconds, min(seconds, START_SECONDS)

    async def start(self) -> None:
        """Reach it and learn its tools; what goes wrong is a notice."""
        try:
            await self._connect()
            self.tools = await self._list_tools()
        except (Failure, SettingsError) as error:
            self._around.say(f"the MCP server {self.name} is left out: {error}")

    async def call(self, tool: str, args: Json) -> Json:
        """Call a tool. A server that has ended is started again, once for each call."""
        async with self._opening:
            if self._connection is None or not self._connection.alive:
                await self.close()
                await self._connect()
        assert self._connection is not None
        return await self._connection.request(
            "tools/call", {"name": tool, "arguments": args}, self._seconds
        )

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _connect(self) -> None:
        around = self._around
        entry = expand_entry(self._entry, around.environment)
        connection: ServerConnection
        if entry.type == "http":
            connection = HttpConnection(entry, self._hear)
        else:
            connection = await StdioConnection.open(
                entry, around.environment, around.root, self._hear, around.tasks
            )
        try:
            await begin_handshake(connection, self._start_seconds)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection

    def _hear(self, method: str) -> None:
        if method == _CHANGED and self._changes < MOST_CHANGES and self.tools:
            self._changes += 1
            self._around.tasks.start_soon(self._list_again)

    async def _list_again(self) -> None:
        try:
            self.tools = await self._list_tools()
        except Failure:
            return  # the tools stay as they are; a call says what is wrong

    async def _list_tools(self) -> tuple[ServerTool, ...]:
        listed: list[Any] = []
        params: Json = {}
        for _ in range(MOST_PAGES):
            assert self._connection is not None
            page = await self._connection.request("tools/list", params, self._start_seconds)
            given = page.get("tools")
            listed += given if isinstance(given, list) else []
            if not isinstance(cursor := page.get("nextCursor"), str) or len(listed) >= MOST_TOOLS:
                break
            params = {"cursor": cursor}
        fitting = [one for one in listed if self._fits(one)]
        if len(fitting) > MOST_TOOLS:
            self._around.say(
                f"the MCP server {self.name} offers {len(fitting)} tools; {MOST_TOOLS} are taken"
            )
        return self._choose(fitting[:MOST_TOOLS])

    def _fits(self, tool: Any) -> bool:
        """True for a tool that can be offered: for another a provider would refuse the whole request."""
        match tool:
            case {"name": str(name), "inputSchema": {"type": "object", **rest}}:
                properties, required = rest.get("properties", {}), rest.get("required", [])
                plain = isinstance(properties, dict) and all(
                    isinstance(p, dict) for p in properties.values()
                )
                plain = plain and isinstance(required, list) and all(isinstance(n, str) for n in required)
                short = len(f"{PREFIX}{self.name}__{name}") <= LONGEST_NAME
                if plain and short and len(msgspec.json.encode(tool["inputSchema"])) <= LARGEST_SCHEMA:
                    return True
                self._around.say(f"the tool {name[:80]!r} of the MCP server {self.name} cannot be offered")
        return False

    def _choose(self, listed: list[Json]) -> tuple[ServerTool, ...]:
        """Each tool once, without those that describe themselves differently than when trusted."""
        changed = self._around.known.list_changed(self.name, listed)
        for name in changed:
            self._around.say(
                f"the tool {name} of the MCP server {self.name} describes itself differently since you "
                "trusted it, and is left out; 'sevenfold trust' takes it as it is"
            )
        made = (ServerTool(self, tool) for tool in listed if tool["name"] not in changed)
        return tuple({tool.name: tool for tool in made}.values())


class ChatServers:
    """All servers of a chat: started together, ended together."""

    def __init__(self, found: FoundServers, environment: Mapping[str, str], root: Path, home: Path) -> None:
        """`environment` is that of tools, without our keys."""
        self.environment, self.root = environment, root
        self.known = KnownTools(home, root)
        self.tasks: TaskGroup
        self._servers = [ChatServer(name, entry, self) for name, entry in found.entries.items()]
        self._stack = AsyncExitStack()
        self._said: list[str] = list(found.problems)
        self._session: Session | None = None
        self._doubled: set[str] = set()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self.tasks = await stack.enter_async_context(open_task_group())
            stack.callback(self.tasks.cancel_scope.cancel)
            for server in self._servers:
                stack.push_async_callback(server.close)
            async with anyio.create_task_group() as starting:
                for server in self._servers:
                    starting.start_soon(server.start)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    @property
    def tools(self) -> tuple[ServerTool, ...]:
        """The tools of all servers that were reached, in the order of the files; each name once."""
        found: dict[str, tuple[ServerTool, str]] = {}
        for server in self._servers:
            for tool in server.tools:
                first, owner = found.setdefault(tool.name, (tool, server.name))
                if first is not tool and tool.name not in self._doubled:
                    self._doubled.add(tool.name)
                    self.say(
                        f"the tool {tool.name} of the MCP server {server.name} is left out: "
                        f"{owner} has one of that name"
                    )
        return tuple(tool for tool, _ in found.values())

    def say(self, text: str) -> None:
        """Tell the user, as soon as there is a session to tell it in."""
        if self._session is None:
            self._said.append(text)
        else:
            self._session.emit(Notice(text, "warning"))

    def follow(self, session: Session) -> None:
        """Tell this session's user what was said so far, and take up changes when it is compacted."""
        self._session = session
        for text in self._said:
            session.emit(Notice(text, "warning"))
        self._said.clear()
        session.events.overhear(self._hear)

    def _hear(self, event: Event) -> None:
        if isinstance(event, Compacted) and self._session is not None:
            self._session.change_tools(PREFIX, self.tools)
