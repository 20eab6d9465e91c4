"""A server answers before it loads anything heavy. Modules are counted, not seconds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from typing import Any

import pytest
from mcp_servers.serving import PATIENCE, ServedProject, call, initialize, request, text_of

from sevenfold.__main__ import parse_server_words
from sevenfold.cli.commands import mcp as command
from sevenfold.cli.main import main
from sevenfold.mcp.client_calls import ClientConnection
from sevenfold.mcp.memory_tools import ServedMemory
from sevenfold.mcp.protocol import RpcRequest
from sevenfold.mcp.server import McpServer, ServerOptions
from sevenfold.mcp.transport_stdio import StdioTransport

MODULES = 25
"""Most modules that may be loaded before the first answer, those of Python itself apart."""
HEAVY = {"anyio", "asyncio", "httpx", "numpy", "typer", "yaml", "sevenfold.memory", "sevenfold.settings"}


def test_little_is_loaded_before_the_first_answer(project: ServedProject) -> None:
    words = [sys.executable, "-X", "importtime", "-m", "sevenfold", "mcp"]
    line = json.dumps(request("ping")).encode() + b"\n"
    ran = subprocess.run(
        words, input=line, env=project.environment, cwd=project.folder, capture_output=True
    )
    loaded = set(re.findall(r"^import time:.*\|\s+(\S+)$", ran.stderr.decode(), re.MULTILINE))
    ours = [name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names]

    assert json.loads(ran.stdout)["result"] == {}
    assert loaded.isdisjoint(HEAVY)
    assert len(ours) <= MODULES


@pytest.mark.parametrize(
    "words",
    [
        ["mcp"],
        ["mcp", "--read-only", "--plugin"],
        ["mcp", "--project", "/some/where", "--home", "/a/home"],
        ["mcp", "--home", "h", "--read-only"],
    ],
)
def test_a_plain_line_means_the_same_to_the_whole_command_line(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ServerOptions] = []

    def note(server: Any, *descriptors: int) -> Any:
        seen.append(server.options)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "StdioTransport", note)
    monkeypatch.setattr(command, "keep_output", lambda: 1)
    given = parse_server_words(words)
    assert given is not None
    command.serve_stdio(given, 1)
    main(words)

    first, second = seen
    assert first == second


@pytest.mark.parametrize(
    "words",
    [
        ["mcp", "--help"],
        ["mcp", "--http", "0"],
        ["mcp", "--project"],
        ["--quiet", "mcp"],
        ["mcp", "x"],
        ["chat"],
    ],
)
def test_any_other_line_is_left_to_the_whole_command_line(words: list[str]) -> None:
    assert parse_server_words(words) is None


def test_a_session_is_read_by_its_notes_and_never_by_its_words(project: ServedProject) -> None:
    said = "My cat is called Ottokar, and she likes the window."
    asked = [sys.executable, "-m", "sevenfold", "chat", "--model", "offline", "--json", "-p", "hello"]
    for prompt in ("hello", said):
        words = [*asked[:-1], prompt] if prompt == "hello" else [*asked[:-1], prompt, "--continue"]
        ran = subprocess.run(
            words, env=project.environment, cwd=project.folder, capture_output=True, check=True
        )
    session = json.loads(ran.stdout)["session"]
    with project.start() as server:
        answer = server.ask("resources/read", uri=f"memory://session/{session}")
        found = server.ask("tools/call", name="search", arguments={"words": "Ottokar", "sessions": True})
        none = server.ask("resources/read", uri="memory://session/2020-01-01-no-such")

    (content,) = answer["result"]["contents"]
    assert "Ottokar" not in content["text"]
    assert session in text_of(found)
    assert none["error"]["code"] == -32002


def test_an_error_of_ours_is_named_and_goes_to_a_log(
    project: ServedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> None:
        raise ZeroDivisionError("the secret is hunter2")

    monkeypatch.setattr(ServedMemory, "run", fail)
    server = McpServer(ServerOptions(project=str(project.folder), home=str(project.home)))
    asked = RpcRequest(1, "tools/call", {"name": "recall", "arguments": {"query": "what?"}})
    answer = server.answer(ClientConnection(lambda method, params: None).open_call(asked))

    log = project.home / "mcp.log"
    assert answer["isError"]
    assert answer["content"][0]["text"] == f"sevenfold failed: ZeroDivisionError; see {log}"
    assert "ZeroDivisionError" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


class PipedServer:
    """A server in this process, on two pipes."""

    def __init__(self, project: ServedProject) -> None:
        reads, self._in = os.pipe()
        self._out, self._writes = os.pipe()
        server = McpServer(ServerOptions(project=str(project.folder), home=str(project.home)))
        serve = StdioTransport(server, reads, self._writes).serve
        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()

    def send(self, message: dict[str, Any]) -> None:
        os.write(self._in, json.dumps(message).encode() + b"\n")

    def end(self) -> list[Any]:
        """All answers."""
        os.close(self._in)
        self._thread.join(PATIENCE)
        os.close(self._writes)
        with os.fdopen(self._out, "rb") as out:
            return [json.loads(line) for line in out]


def test_a_warm_up_that_fails_is_logged_and_later_calls_are_answered(
    project: ServedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = threading.Event()

    def fail(*given: object) -> None:
        tried.set()
        raise FileNotFoundError("the folder is gone")

    monkeypatch.setattr(ServedMemory, "open", fail)
    server = PipedServer(project)
    server.send(initialize())
    assert tried.wait(PATIENCE)
    server.send(call("recall", 2, query="which port?"))
    first, answer = server.end()

    assert "result" in first
    assert answer["id"] == 2
    assert "FileNotFoundError" in text_of(answer)
    assert (project.home / "mcp.log").read_text().count("the folder is gone\n") == 2


@pytest.mark.parametrize("place", [(ClientConnection, "open_call"), (McpServer, "answer")])
def test_an_error_that_was_not_foreseen_answers_its_request_alone(
    project: ServedProject, monkeypatch: pytest.MonkeyPatch, place: tuple[type, str]
) -> None:
    sound = getattr(*place)

    def fail(self: object, given: Any, *more: object) -> Any:
        if "boom" in repr(given):
            raise ZeroDivisionError("the secret is hunter2")
        return sound(self, given, *more)

    monkeypatch.setattr(*place, fail)
    server = PipedServer(project)
    server.send(request("resources/read", 1, uri="boom"))
    server.send(call("read", 2, index=True))
    wrong, right = server.end()

    assert (wrong["id"], wrong["error"]["code"]) == (1, -32603)
    assert wrong["error"]["message"].startswith("sevenfold failed: ZeroDivisionError")
    assert right["id"] == 2
    assert not right["result"]["isError"]
