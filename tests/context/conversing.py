"""Conversations of callers, in both formats, for the tests of `Context`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from models.asking import remove_cache_marks

from sevenfold.context.context import Context, FormatName
from sevenfold.context.formats import MARK, strip_cache_marks
from sevenfold.core.events import Event
from sevenfold.core.protocols import Capabilities
from sevenfold.simulator.validation import check_pairs
from sevenfold.testing import FakeClock, ScriptedModel

Json = dict[str, Any]
MODEL = "claude-sonnet-5"
LARGE = Capabilities(window=10_000_000)
"""A window that nothing here fills."""
OFF = {"flags": {"micro_api": False}}


class Caller:
    """A `Context` with a clock that is driven, far from the settings of this machine."""

    def __init__(
        self,
        folder: Path,
        format: FormatName = "anthropic",
        *,
        state: Path | None = None,
        id: str | None = None,
        settings: Json | None = None,
        able: Capabilities = LARGE,
        clock: FakeClock | None = None,
    ) -> None:
        self.clock = clock or FakeClock()
        self.events: list[Event] = []
        self.ctx = Context(
            ScriptedModel(capabilities=able, name=MODEL),
            state=state,
            id=id,
            format=format,
            settings=OFF | (settings or {}),
            environ={"HOME": str(folder)},
            clock=self.clock,
        )
        self.ctx.subscribe(self.events.append)

    def send(self, messages: list[Any], **more: Any) -> list[Any]:
        """The messages that go out, without our cache marks."""
        request = self.ctx.prepare(messages, **more)
        out: list[Any] = remove_cache_marks(request.get("messages") or request["input"])
        return out

    def told(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


# --- the Messages format ------------------------------------------------------------------------------


def said(text: str) -> Json:
    return {"role": "user", "content": text}


def answered(text: str) -> Json:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def called(*ids: str, name: str = "Bash", **args: Any) -> Json:
    uses = [{"type": "tool_use", "id": id, "name": name, "input": {"of": id, **args}} for id in ids]
    return {"role": "assistant", "content": uses}


def result(id: str, text: Any = "ok", **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": text, **more}


def results(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def marked(message: Json) -> Json:
    """The same with a cache mark of the caller on its last block."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    last = {**blocks[-1], MARK: {"type": "ephemeral"}}
    return {**message, "content": [*blocks[:-1], last]}


# --- chat completions ---------------------------------------------------------------------------------


def chat_called(*ids: str, name: str = "Bash") -> Json:
    calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": f'{{"of": "{id}"}}'}}
        for id in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def chat_result(id: str, text: Any = "ok") -> Json:
    return {"role": "tool", "tool_call_id": id, "content": text}


# --- what must hold -----------------------------------------------------------------------------------


def assert_paired(messages: list[Json]) -> None:
    """As the providers check it."""
    if any(message["role"] == "tool" or "tool_calls" in message for message in messages):
        messages = [_as_messages(message) for message in messages]
    check_pairs(messages)


def _as_messages(message: Json) -> Json:
    if message["role"] == "tool":
        return results(result(message["tool_call_id"], message["content"]))
    if "tool_calls" in message:
        return called(*(call["id"] for call in message["tool_calls"]))
    return {**message, "content": message["content"] or "-"}


def as_said(messages: list[Json]) -> list[Json]:
    """The caller's messages without marks, to compare with what goes out."""
    return [strip_cache_marks(message) for message in messages]


def extends(earlier: list[Any], later: list[Any]) -> bool:
    return _canonical(later[: len(earlier)]) == _canonical(earlier)


def _canonical(messages: list[Any]) -> str:
    """As law 4 compares: content always as a list."""
    whole = [
        {**m, "content": [{"type": "text", "text": m["content"]}]}
        if isinstance(m.get("content"), str) and m["role"] != "tool"
        else m
        for m in messages
    ]
    return json.dumps(whole)
