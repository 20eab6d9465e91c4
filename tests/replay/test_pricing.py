"""Which price a session is counted at, and how large its window was."""

from __future__ import annotations

import pytest

from sevenfold.cache.prices import Prices
from sevenfold.core.errors import Mistake
from sevenfold.core.messages import Text, assistant, user
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Entry, Reply
from sevenfold.replay.costs import find_session_price, find_wanted_model

PRICES = Prices.load()


def session(*models: str, prompt: int = 1_000) -> list[Entry]:
    replies = [Reply(assistant(Text("x")), Usage(prompt), model=model) for model in models]
    return [Entry(0, 0.0, user("x")), *(Entry(1 + n, 0.0, r) for n, r in enumerate(replies))]


def test_the_model_that_answered_most_is_the_model() -> None:
    found = find_session_price(session("gpt-5", "claude-opus-4-5", "claude-opus-4-5", ""), PRICES, None)

    assert (found.model, found.price.model, found.known) == ("claude-opus-4-5", "claude-opus-4-5", True)


def test_the_price_that_is_asked_for_goes_before_the_models_own() -> None:
    found = find_session_price(session("gpt-5"), PRICES, "claude-opus-4-5")

    assert (found.model, found.price.model, found.error) == ("gpt-5", "claude-opus-4-5", "")


@pytest.mark.parametrize(("model", "why"), [("who", "no price is known for who"), ("", "no model")])
def test_an_unknown_price_is_said_and_nothing_is_guessed(model: str, why: str) -> None:
    found = find_session_price(session(model), PRICES, None)

    assert not found.known
    assert why in found.error
    assert "--price" in found.error
    assert "nothing is compacted by price" in found.error


def test_a_price_that_is_not_known_cannot_be_asked_for() -> None:
    assert find_wanted_model(PRICES, "claude-opus-4-5") == "claude-opus-4-5"
    with pytest.raises(Mistake, match="did you mean 'claude-opus-4-5'"):
        find_wanted_model(PRICES, "claude-opus-4-55")


@pytest.mark.parametrize("model", ["who", "openai:gpt-5", "local:a.gguf", "claude-opus-4-5-20251101"])
def test_layers_decide_by_the_same_price_whatever_the_model_is_called(model: str) -> None:
    found = find_session_price(session(model), PRICES, "claude-opus-4-5")

    assert found.prices.of(found.model) == found.price
