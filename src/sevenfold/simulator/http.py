"""A small HTTP/1.1 server on h11: enough for API clients on this machine, streaming included."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import anyio
import h11
from anyio.abc import SocketStream

READ: Final = 65_536
GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


@dataclass(slots=True)
class Call:
    """One request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    too_large: bool = False
    """The body was over the limit and has been thrown away."""
    wait_for_goodbye: Callable[[], Awaitable[None]] = field(default=anyio.sleep_forever)
    """Returns when the client has closed the connection."""


@dataclass(slots=True)
class Answer:
    """What goes out. A body of several chunks is streamed; `cut` ends the connection after it."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncGenerator[bytes, None] | bytes
    cut: bool = False


class Cut(Exception):
    """Raised while answering to drop the connection on the spot."""


Handle = Callable[[Call], Awaitable[Answer]]


async def serve_connection(stream: SocketStream, handle: Handle, limit: int) -> None:
    """Answer requests on one connection until either side is done with it."""
    wire = _Wire(stream, limit)
    async with stream:
        try:
            while await wire.exchange(handle):
                pass
        except (*GONE, Cut):
            return
        except h11.RemoteProtocolError as error:
            await wire.complain(error)


class _Wire:
    def __init__(self, stream: SocketStream, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=READ)

    async def exchange(self, handle: Handle) -> bool:
        """One request and its answer. False when the connection is at its end."""
        head = await self._next()
        if not isinstance(head, h11.Request):
            return False
        call = await self._read(head)
        answer = await handle(call)
        await self._write(answer, head.method == b"HEAD")
        if answer.cut:
            raise Cut
        if self._h11.our_state is h11.MUST_CLOSE or self._h11.their_state is not h11.DONE:
            return False
        self._h11.start_next_cycle()
        return True

    async def _next(self) -> object:
        """The next event of the client, as soon as enough of it has come."""
        while True:
            event = self._h11.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._h11.they_are_waiting_for_100_continue:
                go = h11.InformationalResponse(status_code=100, headers=[])
                await self._stream.send(self._h11.send(go) or b"")
            try:
                data = await self._stream.receive(READ)
            except anyio.EndOfStream:
                data = b""
            self._h11.receive_data(data)

    async def _read(self, head: h11.Request) -> Call:
        body = bytearray()
        too_large = False
        while isinstance(event := await self._next(), h11.Data):
            too_large = too_large or len(body) + len(event.data) > self._limit
            if too_large:
                body.clear()  # keep reading: a client that is still sending would not see the answer
            else:
                body += event.data
        try:
            url = urlsplit(head.target.decode("ascii", "replace"))
        except ValueError as error:
            raise h11.RemoteProtocolError(f"the address cannot be read: {error}") from error
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head.headers
        }
        method = head.method.decode("ascii")
        query = dict(parse_qsl(url.query))
        return Call(method, url.path, query, headers, bytes(body), too_large, self._goodbye)

    async def _write(self, answer: Answer, head_only: bool) -> None:
        headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        if isinstance(answer.chunks, bytes):
            headers.append((b"content-length", b"%d" % len(answer.chunks)))
        await self._send(h11.Response(status_code=answer.status, headers=headers))
        if isinstance(answer.chunks, bytes):
            if answer.cut:
                await self._send(h11.Data(data=answer.chunks[: len(answer.chunks) // 2]))
                return
            if not head_only:
                await self._send(h11.Data(data=answer.chunks))
        else:
            async with aclosing(answer.chunks) as chunks:
                async for chunk in chunks:
                    await self._send(h11.Data(data=chunk))
        if not answer.cut:
            await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        data = self._h11.send(event)
        if data:
            await self._stream.send(data)

    async def _goodbye(self) -> None:
        try:
            while await self._stream.receive(READ):
                pass
        except GONE:
            return

    async def complain(self, error: h11.RemoteProtocolError) -> None:
        if self._h11.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        said = f"This is not HTTP: {error}".encode()
        try:
            await self._write(Answer(error.error_status_hint, {"connection": "close"}, said), False)
        except GONE:
            return
