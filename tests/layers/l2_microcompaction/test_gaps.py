"""What can be expected of somebody who has been silent for a while."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.policy.gaps import collected, gaps_of, summary
from benchmarks.policy.samples import halves, session_files
from benchmarks.policy.silences import Quiet, keeping, measured, quiets, replayed
from sevenfold.core.messages import Message, ToolResult, ToolUse, assistant, user
from sevenfold.core.transcript import Reply
from sevenfold.layers.l2_microcompaction.cache_expiry import ASKING
from sevenfold.layers.shared.idle_gaps import EDGES, MOST, WEIGHT, GapCounts, GapForecast, load_prior_gaps
from sevenfold.recordings.recorded_session import RecordedEvent

SESSIONS = Path(__file__).parents[4] / "shared/data/sessions"
times = st.floats(1, 200_000)


def gaps(*seconds: float, left: int = 0) -> GapCounts:
    found = GapCounts(left=float(left))
    for gap in seconds:
        found = found.after(gap)
    return found


@given(st.lists(times, max_size=30), st.integers(0, 5), times, times)
def test_chances_are_chances_and_add_up(seen: list[float], left: int, idle: float, time: float) -> None:
    silence = GapForecast(gaps(*seen, left=left), idle)
    back, after, still = (silence.back_between(idle, time), silence.back_after(time), silence.still(time))
    assert 0 <= back <= 1
    assert 0 <= after <= 1
    assert back + still == pytest.approx(1)
    assert after <= still + 1e-9


@given(st.lists(times, min_size=1, max_size=30), times, times, times)
def test_the_longer_the_wait_the_likelier_somebody_is_back(
    seen: list[float], idle: float, a: float, b: float
) -> None:
    silence = GapForecast(gaps(*seen, left=1), idle)
    assert silence.still(min(a, b)) >= silence.still(max(a, b)) - 1e-9


def test_what_has_passed_cannot_happen_any_more() -> None:
    silence = GapForecast(gaps(20, 20, 20, 1_000, left=1), idle=60)
    assert silence.back_between(0, 60) == 0
    assert silence.back_after(60) == pytest.approx(0.5)
    assert silence.still(1_200) == pytest.approx(0.5)


def test_within_a_bin_time_is_spread_by_its_logarithm() -> None:
    silence = GapForecast(gaps(*[20] * 10), idle=15)
    assert silence.back_between(15, math.sqrt(15 * 30)) == pytest.approx(0.5)


def test_somebody_longer_away_than_any_gap_is_not_expected() -> None:
    assert GapForecast(gaps(20), idle=86_401).back_after(0) == 0
    assert GapForecast(GapCounts(), idle=10).back_after(0) == 0


def test_a_program_that_asks_at_once_is_nobody_and_after_a_day_nobody_is_expected() -> None:
    assert gaps(0.2).seen == 0
    assert gaps(EDGES[-1] + 1) == GapCounts().leaving()


def test_old_habits_fade() -> None:
    found = gaps(*[20] * 2_000)
    assert found.seen == pytest.approx(MOST)
    for _ in range(2_000):
        found = found.after(5_000)
    assert GapForecast(found, 0).back_after(3_600) > 0.95


def test_the_recorded_gaps_are_worth_so_many_of_ones_own() -> None:
    assert GapCounts().with_prior().seen == pytest.approx(WEIGHT)
    own = gaps(*[400] * 400).with_prior()
    assert GapForecast(own, 0).back_between(300, 420) > 0.9


def test_the_recorded_gaps_are_there() -> None:
    silence = GapForecast(load_prior_gaps(), idle=270)
    assert 0.5 < silence.back_after(300) < 0.95
    assert load_prior_gaps().left > 0


# --- how they were found -------------------------------------------------------------------------------


def said(at: float, what: Message | Reply, *, meta: bool = False, made_up: bool = False) -> RecordedEvent:
    return RecordedEvent(str(at), None, 0, at, what, meta=meta, made_up=made_up)


def test_a_gap_lies_between_the_last_reply_of_a_turn_and_what_a_person_types() -> None:
    call = Reply(assistant(ToolUse("t", "Read", {})))
    done = Reply(assistant())
    session = [
        said(0, user("do it")),
        said(10, call),
        said(20, Message("user", (ToolResult("t", "x"),))),
        said(30, done),
        said(40, user("<command-name>/ide</command-name>")),
        said(50, user("the tool says"), meta=True),
        said(130, user("and now?")),
        said(140, done),
        said(141, done, made_up=True),
        said(150, user("[Request interrupted by user]")),
    ]
    assert list(gaps_of(session)) == [100]


@pytest.mark.skipif(not SESSIONS.is_dir(), reason="the recorded sessions are not here")
def test_the_file_says_what_the_recorded_sessions_say() -> None:
    found = collected(halves(session_files(SESSIONS))[0])
    assert found == load_prior_gaps()
    assert "never" in summary(found)


# --- what follows from them ----------------------------------------------------------------------------


def test_a_rewrite_is_paid_by_those_who_come_back_to_a_cold_cache_only() -> None:
    silences = [Quiet(100_000, 200), Quiet(100_000, 400), Quiet(100_000, None), Quiet(10_000, 400)]
    cold = replayed(silences, lambda s: "let go")
    assert cold.cost == pytest.approx(110_000 * 1.15)
    assert (cold.rewrites, cold.requests) == (2, 0)

    warm = replayed(silences, keeping(1))
    assert (warm.rewrites, warm.requests) == (1, 2)  # small contexts are not kept
    assert warm.cost == pytest.approx(10_000 * 1.15 + 2 * (10_000 + ASKING + 5))


def test_an_hour_that_does_not_hold_costs_the_rewrite_as_well() -> None:
    silences = [Quiet(100_000, 2_000)]
    held = replayed(silences, lambda s: "an hour")
    lost = replayed(silences, lambda s: "an hour", hour_holds=False)
    assert lost.cost - held.cost == pytest.approx(100_000 * 1.15)


@pytest.mark.skipif(not SESSIONS.is_dir(), reason="the recorded sessions are not here")
def test_on_sessions_it_was_not_made_from_the_layer_pays_even_if_an_hour_does_not_hold() -> None:
    _, paths = halves(session_files(SESSIONS))
    rows = measured([quiet for path in paths for quiet in quiets(path)]).rows
    cold, one, two, layer, cautious = (float(row[1]) for row in rows)
    assert cold == 100
    assert layer < two < one < cold
    assert cautious < 80
