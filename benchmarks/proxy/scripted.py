"""A client like the ones that people use: it marks what to cache, sends all of its history, runs tools."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from sevenfold.proxy.server import Proxy
from sevenfold.proxy.upstream import Upstream
from sevenfold.simulator import ManualClock

Json = dict[str, Any]
MODEL = "claude-opus-5-5"
SESSION = "5f0a4f1e-0000-4000-8000-000000000001"
MARK: Json = {"cache_control": {"type": "ephemeral"}}
SYSTEM = [{"type": "text", "text": "You are an agent in a terminal. " * 300, **MARK}]
TOOLS: list[Json] = [
    {"name": "Bash", "description": "Runs a command. " * 50, "input_schema": {"type": "object"}},
    {"name": "Read", "description": "Reads a file. " * 50, "input_schema": {"type": "object"}},
]
Run = Callable[[str, Json], str]


def make_output(command: str, size: int = 20_000) -> str:
    """What a command prints: lines that no other command prints."""
    words = random.Random(command)
    text = ""
    while len(text) < size:
        text += f"{command} {words.randrange(10**9)} {'abcdefgh'[words.randrange(8)] * 30}\n"
    return text


def use_tool(name: str, **given: Any) -> Json:
    return {"content": [{"type": "tool_use", "name": name, "input": given}]}


def script_calls(count: int, first: int = 0) -> list[Json]:
    """Steps of a simulator's script: so many commands, then words."""
    calls = [{"reply": use_tool("Bash", command=f"report {n}")} for n in range(first, first + count)]
    return [*calls, {"reply": {"text": "done"}}]


@dataclass
class ScriptedClient:
    """Talks to an address as a client of the Messages API does."""

    http: httpx.AsyncClient
    run: Run = lambda name, given: make_output(str(given.get("command")))
    session: str = SESSION
    stream: bool = True
    messages: list[Json] = field(default_factory=list)
    more: Json = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    async def ask(self, text: str) -> int:
        """Say something and run tools until the model is done; returns the number of requests."""
        self.messages.append({"role": "user", "content": [{"type": "text", "text": text}]})
        for n in range(1, 10_000):
            reply = await self.send()
            self.messages.append({"role": "assistant", "content": reply["content"]})
            uses = [block for block in reply["content"] if block["type"] == "tool_use"]
            if not uses:
                return n
            results = [
                {"type": "tool_result", "tool_use_id": u["id"], "content": self.run(u["name"], u["input"])}
                for u in uses
            ]
            self.messages.append({"role": "user", "content": results})
        raise AssertionError("the script has no end")

    def body(self) -> Json:
        *before, last = self.messages
        content = [*last["content"][:-1], {**last["content"][-1], **MARK}]
        messages = [*before, {**last, "content": content}]
        asked = {
            "model": MODEL,
            "max_tokens": 8_000,
            "messages": messages,
            "system": SYSTEM,
            "tools": TOOLS,
        }
        return {**asked, "stream": self.stream, **self.more}

    async def post(self, body: bytes) -> httpx.Response:
        headers = {"x-claude-code-session-id": self.session, "x-api-key": "sk-ant-secret-of-a-user"}
        headers |= {"anthropic-version": "2023-06-01", "content-type": "application/json", **self.headers}
        return await self.http.post("/v1/messages?beta=true", content=body, headers=headers)

    async def send(self) -> Json:
        response = await self.post(json.dumps(self.body()).encode())
        assert response.is_success, response.text
        return read_stream(response.text) if self.stream else response.json()


def read_stream(text: str) -> Json:
    """The message that a stream of events tells."""
    events = [
        json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")
    ]
    message: Json = next(e["message"] for e in events if e["type"] == "message_start")
    inputs: dict[int, str] = {}
    for event in events:
        match event["type"]:
            case "content_block_start":
                message["content"].append(event["content_block"])
            case "content_block_delta" if event["delta"]["type"] == "text_delta":
                message["content"][event["index"]]["text"] += event["delta"]["text"]
            case "content_block_delta":
                index = event["index"]
                inputs[index] = inputs.get(index, "") + event["delta"]["partial_json"]
            case "content_block_stop" if inputs.get(event["index"]):
                message["content"][event["index"]]["input"] = json.loads(inputs[event["index"]])
    return message


@asynccontextmanager
async def proxy_to(
    url: str, folder: Path, clock: ManualClock | None = None, log: list[str] | None = None, **more: Any
) -> AsyncIterator[Proxy]:
    """A proxy with a home and a Claude Code folder below this one."""
    claude = folder / "claude"
    (claude / "projects" / "-work").mkdir(parents=True, exist_ok=True)
    (claude / "projects" / "-work" / f"{SESSION}.jsonl").touch()
    lines = log if log is not None else []
    async with Proxy(
        Upstream(url, url),
        home=folder / "home",
        claude=claude,
        environ={"HOME": str(folder)},
        clock=clock,  # type: ignore[arg-type]
        log=lines.append,
        **more,
    ) as proxy:
        yield proxy


@asynccontextmanager
async def client_of(url: str, **more: Any) -> AsyncIterator[ScriptedClient]:
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
        yield ScriptedClient(http, **more)
