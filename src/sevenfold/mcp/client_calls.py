"""A request of a client while it is answered: its generation, and the ways to reach the client meanwhile.

In the handshake generation the server sends requests of its own and waits. In the stateless one it answers
with an `InputRequiredResult`, and the client calls again with what was asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from sevenfold.mcp.protocol import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    HANDSHAKE,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MODERN,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    VERSIONS,
    Json,
    RpcError,
    RpcReply,
    RpcRequest,
)

DISCOVER: Final = "server/discover"
INITIALIZE: Final = "initialize"
ELICIT: Final = "elicitation/create"
_SECRET: Final = os.urandom(16)  # Signs what a client has to bring back

SendNotification: TypeAlias = Callable[[str, Json], None]
AskClient: TypeAlias = Callable[[str, Json], RpcReply | None]
"""Sends a request to the client and waits for the answer; None when none comes."""


class InputRequired(Exception):
    """The client has to call again, with the answer to a request that this result carries."""

    def __init__(self, result: Json) -> None:
        super().__init__("input is required")
        self.result = result


class ClientCall(msgspec.Struct, frozen=True):
    """One request, and everything about its client that counts while it is answered."""

    request: RpcRequest
    modern: bool
    capabilities: Json
    client: str  # The name of the client program, as it gives it
    notify: SendNotification
    ask: AskClient | None = None  # None: there is no way back to the client
    is_cancelled: Callable[[], bool] = lambda: False

    def report_progress(self, step: int, message: str) -> None:
        """Tell the client how far it is, if it wants to know."""
        token = self.request.meta.get("progressToken")
        if isinstance(token, int | str):
            told = {"progressToken": token, "progress": step, "message": message}
            self.notify("notifications/progress", told)

    def confirm(self, message: str) -> bool | None:
        """Ask the person at the client; None where nobody can be asked."""
        if "elicitation" not in self.capabilities:
            return None
        schema = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
        params: Json = {"message": message, "requestedSchema": schema}
        answer = self.request_input("confirm", ELICIT, params)
        if answer is None:
            return None
        content = answer.get("content")
        return answer.get("action") == "accept" and isinstance(content, dict) and content.get("yes") is True

    def request_input(self, key: str, method: str, params: Json) -> Json | None:
        """The client's answer; None where it gives none. `InputRequired` if it has to call again."""
        if not self.modern:
            reply = self.ask(method, params) if self.ask is not None else None
            return None if reply is None or reply.error is not None else reply.result
        given, state = self.request.params.get("inputResponses"), self._sign(key)
        if self.request.params.get("requestState") == state and isinstance(given, dict):
            answer = given.get(key)
            return answer if isinstance(answer, dict) else None
        asked = {key: {"method": method, "params": params}}
        raise InputRequired({"resultType": "input_required", "inputRequests": asked, "requestState": state})

    def _sign(self, key: str) -> str:
        """An answer counts for the call that it was asked for, and for no other."""
        import hashlib

        what = [
            key,
            self.request.method,
            self.request.params.get("name"),
            self.request.params.get("arguments"),
        ]
        return hashlib.blake2b(msgspec.json.encode(what, order="sorted"), key=_SECRET).hexdigest()[:32]


class ClientConnection:
    """The client of one connection: its generation is settled by its first request that is no question."""

    def __init__(self, notify: SendNotification, ask: AskClient | None = None) -> None:
        self._notify, self._ask = notify, ask
        self._opened_by = ""
        self._capabilities: Json = {}
        self._client = ""

    def open_call(
        self, request: RpcRequest, is_cancelled: Callable[[], bool] = lambda: False
    ) -> ClientCall:
        """The call of a request. Raises `RpcError` if it is of another generation than the connection."""
        modern = VERSION_KEY in request.meta or request.method == DISCOVER
        if modern:
            _check_meta(request)
        self._check_generation(request, modern)
        capabilities, client = self._capabilities, self._client
        if modern:
            capabilities = _get_object(request.meta, CAPABILITIES_KEY)
            client = _name_client(request.meta.get(CLIENT_KEY))
        return ClientCall(request, modern, capabilities, client, self._notify, self._ask, is_cancelled)

    def _check_generation(self, request: RpcRequest, modern: bool) -> None:
        if request.method == INITIALIZE and not modern:
            if self._opened_by == MODERN:
                text = f"this connection speaks {MODERN}: initialize does not belong on it"
                raise RpcError(
                    UNSUPPORTED_VERSION, text, _list_versions(request.params.get("protocolVersion"))
                )
            self._opened_by = choose_version(request.params.get("protocolVersion"))
            self._capabilities = _get_object(request.params, "capabilities")
            self._client = _name_client(request.params.get("clientInfo"))
        elif modern and request.method != DISCOVER:
            if self._opened_by not in ("", MODERN):
                text = f"this connection was opened by initialize and speaks {self._opened_by}"
                raise RpcError(INVALID_REQUEST, f"{text}: a request of {MODERN} does not belong on it")
            self._opened_by = MODERN


def choose_version(wanted: object) -> str:
    """The version that `initialize` settles on: the one asked for, or our newest."""
    return next((version for version in HANDSHAKE if version == wanted), HANDSHAKE[0])


def _check_meta(request: RpcRequest) -> None:
    version = request.meta.get(VERSION_KEY, MODERN)
    if not isinstance(version, str):
        raise RpcError(INVALID_PARAMS, f"_meta[{VERSION_KEY!r}] is a text")
    if version != MODERN:
        raise RpcError(UNSUPPORTED_VERSION, f"{version} is not spoken here", _list_versions(version))
    if not isinstance(request.meta.get(CAPABILITIES_KEY, {}), dict):
        raise RpcError(INVALID_PARAMS, f"_meta[{CAPABILITIES_KEY!r}] is an object")
    if CAPABILITIES_KEY not in request.meta and request.method != DISCOVER:
        raise RpcError(INVALID_PARAMS, f"_meta has no {CAPABILITIES_KEY}")


def _list_versions(wanted: object) -> Json:
    return {"supported": list(VERSIONS), "requested": str(wanted)}


def _get_object(values: Json, key: str) -> Json:
    found = values.get(key)
    return found if isinstance(found, dict) else {}


def _name_client(info: object) -> str:
    name = info.get("name") if isinstance(info, dict) else None
    return " ".join(name.split())[:60] if isinstance(name, str) else ""
