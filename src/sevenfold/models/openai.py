"""Chat completions: OpenAI, and the servers that speak its format (vLLM, Ollama, llama.cpp and others).

`OpenAiModel` is our own client; `OpenAiSdk` takes yours, also on Azure with its credentials.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from sevenfold.core.errors import (
    BadRequest,
    KeyRefused,
    ModelFailure,
    ModelNotFound,
    NoKey,
    Overloaded,
    PromptTooLong,
    RateLimited,
)
from sevenfold.core.messages import Block
from sevenfold.core.protocols import Capabilities, Clock
from sevenfold.core.request import Request
from sevenfold.core.transcript import Reply
from sevenfold.models.capabilities import (
    ModelAccess,
    check_key,
    check_model_name,
    find_capabilities,
    find_user_capabilities,
    is_loopback,
    parse_host,
    to_wire_name,
)
from sevenfold.models.failures import ProviderInfo, ServerRefusal, make_failure, map_status
from sevenfold.models.http import ProviderConnection, relay_sdk
from sevenfold.models.jsontext import decode_json_object
from sevenfold.models.openai_stream import OpenAiAssembly
from sevenfold.models.openai_wire import encode_body

if TYPE_CHECKING:
    import openai

PATH: Final = "/chat/completions"

ERROR_TYPES: Final[dict[str, type[ModelFailure]]] = {
    "insufficient_quota": KeyRefused, "billing_hard_limit_reached": KeyRefused,
    "billing_not_active": KeyRefused, "account_deactivated": KeyRefused, "invalid_api_key": KeyRefused,
    "authentication_error": KeyRefused, "permission_error": KeyRefused,
    "unsupported_country_region_territory": KeyRefused,
    "model_not_found": ModelNotFound, "not_found_error": ModelNotFound, "NotFoundError": ModelNotFound,
    "context_length_exceeded": PromptTooLong, "exceed_context_size_error": PromptTooLong,
    "rate_limit_exceeded": RateLimited, "rate_limit_error": RateLimited,
    "server_error": Overloaded, "api_error": Overloaded, "unavailable_error": Overloaded,
    "InternalServerError": Overloaded,
    "not_supported_error": BadRequest, "content_filter": BadRequest, "BadRequestError": BadRequest,
    "invalid_request_error": BadRequest,
}  # fmt: skip
"""By code, then by type, as OpenAI, vLLM and llama.cpp write them."""
_VAGUE: Final = frozenset({"invalid_request_error", "api_error", "server_error"})


def map_openai_error(said: ServerRefusal) -> ModelFailure:
    """Our error for one of theirs: by code, by type, and where those are vague by status."""
    for name in (said.code, said.kind):
        kind = ERROR_TYPES.get(name)
        if kind is not None and not (name in _VAGUE and said.status is not None):
            return make_failure(kind, said)
    return make_failure(map_status(said.status), said)


def connect_openai(name: str, access: ModelAccess, clock: Clock | None) -> OpenAiModel:
    check_model_name(name)
    check_key("OPENAI_API_KEY", access.openai_key)
    if is_official(access.openai_base_url) and not access.openai_key:
        raise NoKey(
            f"{name} needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own, "
            "or use the model 'offline'"
        )
    return OpenAiModel(name, access, clock=clock)


class OpenAiModel:
    """A model behind a chat-completions endpoint. `close` it when done."""

    def __init__(self, name: str, access: ModelAccess, *, clock: Clock | None = None) -> None:
        self.name = name
        url = access.openai_base_url.rstrip("/")
        self._local, self._official = is_loopback(url), is_official(url)
        self._provider = describe_provider(url)
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        headers["user-agent"] = "sevenfold"
        if access.openai_key:
            headers["authorization"] = f"Bearer {access.openai_key}"
        self._wire = ProviderConnection(
            self._provider, url, headers, access, mapped=map_openai_error, clock=clock
        )
        self.capabilities = limit_capabilities(find_user_capabilities(name, access), self._local)

    def body(self, request: Request) -> bytes:
        """The bytes that `stream` sends."""
        return encode_body(request, official=self._official)

    def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        reply = OpenAiAssembly(
            self._provider, map_openai_error, request.view, to_wire_name(request.frame.model)
        )
        headers = make_request_headers(request, self._local)
        return self._wire.relay(PATH, lambda: self.body(request), headers, reply)

    async def close(self) -> None:
        await self._wire.close()


def describe_provider(url: str) -> ProviderInfo:
    """The provider that error messages name."""
    who = "OpenAI" if is_official(url) else "the server"
    return ProviderInfo(who, parse_host(url), "OPENAI_API_KEY", "OPENAI_BASE_URL", is_loopback(url))


def limit_capabilities(known: Capabilities, local: bool) -> Capabilities:
    """The capabilities that a model has through chat completions."""
    less = replace(known, context_management=False, server_compaction=False, binds_thinking=False)
    return replace(less, one_at_a_time=local)


def make_request_headers(request: Request, local: bool) -> dict[str, str]:
    """The source, which the simulator's ledger counts by; other servers do not get it."""
    return {"x-sevenfold-source": request.source} if local else {}


def is_official(url: str) -> bool:
    """True for OpenAI itself, or Azure's copy of it."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return host == "api.openai.com" or host.endswith((".openai.com", ".openai.azure.com"))


class OpenAiSdk:
    """A model behind an `AsyncOpenAI` client or one of its siblings, which stays yours to close."""

    def __init__(self, client: openai.AsyncOpenAI | Any, model: str, *, window: int | None = None) -> None:
        self._client, self.name = client.with_options(max_retries=0), model
        url = str(client.base_url)
        self._local, self._official = is_loopback(url), is_official(url)
        self._provider = describe_provider(url)
        self.capabilities = limit_capabilities(find_capabilities(model, window=window), self._local)

    def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        import openai

        reply = OpenAiAssembly(
            self._provider, map_openai_error, request.view, to_wire_name(request.frame.model)
        )
        return relay_sdk(self._client, lambda: self._begin(request), reply, openai.OpenAIError)

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
