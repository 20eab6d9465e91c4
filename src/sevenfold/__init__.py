"""Seven layers of memory for LLM agents: plain files, any model, the prompt cache kept.

The public names. They are loaded when first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sevenfold.context.context import Context
    from sevenfold.core.clock import run_sync
    from sevenfold.core.errors import Failure, Mistake, SevenfoldError
    from sevenfold.core.events import Event
    from sevenfold.core.messages import (
        Document,
        Image,
        Message,
        Opaque,
        RedactedThinking,
        Text,
        Thinking,
        ToolResult,
        ToolUse,
    )
    from sevenfold.core.protocols import Model, Tool
    from sevenfold.memory.errors import Guarded, NoSuchMemory
    from sevenfold.memory.folder.folder import Saved
    from sevenfold.memory.history.revisions import Author
    from sevenfold.memory.recall_results import Recalled
    from sevenfold.memory.store import Memory, MemoryOff
    from sevenfold.session.session import Session
    from sevenfold.settings.schema import Settings

_HOMES = {
    "Context": "context.context",
    "Session": "session.session",
    "Memory": "memory.store",
    "MemoryOff": "memory.store",
    "Guarded": "memory.errors",
    "NoSuchMemory": "memory.errors",
    "Saved": "memory.folder.folder",
    "Author": "memory.history.revisions",
    "Recalled": "memory.recall_results",
    "Message": "core.messages",
    "Text": "core.messages",
    "Thinking": "core.messages",
    "RedactedThinking": "core.messages",
    "ToolUse": "core.messages",
    "ToolResult": "core.messages",
    "Image": "core.messages",
    "Document": "core.messages",
    "Opaque": "core.messages",
    "Model": "core.protocols",
    "Tool": "core.protocols",
    "Settings": "settings",
    "Event": "core.events",
    "run_sync": "core.clock",
    "SevenfoldError": "core.errors",
    "Mistake": "core.errors",
    "Failure": "core.errors",
}

__version__ = "0.1.0"
__all__ = [
    "Author",
    "Context",
    "Document",
    "Event",
    "Failure",
    "Guarded",
    "Image",
    "Memory",
    "MemoryOff",
    "Message",
    "Mistake",
    "Model",
    "NoSuchMemory",
    "Opaque",
    "Recalled",
    "RedactedThinking",
    "Saved",
    "Session",
    "Settings",
    "SevenfoldError",
    "Text",
    "Thinking",
    "Tool",
    "ToolResult",
    "ToolUse",
    "run_sync",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sevenfold' has no attribute {name!r}")
    return getattr(import_module(f"sevenfold.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
