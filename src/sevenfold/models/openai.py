"""Chat completions: OpenAI, and the servers that speak its format (vLLM, Ollama, llama.cpp and others).

A request in the chat-completions format: our messages told in its words, as bytes that stay the
same. Bring your own client: OpenAI's SDK, also on Azure with its credentials.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from sevenfold.core.errors import (
    BadRequest,
    KeyRefused,
    ModelFailure,
    ModelNotFound,
    Overloaded,
    PromptTooLong,
    RateLimited,
)
from sevenfold.core.messages import (
    THOUGHTS,
    Block,
    Document,
    Image,
    Json,
    Message,
    Opaque,
    Text,
    ToolResult,
    ToolUse,
)
from sevenfold.core.protocols import Capabilities, Clock
from sevenfold.core.request import Frame, Request, encode_view
from sevenfold.core.transcript import Reply
from sevenfold.models.anthropic import enclose_messages
from sevenfold.models.capabilities import (
    ModelAccess,
    find_capabilities,
    find_family,
    find_user_capabilities,
    is_loopback,
    parse_host,
    to_wire_name,
)
from sevenfold.models.failures import (
    ProviderInfo,
    ServerRefusal,
    find_client_secrets,
    list_sdk_errors,
    make_cut_error,
    make_failure,
    make_unreadable_error,
    map_sdk_error,
    map_status,
)
from sevenfold.models.http import ProviderConnection, drain_events
from sevenfold.models.jsontext import decode_json_object
from sevenfold.models.openai_stream import OpenAiAssembly

if TYPE_CHECKING:
    import openai

FORM: Final = "chat"
LONGEST_ID: Final = 40
"""Longer ids of tool calls are refused."""
_OURS: Final = frozenset(
    {
        "betas",
        "compaction",
        "context_management",
        "effort",
        "max_tokens",
        "messages",
        "model",
        "output_config",
        "stream",
        "thinking",
        "tool_choice",
        "tools",
    }
)
"""Parameters that are translated, or that only the other format knows."""
_encode = msgspec.json.Encoder().encode


def encode_body(request: Request, *, official: bool = False) -> bytes:
    """The bytes that are sent for this request; `official` says that OpenAI itself is asked."""
    frame = request.frame
    head: Json = {
        "model": to_wire_name(frame.model),
        "stream": True,
        "stream_options": {"include_usage": True},
        **_params(frame),
    }
    if request.max_tokens:
        head[_limit_name(frame.model, official)] = request.max_tokens
    if tools := [_tool(tool) for tool in frame.tools if "input_schema" in tool]:
        head["tools"] = tools
        head.update(_tool_choice(frame.params.get("tool_choice")))
    system = "\n\n".join(part for part in frame.system if part.strip())
    first = [_encode({"role": "system", "content": system})] if system else []
    said = [wire for wire in encode_view(request.view, FORM, encode_message) if wire]
    return enclose_messages(_encode(head), [*first, *said])


def _limit_name(model: str, official: bool) -> str:
    """Reasoning models refuse the old name; servers that copy the format may not know the new one."""
    found = find_family(model)
    reasons = found is not None and found.prefix.startswith(("o1", "o3", "o4", "gpt-5", "gpt-6"))
    return "max_completion_tokens" if official or reasons else "max_tokens"


def _params(frame: Frame) -> Json:
    params = {k: v for k, v in frame.params.items() if k not in _OURS}
    config = frame.params.get("output_config") or {}
    if effort := frame.params.get("effort") or config.get("effort"):
        params["reasoning_effort"] = effort
    return params


def _tool(tool: Json) -> Json:
    function = {"name": tool.get("name"), "parameters": tool["input_schema"]}
    if tool.get("description"):
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


def _tool_choice(choice: Any) -> Json:
    if not isinstance(choice, dict):
        return {"tool_choice": choice} if choice else {}
    out: Json = {"tool_choice": {"any": "required", "none": "none"}.get(choice.get("type", ""), "auto")}
    if choice.get("type") == "tool":
        out["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    elif choice.get("type") == "function":
        out["tool_choice"] = choice
    if choice.get("disable_parallel_tool_use"):
        out["parallel_tool_calls"] = False
    return out


# --- messages -----------------------------------------------------------------------------------------


def encode_message(message: Message) -> bytes:
    """The objects that stand for this message, joined by commas; nothing when nothing of it can be said."""
    told = _assistant(message) if message.role == "assistant" else _user(message)
    return b",".join(_encode(one) for one in told)


def _assistant(message: Message) -> list[Json]:
    uses = message.tool_uses
    said = _text(b for b in message.content if not isinstance(b, ToolUse))
    if not said and not uses:
        return []
    out: Json = {"role": "assistant", "content": said or None}
    if uses:
        out["tool_calls"] = [_call(use) for use in uses]
    return [out]


def _call(use: ToolUse) -> Json:
    arguments = _encode(use.input).decode("utf-8")
    function = {"name": use.name, "arguments": arguments}
    return {"id": make_call_id(use.id), "type": "function", "function": function}


def _user(message: Message) -> list[Json]:
    """Results first, each a message of its own, as they must follow the calls; then the rest."""
    out: list[Json] = []
    rest: list[Block] = []
    for block in message.content:
        if isinstance(block, ToolResult):
            out.append(_result(block))
            rest += _pictures(block)
        else:
            rest.append(block)
    parts = [part for block in rest if (part := _part(block)) is not None]
    if all(part["type"] == "text" for part in parts):
        text = "\n\n".join(part["text"] for part in parts)
        return [*out, {"role": "user", "content": text}] if text else out
    return [*out, {"role": "user", "content": parts}]


def _result(result: ToolResult) -> Json:
    shown = (result.content,) if isinstance(result.content, str) else ()
    said = "".join(shown) or _text(b for b in _inside(result) if not isinstance(b, Image))
    if not said:
        said = "(see the image below)" if _pictures(result) else "(no output)"
    if result.is_error:
        said = f"[failed] {said}"
    return {"role": "tool", "tool_call_id": make_call_id(result.tool_use_id), "content": said}


def _inside(result: ToolResult) -> tuple[Block, ...]:
    return () if isinstance(result.content, str) else result.content


def _pictures(result: ToolResult) -> list[Block]:
    return [block for block in _inside(result) if isinstance(block, Image)]


def _text(blocks: Iterable[Block]) -> str:
    parts = [part for block in blocks if (part := _part(block)) is not None]
    return "\n\n".join(part["text"] for part in parts if part["type"] == "text")


def _part(block: Block) -> Json | None:
    match block:
        case Text(text):
            return {"type": "text", "text": text} if text.strip() else None
        case Image(source):
            return _image(source)
        case Document(source):
            return _document(source)
        case Opaque(kind):
            return {"type": "text", "text": f"[a block of type {kind!r} that cannot be shown here]"}
        case ToolUse(_, name):
            return {"type": "text", "text": f"[a call of {name}]"}
        case _ if isinstance(block, THOUGHTS):
            return None
    return {"type": "text", "text": block.text}


def _image(source: Json) -> Json:
    match source:
        case {"type": "base64", "data": str(data)}:
            url = f"data:{source.get('media_type', 'image/png')};base64,{data}"
        case {"type": "url", "url": str(url)}:
            pass
        case _:
            return {"type": "text", "text": "[an image that cannot be shown here]"}
    return {"type": "image_url", "image_url": {"url": url}}


def _document(source: Json) -> Json:
    if source.get("type") == "text" and isinstance(source.get("data"), str):
        return {"type": "text", "text": source["data"]}
    kind = source.get("media_type") or source.get("type") or "unknown"
    return {"type": "text", "text": f"[a document ({kind}) that cannot be shown here]"}


def make_call_id(id: str) -> str:
    """An id that every server takes; the same one for a call and its result."""
    if len(id) <= LONGEST_ID:
        return id
    return "call_" + hashlib.sha256(id.encode("utf-8")).hexdigest()[:24]


PATH: Final = "/chat/completions"

ERROR_TYPES: Final[dict[str, type[ModelFailure]]] = {
    "insufficient_quota": KeyRefused,
    "billing_hard_limit_reached": KeyRefused,
    "billing_not_active": KeyRefused,
    "account_deactivated": KeyRefused,
    "invalid_api_key": KeyRefused,
    "authentication_error": KeyRefused,
    "permission_error": KeyRefused,
    "unsupported_country_region_territory": KeyRefused,
    "model_not_found": ModelNotFound,
    "not_found_error": ModelNotFound,
    "NotFoundError": ModelNotFound,
    "context_length_exceeded": PromptTooLong,
    "exceed_context_size_error": PromptTooLong,
    "rate_limit_exceeded": RateLimited,
    "rate_limit_error": RateLimited,
    "server_error": Overloaded,
    "api_error": Overloaded,
    "unavailable_error": Overloaded,
    "InternalServerError": Overloaded,
    "not_supported_error": BadRequest,
    "content_filter": BadRequest,
    "BadRequestError": BadRequest,
    "invalid_request_error": BadRequest,
}
"""By code, then by type, as OpenAI, vLLM and llama.cpp write them."""
_VAGUE: Final = frozenset({"invalid_request_error", "api_error", "server_error"})


def map_openai_error(said: ServerRefusal) -> ModelFailure:
    """Our error for one of theirs: by code, by type, and where those are vague by status."""
    for name in (said.code, said.kind):
        kind = ERROR_TYPES.get(name)
        if kind is not None and not (name in _VAGUE and said.status is not None):
            return make_failure(kind, said)
    return make_failure(map_status(said.status), said)


class OpenAiModel:
    """A model behind a chat-completions endpoint. `close` it when done."""

    def __init__(self, name: str, access: ModelAccess, *, clock: Clock | None = None) -> None:
        self.name = name
        url = access.openai_base_url.rstrip("/")
        self._local = is_loopback(url)
        self._official = is_official(url)
        self._provider = describe_provider(url)
        self._wire = ProviderConnection(
            self._provider, url, _headers(access), access, mapped=map_openai_error, clock=clock
        )
        self.capabilities = limit_capabilities(find_user_capabilities(name, access))

    def body(self, request: Request) -> bytes:
        """The bytes that `stream` sends."""
        return encode_body(request, official=self._official)

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        model = to_wire_name(request.frame.model)
        reply = OpenAiAssembly(self._provider, map_openai_error, request.view, model)
        headers = make_request_headers(request, self._local)
        async with self._wire.open(PATH, self.body(request), headers, model) as answer:
            async with aclosing(answer.events()) as events:
                async for event in events:
                    for item in reply.feed(event):
                        yield item
                    if reply.ended:
                        await drain_events(events)
                        break
            if not reply.complete:
                raise make_cut_error(self._provider)
        for item in reply.finish():
            yield item
        yield reply.reply(answer.headers.get("x-request-id", ""))

    async def close(self) -> None:
        await self._wire.close()


def describe_provider(url: str) -> ProviderInfo:
    """Whom the messages of errors speak of."""
    who = "OpenAI" if is_official(url) else "the server"
    return ProviderInfo(who, parse_host(url), "OPENAI_API_KEY", "OPENAI_BASE_URL", is_loopback(url))


def limit_capabilities(known: Capabilities) -> Capabilities:
    """What a model can do by way of chat completions."""
    return replace(known, context_management=False, server_compaction=False, binds_thinking=False)


def make_request_headers(request: Request, local: bool) -> dict[str, str]:
    """The simulator's ledger counts by it; nobody else is told."""
    return {"x-sevenfold-source": request.source} if local else {}


def is_official(url: str) -> bool:
    """Whether this is OpenAI itself, or Azure's copy of it."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return host == "api.openai.com" or host.endswith((".openai.com", ".openai.azure.com"))


def _headers(access: ModelAccess) -> dict[str, str]:
    headers = {"content-type": "application/json", "accept": "text/event-stream", "user-agent": "sevenfold"}
    if access.openai_key:
        headers["authorization"] = f"Bearer {access.openai_key}"
    return headers


class OpenAiSdk:
    """A model behind an `AsyncOpenAI` client or one of its siblings, which stays yours to close."""

    def __init__(self, client: openai.AsyncOpenAI | Any, model: str, *, window: int | None = None) -> None:
        self._client, self.name = client.with_options(max_retries=0), model
        url = str(client.base_url)
        self._local, self._official = is_loopback(url), is_official(url)
        self._provider = describe_provider(url)
        self.capabilities = limit_capabilities(find_capabilities(model, window=window))

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        import openai

        model = to_wire_name(request.frame.model)
        reply = OpenAiAssembly(self._provider, map_openai_error, request.view, model)
        try:
            stream = await self._begin(request)
            async with stream:
                async for chunk in stream:
                    for item in reply.take(chunk.to_dict(warnings=False)):
                        yield item
        except list_sdk_errors(openai.OpenAIError) as error:
            hide = find_client_secrets(self._client)
            raise map_sdk_error(error, self._provider, map_openai_error, model, hide) from None
        except ValueError as error:  # what the SDK raises for an event that is not JSON
            raise make_unreadable_error(self._provider) from error
        if not reply.complete:
            raise make_cut_error(self._provider)
        for item in reply.finish():
            yield item
        yield reply.reply(stream.response.headers.get("x-request-id", ""))

    async def _begin(self, request: Request) -> Any:
        """Send it. All but the fields the SDK insists on goes past its own ideas of a request."""
        fields = decode_json_object(encode_body(request, official=self._official))
        return await self._client.chat.completions.create(
            model=fields.pop("model"),
            messages=[],
            stream=fields.pop("stream"),
            extra_headers=make_request_headers(request, self._local),
            extra_body=fields,
        )
