"""Reads the rollouts of Codex (`rollout-*.jsonl`): one record a line, with a time, a kind and a payload.

`response_item` is what the model was sent and what it wrote; `event_msg` repeats most of that for the
screen, and only its `token_count` tells something new. Rollouts of the first versions have no envelope.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.core.messages import (
    Block,
    Json,
    Message,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from sevenfold.core.tokens import Usage
from sevenfold.recordings.messages import parse_arguments, parse_content
from sevenfold.recordings.reader import (
    RecordedThread,
    decode_lenient,
    describe_left_out,
    get_text,
    parse_object,
)
from sevenfold.recordings.recorded_session import RecordedCompaction, RecordedSession, SessionReader
from sevenfold.storage.jsonl import iterate_lines

FORMAT: Final = "codex"
ENVELOPES: Final = frozenset({"session_meta", "turn_context", "response_item", "event_msg", "compacted"})
_CALLS: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"})
_OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
_ITEMS: Final = _CALLS | _OUTPUTS | {"message", "reasoning", "web_search_call"}
_LOOKED_AT: Final = 5
_COUNTS: Final = ("input", "cached_input", "output")


class _CodexLine(msgspec.Struct):
    type: str = ""
    timestamp: Any = None
    payload: msgspec.Raw = msgspec.Raw(b"")


class _CodexEvent(msgspec.Struct):
    type: str = ""
    info: Any = None


_decode_line = msgspec.json.Decoder(_CodexLine).decode
_decode_event = msgspec.json.Decoder(_CodexEvent).decode


class CodexReader:
    """The `SessionReader` of this format."""

    format = FORMAT

    def recognises(self, head: bytes) -> bool:
        return any(_is_ours(line) for line in head.split(b"\n")[:_LOOKED_AT])

    def read(self, source: Path | bytes) -> RecordedSession:
        reading = _CodexParse()
        for number, line in iterate_lines(source, reading.thread.problems):
            try:
                reading.take(number, line)
            except (ValueError, msgspec.DecodeError) as error:
                reading.thread.add_problem(number, str(error))
        return reading.make_session()


_fits: type[SessionReader] = CodexReader


def _is_ours(line: bytes) -> bool:
    if b'"session_meta"' in line[:300] and b'"payload"' in line:  # it may be longer than the head
        return True
    try:
        found = parse_object(line)
    except ValueError:
        return False
    if "payload" in found:
        return get_text(found.get("type")) in ENVELOPES
    old_head = "instructions" in found and "id" in found and "timestamp" in found
    return old_head or (get_text(found.get("type")) in _ITEMS and "uuid" not in found)


class _CodexParse:
    def __init__(self) -> None:
        self.thread = RecordedThread(FORMAT)
        self._about: Json = {}
        self._windows: Counter[int] = Counter()  # The windows that the client named, by request
        self._total: object = None  # The usage of all requests so far: repeated, it tells nothing new

    def take(self, line: int, data: bytes) -> None:
        try:
            record = _decode_line(data)
            payload = bytes(record.payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            lost: list[str] = []
            mended = parse_object(data, lost)
            for what in lost[:1]:
                self.thread.add_problem(line, describe_left_out(what))
            record = _CodexLine(get_text(mended.get("type")), mended.get("timestamp"))
            payload = msgspec.json.encode(mended["payload"]) if "payload" in mended else b""
        at = self.thread.read_time(record.timestamp, line)
        if not payload:
            self._bare(line, at, data)
        elif record.type == "event_msg":
            self._event(line, payload)
        elif record.type == "response_item":
            self._item(line, at, parse_object(payload))
        elif record.type == "compacted":
            self._compacted(line, at, parse_object(payload))
        elif record.type == "session_meta":
            self._about = self._about or parse_object(payload)
        elif record.type == "turn_context":
            self.thread.model = get_text(parse_object(payload).get("model")) or self.thread.model
        else:
            self.thread.skipped[record.type or "unknown"] += 1

    def _bare(self, line: int, at: float, data: bytes) -> None:
        """A record of the first versions: the item itself, or the head of the file."""
        found = parse_object(data)
        if get_text(found.get("type")) in _ITEMS:
            self._item(line, at, found)
        elif "uuid" in found and "sessionId" in found:
            self.thread.skipped["claude-code"] += 1
        elif "id" in found and not self._about:
            self._about = found
        else:
            self.thread.skipped[get_text(found.get("record_type")) or "unknown"] += 1

    # --- what the model saw and wrote ---------------------------------------------------------------------

    def _item(self, line: int, at: float, item: Json) -> None:
        kind = get_text(item.get("type"))
        if kind == "message":
            blocks = parse_content(item.get("content"))
            if item.get("role") != "assistant":
                self.thread.add_message(blocks, line, at, meta=item.get("role") != "user")
                return
            for block in blocks:
                self.thread.add_block(block, line, at)
        elif kind in _OUTPUTS:
            self.thread.add_result(_output(item), line, at)
        elif kind in _CALLS:
            self.thread.add_block(_call(item), line, at)
        elif kind == "reasoning":
            if thought := _thought(item):
                self.thread.add_block(thought, line, at)
        elif kind == "web_search_call":
            self.thread.add_block(Opaque(kind, msgspec.json.encode(item).decode("utf-8")), line, at)
        else:
            self.thread.skipped[kind or "unknown"] += 1

    def _compacted(self, line: int, at: float, found: Json) -> None:
        left: list[Block] = []
        instead = found.get("replacement_history")
        for item in instead if isinstance(instead, list) else ():
            if isinstance(item, dict) and item.get("type") == "message":
                left += parse_content(item.get("content"))
        if not left and (said := get_text(found.get("message"))):
            left = [Text(said)]
        summary = Message("user", tuple(left)) if left else None
        self.thread.add_change(RecordedCompaction("auto", 0, summary), line, at)

    def _event(self, line: int, payload: bytes) -> None:
        try:
            event = _decode_event(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = decode_lenient(payload)
            event = _CodexEvent(get_text(found.get("type")), found.get("info"))
        if event.type != "token_count":
            self.thread.skipped[f"event_msg/{event.type}"] += 1
            return
        info = event.info if isinstance(event.info, dict) else {}
        if type(window := info.get("model_context_window")) is int and window > 0:
            self._windows[window] += 1
        last, total = info.get("last_token_usage"), info.get("total_token_usage")
        if not isinstance(last, dict) or (total is not None and total == self._total):
            return
        self._total = total
        sent, cached, wrote = counts = [last.get(f"{name}_tokens", 0) for name in _COUNTS]
        if any(type(number) is not int or number < 0 for number in counts) or cached > sent:
            self.thread.add_problem(line, "its usage cannot be: it is left out")
            self.thread.end_reply()
        elif sent:  # the cached tokens are among them; writing to the cache costs nothing extra
            self.thread.add_usage(Usage(sent - cached, 0, cached, wrote))

    def make_session(self) -> RecordedSession:
        about = self._about
        git = about.get("git")
        return self.thread.make_session(
            session=get_text(about.get("id")) or get_text(about.get("session_id")),
            version=get_text(about.get("cli_version")),
            folder=get_text(about.get("cwd")),
            branch=get_text(git.get("branch")) if isinstance(git, dict) else "",
            windows=tuple(window for window, _ in self._windows.most_common()),
        )


def _call(item: Json) -> ToolUse:
    name = get_text(item.get("name"))
    if item.get("type") == "local_shell_call":
        name, given = "shell", item.get("action")
    else:
        given = item.get("arguments", item.get("input"))
    id = get_text(item.get("call_id")) or get_text(item.get("id"))
    return ToolUse(id, name or "tool", parse_arguments(given))


def _output(item: Json) -> ToolResult:
    given, failed = item.get("output"), False
    if isinstance(given, dict):
        failed, given = given.get("success") is False, given.get("content")
    content = tuple(parse_content(given)) if isinstance(given, list) else get_text(given)
    return ToolResult(get_text(item.get("call_id")), content, failed)


def _thought(item: Json) -> Block | None:
    """The thinking, if it can be read; else the sealed bytes that were sent back."""
    parts = [
        get_text(part.get("text"))
        for key in ("summary", "content")
        for part in (item[key] if isinstance(item.get(key), list) else ())
        if isinstance(part, dict)
    ]
    if words := "\n".join(part for part in parts if part):
        return Thinking(words)
    sealed = get_text(item.get("encrypted_content"))
    return RedactedThinking(sealed) if sealed else None
