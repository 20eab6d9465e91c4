"""Which model a recorded session was with, and at what price its requests are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.cache.prices import Price, Prices
from sevenfold.errors import Mistake
from sevenfold.replay.policy_files import suggestion
from sevenfold.transcript import Entry, Reply

LARGE: Final = 1_000_000
"""The window of a session whose prompts were longer than its model's usual one."""
UNKNOWN: Final = Price(
    model="unknown",
    input=0.0,
    output=0.0,
    output_units=5.0,
    window=200_000,
    max_output=32_000,
    as_of="",
)
"""The usual multiples for cache and output, and no price."""


class Priced(msgspec.Struct, frozen=True):
    """The model of a session, and the price it is counted at."""

    model: str
    price: Price
    known: bool
    """Whether that is a real price; else only base-price units can be told."""
    error: str = ""
    others: dict[str, Price] = {}
    """What the other models cost that answered in it, each by its own name."""

    @property
    def window(self) -> int | None:
        """None: a model that can have the large window, and only the prompts tell whether it had."""
        return None if self.price.window == LARGE else self.price.window

    @property
    def prices(self) -> Prices:
        """A table by which the layers decide with this price, whatever the model is called."""
        price = self.price
        return Prices({price.model: price}, {self.model: price.model, "*": price.model})


def priced(entries: Sequence[Entry], prices: Prices, wanted: str | None) -> Priced:
    """The price of the session's own model, or of the one that was asked for."""
    model = model_of(entries)
    found = prices.of(wanted or model) if wanted or model else None
    if found is None:
        what = f"no price is known for {model}" if model else "it names no model"
        error = (
            f"{what}: costs are in base-price tokens alone, and nothing is compacted by price; "
            "--price MODEL gives them a price"
        )
        return Priced(
            model, _fitting(replace(UNKNOWN, model=model or "unknown"), entries), False, error
        )
    if wanted:
        return Priced(model or found.model, _fitting(found, entries), True)
    others, error = _others(model, found, entries, prices)
    return Priced(model, _fitting(found, entries), True, error, others)


def _others(
    model: str, main: Price, entries: Sequence[Entry], prices: Prices
) -> tuple[dict[str, Price], str]:
    """The prices of other models that answered, and what is to be said of those without one."""
    replies = [e.what for e in entries if isinstance(e.what, Reply) and e.what.usage.prompt]
    times = Counter(reply.model for reply in replies if reply.model not in ("", model))
    found, unknown = dict[str, Price](), list[str]()
    for name in times:
        price = prices.of(name)
        if price is None or price.currency != main.currency or not main.input:
            unknown.append(name)
        elif price.model != main.model:
            found[name] = price
    if not unknown:
        return found, ""
    number = sum(times[name] for name in unknown)
    return found, (
        f"no price is known for {', '.join(unknown)}, which answered {number:,} of {len(replies):,} "
        f"requests: they are counted at the price of {main.model}"
    )


def asked_for(prices: Prices, wanted: str) -> str:
    """A model whose price is known; `Mistake` with a suggestion when it is not."""
    if prices.of(wanted) is None:
        near = suggestion(wanted, [price.model for price in prices])
        raise Mistake(
            f"no price is known for {wanted!r}: {near or 'the price table does not have it'}; "
            "the setting 'prices' names a table of your own"
        )
    return wanted


def model_of(entries: Sequence[Entry]) -> str:
    """The model that answered most."""
    known = Counter(e.what.model for e in entries if isinstance(e.what, Reply) and e.what.model)
    return known.most_common(1)[0][0] if known else ""


def _fitting(price: Price, entries: Sequence[Entry]) -> Price:
    """The price with a window in which the recorded prompts have room."""
    largest = max((e.what.usage.prompt for e in entries if isinstance(e.what, Reply)), default=0)
    return replace(price, window=LARGE) if largest > price.window else price
