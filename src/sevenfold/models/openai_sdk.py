"""Bring your own client: OpenAI's SDK, also on Azure with its credentials.

The request is the same as our own client's, and so are the errors; only the road is the SDK's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from sevenfold.messages import Block
from sevenfold.models.access import host_of, is_loopback
from sevenfold.models.capabilities import capabilities, wire_name
from sevenfold.models.failures import Provider, cut
from sevenfold.models.jsontext import decode_object
from sevenfold.models.openai import is_official, mapped
from sevenfold.models.openai_format import body
from sevenfold.models.openai_stream import Assembly
from sevenfold.models.sdk_failures import raised_by, sdk_failure, secrets_of, unreadable
from sevenfold.protocols import Capabilities
from sevenfold.request import Request
from sevenfold.transcript import Reply

if TYPE_CHECKING:
    import openai


class OpenAiSdk:
    """A model behind an `AsyncOpenAI` client or one of its siblings, which stays yours to close."""

    def __init__(
        self, client: openai.AsyncOpenAI | Any, model: str, *, window: int | None = None
    ) -> None:
        self._client, self._name = client.with_options(max_retries=0), model
        url = str(client.base_url)
        self._local, self._official = is_loopback(url), is_official(url)
        self._provider = Provider(
            "OpenAI" if self._official else "the server",
            host_of(url),
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL",
            self._local,
        )
        self._able = replace(
            capabilities(model, window=window),
            context_management=False,
            server_compaction=False,
            binds_thinking=False,
        )

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        return self._able

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
            extra_headers={"x-sevenfold-source": request.source} if self._local else {},
            extra_body=fields,
        )
