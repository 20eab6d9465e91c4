"""Compaction at a threshold, on the provider's side: a summary block comes with the reply.

`compact_20260112` is applied as documented: what stands before the newest block is not part of the prompt,
and a prompt that reaches the trigger is summed up first. The summary itself is a line made by rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from sevenfold.simulator.counting import block_tokens
from sevenfold.simulator.prefix import as_blocks
from sevenfold.simulator.problems import Json, invalid
from sevenfold.simulator.script import last_said
from sevenfold.tokens import Usage

EDIT: Final = "compact_20260112"
BLOCK: Final = "compaction"
DEFAULT_TRIGGER: Final = 150_000
LEAST_TRIGGER: Final = 50_000


class Summary(msgspec.Struct, frozen=True):
    """What was summed up: the block that goes with the reply, and what it took to write it."""

    block: Json
    usage: Usage

    @property
    def iteration(self) -> Json:
        return iteration(BLOCK, self.usage)


def iteration(kind: str, usage: Usage) -> Json:
    """One entry of `usage.iterations`."""
    return {
        "type": kind,
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    }


def asked(body: Json) -> Json | None:
    """The edit that asks for it, if the request has one."""
    edits = (body.get("context_management") or {}).get("edits")
    known = [e for e in edits if isinstance(e, dict)] if isinstance(edits, list) else []
    return next((edit for edit in known if edit.get("type") == EDIT), None)


def from_newest(body: Json) -> Json:
    """The request without what stands before its newest summary."""
    messages = body["messages"] if asked(body) is not None else []
    for i in range(len(messages) - 1, -1, -1):
        blocks = as_blocks(messages[i]["content"])
        for j in range(len(blocks) - 1, -1, -1):
            if blocks[j].get("type") == BLOCK and blocks[j].get("content"):
                first = {**messages[i], "content": blocks[j:]}
                return {**body, "messages": [first, *messages[i + 1 :]]}
    return body


def reached(body: Json, count: Callable[[Json], int]) -> bool:
    """Whether this request is to be summed up before it is answered."""
    edit = asked(body)
    if edit is None:
        return False
    value: Any = (edit.get("trigger") or {}).get("value", DEFAULT_TRIGGER)
    if not isinstance(value, int) or value < LEAST_TRIGGER:
        raise invalid(
            f"context_management.edits.trigger.value: Input should be greater than or equal to "
            f"{LEAST_TRIGGER}"
        )
    return count(body) >= value


def summed_up(body: Json, usage: Usage) -> tuple[Json, Summary]:
    """The request as the model answers it then, and the summary; `usage` is what reading it took."""
    earlier = next(
        (b for b in as_blocks(body["messages"][0]["content"]) if b.get("type") == BLOCK), {}
    )
    said = (
        f"{len(body['messages'])} messages were summed up. The user said: {last_said(body)[:400]}"
    )
    said = f"{said}\n{earlier.get('content') or ''}".strip()
    block: Json = {"type": BLOCK, "content": said}
    wrote = usage + Usage(output=block_tokens(block))
    messages = [{"role": "assistant", "content": [block]}]
    return {**body, "messages": messages}, Summary(block, wrote)
