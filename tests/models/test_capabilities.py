"""What the table says about models, and in which order the window is decided."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sevenfold.cache.prices import TABLE, read_user_limits
from sevenfold.models import ModelAccess, find_capabilities, make_default_params
from sevenfold.models.capabilities import (
    FAMILIES,
    LONG_BETA,
    find_family,
    find_user_capabilities,
    find_window,
    to_wire_name,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude-sonnet-4-5", (200_000, 64_000)),
        ("claude-sonnet-4-5-20250929", (200_000, 64_000)),
        ("claude-sonnet-4-20250514", (200_000, 64_000)),
        ("claude-opus-4-1-20250805", (200_000, 32_000)),
        ("claude-opus-4-20250514", (200_000, 32_000)),
        ("claude-opus-4-8", (1_000_000, 128_000)),
        ("claude-opus-5-5", (1_000_000, 128_000)),
        ("claude-3-5-haiku-latest", (200_000, 8_192)),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", (200_000, 64_000)),
        ("anthropic:claude-haiku-5-5", (1_000_000, 128_000)),
        ("claude-opus-4-1@20250805", (200_000, 32_000)),
        ("claude-someday-9", (200_000, 32_000)),
        ("openai:gpt-5.4-mini", (400_000, 128_000)),
        ("openai:gpt-5.4", (1_050_000, 128_000)),
        ("openai:gpt-4o-2024-11-20", (128_000, 16_384)),
        ("openai:o3-mini", (200_000, 100_000)),
        ("openai:some-local-model", (200_000, 32_000)),
    ],
)
def test_the_longest_known_beginning_of_a_name_decides(name: str, expected: tuple[int, int]) -> None:
    able = find_capabilities(name)
    assert (able.window, able.max_output) == expected


def test_the_window_is_decided_by_suffix_then_tables_then_beta_then_override() -> None:
    assert find_window("claude-sonnet-4-5[1m]", own=50_000) == 1_000_000
    assert find_window("unknown[1m]") == 1_000_000
    assert find_window("claude-sonnet-4-5", own=50_000) == 50_000
    assert find_window("claude-sonnet-4-5", [LONG_BETA]) == 200_000
    assert find_window("unknown", [LONG_BETA]) == 1_000_000
    assert find_window("unknown", ["other"], 8_192) == 8_192
    assert find_window("unknown") == 200_000


def test_the_window_of_an_unknown_claude_is_set_as_that_of_any_unknown_model() -> None:
    assert find_window("claude-opus-9") == 200_000
    assert find_window("claude-opus-9", [LONG_BETA]) == 1_000_000
    assert find_window("claude-opus-9", override=500_000) == 500_000
    assert find_capabilities("claude-opus-9", window=500_000).binds_thinking, "the newest in all else"


@pytest.mark.parametrize(
    "name", ["claude-sonnet-4-5", "claude-sonnet-4-5[1m]", "gpt-5", "offline", "claude-opus-5-5"]
)
def test_what_the_user_says_lowers_a_known_window_and_never_raises_it(name: str) -> None:
    known = find_window(name)

    assert find_window(name, override=60_000) == 60_000
    assert find_window(name, override=10_000_000) == known
    assert find_window("unknown", [LONG_BETA], 60_000) == 60_000


def test_a_users_price_file_says_how_large_a_model_is(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(
        '[models."claude-sonnet-4-5"]\nwindow = 50000\nmax_output = 4000\n'
        '[models."my-model"]\ninput = 1\noutput = 2\nwindow = 32000\n'
        '[models."claude-haiku-4-5"]\ninput = 1\n',
        encoding="utf-8",
    )
    access = ModelAccess(anthropic_key="k", limits_of=read_user_limits(file))

    def size(name: str, **more: Any) -> tuple[int, int]:
        able = find_user_capabilities(name, replace(access, **more))
        return able.window, able.max_output

    assert size("claude-sonnet-4-5-20250929") == (50_000, 4_000)
    assert size("anthropic:claude-sonnet-4-5") == (50_000, 4_000)
    assert size("claude-sonnet-4-5", window=20_000) == (20_000, 4_000)
    assert size("my-model") == (32_000, 8_000)
    assert size("claude-haiku-4-5") == (200_000, 64_000), "it says nothing about its size"
    assert size("claude-opus-5-5") == (1_000_000, 128_000)


def test_an_unknown_model_answers_in_a_modest_part_of_its_window() -> None:
    assert find_capabilities("unknown", window=8_192).max_output == 2_048
    assert find_capabilities("unknown", window=1_000_000).max_output == 32_000


def test_the_names_that_go_over_the_wire_have_neither_prefix_nor_suffix() -> None:
    assert to_wire_name("claude-opus-4-5[1m]") == "claude-opus-4-5"
    assert to_wire_name("anthropic:claude-opus-4-5[1m]") == "claude-opus-4-5"
    assert to_wire_name("openai:llama3:8b") == "llama3:8b"


def test_only_models_that_check_their_thinking_bind_it() -> None:
    binding = ["claude-fable-5-1", "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-new"]
    free = ["claude-fable-5", "claude-opus-5", "claude-sonnet-4-5", "claude-mythos-5-1", "openai:gpt-5"]
    assert all(find_capabilities(name).binds_thinking for name in binding)
    assert not any(find_capabilities(name).binds_thinking for name in free)


def test_context_edits_and_compaction_are_where_the_provider_has_them() -> None:
    assert find_capabilities("claude-haiku-4-5").context_management
    assert not find_capabilities("claude-haiku-4-5").server_compaction
    assert find_capabilities("claude-opus-4-6").server_compaction
    assert not find_capabilities("claude-3-5-haiku").context_management
    assert not find_capabilities("openai:gpt-5").context_management


def test_the_table_and_the_prices_agree_about_every_model() -> None:
    with TABLE.open("rb") as file:
        priced: dict[str, dict[str, Any]] = tomllib.load(file)["models"]
    compared = 0
    for name, row in priced.items():
        if "window" in row and find_family(name) is not None:
            able = find_capabilities(name)
            assert (name, able.window, able.max_output) == (name, row["window"], row["max_output"])
            compared += 1
    assert compared > 20


def test_no_family_is_listed_twice() -> None:
    prefixes = [f.prefix for f in FAMILIES]
    assert len(prefixes) == len(set(prefixes))


@pytest.mark.parametrize(
    ("name", "wishes", "expected"),
    [
        ("claude-opus-5-5", {}, {}),
        ("claude-opus-5-5", {"effort": "low"}, {"effort": "low"}),
        ("claude-opus-5-5", {"thinking_budget": 9_000}, {"thinking": {"type": "adaptive"}}),
        (
            "claude-opus-5-5",
            {"drop_thinking": True},
            {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}},
        ),
        ("claude-opus-4-6", {"drop_thinking": True}, {}),
        (
            "claude-sonnet-4-5",
            {"thinking_budget": 9_000, "effort": "high", "betas": ("mine",)},
            {
                "thinking": {"type": "enabled", "budget_tokens": 9_000},
                "betas": ["mine", "interleaved-thinking-2025-05-14"],
            },
        ),
        ("claude-3-5-haiku", {"thinking_budget": 9_000, "effort": "high"}, {}),
        ("openai:gpt-5", {"effort": "high", "thinking_budget": 9_000}, {"effort": "high"}),
        ("openai:gpt-4o", {"effort": "high"}, {}),
        ("openai:local", {"effort": "high"}, {"effort": "high"}),
    ],
)
def test_wishes_are_put_in_the_terms_of_the_model(
    name: str, wishes: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert make_default_params(name, ModelAccess(**wishes)) == expected
