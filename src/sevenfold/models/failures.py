"""Failures on the way to a provider as our errors, shared by all clients and SDK adapters.

Each client maps its provider's error types to our classes. The rest is here: broken connections, times to
wait, errors of the SDKs, and the many ways to say that a prompt is too long. Nothing here holds a key.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from sevenfold.core.errors import (
    BadReply,
    BadRequest,
    KeyRefused,
    ModelFailure,
    ModelNotFound,
    Overloaded,
    PromptTooLong,
    RateLimited,
    Unreachable,
)

SHORTEST_KEY: Final = 8
"""Shorter texts are not hidden: they are no keys, and messages would become unreadable."""


class ProviderInfo(msgspec.Struct, frozen=True):
    """The provider, and the variables in which a user corrects its key and address."""

    name: str
    host: str
    key: str  # The variable that holds the key
    url: str  # The variable that holds the address
    loopback: bool = False


class ServerRefusal(msgspec.Struct, frozen=True):
    """A server's refusal, read from a response, an event or an SDK's exception."""

    provider: ProviderInfo
    status: int | None = None
    kind: str = ""
    code: str = ""
    message: str = ""
    fields: dict[str, Any] = {}
    model: str = ""
    retry_after: float | None = None
    should_retry: bool | None = None

    @property
    def number(self) -> str:
        return str(self.status) if self.status else self.kind or "in mid-stream"


Mapped: TypeAlias = Callable[[ServerRefusal], ModelFailure]


def parse_error_body(
    provider: ProviderInfo,
    body: Any,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    model: str = "",
    hide: tuple[str, ...] = (),
    now: Callable[[], float] | None = None,
) -> ServerRefusal:
    """The refusal in an error body, in any of the usual shapes."""
    if isinstance(body, str):  # before anything is cut: half a key would not be found
        body = hide_secrets(body, hide)
    fields = _error_fields(body)
    code = fields.get("code")
    if status in (None, 200) and isinstance(code, int) and 400 <= code < 600:
        status = code  # llama.cpp answers 200 and puts the status inside
    message = hide_secrets(str(fields.get("message") or ""), hide)
    headers = headers or {}
    return ServerRefusal(
        provider,
        None if status == 200 else status,
        str(fields.get("type") or ""),
        str(code or ""),
        " ".join(message.split())[:400],
        fields,
        model,
        parse_retry_after(headers, now),
        {"true": True, "false": False}.get(headers.get("x-should-retry", "")),
    )


def hide_secrets(text: str, secrets: Iterable[str]) -> str:
    """The text without these secrets."""
    for secret in secrets:
        if len(secret) >= SHORTEST_KEY:
            text = text.replace(secret, "***")
    return text


def _error_fields(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        return {"message": body[:200]} if isinstance(body, str) else {}
    error = body.get("error", body.get("detail", body))
    if isinstance(error, dict):
        return error
    if isinstance(error, list):  # FastAPI: what is wrong with each field
        return {"message": "; ".join(str(e.get("msg", "")) for e in error if isinstance(e, dict))}
    return {"message": error} if isinstance(error, str) else {}


def make_failure(kind: type[ModelFailure], said: ServerRefusal) -> ModelFailure:
    """Our error for a refusal: one sentence, with the fix."""
    if (long := parse_too_long(said)) is not None:
        return long
    error = kind(_sentence(kind, said), retry_after=said.retry_after)
    if said.should_retry is not None:
        error.retryable = said.should_retry
    return error


def _sentence(kind: type[ModelFailure], said: ServerRefusal) -> str:
    who, number, tail = said.provider, said.number, f": {said.message}" if said.message else ""
    told = f"{said.kind} {said.code} {said.message}".lower()
    money = number == "402" or any(word in told for word in ("billing", "quota", "credit balance"))
    if kind is KeyRefused and money:
        return f"{who.name} refuses ({number}): mend this account's billing, or use the model 'offline'"
    if kind is KeyRefused:
        return (
            f"{who.name} refused the key ({number}): set {who.key} to a valid one, "
            "or use the model 'offline'"
        )
    if kind is ModelNotFound:
        return (
            f"{who.name} at {who.host} does not have {said.model or 'this model'!r} ({number}): check "
            f"the name of the model, and {who.url} if it is set"
        )
    if kind is RateLimited:
        return f"{who.name} asks for fewer requests ({number}){tail}; wait a little and try again"
    if kind is Overloaded:
        return f"{who.name} is too busy or broke ({number}){tail}; try again in a while"
    if kind is BadReply:
        return f"{who.name} at {who.host} answered with something else ({number}){tail}"
    return f"{who.name} did not accept the request ({number}){tail or ': it did not say why'}"


def map_status(status: int | None) -> type[ModelFailure]:
    """Our error for a bare status. Every number has one."""
    if status is None:
        return Overloaded
    return _STATUSES.get(status, Overloaded if status >= 500 else BadRequest)


_STATUSES: Final[dict[int, type[ModelFailure]]] = {
    401: KeyRefused, 402: KeyRefused, 403: KeyRefused, 404: ModelNotFound, 408: Overloaded, 409: Overloaded,
    413: PromptTooLong, 425: Overloaded, 429: RateLimited, 501: BadRequest, 505: BadRequest,
}  # fmt: skip


# --- a prompt that is too long ------------------------------------------------------------------------

_TOO_LONG: Final = (
    r"prompt is too long: (?P<tokens>\d+) tokens > (?P<limit>\d+)",
    r"input length and `?max_tokens`? exceed context limit: (?P<tokens>\d+) \+ \d+ > (?P<limit>\d+)",
    r"maximum context length is (?P<limit>\d+) tokens.*"
    r"\((?P<tokens>\d+) (?:in the messages|of text input|in your prompt)",
    r"maximum context length is (?P<limit>\d+) tokens.*?"
    r"(?:resulted in|has|requested|requested about) (?P<tokens>\d+) (?:input )?tokens",
    r"passed (?P<tokens>\d+) input tokens .*context length is only (?P<limit>\d+)",
    r"prompt \(length (?P<tokens>\d+)\) is longer than the maximum model length of (?P<limit>\d+)",
    r"request \((?P<tokens>\d+) tokens\) exceeds the available context size \((?P<limit>\d+) tokens\)",
    r"input token count \((?P<tokens>\d+)\) exceeds the maximum .*allowed \((?P<limit>\d+)\)",
    r"limit of (?P<limit>\d+) tokens.*resulted in (?P<tokens>\d+) tokens",
    r"request too large for .*limit (?P<limit>\d+), requested (?P<tokens>\d+)",
    r"requested tokens \((?P<tokens>\d+)\) exceed context window of (?P<limit>\d+)",
    r"prompt is too long",
    r"maximum context length",
    r"exceeds? the (?:available )?context (?:size|length|window)",
    r"input is too long for requested model",
    r"context size has been exceeded",
    r"greater than the context length",
)
_TOO_LONG_KINDS: Final = frozenset(
    {"request_too_large", "exceed_context_size_error", "context_length_exceeded"}
)


def parse_too_long(said: ServerRefusal) -> PromptTooLong | None:
    """The error for a prompt that is too long, with its length and the limit; None for other refusals."""
    named = {said.kind, said.code} & _TOO_LONG_KINDS or said.status == 413
    found = next((m for p in _TOO_LONG if (m := re.search(p, said.message, re.IGNORECASE))), None)
    if not named and found is None:
        return None
    groups = found.groupdict() if found else {}
    tokens, limit = (int(groups[name]) if groups.get(name) else None for name in ("tokens", "limit"))
    tokens = tokens if tokens is not None else _count(said.fields.get("n_prompt_tokens"))
    limit = limit if limit is not None else _count(said.fields.get("n_ctx"))
    numbers = f": {tokens:,} tokens, and {limit:,} are allowed" if tokens and limit else ""
    return PromptTooLong(
        f"the prompt is too long for {said.model or said.provider.name}{numbers}; "
        "shorten it, or start anew with /clear",
        tokens=tokens,
        limit=limit,
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


# --- how long to wait ---------------------------------------------------------------------------------


def parse_retry_after(headers: Mapping[str, str], now: Callable[[], float] | None = None) -> float | None:
    """Seconds the server asked us to wait. A date is taken against the server's own clock."""
    if (ms := _seconds(headers.get("retry-after-ms"))) is not None:
        return ms / 1000
    asked = headers.get("retry-after")
    if (seconds := _seconds(asked)) is not None:
        return seconds
    until, sent = _date(asked), _date(headers.get("date"))
    if until is None:
        return None
    if sent is None and now is not None:
        sent = now()
    return max(0.0, until - sent) if sent is not None else None


def _seconds(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _date(text: str | None) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text or "").timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


# --- broken connections -------------------------------------------------------------------------------

_CUT: Final = "the connection to {name} at {host} was cut; check the network and try again"
_SLOW: Final = "{name} at {host} did not answer in time; check the network and {url}, and try again"
_ODD: Final = "{name} at {host} answered in a way that cannot be read; check {url} if it is set"
_APART: Final = (
    "{name} cannot be reached at {host}; check the network and {url}, or use the model 'offline'"
)
_NO_SCHEME: Final = "the address in {url} cannot be used: it must begin with https:// or http://"
_UNSENDABLE: Final = (
    "the request to {host} cannot be sent as it is: check {key}, {url} and the extra headers "
    "for line breaks and odd characters"
)
_TRANSPORT: Final[dict[str, tuple[type[ModelFailure], str]]] = {
    "TimeoutException": (Unreachable, _SLOW),
    "ReadTimeout": (Unreachable, "{name} at {host} fell silent in mid-answer; try again"),
    "PoolTimeout": (Unreachable, "too many requests to {name} are open at once; try again"),
    "ConnectError": (Unreachable, _APART),
    "ProxyError": (Unreachable, "the proxy on the way to {host} refused; check HTTPS_PROXY and HTTP_PROXY"),
    "LocalProtocolError": (BadRequest, _UNSENDABLE),
    "UnsupportedProtocol": (BadRequest, _NO_SCHEME),
    "InvalidURL": (BadRequest, "the address in {url} cannot be used: set it to one like https://host/path"),
    "TooManyRedirects": (BadRequest, "{host} only points elsewhere: set {url} to the final address"),
    "DecodingError": (BadReply, _ODD),
    "HTTPStatusError": (BadReply, _ODD),
    "CookieConflict": (BadReply, _ODD),
    "StreamError": (BadReply, _ODD),
    "HTTPError": (Unreachable, _CUT),
    "Exception": (Unreachable, _CUT),
}
"""By the names of the classes, which httpx and the fork of it inside the SDKs share; nearest first."""


def list_transport_errors() -> tuple[type[Exception], ...]:
    """Everything that the HTTP libraries in use may raise; one that is not loaded raises nothing."""
    names = ("HTTPError", "InvalidURL", "StreamError", "CookieConflict")
    loaded = [sys.modules[name] for name in ("httpx", "httpx2") if name in sys.modules]
    return tuple(getattr(module, name) for module in loaded for name in names)


def map_transport_error(error: BaseException, provider: ProviderInfo) -> ModelFailure:
    """Our error for one of theirs. The text of theirs is not used: it may quote a header."""
    import socket
    import ssl

    kind, template = next(_TRANSPORT[c.__name__] for c in type(error).__mro__ if c.__name__ in _TRANSPORT)
    who = {"name": provider.name, "host": provider.host, "url": provider.url, "key": provider.key}
    causes = list(_causes(error))
    certificate = next((c for c in causes if isinstance(c, ssl.SSLError)), None)
    if certificate is not None:
        why = getattr(certificate, "verify_message", "") or certificate.reason or "TLS failed"
        mapped: ModelFailure = Unreachable(
            f"no safe connection to {provider.host} ({why}): check {provider.url}, the date of this "
            "machine, and SSL_CERT_FILE if the server has a private authority"
        )
        mapped.retryable = False
        return mapped
    if any(isinstance(c, socket.gaierror) for c in causes):
        return Unreachable(
            "there is no host {host}; check the network and {url}, or use the model 'offline'".format(**who)
        )
    mapped = kind(template.format(**who))
    if provider.loopback and any(isinstance(c, ConnectionRefusedError) for c in causes):
        mapped = Unreachable("nothing listens at {host}: start the server, or mend {url}".format(**who))
        mapped.retryable = False
    return mapped


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions


def make_cut_error(provider: ProviderInfo) -> Unreachable:
    """The answer ended before it was complete."""
    return Unreachable(
        f"the connection to {provider.name} at {provider.host} was cut before the reply was complete; "
        "try again"
    )


def make_protocol_error(provider: ProviderInfo, what: str) -> BadReply:
    """The server broke the format; the request may be sent again."""
    return BadReply(
        f"{provider.name} at {provider.host} sent {what}; try again, and check {provider.url} if it is set"
    )


def make_no_model_error(provider: ProviderInfo, what: str) -> BadReply:
    """The server is no model; the request is not sent again."""
    error = BadReply(
        f"{provider.name} at {provider.host} sent {what} instead of a reply; check {provider.url}"
    )
    error.retryable = False
    return error


def map_sdk_error(
    error: Exception, provider: ProviderInfo, mapped: Mapped, model: str, hide: tuple[str, ...] = ()
) -> ModelFailure:
    """Our error for one of an SDK's, through the same map as our own client's."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, list_transport_errors()):
        return map_transport_error(error, provider)
    if "APIConnectionError" in names:
        return map_transport_error(error.__cause__ or error, provider)
    if "APIResponseValidationError" in names:
        return make_unreadable_error(provider)
    if names & {"APIStatusError", "APIError"}:
        response: Any = getattr(error, "response", None)
        return mapped(
            parse_error_body(
                provider,
                getattr(error, "body", None) or str(error),
                status=getattr(error, "status_code", None),
                headers=getattr(response, "headers", None),
                model=model,
                hide=hide,
            )
        )
    return make_no_credentials_error(provider)


def make_no_credentials_error(provider: ProviderInfo) -> KeyRefused:
    return KeyRefused(
        f"the {provider.name} client has no credentials that work: give it a key, "
        "or use the model 'offline'"
    )


def make_unreadable_error(provider: ProviderInfo) -> BadReply:
    return make_protocol_error(provider, "an event that cannot be read")


def find_client_secrets(client: Any) -> tuple[str, ...]:
    """The keys of an SDK's client, which no message may show."""
    found = (getattr(client, name, None) for name in ("api_key", "auth_token"))
    return tuple(secret for secret in found if isinstance(secret, str) and secret)
