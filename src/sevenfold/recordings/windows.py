"""The window that a recorded session had: what the file shows counts, else what its model has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from sevenfold.core.transcript import Entry, Reply
from sevenfold.models.capabilities import DEFAULT_WINDOW, LONG_WINDOW, find_known_window, find_window


class WindowSource(StrEnum):
    """Where a window is known from."""

    RECORDED = "recorded"
    MODEL = "model"
    UNKNOWN = "unknown"


class SessionWindow(msgspec.Struct, frozen=True):
    """The window of a recorded session in tokens, and where that is known from."""

    tokens: int = DEFAULT_WINDOW
    source: WindowSource = WindowSource.UNKNOWN
    problem: str = ""  # The reason why the window is not sure


def find_session_window(
    entries: Sequence[Entry], model: str, *, recorded: int = 0, own: int | None = None
) -> SessionWindow:
    """The window of the client that recorded these entries.

    In this order: the window that the file names or shows (`recorded`), prompts that are longer than the
    usual window, the window of the model (`own`: in the user's table). Else it is unknown, and the usual
    one is taken.
    """
    largest = max((e.what.usage.prompt for e in entries if isinstance(e.what, Reply)), default=0)
    known = find_known_window(model, own=own)
    tokens, source = DEFAULT_WINDOW, WindowSource.UNKNOWN
    if recorded and recorded >= largest:
        tokens, source = recorded, WindowSource.RECORDED
    elif largest > DEFAULT_WINDOW or (known is not None and largest > known):
        tokens = known if known is not None and known >= largest else LONG_WINDOW
        source = WindowSource.RECORDED
    elif known is not None:
        tokens, source = known, WindowSource.MODEL
    return SessionWindow(tokens, source, _describe_doubts(entries, model, tokens, source))


def _describe_doubts(entries: Sequence[Entry], model: str, tokens: int, source: WindowSource) -> str:
    """The reason why a window may be wrong; empty for most."""
    if source is WindowSource.UNKNOWN:
        named = f"of {model} " if model else ""
        return f"the window {named}is not known: replayed in {tokens:,} tokens"
    times = Counter(e.what.model for e in entries if isinstance(e.what, Reply) and e.what.model)
    sizes = {name: find_window(name) for name in times}
    if len(set(sizes.values())) <= 1:
        return ""
    each = ", ".join(f"{name} ({size:,}, {times[name]:,} requests)" for name, size in sizes.items())
    return f"models with different windows answered: {each}; all is replayed in {tokens:,} tokens"
