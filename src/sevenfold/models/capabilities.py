"""Capabilities of models by the beginning of their names, and `ModelAccess`: keys, addresses, limits."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prices import PROVIDER_PREFIX, LimitsOf, ModelLimits
from sevenfold.core.errors import NoKey, UnknownModel
from sevenfold.core.messages import Json
from sevenfold.core.protocols import Capabilities
from sevenfold.models.registry import PROVIDERS

ANTHROPIC_URL: Final = "https://api.anthropic.com"
OPENAI_URL: Final = "https://api.openai.com/v1"
_SECRET: Final = frozenset({"anthropic_key", "anthropic_token", "openai_key"})


class ModelAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Keys, addresses and limits for connections. It reads no file or environment, and shows no key."""

    anthropic_key: str = ""
    anthropic_token: str = ""  # Sent as a bearer token instead of the key, when set
    anthropic_base_url: str = ANTHROPIC_URL
    openai_key: str = ""
    openai_base_url: str = OPENAI_URL
    connect_timeout: float = 10.0
    read_timeout: float = 600.0  # The longest silence in a stream before the connection counts as cut
    headers: dict[str, str] = {}  # Sent with every request, over our own
    betas: tuple[str, ...] = ()
    """Beta features asked for in every session; `make_default_params` puts them into the frame."""
    window: int | None = None
    """The window of an unknown model; the window of a known one is never larger than this."""
    limits_of: LimitsOf = lambda model: ModelLimits()
    """The size of a model in the user's price file, which counts before our own table."""
    thinking_budget: int | None = None
    """Tokens a model may think; models that decide for themselves only take it as a yes."""
    effort: str | None = None
    drop_thinking: bool = False
    """Ask the provider to drop thinking that no longer fits instead of refusing the request."""
    diagnostics: bool | None = None
    """Ask why the prompt cache missed; None: where the provider is known to answer that."""
    edits_cache: bool = False  # The server takes cache edits; the simulator does
    threads: bool = False
    """Send only what is new, where the provider holds conversations: Anthropic, and on this machine."""
    variables: Mapping[str, str] = {}
    """The environment, for the key and the address of a provider that is not built in; never shown."""

    def __repr__(self) -> str:
        return f"Access({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        shown: list[tuple[str, Any]] = []
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in ("limits_of", "variables"):
                continue
            if name in _SECRET:
                value = "set" if value else "not set"
            elif name == "headers":
                value = sorted(value)
            elif name.endswith("_url"):
                value = strip_url_credentials(value)
            shown.append((name, value))
        return shown


def check_key(variable: str, key: str) -> None:
    if not all(" " < c < "\x7f" for c in key):
        raise NoKey(
            f"{variable} holds a space, a line break or another character that no key has: set it again"
        )


def check_model_name(name: str) -> None:
    """Raises `UnknownModel` if the name is empty behind its prefix, or has spaces or control characters."""
    prefix, colon, rest = name.partition(":")
    if not (rest if colon else prefix) or any(c.isspace() or not c.isprintable() for c in name):
        raise UnknownModel(f"{name!r} is not the name of a model: use {PROVIDERS.describe_names()}")


def parse_host(url: str) -> str:
    """Host and port of an address; an address that cannot be read stays as it is, without credentials."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.hostname}{port}" if parts.hostname else strip_url_credentials(url)
    except ValueError:
        return strip_url_credentials(url)


def is_loopback(url: str) -> bool:
    """True for an address on this machine."""
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


def strip_url_credentials(url: str) -> str:
    before, at, after = url.rpartition("@")
    if not at:
        return url
    scheme, slashes, _ = before.partition("://")
    return f"{scheme}{slashes}{after}" if slashes else after


LONG: Final = "[1m]"  # After a model's name: ask for its window of a million tokens
LONG_WINDOW: Final = 1_000_000
LONG_BETA: Final = "context-1m-2025-08-07"
INTERLEAVED_BETA: Final = "interleaved-thinking-2025-05-14"
BINDING_BETA: Final = "thinking-binding-controls-2026-08-01"
DEFAULT_WINDOW: Final = 200_000
OFFLINE: Final = "offline"
LOCAL: Final = "local:"  # Before the path of a GGUF file

Thinks: TypeAlias = Literal["", "budget", "adaptive"]
"""The way to ask a model to think: not at all, with a number of tokens, or as it decides."""


class ModelFamily(msgspec.Struct, frozen=True):
    """Models whose names begin alike."""

    prefix: str
    able: Capabilities
    thinks: Thinks = ""
    effort: bool = False


def _claude(
    window: int, output: int, *, edits: bool = True, compacts: bool = False, binds: bool = False
) -> Capabilities:
    known = Capabilities(window=window, max_output=output, binds_thinking=binds)
    return replace(known, context_management=edits, server_compaction=compacts)


def _gpt(window: int, output: int, *, images: bool = True) -> Capabilities:
    return Capabilities(window=window, max_output=output, images=images)


_NEWEST: Final = _claude(1_000_000, 128_000, compacts=True, binds=True)
_NEW: Final = _claude(1_000_000, 128_000, compacts=True)
_HALF: Final = _claude(200_000, 64_000)
_OLD: Final = _claude(200_000, 32_000)

# An unknown name is treated like the newest, apart from its size, which is not known.
_UNKNOWN: Final = ModelFamily("claude-", _claude(DEFAULT_WINDOW, 32_000, binds=True), "adaptive", True)
FAMILIES: Final = (
    _UNKNOWN,
    ModelFamily("claude-fable-5", _NEW, "adaptive", True),
    ModelFamily("claude-fable-5-1", _NEWEST, "adaptive", True),
    ModelFamily("claude-fable-5-2", _NEWEST, "adaptive", True),
    # These record the prefix their thinking is bound to, and do not check it.
    ModelFamily("claude-mythos-", _NEW, "adaptive", True),
    ModelFamily("claude-mythos-5-2", _NEWEST, "adaptive", True),
    ModelFamily("claude-opus-5", _NEW, "adaptive", True),
    ModelFamily("claude-opus-5-5", _NEWEST, "adaptive", True),
    ModelFamily("claude-sonnet-5", _NEW, "adaptive", True),
    ModelFamily("claude-sonnet-5-5", _NEWEST, "adaptive", True),
    ModelFamily("claude-haiku-5-5", _NEWEST, "adaptive", True),
    ModelFamily("claude-opus-4-6", _NEW, "adaptive", True),
    ModelFamily("claude-opus-4-7", _NEW, "adaptive", True),
    ModelFamily("claude-opus-4-8", _NEW, "adaptive", True),
    ModelFamily("claude-sonnet-4-6", _NEW, "adaptive", True),
    ModelFamily("claude-opus-4-5", _HALF, "budget", True),
    ModelFamily("claude-sonnet-4-5", _HALF, "budget"),
    ModelFamily("claude-haiku-4-5", _HALF, "budget"),
    ModelFamily("claude-sonnet-4", _HALF, "budget"),
    ModelFamily("claude-opus-4", _OLD, "budget"),
    ModelFamily("claude-3-7-sonnet", _claude(200_000, 64_000, edits=False), "budget"),
    ModelFamily("claude-3-5-", _claude(200_000, 8_192, edits=False)),
    ModelFamily("claude-3-", _claude(200_000, 4_096, edits=False)),
    ModelFamily("gpt-6", _gpt(1_050_000, 128_000), effort=True),
    ModelFamily("gpt-5", _gpt(400_000, 128_000), effort=True),
    ModelFamily("gpt-5.4", _gpt(1_050_000, 128_000), effort=True),
    ModelFamily("gpt-5.4-mini", _gpt(400_000, 128_000), effort=True),
    ModelFamily("gpt-5.4-nano", _gpt(400_000, 128_000), effort=True),
    ModelFamily("gpt-5.5", _gpt(1_050_000, 128_000), effort=True),
    ModelFamily("gpt-5.6", _gpt(1_050_000, 128_000), effort=True),
    ModelFamily("gpt-4.1", _gpt(1_047_576, 32_768)),
    ModelFamily("gpt-4o", _gpt(128_000, 16_384)),
    ModelFamily("gpt-4-turbo", _gpt(128_000, 4_096)),
    ModelFamily("gpt-4", _gpt(8_192, 4_096, images=False)),
    ModelFamily("gpt-3.5-turbo", _gpt(16_385, 4_096, images=False)),
    ModelFamily("gpt-oss", _gpt(131_072, 32_768, images=False), effort=True),
    ModelFamily("o1", _gpt(200_000, 100_000), effort=True),
    ModelFamily("o3", _gpt(200_000, 100_000), effort=True),
    ModelFamily("o3-mini", _gpt(200_000, 100_000, images=False), effort=True),
    ModelFamily("o4-mini", _gpt(200_000, 100_000), effort=True),
)


def to_wire_name(name: str) -> str:
    """A model's name as its provider knows it: without our prefix and without `[1m]`."""
    prefix, colon, rest = name.partition(":")
    provider = PROVIDERS.get(prefix) if colon else None
    return (name if provider is None or provider.sends_prefix else rest).removesuffix(LONG)


def list_model_names(priced: Iterable[str]) -> list[str]:
    """The names under which the models of a price table are connected."""
    ours = [name for name in priced if name != LOCAL.removesuffix(":")]
    return [name if name == OFFLINE or name.startswith("claude") else f"openai:{name}" for name in ours]


def find_family(name: str) -> ModelFamily | None:
    """The family with the longest name that this one begins with."""
    return _find_family(re.sub(PROVIDER_PREFIX, "", to_wire_name(name)))


@cache
def _find_family(bare: str) -> ModelFamily | None:
    known = [f for f in FAMILIES if bare.startswith(f.prefix)]
    return max(known, key=lambda f: len(f.prefix)) if known else None


def find_window(
    name: str, betas: Iterable[str] = (), override: int | None = None, own: int | None = None
) -> int:
    """In this order: the suffix, the tables (the user's `own`, then ours), the beta flag, the usual size.

    `override` sets the window of an unknown model, and lowers that of a known one; it never raises it.
    """
    known = find_known_window(name, betas, own)
    if known is None:
        return override or DEFAULT_WINDOW
    return min(known, override or known)


def find_known_window(name: str, betas: Iterable[str] = (), own: int | None = None) -> int | None:
    """The window of a model that `find_window` knows; None for one that gets the usual size."""
    if name.endswith(LONG):
        return LONG_WINDOW
    if own is not None:
        return own
    if name == OFFLINE:
        return DEFAULT_WINDOW
    if (found := find_family(name)) is not None and found is not _UNKNOWN:
        return found.able.window
    return LONG_WINDOW if LONG_BETA in betas else None


NOTHING_SAID: Final = ModelLimits()


def find_capabilities(
    name: str, *, betas: Iterable[str] = (), window: int | None = None, own: ModelLimits = NOTHING_SAID
) -> Capabilities:
    """The capabilities of a model. An unknown model gets a modest share of its window for the reply."""
    provider = PROVIDERS.find(name)
    if provider is not None and (told := provider.describe(name, window or own.window)) is not None:
        return told
    size, found = find_window(name, betas, window, own.window), find_family(name)
    if found is not None:
        return replace(found.able, window=size, max_output=own.max_output or found.able.max_output)
    return Capabilities(window=size, max_output=own.max_output or make_modest_output(size))


def find_user_capabilities(name: str, access: ModelAccess) -> Capabilities:
    """The same, with the limits of the user's settings."""
    own = access.limits_of(name)
    return find_capabilities(name, betas=access.betas, window=access.window, own=own)


def make_modest_output(window: int) -> int:
    """The longest reply to ask of a model that is not in the table, in tokens."""
    return min(32_000, max(1, window // 4))


def make_default_params(name: str, access: ModelAccess) -> Json:
    """The parameters of a new session's frame: the user's wishes in the model's own terms."""
    params: Json = {"betas": list(access.betas)} if access.betas else {}
    found = find_family(name)
    if access.effort and (found is None or found.effort):
        params["effort"] = access.effort
    if name.startswith("openai:") or found is None:
        return params
    if thinking := _thinking(found, access):
        params["thinking"] = thinking
    if thinking.get("type") == "enabled":
        params["betas"] = [*params.get("betas", ()), INTERLEAVED_BETA]
    return params


def is_thinking_dropped(params: Json) -> bool:
    """True if these parameters ask the provider to drop thinking that no longer fits."""
    return bool((params.get("thinking") or {}).get("block_binding"))


def _thinking(found: ModelFamily, access: ModelAccess) -> Json:
    thinking: Json = {}
    drops = access.drop_thinking and found.able.binds_thinking
    if access.thinking_budget and found.thinks == "budget":
        thinking = {"type": "enabled", "budget_tokens": max(1_024, access.thinking_budget)}
    elif found.thinks == "adaptive" and (access.thinking_budget or drops):
        thinking = {"type": "adaptive"}
    if drops:
        thinking["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    return thinking
