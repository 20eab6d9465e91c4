"""One thin streaming client: a request goes out as bytes we own, events come back as they arrive.

It never tries again by itself: the turn does, and it alone knows whether a tool has already run.

Server-sent events: bytes in as they arrive, whole events out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import BadRequest, ModelFailure
from sevenfold.core.protocols import Clock
from sevenfold.models.capabilities import ModelAccess, is_loopback
from sevenfold.models.failures import (
    Mapped,
    ProviderInfo,
    hide_secrets,
    list_transport_errors,
    make_no_model_error,
    make_protocol_error,
    map_transport_error,
    parse_error_body,
)
from sevenfold.models.jsontext import NotJson, decode_json

if TYPE_CHECKING:
    import httpx

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_MARK: Final = b"\xef\xbb\xbf"
"""A byte-order mark may stand at the very beginning."""


class SseEvent(msgspec.Struct, frozen=True):
    """One event: its name, "" when it has none, and its data lines joined."""

    name: str
    data: bytes


class SseParser:
    """Takes chunks cut anywhere, also inside a character or between `\\r` and `\\n`."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._skip_newline = False
        self._started = False
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that this chunk completes."""
        if self._skip_newline and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._skip_newline = False
        self._parts.append(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            return []  # nothing is joined before a line ends: a long line costs its length once
        held = b"".join(self._parts)
        self._skip_newline = held.endswith(b"\r")
        *lines, rest = _LINE_END.split(held)
        self._parts = [rest]
        return [event for line in lines if (event := self._line(line)) is not None]

    def rest(self) -> SseEvent | None:
        """What stands at the end without the blank line that should close it."""
        if line := b"".join(self._parts):
            self._line(line)
        self._parts = []
        return self._dispatch()

    def _line(self, line: bytes) -> SseEvent | None:
        if not self._started:
            line, self._started = line.removeprefix(_MARK), True
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"data":
            self._data.append(value)
        elif field == b"error":  # older llama.cpp servers write the error as a field of its own
            self._name = "error"
            self._data.append(value)
        return None

    def _dispatch(self) -> SseEvent | None:
        name, data = self._name, self._data
        self._name, self._data = "", []
        return SseEvent(name, b"\n".join(data)) if data else None


PLAIN: Final = "plain JSON"
"""The name of the one event that a server sends which answers without a stream."""
MOST_OF_AN_ERROR: Final = 65_536
MOST_OF_A_REPLY: Final = 64 << 20
DRAIN: Final = 0.5
"""Seconds that a server gets to end a stream whose last event has come."""


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
            start = chunk.lstrip()
            if start:
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
    """Read to the end, which is near, so that the connection can be used again."""
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
        """Send the bytes; whatever goes wrong until the answer is read comes out as one of our errors."""
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
            if _is_packed(response):  # the status says enough, and unpacking it could fill the memory
                break
            body += chunk
            if len(body) > MOST_OF_AN_ERROR:
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
        access = self._access
        keys = (access.anthropic_key, access.anthropic_token, access.openai_key)
        return (*keys, *access.headers.values())


def parse_error_text(body: bytes) -> object:
    """An error body as JSON, or as text when it is none; a web page says nothing."""
    try:
        return decode_json(body)
    except NotJson:
        text = body.decode("utf-8", "replace").strip()
        return "" if text.startswith("<") else text


def _is_packed(response: httpx.Response) -> bool:
    return str(response.headers.get("content-encoding", "identity")).lower() != "identity"
