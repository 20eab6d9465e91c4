"""Requests, streams and views that the tests of the models share."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Protocol

from models.served import Served

from sevenfold.core.messages import Block, Message, user
from sevenfold.core.request import Frame, Request
from sevenfold.core.transcript import Reply, Transcript, View
from sevenfold.models import ModelAccess
from sevenfold.models.anthropic import AnthropicModel
from sevenfold.models.openai import OpenAiModel

KEY = "sk-test-0123456789-very-secret"
TOOL = {"name": "Read", "description": "Reads a file.", "input_schema": {"type": "object"}}


class Streams(Protocol):
    def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]: ...


def view_of(*messages: Message) -> View:
    transcript = Transcript(lambda: 0.0)
    for message in messages:
        transcript.add(message, by="model" if message.role == "assistant" else "user")
    return transcript.view


def request_of(
    *messages: Message | str,
    model: str = "claude-sonnet-4-5",
    system: tuple[str, ...] = ("static", "of this session"),
    tools: tuple[dict[str, Any], ...] = (TOOL,),
    params: dict[str, Any] | None = None,
    **fields: Any,
) -> Request:
    said = [user(m) if isinstance(m, str) else m for m in messages or ("hello",)]
    lives = fields.pop("ttl", "5m"), fields.pop("system_ttl", None)
    return Request(Frame(model, system, tools, params or {}, *lives), view_of(*said), **fields)


def anthropic(server: Served, name: str = "claude-sonnet-4-5", **fields: Any) -> AnthropicModel:
    fields.setdefault("anthropic_key", KEY)
    model = AnthropicModel(name, ModelAccess(anthropic_base_url=server.url, **fields))
    server.clients.append(model)
    return model


def openai(server: Served, name: str = "openai:local-model", **fields: Any) -> OpenAiModel:
    fields.setdefault("openai_key", KEY)
    model = OpenAiModel(name, ModelAccess(openai_base_url=f"{server.url}/v1", **fields))
    server.clients.append(model)
    return model


async def collect(
    model: Streams, request: Request, into: list[str | Block | Reply] | None = None
) -> list[str | Block | Reply]:
    """Everything a stream yields; what came before a failure is left in `into`."""
    items = [] if into is None else into
    async with aclosing(model.stream(request)) as stream:
        async for item in stream:
            items.append(item)
    return items


async def ask(model: Streams, request: Request | None = None) -> Reply:
    items = await collect(model, request or request_of())
    assert isinstance(items[-1], Reply)
    return items[-1]


# --- a reply in the Messages format -------------------------------------------------------------------


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": d} for d in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text_block(index: int, *pieces: str) -> list[dict[str, Any]]:
    deltas = ({"type": "text_delta", "text": piece} for piece in pieces)
    return block(index, {"type": "text", "text": ""}, *deltas)


def use_block(index: int, *pieces: str, id: str = "toolu_1", name: str = "Read") -> list[dict[str, Any]]:
    start = {"type": "tool_use", "id": id, "name": name, "input": {}}
    return block(index, start, *({"type": "input_json_delta", "partial_json": p} for p in pieces))


def started(**usage: Any) -> dict[str, Any]:
    counted = {"input_tokens": 10, "output_tokens": 1, **usage}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-served"}
    return {"type": "message_start", "message": {**message, "content": [], "usage": counted}}


def ended(stop: str | None = "end_turn", output: int = 7, **fields: Any) -> list[dict[str, Any]]:
    delta = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": output}}
    return [{**delta, **fields}, {"type": "message_stop"}]


def replied(*blocks: list[dict[str, Any]], stop: str | None = "end_turn") -> list[dict[str, Any]]:
    return [started(), *(event for events in blocks for event in events), *ended(stop)]


# --- a reply in the chat format -----------------------------------------------------------------------


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "served"}
    return {**head, "choices": [choice], **fields}


def call(
    arguments: Any = None, *, index: int | None = 0, id: str | None = None, name: str | None = None
) -> dict[str, Any]:
    function = {k: v for k, v in (("name", name), ("arguments", arguments)) if v is not None}
    out: dict[str, Any] = {"function": function, "type": "function"}
    if index is not None:
        out["index"] = index
    if id is not None:
        out["id"] = id
    return {"tool_calls": [out]}


def counted(prompt: int = 100, completion: int = 5, **fields: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, **fields}
    return {**chunk(), "choices": [], "usage": usage}


def remove_cache_marks(value: Any) -> Any:
    """JSON without its cache marks, to compare two requests."""
    if isinstance(value, dict):
        return {k: remove_cache_marks(v) for k, v in value.items() if k != "cache_control"}
    if isinstance(value, list):
        return [remove_cache_marks(v) for v in value]
    return value
