"""One accountant for everybody: the simulated provider, its prompt cache, its ledger, and one price table.

A compaction costs the calls made for it and the first request after it. What is in the cache is read at
0.1 of the base price, what a request with marks adds to it is written at 1.25, a request without marks
pays 1.0 for its input; output is five times the base price (all of it from the price table).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prices import Prices
from sevenfold.core.messages import Json
from sevenfold.core.request import Frame
from sevenfold.core.tokens import Usage
from sevenfold.session.frame import read_system_prompt
from sevenfold.simulator import Api, LedgerRow
from sevenfold.simulator.cache import (
    TEXT_BYTES,
    count_text_tokens,
    count_tool_tokens,
    read_prompt,
    to_blocks,
)
from sevenfold.simulator.ledger import TokenCounts
from sevenfold.testing import FakeClock
from sevenfold.tools.toolbox import make_standard_tools
from sevenfold.tools.workspace import Workspace

MODEL: Final = "claude-sonnet-4-5"
MARK: Final[Json] = {"type": "ephemeral"}
KEY: Final = {"x-api-key": "bench"}
MOST: Final = 20_000
"""Tokens that a reply may have."""
SECONDS: Final = 10.0
"""Between two requests: the provider's cache stays warm."""


class NotAnswered(Exception):
    """The provider refused a request; says why."""


class Spent(msgspec.Struct, frozen=True):
    """Some rows of the provider's ledger, added up."""

    requests: int = 0
    tokens: TokenCounts = TokenCounts()
    units: float = 0.0
    """In base-price input tokens."""
    cost: float = 0.0
    """In the currency of the price table."""

    @classmethod
    def on(cls, rows: Iterable[LedgerRow], *, output: bool = True) -> Spent:
        """Without output: what the model says is no part of a compaction where it goes on working."""
        total, price = cls(), Prices.load().of(MODEL)
        for row in rows:
            if row.error or price is None:
                raise NotAnswered(row.error or f"there is no price for {MODEL}")
            tokens = row.tokens if output else replace(row.tokens, output=0)
            usage = usage_of(tokens)
            total = cls(
                total.requests + 1,
                total.tokens + tokens,
                total.units + price.units(usage),
                total.cost + price.cost(usage),
            )
        return total

    @property
    def prompt(self) -> int:
        tokens = self.tokens
        return tokens.input + tokens.cache_write_5m + tokens.cache_write_1h + tokens.cache_read


def usage_of(tokens: TokenCounts) -> Usage:
    short, hour = tokens.cache_write_5m, tokens.cache_write_1h
    return Usage(tokens.input, short + hour, tokens.cache_read, tokens.output, hour)


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction cost, and what it left."""

    before: int
    """Tokens of the last request before it."""
    calls: Spent
    """What was asked of the model for its sake."""
    shared: int
    """Tokens of these calls that are, byte for byte, the beginning of the request before them."""
    after: Spent
    """The first request after it."""
    told: int
    """Messages of the user that are in it word for word ..."""
    said: int
    """... of so many."""

    @property
    def units(self) -> float:
        return self.calls.units + self.after.units

    @property
    def cost(self) -> float:
        return self.calls.cost + self.after.cost


def charged(
    heard: Sequence[Json], calls: Iterable[Sequence[Json]], after: Sequence[Json], summary: int = 0
) -> Compacted:
    """What someone pays who has heard this and sends calls of their own, then this as the next request.

    The request before had all but the newest two messages. Requests of the conversation have the frame,
    and marks at its end and at their own; calls have neither, as the packages send them. Each call is
    answered with a summary of so many tokens.
    """
    clock = FakeClock()
    api = Api(clock, replies=lambda body: "." * TEXT_BYTES * summary)

    def send(body: Json) -> LedgerRow:
        clock.time += SECONDS
        outcome = api.answer(body, KEY)
        if outcome.status != 200:
            raise NotAnswered(str(outcome.row.error))
        return outcome.row

    before = conversing(heard[:-2])
    first = Spent.on([send(before)])
    asked = [calling(messages) for messages in calls]
    spent = Spent.on([send(body) for body in asked])
    shared = sum(shared_tokens(body, before) for body in asked)
    return Compacted(
        before=first.prompt,
        calls=spent,
        shared=shared,
        after=Spent.on([send(conversing(after))], output=False),
        told=told(said(heard), after),
        said=len(said(heard)),
    )


@cache
def frame() -> Frame:
    """What stands before the conversation, for everybody: our own system prompt and tools."""
    place = Path("/work/shop")
    tools = make_standard_tools(Workspace(place, place, {}, place, FakeClock()))
    return Frame(MODEL, (read_system_prompt(),), tuple(tool.schema for tool in tools))


def frame_tokens() -> int:
    return sum(map(count_text_tokens, frame().system)) + sum(map(count_tool_tokens, frame().tools))


def conversing(messages: Sequence[Json]) -> Json:
    """A request of the conversation, with marks where a careful caller puts them."""
    *older, last = messages
    *blocks, end = last["content"]
    marked = {**last, "content": [*blocks, {**end, "cache_control": MARK}]}
    system = [{"type": "text", "text": part, "cache_control": MARK} for part in frame().system]
    head: Json = {"model": MODEL, "max_tokens": MOST, "tools": list(frame().tools)}
    return {**head, "system": system, "messages": [*older, marked]}


def calling(messages: Sequence[Json]) -> Json:
    return {"model": MODEL, "max_tokens": MOST, "messages": list(messages)}


def shared_tokens(body: Json, live: Json) -> int:
    """How much of a request is the very beginning of another one."""
    prompt = read_prompt(body)
    return prompt.before(prompt.shared(read_prompt(live)))


# --- what the user said ---------------------------------------------------------------------------------


def said(messages: Iterable[Json]) -> list[str]:
    """What the user typed: messages of the user that bring no results; spaces around them apart."""
    return [
        "\n".join(texts).strip()
        for message in messages
        if message["role"] == "user" and (texts := _texts(message)) and not _results(message)
    ]


def told(words: Iterable[str], messages: Iterable[Json]) -> int:
    """How many of these can be read, whole, in the words of some message."""
    shown = [text for message in messages for text in _texts(message)]
    return sum(any(one in text for text in shown) for one in words)


def _texts(message: Json) -> list[str]:
    return [b["text"] for b in to_blocks(message["content"]) if b["type"] == "text"]


def _results(message: Json) -> bool:
    return any(block["type"] == "tool_result" for block in to_blocks(message["content"]))
