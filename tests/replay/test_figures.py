"""Few numbers of a session: what it costs, beside what was paid, and what all of them come to."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sevenfold.cache.prices import Price, Prices
from sevenfold.core.tokens import Usage
from sevenfold.replay.costs import UNKNOWN
from sevenfold.replay.outcome import (
    CacheBreak,
    LayerAction,
    LayerShare,
    ReplayCompaction,
    ReplayOutcome,
    ReplayRegret,
    RequestRow,
)
from sevenfold.replay.results import MOST_POINTS, ReplayCost, ReplayFigures, compute_figures, sum_figures

OWN = RequestRow(1.0, "turn", Usage(100, 1_000, 0, 50), recorded=Usage(100, 2_000, 0, 50))
BACK = RequestRow(2.0, "read back", Usage(0, 0, 1_000, 10))


def price() -> Price:
    found = Prices.load().of("claude-opus-4-5")
    assert found is not None
    return found


def of(*rows: RequestRow, **more: object) -> ReplayFigures:
    return compute_figures(ReplayOutcome(rows, **more), price(), priced=True)  # type: ignore[arg-type]


def test_the_words_of_own_replies_are_in_no_cost_and_those_of_added_requests_are() -> None:
    known = of(OWN, BACK)

    output = price().output / price().input
    assert known.cost.units == pytest.approx(100 + 1.25 * 1_000 + 0.1 * 1_000 + 10 * output)
    assert known.paid is not None
    assert known.paid.units == pytest.approx(100 + 1.25 * 2_000)
    assert known.paid.amount == pytest.approx(2_600 * price().input / 1e6)
    assert known.paid.currency == "USD"
    assert (known.requests, known.turns, known.extra, known.beside) == (2, 1, 1, 0)


def test_where_no_usage_was_recorded_nobody_knows_what_was_paid() -> None:
    assert of(BACK).paid is None
    assert of(BACK).of_paid is None


def test_without_a_price_there_are_units_and_no_amount() -> None:
    known = compute_figures(ReplayOutcome((OWN,)), UNKNOWN, priced=False)

    assert known.cost == ReplayCost(100 + 1.25 * 1_000)


def test_a_long_prompt_has_its_own_price() -> None:
    long = Price(
        model="m", input=1.0, output=5.0, window=10**6, max_output=1, as_of="", long_over=1_000,
        long_input=2.0, long_output=9.0,
    )  # fmt: skip
    rows = RequestRow(0.0, "turn", Usage(900)), RequestRow(1.0, "turn", Usage(1_100))

    assert compute_figures(ReplayOutcome(rows), long, priced=True).cost.units == pytest.approx(
        900 + 2 * 1_100
    )


def test_totals_add_up_and_compare_what_is_known() -> None:
    a = of(OWN, breaks=(CacheBreak(0, 500, "silence"),), regret=ReplayRegret(4, 400, 2, 1, 100))
    b = of(BACK, compactions=(ReplayCompaction(1, "notes", 1_000, 100, 0.5),))

    whole = sum_figures([a, b])

    assert whole.requests == 2
    assert whole.cost.units == pytest.approx(a.cost.units + b.cost.units)
    assert whole.paid == a.paid
    assert (whole.files, whole.paid_files) == (2, 1)
    assert whole.of_paid == a.of_paid
    assert whole.regret.robust_share == 0.25
    assert [broke.reason for broke in whole.breaks] == ["silence"]
    twice = sum_figures([a, a]).paid
    assert twice is not None
    assert twice.amount == pytest.approx(2 * 2_600 * price().input / 1e6)
    assert sum_figures([]) == ReplayFigures()


def test_amounts_of_a_total_are_of_the_sessions_with_a_price() -> None:
    known, unknown = of(OWN), compute_figures(ReplayOutcome((OWN,)), UNKNOWN, priced=False)

    whole = sum_figures([unknown, known])

    assert whole.cost == ReplayCost(2 * known.cost.units, known.cost.amount, "USD")
    assert (whole.files, whole.priced_files, whole.paid_files) == (2, 1, 2)
    foreign = replace(known, cost=ReplayCost(1.0, 1.0, "EUR"))
    assert sum_figures([known, foreign, known]).cost.amount is None


def test_costs_in_two_currencies_are_not_added() -> None:
    assert ReplayCost(1, 1.0, "USD") + ReplayCost(1, 1.0, "EUR") == ReplayCost(2, None, None)


def test_fidelity_is_weighed_by_what_was_replaced() -> None:
    known = of(
        OWN,
        compactions=(
            ReplayCompaction(0, "notes", 3_000, 10, 1.0),
            ReplayCompaction(1, "summary", 1_000, 10, 0.0),
            ReplayCompaction(2, "recorded", 9_000, 10, None),
        ),
    )

    assert known.fidelity == 0.75
    assert of(OWN).fidelity is None


def test_what_layers_did_is_counted_beside_what_they_saved() -> None:
    did = RequestRow(3.0, "turn", Usage(1), happened=(LayerAction("microcompaction", "cleared 3", 700),))

    known = of(OWN, did, layers={"microcompaction": LayerShare(900.0, 100.0)})

    layer = known.layers["microcompaction"]
    assert (layer.times, layer.tokens, layer.net) == (1, 700, 800.0)


def test_the_count_of_a_request_is_held_against_the_recorded_one_until_something_changes() -> None:
    assert of(OWN).accounting == (round(1_000 / 2_100, 5),)
    cleared = RequestRow(3.0, "turn", Usage(1), happened=(LayerAction("microcompaction", "cleared", 7),))
    assert of(cleared, OWN).accounting == ()


def test_a_long_session_is_thinned_out_for_a_drawing_and_what_happened_stays() -> None:
    rows = [OWN] * 5_000
    rows[1_234] = RequestRow(3.0, "turn", Usage(1), happened=(LayerAction("compaction", "summary"),))

    drawn = compute_figures(ReplayOutcome(tuple(rows)), price(), priced=True, drawn=True).points

    assert len(drawn) <= MOST_POINTS + 2
    assert [p.turn for p in drawn if p.happened] == [1_234]
