"""The models: how each provider is spoken to, what each model can do, and the engine that needs none."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sevenfold.core.errors import NoKey, UnknownModel
from sevenfold.core.protocols import Clock, Model
from sevenfold.models.capabilities import (
    ANTHROPIC_URL,
    FAMILIES,
    OFFLINE,
    ModelAccess,
    find_capabilities,
    find_family,
    find_user_capabilities,
    make_default_params,
)

if TYPE_CHECKING:
    from sevenfold.models.anthropic import AnthropicModel
    from sevenfold.models.openai import OpenAiModel

__all__ = ["OFFLINE", "ModelAccess", "connect_model", "find_capabilities", "make_default_params"]

KNOWN: Final = (
    "'offline' (needs nothing), an Anthropic model such as 'claude-sonnet-5-5', 'anthropic:NAME', "
    "'openai:NAME' (with OPENAI_BASE_URL for compatible servers), or 'local:FILE.gguf'"
)


def connect_model(name: str, access: ModelAccess, *, clock: Clock | None = None) -> Model:
    """The model of this name, ready to stream; nothing is sent before the first request.

    `offline`, `local:FILE.gguf`, `openai:NAME`, `anthropic:NAME`, or the plain name of an Anthropic model.
    """
    name = name.strip()
    if name == OFFLINE:
        from sevenfold.offline import OfflineEngine

        return OfflineEngine(find_user_capabilities(OFFLINE, access).window)
    prefix, colon, rest = name.partition(":")
    if prefix == "local" and rest and rest.isprintable():
        from sevenfold.models.local import LocalModel

        return LocalModel(Path(rest), access, clock=clock)
    if colon and prefix not in ("anthropic", "openai"):
        raise UnknownModel(f"no model is called {name!r}: use {KNOWN}")
    if not (rest if colon else name) or any(c.isspace() or not c.isprintable() for c in name):
        raise UnknownModel(f"{name!r} is not the name of a model: use {KNOWN}")
    if prefix == "openai":
        return _openai(name, access, clock)
    return _anthropic(rest if colon else name, access, clock)


def _anthropic(name: str, access: ModelAccess, clock: Clock | None) -> AnthropicModel:
    from sevenfold.models.anthropic import AnthropicModel

    official = access.anthropic_base_url.rstrip("/") in (ANTHROPIC_URL, f"{ANTHROPIC_URL}/v1")
    if official and "claude" not in name:
        raise UnknownModel(f"Anthropic has no model called {name!r}: {_meant(name)}")
    _check("ANTHROPIC_API_KEY", access.anthropic_key)
    _check("ANTHROPIC_AUTH_TOKEN", access.anthropic_token)
    if official and not access.anthropic_key and not access.anthropic_token:
        raise NoKey(f"{name} needs a key: set ANTHROPIC_API_KEY, or use the model 'offline'")
    return AnthropicModel(name, access, clock=clock)


def _openai(name: str, access: ModelAccess, clock: Clock | None) -> OpenAiModel:
    from sevenfold.models.openai import OpenAiModel, is_official

    _check("OPENAI_API_KEY", access.openai_key)
    if is_official(access.openai_base_url) and not access.openai_key:
        raise NoKey(
            f"{name} needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own, "
            "or use the model 'offline'"
        )
    return OpenAiModel(name, access, clock=clock)


def _check(variable: str, key: str) -> None:
    if not all(" " < c < "\x7f" for c in key):
        raise NoKey(
            f"{variable} holds a space, a line break or another character that no key has: set it again"
        )


def _meant(name: str) -> str:
    found = find_family(name)
    if found is not None:
        return f"did you mean 'openai:{name}'?"
    known = [f.prefix for f in FAMILIES if f.prefix.startswith("claude-") and f.prefix != "claude-"]
    near = difflib.get_close_matches(name, [OFFLINE, *known], n=1, cutoff=0.5)
    inside = [one for one in known if name in one]
    if near or inside:
        return f"did you mean {(near or inside)[0]!r}?"
    return f"use {KNOWN}"
