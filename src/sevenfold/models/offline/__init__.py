"""The offline engine: the model that is there without a key, a network or a download.

It is a set of rules behind the same protocol as every other model. It calls tools when asked plainly,
answers by quoting what is in view, and says honestly what it is.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from typing import Final

from anyio.lowlevel import checkpoint

from sevenfold.errors import PromptTooLong
from sevenfold.messages import Block, Message, Text, ToolUse
from sevenfold.models.offline.reply import RULES, Blocks, Rules, answer
from sevenfold.models.offline.view import Conversation
from sevenfold.models.offline.wire import reply_to_wire
from sevenfold.protocols import Capabilities, Model
from sevenfold.request import Request
from sevenfold.tokens import REFERENCE_WINDOW, Usage, estimate, measure
from sevenfold.transcript import Reply

__all__ = ["NAME", "Conversation", "OfflineEngine", "Rules", "answer", "reply_to_wire"]

NAME: Final = "offline"
MAX_OUTPUT: Final = 8_000
WORDS_AT_ONCE: Final = 3

_WORD = re.compile(r"\S{1,16}\s*|\s+")


class OfflineEngine:
    """Answers by rule. The same request always gets the same reply."""

    def __init__(self, window: int = REFERENCE_WINDOW, *, rules: Rules = RULES) -> None:
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
        self._check_window(tokens)
        blocks = answer(Conversation.of(request), self._rules)
        stop = "tool_use" if any(isinstance(b, ToolUse) for b in blocks) else "end_turn"
        kept = _within(blocks, request.max_tokens) if request.max_tokens else blocks
        for block in kept:
            if isinstance(block, Text):
                for delta in deltas(block.text):
                    await checkpoint()  # a long reply can be stopped like anyone's
                    yield delta
            yield block
        message = Message("assistant", kept)
        usage = Usage(input=tokens, output=measure(message).tokens())
        yield Reply(message, usage, stop if kept == blocks else "max_tokens", model=NAME)

    def _check_window(self, tokens: int) -> None:
        window = self._capabilities.window
        if tokens > window:
            raise PromptTooLong(
                f"the request has about {tokens} tokens and the window of the offline engine holds "
                f"{window}: clear the conversation with /clear, or use a model with a larger window",
                tokens=tokens,
                limit=window,
            )


def deltas(text: str) -> Iterator[str]:
    """The text a few words at a time."""
    words = _WORD.findall(text)
    for i in range(0, len(words), WORDS_AT_ONCE):
        yield "".join(words[i : i + WORDS_AT_ONCE])


def _within(blocks: Blocks, most: int) -> Blocks:
    """What of a reply fits into this many tokens: text is cut, half a tool call is none."""
    kept: list[Block] = []
    for block in blocks:
        size = measure(Message("assistant", (block,))).tokens()
        if size <= most:
            kept.append(block)
            most -= size
            continue
        if isinstance(block, Text):
            share = block.text[: len(block.text) * most // estimate(block.text)]
            kept += [Text(share)] if share.strip() else []
        break
    return tuple(kept)


_model: type[Model] = OfflineEngine
