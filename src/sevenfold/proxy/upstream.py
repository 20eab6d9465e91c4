"""The provider behind the proxy: reached over TLS, or in plain HTTP on this machine alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from sevenfold.core.errors import Mistake
from sevenfold.loopback import HttpCall
from sevenfold.models.capabilities import is_loopback, strip_url_credentials

if TYPE_CHECKING:
    import httpx

OURS: Final = frozenset({
    b"connection", b"content-length", b"expect", b"host", b"keep-alive", b"proxy-authenticate",
    b"proxy-authorization", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
})  # fmt: skip
"""Headers about one connection; each side of the proxy has its own."""
CONNECT_SECONDS: Final = 30.0


def check_upstream(url: str) -> str:
    """The address without a slash at its end; a `Mistake` unless keys are safe on the way to it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        shown = strip_url_credentials(url)
        raise Mistake(f"{shown!r} is no address of a provider; give one like https://api.anthropic.com")
    if parts.scheme == "http" and not is_loopback(url):
        raise Mistake(
            f"{url} is not encrypted and keys would go there in the clear; give an https:// address"
        )
    return url.rstrip("/")


class Upstream:
    """One client for all requests. Headers pass as they are and are kept nowhere."""

    def __init__(self, anthropic: str, openai: str) -> None:
        self.anthropic, self.openai = check_upstream(anthropic), check_upstream(openai)
        self._clients: dict[bool, httpx.AsyncClient] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            await client.aclose()

    def locate(self, call: HttpCall) -> str:
        """The address that a call is for: by its path, or by the headers of the Messages API.

        A `Mistake` unless it is the provider's: the call has the user's key.
        """
        import httpx

        if not call.target.startswith("/"):
            raise Mistake("an address has to begin with a slash")
        is_messages = call.path.startswith("/v1/messages") or "anthropic-version" in call.headers
        base = self.anthropic if is_messages else self.openai
        if base.endswith("/v1"):  # as addresses of OpenAI are written
            url = base.removesuffix("/v1") + _with_version(call.target)
        else:
            url = base + (call.target if is_messages else _with_version(call.target))
        try:
            asked, own = httpx.URL(url), httpx.URL(base)
        except httpx.InvalidURL as error:
            raise Mistake("the address cannot be read") from error
        if (asked.scheme, asked.netloc) != (own.scheme, own.netloc) or asked.userinfo:
            raise Mistake("the address is not one of the provider's")
        return url

    async def send(self, call: HttpCall, body: bytes) -> httpx.Response:
        """Send a call with this body; the response has begun, its body is still to come."""
        import httpx

        url = self.locate(call)
        headers = [(name, value) for name, value in call.fields if name.lower() not in OURS]
        content: bytes | AsyncGenerator[bytes, None] = body
        if call.rest is not None:
            content = _chain(body, call.rest)
            headers += [(n, v) for n, v in call.fields if n.lower() == b"content-length"]
        elif not body and "content-length" not in call.headers:
            content = b""
        headers = [*_choose_encoding(headers)]
        request = httpx.Request(call.method, url, headers=headers, content=content)
        return await self._client(is_loopback(url)).send(request, stream=True)

    def _client(self, near: bool) -> httpx.AsyncClient:
        if near not in self._clients:
            import httpx

            self._clients[near] = httpx.AsyncClient(
                timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
                trust_env=not near,
            )
        return self._clients[near]


def select_answer_headers(response: httpx.Response) -> list[tuple[bytes, bytes]]:
    """The response's headers that go to the client, as they came."""
    length = [] if response.headers.get("transfer-encoding") else [b"content-length"]
    return [
        (name, value)
        for name, value in response.headers.raw
        if name.lower() not in OURS or name.lower() in length
    ]


def _with_version(target: str) -> str:
    return target if target.startswith("/v1/") else "/v1" + target


def _choose_encoding(headers: Sequence[tuple[bytes, bytes]]) -> Sequence[tuple[bytes, bytes]]:
    """Ask for nothing but gzip, of the encodings that the client takes: usage is read from a copy."""
    out = [(name, value) for name, value in headers if name.lower() != b"accept-encoding"]
    taken = b",".join(value for name, value in headers if name.lower() == b"accept-encoding")
    return [*out, (b"accept-encoding", b"gzip" if b"gzip" in taken else b"identity")]


async def _chain(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    yield first
    async for chunk in rest:
        yield chunk
