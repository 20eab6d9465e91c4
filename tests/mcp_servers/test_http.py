"""The server over HTTP: the official client reaches it with the token, and nothing else does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_servers.serving import MODES, ServedProject, call, initialize, modern, request
from mcp_types import ElicitRequestParams, ElicitResult

pytestmark = [pytest.mark.anyio, pytest.mark.real]
DEPLOY = {
    "type": "project",
    "name": "deploy-day",
    "description": "Deployed on Tuesdays",
    "body": "On Tuesdays.",
}


@dataclass
class HttpServer:
    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Accept": "application/json, text/event-stream"}

    def post(self, message: Any, **headers: str) -> httpx.Response:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return httpx.post(self.url, content=body, headers={**self.headers, **headers}, timeout=60)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    project = ServedProject(tmp_path_factory.mktemp("served"))
    process = subprocess.Popen(
        [sys.executable, "-m", "sevenfold", "mcp", "--http", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=project.environment,
        cwd=project.folder,
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    path = project.home / "mcp-token"
    assert ready["token_file"] == str(path)
    assert path.stat().st_mode & 0o777 == 0o600
    yield HttpServer(ready["url"], path.read_text())
    process.terminate()
    assert process.wait(60) == 0
    process.stdout.close()


@pytest.mark.parametrize("mode", MODES)
async def test_the_official_client_works_over_http(served: HttpServer, mode: str) -> None:
    asked: list[str] = []

    async def answer(context: Any, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"yes": True})

    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {served.token}"}) as http:
        transport = streamable_http_client(served.url, http_client=http)
        async with Client(transport, mode=mode, elicitation_callback=answer) as client:
            listed = (await client.list_tools()).tools
            await client.call_tool("remember", DEPLOY)
            found = await client.call_tool("recall", {"query": "when is it deployed?"})
            index = await client.read_resource("memory://index")
            purged = await client.call_tool("forget", {"name": "deploy-day", "purge": True})

    assert len(listed) == 8
    assert found.structured_content["memories"][0]["name"] == "deploy-day"
    assert "deploy-day" in index.model_dump_json()
    assert bool(purged.is_error) == (mode == "legacy")  # there is no way back to ask on
    assert len(asked) == (mode != "legacy")


def test_a_request_without_the_token_is_turned_away(served: HttpServer) -> None:
    for token in ("", "Bearer", "Bearer wrong", f"Basic {served.token}"):
        answer = served.post(request("ping"), Authorization=token)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}],
)
def test_a_web_page_is_turned_away(served: HttpServer, headers: dict[str, str]) -> None:
    assert served.post(request("ping"), **headers).status_code == 403


def test_only_a_post_to_the_address_is_answered(served: HttpServer) -> None:
    get = httpx.get(served.url, headers=served.headers)
    elsewhere = httpx.post(f"{served.url}/more", headers=served.headers)

    assert (get.status_code, get.headers["allow"]) == (405, "POST")
    assert elsewhere.status_code == 404


def test_a_body_of_10_megabytes_is_refused_in_one_sentence(served: HttpServer) -> None:
    answer = served.post(call("remember", 1, **{**DEPLOY, "body": "x" * 10_000_000}))

    assert answer.status_code == 413
    assert answer.text == "a request has at most 4,194,304 bytes"


def test_a_notification_is_accepted_and_a_wrong_message_is_not(served: HttpServer) -> None:
    assert served.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
    assert served.post(b"{broken").json()["error"]["code"] == -32700
    assert served.post([request("ping"), request("ping", 2)]).status_code == 400
    assert served.post(initialize(), **{"MCP-Protocol-Version": "1999-01-01"}).status_code == 400


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"MCP-Protocol-Version": "2025-11-25", "Mcp-Method": "tools/call", "Mcp-Name": "recall"},
        {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list", "Mcp-Name": "recall"},
        {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "forget"},
        {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "=?base64?!?="},
    ],
)
def test_headers_that_contradict_the_request_are_refused(
    served: HttpServer, headers: dict[str, str]
) -> None:
    answer = served.post(modern("tools/call", 7, name="recall", arguments={"query": "when?"}), **headers)

    assert answer.status_code == 400
    assert (answer.json()["id"], answer.json()["error"]["code"]) == (7, -32020)


def test_an_unknown_method_is_not_found(served: HttpServer) -> None:
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "no/such"}

    assert served.post(modern("no/such"), **headers).status_code == 404


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("0.0.0.0:8000", "can be reached by others"),
        ("here", "no address"),
        ("127.0.0.1:99999", "no address"),
    ],
)
def test_a_wrong_address_is_said(project: ServedProject, address: str, said: str) -> None:
    words = [sys.executable, "-m", "sevenfold", "mcp", "--http", address]
    ran = subprocess.run(words, env=project.environment, cwd=project.folder, capture_output=True, text=True)

    assert ran.returncode == 2
    assert said in ran.stderr


def test_a_token_that_others_can_read_is_not_used(project: ServedProject) -> None:
    project.home.mkdir()
    path = project.home / "mcp-token"
    path.write_text("a" * 40)
    path.chmod(0o644)
    words = [sys.executable, "-m", "sevenfold", "mcp", "--http", "0"]
    ran = subprocess.run(words, env=project.environment, cwd=project.folder, capture_output=True, text=True)

    assert ran.returncode == 3
    assert "can be read by others" in ran.stderr
