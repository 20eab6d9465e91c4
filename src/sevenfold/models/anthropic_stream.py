"""A streamed reply in the Messages format, put together block by block."""

from __future__ import annotations

from typing import Final

import msgspec

from sevenfold.core.messages import Block, Json, Opaque, Text, ToolUse, assistant, parse_block
from sevenfold.core.messages import strip_half_characters as whole
from sevenfold.core.transcript import Reply
from sevenfold.models.anthropic_wire import parse_usage
from sevenfold.models.failures import Mapped, ProviderInfo, make_no_model_error, parse_error_body
from sevenfold.models.http import PLAIN, ReplyAssembly
from sevenfold.models.jsontext import NotJson, decode_json_object
from sevenfold.models.sse import SseEvent

CUT_SHORT: Final = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})
"""Stops after which the last block may be half a block."""
_APPENDED: Final = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class _BlockStart(msgspec.Struct):
    content_block: msgspec.Raw = msgspec.Raw(b"{}")


_decode_start = msgspec.json.Decoder(_BlockStart).decode


class _OpenBlock:
    """A block that is still coming in."""

    def __init__(self, fields: Json, raw: bytes | None) -> None:
        self.fields, self._raw = fields, raw
        self._parts: dict[str, list[str]] = {}
        self._input: list[str] | None = None

    def take(self, delta: Json) -> str:
        """Merge what came; returns what of it is text for the reader."""
        self._raw = None
        kind = delta.get("type")
        if kind in _APPENDED:
            said = str(delta.get(_APPENDED[kind]) or "")
            self._parts.setdefault(_APPENDED[kind], []).append(said)
            return said if kind == "text_delta" else ""
        if kind == "input_json_delta":
            self._input = [*(self._input or ()), str(delta.get("partial_json") or "")]
        elif kind == "citations_delta":
            self.fields["citations"] = [*(self.fields.get("citations") or ()), delta.get("citation")]
        else:
            self._merge({k: v for k, v in delta.items() if k != "type"})
        return ""

    def _merge(self, fields: Json) -> None:
        """A delta we do not know: text is appended to text, a list to a list, the rest replaces."""
        for name, value in fields.items():
            old = self.fields.get(name)
            if isinstance(value, str) and isinstance(old, str | None):
                self._parts.setdefault(name, []).append(value)
            elif isinstance(value, list) and isinstance(old, list):
                self.fields[name] = [*old, *value]
            elif value is not None:
                self.fields[name] = value

    @property
    def untouched(self) -> bool:
        """A tool use of which nothing but the name has come: it may be about to be cut."""
        return not "".join(self._input or ()).strip() and not self.fields.get("input")

    def close(self) -> Block:
        """The whole block; `NotJson` if its input is not an object."""
        for name, parts in self._parts.items():
            self.fields[name] = str(self.fields.get(name) or "") + "".join(parts)
        if written := "".join(self._input or ()).strip():
            self.fields["input"] = decode_json_object(written)
        block = parse_block(self.fields)
        if isinstance(block, Opaque) and self._raw is not None:
            return Opaque(block.kind, self._raw.decode("utf-8"))
        if block.__class__ is Opaque and self.fields.get("type") == "tool_use":
            raise NotJson("a tool use without its fields")
        return block


class AnthropicAssembly(ReplyAssembly):
    """Takes events, hands out text and whole blocks, and knows the reply when it is complete."""

    id_header = "request-id"

    def __init__(self, provider: ProviderInfo, mapped: Mapped, model: str = "") -> None:
        super().__init__(provider, mapped, model)
        self._open: dict[int, _OpenBlock] = {}
        self._held: ToolUse | None = None
        self._usage: Json = {}
        self._applied: tuple[Json, ...] = ()
        self._notes: Json = {}

    def feed(self, event: SseEvent) -> list[str | Block]:
        fields = self.decode(event)
        if event.name == PLAIN:
            return self._whole(fields)
        if event.name == "error" and fields.get("type") != "error":
            fields = {"type": "error", "error": fields.get("error", fields)}
        return self.take(fields, event.data)

    def finish(self) -> list[str | Block]:
        return []  # in this format blocks are closed

    def reply(self, request_id: str = "") -> Reply:
        notes = {"request_id": request_id, "message_id": self.message_id, **self._notes}
        uses = any(isinstance(block, ToolUse) for block in self._blocks)
        return Reply(
            assistant(*self._blocks),
            parse_usage(self._usage),
            self._stop or ("tool_use" if uses else "end_turn"),
            self._applied,
            self._answered_by,
            {name: value for name, value in notes.items() if value},
        )

    def _take(self, event: Json, raw: bytes | None) -> list[str | Block]:
        match event.get("type"):
            case "message_start":
                message = event.get("message") or {}
                self.message_id = str(message.get("id") or "")
                self._answered_by = str(message.get("model") or self._answered_by)
                self._usage.update(message.get("usage") or {})
                self._note(message)
            case "content_block_start":
                return self._begin(event, raw)
            case "content_block_delta":
                return self._delta(event)
            case "content_block_stop":
                return self._end(event.get("index", 0))
            case "message_delta":
                return self._tail(event)
            case "message_stop":
                return self._close_reply()
            case "error":
                raise self.mapped(parse_error_body(self.provider, event, model=self._answered_by))
        return []  # pings, and whatever is invented later

    def _note(self, fields: Json) -> None:
        found = {**fields, **(fields.get("diagnostics") or {})}
        for name in ("cache_miss_reason", "input_transformations", "stop_details", "container"):
            if found.get(name):
                self._notes[name] = found[name]
        applied = (fields.get("context_management") or {}).get("applied_edits")
        if applied:
            self._applied = tuple(applied)

    def _begin(self, event: Json, raw: bytes | None) -> list[str | Block]:
        fields = dict(event.get("content_block") or {})
        exact = bytes(_decode_start(raw).content_block) if raw is not None else None
        self._open[event.get("index", 0)] = _OpenBlock(fields, exact)
        said = fields.get("text") if fields.get("type") == "text" else ""
        return [*self._let_go(), *([whole(said)] if isinstance(said, str) and said else [])]

    def _delta(self, event: Json) -> list[str | Block]:
        block = self._open.get(event.get("index", 0))
        if block is None:
            raise ValueError("a delta for a block that was never begun")
        said = block.take(event.get("delta") or {})
        return [said] if said and block.fields.get("type") == "text" else []

    def _end(self, index: int) -> list[str | Block]:
        opened = self._open.pop(index, None)
        if opened is None:
            return []
        before = self._let_go()
        try:
            block = opened.close()
        except NotJson:
            self._broken = str(opened.fields.get("name") or "a tool")
            return before
        if isinstance(block, ToolUse) and opened.untouched and not self._stop:
            self._held = block  # a reply that is cut here must not run it with nothing
            return before
        return [*before, *self._add(block)]

    def _add(self, block: Block) -> list[str | Block]:
        if isinstance(block, Text) and not block.text.strip():
            return []  # the provider refuses a blank text when it comes back
        self._blocks.append(block)
        return [block]

    def _let_go(self) -> list[str | Block]:
        held, self._held = self._held, None
        return self._add(held) if held is not None else []

    def _tail(self, event: Json) -> list[str | Block]:
        delta = event.get("delta") or {}
        self._stop = str(delta.get("stop_reason") or self._stop)
        counted = event.get("usage") or {}
        self._usage.update({name: value for name, value in counted.items() if value is not None})
        self._note(event)
        self._note(delta)
        return []

    def _close_reply(self) -> list[str | Block]:
        out: list[str | Block] = []
        for index in sorted(self._open):  # some servers forget to close their blocks
            out += self._end(index)
        short = self._stop in CUT_SHORT
        self.check_calls(short)
        if short:
            self._held = None
        out += self._let_go()
        if iterations := self._usage.get("iterations"):
            self._notes["iterations"] = iterations
        self.complete = self.ended = True
        return out

    def _whole(self, message: Json) -> list[str | Block]:
        """A reply that came in one piece, as if it had been streamed."""
        if message.get("type") == "error" or (message.get("error") and "content" not in message):
            raise self.mapped(parse_error_body(self.provider, message, status=200, model=self._answered_by))
        content = message.get("content")
        if not isinstance(content, list) or not all(isinstance(b, dict) for b in content):
            raise make_no_model_error(self.provider, "other JSON")
        stop = {"stop_reason": message.get("stop_reason")}
        events: list[Json] = [{"type": "message_start", "message": message}]
        for i, block in enumerate(content):
            events.append({"type": "content_block_start", "index": i, "content_block": block})
            events.append({"type": "content_block_stop", "index": i})
        events += [{"type": "message_delta", "delta": stop}, {"type": "message_stop"}]
        return [item for event in events for item in self.take(event)]
