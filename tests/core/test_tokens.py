"""The ruler: sizes, windows and thresholds, by the numbers."""

from __future__ import annotations

import pytest

from sevenfold.core.messages import Image, Message, Opaque, Text, Thinking, ToolResult, ToolUse
from sevenfold.core.tokens import (
    AUTO_COMPACT_MARGIN,
    BLOCK_MARGIN,
    FASTEST,
    FLAT,
    FRAME,
    OUTPUT_RESERVE,
    SLOWEST,
    WARNING_MARGIN,
    Calibration,
    MessageSize,
    Thresholds,
    measure_message,
)


@pytest.mark.parametrize(
    ("block", "size"),
    [
        (Text("abcd"), MessageSize(text=4)),
        (Text("中文"), MessageSize(text=6)),
        (Thinking("abcd", "a very long signature"), MessageSize(text=4)),
        (ToolUse("id", "Read", {"a": 1}), MessageSize(json=4 + 7, frames=3)),
        (ToolResult("id", "plain"), MessageSize(text=5, frames=1)),
        (ToolResult("id", '{"a": 1}'), MessageSize(json=8, frames=1)),
        (ToolResult("id", (Text("ab"), Image({}))), MessageSize(text=2, flat=1, frames=1)),
        (Image({"data": "x" * 9_999}), MessageSize(flat=1)),
        (Opaque("x", '{"type":"x"}'), MessageSize(json=12)),
    ],
)
def test_a_block_is_as_big_as_the_rule_says(block: Text, size: MessageSize) -> None:
    assert measure_message(Message("user", (block,))) == size


def test_an_image_is_flat() -> None:
    assert measure_message(Message("user", (Image({}),))).tokens() == FLAT


def test_the_thresholds_of_a_200k_window() -> None:
    t = Thresholds.of(200_000, 64_000)

    assert t.effective == 200_000 - OUTPUT_RESERVE
    assert t.auto_compact == t.effective - AUTO_COMPACT_MARGIN
    assert t.warning == t.auto_compact - WARNING_MARGIN
    assert t.block == t.effective - BLOCK_MARGIN


@pytest.mark.parametrize("window", [8_000, 32_000, 128_000])
def test_smaller_windows_scale_every_constant(window: int) -> None:
    t, share = Thresholds.of(window, 64_000), window / 200_000

    assert t.effective == window - int(OUTPUT_RESERVE * share)
    assert t.auto_compact == t.effective - int(AUTO_COMPACT_MARGIN * share)
    assert 0 < t.warning < t.auto_compact < t.block < t.effective


def test_a_million_token_window_keeps_the_constants() -> None:
    assert Thresholds.of(1_000_000, 64_000).effective == 1_000_000 - OUTPUT_RESERVE


def test_a_percentage_may_only_lower_the_threshold() -> None:
    plain = Thresholds.of(200_000, 64_000)

    assert Thresholds.of(200_000, 64_000, compact_percent=50).auto_compact == 90_000
    assert Thresholds.of(200_000, 64_000, compact_percent=100) == plain
    assert Thresholds.of(200_000, 64_000, block_limit=1_000).block == 1_000


@pytest.mark.parametrize(("truth", "bound"), [(5.9, FASTEST), (0.26, SLOWEST)])
def test_calibration_is_bounded(truth: float, bound: float) -> None:
    learned = Calibration()
    for _ in range(200):
        learned = learned.learn(MessageSize(text=40_000), int(10_000 * truth))

    assert learned.factors[0] == bound


def test_calibration_tells_text_from_json() -> None:
    learned = Calibration()
    for i in range(100):
        size = MessageSize(text=4_000 * (1 + i % 3), json=2_000 * (1 + i % 5))
        learned = learned.learn(size, int(size.text / 4 * 1.2 + size.json / 2 * 0.7))

    assert learned.factors == pytest.approx((1.2, 0.7), abs=0.05)


def test_what_stands_around_a_tool_call_is_counted_but_not_learned() -> None:
    size = MessageSize(text=4_000, frames=4)

    assert size.tokens() == 1_000, "the raw rule does not know it"
    assert Calibration().tokens(size) == 1_000 + 4 * FRAME
    learned = Calibration().learn(size, 1_000 + 4 * FRAME)
    assert learned.factors == pytest.approx((1.0, 1.0))


def test_a_pair_that_cannot_be_true_teaches_nothing() -> None:
    assert Calibration().learn(MessageSize(text=4_000), 50_000) == Calibration()
    assert Calibration().learn(MessageSize(text=4_000), -5) == Calibration()
