"""A streamed chat completion, put together: with the habits of vLLM, Ollama, llama.cpp and their like.

In this format blocks are not closed: a block is whole when something else begins, or at the end.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sevenfold.core.messages import Block, Json, Text, Thinking, ToolUse, assistant
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply, View
from sevenfold.models.failures import Mapped, ProviderInfo, make_no_model_error, parse_error_body
from sevenfold.models.http import PLAIN, ReplyAssembly
from sevenfold.models.jsontext import NotJson, decode_json_object
from sevenfold.models.openai_wire import STOPS, find_thought, parse_usage
from sevenfold.models.sse import SseEvent

CUT_SHORT: Final = frozenset({"max_tokens", "refusal"})


class _OpenCall:
    """A tool call that is still coming in."""

    def __init__(self, index: int, id: str) -> None:
        self.index, self.id, self.name = index, id, ""
        self.arguments: list[str] = []

    @property
    def written(self) -> str:
        return "".join(self.arguments).strip()


class OpenAiAssembly(ReplyAssembly):
    """Takes chunks, hands out text and whole blocks, and knows the reply when it is complete."""

    id_header = "x-request-id"

    def __init__(self, provider: ProviderInfo, mapped: Mapped, view: View, model: str = "") -> None:
        super().__init__(provider, mapped, model)
        self._view = view
        self._thought: list[str] = []
        self._said: list[str] = []
        self._call: _OpenCall | None = None
        self._given: set[int] = set()
        self._ids: set[str] = set()
        self._refused = False
        self._usage = Usage()

    def feed(self, event: SseEvent) -> list[str | Block]:
        if event.data.strip() == b"[DONE]":
            self.ended = True
            return []
        fields = self.decode(event)
        if event.name == "error" and "error" not in fields:
            fields = {"error": fields}
        if event.name == PLAIN and not fields.get("error") and not fields.get("choices"):
            raise make_no_model_error(self.provider, "other JSON")
        return self.take(fields)

    def finish(self) -> list[str | Block]:
        out = [*self._close_text(), *self._close_call(at_end=True)]
        self.check_calls(self._stop in CUT_SHORT)
        return out

    def reply(self, request_id: str = "") -> Reply:
        stop = "refusal" if self._refused else self._stop
        if stop == "end_turn" and any(isinstance(block, ToolUse) for block in self._blocks):
            stop = "tool_use"  # some servers say "stop" whatever they stopped for
        notes = {"request_id": request_id, "message_id": self.message_id}
        return Reply(
            assistant(*self._blocks),
            self._usage,
            stop,
            model=self._answered_by,
            diagnostics={name: value for name, value in notes.items() if value},
        )

    def _take(self, chunk: Json, raw: bytes | None) -> list[str | Block]:
        if chunk.get("error"):
            raise self.mapped(parse_error_body(self.provider, chunk, model=self._answered_by))
        self.message_id = str(chunk.get("id") or self.message_id)
        self._answered_by = str(chunk.get("model") or self._answered_by)
        out: list[str | Block] = []
        for choice in (chunk.get("choices") or ())[:1]:
            out += self._delta(choice.get("delta") or choice.get("message") or {})
            if choice.get("finish_reason"):
                self._stop = STOPS.get(str(choice["finish_reason"]), "end_turn")
                self.complete = True
            self._count(choice.get("usage"))
        self._count(chunk.get("usage"))
        return out

    def _delta(self, delta: Json) -> list[str | Block]:
        out: list[str | Block] = []
        for kind, said in _speech(delta):
            if kind == "thought":
                out += [*self._close_call(), *self._close_text(only_said=True)]
                self._thought.append(said)
                continue
            out += [*self._close_call(), *self._close_thought(), said]
            self._said.append(said)
            self._refused = self._refused or kind == "refusal"
        for number, call in enumerate(delta.get("tool_calls") or ()):
            out += self._take_call(call, number)
        return out

    # --- blocks that end -----------------------------------------------------------------------------

    def _close_thought(self) -> list[str | Block]:
        thought, self._thought = "".join(self._thought), []
        return self._add(Thinking(thought)) if thought.strip() else []

    def _close_text(self, only_said: bool = False) -> list[str | Block]:
        before = [] if only_said else self._close_thought()
        said, self._said = "".join(self._said), []
        return [*before, *(self._add(Text(said)) if said.strip() else [])]

    def _close_call(self, at_end: bool = False) -> list[str | Block]:
        call, self._call = self._call, None
        if call is None:
            return []
        self._given.add(call.index)
        if at_end and self._stop in CUT_SHORT and not call.written:
            return []  # cut before its arguments came
        try:
            args = decode_json_object(call.written) if call.written else {}
        except NotJson:
            self._broken = call.name or "a tool"
            return []
        if not call.name:
            self._broken = "a tool without a name"
            return []
        return self._add(ToolUse(self._unique(call), call.name, args))

    def _add(self, block: Block) -> list[str | Block]:
        self._blocks.append(block)
        return [block]

    # --- tool calls ----------------------------------------------------------------------------------

    def _take_call(self, call: Json, number: int) -> list[str | Block]:
        function = call.get("function") or {}
        index, id = call.get("index"), str(call.get("id") or "")
        index = index if isinstance(index, int) else number
        out: list[str | Block] = []
        if self._is_new(index, id, function):
            out = [*self._close_text(), *self._close_call()]
            self._call = _OpenCall(index, id)
        elif self._call is None or self._call.index != index:
            if function.get("arguments"):
                raise ValueError("a piece of a call that was already complete")
            return []
        assert self._call is not None
        self._call.name = self._call.name or str(function.get("name") or "")
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # Ollama's own shape
            arguments = msgspec.json.encode(arguments).decode("utf-8")
        self._call.arguments.append(str(arguments or ""))
        return out

    def _is_new(self, index: int, id: str, function: Json) -> bool:
        """Another index, or another call under the same one: Ollama gives every call the index 0."""
        now, named = self._call, bool(function.get("name"))
        if now is None or now.index != index:
            return named or index not in self._given
        if not named or not (id and now.id):
            return named and _is_object(now.written)
        return id != now.id

    def _unique(self, call: _OpenCall) -> str:
        """Its own id, or one made up the same way each time: ids must differ in a whole conversation."""
        id, turn = call.id, 0
        while not id or id in self._ids or self._view.result_at(id) is not None:
            id = f"call_{len(self._view)}_{len(self._ids)}" + (f"_{turn}" if turn else "")
            turn += 1
        self._ids.add(id)
        return id

    def _count(self, counted: Any) -> None:
        if isinstance(counted, dict):
            self._usage = parse_usage(counted)


def _is_object(text: str) -> bool:
    try:
        decode_json_object(text)
    except NotJson:
        return False
    return True


def _speech(delta: Json) -> list[tuple[str, str]]:
    """The thinking, the text and the refusal in a delta, in this order."""
    out: list[tuple[str, str]] = []
    if thought := find_thought(delta):
        out.append(("thought", thought))
    content = delta.get("content")
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            out.append(("said", part))
        elif isinstance(part, dict) and part.get("type") == "thinking":
            inner = part.get("thinking")
            pieces = inner if isinstance(inner, list) else [{"text": inner}]
            out += [("thought", str(p.get("text") or "")) for p in pieces if isinstance(p, dict)]
        elif isinstance(part, dict):
            out.append(("said", str(part.get("text") or "")))
    if isinstance(delta.get("refusal"), str):
        out.append(("refusal", delta["refusal"]))
    return [(kind, said) for kind, said in out if said]
