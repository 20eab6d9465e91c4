"""Bring your own client: Anthropic's SDK, also on Bedrock, Vertex or Foundry with their credentials.

The request is the same as our own client's, and so are the errors; only the road is the SDK's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from sevenfold.messages import Block
from sevenfold.models.access import is_loopback
from sevenfold.models.anthropic import mapped, provider, request_headers
from sevenfold.models.anthropic_format import body
from sevenfold.models.anthropic_stream import Assembly
from sevenfold.models.capabilities import capabilities, wire_name
from sevenfold.models.failures import cut
from sevenfold.models.jsontext import decode_object
from sevenfold.models.sdk_failures import (
    no_credentials,
    raised_by,
    sdk_failure,
    secrets_of,
    unreadable,
)
from sevenfold.request import Request
from sevenfold.transcript import Reply

if TYPE_CHECKING:
    import anthropic


class AnthropicSdk:
    """A model behind an `AsyncAnthropic` client or one of its siblings, which stays yours to close."""

    def __init__(
        self, client: anthropic.AsyncAnthropic | Any, model: str, *, window: int | None = None
    ) -> None:
        self._client, self.name = client.with_options(max_retries=0), model
        url = str(client.base_url)
        self._local = is_loopback(url)
        self._provider = provider(url)
        self.capabilities = capabilities(model, window=window)

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        import anthropic

        model = wire_name(request.frame.model)
        reply = Assembly(self._provider, mapped, model)
        try:
            stream = await self._begin(request)
            async with stream:
                async for event in stream:
                    for item in reply.take(event.to_dict(warnings=False)):
                        yield item
        except raised_by(anthropic.AnthropicError) as error:
            hide = secrets_of(self._client)
            raise sdk_failure(error, self._provider, mapped, model, hide) from None
        except ValueError as error:  # what the SDK raises for an event that is not JSON
            raise unreadable(self._provider) from error
        if not reply.complete:
            raise cut(self._provider)
        yield reply.reply(stream.response.headers.get("request-id", ""))

    async def _begin(self, request: Request) -> Any:
        """Send it. All but the two fields the SDK insists on goes past its own ideas of a request."""
        fields = decode_object(body(request, max_output=self.capabilities.max_output))
        try:
            return await self._client.messages.create(
                model=fields.pop("model"),
                max_tokens=fields.pop("max_tokens"),
                messages=[],
                stream=fields.pop("stream"),
                extra_headers=request_headers(request, self._local),
                extra_body=fields,
            )
        except TypeError as error:  # what the SDK raises when it was given no credentials
            raise no_credentials(self._provider) from error
