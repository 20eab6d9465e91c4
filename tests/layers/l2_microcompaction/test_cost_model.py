"""Whether clearing pays: sums that were done by hand, and by trying everything."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layers.l2_microcompaction.talks import MODEL, PLAIN_SUMS, PRICES, Talk, need, need_file
from msgspec.structs import replace

from sevenfold.cache.prices import Price
from sevenfold.core.errors import SettingsError
from sevenfold.core.events import Cleared
from sevenfold.core.protocols import Capabilities
from sevenfold.core.tokens import Pressure, Thresholds
from sevenfold.core.transcript import View
from sevenfold.layers.l2_microcompaction.candidates import Candidate, ViewScan
from sevenfold.layers.l2_microcompaction.cost import (
    CALL,
    COEFFICIENTS,
    MARKER,
    CacheRates,
    ClearDecision,
    NeedModel,
    compute_features,
    decide_clear_all,
    decide_clearing,
)
from sevenfold.settings.layers import CLEARABLE, MicroSettings

RESULT = 10_020
"""Tokens of a result of 40,000 characters: a quarter of them, and 20 for its frame."""
USE = 70
"""Tokens of a call whose name and arguments are 20 characters: a half, and three frames."""
FREED = RESULT - MARKER
FIVE_MINUTES = CacheRates(1.25, 0.1)
NEVER, ALWAYS = need(), need(30.0)


def pressure(tokens: int = 100_000, window: int = 200_000, *, warm: bool = True) -> Pressure:
    return Pressure(tokens, Thresholds.of(window, 32_000), 0.0 if warm else 400.0, warm=warm)


def scanned(view: View) -> ViewScan:
    scan = ViewScan(CLEARABLE, ())
    scan.follow(view)
    return scan


def decided(talk: Talk, **changes: Any) -> ClearDecision | None:
    fields = {
        "need": NEVER,
        "rates": FIVE_MINUTES,
        "pressure": pressure(),
        "settings": PLAIN_SUMS,
        **changes,
    }
    return decide_clearing(talk.view, scanned(talk.view), **fields)


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path)


@pytest.fixture
def ten(talk: Talk) -> Talk:
    """Ten commands with results of 40,000 characters; five of them are old."""
    for _ in range(10):
        talk.call("Bash", 40_000)
    talk.answer()
    talk.say("and now?")
    return talk


BEHIND = 10 * RESULT + 9 * USE
"""From the first result on: all results, and all calls but the first one."""
END = 2 + 1
"""The last answer and the last question are 5 and 8 characters long."""
REWRITTEN = BEHIND + END - 5 * FREED


# --- by hand --------------------------------------------------------------------------------------------


def test_the_sums_are_those_one_does_by_hand(ten: Talk) -> None:
    decision = decided(ten)

    assert decision is not None
    assert [one.use.id for one in decision.clear] == ["t1", "t2", "t3", "t4", "t5"]
    assert decision.freed == 5 * FREED
    assert decision.rewritten == pytest.approx(REWRITTEN, abs=2)
    assert decision.saving == pytest.approx(5 * FREED * 0.1 * 50)
    assert decision.price == pytest.approx(1.15 * REWRITTEN, abs=3)
    assert not decision.cold


def test_it_clears_up_to_its_margin_and_not_beyond(ten: Talk) -> None:
    times = 5 * FREED * 5 / (1.15 * REWRITTEN)
    assert 4 < times < 4.5, "the case is close enough to tell"

    assert decided(ten, settings=replace(PLAIN_SUMS, margin=times - 0.01))
    assert decided(ten, settings=replace(PLAIN_SUMS, margin=times + 0.01)) is None


def test_it_frees_at_least_what_the_setting_says_and_not_a_token_less(ten: Talk) -> None:
    assert decided(ten, settings=replace(PLAIN_SUMS, least_freed=5 * FREED))
    assert decided(ten, settings=replace(PLAIN_SUMS, least_freed=5 * FREED + 1)) is None


def test_a_cold_cache_makes_the_break_free_and_any_batch_large_enough(ten: Talk) -> None:
    greedy = replace(PLAIN_SUMS, least_freed=10**9, margin=10**9)
    decision = decided(ten, pressure=pressure(warm=False), settings=greedy)

    assert decision is not None
    assert decision.cold
    assert decision.price == 0
    assert decision.freed == 5 * FREED
    written_once_then_read = 1.25 + 0.1 * 49
    assert decision.saving == pytest.approx(5 * FREED * written_once_then_read)
    assert decision.why.endswith("the cache is cold, so nothing is lost")


def test_writing_for_an_hour_makes_the_break_dearer(ten: Talk) -> None:
    hour = CacheRates.of(PRICES.of(MODEL), "1h")
    assert hour == CacheRates(2.0, 0.1)

    assert decided(ten, rates=hour) is None
    decision = decided(ten, rates=hour, settings=replace(PLAIN_SUMS, margin=2.0))

    assert decision is not None
    assert decision.price == pytest.approx(1.9 * REWRITTEN, abs=4)
    assert decision.saving == pytest.approx(5 * FREED * 0.1 * 50)


def test_where_nothing_is_cached_nothing_breaks_and_every_token_counts_in_full(ten: Talk) -> None:
    decision = decided(ten, rates=CacheRates.of(PRICES.of(MODEL), "5m", caches=False))

    assert decision is not None
    assert decision.price == 0
    assert decision.saving == pytest.approx(5 * FREED * 50)
    assert "nothing has to be written again" in decision.why
    assert "0.0 times" not in decision.why


@pytest.mark.parametrize(("ttl", "write"), [("5m", 1.25), ("1h", 2.0)])
def test_a_model_without_a_known_price_is_taken_to_cost_what_most_do(ttl: Any, write: float) -> None:
    assert PRICES.of("nobody-knows-this-one") is None
    assert CacheRates.of(None, ttl) == CacheRates(write, 0.1)


def test_prices_of_the_users_own_decide() -> None:
    mine = Price(
        model="m",
        input=1.0,
        output=2.0,
        write_5m=1.0,
        write_1h=3.0,
        read=0.5,
        window=1,
        max_output=1,
        as_of="now",
    )
    assert CacheRates.of(mine, "5m") == CacheRates(1.0, 0.5)
    assert CacheRates.of(mine, "1h") == CacheRates(3.0, 0.5)


def test_what_will_surely_be_needed_again_is_never_cleared(ten: Talk) -> None:
    assert decided(ten, need=ALWAYS) is None
    assert decided(ten, need=ALWAYS, pressure=pressure(warm=False)) is None


@pytest.mark.parametrize("cold", [False, True])
def test_a_result_goes_while_the_chance_that_it_is_needed_is_below_break_even(
    ten: Talk, cold: bool
) -> None:
    carrying = FREED * (0.1 * 50 + 1.15 * cold)
    reading_back = FREED * (1.25 + 0.1 * 50) + 0.1 * 100_000 + CALL
    weight = PLAIN_SUMS.need_weight if cold else 1.0
    even = carrying / reading_back / weight
    free = replace(PLAIN_SUMS, margin=1.0, least_freed=0)

    def at(chance: float) -> ClearDecision | None:
        model = need(math.log(chance / (1 - chance)))
        return decided(ten, need=model, pressure=pressure(warm=not cold), settings=free)

    assert at(even * 1.01) is None
    if cold:
        decision = at(even * 0.99)
        assert decision is not None
        assert decision.saving == pytest.approx(5 * (carrying - weight * even * 0.99 * reading_back))
    else:
        assert at(even * 0.99) is None, "it pays by itself, but not for the break"
        decision = at(even * 0.3)
        assert decision is not None
        assert decision.saving == pytest.approx(5 * (carrying - even * 0.3 * reading_back))


def test_only_what_is_unlikely_to_be_needed_goes(talk: Talk) -> None:
    for n in range(8):
        talk.call("Read", 40_000, file_path=f"/src/{n}.py")
        talk.call("Bash", 40_000)
    talk.answer()

    decision = decided(talk, need=need(read=60.0), pressure=pressure(warm=False))

    assert decision is not None
    assert {one.use.name for one in decision.clear} == {"Bash"}


def test_it_does_not_reach_back_for_a_small_result_behind_which_everything_stands(talk: Talk) -> None:
    talk.call("Bash", 800)
    talk.answer("word " * 20_000)  # 25,000 tokens that would have to be written again
    talk.say("go on")
    for _ in range(10):
        talk.call("Bash", 40_000)
    talk.answer()

    decision = decided(talk)
    reaching = decided(talk, pressure=pressure(warm=False))

    assert decision is not None
    assert [one.use.id for one in decision.clear] == ["t2", "t3", "t4", "t5", "t6"]
    assert reaching is not None
    assert reaching.clear[0].use.id == "t1", "when cold it costs nothing"


def test_a_result_shorter_than_what_would_stand_in_its_place_stays(talk: Talk) -> None:
    for _ in range(10):
        talk.call("Bash", "ok")
    talk.answer()
    cold = pressure(warm=False)

    assert decided(talk, pressure=cold) is None
    assert decide_clear_all(talk.view, scanned(talk.view), FIVE_MINUTES, cold, PLAIN_SUMS) is None


@pytest.mark.parametrize(
    ("window", "least"), [(8_000, 1_200), (32_000, 4_800), (128_000, 19_200), (1_000_000, 30_000)]
)
def test_what_must_be_freed_shrinks_with_the_window(talk: Talk, window: int, least: int) -> None:
    size = (least // 5 + MARKER - 20) * 4  # five of these are just enough
    for _ in range(10):
        talk.call("Bash", size)
    talk.answer()
    easy = replace(PLAIN_SUMS, margin=1.0)
    exact = decided(talk, pressure=pressure(1_000, window), settings=easy)

    assert exact is not None
    assert exact.freed == pytest.approx(least, abs=5)
    more = replace(easy, least_freed=int(30_000 * 1.02))
    assert decided(talk, pressure=pressure(1_000, window), settings=more) is None


def test_the_newest_stay_and_so_does_what_the_model_has_not_read_yet(talk: Talk) -> None:
    for _ in range(3):
        talk.call("Bash", 400_000)
    talk.calls_at_once([("Bash", 400_000, {}) for _ in range(9)])

    cold, keeps_two = pressure(warm=False), replace(PLAIN_SUMS, keep_recent=2)
    before = decided(talk, pressure=cold, settings=keeps_two)
    talk.answer()
    after = decided(talk, pressure=cold, settings=keeps_two)

    assert before is not None
    assert [one.use.id for one in before.clear] == ["t1", "t2", "t3"], "nine were not seen yet"
    assert after is not None
    assert [one.use.id for one in after.clear] == [f"t{n}" for n in range(1, 11)]


def test_the_plain_rule_clears_all_that_is_old_and_says_what_that_costs(ten: Talk) -> None:
    scan = scanned(ten.view)
    warm = decide_clear_all(ten.view, scan, FIVE_MINUTES, pressure(), PLAIN_SUMS)
    cold = decide_clear_all(ten.view, scan, FIVE_MINUTES, pressure(warm=False), PLAIN_SUMS)

    assert warm is not None
    assert cold is not None
    assert len(warm.clear) == len(cold.clear) == 5
    assert warm.freed == cold.freed == 5 * FREED
    assert warm.price == pytest.approx(1.15 * REWRITTEN, abs=3)
    assert cold.price == 0.0
    assert warm.saving == pytest.approx(5 * FREED * 5)
    assert cold.saving == pytest.approx(5 * FREED * (5 + 1.15))


# --- in the event ---------------------------------------------------------------------------------------


def test_the_event_explains_itself_and_its_numbers_add_up(tmp_path: Path) -> None:
    settings = replace(PLAIN_SUMS, need_model=need_file(tmp_path))
    talk = Talk(tmp_path, settings)
    for _ in range(10):
        talk.call("Bash", 40_000)
    talk.answer()
    talk.say("and now?")
    before = talk.view.tokens
    talk.fit()

    [event] = talk.of(Cleared)
    assert event.by == "cost"
    assert event.use_ids == ("t1", "t2", "t3", "t4", "t5")
    assert event.price == pytest.approx(1.15 * event.rewritten, rel=0.001)
    assert event.saving == pytest.approx(event.tokens * 0.1 * 50, rel=0.001)
    assert f"5 results, {event.tokens:,} tokens" in event.why
    assert f"save {event.saving:,.0f}" in event.why
    assert f"{event.saving / event.price:.1f} times the {event.price:,.0f}" in event.why
    assert f"writing {event.rewritten:,} tokens again" in event.why
    assert before - talk.view.tokens == pytest.approx(event.tokens, rel=0.01)
    first = talk.view.result_at("t1") or 0
    behind = talk.view.calibration.tokens(sum_of(talk.view, first))
    assert behind == pytest.approx(event.rewritten, rel=0.01)


def test_what_is_left_in_place_of_a_result_is_as_long_as_the_sums_say(tmp_path: Path) -> None:
    """Else clearing many small results would look like a saving, and make the prompt longer."""
    settings = replace(PLAIN_SUMS, least_freed=1_000, margin=1.0, need_model=need_file(tmp_path))
    talk = Talk(tmp_path, settings)
    for _ in range(100):
        talk.call("Bash", 600)
    talk.answer()
    talk.clock.time += 400
    before = talk.view.tokens
    cleared = talk.fit()

    assert len(cleared) == 95
    [event] = talk.of(Cleared)
    assert before - talk.view.tokens == pytest.approx(event.tokens, rel=0.05)


def sum_of(view: View, first: int) -> Any:
    sizes = [view[at].size for at in range(first, len(view))]
    whole = sizes[0]
    for size in sizes[1:]:
        whole = whole + size
    return whole


def test_windows_and_models_reach_the_sums_through_the_layer(tmp_path: Path) -> None:
    """The same results: too few for a large window, enough for a small one or without a cache."""

    def cleared(name: str, **fields: Any) -> list[str]:
        folder = tmp_path / name
        folder.mkdir()
        settings = replace(PLAIN_SUMS, need_model=need_file(tmp_path), margin=7.0)
        talk = Talk(folder, settings, **fields)
        for _ in range(20):
            talk.call("Bash", 4_000)
        talk.answer()
        return talk.fit()

    small = Capabilities(window=32_000, max_output=4_000)
    assert cleared("large") == []
    assert len(cleared("small", able=small)) == 15
    assert cleared("hour", able=small, ttl="1h") == [], "a break costs more there"
    no_cache = Capabilities(window=64_000, max_output=4_000, caches_prompts=False)
    assert len(cleared("no cache", able=no_cache)) == 15


# --- by trying everything -------------------------------------------------------------------------------

CALLS = st.lists(
    st.tuples(st.sampled_from(["Read", "Bash", "Grep", "Edit", "mcp__x", "text"]), st.integers(0, 60_000)),
    max_size=25,
)


def best_batch(
    view: View, scan: ViewScan, model: NeedModel, rates: CacheRates, at: Pressure, how: MicroSettings
) -> tuple[float, list[str]] | None:
    """Every batch that ends at the newest of those that pay, weighed from the view itself."""

    def balance(one: Candidate) -> float:
        tokens = one.tokens - MARKER
        carrying = tokens * how.requests_ahead * rates.read
        if not at.warm:
            carrying += tokens * (rates.write - rates.read)
        back = tokens * rates.write + tokens * how.requests_ahead * rates.read
        back += at.tokens * rates.read + CALL
        return carrying - (1.0 if at.warm else how.need_weight) * model.chance(one, scan) * back

    old = [one for one in scan.found[: -how.keep_recent] if one.request < scan.requests]
    paying = [one for one in old if one.tokens > MARKER and balance(one) > 0]
    best: tuple[float, list[str]] | None = None
    for first in range(len(paying)):
        batch = paying[first:]
        freed = sum(one.tokens - MARKER for one in batch)
        behind = sum(weight(view, i) for i in range(batch[0].at, len(view))) - freed
        price = (rates.write - rates.read) * behind if at.warm else 0.0
        saving = sum(map(balance, batch))
        least = how.least_freed * min(1.0, at.window / 200_000) if at.warm else 0
        if freed >= least and saving >= how.margin * price:
            found = saving - price, [one.use.id for one in batch]
            best = max(best, found, key=lambda b: b[0]) if best else found
    return best


def weight(view: View, at: int) -> int:
    size = view[at].size
    return int(size.text / 4 + size.json / 2) + 20 * size.frames


@settings(max_examples=200)
@given(
    CALLS,
    st.floats(-6, 2),
    st.floats(-2, 2),
    st.sampled_from(
        [CacheRates(1.25, 0.1), CacheRates(2.0, 0.1), CacheRates(1.0, 0.5), CacheRates(1.0, 1.0)]
    ),
    st.booleans(),
    st.sampled_from([8_000, 200_000]),
    st.floats(1, 6),
    st.integers(1, 8),
)
def test_it_clears_what_is_best_of_all_that_could_be_cleared_and_only_if_it_pays(
    tmp_path: Path,
    calls: list[tuple[str, int]],
    always: float,
    read: float,
    rates: CacheRates,
    warm: bool,
    window: int,
    margin: float,
    keep: int,
) -> None:
    talk = Talk(tmp_path)
    for tool, size in calls:
        if tool == "text":
            talk.answer("w" * (4 + size))
            talk.say("next")
        else:
            talk.call(tool, size, file_path=f"/f{size % 7}")
    model, at = need(always, read=read), pressure(50_000, window, warm=warm)
    how = replace(PLAIN_SUMS, margin=margin, least_freed=5_000, keep_recent=keep)
    scan = scanned(talk.view)
    decision = decide_clearing(talk.view, scan, model, rates, at, how)
    stricter, laxer = (
        best_batch(
            talk.view,
            scan,
            model,
            rates,
            at,
            replace(how, margin=margin * by, least_freed=int(how.least_freed * by)),
        )
        for by in (1.02, 0.98)
    )

    if decision is None:
        assert stricter is None
        return
    assert laxer is not None
    # Tokens are rounded once for each result there, and once for all of them here.
    rounded = len(calls) * (rates.read * how.requests_ahead + rates.write)
    balance = decision.saving - decision.price
    assert balance <= laxer[0] * 1.01 + rounded
    assert stricter is None or balance >= stricter[0] * 0.99 - rounded
    if stricter is not None and stricter[1] == laxer[1]:
        same = [one.use.id for one in decision.clear] == laxer[1]
        assert same or balance == pytest.approx(laxer[0], rel=1e-3, abs=rounded), "of the same worth"


# --- the model of need ----------------------------------------------------------------------------------


def chances(talk: Talk) -> dict[str, float]:
    model, scan = NeedModel.load(), scanned(talk.view)
    return {one.use.id: model.chance(one, scan) for one in scan.found}


def test_the_fitted_model_says_what_the_measurements_say(talk: Talk) -> None:
    """POLICY: reads are the working set, less so once edited; commands rarely, changes hardly ever."""
    talk.call("Read", 8_000, file_path="/kept.py")
    talk.call("Read", 8_000, file_path="/edited.py")
    talk.call("Bash", 8_000)
    talk.call("Edit", 400, file_path="/edited.py")
    for _ in range(6):
        talk.call("Bash", 400)
    found = chances(talk)

    assert found["t1"] > 2 * found["t2"] > 0
    assert found["t1"] > 2 * found["t3"]
    assert found["t4"] < 0.05


def test_a_shell_of_another_agent_is_a_shell(talk: Talk) -> None:
    talk.call("exec_command", 8_000)
    talk.call("Bash", 8_000)
    scan = ViewScan([*CLEARABLE, "exec_command"], ())
    scan.follow(talk.view)
    model = NeedModel.load()

    theirs, ours = (model.chance(one, scan) for one in scan.found)

    assert theirs < ours  # it is one call older, and else the same


def test_what_is_known_of_a_result_is_on_a_scale_of_about_one(talk: Talk) -> None:
    talk.call("Read", 400_000, file_path="/a.py")
    for _ in range(500):
        talk.call("Bash", 40)
        talk.say("x")
    scan = scanned(talk.view)

    values = compute_features(scan.found[0], scan)

    assert all(0 <= value < 12 for value in values)
    assert values[0] == values[1] == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[coefficients]\nalways = 1.0\n",
        COEFFICIENTS.read_text(encoding="utf-8").replace("age = ", "age = nan #"),
        COEFFICIENTS.read_text(encoding="utf-8").replace("age = ", "age = 'x' #"),
        "not toml [",
    ],
)
def test_a_file_of_coefficients_that_is_none_is_refused_when_the_layer_is_made(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(SettingsError, match=r"mine\.toml.*benchmarks\.policy\.fit"):
        Talk(tmp_path, MicroSettings(need_model=path))
    Talk(tmp_path, MicroSettings(need_model=path), by_cost=False)


def test_a_file_that_is_not_there_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"gone\.toml"):
        Talk(tmp_path, MicroSettings(need_model=tmp_path / "gone.toml"))
