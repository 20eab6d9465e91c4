"""The messages of MCP: JSON-RPC 2.0, one message a line, in both generations of the protocol.

    2026-07-28                every request says in `_meta` which version and which client it is
    2025-11-25 … 2024-11-05   `initialize` says it once for the connection

Only msgspec is imported: a server has to answer before anything else is loaded.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

Json: TypeAlias = dict[str, Any]
RequestId: TypeAlias = int | str

MODERN: Final = "2026-07-28"
HANDSHAKE: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
VERSIONS: Final = (MODERN, *HANDSHAKE)

META: Final = "io.modelcontextprotocol/"
VERSION_KEY: Final = f"{META}protocolVersion"
CLIENT_KEY: Final = f"{META}clientInfo"
CAPABILITIES_KEY: Final = f"{META}clientCapabilities"
SERVER_KEY: Final = f"{META}serverInfo"

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
UNKNOWN_METHOD: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
NO_RESOURCE: Final = -32002
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022


class RpcError(Exception):
    """An error that answers a request, with its code."""

    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class RpcRequest(msgspec.Struct, frozen=True):
    """A message that wants an answer with the same id."""

    id: RequestId
    method: str
    params: Json

    @property
    def meta(self) -> Json:
        """The `_meta` of the request; empty without one."""
        found = self.params.get("_meta")
        return found if isinstance(found, dict) else {}


class RpcNotification(msgspec.Struct, frozen=True):
    """A message that wants no answer."""

    method: str
    params: Json


class RpcReply(msgspec.Struct, frozen=True):
    """The answer to a request of ours: a result, or an error."""

    id: RequestId
    result: Json
    error: Json | None = None


class RejectedMessage(msgspec.Struct, frozen=True):
    """A message that is answered with an error; the id is None where it cannot be known."""

    id: RequestId | None
    code: int
    why: str


RpcMessage: TypeAlias = RpcRequest | RpcNotification | RpcReply | RejectedMessage


def parse_line(line: bytes | bytearray) -> list[RpcMessage]:
    """The messages of a line: one, or those of a batch. Never raises."""
    try:
        value = msgspec.json.decode(line)
    except (ValueError, RecursionError) as error:
        return [RejectedMessage(None, PARSE_ERROR, f"the line is not JSON: {error}")]
    if isinstance(value, list) and value:
        return [_classify(each) for each in value]
    return [_classify(value)]


def _classify(value: Any) -> RpcMessage:
    if not isinstance(value, dict):
        return RejectedMessage(None, INVALID_REQUEST, "a message is a JSON object")
    given = value.get("id")
    id = given if isinstance(given, int | str) and not isinstance(given, bool) else None
    method, params = value.get("method"), value.get("params", {})
    if method is None and id is not None and ("result" in value or "error" in value):
        return _classify_reply(id, value)
    if not isinstance(method, str):
        return RejectedMessage(id, INVALID_REQUEST, "a message has a method, which is a text")
    if "id" in value and id is None:
        return RejectedMessage(None, INVALID_REQUEST, "an id is a text or a whole number")
    if id is None:
        return RpcNotification(method, params if isinstance(params, dict) else {})
    if value.get("jsonrpc") != "2.0":
        return RejectedMessage(id, INVALID_REQUEST, 'a message has "jsonrpc": "2.0"')
    if params is not None and not isinstance(params, dict):
        return RejectedMessage(id, INVALID_PARAMS, "params is a JSON object")
    return RpcRequest(id, method, params or {})


def _classify_reply(id: RequestId, value: Json) -> RpcReply:
    result, error = value.get("result"), value.get("error")
    if isinstance(error, dict):
        return RpcReply(id, {}, error)
    return RpcReply(id, result if isinstance(result, dict) else {})


def encode_result(id: RequestId, result: Json) -> bytes:
    return _encode({"jsonrpc": "2.0", "id": id, "result": result})


def encode_error(id: RequestId | None, code: int, message: str, data: Json | None = None) -> bytes:
    error: Json = {"code": code, "message": message} | ({"data": data} if data else {})
    return _encode({"jsonrpc": "2.0", "id": id, "error": error})


def encode_request(id: RequestId, method: str, params: Json) -> bytes:
    return _encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def encode_notification(method: str, params: Json) -> bytes:
    return _encode({"jsonrpc": "2.0", "method": method, "params": params})


def _encode(message: Json) -> bytes:
    try:
        return msgspec.json.encode(message) + b"\n"
    except UnicodeEncodeError:  # half a character, from a file that is not UTF-8
        from sevenfold.tools.toolbox import clean_arguments

        return msgspec.json.encode(clean_arguments(message)) + b"\n"
