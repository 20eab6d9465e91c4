"""Server-sent events: a whole reply cut into the events a streaming client gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sevenfold.simulator.counting import encode
from sevenfold.simulator.problems import Json

CHUNK: Final = 24
"""Characters of text or of JSON in one delta."""


def event(name: str, data: Json) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + encode(data) + b"\n\n"


def data_line(data: Json) -> bytes:
    return b"data: " + encode(data) + b"\n\n"


# --- the Messages API ------------------------------------------------------------------------------------


def message_events(message: Json) -> Iterator[bytes]:
    """The events of one message, in the order and with the names of the Messages API."""
    usage = message["usage"]
    start = {
        **{k: v for k, v in message.items() if k != "context_management"},
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": min(1, usage["output_tokens"])},
    }
    yield event("message_start", {"type": "message_start", "message": start})
    yield event("ping", {"type": "ping"})
    for index, block in enumerate(message["content"]):
        opened, deltas = _opened(block)
        head = {"type": "content_block_start", "index": index, "content_block": opened}
        yield event("content_block_start", head)
        for delta in deltas:
            body = {"type": "content_block_delta", "index": index, "delta": delta}
            yield event("content_block_delta", body)
        yield event("content_block_stop", {"type": "content_block_stop", "index": index})
    end: Json = {
        "type": "message_delta",
        "delta": {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]},
        "usage": {k: v for k, v in usage.items() if k.endswith("_tokens")},
    }
    if message.get("context_management") is not None:
        end["context_management"] = message["context_management"]
    yield event("message_delta", end)
    yield event("message_stop", {"type": "message_stop"})


def _opened(block: Json) -> tuple[Json, list[Json]]:
    """A block as it is first announced, and the deltas that fill it."""
    match block["type"]:
        case "text":
            deltas = [{"type": "text_delta", "text": part} for part in _parts(block["text"])]
            return {**block, "text": ""}, deltas
        case "thinking":
            deltas = [
                {"type": "thinking_delta", "thinking": part} for part in _parts(block["thinking"])
            ]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case "tool_use":
            text = encode(block["input"]).decode() if block["input"] else ""
            deltas = [
                {"type": "input_json_delta", "partial_json": part} for part in ("", *_parts(text))
            ]
            return {**block, "input": {}}, deltas
        case "compaction":
            whole = {"type": "compaction_delta", "content": block.get("content")}
            return {**block, "content": None}, [whole]
    return block, []


def _parts(text: str) -> list[str]:
    return [text[i : i + CHUNK] for i in range(0, len(text), CHUNK)]


# --- chat completions ------------------------------------------------------------------------------------


def chat_events(completion: Json, *, include_usage: bool) -> Iterator[bytes]:
    """The chunks of one completion."""
    choice = completion["choices"][0]
    message = choice["message"]

    def chunk(delta: Json, finish: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
        return data_line({**_head(completion, include_usage), "choices": choices})

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for part in _parts(message["content"] or ""):
        yield chunk({"content": part})
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = {"name": call["function"]["name"], "arguments": ""}
        yield chunk({"tool_calls": [{**call, "index": index, "function": function}]})
        for part in _parts(call["function"]["arguments"]):
            piece: dict[str, Any] = {"index": index, "function": {"arguments": part}}
            yield chunk({"tool_calls": [piece]})
    yield chunk({}, choice["finish_reason"])
    if include_usage:
        head = {**_head(completion, include_usage), "usage": completion["usage"]}
        yield data_line({**head, "choices": []})
    yield b"data: [DONE]\n\n"


def _head(completion: Json, include_usage: bool) -> Json:
    head = {k: completion[k] for k in ("id", "created", "model", "system_fingerprint")}
    return {**head, "object": "chat.completion.chunk", **({"usage": None} if include_usage else {})}
