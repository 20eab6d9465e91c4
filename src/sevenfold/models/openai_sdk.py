"""Bring your own client: OpenAI's SDK, also on Azure with its credentials.

The request is the same as our own client's, and so are the errors; only the road is the SDK's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from sevenfold.messages import Block
from sevenfold.models.access import is_loopback
from sevenfold.models.capabilities import capabilities, wire_name
from sevenfold.models.failures import cut
from sevenfold.models.jsontext import decode_object
from sevenfold.models.openai import able, is_official, mapped, provider, request_headers
from sevenfold.models.openai_format import body
from sevenfold.models.openai_stream import Assembly
from sevenfold.models.sdk_failures import raised_by, sdk_failure, secrets_of, unreadable
from sevenfold.request import Request
from sevenfold.transcript import Reply

if TYPE_CHECKING:
    import openai


class OpenAiSdk:
    """A model behind an `AsyncOpenAI` client or one of its siblings, which stays yours to close."""

    def __init__(
        self, client: openai.AsyncOpenAI | Any, model: str, *, window: int | None = None
    ) -> None:
        self._client, self.name = client.with_options(max_retries=0), model
        url = str(client.base_url)
        self._local, self._official = is_loopback(url), is_official(url)
        self._provider = provider(url)
        self.capabilities = able(capabilities(model, window=window))

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        import openai

        model = wire_name(request.frame.model)
        reply = Assembly(self._provider, mapped, request.view, model)
        try:
            stream = await self._begin(request)
            async with stream:
                async for chunk in stream:
                    for item in reply.take(chunk.to_dict(warnings=False)):
                        yield item
        except raised_by(openai.OpenAIError) as error:
            hide = secrets_of(self._client)
            raise sdk_failure(error, self._provider, mapped, model, hide) from None
        except ValueError as error:  # what the SDK raises for an event that is not JSON
            raise unreadable(self._provider) from error
        if not reply.complete:
            raise cut(self._provider)
        for item in reply.finish():
            yield item
        yield reply.reply(stream.response.headers.get("x-request-id", ""))

    async def _begin(self, request: Request) -> Any:
        """Send it. All but the fields the SDK insists on goes past its own ideas of a request."""
        fields = decode_object(body(request, official=self._official))
        return await self._client.chat.completions.create(
            model=fields.pop("model"),
            messages=[],
            stream=fields.pop("stream"),
            extra_headers=request_headers(request, self._local),
            extra_body=fields,
        )
