"""Servers over HTTP as tools of a chat: our own answers with JSON, the official SDK's with events."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp_servers.serving import ServedProject

from sevenfold.core.messages import Text
from sevenfold.core.protocols import ToolFailed
from sevenfold.mcp.chat_servers import ChatServers
from sevenfold.mcp.server_entries import FoundServers, ServerEntry

pytestmark = [pytest.mark.anyio, pytest.mark.real]
OFFICIAL = """
import sys
from mcp.server.mcpserver import MCPServer

server = MCPServer("official")

@server.tool()
def add(first: int, second: int) -> str:
    "Add two numbers."
    return f"the sum is {first + second}"

server.run("streamable-http", port=int(sys.argv[1]))
"""
REFUSING = """
from http.server import BaseHTTPRequestHandler, HTTPServer

class Refusal(BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_error(500)

server = HTTPServer(("127.0.0.1", 0), Refusal)
print(server.server_port, flush=True)
server.serve_forever()
"""

STATELESS = """
import base64, json
from http.server import BaseHTTPRequestHandler, HTTPServer

META = "io.modelcontextprotocol/"
TOOL = {"name": "grüße", "description": "Greets.", "inputSchema": {"type": "object"}}

class Stateless(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, params = asked["method"], asked["params"]
        version = params.get("_meta", {}).get(META + "protocolVersion")
        if version != "2026-07-28" or self.headers["mcp-protocol-version"] != version:
            return self.send_error(400)
        assert self.headers["mcp-method"] == method
        if method == "tools/call":
            name = base64.b64decode(self.headers["mcp-name"][9:-2]).decode()
            text = f"{name} for {params['arguments']['who']}"
            result = {"content": [{"type": "text", "text": text}]}
        else:
            result = {"supportedVersions": [version], "tools": [TOOL]}
        body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = HTTPServer(("127.0.0.1", 0), Stateless)
print(server.server_port, flush=True)
server.serve_forever()
"""


def open_servers(top: Path, **entries: ServerEntry) -> ChatServers:
    return ChatServers(FoundServers(entries), {"TOKEN": "t0ken"}, top, top / "home")


def find_free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def official_server() -> Iterator[str]:
    port = find_free_port()
    words = [sys.executable, "-c", OFFICIAL, str(port)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while b"running on" not in process.stderr.readline():
            pass
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


@contextmanager
def our_server(project: ServedProject) -> Iterator[str]:
    words = [sys.executable, "-m", "sevenfold", "mcp", "--http", "0", "--json", "--read-only"]
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=project.environment,
        cwd=project.folder,
    ) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()


async def test_the_official_server_answers_with_events(tmp_path: Path) -> None:
    with official_server() as url:
        async with open_servers(tmp_path, sums=ServerEntry(type="http", url=url)) as servers:
            (add,) = servers.tools
            result = await add.run({"first": 2, "second": 3}, "t1")

    assert add.name == "mcp__sums__add"
    assert result == (Text("the sum is 5"),)


async def test_our_own_server_answers_with_json_and_wants_its_header(project: ServedProject) -> None:
    with our_server(project) as url:
        token = (project.home / "mcp-token").read_text()
        headers = {"Authorization": f"Bearer ${{MISSING:-{token}}}"}
        good, bad = ServerEntry(type="http", url=url, headers=headers), ServerEntry(type="http", url=url)
        async with open_servers(project.top, good=good, bad=bad) as servers:
            names = [tool.name for tool in servers.tools]
            result = await servers.tools[0].run({"query": "anything at all?"}, "t1")
            with pytest.raises(ToolFailed, match="missing required field"):
                await servers.tools[0].run({}, "t2")

    assert names == ["mcp__good__recall", "mcp__good__read", "mcp__good__search", "mcp__good__history"]
    assert result == (Text("nothing that is remembered answers that"),)


async def test_a_server_that_knows_no_handshake_gets_headers_and_version_with_each_request(
    tmp_path: Path,
) -> None:
    with small_server(STATELESS) as host:
        entry = ServerEntry(type="http", url=f"http://{host}/mcp")
        async with open_servers(tmp_path, new=entry) as servers:
            (greet,) = servers.tools
            result = await greet.run({"who": "Ada"}, "t1")

    assert result == (Text("grüße for Ada"),)


async def test_an_address_where_nobody_is_is_left_out(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{find_free_port()}/mcp"
    async with open_servers(tmp_path, gone=ServerEntry(type="http", url=url)) as servers:
        assert servers.tools == ()


class HeardServers(ChatServers):
    """Keeps what it would tell the user."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.heard: list[str] = []

    def say(self, text: str) -> None:
        self.heard.append(text)


@contextmanager
def small_server(program: str) -> Iterator[str]:
    """Its host and port."""
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


async def test_what_is_filled_into_an_address_or_a_header_is_not_repeated(tmp_path: Path) -> None:
    def make(url: str, header: str = "x") -> ServerEntry:
        return ServerEntry(type="http", url=url, headers={"Authorization": header})

    with small_server(REFUSING) as host:
        entries = {
            "refused": make(f"http://u:${{TOKEN}}@{host}/${{TOKEN}}/mcp?key=${{TOKEN}}"),
            "gone": make(f"http://127.0.0.1:{find_free_port()}/${{TOKEN}}"),
            "odd": make("https://[${TOKEN}/mcp"),
            "port": make("https://127.0.0.1:${TOKEN}/mcp"),
            "line": make(f"http://{host}/mcp", "${TOKEN}\nx"),
            "letter": make(f"http://{host}/mcp", "${TOKEN} é"),
        }
        async with HeardServers(FoundServers(entries), {"TOKEN": "t0ken"}, tmp_path, tmp_path) as servers:
            said = servers.heard

    assert len(said) == len(entries)
    assert not any("t0ken" in text for text in said)
    assert f"the MCP server refused is left out: http://{host} answered with status 500" in said
