"""Reads plain lists of messages, as the chat APIs of OpenAI and others take them.

A file is a JSON list, an object with `messages`, or one message a line. Such files say what was said, and
mostly nothing about what it cost; usage and times are there only where the writer added them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.core.messages import Block, Image, Json, Text, Thinking, ToolResult, ToolUse, parse_block
from sevenfold.core.tokens import Usage
from sevenfold.models.openai_wire import decode_arguments, find_thought
from sevenfold.recordings.reader import (
    RecordedThread,
    decode_lenient,
    describe_left_out,
    get_text,
    iterate_items,
    parse_object,
    read_document,
)
from sevenfold.recordings.recorded_session import RecordedSession, SessionReader
from sevenfold.storage.jsonl import iterate_lines

_SENT: Final = ("prompt_tokens", "input_tokens")
_WROTE: Final = ("completion_tokens", "output_tokens")
_DETAILS: Final = ("prompt_tokens_details", "input_tokens_details")
_READ, _KEPT = "cache_read_input_tokens", "cache_creation_input_tokens"


def parse_usage(said: Json) -> Usage | None:
    """The usage of a reply; None if a count is no number. OpenAI counts cached tokens among those sent."""
    details: Json = next((said[name] for name in _DETAILS if isinstance(said.get(name), dict)), {})
    counts: list[Any] = [_first_counts(said, _SENT), _first_counts(said, _WROTE)]
    counts += [said.get(_KEPT) or 0, said.get(_READ) or 0, details.get("cached_tokens") or 0]
    if any(type(number) is not int or number < 0 for number in counts):
        return None
    sent, wrote, kept, read, among = counts
    return Usage(sent - among, kept, read + among, wrote) if among <= sent else None


def _first_counts(said: Json, names: tuple[str, ...]) -> Any:
    return next((said[name] for name in names if said.get(name) is not None), 0)


FORMAT: Final = "messages"
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_ROLE: Final = re.compile(rb'"role"\s*:\s*"(?:system|developer|user|assistant)"')
_IN_OBJECT: Final = re.compile(rb'"messages"\s*:\s*\[')
_MODEL: Final = re.compile(rb'"model"\s*:\s*"([^"\\]{1,100})"')
_SAYS: Final = ("content", "tool_calls", "function_call")
_WORDS: Final = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Parts that are text, and where they have it."""
_TIMES: Final = ("timestamp", "created_at", "created", "at")


class MessagesReader:
    """The `SessionReader` of this format."""

    format = FORMAT

    def recognises(self, head: bytes) -> bool:
        start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        if start.startswith(b"["):
            return _ROLE.search(start) is not None and b"{" in start[:64]
        if not start.startswith(b"{"):
            return False
        return _is_message(_first(start)) or bool(_IN_OBJECT.search(start) and _ROLE.search(start))

    def read(self, source: Path | bytes) -> RecordedSession:
        reading = _MessagesParse()
        _, line = next(iterate_lines(source, []), (0, b""))  # whole: it may be longer than any head
        by_line = line.startswith(b"{") and _is_message(_outline(line))
        for number, item in reading.lines(source) if by_line else reading.whole(source):
            reading.take(number, item)
        return reading.thread.make_session()


_fits: type[SessionReader] = MessagesReader


def _first(head: bytes) -> object:
    try:
        return decode_lenient(head.split(b"\n", 1)[0])
    except ValueError:
        return None


def _outline(line: bytes) -> object:
    """The fields of a line by which it is told, without taking all of it apart: it may be a whole list."""
    try:
        found = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        role = found.get("role")
        return {**found, "role": decode_lenient(bytes(role))} if role is not None else found
    except (ValueError, RecursionError):
        return _first(line)


def _is_message(found: object) -> bool:
    return (
        isinstance(found, dict)
        and get_text(found.get("role")) in _ROLES
        and any(key in found for key in _SAYS)
        and "uuid" not in found
    )


class _MessagesParse:
    def __init__(self) -> None:
        self.thread = RecordedThread(FORMAT)
        self._at = 0.0
        self._function = ""  # The id of the last call in the way of old, which has none

    def lines(self, source: Path | bytes) -> Iterator[tuple[int, object]]:
        for number, line in iterate_lines(source, self.thread.problems):
            lost: list[str] = []
            try:
                yield number, parse_object(line, lost)
            except ValueError as error:
                self.thread.add_problem(number, str(error))
            for what in lost[:1]:
                self.thread.add_problem(number, describe_left_out(what))

    def whole(self, source: Path | bytes) -> Iterator[tuple[int, object]]:
        data, start = read_document(source, self.thread.problems), 0
        if not data[:64].lstrip().startswith(b"["):
            # An object names its model before or behind its messages.
            models = (_MODEL.search(part) for part in (data[:4_096], data[-4_096:]))
            self.thread.model = next((m[1].decode("utf-8", "replace") for m in models if m), "")
            found = _IN_OBJECT.search(data)
            start = found.end() - 1 if found else len(data)
            after = data.find(b"\n") + 1
            if after and found and after < len(data) and data[after : after + 1] == b"{":
                self.thread.add_problem(2, "another list of messages; put each in a file of its own")
        if start < len(data):
            yield from enumerate(iterate_items(data, start, self.thread.problems), 1)

    def take(self, number: int, item: object) -> None:
        if not isinstance(item, dict) or get_text(item.get("role")) not in _ROLES:
            self.thread.add_problem(number, "not a message with a role")
            return
        times = (self.thread.read_time(item.get(key), number) for key in _TIMES)
        self._at = next((at for at in times if at), self._at)
        role = item["role"]
        if role == "assistant":
            self._reply(number, item)
        elif role in ("tool", "function"):
            id = get_text(item.get("tool_call_id")) or self._function
            self.thread.add_result(ToolResult(id, _result(item.get("content"))), number, self._at)
        else:
            self._said(number, item, meta=role != "user")

    def _said(self, number: int, item: Json, *, meta: bool) -> None:
        blocks = parse_content(item.get("content"))
        results = [block for block in blocks if isinstance(block, ToolResult)]
        rest: list[Block] = [b for b in blocks if not isinstance(b, ToolResult | ToolUse)]
        for result in results:
            self.thread.add_result(result, number, self._at)
        if results:
            self.thread.add_beside(rest, results[-1].tool_use_id)
        else:
            self.thread.add_message(rest, number, self._at, meta=meta)

    def _reply(self, number: int, item: Json) -> None:
        self.thread.end_reply()
        blocks: list[Block] = [Thinking(thought)] if (thought := find_thought(item)) else []
        blocks += [b for b in parse_content(item.get("content")) if not isinstance(b, ToolResult)]
        calls = item.get("tool_calls")
        calls = calls if isinstance(calls, list) else ()
        blocks += [_call(call) for call in calls if isinstance(call, dict)]
        if isinstance(old := item.get("function_call"), dict):
            self._function = f"function-{number}"
            blocks.append(_call({"id": self._function, "function": old}))
        for block in blocks:
            self.thread.add_block(block, number, self._at, model=get_text(item.get("model")))
        self.thread.end_reply()
        if blocks and isinstance(said := item.get("usage"), dict):
            if (used := parse_usage(said)) is None:
                self.thread.add_problem(number, "its usage cannot be: it is left out")
            elif used.prompt:
                self.thread.add_usage(used)


def _call(call: Json) -> ToolUse:
    named = call.get("function") or call.get("custom")
    about: Json = named if isinstance(named, dict) else call
    given = about.get("arguments", about.get("input"))
    return ToolUse(get_text(call.get("id")), get_text(about.get("name")) or "tool", parse_arguments(given))


def parse_arguments(given: object) -> Json:
    """The arguments of a call: JSON inside a string, or a plain text; anything else is left out."""
    known = given if isinstance(given, str | dict) else None
    return decode_arguments(known, "input", lambda text: parse_object(text.encode("utf-8", "replace")))


def _result(content: object) -> str | tuple[Block, ...]:
    if isinstance(content, str):
        return content
    blocks = parse_content(content)
    if all(isinstance(block, Text) for block in blocks):
        return "".join(block.text for block in blocks if isinstance(block, Text))
    return tuple(blocks)


def parse_content(content: object) -> list[Block]:
    """The blocks of a message's content, a text or a list of parts."""
    if isinstance(content, str):
        return [Text(content)] if content else []
    parts = content if isinstance(content, list) else ()
    return [block for part in parts if (block := _part(part)) is not None]


def _part(part: object) -> Block | None:
    """A part of a message's content; what we do not know is kept as it came."""
    if isinstance(part, str):
        return Text(part) if part else None
    if not isinstance(part, dict):
        return None
    kind = get_text(part.get("type"))
    if kind in _WORDS:
        words = get_text(part.get(_WORDS[kind]))
        return Text(words) if words else None
    if kind in ("image_url", "input_image"):
        return Image({"type": "url", "url": "image"})
    return parse_block(part)
