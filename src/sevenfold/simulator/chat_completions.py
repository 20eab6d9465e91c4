"""The chat completions API on the same simulated provider, with its own automatic cache.

A request is turned into the Messages form, so that one reply function and one script serve both APIs,
and the reply is turned back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

import msgspec

from sevenfold.core.tokens import Usage
from sevenfold.models.openai_wire import decode_arguments, decode_tool, decode_tool_choice, encode_call
from sevenfold.simulator.api import (
    Api,
    ApiOutcome,
    OpenedRequest,
    PendingRequest,
    lower_headers,
    name_source,
)
from sevenfold.simulator.cache import (
    LEAST,
    STEP,
    CacheVerdict,
    count_content_tokens,
    hash_steps,
    parse_retention,
    read_prompt,
    to_blocks,
)
from sevenfold.simulator.errors import ApiError, Json, make_invalid_request
from sevenfold.simulator.script import ScriptAnswer, ScriptReply, finish_reply, to_reply

ENDPOINT: Final = "/v1/chat/completions"
FINISH: Final = {"tool_use": "tool_calls", "max_tokens": "length"}
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
"""Strict, as a provider is: what is not JSON by the letter stays a text."""


@dataclass(slots=True)
class PendingChat(PendingRequest):
    steps: list[bytes] = field(default_factory=list)
    keep: float = 0.0


class ChatCompletions:
    """Answers chat completions with the parts of an `Api`."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._uses = self._replies = 0

    def prepare(
        self, body: Any, headers: Mapping[str, str] | None = None, received: int = 0
    ) -> PendingChat | ApiOutcome:
        headers = lower_headers(headers)
        opened = self._api.open(received)
        try:
            return self._accept(opened, body, headers)
        except ApiError as error:
            return self._api.refuse(opened, ENDPOINT, body, headers, _in_its_words(error, body, headers))

    def reply_to(self, pending: PendingRequest) -> Any:
        return self._api.reply_to(pending)

    def finish(self, pending: PendingRequest, answer: ScriptAnswer) -> ApiOutcome:
        assert isinstance(pending, PendingChat)
        reply = finish_reply(to_reply(answer), pending.body, pending.room, self._next_use)
        self._replies += 1
        completion_id = f"chatcmpl-sim-{self._replies:06d}"
        scope = pending.key, pending.model
        self._api.implicit.write(scope, pending.steps, pending.opened.at, pending.keep)
        usage = pending.verdict.usage(count_content_tokens(reply.content))
        row = self._api.enter(pending, usage, ENDPOINT, completion_id, reply.stop_reason)
        body = _completion(pending, reply, completion_id, usage)
        return ApiOutcome(200, body, self._api.headers(pending.opened.id), row, pending.step)

    def _accept(self, opened: OpenedRequest, body: Any, headers: Mapping[str, str]) -> PendingChat:
        key = self._api.check_key(headers)
        _check(body)
        model = body["model"]
        price = self._api.price_of(model)
        form = to_messages_request(body)
        source = name_source(headers)
        step = self._api.script.take(form, source)
        if step is not None and step.error is not None and step.error.after_events is None:
            raise step.error.problem()
        prompt = read_prompt({**form, "tool_choice": None})  # here it is no part of the prefix
        window = self._api.window_of(model, price)
        if prompt.tokens > window:
            raise ApiError(
                400,
                f"This model's maximum context length is {window} tokens. However, your messages "
                f"resulted in {prompt.tokens} tokens. Please reduce the length of the messages.",
                code="context_length_exceeded",
            )
        steps, total = hash_steps(form)
        cached = self._api.implicit.look((key, model), steps, opened.at)
        # Models that bill writes report the whole steps they had to write; others have no writes.
        writes = price is not None and price.write_5m > 1 and total >= LEAST
        written = max(0, total // STEP * STEP - cached) if writes else 0
        verdict = CacheVerdict(total - cached - written, written, 0, cached, cached // STEP)
        shared = self._api.ledger.compare(source, prompt)
        return PendingChat(
            opened, key, source, form, model, price, prompt, verdict, step, shared,
            room=window - total, steps=steps, keep=parse_retention(body),
        )  # fmt: skip

    def _next_use(self) -> str:
        self._uses += 1
        return f"call_sim_{self._uses:06d}"


def _completion(pending: PendingChat, reply: ScriptReply, completion_id: str, usage: Usage) -> Json:
    texts = [b["text"] for b in reply.content if b["type"] == "text"]
    calls = [encode_call(b["id"], b["name"], b["input"]) for b in reply.content if b["type"] == "tool_use"]
    message: Json = {"role": "assistant", "content": "".join(texts) or None, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    finish = FINISH.get(reply.stop_reason or "", "stop")
    details: Json = {"cached_tokens": usage.cache_read, "audio_tokens": 0}
    if usage.cache_write:
        details["cache_write_tokens"] = usage.cache_write
    return {
        "id": completion_id,
        "object": "chat.completion",
        "created": int(pending.opened.at),
        "model": pending.model,
        "system_fingerprint": "fp_sim",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.output,
            "total_tokens": usage.total,
            "prompt_tokens_details": details,
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
            **reply.usage,
        },
    }


# --- the request -----------------------------------------------------------------------------------------


class _ChatFunction(msgspec.Struct):
    name: str = ""
    arguments: str | None = None
    parameters: dict[str, Any] | None = None


class _ChatCall(msgspec.Struct):
    id: str
    function: _ChatFunction | None = None


class _ChatImage(msgspec.Struct):
    url: str


class _ChatPart(msgspec.Struct):
    type: str
    text: str | None = None
    image_url: _ChatImage | None = None


class _ChatMessage(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[_ChatPart] | None = None
    tool_calls: list[_ChatCall] | None = None
    tool_call_id: str | None = None


class _ChatTool(msgspec.Struct):
    type: str = "function"
    function: _ChatFunction | None = None


class _ChatBody(msgspec.Struct):
    """The fields we read, and their types. Others may be anything."""

    model: str
    messages: Annotated[list[_ChatMessage], msgspec.Meta(min_length=1)]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    tools: list[_ChatTool] | None = None


def _check(body: Any) -> None:
    try:
        checked = msgspec.convert(body, _ChatBody)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `$")
        where = at.strip("`.") or "request body"
        raise make_invalid_request(f"Invalid value for '{where}': {what}.") from error
    open_calls: list[str] = []
    for i, message in enumerate(checked.messages):
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                raise make_invalid_request(
                    f"Invalid parameter: messages[{i}] with role 'tool' must be a response to a "
                    "preceding message with 'tool_calls'."
                )
            open_calls.remove(message.tool_call_id)
            continue
        _all_answered(open_calls)
        open_calls = [call.id for call in message.tool_calls or ()]
    _all_answered(open_calls)


def _all_answered(open_calls: list[str]) -> None:
    if open_calls:
        raise make_invalid_request(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to "
            "each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(open_calls)
        )


def _in_its_words(error: ApiError, body: Any, headers: Mapping[str, str]) -> ApiError:
    """The errors both APIs have, as this one says them."""
    if error.status == 401:
        key = headers.get("authorization", "").removeprefix("Bearer ")
        said = f"Incorrect API key provided: {key}." if key else "You didn't provide an API key."
        return ApiError(401, said, kind="invalid_request_error", code="invalid_api_key")
    if error.status == 404:
        said = f"The model `{body['model']}` does not exist or you do not have access to it."
        return ApiError(404, said, kind="invalid_request_error", code="model_not_found")
    return error


def to_messages_request(body: Json) -> Json:
    """The same request as the Messages API would have it."""
    system: list[Json] = []
    messages: list[Json] = []
    for message in body["messages"]:
        role, blocks = _converted(message)
        if role == "system" and not messages:
            system.extend(blocks)
        elif messages and messages[-1]["role"] == role:
            messages[-1]["content"].extend(blocks)
        else:
            messages.append({"role": role, "content": blocks})
    stop = body.get("stop") or []
    return {
        "model": body["model"],
        "max_tokens": body.get("max_completion_tokens") or body.get("max_tokens"),
        "stop_sequences": [stop] if isinstance(stop, str) else stop,
        "stream": bool(body.get("stream")),
        "tools": [_tool(tool) for tool in body.get("tools") or () if isinstance(tool, dict)],
        "tool_choice": decode_tool_choice(body.get("tool_choice")),
        "system": system,
        "messages": messages,
    }


def _converted(message: Json) -> tuple[str, list[Json]]:
    role: str = message["role"]
    blocks = _parts(message.get("content"))
    if role == "tool":
        return "user", [
            {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": blocks}
        ]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        given = {"id": call.get("id"), "name": function.get("name", "")}
        input = decode_arguments(function.get("arguments"), decode=_decode_object)
        blocks.append({"type": "tool_use", **given, "input": input})
    return {"developer": "system", "function": "user"}.get(role, role), blocks


def _parts(content: Any) -> list[Json]:
    out = []
    for block in to_blocks(content):
        url = (block.get("image_url") or {}).get("url") if block["type"] == "image_url" else None
        out.append({"type": "image", "source": {"type": "url", "url": url}} if url else block)
    return out


def _tool(tool: Json) -> Json:
    function = tool.get("function")
    return decode_tool(function) if isinstance(function, dict) else tool
