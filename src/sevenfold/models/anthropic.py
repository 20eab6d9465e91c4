"""Anthropic's Messages API, and every server that speaks it.

A request in the Messages format: the bytes, the cache marks in them, and the beta features they
need. Bring your own client: Anthropic's SDK, also on Bedrock, Vertex or Foundry with their
credentials.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

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
from sevenfold.core.messages import THOUGHTS, Block, Json, Message, Opaque, Text, encode_block
from sevenfold.core.protocols import Clock
from sevenfold.core.request import Frame, Request, Ttl, collect_pins, encode_view, strip_unsigned_thinking
from sevenfold.core.transcript import Reply
from sevenfold.models.anthropic_stream import AnthropicAssembly
from sevenfold.models.capabilities import (
    ANTHROPIC_URL,
    BINDING_BETA,
    LONG,
    LONG_BETA,
    ModelAccess,
    find_capabilities,
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
    make_no_credentials_error,
    make_unreadable_error,
    map_sdk_error,
    map_status,
)
from sevenfold.models.http import ProviderConnection, drain_events
from sevenfold.models.jsontext import decode_json_object

if TYPE_CHECKING:
    import anthropic

MOST_MARKS: Final = 4
MARKS: Final[dict[Ttl, Json]] = {"5m": {"type": "ephemeral"}, "1h": {"type": "ephemeral", "ttl": "1h"}}
CONTEXT_BETA: Final = "context-management-2025-06-27"
COMPACT_BETA: Final = "compact-2026-01-12"
ON_DEMAND_BETA: Final = "compact-2026-09-04"

_OURS: Final = frozenset(
    {
        "betas",
        "diagnostics",
        "effort",
        "max_tokens",
        "messages",
        "model",
        "output_config",
        "stream",
        "system",
        "tools",
    }
)
"""Parameters that are not passed on as they are."""
_encode = msgspec.json.Encoder().encode


def encode_body(
    request: Request, *, max_output: int | None = None, diagnostics: Json | None = None
) -> bytes:
    """The bytes that are sent for this request."""
    frame = request.frame
    head: Json = {
        "model": to_wire_name(frame.model),
        "max_tokens": choose_max_tokens(request, max_output or find_capabilities(frame.model).max_output),
        "stream": True,
        **_params(frame),
    }
    if frame.tools:
        head["tools"] = [_kept_as_long(tool, frame) for tool in frame.tools]
    at, system_marks = place_marks(request)
    system = _system(frame, system_marks)
    if system:
        head["system"] = system
    tail = b',"diagnostics":' + _encode(diagnostics) if diagnostics else b""
    return enclose_messages(_encode(head), _messages(request, at), tail)


def enclose_messages(head: bytes, messages: list[bytes], tail: bytes = b"") -> bytes:
    """An object with its messages: one join, as a conversation may be megabytes and copies cost time."""
    whole = messages or [b""]
    whole[0] = head[:-1] + b',"messages":[' + whole[0]
    whole[-1] += b"]" + tail + b"}"
    return b",".join(whole)


def collect_betas(frame: Frame) -> list[str]:
    """What the `anthropic-beta` header must say: what was asked for, and what the rest needs."""
    found = list(frame.params.get("betas") or ())
    if frame.model.endswith(LONG):
        found.append(LONG_BETA)
    management = frame.params.get("context_management")
    if management:
        found.append(CONTEXT_BETA)
        edits = management.get("edits") or () if isinstance(management, dict) else ()
        if any(str(edit.get("type", "")).startswith("compact_") for edit in edits):
            found.append(COMPACT_BETA)
    if frame.params.get("compaction"):
        found.append(ON_DEMAND_BETA)
    if (frame.params.get("thinking") or {}).get("block_binding"):
        found.append(BINDING_BETA)
    return list(dict.fromkeys(found))


def _params(frame: Frame) -> Json:
    params = {k: v for k, v in frame.params.items() if k not in _OURS}
    config = dict(frame.params.get("output_config") or {})
    if frame.params.get("effort"):
        config["effort"] = frame.params["effort"]
    if config:
        params["output_config"] = config
    if not frame.tools:
        params.pop("tool_choice", None)
    return params


def choose_max_tokens(request: Request, most: int) -> int:
    """The longest reply to ask for, of at most `most` tokens: thinking counts, and must leave room."""
    asked = min(request.max_tokens or most, most)
    thinking = request.frame.params.get("thinking") or {}
    budget = thinking.get("budget_tokens")
    if isinstance(budget, int) and asked <= budget:
        return min(most, asked + budget)
    return asked


def _system(frame: Frame, room: int) -> list[Json]:
    """The parts of the system prompt, with so many marks at most."""
    parts: list[Json] = [{"type": "text", "text": part} for part in frame.system if part.strip()]
    for at in choose_marked_parts(len(parts), room):
        parts[at]["cache_control"] = MARKS[frame.head_ttl]
    return parts


def _kept_as_long(tool: Json, frame: Frame) -> Json:
    """A mark of the caller's own on a tool: nothing that is kept longer may stand behind it."""
    if "cache_control" in tool and frame.head_ttl == "1h":
        return {**tool, "cache_control": MARKS["1h"]}
    return tool


def _messages(request: Request, at: list[int]) -> list[bytes]:
    view = request.view
    wires = list(encode_view(view))
    mark = b',"cache_control":' + _encode(MARKS[request.frame.ttl])
    for i in at:
        wires[i] = _marked(wires[i], view[i].message, mark)
    if not view.pins:
        return wires
    for after, payloads in collect_pins(view).items():
        if (place := view.where(after)) is not None:
            for payload in payloads:
                wires[place] += b',{"role":"user","content":[' + payload + b"]}"
    return wires


# --- cache marks --------------------------------------------------------------------------------------


def place_marks(request: Request) -> tuple[list[int], int]:
    """Which messages carry a mark, and how many are left for the system prompt."""
    frame, view = request.frame, request.view
    room = MOST_MARKS - sum("cache_control" in tool for tool in frame.tools)
    room -= "cache_control" in frame.params
    wanted = {view.where(id) for id in request.breakpoints} - {None}
    places = sorted({i for at in wanted if (i := _markable_at(request, at)) is not None})
    for_messages = max(0, room - 1) if frame.system else max(0, room)
    kept = places[-for_messages:] if for_messages else []
    return kept, room - len(kept)


def choose_marked_parts(parts: int, room: int) -> set[int]:
    """Which parts of the system prompt carry a mark, of `room` at most: the last, then the first."""
    return set([parts - 1, 0][: max(0, room)]) if parts else set()


def _markable_at(request: Request, at: int | None) -> int | None:
    """This message, or the nearest before it that can carry a mark."""
    while at is not None and at >= 0:
        if any(map(is_markable, request.view[at].message.content)):
            return at
        at -= 1
    return None


def is_markable(block: Block) -> bool:
    """Providers refuse marks on thinking and on empty text; of unknown blocks we cannot tell."""
    if isinstance(block, Text):
        return bool(block.text.strip())
    return not isinstance(block, (*THOUGHTS, Opaque))


def _marked(wire: bytes, message: Message, mark: bytes) -> bytes:
    """The same bytes with a mark spliced into the last block that can carry one."""
    end = len(wire) - len(b"]}")
    for block in reversed(strip_unsigned_thinking(message).content):
        if is_markable(block):
            return wire[: end - 1] + mark + wire[end - 1 :]
        end -= len(_encode(encode_block(block))) + 1
    return wire


def remove_cache_marks(value: Any) -> Any:
    """JSON without its cache marks: what two requests are compared by."""
    if isinstance(value, dict):
        return {k: remove_cache_marks(v) for k, v in value.items() if k != "cache_control"}
    if isinstance(value, list):
        return [remove_cache_marks(v) for v in value]
    return value


VERSION: Final = "2023-06-01"
"""Understood by every server of this format; the one after it only takes parameters away."""
PATH: Final = "/v1/messages"

ERROR_TYPES: Final[dict[str, type[ModelFailure]]] = {
    "authentication_error": KeyRefused,
    "billing_error": KeyRefused,
    "permission_error": KeyRefused,
    "not_found_error": ModelNotFound,
    "request_too_large": PromptTooLong,
    "rate_limit_error": RateLimited,
    "timeout_error": Overloaded,
    "overloaded_error": Overloaded,
    "api_error": Overloaded,
    "conflict_error": Overloaded,
    "memory_path_conflict_error": BadRequest,
    "memory_precondition_failed_error": BadRequest,
    "invalid_request_error": BadRequest,
}
_VAGUE: Final = frozenset({"invalid_request_error", "api_error"})
"""Types that come with many statuses: there the status says more."""


def map_anthropic_error(said: ServerRefusal) -> ModelFailure:
    """Our error for one of Anthropic's, by its type and, where that is vague, by its status."""
    kind = ERROR_TYPES.get(said.kind)
    if kind is None or (said.kind in _VAGUE and said.status is not None):
        kind = map_status(said.status)
    if "credit balance is too low" in said.message:
        kind = KeyRefused
    return make_failure(kind, said)


class AnthropicModel:
    """A model behind the Messages API. `close` it when done."""

    def __init__(
        self,
        name: str,
        access: ModelAccess,
        *,
        clock: Clock | None = None,
        spoken_of: ProviderInfo | None = None,
    ) -> None:
        self.name = name
        url = access.anthropic_base_url.rstrip("/").removesuffix("/v1")
        self._local = is_loopback(url)
        self._provider = spoken_of or describe_provider(url)
        self._wire = ProviderConnection(
            self._provider, url, _headers(access), access, mapped=map_anthropic_error, clock=clock
        )
        asked = access.diagnostics
        self._diagnoses = url == ANTHROPIC_URL if asked is None else asked
        self._last: dict[str, str] = {}
        found = find_user_capabilities(name, access)
        drops = found.binds_thinking and access.drop_thinking
        self.capabilities = replace(found, edits_cache=access.edits_cache, drops_thinking=drops)

    def body(self, request: Request) -> bytes:
        """The bytes that `stream` sends, but for the question why the cache missed."""
        return encode_body(request, max_output=self.capabilities.max_output)

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        asked: Json | None = None
        if self._diagnoses:
            asked = {"previous_message_id": self._last.get(request.source)}
        content = encode_body(request, max_output=self.capabilities.max_output, diagnostics=asked)
        model = to_wire_name(request.frame.model)
        reply = AnthropicAssembly(self._provider, map_anthropic_error, model)
        headers = make_request_headers(request, self._local)
        async with self._wire.open(PATH, content, headers, model) as answer:
            async with aclosing(answer.events()) as events:
                async for event in events:
                    for item in reply.feed(event):
                        yield item
                    if reply.complete:
                        await drain_events(events)
                        break
            if not reply.complete:
                raise make_cut_error(self._provider)
        self._last[request.source] = reply.message_id
        yield reply.reply(answer.headers.get("request-id", ""))

    async def close(self) -> None:
        await self._wire.close()


def describe_provider(url: str) -> ProviderInfo:
    """Whom the messages of errors speak of."""
    local = is_loopback(url)
    return ProviderInfo("Anthropic", parse_host(url), "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", local)


def make_request_headers(request: Request, local: bool) -> dict[str, str]:
    """What goes with this request only."""
    headers: dict[str, str] = {}
    if wanted := collect_betas(request.frame):
        headers["anthropic-beta"] = ",".join(wanted)
    if local:  # the simulator's ledger counts by it; nobody else is told
        headers["x-sevenfold-source"] = request.source
    return headers


def _headers(access: ModelAccess) -> dict[str, str]:
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "anthropic-version": VERSION,
        "user-agent": "sevenfold",
    }
    if access.anthropic_token:
        headers["authorization"] = f"Bearer {access.anthropic_token}"
    elif access.anthropic_key:
        headers["x-api-key"] = access.anthropic_key
    return headers


class AnthropicSdk:
    """A model behind an `AsyncAnthropic` client or one of its siblings, which stays yours to close."""

    def __init__(
        self, client: anthropic.AsyncAnthropic | Any, model: str, *, window: int | None = None
    ) -> None:
        self._client, self.name = client.with_options(max_retries=0), model
        url = str(client.base_url)
        self._local = is_loopback(url)
        self._provider = describe_provider(url)
        self.capabilities = find_capabilities(model, window=window)

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        import anthropic

        model = to_wire_name(request.frame.model)
        reply = AnthropicAssembly(self._provider, map_anthropic_error, model)
        try:
            stream = await self._begin(request)
            async with stream:
                async for event in stream:
                    for item in reply.take(event.to_dict(warnings=False)):
                        yield item
        except list_sdk_errors(anthropic.AnthropicError) as error:
            hide = find_client_secrets(self._client)
            raise map_sdk_error(error, self._provider, map_anthropic_error, model, hide) from None
        except ValueError as error:  # what the SDK raises for an event that is not JSON
            raise make_unreadable_error(self._provider) from error
        if not reply.complete:
            raise make_cut_error(self._provider)
        yield reply.reply(stream.response.headers.get("request-id", ""))

    async def _begin(self, request: Request) -> Any:
        """Send it. All but the two fields the SDK insists on goes past its own ideas of a request."""
        fields = decode_json_object(encode_body(request, max_output=self.capabilities.max_output))
        try:
            return await self._client.messages.create(
                model=fields.pop("model"),
                max_tokens=fields.pop("max_tokens"),
                messages=[],
                stream=fields.pop("stream"),
                extra_headers=make_request_headers(request, self._local),
                extra_body=fields,
            )
        except TypeError as error:  # what the SDK raises when it was given no credentials
            raise make_no_credentials_error(self._provider) from error
