"""Conversations in the Messages format, as the anthropic SDK takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from sevenfold.context.formats import (
    MARK,
    CallerRequest,
    SpokenMessage,
    WireFormat,
    WrittenMessages,
    copy_value,
    make_frame,
    read_tool,
    strip_cache_marks,
    to_fresh_json,
    to_plain_json,
)
from sevenfold.core.errors import Mistake
from sevenfold.core.messages import (
    Block,
    Json,
    Message,
    Role,
    Text,
    ToolResult,
    encode_block,
    make_wire_message,
    parse_block,
)
from sevenfold.core.request import Frame, Request, Ttl, strip_unsigned_thinking
from sevenfold.core.transcript import Reply
from sevenfold.models.anthropic_wire import (
    MARKS,
    choose_marked_parts,
    choose_max_tokens,
    collect_betas,
    decode_reply,
    is_markable,
    place_marks,
)
from sevenfold.models.capabilities import to_wire_name
from sevenfold.models.jsontext import repair_characters
from sevenfold.models.threads import THREADS_BETA, ThreadStep

ROLES: Final[dict[str, tuple[Role, str]]] = {
    "user": ("user", "user"),
    "assistant": ("assistant", "model"),
    "system": ("user", "system"),
}
CACHED: Final = frozenset({  # Parameters on which the provider's cache depends, in whole or in part
    "betas", "container", "context_management", "mcp_servers", "output_config", "speed", "thinking",
    "tool_choice",
})  # fmt: skip
MANAGEMENT: Final = "context_management"
BETA_HEADER: Final = "anthropic-beta"
_encode = msgspec.json.Encoder(order="sorted").encode


class AnthropicFormat:
    """Implements `formats.WireFormat`."""

    is_messages_api = True
    has_reply_items = False

    def count_leading(self, messages: Sequence[Any]) -> int:
        return 0  # the system prompt is not among the messages

    def decode_message(self, message: Json, where: str) -> SpokenMessage:
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or role not in ROLES:
            raise Mistake(f"{where} has the role {role!r}: it must be 'user' or 'assistant'")
        if isinstance(content, str):
            return SpokenMessage(ROLES[role][0], (Text(content),), ROLES[role][1])
        if not isinstance(content, list) or not all(isinstance(b, dict) for b in content):
            raise Mistake(f"{where} has no content: give a text, or a list of blocks")
        return SpokenMessage(ROLES[role][0], tuple(map(parse_block, content)), ROLES[role][1])

    def rewrite_message(
        self, message: Json, before: Sequence[Block], after: Sequence[Block | None]
    ) -> Json | None:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        kept = [
            wire if new is old else _instead(wire, new)
            for wire, old, new in zip(blocks, before, after, strict=True)
            if new is not None
        ]
        return {**message, "content": kept} if kept else None

    def encode_message(self, message: Message) -> list[Json]:
        said = strip_unsigned_thinking(message)
        return [to_fresh_json(make_wire_message(said))] if said.content else []

    def make_frame(self, asked: CallerRequest, ttl: Ttl) -> Frame:
        system = (_part(repair_characters(block)) for block in _system(asked.system))
        tools = (
            strip_cache_marks(read_tool(tool, f"tools[{n}]")) for n, tool in enumerate(asked.tools or ())
        )
        return make_frame(asked, system, tools, CACHED, ttl)

    def make_request(
        self, asked: CallerRequest, request: Request, written: WrittenMessages, most: int
    ) -> Json:
        frame, mark = request.frame, MARKS[request.frame.ttl]
        before = MARKS[frame.head_ttl]
        places, room = place_marks(request)
        for at in places:
            _mark(written.messages, written.ends[at - 1] if at else 0, written.ends[at], mark)
        out: Json = {"model": to_wire_name(frame.model), "max_tokens": choose_max_tokens(request, most)}
        if system := _system(asked.system):
            for at in choose_marked_parts(len(system), room):
                if is_markable(parse_block(system[at])):
                    system[at] = {**system[at], MARK: dict(before)}
            out["system"] = system
        if asked.tools:
            out["tools"] = [
                t if type(t) is dict and MARK not in t else strip_cache_marks(read_tool(t, "tools"))
                for t in asked.tools
            ]
        out["messages"] = written.messages
        out.update({key: value for key, value in asked.params.items() if key != MARK})
        return _with_betas(out, frame, asked)

    def decode_reply(self, response: Json) -> Reply | None:
        return decode_reply(response)

    def read_reply_messages(self, response: Json) -> list[Json]:
        return [{"role": "assistant", "content": response["content"]}]

    def encode_tool(self, schema: Json) -> Json:
        return copy_value(schema)  # type: ignore[no-any-return]


def _instead(wire: Json, new: Block) -> Json:
    """A block of the caller with what is shown in its place; all its other fields stay."""
    if not isinstance(new, ToolResult):
        return to_fresh_json(encode_block(new))  # type: ignore[no-any-return]
    if isinstance(new.content, str):
        return {**wire, "content": new.content}
    return {**wire, "content": to_fresh_json([encode_block(block) for block in new.content])}


def _mark(messages: list[Any], first: int, last: int, mark: Json) -> None:
    """Put a mark on the last block that can carry one, in a copy of its message."""
    for at in range(last - 1, first - 1, -1):
        content = messages[at]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [*content]
        for i in range(len(blocks) - 1, -1, -1):
            if is_markable(parse_block(blocks[i])):
                blocks[i] = {**blocks[i], MARK: dict(mark)}
                messages[at] = {**messages[at], "content": blocks}
                return


def _system(system: Any) -> list[Json]:
    """The blocks of a system prompt, given as text or blocks, without marks."""
    if not system:
        return []
    if isinstance(system, str):
        return [{"type": "text", "text": system}]
    blocks = to_plain_json(system, "system")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise Mistake("system must be a text or a list of text blocks")
    return [strip_cache_marks(block) for block in blocks]


def _part(block: Json) -> str:
    """The text of a block for the frame; all of it as JSON if there is more than text."""
    if block.keys() == {"type", "text"} and isinstance(block["text"], str):
        return block["text"]
    return str(_encode(block), "utf-8")


def _with_betas(out: Json, frame: Frame, asked: CallerRequest) -> Json:
    """With what we add to the request beyond the SDK's own parameters, and the header it needs."""
    ours: Json = {}
    if MANAGEMENT in frame.params and MANAGEMENT not in asked.params:
        ours[MANAGEMENT] = copy_value(frame.params[MANAGEMENT])
    return _add_fields(out, ours, collect_betas(Frame(frame.model, params=ours)))


def _add_fields(out: Json, ours: Json, needed: Sequence[str]) -> Json:
    if "betas" in out:  # for `client.beta.messages`, which takes them as parameters
        given = list(out["betas"] or ())
        return {**out, **ours, "betas": [*given, *(b for b in needed if b not in given)]}
    if ours:
        out["extra_body"] = {**ours, **(out.get("extra_body") or {})}
    if needed:
        headers = dict(out.get("extra_headers") or {})
        name = next((key for key in headers if key.lower() == BETA_HEADER), BETA_HEADER)
        given = [part.strip() for part in str(headers.get(name, "")).split(",") if part.strip()]
        headers[name] = ",".join([*given, *(beta for beta in needed if beta not in given)])
        out["extra_headers"] = headers
    return out


def check_thread_params(params: Json) -> None:
    """Raise for a caller's own `thread` that continues: its messages are not the whole conversation."""
    thread = params.get("thread") or (params.get("extra_body") or {}).get("thread")
    if isinstance(thread, dict) and thread.get("type") == "continue":
        raise Mistake(
            "thread continues what the provider holds, and prepare() needs the whole conversation: leave "
            "it out and give Context threads=True, or give prepare() after= for what came since a response"
        )


def add_thread(out: Json, step: ThreadStep, ends: Sequence[int]) -> Json:
    """The request in its thread: without what the provider holds, of which `ends` says where it ends."""
    sent = dict(out)
    if step.held:
        for name in ("system", "tools"):
            sent.pop(name, None)
        sent["messages"] = out["messages"][ends[step.held - 1] :]
    # Older SDKs have no such parameter.
    sent["extra_body"] = {"thread": step.field, **(sent.get("extra_body") or {})}
    return _add_fields(sent, {}, [THREADS_BETA])


_check: type[WireFormat] = AnthropicFormat
