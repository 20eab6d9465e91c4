"""A small HTTP/1.1 server on h11 for clients on this machine: streams both ways, turns web pages away.

async with LoopbackServer(answer) as server:      # `answer` takes an HttpCall, returns an HttpAnswer
    print(server.url)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import anyio
import h11
from anyio.abc import SocketAttribute, SocketStream

from sevenfold.core.errors import Mistake
from sevenfold.models.capabilities import is_loopback

HOST: Final = "127.0.0.1"
LIMIT: Final = 32 * 1024 * 1024  # Bytes of a body that are read before it is answered
READ: Final = 65_536
GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)
SURPRISES: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of our own that a strange request may bring about: they must not end the server."""


@dataclass(slots=True)
class HttpCall:
    """One request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    rest: AsyncGenerator[bytes, None] | None = None
    """The part of the body that is over the limit, not read yet."""
    target: str = ""  # Path and query, as sent
    fields: Sequence[tuple[bytes, bytes]] = ()  # The headers as sent: in order, doubled ones twice
    wait_for_goodbye: Callable[[], Awaitable[None]] = field(default=anyio.sleep_forever)
    """Returns when the client has closed the connection. Not for use in the chunks of an answer."""


@dataclass(slots=True)
class HttpAnswer:
    """An HTTP response. A body of several chunks is streamed; `cut` ends the connection after it.

    Chunks end early when the client leaves: they are cancelled, and closed if they had begun.
    """

    status: int
    headers: Mapping[str, str] | Sequence[tuple[bytes, bytes]]
    chunks: AsyncGenerator[bytes, None] | bytes
    cut: bool = False


NO_WEBSOCKET: Final = HttpAnswer(426, {"content-type": "text/plain"}, b"No WebSockets here: use HTTP.\n")
"""The one refusal after which Codex sends its request over HTTP at once, instead of trying six times."""


def is_websocket(call: HttpCall) -> bool:
    """True for a client that would rather have a WebSocket."""
    return call.headers.get("upgrade", "").lower() == "websocket"


class ConnectionCut(Exception):
    """Raised while answering to drop the connection on the spot."""


AnswerCall: TypeAlias = Callable[[HttpCall], Awaitable[HttpAnswer]]


class LoopbackServer:
    """Serves on a port, 0 for any that is free; a body over `limit` bytes is left to `answer` to read."""

    def __init__(
        self,
        answer: AnswerCall,
        *,
        port: int = 0,
        host: str = HOST,
        limit: int = LIMIT,
        name: str = "The server",
    ) -> None:
        self._answer, self._limit, self._name = answer, limit, name
        self.host, self.port = host, port
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        try:
            listener = await anyio.create_tcp_listener(local_host=self.host, local_port=self.port)
        except OSError as error:
            raise Mistake(
                f"{self._name} cannot listen on {self.host}:{self.port} ({error.strerror}); "
                "choose another port, or 0 for any that is free."
            ) from error
        await self._stack.enter_async_context(listener)
        self.port = int(listener.extra(SocketAttribute.local_port))
        group = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(group.cancel_scope.cancel)
        group.start_soon(listener.serve, self._serve_connection, group)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, anyio.get_cancelled_exc_class()):
            await self._stack.__aexit__(kind, error, trace)
        else:  # what went wrong in the caller's block is not the server's: it passes as it is
            await self._stack.aclose()

    def describe_foreign_sender(self, call: HttpCall) -> str | None:
        """The reason to refuse a request that a web page may have sent from a browser; None: answer it."""
        host, origin = call.headers.get("host", ""), call.headers.get("origin", "")
        if host and not is_loopback(f"http://{host}") and is_loopback(self.url):
            return f"This is {self.url}; requests to another host are not answered"
        site = call.headers.get("sec-fetch-site", "none")
        if origin not in ("", f"http://{host}") or site not in ("none", "same-origin"):
            return "Requests of web pages are not answered"
        return None

    async def _serve_connection(self, stream: SocketStream) -> None:
        """Answer requests on one connection until either side is done with it."""
        async with stream:
            try:
                await _ServerConnection(stream, self._limit).serve(self._answer)
            except Exception:  # whatever it is: the connections of others go on
                return


class _ServerConnection:
    def __init__(self, stream: SocketStream, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=READ)

    async def serve(self, answer_call: AnswerCall) -> None:
        try:
            while await self._exchange(answer_call):
                pass
        except h11.RemoteProtocolError as error:
            await self._complain(error)

    async def _exchange(self, answer_call: AnswerCall) -> bool:
        """One request and its answer. False when the connection is at its end."""
        head = await self._next()
        if not isinstance(head, h11.Request):
            return False
        call = await self._read(head)
        answer = NO_WEBSOCKET if is_websocket(call) else await answer_call(call)
        async with nullcontext() if isinstance(answer.chunks, bytes) else aclosing(answer.chunks):
            while self._h11.their_state is h11.SEND_BODY:
                await self._next()  # a client that is still sending would not see the answer
            await self._write(answer, head.method == b"HEAD")
        if answer.cut:
            raise ConnectionCut
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

    async def _read(self, head: h11.Request) -> HttpCall:
        body = bytearray()
        rest: AsyncGenerator[bytes, None] | None = None
        while isinstance(event := await self._next(), h11.Data):
            body += event.data
            if len(body) > self._limit:
                rest = self._read_on()
                break
        target = head.target.decode("ascii", "replace")
        try:
            url = urlsplit(target)
        except ValueError as error:
            raise h11.RemoteProtocolError(f"the address cannot be read: {error}") from error
        fields = head.headers.raw_items()
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in fields}
        method = head.method.decode("ascii")
        query = dict(parse_qsl(url.query))
        return HttpCall(method, url.path, query, headers, bytes(body), rest, target, fields, self._goodbye)

    async def _read_on(self) -> AsyncGenerator[bytes, None]:
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    async def _write(self, answer: HttpAnswer, head_only: bool) -> None:
        if isinstance(answer.headers, Mapping):
            headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        else:
            headers = list(answer.headers)
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
            await self._write_chunks(answer.chunks)
        if not answer.cut:
            await self._send(h11.EndOfMessage())

    async def _write_chunks(self, chunks: AsyncGenerator[bytes, None]) -> None:
        """Send them as they come, until a client that has closed the connection is noticed."""
        is_whole = False

        async def leave() -> None:
            await self._goodbye()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(leave)
            async for chunk in chunks:
                await self._send(h11.Data(data=chunk))
            is_whole = True
            group.cancel_scope.cancel()
        if not is_whole:
            raise ConnectionCut

    async def _send(self, event: h11.Event) -> None:
        data = self._h11.send(event)
        if data:
            await self._stream.send(data)

    async def _goodbye(self) -> None:
        try:
            while len(self._h11.trailing_data[0]) < READ:
                self._h11.receive_data(await self._stream.receive(READ))  # of the next request
        except GONE:
            return
        await anyio.sleep_forever()

    async def _complain(self, error: h11.RemoteProtocolError) -> None:
        if self._h11.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        said = f"This is not HTTP: {error}".encode()
        await self._write(HttpAnswer(error.error_status_hint, {"connection": "close"}, said), False)
