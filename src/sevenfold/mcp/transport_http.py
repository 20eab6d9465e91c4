"""The server over streamable HTTP: one POST, one JSON answer. Only on this machine, and with a token.

Nothing is kept between two requests, so there is no way back to the client: what needs an answer of the
client is an `InputRequiredResult` in the stateless generation, and refused in the other.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio.to_thread

from sevenfold.core.errors import Mistake, Refused
from sevenfold.loopback import HttpAnswer, HttpCall, LoopbackServer
from sevenfold.mcp.client_calls import ClientConnection
from sevenfold.mcp.protocol import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    UNKNOWN_METHOD,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    VERSIONS,
    Json,
    RejectedMessage,
    RpcError,
    RpcRequest,
    encode_error,
    encode_result,
    parse_line,
)
from sevenfold.mcp.server import McpServer
from sevenfold.storage.files import make_private_dir, read_if_there, write_new

PATH: Final = "/mcp"
LARGEST: Final = 4 << 20  # Bytes of a body
TOKEN_FILE: Final = "mcp-token"
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_STATUS: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    UNSUPPORTED_VERSION: 400,
    UNKNOWN_METHOD: 404,
}
_JSON: Final = {"content-type": "application/json"}


def parse_address(text: str) -> tuple[str, int]:
    """The host and the port of --http; `Mistake` for any that others could reach."""
    try:
        given = urlsplit(f"//{text if ':' in text else f':{text}'}")
        host, port = given.hostname or "127.0.0.1", given.port
    except ValueError:
        port = None
    if port is None:
        raise Mistake(f"{text!r} is no address: give a port, or 127.0.0.1:PORT")
    if host not in ("127.0.0.1", "localhost"):
        raise Mistake(
            f"{host} can be reached by others, and this server knows one user: use 127.0.0.1, and put a "
            "gateway with its own log-in in front"
        )
    return "127.0.0.1", port


def read_token(home: Path) -> tuple[str, Path]:
    """The token that clients have to send, and its file, which is made if it is missing."""
    path = home / TOKEN_FILE
    make_private_dir(home)
    write_new(path, secrets.token_urlsafe(32).encode("ascii"))
    if path.stat().st_mode & 0o077:
        raise Refused(f"{path} can be read by others, so its token is worth nothing: remove it")
    token = (read_if_there(path, 1_000) or b"").decode("ascii", "replace").strip()
    if len(token) < 16:
        raise Refused(f"{path} holds no token: remove it")
    return token, path


class HttpTransport:
    """Serves clients at `url`, each request by itself."""

    def __init__(self, server: McpServer, token: str, *, host: str, port: int) -> None:
        self._server, self._token = server, token
        self.loopback = LoopbackServer(
            self._answer_post, host=host, port=port, limit=LARGEST, name="The MCP server"
        )

    @property
    def url(self) -> str:
        return f"{self.loopback.url}{PATH}"

    async def _answer_post(self, call: HttpCall) -> HttpAnswer:
        if why := self.loopback.describe_foreign_sender(call):
            return _make_text(403, why)
        if call.path != PATH:
            return _make_text(404, f"the server is at {PATH}")
        if not hmac.compare_digest(call.headers.get("authorization", "").encode(), self._bearer):
            return _make_text(
                401, "a token is wanted: Authorization: Bearer …", {"www-authenticate": "Bearer"}
            )
        if call.method != "POST":
            return _make_text(405, "only POST is answered here", {"allow": "POST"})
        if call.rest is not None:
            return _make_text(413, f"a request has at most {LARGEST:,} bytes")
        found = parse_line(call.body)
        if len(found) > 1:
            why = "one message a request: batches are not taken"
            return HttpAnswer(400, _JSON, encode_error(None, INVALID_REQUEST, why))
        message = found[0]
        if isinstance(message, RejectedMessage):
            return HttpAnswer(400, _JSON, encode_error(message.id, message.code, message.why))
        if not isinstance(message, RpcRequest):
            return HttpAnswer(202, {}, b"")
        return await self._answer_request(message, call.headers)

    @property
    def _bearer(self) -> bytes:
        return f"Bearer {self._token}".encode("ascii")

    async def _answer_request(self, request: RpcRequest, headers: dict[str, str]) -> HttpAnswer:
        try:
            check_headers(request, headers)
            call = ClientConnection(_ignore_notification).open_call(request)
            result = await anyio.to_thread.run_sync(self._server.answer, call)
        except RpcError as error:
            body = encode_error(request.id, error.code, str(error), error.data)
            return HttpAnswer(_STATUS.get(error.code, 200), _JSON, body)
        return HttpAnswer(200, _JSON, encode_result(request.id, result))


def check_headers(request: RpcRequest, headers: dict[str, str]) -> None:
    """Raises `RpcError` if the headers do not fit the request, or name a version that is not spoken."""
    version = headers.get("mcp-protocol-version")
    if VERSION_KEY not in request.meta:
        if version is not None and version not in VERSIONS:
            known = {"supported": list(VERSIONS), "requested": version}
            raise RpcError(UNSUPPORTED_VERSION, f"{version} is not spoken here", known)
        return
    if version != request.meta[VERSION_KEY]:
        raise RpcError(HEADER_MISMATCH, "the header MCP-Protocol-Version is not the version of the request")
    if headers.get("mcp-method") != request.method:
        raise RpcError(HEADER_MISMATCH, "the header Mcp-Method is not the method of the request")
    key = _NAMED.get(request.method)
    given = request.params.get(key) if key else None
    if given is not None and _decode_header(headers.get("mcp-name")) != given:
        raise RpcError(HEADER_MISMATCH, f"the header Mcp-Name is not the {key} of the request")


def _decode_header(value: str | None) -> str | None:
    """A header as the client meant it: what is not plain ASCII comes as `=?base64?…?=`."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None


def _ignore_notification(method: str, params: Json) -> None:
    """A single JSON answer has no room for a notification."""


def _make_text(status: int, text: str, headers: Mapping[str, str] = {}) -> HttpAnswer:
    return HttpAnswer(
        status, {"content-type": "text/plain; charset=utf-8", **headers}, text.encode("utf-8")
    )
