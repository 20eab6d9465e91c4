"""A streamed chat completion, put together: with the habits of vLLM, Ollama, llama.cpp and their like.

In this format blocks are not closed: a block is whole when something else begins, or at the end.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sevenfold.core.errors import BadReply
from sevenfold.core.messages import Block, Json, Text, Thinking, ToolUse, assistant
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply, View
from sevenfold.models.anthropic_stream import to_whole_number
from sevenfold.models.failures import (
    Mapped,
    ProviderInfo,
    make_no_model_error,
    make_protocol_error,
    parse_error_body,
)
from sevenfold.models.http import PLAIN, SseEvent
from sevenfold.models.jsontext import NotJson, decode_json_object

STOPS: Final = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "max_tokens",
    "content_filter": "refusal",
}
CUT_SHORT: Final = frozenset({"max_tokens", "refusal"})


class _OpenCall:
    """A tool call that is still coming in."""

    def __init__(self, index: int, id: str) -> None:
        self.index, self.id, self.name = index, id, ""
        self.arguments: list[str] = []

    @property
    def written(self) -> str:
        return "".join(self.arguments).strip()


class OpenAiAssembly:
    """Takes chunks, hands out text and whole blocks, and knows the reply when it is complete."""

    def __init__(self, provider: ProviderInfo, mapped: Mapped, view: View, model: str = "") -> None:
        self._provider, self._mapped, self._view, self._model = provider, mapped, view, model
        self._blocks: list[Block] = []
        self._thought: list[str] = []
        self._said: list[str] = []
        self._call: _OpenCall | None = None
        self._given: set[int] = set()
        self._ids: set[str] = set()
        self._broken = ""
        self._stop = ""
        self._refused = False
        self._usage = Usage()
        self.message_id = ""
        self.ended = False
        """The server said that this was all."""

    @property
    def complete(self) -> bool:
        return bool(self._stop)

    def feed(self, event: SseEvent) -> list[str | Block]:
        """What an event from the wire adds."""
        if event.data.strip() == b"[DONE]":
            self.ended = True
            return []
        try:
            fields = decode_json_object(event.data)
        except NotJson as error:
            raise make_protocol_error(self._provider, f"an event that cannot be read ({error})") from None
        if event.name == "error" and "error" not in fields:
            fields = {"error": fields}
        if event.name == PLAIN and not fields.get("error") and not fields.get("choices"):
            raise make_no_model_error(self._provider, "other JSON")
        return self.take(fields)

    def take(self, chunk: Json) -> list[str | Block]:
        """What a chunk adds, given as an object."""
        if chunk.get("error"):
            raise self._mapped(parse_error_body(self._provider, chunk, model=self._model))
        try:
            return self._take(chunk)
        except (TypeError, AttributeError, ValueError, msgspec.MsgspecError) as error:
            what = f"an event of the wrong shape ({type(error).__name__})"
            raise make_protocol_error(self._provider, what) from error

    def finish(self) -> list[str | Block]:
        """The blocks that only the end completes. Call it once, when `complete`."""
        short = self._stop in CUT_SHORT
        out = [*self._close_text(), *self._close_call(at_end=True)]
        if self._broken and not short:
            raise BadReply(
                f"{self._provider.name} sent a call of {self._broken} whose input is not a JSON object; "
                "try again"
            )
        return out

    def reply(self, request_id: str = "") -> Reply:
        uses = any(isinstance(block, ToolUse) for block in self._blocks)
        stop = "refusal" if self._refused else self._stop
        if uses and stop == "end_turn":
            stop = "tool_use"  # some servers say "stop" whatever they stopped for
        notes = {"request_id": request_id, "message_id": self.message_id}
        return Reply(
            assistant(*self._blocks),
            self._usage,
            stop,
            model=self._model,
            diagnostics={name: value for name, value in notes.items() if value},
        )

    def _take(self, chunk: Json) -> list[str | Block]:
        self.message_id = str(chunk.get("id") or self.message_id)
        self._model = str(chunk.get("model") or self._model)
        choices = chunk.get("choices") or ()
        out: list[str | Block] = []
        for choice in choices[:1]:
            delta = choice.get("delta") or choice.get("message") or {}
            out += self._delta(delta)
            if choice.get("finish_reason"):
                self._stop = STOPS.get(str(choice["finish_reason"]), "end_turn")
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
    """What of a delta is thought, said, or said in refusal, in this order."""
    out: list[tuple[str, str]] = []
    thought = delta.get("reasoning_content") or delta.get("reasoning")
    if isinstance(thought, str):
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


def parse_usage(counted: Json) -> Usage:
    """Here the prompt includes what came from the cache; with us it does not."""
    details = counted.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    prompt = to_whole_number(counted.get("prompt_tokens"))
    cached = details.get("cached_tokens") or counted.get("cached_tokens")
    read = min(prompt, to_whole_number(cached or counted.get("prompt_cache_hit_tokens")))
    written = min(prompt - read, to_whole_number(details.get("cache_write_tokens")))
    return Usage(
        input=prompt - read - written,
        cache_write=written,
        cache_read=read,
        output=to_whole_number(counted.get("completion_tokens")),
    )
