"""`sevenfold mcp` as a process, driven by the official client or line by line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp.client.stdio import StdioServerParameters

from sevenfold.memory.store import Memory

MODES = ("auto", "legacy", "2026-07-28")
PATIENCE = 60.0


@dataclass
class ServedProject:
    """A project folder with a home of its own."""

    top: Path
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in (self.user, self.folder):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def user(self) -> Path:
        return self.top / "user"

    @property
    def home(self) -> Path:
        return self.top / "home"

    @property
    def folder(self) -> Path:
        return self.top / "project"

    @property
    def environment(self) -> dict[str, str]:
        path = os.environ.get("PATH", os.defpath)
        return {"HOME": str(self.user), "SEVENFOLD_HOME": str(self.home), "PATH": path, **self.variables}

    def open_memory(self) -> Memory:
        return Memory.open(self.folder, environ=self.environment)

    def parameters(self, *words: str, cwd: Path | None = None) -> StdioServerParameters:
        """What the official client starts."""
        return StdioServerParameters(
            command=sys.executable,
            args=["-m", "sevenfold", "mcp", *words],
            env=self.environment,
            cwd=str(cwd or self.folder),
        )

    def start(self, *words: str, cwd: Path | None = None) -> LineServer:
        return LineServer(
            subprocess.Popen(
                [sys.executable, "-m", "sevenfold", "mcp", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.environment,
                cwd=cwd or self.folder,
            )
        )


class LineServer:
    """A server that is sent lines."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def __enter__(self) -> LineServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def send(self, *messages: dict[str, Any] | bytes) -> None:
        assert self.process.stdin is not None
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode()
            self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, id: int | str = 1, **params: Any) -> Any:
        self.send(request(method, id, **params))
        return self.receive()

    def end(self, *messages: dict[str, Any] | bytes) -> list[Any]:
        """Send these, close the input, and give all answers; the process has ended well."""
        lines = [m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages]
        out, _ = self.process.communicate(b"".join(line + b"\n" for line in lines), timeout=PATIENCE)
        assert self.process.returncode == 0
        return [json.loads(line) for line in out.splitlines()]


def request(method: str, id: int | str = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def call(tool: str, id: int | str = 1, **arguments: Any) -> dict[str, Any]:
    return request("tools/call", id, name=tool, arguments=arguments)


def modern(method: str, id: int | str = 1, **params: Any) -> dict[str, Any]:
    """A request of 2026-07-28, which carries its version itself."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return request(method, id, _meta=meta, **params)


def initialize(version: str = "2025-06-18", **capabilities: Any) -> dict[str, Any]:
    info = {"name": "a test", "version": "1"}
    return request("initialize", 0, protocolVersion=version, capabilities=capabilities, clientInfo=info)


def text_of(answer: Any) -> str:
    return "\n".join(one["text"] for one in answer["result"]["content"])
