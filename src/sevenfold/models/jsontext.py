"""JSON as servers really send it: decoded strictly, then once more leniently, or refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from sevenfold.core.messages import strip_half_characters


class NotJson(ValueError):
    """These bytes are not JSON, however kindly one reads them."""


def decode_json(text: bytes | str) -> Any:
    """The value. Halves of characters, which some servers send, become whole ones."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return repair_characters(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise NotJson("what was sent is not JSON") from error


def decode_json_object(text: bytes | str) -> dict[str, Any]:
    """The same, when only an object will do."""
    value = decode_json(text)
    if not isinstance(value, dict):
        raise NotJson("what was sent is JSON, but not an object")
    return value


def repair_characters(value: Any) -> Any:
    """A copy with whole characters only: halves of them can be neither sent nor stored."""
    if isinstance(value, str):
        return strip_half_characters(value)
    if isinstance(value, dict):
        return {strip_half_characters(key): repair_characters(item) for key, item in value.items()}
    return [repair_characters(item) for item in value] if isinstance(value, list) else value
