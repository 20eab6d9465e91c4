"""A summary before the window is full: only when it pays, when the user speaks, and never by force."""

from __future__ import annotations

import pytest
from layers.summaries import FRAME, Compacting, edits, rounds, summary
from msgspec.structs import replace

from sevenfold.boundary import last_boundary
from sevenfold.cache.prices import Prices
from sevenfold.errors import KeyRefused
from sevenfold.layers.l4_compaction.breaker import BREAKER
from sevenfold.layers.l4_compaction.settings import CompactionSettings
from sevenfold.layers.l4_compaction.worth import (
    AGAIN,
    ANSWER,
    CALL,
    LEFT,
    NEEDED,
    Rates,
    begins_a_turn,
    worth,
)
from sevenfold.messages import Text, assistant, user
from sevenfold.protocols import Capabilities
from sevenfold.tokens import Thresholds, Usage
from sevenfold.transcript import Reply, Transcript

pytestmark = pytest.mark.anyio
PRICED = replace(FRAME, model="claude-opus-4-5")
RATES = Rates(write=1.25, read=0.1, output=5.0)
SETTINGS = CompactionSettings()


def long_talk(tokens: int = 120_000, *, asked: bool = True) -> Transcript:
    """So many tokens of work on the first question; then the user speaks again."""
    t = Transcript(lambda: 0.0)
    t.add(user("build everything"))
    rounds(t, 40, size=(tokens // 40 - 40) * 4)
    t.add(Reply(assistant(Text("It is built.")), Usage(input=tokens)), by="model")
    if asked:
        t.add(user("now test it"))
    return t


def compacting(log: Transcript, **fields: object) -> Compacting:
    known: dict[str, object] = {"window": 200_000, "frame": PRICED, **fields}
    return Compacting([summary()], log, **known)  # type: ignore[arg-type]


# --- when -----------------------------------------------------------------------------------------------


async def test_a_summary_that_pays_is_made_when_the_user_speaks() -> None:
    talk = compacting(long_talk())
    handed = await talk.fit()

    assert len(edits(handed)) == 1
    boundary = last_boundary(talk.log.view)
    assert boundary is not None
    assert boundary.trigger == "price"
    assert talk.texts[0].startswith("<summary>")
    assert talk.texts[-1] == "now test it"


@pytest.mark.parametrize(
    "fields",
    [
        {"settings": CompactionSettings(by_price=False)},
        {"settings": CompactionSettings(least_tokens=150_000)},
        {"settings": CompactionSettings(margin=50.0)},
        {"frame": FRAME},
        {"frame": replace(FRAME, model="offline")},
        {"options": {"auto": False}},
        {"options": {"asks": False}},
    ],
    ids=["off", "too small", "too dear", "no price", "for free", "no compaction", "no time"],
)
async def test_else_the_view_is_left_alone(fields: dict[str, object]) -> None:
    talk = compacting(long_talk(), **fields)

    assert await talk.fit() == []
    assert talk.model.requests == []


async def test_in_the_middle_of_a_task_it_has_to_pay_much_better() -> None:
    busy = long_talk(95_000)
    rounds(busy, 1, first=100)
    talk = compacting(busy)
    assert await talk.fit() == []

    larger = long_talk(160_000)
    rounds(larger, 1, first=100)
    assert edits(await compacting(larger).fit())


async def test_in_a_large_window_it_has_to_pay_better_too() -> None:
    large = {"window": 1_000_000, "able": Capabilities(window=1_000_000)}

    assert await compacting(long_talk(90_000), **large).fit() == []
    assert edits(await compacting(long_talk(400_000), **large).fit())


async def test_a_small_context_is_not_worth_it() -> None:
    assert await compacting(long_talk(60_000)).fit() == []


async def test_a_failed_try_leaves_everything_as_it_was_and_is_not_made_up_for_by_a_digest() -> (
    None
):
    talk = Compacting([KeyRefused("no")] * 9, long_talk(), 200_000, frame=PRICED)
    handed = await talk.fit()

    assert edits(handed) == []
    assert talk.log.view.marks[BREAKER]["failures"] == 1
    await talk.fit()
    await talk.fit()
    asked = len(talk.model.requests)
    assert await talk.fit() == []
    assert len(talk.model.requests) == asked, "after three failures nobody is asked any more"


async def test_a_fork_is_never_compacted_by_price() -> None:
    talk = compacting(long_talk())
    request = replace(talk.request, source="fork:notes")

    assert await talk.layer.fit(request, talk.pressure()) == ()


def test_a_turn_begins_when_the_user_has_the_last_word() -> None:
    assert begins_a_turn(long_talk().view)
    assert not begins_a_turn(long_talk(asked=False).view)
    assert not begins_a_turn(Transcript(lambda: 0.0).view)


# --- the sums -------------------------------------------------------------------------------------------


def test_the_sums_by_hand() -> None:
    talk = compacting(long_talk(120_000))
    pressure = talk.pressure(tokens=120_000)
    view = talk.log.view
    fixed = 120_000 - view.calibration.tokens(view.size)
    warm = worth(talk.request, pressure, RATES, SETTINGS)

    freed = 120_000 - fixed - LEFT
    assert warm.saving == pytest.approx(freed * 0.1 * SETTINGS.requests_ahead)
    again = (fixed + LEFT) * 0.1 + CALL + NEEDED * 1.25
    asking = 120_000 * 0.1 + ANSWER * 5
    assert warm.price == pytest.approx(asking + LEFT * 1.25 + AGAIN * again)
    assert warm.times == pytest.approx(warm.saving / warm.price)

    cold = worth(talk.request, replace(pressure, warm=False), RATES, SETTINGS)
    assert cold.saving - warm.saving == pytest.approx(freed * 1.15), "it need not be written again"
    assert cold.price > warm.price, "but nothing of the question is in the cache"


def test_all_constants_shrink_with_the_window() -> None:
    small = compacting(long_talk(12_000), window=20_000)
    sums = worth(small.request, small.pressure(tokens=12_000), RATES, SETTINGS)
    large = compacting(long_talk(120_000))
    tenfold = worth(large.request, large.pressure(tokens=120_000), RATES, SETTINGS)

    assert sums.times == pytest.approx(tenfold.times, rel=0.1)


def test_prices_are_those_of_the_model_and_the_lifetime() -> None:
    price = Prices.load().of("claude-opus-4-5")
    assert price
    assert Rates.of(price, "5m", caches=True) == Rates(1.25, 0.1, 5.0)
    assert Rates.of(price, "1h", caches=True).write == 2.0
    assert Rates.of(price, "5m", caches=False) == Rates(1.0, 1.0, 5.0)
    assert Thresholds.of(200_000, 32_000).auto_compact > SETTINGS.least_tokens
    assert Capabilities().caches_prompts
