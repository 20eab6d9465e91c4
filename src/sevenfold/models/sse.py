"""Server-sent events: a parser that takes bytes as they arrive, and a writer."""

from __future__ import annotations

import re
from typing import Final

import msgspec

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_MARK: Final = b"\xef\xbb\xbf"  # A byte-order mark may stand at the very beginning


class SseEvent(msgspec.Struct, frozen=True):
    """One event: its name, "" when it has none, and its data lines joined."""

    name: str
    data: bytes


class SseParser:
    """Takes chunks cut anywhere, also inside a character or between `\\r` and `\\n`."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._skip_newline = False
        self._started = False
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that this chunk completes."""
        if self._skip_newline and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._skip_newline = False
        self._parts.append(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            return []  # nothing is joined before a line ends: a long line costs its length once
        held = b"".join(self._parts)
        self._skip_newline = held.endswith(b"\r")
        *lines, rest = _LINE_END.split(held)
        self._parts = [rest]
        return [event for line in lines if (event := self._line(line)) is not None]

    def rest(self) -> SseEvent | None:
        """The last event, if the blank line that should close it is missing."""
        if line := b"".join(self._parts):
            self._line(line)
        self._parts = []
        return self._dispatch()

    def _line(self, line: bytes) -> SseEvent | None:
        if not self._started:
            line, self._started = line.removeprefix(_MARK), True
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"data":
            self._data.append(value)
        elif field == b"error":  # older llama.cpp servers write the error as a field of its own
            self._name = "error"
            self._data.append(value)
        return None

    def _dispatch(self) -> SseEvent | None:
        name, data = self._name, self._data
        self._name, self._data = "", []
        return SseEvent(name, b"\n".join(data)) if data else None


def write_event(data: bytes, name: str = "") -> bytes:
    """The bytes of one event; `data` must be one line, as JSON is."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + data + b"\n\n"
