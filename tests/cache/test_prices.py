"""The price table: which model has which price, what a request costs, and what a user may change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sevenfold.cache.prices import Prices
from sevenfold.core.errors import SettingsError
from sevenfold.core.tokens import Usage

PRICES = Prices.load()


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("claude-opus-4-5", "claude-opus-4-5"),
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("claude-opus-4-0", "claude-opus-4"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5[1m]", "claude-sonnet-4-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("us.anthropic.claude-opus-4-6-v1:0", "claude-opus-4-6"),
        ("anthropic/claude-opus-5-5", "claude-opus-5-5"),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-4o-mini", "gpt-4o-mini"),
        ("openai:gpt-4.1-mini", "gpt-4.1-mini"),
        ("gpt-5-codex", "gpt-5"),
        ("offline", "offline"),
        ("local:/models/small.gguf", "local"),
    ],
)
def test_a_dated_or_prefixed_name_has_the_price_of_its_model(name: str, model: str) -> None:
    price = PRICES.of(name)
    assert price is not None
    assert price.model == model


@pytest.mark.parametrize(
    "name", ["claude-opus-4-99", "claude-opus", "gpt-4o-audio-preview", "gpt-5.99", "mystery", ""]
)
def test_a_model_that_is_not_in_the_table_has_no_price(name: str) -> None:
    assert PRICES.of(name) is None


def test_every_price_is_dated_and_has_a_source_and_sane_limits() -> None:
    prices = list(PRICES)
    assert len(prices) > 35
    for price in prices:
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", price.as_of), price.model
        assert price.source
        assert price.output >= price.input >= 0
        assert 0 < price.read <= 0.5
        assert price.write_5m <= price.write_1h
        assert price.max_output < price.window
        assert price.min_cacheable >= 512


def test_the_parts_of_a_request_are_priced_apart() -> None:
    price = PRICES.of("claude-opus-4-5")
    assert price is not None
    million = 1_000_000
    assert price.cost(Usage(input=million)) == pytest.approx(5.0)
    assert price.cost(Usage(cache_write=million)) == pytest.approx(6.25)
    assert price.cost(Usage(cache_write=million, cache_write_1h=million)) == pytest.approx(10.0)
    assert price.cost(Usage(cache_read=million)) == pytest.approx(0.5)
    assert price.cost(Usage(output=million)) == pytest.approx(25.0)
    mixed = Usage(input=100, cache_write=400, cache_read=1_000, output=10, cache_write_1h=300)
    assert price.units(mixed) == pytest.approx(100 + 100 * 1.25 + 300 * 2 + 1_000 * 0.1 + 10 * 5)
    assert price.cost(mixed) == pytest.approx(price.units(mixed) * 5.0 / million)


def test_some_models_read_their_cache_for_less() -> None:
    for name, share in [("claude-opus-5-5", 0.05), ("claude-fable-5-1", 0.025), ("gpt-4o", 0.5)]:
        price = PRICES.of(name)
        assert price is not None
        assert price.units(Usage(cache_read=1_000)) == pytest.approx(1_000 * share)


def test_a_long_prompt_is_billed_as_a_whole_at_the_long_price() -> None:
    price = PRICES.of("claude-haiku-5-5")
    assert price is not None
    short = Usage(input=20_000, cache_read=80_000, output=1_000)
    long = Usage(input=20_001, cache_read=80_000, output=1_000)
    assert price.cost(short) == pytest.approx((20_000 * 0.1 + 80_000 * 0.01 + 1_000 * 0.5) / 1e6)
    assert price.cost(long) == pytest.approx((20_001 * 0.5 + 80_000 * 0.05 + 1_000 * 2.5) / 1e6)
    assert price.units(long) == pytest.approx(price.cost(long) * 1e6 / 0.1)


def test_a_free_model_costs_nothing_and_is_still_measured() -> None:
    price = PRICES.of("offline")
    assert price is not None
    usage = Usage(input=100, cache_write=100, cache_read=1_000, output=10)
    assert price.cost(usage) == 0.0
    assert price.units(usage) == pytest.approx(100 + 125 + 100 + 50)


# --- a user's own file -----------------------------------------------------------------------------------


def override(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_users_file_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    path = override(tmp_path, "[models.claude-opus-4-5]\ninput = 4.5\nas_of = 2026-12-01\n")
    mine, ours = Prices.load(path).of("claude-opus-4-5"), PRICES.of("claude-opus-4-5")
    assert mine is not None
    assert ours is not None
    assert (mine.input, mine.output, mine.window) == (4.5, ours.output, ours.window)
    assert mine.as_of == "2026-12-01"
    assert Prices.load(path).of("gpt-4o") == PRICES.of("gpt-4o")


def test_a_users_file_may_add_models_aliases_and_families(tmp_path: Path) -> None:
    path = override(
        tmp_path,
        """
        currency = "EUR"
        [families.ours]
        as_of = "2026-11-01"
        read = 0.2
        [models.house-model]
        family = "ours"
        aliases = ["house", "house/*"]
        input = 1.0
        output = 2.0
        window = 32_000
        """,
    )
    for name in ("house-model", "house", "house/anything"):
        price = Prices.load(path).of(name)
        assert price is not None
        assert (price.read, price.window, price.currency) == (0.2, 32_000, "EUR")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("models = 5", "models must be a table of tables"),
        ("[models]\nclaude-opus-5 = 5", "models.claude-opus-5 must be a table"),
        ("[models.x]\noutput = 1.0", "models.x.input is missing"),
        ('[models.gpt-4o]\ninput = "five"', "models.gpt-4o.input"),
        ("[models.gpt-4o]\ninput = -1.0", "models.gpt-4o.input must not be negative"),
        ("[models.gpt-4o]\ninptu = 1.0", "models.gpt-4o.inptu is not a key of the price table, did "
         "you mean 'input'?"),
        ('[models.gpt-4o]\nfamily = "nobody"', "models.gpt-4o.family is unknown: 'nobody'"),
        ("[models.gpt-4o]\naliases = [1]", "models.gpt-4o.aliases must be a list of names"),
        ("[models.gpt-4o\n", "not valid TOML"),
        ("[model.gpt-4o]", "model is not a key of the price table, did you mean 'models'?"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_users_file_is_said_with_the_file_and_the_key(
    tmp_path: Path, text: str, wrong: str
) -> None:
    path = override(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        Prices.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert wrong in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml: the price file cannot be read"):
        Prices.load(tmp_path / "none.toml")
