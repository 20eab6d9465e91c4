"""A tiny HTTP server on this machine: it answers what a test says, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import h11
import msgspec
from anyio.abc import SocketAttribute, SocketStream

SSE = "text/event-stream"


@dataclass(frozen=True)
class Canned:
    """An answer. `framing` says how its end is marked; `cut` that the end never comes."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    kind: str = SSE
    framing: str = "chunked"
    cut: bool = False
    hang: bool = False
    """Say nothing more after the body, and keep the connection."""
    piece: int = 1 << 20
    again: bytes = b""
    """What follows the body, `times` times, unless the client goes. Not for chunks."""
    times: int = 0

    def wire(self) -> bytes:
        head = {"content-type": self.kind, **self.headers}
        if self.framing == "chunked":
            head["transfer-encoding"] = "chunked"
        else:
            head["connection"] = "close"
        lines = [f"HTTP/1.1 {self.status} Whatever", *(f"{k}: {v}" for k, v in head.items()), "", ""]
        return "\r\n".join(lines).encode("latin-1") + self._framed()

    def _framed(self) -> bytes:
        if self.framing != "chunked":
            return self.body
        pieces = [self.body[i : i + self.piece] for i in range(0, len(self.body), self.piece)]
        framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        return framed if self.cut or self.hang else framed + b"0\r\n\r\n"


@dataclass
class Asked:
    """A request as it came in."""

    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Closes(Protocol):
    async def close(self) -> None: ...


class Served:
    """Answers the script in order; the last answer is given again for whatever comes after."""

    def __init__(self, script: Sequence[Canned]) -> None:
        self._script = list(script)
        self.asked: list[Asked] = []
        self.connections = 0
        self.port = 0
        self.clients: list[Closes] = []
        """Closed when the server goes."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, stream: SocketStream) -> None:
        self.connections += 1
        async with stream:
            try:
                while await self._answer(stream):
                    pass
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                pass  # the client has gone; that is what some tests are about
            except h11.RemoteProtocolError:  # TLS, where none is spoken
                await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def _answer(self, stream: SocketStream) -> bool:
        asked = await _request(stream)
        if asked is None:
            return False
        self.asked.append(asked)
        canned = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        await stream.send(canned.wire())
        for _ in range(canned.times):
            await stream.send(canned.again)
        if canned.hang:
            await anyio.sleep_forever()
        return canned.framing == "chunked" and not canned.cut


async def _request(stream: SocketStream) -> Asked | None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    asked = Asked("", {}, b"")
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            try:
                connection.receive_data(await stream.receive())
            except anyio.EndOfStream:
                return None
        elif isinstance(event, h11.Request):
            asked.target = event.target.decode("ascii")
            asked.headers = {k.decode("ascii"): v.decode("latin-1") for k, v in event.headers}
        elif isinstance(event, h11.Data):
            asked.body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return asked
        else:
            return None


@asynccontextmanager
async def serving(*script: Canned) -> AsyncIterator[Served]:
    """Serve these answers while the block runs."""
    served = Served(script)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    served.port = listener.extra(SocketAttribute.local_port)
    try:
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, served.handle)
            try:
                yield served
            finally:
                for client in served.clients:
                    await client.close()
                tasks.cancel_scope.cancel()
    except ExceptionGroup as group:  # what the test itself raised, without the wrapping
        raise group.exceptions[0] from None


def sse(*events: dict[str, Any] | str) -> bytes:
    """Events as they go over the wire, under their names; a string goes as it is, without one."""
    out = b""
    for event in events:
        if isinstance(event, str):
            out += b"data: " + event.encode() + b"\n\n"
            continue
        name = b"event: %b\n" % str(event["type"]).encode() if "type" in event else b""
        out += name + b"data: " + msgspec.json.encode(event) + b"\n\n"
    return out


def json_body(value: Any, status: int = 200, **headers: str) -> Canned:
    return Canned(msgspec.json.encode(value), status, headers, "application/json")
