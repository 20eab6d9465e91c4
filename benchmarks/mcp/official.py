"""The same memory behind the official SDK's server: one tool, `recall`."""

from __future__ import annotations

import sys
from typing import Any

from mcp.server.mcpserver import MCPServer

server = MCPServer("official")
opened: list[Any] = []


@server.tool()
def recall(query: str) -> str:
    """Find the memories that answer a question."""
    if not opened:
        from sevenfold.memory.store import Memory

        opened.append(Memory.open(sys.argv[1]))
    return "\n\n".join(one.text for one in opened[0].recall(query, 5, wait=0.0))


server.run()
