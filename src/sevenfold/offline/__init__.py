"""The offline engine: the model that is there without a key, a network or a download.

It is a set of rules behind the same protocol as every other model. It calls tools when asked plainly,
answers by quoting what is in view, and says honestly what it is. `encode_reply` answers the body of a
Messages API request.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from hashlib import blake2b
from typing import Any, Final

from anyio.lowlevel import checkpoint

from sevenfold.core.errors import PromptTooLong, UnknownModel
from sevenfold.core.messages import (
    Block,
    Image,
    Json,
    Message,
    Opaque,
    Text,
    ToolResult,
    ToolUse,
    make_wire_message,
    strip_half_characters,
)
from sevenfold.core.protocols import Capabilities, Clock, Model
from sevenfold.core.request import Request
from sevenfold.core.tokens import REFERENCE_WINDOW, Usage, estimate_tokens, measure_message
from sevenfold.core.transcript import Reply
from sevenfold.models.capabilities import ModelAccess, find_user_capabilities
from sevenfold.models.registry import PROVIDERS
from sevenfold.offline.conversation import OfflineConversation
from sevenfold.offline.forced_output import apply_output_format, find_forced_tools, make_smallest_call
from sevenfold.offline.reply import RULES, Blocks, EngineRules, make_reply


def encode_reply(body: Json, rules: EngineRules = RULES) -> list[Json]:
    """The content blocks of the reply to a Messages API request."""
    blocks = make_reply(parse_body(body), rules)
    content: list[Json] = make_wire_message(Message("assistant", blocks))["content"]
    wanted = find_forced_tools(body)
    names = [tool["name"] for tool in wanted]
    if not names or any(block.get("name") in names for block in content):
        kept = [b for b in content if not names or b.get("name", names[0]) in names]
        return apply_output_format(body, kept)
    place = blake2b(repr(body.get("messages")).encode("utf-8", "backslashreplace"), digest_size=6)
    return [{**make_smallest_call(wanted[0]), "id": f"toolu_off_{place.hexdigest()}_0"}]


def parse_body(body: Json) -> OfflineConversation:
    """The conversation in a request body, as far as it can be understood."""
    messages: list[Message] = []
    added: set[int] = set()
    for item in _list(body.get("messages")):
        if not isinstance(item, dict):
            continue
        role = item.get("role")
        if role not in ("user", "assistant"):
            added.add(len(messages))  # a system or developer message: not a person's words
        blocks = tuple(_blocks(item.get("content")))
        messages.append(Message("assistant" if role == "assistant" else "user", blocks))
    system = "\n\n".join(b.text for b in _blocks(body.get("system")) if isinstance(b, Text))
    room = most if isinstance(most := body.get("max_tokens"), int) else 0
    offered = _offered(body)
    tools = {
        name: schema if isinstance(schema := tool.get("input_schema"), dict) else {}
        for name, tool in offered.items()
    }
    told = {name: str(tool.get("description", "")) for name, tool in offered.items()}
    return OfflineConversation(tuple(messages), tools, system, frozenset(added), room, told)


def _offered(body: Json) -> dict[str, Json]:
    """The tools that may be called: not those a client defers, and none where it forbids them."""
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "none":
        return {}
    return {
        tool["name"]: tool
        for tool in _list(body.get("tools"))
        if isinstance(tool, dict) and isinstance(tool.get("name"), str) and not tool.get("defer_loading")
    }


def _blocks(content: Any) -> list[Block]:
    if isinstance(content, str):
        return [Text(strip_half_characters(content))]
    return [_block(item) for item in _list(content) if isinstance(item, dict)]


def _block(item: Json) -> Block:
    match item:
        case {"type": "text", "text": str(text)}:
            return Text(strip_half_characters(text))
        case {"type": "tool_use", "id": str(id), "name": str(name), "input": dict(args)}:
            return ToolUse(id, name, args)
        case {"type": "tool_result", "tool_use_id": str(id)}:
            return ToolResult(id, tuple(_blocks(item.get("content"))), bool(item.get("is_error")))
        case {"type": "image" | "document"}:
            return Image({})
    return Opaque(str(item.get("type", "")), "{}")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


NAME: Final = "offline"
MAX_OUTPUT: Final = 8_000
WORDS_AT_ONCE: Final = 3

_WORD = re.compile(r"\S{1,16}\s*|\s+")


def connect_offline(name: str, access: ModelAccess, clock: Clock | None) -> OfflineEngine:
    if name != NAME:
        raise UnknownModel(f"no model is called {name!r}: use {PROVIDERS.describe_names()}")
    return OfflineEngine(find_user_capabilities(NAME, access).window)


class OfflineEngine:
    """Answers by rule. The same request always gets the same reply."""

    def __init__(self, window: int = REFERENCE_WINDOW, *, rules: EngineRules = RULES) -> None:
        self._rules = rules
        self._capabilities = Capabilities(
            window=window, max_output=MAX_OUTPUT, caches_prompts=False, images=False
        )

    @property
    def name(self) -> str:
        return NAME

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        tokens = request.frame.tokens + request.view.size.tokens()
        if tokens > (window := self._capabilities.window):
            raise PromptTooLong(
                f"the request has about {tokens} tokens and the window of the offline engine holds "
                f"{window}: clear the conversation with /clear, or use a model with a larger window",
                tokens=tokens,
                limit=window,
            )
        blocks = make_reply(OfflineConversation.of(request), self._rules)
        stop = "tool_use" if any(isinstance(b, ToolUse) for b in blocks) else "end_turn"
        kept = _within(blocks, request.max_tokens) if request.max_tokens else blocks
        for block in kept:
            if isinstance(block, Text):
                words = _WORD.findall(block.text)
                for i in range(0, len(words), WORDS_AT_ONCE):
                    await checkpoint()  # a long reply can be cancelled
                    yield "".join(words[i : i + WORDS_AT_ONCE])
            yield block
        message = Message("assistant", kept)
        usage = Usage(input=tokens, output=measure_message(message).tokens())
        yield Reply(message, usage, stop if kept == blocks else "max_tokens", model=NAME)


def _within(blocks: Blocks, most: int) -> Blocks:
    """The part of a reply that fits into this many tokens: text is cut, a tool call is left out."""
    kept: list[Block] = []
    for block in blocks:
        size = measure_message(Message("assistant", (block,))).tokens()
        if size <= most:
            kept.append(block)
            most -= size
            continue
        if isinstance(block, Text):
            share = block.text[: len(block.text) * most // estimate_tokens(block.text)]
            kept += [Text(share)] if share.strip() else []
        break
    return tuple(kept)


_model: type[Model] = OfflineEngine
