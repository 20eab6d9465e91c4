"""The cache of chat completions: automatic, from 1,024 tokens on, in steps of 128.

Nobody marks anything. The longest beginning that an earlier request had is read, rounded down to a step;
beginnings that differ inside a block still share the steps before the difference. An entry dies when it
was not used for ten minutes, or a day where the request asks for that (`prompt_cache_retention: "24h"`).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

from sevenfold.simulator.counting import (
    JSON_BYTES,
    TEXT_BYTES,
    block_tokens,
    encode,
    tool_tokens,
)
from sevenfold.simulator.prefix import as_blocks, essence
from sevenfold.simulator.problems import Json

STEP: Final = 128
LEAST: Final = 1_024
IDLE: Final = 600.0
DAY: Final = 86_400.0
SWEEP_OVER: Final = 200_000
"""Entries; past this, dead ones are thrown out."""


class ImplicitCache:
    """Beginnings of prompts that were seen, with the moment until which each is kept."""

    def __init__(self) -> None:
        self._until: dict[tuple[tuple[str, str], bytes], float] = {}

    def look(self, scope: tuple[str, str], steps: list[bytes], now: float) -> int:
        """How many tokens at the beginning are known."""
        known = 0
        for n, digest in enumerate(steps, 1):
            if self._until.get((scope, digest), -1.0) < now:
                break
            known = n * STEP
        return known if known >= LEAST else 0

    def write(
        self, scope: tuple[str, str], steps: list[bytes], started: float, keep: float = IDLE
    ) -> None:
        if len(steps) * STEP < LEAST:
            return
        for digest in steps:
            key = scope, digest
            self._until[key] = max(self._until.get(key, 0.0), started + keep)
        if len(self._until) > SWEEP_OVER:
            self._until = {k: until for k, until in self._until.items() if until >= started}


def retention(body: Json) -> float:
    return DAY if body.get("prompt_cache_retention") == "24h" else IDLE


def steps_of(body: Json) -> tuple[list[bytes], int]:
    """One hash for each whole step of the prompt, cumulative, and the tokens of all of it."""
    chain = blake2b(digest_size=16)
    steps: list[bytes] = []
    total = 0
    for data, tokens, rate in _pieces(body):
        end = total + tokens
        done = 0
        while (len(steps) + 1) * STEP <= end:
            cut = ((len(steps) + 1) * STEP - total) * rate
            chain.update(data[done:cut])
            done = cut
            steps.append(chain.digest())
        chain.update(data[done:])
        total = end
    return steps, total


def _pieces(body: Json) -> list[tuple[bytes, int, int]]:
    """Bytes, tokens and bytes a token of each block, in the Messages form the request was turned into."""
    tools = body.get("tools") or ()
    out = [(encode(essence(tool)), tool_tokens(tool), JSON_BYTES) for tool in tools]
    out.extend(_piece("system", block) for block in as_blocks(body.get("system")))
    for message in body.get("messages") or ():
        out.extend(_piece(message["role"], block) for block in as_blocks(message["content"]))
    return out


def _piece(role: str, block: dict[str, Any]) -> tuple[bytes, int, int]:
    data = role.encode() + b":" + encode(essence(block))
    rate = TEXT_BYTES if block.get("type") in ("text", "tool_result") else JSON_BYTES
    return data, block_tokens(block), rate
