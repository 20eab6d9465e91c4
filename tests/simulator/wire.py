"""Request bodies for the simulator's tests, as short as they can be said."""

from __future__ import annotations

from typing import Any

from sevenfold.cache.prices import Prices
from sevenfold.simulator import Api, ApiOutcome, ManualClock

Json = dict[str, Any]
PRICES = Prices.load()
MODEL = "claude-opus-4-8"
"""A minimum of 1,024 tokens, a window of a million, thinking kept."""
SMALL = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


def words(tokens: int, seed: str = "a") -> str:
    """Text of exactly this many tokens."""
    return (seed * 4)[:4] * tokens


def text(tokens: int, seed: str = "a", mark: Json | None = None) -> Json:
    block = {"type": "text", "text": words(tokens, seed)}
    return {**block, "cache_control": mark} if mark else block


def user(*blocks: Json | str) -> Json:
    return {"role": "user", "content": [_block(b) for b in blocks]}


def assistant(*blocks: Json | str) -> Json:
    return {"role": "assistant", "content": [_block(b) for b in blocks]}


def _block(block: Json | str) -> Json:
    return {"type": "text", "text": block} if isinstance(block, str) else block


def use(id: str, name: str = "Read", **input: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def result(id: str, content: Any = "done", mark: Json | None = None) -> Json:
    block = {"type": "tool_result", "tool_use_id": id, "content": content}
    return {**block, "cache_control": mark} if mark else block


def body(*messages: Json, **more: Any) -> Json:
    return {"model": MODEL, "max_tokens": 100, "messages": list(messages), **more}


def api(**options: Any) -> tuple[Api, ManualClock]:
    clock = ManualClock()
    return Api(clock, **{"prices": PRICES, **options}), clock


def split(outcome: ApiOutcome) -> tuple[int, int, int]:
    """Plain input, written, read."""
    assert outcome.status == 200, outcome.body
    usage = outcome.body["usage"]
    return (usage["input_tokens"], usage["cache_creation_input_tokens"], usage["cache_read_input_tokens"])


def refusal(outcome: ApiOutcome) -> str:
    assert outcome.status == 400, outcome.body
    assert outcome.body["error"]["type"] == "invalid_request_error"
    return str(outcome.body["error"]["message"])
