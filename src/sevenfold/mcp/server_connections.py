"""Connections to other people's MCP servers: a process on pipes, or an address over HTTP.

A server may do anything: end, hang, flood, answer nonsense. Every wait has a limit, every line a length,
and whatever goes wrong is one `McpServerFailed` for the call that is waiting.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteReceiveStream, Process, TaskGroup

from sevenfold.core.errors import Failure
from sevenfold.mcp.protocol import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    HANDSHAKE,
    MODERN,
    UNKNOWN_METHOD,
    VERSION_KEY,
    Json,
    RpcMessage,
    RpcNotification,
    RpcReply,
    RpcRequest,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    parse_line,
)
from sevenfold.mcp.server_entries import ServerEntry
from sevenfold.models.capabilities import is_loopback

if TYPE_CHECKING:
    import httpx

LONGEST: Final = 16 << 20  # Bytes of one line or one body
MOST_UNASKED: Final = 10_000  # Messages between two of our requests that nobody asked for
START_SECONDS: Final = 10.0
CALL_SECONDS: Final = 120.0
LAST_WORDS: Final = 300  # Characters of a server's standard error that an error message repeats

HearNotification = Callable[[str], None]


class McpServerFailed(Failure, kind="mcp_server_failed"):
    """A server of the chat did not do what was asked; the chat goes on."""


class ServerConnection(Protocol):
    """A server that was reached."""

    meta: Json  # Goes with every request to a server of the stateless generation

    @property
    def alive(self) -> bool: ...
    async def request(self, method: str, params: Json, seconds: float) -> Json: ...
    async def notify(self, method: str, params: Json) -> None: ...
    async def close(self) -> None: ...


async def begin_handshake(connection: ServerConnection, seconds: float) -> None:
    """Agree with a server on a version: by the handshake, or as the stateless generation does."""
    from sevenfold import __version__

    about = {"name": "sevenfold", "version": __version__}
    params = {"protocolVersion": HANDSHAKE[0], "capabilities": {"roots": {}}, "clientInfo": about}
    try:
        answer = await connection.request("initialize", params, seconds)
    except McpServerFailed as refusal:
        if not connection.alive or isinstance(refusal.__cause__, TimeoutError):
            raise
        connection.meta = {VERSION_KEY: MODERN, CLIENT_KEY: about, CAPABILITIES_KEY: {}}
        with contextlib.suppress(McpServerFailed):
            found = await connection.request("server/discover", {}, seconds)
            if MODERN in (found.get("supportedVersions") or ()):
                return
        raise
    if answer.get("protocolVersion") not in HANDSHAKE:
        raise McpServerFailed(f"it speaks {answer.get('protocolVersion')!r}, which is not known here")
    await connection.notify("notifications/initialized", {})


class _PendingReply:
    def __init__(self) -> None:
        self.event, self.reply = anyio.Event(), RpcReply("", {})
        self.failure = ""


class StdioConnection:
    """A server that we started. It is in a process group of its own, which ends with the connection."""

    def __init__(self, process: Process, root: Path, hear: HearNotification) -> None:
        self._process, self._root, self._hear = process, root, hear
        self.meta: Json = {}
        self._pending: dict[int, _PendingReply] = {}
        self._numbers = itertools.count(1)
        self._unasked = 0
        self._failure = self._last_words = ""
        self._sending = anyio.Lock()

    @classmethod
    async def open(
        cls,
        entry: ServerEntry,
        environment: Mapping[str, str],
        root: Path,
        hear: HearNotification,
        tasks: TaskGroup,
    ) -> StdioConnection:
        """Start the program of an entry, whose variables are expanded."""
        import subprocess

        try:
            process = await anyio.open_process(
                [entry.command, *entry.args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=root / entry.cwd,
                env={**environment, **entry.env},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise McpServerFailed(f"it cannot be started: {error}") from error
        made = cls(process, root, hear)
        tasks.start_soon(made._read)
        tasks.start_soon(made._read_errors)
        return made

    @property
    def alive(self) -> bool:
        return not self._failure

    async def request(self, method: str, params: Json, seconds: float) -> Json:
        if self._failure:
            raise McpServerFailed(self._failure)
        id, waiting = next(self._numbers), _PendingReply()
        self._pending[id], self._unasked = waiting, 0
        try:
            with anyio.fail_after(seconds):
                await self._send(encode_request(id, method, add_meta(params, self.meta)))
                await waiting.event.wait()
        except TimeoutError as error:
            await self._cancel(id)
            raise McpServerFailed(f"it did not answer within {seconds:g} seconds") from error
        except anyio.get_cancelled_exc_class():
            await self._cancel(id)
            raise
        finally:
            del self._pending[id]
        if waiting.failure:
            raise McpServerFailed(waiting.failure)
        return read_reply(waiting.reply)

    async def notify(self, method: str, params: Json) -> None:
        with anyio.move_on_after(START_SECONDS):
            await self._send(encode_notification(method, params))

    async def close(self) -> None:
        """End the server: first its input, then its process group."""
        from sevenfold.tools.processes import end_groups

        self._fail("it was ended")
        with anyio.CancelScope(shield=True):
            if self._process.stdin is not None:
                with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await self._process.stdin.aclose()
            with anyio.move_on_after(1.0):
                await self._process.wait()
            await end_groups([self._process.pid])
            await self._process.wait()
            await self._process.aclose()

    async def _cancel(self, id: int) -> None:
        """Tell the server that nobody waits any more; it may not read, so this has its limit too."""
        with anyio.move_on_after(0.5, shield=True):
            await self._send(encode_notification("notifications/cancelled", {"requestId": id}))

    async def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            async with self._sending:
                await self._process.stdin.send(line)
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._fail("it has ended")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        rest = bytearray()
        async for chunk in _iterate_chunks(self._process.stdout):
            rest += chunk
            lines = list[bytearray]()
            if b"\n" in chunk:
                *lines, rest = rest.split(b"\n")
            for line in lines:
                for message in parse_line(line) if line.strip() else ():
                    await self._receive(message)
            if len(rest) > LONGEST or self._unasked > MOST_UNASKED:
                self._fail("it sends more than anybody can read, and was ended")
                from sevenfold.tools.processes import end_groups

                await end_groups([self._process.pid])
                return
        with anyio.move_on_after(1.0):  # what it said last may still be on its way
            await self._process.wait()
        words = f": {self._last_words}" if self._last_words else ""
        self._fail(f"it has ended{words}")

    async def _receive(self, message: RpcMessage) -> None:
        match message:
            case RpcReply(id=id) if id in self._pending:
                self._pending[int(id)].reply = message
                self._pending[int(id)].event.set()
                return
            case RpcRequest(id=id, method="ping"):
                await self._send(encode_result(id, {}))
            case RpcRequest(id=id, method="roots/list"):
                roots = [{"uri": self._root.as_uri(), "name": self._root.name}]
                await self._send(encode_result(id, {"roots": roots}))
            case RpcRequest(id=id, method=method):
                await self._send(encode_error(id, UNKNOWN_METHOD, f"there is no method {method} here"))
            case RpcNotification(method=method):
                self._hear(method)
            case _:
                pass
        self._unasked += 1

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        async for chunk in _iterate_chunks(self._process.stderr):
            text = self._last_words + chunk[-4 * LAST_WORDS :].decode("utf-8", "replace")
            self._last_words = " ".join(text.split())[-LAST_WORDS:]

    def _fail(self, why: str) -> None:
        self._failure = self._failure or why
        for waiting in self._pending.values():
            waiting.failure = self._failure
            waiting.event.set()


async def _iterate_chunks(stream: ByteReceiveStream) -> Any:
    """The chunks of a pipe until it ends, however it ends."""
    while True:
        try:
            yield await stream.receive(1 << 16)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return


class HttpConnection:
    """A server at an address. Each request is a POST; the answer is JSON, or a stream of events with it."""

    def __init__(self, entry: ServerEntry, hear: HearNotification) -> None:
        import httpx

        self.alive = True
        self.meta: Json = {}
        self._url, self._address, self._hear = entry.url, format_address(entry.url), hear
        self._client: httpx.AsyncClient = httpx.AsyncClient(
            follow_redirects=False, timeout=None, trust_env=not is_loopback(entry.url)
        )
        accept = "application/json, text/event-stream"
        self._headers = {**entry.headers, "accept": accept, "content-type": "application/json"}
        self._numbers = itertools.count(1)

    async def request(self, method: str, params: Json, seconds: float) -> Json:
        id, headers = next(self._numbers), dict[str, str]()
        if self.meta:
            headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
            headers |= {"mcp-name": encode_header(params["name"])} if "name" in params else {}
        try:
            with anyio.fail_after(seconds):
                body = encode_request(id, method, add_meta(params, self.meta))
                reply = await self._post(body, id, headers)
        except TimeoutError as error:
            raise McpServerFailed(f"it did not answer within {seconds:g} seconds") from error
        if reply is None:
            raise McpServerFailed("it answered without a result")
        if method == "initialize" and isinstance(version := reply.result.get("protocolVersion"), str):
            self._headers["mcp-protocol-version"] = version
        return read_reply(reply)

    async def notify(self, method: str, params: Json) -> None:
        with anyio.move_on_after(START_SECONDS):
            await self._post(encode_notification(method, params), None)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._client.aclose()

    async def _post(self, body: bytes, id: int | None, headers: Mapping[str, str] = {}) -> RpcReply | None:
        import httpx

        headers = {**self._headers, **headers}
        try:
            async with self._client.stream("POST", self._url, content=body, headers=headers) as answer:
                if session := answer.headers.get("mcp-session-id"):
                    self._headers["mcp-session-id"] = session
                self.alive = answer.status_code != 404  # it has forgotten us, or was started anew
                if answer.status_code >= 300:
                    raise McpServerFailed(f"{self._address} answered with status {answer.status_code}")
                return await self._read(answer, id)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeEncodeError) as error:
            # The words of other errors may repeat a header or the address
            words = f" {error}" if isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError) else ""
            raise McpServerFailed(
                f"{self._address} cannot be reached: {type(error).__name__}{words}"
            ) from error

    async def _read(self, answer: httpx.Response, id: int | None) -> RpcReply | None:
        from sevenfold.models.sse import SseParser

        events = (
            SseParser() if answer.headers.get("content-type", "").startswith("text/event-stream") else None
        )
        body, size = bytearray(), 0
        async for chunk in answer.aiter_bytes():
            size += len(chunk)
            if size > LONGEST:
                raise McpServerFailed("it sends more than anybody can read")
            if events is None:
                body += chunk
                continue
            for event in events.feed(chunk):
                if (reply := self._find_reply(event.data, id)) is not None:
                    return reply
        return self._find_reply(bytes(body), id) if body else None

    def _find_reply(self, data: bytes, id: int | None) -> RpcReply | None:
        for message in parse_line(data):
            if isinstance(message, RpcReply) and message.id == id:
                return message
            if isinstance(message, RpcNotification):
                self._hear(message.method)
        return None


def format_address(url: str) -> str:
    """Scheme, host and port of a URL; the rest may hold a secret."""
    try:
        parts = urlsplit(url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "its address"
    return f"{parts.scheme}://{parts.hostname or ''}{port}"


def add_meta(params: Json, meta: Json) -> Json:
    return {**params, "_meta": meta} if meta else params


def encode_header(value: str) -> str:
    """A value as a header may hold it: what is not plain ASCII goes as `=?base64?…?=`."""
    if value.isascii() and value.isprintable():
        return value
    import base64

    return f"=?base64?{base64.b64encode(value.encode('utf-8')).decode('ascii')}?="


def read_reply(reply: RpcReply) -> Json:
    """The result of a reply; `McpServerFailed` with the server's words for an error."""
    if reply.error is not None:
        said = reply.error.get("message")
        raise McpServerFailed(
            f"it answered with an error: {said if isinstance(said, str) else 'no reason'}"
        )
    if reply.result.get("resultType") == "input_required":
        raise McpServerFailed("it wants to be told more by a person first, and a chat has no form for that")
    return reply.result


_checks: tuple[type[ServerConnection], ...] = (StdioConnection, HttpConnection)
