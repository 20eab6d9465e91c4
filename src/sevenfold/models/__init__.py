"""The models: how each provider is spoken to, and what each model can do."""

from __future__ import annotations

from sevenfold.core.errors import UnknownModel
from sevenfold.core.protocols import Clock, Model
from sevenfold.models.capabilities import OFFLINE, ModelAccess, find_capabilities, make_default_params
from sevenfold.models.registry import PROVIDERS, ModelProvider, register

__all__ = [
    "OFFLINE", "ModelAccess", "ModelProvider", "connect_model", "find_capabilities", "make_default_params",
    "register",
]  # fmt: skip


def connect_model(name: str, access: ModelAccess, *, clock: Clock | None = None) -> Model:
    """The model of this name, ready to stream; nothing is sent before the first request.

    Its name is `offline`, `PREFIX:NAME` of a registered provider (`openai:NAME`, `local:FILE.gguf`), or the
    plain name of an Anthropic model.
    """
    name = name.strip()
    provider = PROVIDERS.find(name)
    if provider is None:
        raise UnknownModel(f"no model is called {name!r}: use {PROVIDERS.describe_names()}")
    return provider.connect(name, access, clock)
