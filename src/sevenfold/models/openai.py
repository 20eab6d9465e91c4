"""Chat completions: OpenAI, and the servers that speak its format (vLLM, Ollama, llama.cpp and others)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from sevenfold.errors import (
    BadRequest,
    KeyRefused,
    ModelFailure,
    ModelNotFound,
    Overloaded,
    PromptTooLong,
    RateLimited,
)
from sevenfold.messages import Block
from sevenfold.models.access import Access, host_of, is_loopback
from sevenfold.models.capabilities import connected_capabilities, wire_name
from sevenfold.models.failures import Provider, Told, cut, failure, status_kind
from sevenfold.models.openai_format import body
from sevenfold.models.openai_stream import Assembly
from sevenfold.models.wire import Wire, drain
from sevenfold.protocols import Capabilities, Clock
from sevenfold.request import Request
from sevenfold.transcript import Reply

__all__ = ["ERROR_TYPES", "OpenAiModel", "body", "mapped"]

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


def mapped(said: Told) -> ModelFailure:
    """Our error for one of theirs: by code, by type, and where those are vague by status."""
    for name in (said.code, said.kind):
        kind = ERROR_TYPES.get(name)
        if kind is not None and not (name in _VAGUE and said.status is not None):
            return failure(kind, said)
    return failure(status_kind(said.status), said)


class OpenAiModel:
    """A model behind a chat-completions endpoint. `close` it when done."""

    def __init__(self, name: str, access: Access, *, clock: Clock | None = None) -> None:
        self.name = name
        url = access.openai_base_url.rstrip("/")
        self._local = is_loopback(url)
        self._official = is_official(url)
        self._provider = provider(url)
        self._wire = Wire(self._provider, url, _headers(access), access, mapped=mapped, clock=clock)
        self.capabilities = able(connected_capabilities(name, access))

    def body(self, request: Request) -> bytes:
        """The bytes that `stream` sends."""
        return body(request, official=self._official)

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        model = wire_name(request.frame.model)
        reply = Assembly(self._provider, mapped, request.view, model)
        headers = request_headers(request, self._local)
        async with self._wire.open(PATH, self.body(request), headers, model) as answer:
            async with aclosing(answer.events()) as events:
                async for event in events:
                    for item in reply.feed(event):
                        yield item
                    if reply.ended:
                        await drain(events)
                        break
            if not reply.complete:
                raise cut(self._provider)
        for item in reply.finish():
            yield item
        yield reply.reply(answer.headers.get("x-request-id", ""))

    async def close(self) -> None:
        await self._wire.close()


def provider(url: str) -> Provider:
    """Whom the messages of errors speak of."""
    who = "OpenAI" if is_official(url) else "the server"
    return Provider(who, host_of(url), "OPENAI_API_KEY", "OPENAI_BASE_URL", is_loopback(url))


def able(known: Capabilities) -> Capabilities:
    """What a model can do by way of chat completions."""
    return replace(
        known,
        context_management=False,
        server_compaction=False,
        binds_thinking=False,
    )


def request_headers(request: Request, local: bool) -> dict[str, str]:
    """The simulator's ledger counts by it; nobody else is told."""
    return {"x-sevenfold-source": request.source} if local else {}


def is_official(url: str) -> bool:
    """Whether this is OpenAI itself, or Azure's copy of it."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return host == "api.openai.com" or host.endswith((".openai.com", ".openai.azure.com"))


def _headers(access: Access) -> dict[str, str]:
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "user-agent": "sevenfold",
    }
    if access.openai_key:
        headers["authorization"] = f"Bearer {access.openai_key}"
    return headers
