"""The status line of Claude Code: a sign that recall works, and what the session costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from sevenfold.clients.events import find_client_environment, read_event
from sevenfold.clients.hook import open_client_memory
from sevenfold.clients.notes import find_notes_file, load_notes
from sevenfold.core.errors import SevenfoldError
from sevenfold.settings.environment import Environment


class ClientStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What is known about a session of the client; None: the client does not say."""

    recalled: int = 0  # Memories that the session was shown
    cache_hit: float | None = None  # The part of the last request that the provider had in its cache
    cost: float | None = None  # In dollars, as the client counts it
    off: str = ""  # The reason that nothing is recalled

    def format(self) -> str:
        """The line."""
        if self.off:
            return f"sevenfold: {self.off}"
        parts = [f"sevenfold {self.recalled} recalled"]
        parts += [] if self.cache_hit is None else [f"cache {self.cache_hit:.0%}"]
        parts += [] if self.cost is None else [f"${self.cost:.2f}"]
        return " · ".join(parts)


def read_status(data: bytes, environment: Environment, home: Path | None = None) -> ClientStatus:
    """The status of the session that Claude Code describes in these bytes."""
    try:
        event = read_event(data)
        given = msgspec.json.decode(data or b"{}")
        around = find_client_environment(environment, "claude", home)
        if around.plugin_off:
            return ClientStatus(off="off")
        with open_client_memory(event, around) as memory:
            shown = len(
                load_notes(find_notes_file(memory.local, event.session_id), event.session_id).memories
            )
    except SevenfoldError as error:
        return ClientStatus(off=" ".join(str(error).split()))
    cost = _find_number(given, "cost", "total_cost_usd")
    return ClientStatus(shown, _find_hit_rate(given), cost)


def _find_hit_rate(given: Any) -> float | None:
    path = ("context_window", "current_usage")
    read = _find_number(given, *path, "cache_read_input_tokens")
    rest = [_find_number(given, *path, name) for name in ("input_tokens", "cache_creation_input_tokens")]
    total = (read or 0.0) + sum(filter(None, rest))
    return (read or 0.0) / total if total else None


def _find_number(given: Any, *path: str) -> float | None:
    for key in path:
        given = given.get(key) if isinstance(given, dict) else None
    return float(given) if isinstance(given, int | float) else None
