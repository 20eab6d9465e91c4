"""What a provider said that a reply cost, as its own API writes it down."""

from __future__ import annotations

from typing import Any, Final

from sevenfold.messages import Json
from sevenfold.tokens import Usage

_SENT: Final = ("prompt_tokens", "input_tokens")
_WROTE: Final = ("completion_tokens", "output_tokens")
_DETAILS: Final = ("prompt_tokens_details", "input_tokens_details")
_READ, _KEPT = "cache_read_input_tokens", "cache_creation_input_tokens"


def usage_of(said: Json) -> Usage | None:
    """None when a count of it is none. What OpenAI read from its cache is among what was sent."""
    details: Json = next((said[name] for name in _DETAILS if isinstance(said.get(name), dict)), {})
    counts: list[Any] = [_first(said, _SENT), _first(said, _WROTE)]
    counts += [said.get(_KEPT) or 0, said.get(_READ) or 0, details.get("cached_tokens") or 0]
    if any(type(number) is not int or number < 0 for number in counts):
        return None
    sent, wrote, kept, read, among = counts
    return Usage(sent - among, kept, read + among, wrote) if among <= sent else None


def _first(said: Json, names: tuple[str, ...]) -> Any:
    return next((said[name] for name in names if said.get(name) is not None), 0)
