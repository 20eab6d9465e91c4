"""The ruler: how big a message is, and how full the window. Knows messages only."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final

import msgspec

from sevenfold.core.messages import Message, Opaque, RedactedThinking, Text, Thinking, ToolResult, ToolUse

TEXT_RATE: Final = 1 / 4
JSON_RATE: Final = 1 / 2
FLAT: Final = 2_000  # Tokens of an image or a document, whatever its bytes
TAIL_PADDING: Final = 4 / 3
"""A decision that keeps a tail measures it this much larger, so that an estimate never keeps too much."""
SLOWEST, FASTEST = 0.5, 3.0  # Limits for calibration, as multiples of the raw rule

REFERENCE_WINDOW: Final = 200_000
OUTPUT_RESERVE: Final = 20_000
AUTO_COMPACT_MARGIN: Final = 13_000
WARNING_MARGIN: Final = 20_000
BLOCK_MARGIN: Final = 3_000

_encode = msgspec.json.Encoder().encode


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens that the provider counted for one request."""

    input: int = 0
    cache_write: int = 0  # All tokens written to the cache
    cache_read: int = 0
    output: int = 0
    cache_write_1h: int = 0  # The part of `cache_write` that was written for an hour

    @property
    def total(self) -> int:
        return self.input + self.cache_write + self.cache_read + self.output

    @property
    def prompt(self) -> int:
        return self.input + self.cache_write + self.cache_read

    @property
    def hit_rate(self) -> float:
        return self.cache_read / self.prompt if self.prompt else 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.cache_write + other.cache_write,
            self.cache_read + other.cache_read,
            self.output + other.output,
            self.cache_write_1h + other.cache_write_1h,
        )


class MessageSize(msgspec.Struct, frozen=True):
    """Bytes of text, bytes of JSON, and flat items. Additive: a view is as big as its messages."""

    text: int = 0
    json: int = 0
    flat: int = 0
    frames: int = 0  # Ids and tags around tool calls: 3 for a use, 1 for a result. Not in the raw rule.

    def __add__(self, other: MessageSize) -> MessageSize:
        return MessageSize(
            self.text + other.text,
            self.json + other.json,
            self.flat + other.flat,
            self.frames + other.frames,
        )

    def __sub__(self, other: MessageSize) -> MessageSize:
        return MessageSize(
            self.text - other.text,
            self.json - other.json,
            self.flat - other.flat,
            self.frames - other.frames,
        )

    def tokens(self, text_rate: float = TEXT_RATE, json_rate: float = JSON_RATE) -> int:
        return int(self.text * text_rate + self.json * json_rate) + self.flat * FLAT


def add_sizes(sizes: Iterable[MessageSize]) -> MessageSize:
    """The sum. Adding two at a time makes an object for each."""
    text = json = flat = frames = 0
    for size in sizes:
        text += size.text
        json += size.json
        flat += size.flat
        frames += size.frames
    return MessageSize(text, json, flat, frames)


class Calibration(msgspec.Struct, frozen=True, dict=True):
    """The tokens that this model really charges for bytes, learned from (estimate, reported) pairs.

    A ridge regression of reported tokens on bytes of text and bytes of JSON, each pair weighed by the
    inverse of its size; the prior is the raw rule, worth `PRIOR` tokens of evidence.
    """

    tt: float = 0.0
    tj: float = 0.0
    jj: float = 0.0
    ty: float = 0.0
    jy: float = 0.0

    def learn(self, size: MessageSize, reported: int) -> Calibration:
        """Take in one pair: this much was added, and the provider counted that much more."""
        t, j = size.text * TEXT_RATE, size.json * JSON_RATE
        y = float(reported - size.flat * FLAT - size.frames * FRAME)
        if t + j < LEAST_EVIDENCE or not SLOWEST / 2 <= y / (t + j) <= FASTEST * 2:
            return self  # too small to tell, or something else was counted too
        w = 1 / (t + j)
        return Calibration(
            self.tt + w * t * t,
            self.tj + w * t * j,
            self.jj + w * j * j,
            self.ty + w * t * y,
            self.jy + w * j * y,
        )

    @cached_property
    def factors(self) -> tuple[float, float]:
        """Multiples of the raw rule, for text and for JSON."""
        tt, jj = self.tt + PRIOR, self.jj + PRIOR
        ty, jy = self.ty + PRIOR, self.jy + PRIOR
        det = tt * jj - self.tj * self.tj
        return _bounded((ty * jj - jy * self.tj) / det), _bounded((jy * tt - ty * self.tj) / det)

    def tokens(self, size: MessageSize) -> int:
        text, json = self.factors
        return size.tokens(TEXT_RATE * text, JSON_RATE * json) + size.frames * FRAME


LEAST_EVIDENCE: Final = 20  # A pair that estimates less than this many tokens teaches nothing
FRAME: Final = 20
"""Tokens of one frame; `docs/decisions/0002-calibration.md` says where the number comes from."""
PRIOR: Final = 2_000  # Tokens of evidence that the raw rule is worth


def _bounded(factor: float) -> float:
    return min(FASTEST, max(SLOWEST, factor))


class Thresholds(msgspec.Struct, frozen=True):
    """The limits within a window. Below 200,000 tokens every constant shrinks with the window."""

    window: int
    effective: int
    auto_compact: int
    warning: int
    block: int

    @classmethod
    def of(
        cls,
        window: int,
        max_output: int,
        *,
        compact_percent: float | None = None,
        block_limit: int | None = None,
    ) -> Thresholds:
        scale = scale_constant(1.0, window)
        effective = window - int(min(max_output, OUTPUT_RESERVE * scale))
        auto = effective - int(AUTO_COMPACT_MARGIN * scale)
        if compact_percent is not None:  # may only lower it
            auto = min(auto, int(effective * compact_percent / 100))
        block = effective - int(BLOCK_MARGIN * scale)
        if block_limit is not None:
            block = block_limit
        return cls(window, effective, auto, auto - int(WARNING_MARGIN * scale), block)


def scale_constant(constant: float, window: int) -> float:
    """A token constant of the 200,000-token world, in this window."""
    return constant * min(1.0, window / REFERENCE_WINDOW)


class Pressure(msgspec.Struct, frozen=True):
    """The state of the window: its fill, the silence so far, and a refusal by the provider."""

    tokens: int
    thresholds: Thresholds
    idle: float = 0.0
    refused: bool = False
    """The provider said no: `tokens` is then at least the window, whatever we had counted."""
    warm: bool = True  # True if the provider should still have the last request in its cache
    over: int = 0  # By how many tokens the refused request was too long, where the provider said so

    @property
    def window(self) -> int:
        return self.thresholds.window

    @property
    def share(self) -> float:
        return self.tokens / self.window


def measure_message(message: Message) -> MessageSize:
    text = json = flat = frames = 0  # plain numbers: a sum of sizes would make an object for each block
    for block in message.content:
        if type(block) is Text:
            text += count_bytes(block.text)
        elif type(block) is ToolUse:
            json += len(block.name) + len(_encode(block.input))
            frames += 3
        elif type(block) is ToolResult:
            frames += 1
            inner = block.content
            if not isinstance(inner, str):
                size = measure_message(Message("user", inner))
                text, json = text + size.text, json + size.json
                flat, frames = flat + size.flat, frames + size.frames
            elif _is_json(inner):
                json += count_bytes(inner)
            else:
                text += count_bytes(inner)
        elif type(block) is Thinking:
            text += count_bytes(block.thinking)
        elif type(block) is RedactedThinking:
            text += count_bytes(block.data)
        elif type(block) is Opaque:
            json += count_bytes(block.raw)
        else:
            flat += 1
    return MessageSize(text, json, flat, frames)


def _is_json(text: str) -> bool:
    """True for a text that looks like JSON, which has more tokens for its bytes."""
    return text[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]")


def count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def estimate_tokens(text: str) -> int:
    """Tokens of a plain text by the raw rule."""
    return MessageSize(text=count_bytes(text)).tokens()
