"""`sevenfold mcp`: the memory of this project for other agents, over the Model Context Protocol.

Little is imported here: a client waits for the answer to its first request.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sevenfold.mcp import keep_output
from sevenfold.mcp.server import McpServer, ServerOptions
from sevenfold.mcp.transport_stdio import StdioTransport

if TYPE_CHECKING:
    from sevenfold.cli.options import SharedOptions


def run_mcp(shared: SharedOptions, *, http: str | None, read_only: bool, plugin: bool) -> int:
    """Serve until the client goes or, over HTTP, until a signal comes."""
    project = "" if shared.project.parts == () else str(shared.project)
    home = str(shared.home) if shared.home is not None else ""
    options = ServerOptions(project=project, home=home, read_only=read_only, plugin=plugin)
    if http is not None:
        return _serve_http(shared, options, http)
    return _serve(options, keep_output())


def _serve_http(shared: SharedOptions, options: ServerOptions, address: str) -> int:
    import signal

    import anyio
    import anyio.to_thread

    from sevenfold.cli.failures import INTERRUPTED
    from sevenfold.cli.output import print_message, print_result
    from sevenfold.cli.startup import read_environment
    from sevenfold.mcp.transport_http import HttpTransport, parse_address, read_token

    host, port = parse_address(address)
    token, path = read_token(read_environment(shared).home)
    server = McpServer(replace(options, project=str(shared.project.absolute())))
    transport = HttpTransport(server, token, host=host, port=port)

    async def serve() -> int:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with transport.loopback:
                value = {"url": transport.url, "token_file": str(path), "ready": True}
                print_result(shared, f"ready: {transport.url}", value)
                print_message(
                    shared,
                    f'claude mcp add --transport http sevenfold {transport.url} --header "Authorization: '
                    f'Bearer $(cat {path})"\nCtrl-C ends it',
                )
                await anyio.to_thread.run_sync(server.warm_up)
                async for number in signals:
                    return INTERRUPTED if number == signal.SIGINT else 0
        return 0

    try:
        return anyio.run(serve)
    finally:
        server.close()


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
    if os.isatty(0):
        print("sevenfold: an agent starts this and talks to it in JSON; Ctrl-D ends it", file=sys.stderr)
    with contextlib.suppress(KeyboardInterrupt):
        StdioTransport(server, 0, output).serve()
    return 0
