"""What `/v1/models` says, in the form of both APIs at once, so that each client finds its own fields."""

from __future__ import annotations

from typing import Final

from sevenfold.cache.prices import Price
from sevenfold.simulator.api import Api
from sevenfold.simulator.problems import Json, invalid

EPOCH: Final = "1970-01-01T00:00:00Z"
"""When a model came out is not in our tables; the API gives the epoch where it does not know."""


def model_list(api: Api, query: dict[str, str]) -> Json:
    """One page of the models; `limit`, `after_id` and `before_id` turn pages."""
    names = list(api.models) if api.models is not None else [price.model for price in api.prices]
    if "after_id" in query:
        names = names[_index(names, query["after_id"]) + 1 :]
    if "before_id" in query:
        names = names[: _index(names, query["before_id"])]
    limit = query.get("limit", "1000")
    if not limit.isdecimal() or not 1 <= int(limit) <= 1_000:
        raise invalid("limit: Input should be between 1 and 1000")
    page = names[: int(limit)]
    return {
        "object": "list",
        "data": [_model(name, api.prices.of(name)) for name in page],
        "has_more": len(page) < len(names),
        "first_id": page[0] if page else None,
        "last_id": page[-1] if page else None,
    }


def model_info(api: Api, name: str) -> Json:
    return _model(name, api.price_of(name))


def _index(names: list[str], name: str) -> int:
    if name not in names:
        raise invalid(f"model: {name} is not in the list")
    return names.index(name)


def _model(name: str, price: Price | None) -> Json:
    words = [word for word in name.split("-") if not (word.isdecimal() and len(word) == 8)]
    return {
        "type": "model",
        "id": name,
        "display_name": " ".join(words).title(),
        "created_at": EPOCH,
        "lifecycle": "active",
        "max_input_tokens": price.window if price else None,
        "max_tokens": price.max_output if price else None,
        "object": "model",
        "created": 0,
        "owned_by": "sevenfold",
    }
