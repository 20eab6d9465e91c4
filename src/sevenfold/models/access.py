"""How to reach the models: keys, addresses and limits, handed in by the settings."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from sevenfold.cache.prices import Limits, LimitsOf

ANTHROPIC_URL: Final = "https://api.anthropic.com"
OPENAI_URL: Final = "https://api.openai.com/v1"
_SECRET: Final = frozenset({"anthropic_key", "anthropic_token", "openai_key"})


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed to connect. It reads no file and no environment, and it shows no key."""

    anthropic_key: str = ""
    anthropic_token: str = ""
    """Sent as a bearer token instead of the key, when set."""
    anthropic_base_url: str = ANTHROPIC_URL
    openai_key: str = ""
    openai_base_url: str = OPENAI_URL
    connect_timeout: float = 10.0
    read_timeout: float = 600.0
    """The longest silence in a stream before the connection counts as cut."""
    headers: dict[str, str] = {}
    """Sent with every request, over our own."""
    betas: tuple[str, ...] = ()
    """Beta features asked for in every session; `default_params` puts them into the frame."""
    window: int | None = None
    """The window of a model that nobody knows; one that is known is never larger than this."""
    limits_of: LimitsOf = lambda model: Limits()
    """What the user's price file says about the size of a model, which counts before our own table."""
    thinking_budget: int | None = None
    """Tokens a model may think; models that decide for themselves only take it as a yes."""
    effort: str | None = None
    drop_thinking: bool = False
    """Ask the provider to drop thinking that no longer fits instead of refusing the request."""
    diagnostics: bool | None = None
    """Ask why the prompt cache missed; None: where the provider is known to answer that."""
    edits_cache: bool = False
    """The server takes cache edits; the simulator does."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._shown())
        return f"Access({shown})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return list(self._shown())

    def _shown(self) -> Iterator[tuple[str, Any]]:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name == "limits_of":
                continue
            if name in _SECRET:
                value = "set" if value else "not set"
            elif name == "headers":
                value = sorted(value)
            elif name.endswith("_url"):
                value = without_credentials(value)
            yield name, value


def host_of(url: str) -> str:
    """Host and port as people write them; what cannot be read is shown as it is, without credentials."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.hostname}{port}" if parts.hostname else without_credentials(url)
    except ValueError:
        return without_credentials(url)


def is_loopback(url: str) -> bool:
    """Whether this address is on this very machine."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def without_credentials(url: str) -> str:
    before, at, after = url.rpartition("@")
    if not at:
        return url
    scheme, slashes, _ = before.partition("://")
    return f"{scheme}{slashes}{after}" if slashes else after
