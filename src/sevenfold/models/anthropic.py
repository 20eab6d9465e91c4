"""Anthropic's Messages API, and every server that speaks it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

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
from sevenfold.messages import Block, Json
from sevenfold.models.access import ANTHROPIC_URL, Access, host_of, is_loopback
from sevenfold.models.anthropic_format import betas, body
from sevenfold.models.anthropic_stream import Assembly
from sevenfold.models.capabilities import connected_capabilities, wire_name
from sevenfold.models.failures import Provider, Told, cut, failure, status_kind
from sevenfold.models.wire import Wire, drain
from sevenfold.protocols import Clock
from sevenfold.request import Request
from sevenfold.transcript import Reply

__all__ = ["ERROR_TYPES", "AnthropicModel", "betas", "body", "mapped"]

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


def mapped(said: Told) -> ModelFailure:
    """Our error for one of Anthropic's, by its type and, where that is vague, by its status."""
    kind = ERROR_TYPES.get(said.kind)
    if kind is None or (said.kind in _VAGUE and said.status is not None):
        kind = status_kind(said.status)
    if "credit balance is too low" in said.message:
        kind = KeyRefused
    return failure(kind, said)


class AnthropicModel:
    """A model behind the Messages API. `close` it when done."""

    def __init__(
        self,
        name: str,
        access: Access,
        *,
        clock: Clock | None = None,
        spoken_of: Provider | None = None,
    ) -> None:
        self.name = name
        url = access.anthropic_base_url.rstrip("/").removesuffix("/v1")
        self._local = is_loopback(url)
        self._provider = spoken_of or provider(url)
        self._wire = Wire(self._provider, url, _headers(access), access, mapped=mapped, clock=clock)
        asked = access.diagnostics
        self._diagnoses = url == ANTHROPIC_URL if asked is None else asked
        self._last: dict[str, str] = {}
        found = connected_capabilities(name, access)
        drops = found.binds_thinking and access.drop_thinking
        self.capabilities = replace(found, edits_cache=access.edits_cache, drops_thinking=drops)

    def body(self, request: Request) -> bytes:
        """The bytes that `stream` sends, but for the question why the cache missed."""
        return body(request, max_output=self.capabilities.max_output)

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        asked: Json | None = None
        if self._diagnoses:
            asked = {"previous_message_id": self._last.get(request.source)}
        content = body(request, max_output=self.capabilities.max_output, diagnostics=asked)
        model = wire_name(request.frame.model)
        reply = Assembly(self._provider, mapped, model)
        headers = request_headers(request, self._local)
        async with self._wire.open(PATH, content, headers, model) as answer:
            async with aclosing(answer.events()) as events:
                async for event in events:
                    for item in reply.feed(event):
                        yield item
                    if reply.complete:
                        await drain(events)
                        break
            if not reply.complete:
                raise cut(self._provider)
        self._last[request.source] = reply.message_id
        yield reply.reply(answer.headers.get("request-id", ""))

    async def close(self) -> None:
        await self._wire.close()


def provider(url: str) -> Provider:
    """Whom the messages of errors speak of."""
    local = is_loopback(url)
    return Provider("Anthropic", host_of(url), "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", local)


def request_headers(request: Request, local: bool) -> dict[str, str]:
    """What goes with this request only."""
    headers: dict[str, str] = {}
    if wanted := betas(request.frame):
        headers["anthropic-beta"] = ",".join(wanted)
    if local:  # the simulator's ledger counts by it; nobody else is told
        headers["x-sevenfold-source"] = request.source
    return headers


def _headers(access: Access) -> dict[str, str]:
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
