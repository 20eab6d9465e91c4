"""One thin streaming client: a request goes out as bytes we own, events come back as they arrive.

It never tries again by itself: the turn does, and it alone knows whether a tool has already run.
`relay_sdk` does the same over an official SDK's client.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import anyio
import msgspec

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import BadReply, BadRequest, ModelFailure
from sevenfold.core.messages import Block, Json
from sevenfold.core.protocols import Clock
from sevenfold.core.transcript import Reply
from sevenfold.models.capabilities import ModelAccess, is_loopback
from sevenfold.models.failures import (
    Mapped,
    ProviderInfo,
    find_client_secrets,
    hide_secrets,
    list_transport_errors,
    make_cut_error,
    make_no_model_error,
    make_protocol_error,
    make_unreadable_error,
    map_sdk_error,
    map_transport_error,
    parse_error_body,
)
from sevenfold.models.jsontext import NotJson, decode_json, decode_json_object
from sevenfold.models.sse import SseEvent, SseParser

if TYPE_CHECKING:
    import httpx

PLAIN: Final = "plain JSON"  # The name of the one event of a server that does not stream
MOST_OF_AN_ERROR: Final = 65_536
MOST_OF_A_REPLY: Final = 64 << 20
DRAIN: Final = 0.5  # Seconds that a server gets to end a stream whose last event has come


class HttpReply:
    """A reply that has begun."""

    def __init__(self, provider: ProviderInfo, response: httpx.Response) -> None:
        self._provider, self._response = provider, response
        self.headers: Mapping[str, str] = response.headers

    async def events(self) -> AsyncGenerator[SseEvent, None]:
        """Each event when it is complete; one event named `PLAIN` if the server does not stream."""
        chunks = self._chunks()
        start = b""
        async for chunk in chunks:
            if start := chunk.lstrip():
                break
        match start.strip()[:1]:
            case b"{":
                yield SseEvent(PLAIN, start + b"".join([chunk async for chunk in chunks]))
                return
            case b"<":
                raise make_no_model_error(self._provider, "a web page")
        parser = SseParser()
        for event in parser.feed(start):
            yield event
        async for chunk in chunks:
            for event in parser.feed(chunk):
                yield event
        # Some servers forget the blank line at the end; half an event is no event.
        if (last := parser.rest()) is not None and _is_whole(last):
            yield last

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        """The bytes as they come; a reply without an end is given up."""
        taken = 0
        async for chunk in self._response.aiter_raw():
            taken += len(chunk)
            if taken > MOST_OF_A_REPLY:
                raise make_protocol_error(self._provider, f"more than {MOST_OF_A_REPLY >> 20} MB")
            yield chunk


async def drain_events(events: AsyncGenerator[SseEvent, None]) -> None:
    """Read the few bytes to the end, so that the connection can be used again."""
    with anyio.move_on_after(DRAIN):
        async for _ in events:
            pass


def _is_whole(event: SseEvent) -> bool:
    if event.data.strip() == b"[DONE]":
        return True
    try:
        decode_json(event.data)
    except NotJson:
        return False
    return True


class ReplyAssembly(ABC):
    """Puts a streamed reply together; each format has its own kind."""

    id_header: ClassVar[str]  # The header that names the request

    def __init__(self, provider: ProviderInfo, mapped: Mapped, model: str = "") -> None:
        self.provider, self.mapped, self.model = provider, mapped, model
        self.message_id = ""
        self.complete = False  # True once the reply can be used
        self.ended = False  # True once the server said that this was all
        self._answered_by = model
        self._blocks: list[Block] = []
        self._stop = self._broken = ""

    @abstractmethod
    def feed(self, event: SseEvent) -> list[str | Block]:
        """The text and the blocks that an event from the wire adds."""

    @abstractmethod
    def finish(self) -> list[str | Block]:
        """The blocks that only the end completes. Called once, when `complete`."""

    @abstractmethod
    def reply(self, request_id: str = "") -> Reply: ...

    @abstractmethod
    def _take(self, event: Json, raw: bytes | None) -> list[str | Block]: ...

    def take(self, event: Json, raw: bytes | None = None) -> list[str | Block]:
        """The same for an event that is given as an object; `raw` are the bytes it came in."""
        try:
            return self._take(event, raw)
        except (TypeError, AttributeError, ValueError, msgspec.MsgspecError) as error:
            what = f"an event of the wrong shape ({type(error).__name__})"
            raise make_protocol_error(self.provider, what) from error

    def decode(self, event: SseEvent) -> Json:
        try:
            return decode_json_object(event.data)
        except NotJson as error:
            raise make_protocol_error(self.provider, f"an event that cannot be read ({error})") from None

    def check_calls(self, short: bool) -> None:
        """Raises `BadReply` for a call that cannot be read, unless the reply was cut short."""
        if self._broken and not short:
            raise BadReply(
                f"{self.provider.name} sent a call of {self._broken} whose input is not a JSON object; "
                "try again"
            )


class ProviderConnection:
    """The connection to one provider, opened with the first request and kept until `close`."""

    def __init__(
        self,
        provider: ProviderInfo,
        url: str,
        headers: Mapping[str, str],
        access: ModelAccess,
        *,
        mapped: Mapped,
        clock: Clock | None = None,
    ) -> None:
        self.provider = provider
        self._url, self._mapped = url, mapped
        # Packed, a few bytes could become gigabytes.
        plain = {"accept-encoding": "identity"}
        self._headers = {**headers, **plain, **{k.lower(): v for k, v in access.headers.items()}}
        self._access = access
        self._now = (clock or SystemClock()).now
        self._client: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def open(
        self, path: str, content: bytes, headers: Mapping[str, str], model: str = ""
    ) -> AsyncIterator[HttpReply]:
        """Send the bytes; every failure until the answer is read is raised as one of our errors."""
        try:
            client = self._client or self._connect()
            async with client.stream(
                "POST", self._url + path, content=content, headers={**self._headers, **headers}
            ) as response:
                if response.status_code != 200:
                    raise await self._refused(response, model)
                if _is_packed(response):
                    raise make_protocol_error(self.provider, "a packed answer, which was not asked for")
                yield HttpReply(self.provider, response)
        except list_transport_errors() as error:
            raise map_transport_error(error, self.provider) from None
        except ModelFailure as error:  # also one that came as an event of the stream
            secrets = tuple(self._secrets())
            error.args = tuple(hide_secrets(str(part), secrets) for part in error.args)
            raise

    async def relay(
        self, path: str, encode: Callable[[], bytes], headers: Mapping[str, str], reply: ReplyAssembly
    ) -> AsyncGenerator[str | Block | Reply, None]:
        """Send a body and yield the reply as it comes, whole at the end. Nothing is encoded before that."""
        async with self.open(path, encode(), headers, reply.model) as answer:
            async with aclosing(answer.events()) as events:
                async for event in events:
                    for item in reply.feed(event):
                        yield item
                    if reply.ended:
                        await drain_events(events)
                        break
            if not reply.complete:
                raise make_cut_error(self.provider)
        for item in reply.finish():
            yield item
        yield reply.reply(answer.headers.get(reply.id_header, ""))

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _connect(self) -> httpx.AsyncClient:
        if "httpx" not in sys.modules:
            # Its command line would load rich, click and pygments: most of the time we need to start.
            sys.modules["httpx._main"] = SimpleNamespace(main=lambda: None)  # type: ignore[assignment]
        import httpx

        access = self._access
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(access.read_timeout, connect=access.connect_timeout),
            # No proxy stands between us and this machine; and without TLS no certificates are loaded.
            trust_env=not is_loopback(self._url),
            verify=not self._url.startswith("http://"),
        )
        return self._client

    async def _refused(self, response: httpx.Response, model: str) -> ModelFailure:
        if response.status_code < 400:
            where = self.provider
            return BadRequest(
                f"{where.name} at {where.host} answered {response.status_code} instead of a reply: "
                f"set {where.url} to the final address"
            )
        body = b""
        async for chunk in response.aiter_raw():
            # Of a packed body the status says enough, and unpacking it could fill the memory.
            if _is_packed(response) or len(body := body + chunk) > MOST_OF_AN_ERROR:
                break
        return self._mapped(
            parse_error_body(
                self.provider,
                parse_error_text(body),
                status=response.status_code,
                headers=response.headers,
                model=model,
                hide=self._secrets(),
                now=self._now,
            )
        )

    def _secrets(self) -> tuple[str, ...]:
        own = self._access
        return (own.anthropic_key, own.anthropic_token, own.openai_key, *own.headers.values())


async def relay_sdk(
    client: Any, begin: Callable[[], Awaitable[Any]], reply: ReplyAssembly, sdk_error: type[Exception]
) -> AsyncGenerator[str | Block | Reply, None]:
    """Yield the reply that an SDK's client streams, with its errors as ours."""
    try:
        stream = await begin()
        async with stream:
            async for event in stream:
                for item in reply.take(event.to_dict(warnings=False)):
                    yield item
    except (sdk_error, *list_transport_errors()) as error:
        hide = find_client_secrets(client)
        raise map_sdk_error(error, reply.provider, reply.mapped, reply.model, hide) from None
    except ValueError as error:  # what the SDK raises for an event that is not JSON
        raise make_unreadable_error(reply.provider) from error
    if not reply.complete:
        raise make_cut_error(reply.provider)
    for item in reply.finish():
        yield item
    yield reply.reply(stream.response.headers.get(reply.id_header, ""))


def parse_error_text(body: bytes) -> object:
    """An error body as JSON, else as text; a web page becomes an empty text."""
    try:
        return decode_json(body)
    except NotJson:
        text = body.decode("utf-8", "replace").strip()
        return "" if text.startswith("<") else text


def _is_packed(response: httpx.Response) -> bool:
    return str(response.headers.get("content-encoding", "identity")).lower() != "identity"
