"""`sevenfold mcp`: the memory of this project for other agents, over the Model Context Protocol.

Little is imported here: a client waits for the answer to its first request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sevenfold.mcp import keep_output
from sevenfold.mcp.server import McpServer, ServerOptions
from sevenfold.mcp.transport_stdio import StdioTransport

if TYPE_CHECKING:
    from sevenfold.cli.options import SharedOptions


def run_mcp(shared: SharedOptions, *, read_only: bool, plugin: bool) -> int:
    """Serve on standard input and output until the client goes."""
    project = "" if shared.project.parts == () else str(shared.project)
    home = str(shared.home) if shared.home is not None else ""
    options = ServerOptions(project=project, home=home, read_only=read_only, plugin=plugin)
    return _serve(options, keep_output())


def serve_stdio(given: Mapping[str, str], output: int) -> int:
    """Serve one client, with options as `sevenfold.__main__` reads them."""
    options = ServerOptions(
        project=given.get("project", ""),
        home=given.get("home", ""),
        read_only="read_only" in given,
        plugin="plugin" in given,
    )
    return _serve(options, output)


def _serve(options: ServerOptions, output: int) -> int:
    server = McpServer(options)
    with contextlib.suppress(KeyboardInterrupt):
        StdioTransport(server, 0, output).serve()
    return 0
