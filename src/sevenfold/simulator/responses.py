"""The Responses API on the same simulated provider: items in, items out, and its stream of events.

Responses are stored unless `store` is false: `previous_response_id` goes on from one, and an
`item_reference` stands for an item of one. The last ones are kept, for each key apart.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from itertools import count
from typing import Any, Final

import msgspec

from sevenfold.core.errors import Mistake
from sevenfold.core.messages import encode_block
from sevenfold.core.tokens import Usage
from sevenfold.models.openai_wire import decode_tool_choice
from sevenfold.models.responses_wire import (
    CALLS,
    OUTPUTS,
    OfferedTool,
    ResponseItem,
    decode_item,
    iterate_tools,
    join_name,
    read_kind,
)
from sevenfold.models.sse import write_event
from sevenfold.simulator.api import Api
from sevenfold.simulator.cache import count_content_tokens, encode
from sevenfold.simulator.errors import ApiError, Json
from sevenfold.simulator.openai_endpoint import (
    OpenAiEndpoint,
    PendingChat,
    convert_body,
    make_output_config,
)
from sevenfold.simulator.script import ScriptReply

KEPT: Final = 256  # Responses that can be gone on from
KEPT_ITEMS: Final = 4_096
NOT_SIMULATED: Final = ("background", "conversation", "prompt")
CHUNK: Final = 24  # Characters in one delta
ENCRYPTED: Final = "reasoning.encrypted_content"


class _ResponsesBody(msgspec.Struct):
    """The fields we read, and their types. Others may be anything."""

    model: str
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    include: list[str] | None = None


class StoredResponse(msgspec.Struct, frozen=True):
    """The items of one response, after those of the one before it."""

    previous: str | None
    items: bytes  # JSON: input and output


class Responses(OpenAiEndpoint):
    """Answers the Responses API."""

    address = "/v1/responses"

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self._stored: OrderedDict[tuple[str, str], StoredResponse] = OrderedDict()
        self._items: OrderedDict[tuple[str, str], Json] = OrderedDict()

    def to_messages_request(self, body: Any, key: str) -> Json:
        asked = convert_body(body, _ResponsesBody)
        for name in NOT_SIMULATED:
            if body.get(name):
                said = f"Unsupported parameter: '{name}' is not simulated."
                raise ApiError(400, said, code="unsupported_parameter", param=name)
        items = [*self._recall(key, asked.previous_response_id), *_to_items(asked.input)]
        items = [self._resolve(key, item) for item in items]
        system = [{"type": "text", "text": asked.instructions}] if asked.instructions else []
        leading, messages = to_messages(items)
        check_calls(items)
        offered = list(iterate_tools(body.get("tools")))
        return {
            "model": asked.model,
            "max_tokens": asked.max_output_tokens,
            "stream": bool(asked.stream),
            "tools": [tool.definition if isinstance(tool, OfferedTool) else tool for tool in offered],
            "tool_choice": _read_tool_choice(body.get("tool_choice")),
            **make_output_config((asked.text or {}).get("format"), "text.format"),
            "system": [*system, *leading],
            "messages": messages,
        }

    def encode_reply(self, pending: PendingChat, reply: ScriptReply, number: int, usage: Usage) -> Json:
        asked, response_id = pending.asked, f"resp_sim_{number:06d}"
        output = encode_output(reply, asked, number)
        cut = reply.stop_reason in ("max_tokens", "model_context_window_exceeded")
        thought = count_content_tokens([b for b in reply.content if b["type"] == "thinking"])
        if asked.get("store") is not False:
            self._store(pending.key, response_id, asked, output)
        return {
            "id": response_id,
            "object": "response",
            "created_at": int(pending.opened.at),
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "error": None,
            "model": pending.model,
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "text": {"format": {"type": "text"}},
            "metadata": {},
            **{name: asked[name] for name in _ECHOED if asked.get(name) is not None},
            "store": asked.get("store") is not False,
            "usage": {
                "input_tokens": usage.prompt,
                "input_tokens_details": {
                    "cached_tokens": usage.cache_read,
                    "cache_write_tokens": usage.cache_write,
                },
                "output_tokens": usage.output,
                "output_tokens_details": {"reasoning_tokens": thought},
                "total_tokens": usage.total,
                **reply.usage,
            },
        }

    # --- what is stored ---------------------------------------------------------------------------------

    def _store(self, key: str, response_id: str, asked: Json, output: list[Json]) -> None:
        items = encode([*_to_items(asked["input"]), *output])
        self._stored[key, response_id] = StoredResponse(asked.get("previous_response_id"), items)
        self._items.update({(key, item["id"]): item for item in output})
        for kept, most in ((self._stored, KEPT), (self._items, KEPT_ITEMS)):
            while len(kept) > most:
                kept.popitem(last=False)

    def _recall(self, key: str, response_id: str | None) -> list[Json]:
        """The items up to and including this response."""
        found: list[list[Json]] = []
        while response_id is not None:
            stored = self._stored.get((key, response_id))
            if stored is None:
                raise ApiError(
                    400,
                    f"Previous response with id '{response_id}' not found.",
                    param="previous_response_id",
                    code="previous_response_not_found",
                )
            found.append(msgspec.json.decode(stored.items))
            response_id = stored.previous
        return [item for items in reversed(found) for item in items]

    def _resolve(self, key: str, item: Json) -> Json:
        """The item that a reference stands for; every other item as it is."""
        if read_kind(item) != "item_reference":
            return item
        found = self._items.get((key, str(item.get("id"))))
        if found is None:
            said = f"Item with id '{item.get('id')}' not found."
            raise ApiError(404, said, kind="invalid_request_error", param="input", code="item_not_found")
        return found


_ECHOED: Final = (
    "instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "previous_response_id",
    "prompt_cache_key", "reasoning", "service_tier", "temperature", "text", "tool_choice", "tools", "top_p",
    "truncation",
)  # fmt: skip
"""Fields of a request that come back with the response."""


# --- the request -----------------------------------------------------------------------------------------


def _to_items(given: str | list[Json]) -> list[Json]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def check_calls(items: list[Json]) -> None:
    """Raise what the API says of a call without an output, and of an output without a call."""
    calls = {item.get("call_id") for item in items if read_kind(item) in CALLS}
    outputs = {item.get("call_id") for item in items if read_kind(item) in OUTPUTS}
    for item in items:
        kind, id = read_kind(item), item.get("call_id")
        if kind in OUTPUTS and id not in calls:
            said = f"No tool call found for {kind.replace('_', ' ')} with call_id {id}."
            raise ApiError(400, said, param="input")
        if kind in CALLS and id not in outputs:
            raise ApiError(400, f"No tool output found for {kind.replace('_', ' ')} {id}.", param="input")


def to_messages(items: list[Json]) -> tuple[list[Json], list[Json]]:
    """The blocks of instructions at the beginning, and all other items as messages."""
    system: list[Json] = []
    messages: list[Json] = []
    for n, item in enumerate(items):
        try:
            read = decode_item(item, f"input[{n}]")
        except Mistake as error:
            raise ApiError(400, f"Invalid value: {error}.", param=f"input[{n}]") from error
        blocks = _to_plain_blocks(read)
        role = "system" if read.by == "system" else read.role
        if role == "system" and not messages:
            system += blocks
        elif messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    return system, messages


def _to_plain_blocks(read: ResponseItem) -> list[Json]:
    blocks: list[Json] = msgspec.json.decode(encode([encode_block(block) for block in read.blocks]))
    return blocks


def _read_tool_choice(choice: Any) -> Json | None:
    match choice:
        case {"type": "function" | "custom", "name": str(name)}:
            return {"type": "tool", "name": join_name(choice.get("namespace"), name)}
    return decode_tool_choice(choice)


# --- the reply -------------------------------------------------------------------------------------------


def encode_output(reply: ScriptReply, asked: Json, number: int) -> list[Json]:
    """The items of a reply to this request; their ids have the number of the reply."""
    tools = (tool for tool in iterate_tools(asked.get("tools")) if isinstance(tool, OfferedTool))
    offered = {tool.definition["name"]: tool for tool in tools}
    shows = ENCRYPTED in (asked.get("include") or ())
    ids = (f"sim_{number:06d}_{n}" for n in count())
    return [_encode_block(block, next(ids), offered, shows) for block in reply.content]


def _encode_block(block: Json, id: str, offered: dict[str, OfferedTool], shows: bool) -> Json:
    match block["type"]:
        case "text":
            part = {"type": "output_text", "text": block["text"], "annotations": [], "logprobs": []}
            message: Json = {"id": f"msg_{id}", "type": "message", "status": "completed"}
            return {**message, "role": "assistant", "content": [part]}
        case "thinking":
            thought = str(block.get("thinking", ""))
            summary = [{"type": "summary_text", "text": thought}] if thought else []
            digest = blake2b(thought.encode(), digest_size=12).hexdigest()
            hidden = {"encrypted_content": f"sim-{digest}"} if shows else {}
            return {"id": f"rs_{id}", "type": "reasoning", "summary": summary, **hidden}
        case "tool_use":
            return _encode_call(block, id, offered.get(block["name"]))
    return {"id": f"item_{id}", **block}


def _encode_call(block: Json, id: str, tool: OfferedTool | None) -> Json:
    name, namespace = (tool.name, tool.namespace) if tool else (block["name"], None)
    call: Json = {"call_id": block["id"], "name": name, "status": "completed"}
    if namespace:
        call["namespace"] = namespace
    if tool is not None and tool.kind == "custom":
        return {"id": f"ctc_{id}", "type": "custom_tool_call", "input": _read_text(block["input"]), **call}
    return {"id": f"fc_{id}", "type": "function_call", "arguments": encode(block["input"]).decode(), **call}


def _read_text(given: Json) -> str:
    text = given.get("input")
    return text if isinstance(text, str) else encode(given).decode()


def iterate_response_events(response: Json) -> Iterator[bytes]:
    """The events of one response, in the order and with the names of the API."""
    numbers = count()

    def event(kind: str, /, **data: Any) -> bytes:
        return write_event(encode({"type": kind, "sequence_number": next(numbers), **data}), kind)

    begun = {**response, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for index, item in enumerate(response["output"]):
        opened, inner = _open_item(item)
        yield event("response.output_item.added", output_index=index, item=opened)
        for name, data in inner:
            yield event(f"response.{name}", item_id=item["id"], output_index=index, **data)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event(f"response.{response['status']}", response=response)


def _open_item(item: Json) -> tuple[Json, list[tuple[str, Json]]]:
    """An item as it is first announced, and the events that fill it."""
    begun = {**item, "status": "in_progress"}
    match item["type"]:
        case "message":
            return {**begun, "content": []}, _fill_message(item["content"][0])
        case "reasoning":
            inner = [e for n, part in enumerate(item["summary"]) for e in _fill_summary(part, n)]
            return {**item, "summary": []}, inner
        case "function_call":
            text, kind, field = item["arguments"], "function_call_arguments", "arguments"
        case "custom_tool_call":
            text, kind, field = item["input"], "custom_tool_call_input", "input"
        case _:
            return item, []
    deltas: list[tuple[str, Json]] = [(f"{kind}.delta", {"delta": part}) for part in _split(text)]
    return {**begun, field: ""}, [*deltas, (f"{kind}.done", {field: text, "name": item["name"]})]


def _fill_message(part: Json) -> list[tuple[str, Json]]:
    at: Json = {"content_index": 0}
    text = {**at, "logprobs": []}
    return [
        ("content_part.added", {**at, "part": {**part, "text": ""}}),
        *(("output_text.delta", {**text, "delta": delta}) for delta in _split(part["text"])),
        ("output_text.done", {**text, "text": part["text"]}),
        ("content_part.done", {**at, "part": part}),
    ]


def _fill_summary(part: Json, number: int) -> list[tuple[str, Json]]:
    at: Json = {"summary_index": number}
    return [
        ("reasoning_summary_part.added", {**at, "part": {**part, "text": ""}}),
        *(("reasoning_summary_text.delta", {**at, "delta": delta}) for delta in _split(part["text"])),
        ("reasoning_summary_text.done", {**at, "text": part["text"]}),
        ("reasoning_summary_part.done", {**at, "part": part}),
    ]


def _split(text: str) -> list[str]:
    return [text[i : i + CHUNK] for i in range(0, len(text), CHUNK)]
