"""The window that a recorded session had: what the file shows counts, else what its model has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from sevenfold.cache.prices import LimitsOf, ModelLimits
from sevenfold.core.transcript import Entry, Reply
from sevenfold.models.capabilities import DEFAULT_WINDOW, LONG_WINDOW, find_known_window, find_window

LITTLE: Final = 1.1  # A prompt that is longer by so little was counted otherwise than the window


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
    entries: Sequence[Entry],
    model: str,
    *,
    recorded: Sequence[int] = (),
    limits_of: LimitsOf = lambda model: ModelLimits(),
) -> SessionWindow:
    """The window of the client that recorded these entries.

    The first of these that holds the longest prompt: the windows that the file names or shows (`recorded`),
    the window of the model (`limits_of`: in the user's table), the usual ones.
    """
    largest = max((e.what.usage.prompt for e in entries if isinstance(e.what, Reply)), default=0)
    own = next((size for size in recorded if largest <= LITTLE * size), next(iter(recorded), 0))
    known = find_known_window(model, own=limits_of(model).window)
    if own and (largest <= LITTLE * own or known is None):
        tokens, source = max(own, largest), WindowSource.RECORDED
    elif known is not None and largest <= known:
        tokens, source = known, WindowSource.MODEL
    else:
        tokens = next((size for size in (DEFAULT_WINDOW, LONG_WINDOW) if largest <= size), largest)
        # A model with the usual window is also offered with the long one, and with no other.
        shown = known == DEFAULT_WINDOW and tokens == LONG_WINDOW
        source = WindowSource.RECORDED if shown else WindowSource.UNKNOWN
    named = " and ".join(f"{size:,}" for size in recorded)
    doubts = (
        _describe_excess(largest, own, known, model),
        f"the file names the windows {named}" if len(recorded) > 1 else "",
        _describe_models(entries, limits_of),
    )
    said = "; ".join(filter(None, doubts))
    return SessionWindow(tokens, source, f"{said}: replayed in {tokens:,} tokens" if said else "")


def _describe_excess(largest: int, own: int, known: int | None, model: str) -> str:
    """The reason why no known window is sure to have held the longest prompt; empty for most."""
    of = f" of {model}" if model else ""
    if not own and known is None:
        more = f", and a prompt has {largest:,} tokens" if largest > DEFAULT_WINDOW else ""
        return f"the window{of} is not known{more}"
    if largest <= (size := own or known or 0):
        return ""
    which = "recorded window" if own else f"window{of}"
    return f"a prompt of {largest:,} tokens is larger than the {which} ({size:,})"


def _describe_models(entries: Sequence[Entry], limits_of: LimitsOf) -> str:
    times = Counter(e.what.model for e in entries if isinstance(e.what, Reply) and e.what.model)
    sizes = {name: find_window(name, own=limits_of(name).window) for name in times}
    if len(set(sizes.values())) <= 1:
        return ""
    each = ", ".join(f"{name} ({size:,}, {times[name]:,} requests)" for name, size in sizes.items())
    return f"models with different windows answered: {each}"
