"""JSON as servers really send it: decoded strictly, then once more leniently, or refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from sevenfold.messages import whole_characters


class NotJson(ValueError):
    """These bytes are not JSON, however kindly one reads them."""


def decode(text: bytes | str) -> Any:
    """The value. Halves of characters, which some servers send, become whole ones."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return _whole(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise NotJson("what was sent is not JSON") from error


def decode_object(text: bytes | str) -> dict[str, Any]:
    """The same, when only an object will do."""
    value = decode(text)
    if not isinstance(value, dict):
        raise NotJson("what was sent is JSON, but not an object")
    return value


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {whole_characters(key): _whole(item) for key, item in value.items()}
    return value
