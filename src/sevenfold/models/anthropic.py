"""Anthropic's Messages API, and every server that speaks it.

`AnthropicModel` is our own client; `AnthropicSdk` takes yours, also on Bedrock, Vertex or Foundry with
their credentials.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

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
    UnknownModel,
)
from sevenfold.core.messages import Block
from sevenfold.core.protocols import Clock
from sevenfold.core.request import Request
from sevenfold.core.transcript import Reply
from sevenfold.models.anthropic_stream import AnthropicAssembly
from sevenfold.models.anthropic_wire import collect_betas, encode_body
from sevenfold.models.capabilities import (
    ANTHROPIC_URL,
    FAMILIES,
    OFFLINE,
    ModelAccess,
    check_key,
    check_model_name,
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
    make_failure,
    make_no_credentials_error,
    map_status,
)
from sevenfold.models.http import ProviderConnection, relay_sdk
from sevenfold.models.jsontext import decode_json_object
from sevenfold.models.registry import PROVIDERS
from sevenfold.models.threads import (
    THREADS_BETA,
    ThreadRefused,
    ThreadStep,
    ThreadTracker,
    find_thread_code,
)

if TYPE_CHECKING:
    import anthropic

VERSION: Final = "2023-06-01"
"""Understood by every server of this format; the one after it only takes parameters away."""
PATH: Final = "/v1/messages"

ERROR_TYPES: Final[dict[str, type[ModelFailure]]] = {
    "authentication_error": KeyRefused, "billing_error": KeyRefused, "permission_error": KeyRefused,
    "not_found_error": ModelNotFound, "request_too_large": PromptTooLong, "rate_limit_error": RateLimited,
    "timeout_error": Overloaded, "overloaded_error": Overloaded, "api_error": Overloaded,
    "conflict_error": Overloaded, "memory_path_conflict_error": BadRequest,
    "memory_precondition_failed_error": BadRequest, "invalid_request_error": BadRequest,
}  # fmt: skip
_VAGUE: Final = frozenset({"invalid_request_error", "api_error"})
"""Types that come with many statuses: there the status says more."""


def map_anthropic_error(said: ServerRefusal) -> ModelFailure:
    """Our error for one of Anthropic's, by its type and, where that is vague, by its status."""
    if code := find_thread_code(said.fields):
        return ThreadRefused(f"{said.provider.name} refused the thread ({code}): {said.message}", code=code)
    kind = ERROR_TYPES.get(said.kind)
    if kind is None or (said.kind in _VAGUE and said.status is not None):
        kind = map_status(said.status)
    if "credit balance is too low" in said.message:
        kind = KeyRefused
    return make_failure(kind, said)


def connect_anthropic(name: str, access: ModelAccess, clock: Clock | None) -> AnthropicModel:
    check_model_name(name)
    name = name.removeprefix("anthropic:")
    official = access.anthropic_base_url.rstrip("/") in (ANTHROPIC_URL, f"{ANTHROPIC_URL}/v1")
    if official and "claude" not in name:
        raise UnknownModel(f"Anthropic has no model called {name!r}: {_suggest_name(name)}")
    check_key("ANTHROPIC_API_KEY", access.anthropic_key)
    check_key("ANTHROPIC_AUTH_TOKEN", access.anthropic_token)
    if official and not access.anthropic_key and not access.anthropic_token:
        raise NoKey(f"{name} needs a key: set ANTHROPIC_API_KEY, or use the model 'offline'")
    return AnthropicModel(name, access, clock=clock)


def _suggest_name(name: str) -> str:
    import difflib

    if find_family(name) is not None:
        return f"did you mean 'openai:{name}'?"
    known = [f.prefix for f in FAMILIES if f.prefix.startswith("claude-") and f.prefix != "claude-"]
    near = difflib.get_close_matches(name, [OFFLINE, *known], n=1, cutoff=0.5)
    inside = [one for one in known if name in one]
    if near or inside:
        return f"did you mean {(near or inside)[0]!r}?"
    return f"use {PROVIDERS.describe_names()}"


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
        self._diagnoses = url == ANTHROPIC_URL if access.diagnostics is None else access.diagnostics
        self._last: dict[str, str] = {}
        holds = access.threads and (url == ANTHROPIC_URL or self._local)
        self.threads = ThreadTracker() if holds else None
        found = find_user_capabilities(name, access)
        drops = found.binds_thinking and access.drop_thinking
        self.capabilities = replace(
            found, edits_cache=access.edits_cache, drops_thinking=drops, one_at_a_time=self._local
        )

    def body(self, request: Request) -> bytes:
        """The bytes that `stream` sends, without `diagnostics`."""
        return encode_body(request, max_output=self.capabilities.max_output)

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        step = self.threads.plan(request) if self.threads else None
        is_sent = False
        while not is_sent:
            try:
                async with aclosing(self._send(request, step)) as items:
                    async for item in items:
                        yield item
                is_sent = True
            except ThreadRefused as refused:  # by its status, before anything was streamed
                if self.threads is None or step is None:
                    raise
                step = self.threads.recover(request.source, step, refused)

    async def _send(
        self, request: Request, step: ThreadStep | None
    ) -> AsyncGenerator[str | Block | Reply, None]:
        asked = {"previous_message_id": self._last.get(request.source)} if self._diagnoses else None
        most = self.capabilities.max_output
        content = encode_body(request, max_output=most, diagnostics=asked, thread=step)
        reply = AnthropicAssembly(self._provider, map_anthropic_error, to_wire_name(request.frame.model))
        headers = make_request_headers(request, self._local, is_threaded=step is not None)
        async with aclosing(self._wire.relay(PATH, lambda: content, headers, reply)) as items:
            async for item in items:
                if isinstance(item, Reply):
                    self._last[request.source] = reply.message_id
                    if self.threads and step:
                        item = replace(item, diagnostics={**item.diagnostics, "thread": step.kind})
                        self.threads.record(request, item)
                yield item

    async def close(self) -> None:
        await self._wire.close()


def describe_provider(url: str) -> ProviderInfo:
    """The provider that error messages name."""
    local = is_loopback(url)
    return ProviderInfo("Anthropic", parse_host(url), "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", local)


def make_request_headers(request: Request, local: bool, *, is_threaded: bool = False) -> dict[str, str]:
    """Headers of this request only."""
    headers: dict[str, str] = {}
    if wanted := [*collect_betas(request.frame), *([THREADS_BETA] if is_threaded else [])]:
        headers["anthropic-beta"] = ",".join(wanted)
    if local:  # only the simulator gets it: its ledger counts by it
        headers["x-sevenfold-source"] = request.source
    return headers


def _headers(access: ModelAccess) -> dict[str, str]:
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    headers |= {"anthropic-version": VERSION, "user-agent": "sevenfold"}
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
        known = find_capabilities(model, window=window)
        self.capabilities = replace(known, one_at_a_time=self._local)

    def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        import anthropic

        reply = AnthropicAssembly(self._provider, map_anthropic_error, to_wire_name(request.frame.model))
        return relay_sdk(self._client, lambda: self._begin(request), reply, anthropic.AnthropicError)

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
