"""Before the cache is lost: what is chosen, what it costs, and where it stops."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from kit import make_parts
from layers.simulated import FRAME, PRICES, Conversation, conversation, reading
from msgspec.structs import replace

from sevenfold.cache.prices import Prices
from sevenfold.core.events import Failed, Notice, Progress
from sevenfold.core.messages import user
from sevenfold.core.protocols import Change
from sevenfold.core.request import KEPT_WARM, Request, encode_prefix
from sevenfold.core.transcript import Mark, Results
from sevenfold.layers.l2_microcompaction.cache_expiry import (
    ASKING,
    HOUR,
    NEAR,
    CacheExpiry,
    CacheSituation,
    choose_cache_action,
)
from sevenfold.layers.parts import PlainConversation
from sevenfold.layers.shared.idle_gaps import GapCounts, load_prior_gaps
from sevenfold.session.spending import CacheWarmer, SpendingFile, make_minimal_request
from sevenfold.settings.layers import MicroSettings
from sevenfold.settings.schema import Settings
from sevenfold.simulator import LedgerRow, Script, parse_steps

pytestmark = pytest.mark.anyio
TICK = 15.0
MINUTE = 60.0


def gaps(*seconds: float, left: int = 0) -> GapCounts:
    found = GapCounts(left=float(left))
    for gap in seconds:
        found = found.after(gap)
    return found


class Away:
    """A conversation of 60,000 tokens whose user goes away, and the session's timer meanwhile."""

    def __init__(
        self,
        talk: Conversation,
        home: Path,
        *,
        seen: GapCounts | None = None,
        limit: float | None = 1.0,
        settings: MicroSettings | None = None,
        prices: Prices = PRICES,
        summing: Summing | None = None,
    ) -> None:
        self.talk, self.home = talk, home
        self.spending = SpendingFile(home, limit, talk.clock)
        self._options = (settings or MicroSettings(), prices, seen or GapCounts(), summing)
        self.turn = talk.turn(size=60_000)
        self.layer = self.new_layer()

    def new_layer(self) -> CacheExpiry:
        settings, prices, seen, summing = self._options
        talk = self.talk
        conversation = PlainConversation(talk.model)
        warmer = CacheWarmer(conversation, talk.accounts, PRICES, self.spending, talk.events.append)
        parts = make_parts(
            conversation=conversation,
            events=talk.events,
            prices=prices,
            settings=Settings(micro=settings),
            cached_until=talk.accounts.warmth.until,
            idle_gaps=lambda: seen,
            keep_warm=warmer,
        )
        return CacheExpiry(parts, summing)

    async def talk_first(self) -> None:
        await self.turn.run(user("read them all"))

    async def wait(self, seconds: float) -> None:
        clock, log = self.talk.clock, self.turn.transcript
        for _ in range(int(seconds / TICK)):
            clock.advance(TICK)
            idle = clock.now() - (log.view.replied_at or 0.0)
            if handed := await self.layer(self.turn.request, idle):
                log.add(*handed, by="PreCold")

    async def come_back(self) -> LedgerRow:
        self.talk.sim.api.replies = reading(0)
        await self.turn.run(user("thanks"))
        return self.talk.sim.ledger[-1]

    @property
    def sent(self) -> list[LedgerRow]:
        return [row for row in self.talk.sim.ledger.rows if row.source == "keep-warm"]

    @property
    def explained(self) -> list[str]:
        return [event.said for event in self.talk.of(Progress)]


@asynccontextmanager
async def away(home: Path, **options: Any) -> AsyncIterator[Away]:
    frame = options.pop("frame", FRAME)
    async with conversation(reading(4), frame=frame) as talk:
        one = Away(talk, home, **options)
        await one.talk_first()
        yield one


# --- what it saves -------------------------------------------------------------------------------------


async def test_a_user_who_is_away_for_six_minutes_finds_the_cache_warm_and_pays_less(
    tmp_path: Path,
) -> None:
    async with away(tmp_path / "a") as kept:
        await kept.wait(6 * MINUTE)
        back = await kept.come_back()
        with_it = kept.talk.sim.ledger.total.cost
    async with away(tmp_path / "b", settings=MicroSettings(keep_warm=0)) as lost:
        await lost.wait(6 * MINUTE)
        cold = await lost.come_back()
        without = lost.talk.sim.ledger.total.cost

    assert len(kept.sent) == 1
    assert not lost.sent
    assert back.hit_rate > 0.99
    assert cold.hit_rate == 0
    rewritten = cold.tokens.cache_write_5m * (1.25 - 0.1) * 5 / 1_000_000
    assert without - with_it == pytest.approx(rewritten - (kept.sent[0].cost or 0), rel=0.05)


async def test_a_user_who_is_away_for_two_hours_costs_two_requests_at_most(tmp_path: Path) -> None:
    async with away(tmp_path) as one:
        await one.wait(120 * MINUTE)
        assert 1 <= len(one.sent) <= 2
        assert sum(row.cost or 0 for row in one.sent) < 0.1


@pytest.mark.parametrize("most", [0, 1, 3])
async def test_no_more_requests_in_a_row_than_the_setting_says(tmp_path: Path, most: int) -> None:
    loyal = gaps(*[16 * MINUTE] * 400)
    async with away(tmp_path, seen=loyal, settings=MicroSettings(keep_warm=most)) as one:
        one.turn.transcript.add(user("(a reply that nothing can be written behind)"))
        await one.wait(120 * MINUTE)
        assert len(one.sent) <= most
        if most == 3:
            assert len(one.sent) == 3


async def test_half_an_hour_is_bridged_by_one_request_that_is_kept_for_an_hour(tmp_path: Path) -> None:
    async with away(tmp_path, seen=gaps(*[30 * MINUTE] * 100)) as one:
        await one.wait(30 * MINUTE)
        (sent,) = one.sent
        assert sent.tokens.cache_write_1h > 0
        assert sent.tokens.cache_write_5m == 0
        back = await one.come_back()
        assert back.hit_rate > 0.99
        assert "chosen: an hour" in one.explained[0]


async def test_what_is_kept_for_an_hour_is_kept_for_another_by_reading_it(tmp_path: Path) -> None:
    seen = gaps(*[40 * MINUTE] * 200, *[100 * MINUTE] * 200)
    async with away(tmp_path, seen=seen) as one:
        await one.wait(100 * MINUTE)
        assert len(one.sent) == 2
        kept = one.turn.transcript.view.marks[KEPT_WARM]
        assert kept["until"] == pytest.approx(one.sent[1].at + HOUR)
        back = await one.come_back()
        assert back.hit_rate > 0.99


async def test_the_next_silence_is_counted_anew(tmp_path: Path) -> None:
    async with away(tmp_path, settings=MicroSettings(keep_warm=1)) as one:
        await one.wait(6 * MINUTE)
        await one.come_back()
        await one.wait(6 * MINUTE)
        assert len(one.sent) == 2


# --- where it stops ------------------------------------------------------------------------------------


async def test_the_daily_limit_stops_it_and_says_so_once(tmp_path: Path) -> None:
    async with away(tmp_path, limit=0.01) as one:
        await one.wait(4 * 60 * MINUTE)
        assert not one.sent
        (told,) = one.talk.of(Notice)
        assert "dailyBackgroundLimit" in told.text


async def test_what_was_spent_stands_in_the_ledger_of_the_day(tmp_path: Path) -> None:
    async with away(tmp_path) as one:
        await one.wait(6 * MINUTE)
        (sent,) = one.sent
        assert one.spending.today.spent == pytest.approx(sent.cost)
        assert one.spending.today.by == {"keep-warm": pytest.approx(sent.cost)}
        assert one.talk.ledger.accounts["keep-warm"].requests == 1


async def test_without_a_price_it_does_nothing(tmp_path: Path) -> None:
    async with away(tmp_path, prices=Prices({}, {})) as one:
        await one.wait(10 * MINUTE)
        assert not one.sent
        assert not one.explained


async def test_a_small_context_is_not_worth_the_trouble(tmp_path: Path) -> None:
    async with conversation(reading(1)) as talk:
        one = Away(talk, tmp_path)
        await one.talk_first()
        await one.wait(10 * MINUTE)
        assert not one.explained


async def test_nothing_happens_before_the_end_is_near_nor_after_it(tmp_path: Path) -> None:
    async with away(tmp_path) as one:
        request, log = one.turn.request, one.turn.transcript
        for idle in (0.0, 60.0, NEAR * 300 - 1, 300.0, 301.0, 86_400.0):
            assert await one.layer(request, idle) == ()
        assert not one.explained
        assert await one.layer(request, NEAR * 300 + 1)
        assert log.view.replied_at is not None


async def test_the_life_counts_from_the_request_and_not_from_the_reply(tmp_path: Path) -> None:
    """A reply that took four minutes leaves one minute."""
    async with away(tmp_path) as one:
        talk = one.talk
        slow = reading(0)

        def reply(body: dict[str, Any]) -> Any:
            talk.clock.advance(240)
            return slow(body)

        talk.sim.api.replies = reply
        await one.turn.run(user("take your time"))
        await one.wait(15)
        assert not one.sent
        await one.wait(15)
        assert len(one.sent) == 1
        assert one.sent[0].hit_rate > 0.99


async def test_another_model_has_nothing_in_its_cache_to_keep(tmp_path: Path) -> None:
    async with away(tmp_path) as one:
        one.turn.frame = replace(one.turn.frame, model="claude-sonnet-5-5")
        await one.wait(10 * MINUTE)
        assert not one.sent
        assert not one.explained


async def test_a_request_that_fails_is_told_and_not_tried_again(tmp_path: Path) -> None:
    async with away(tmp_path) as one:
        one.talk.sim.api.script = Script(parse_steps('{"error": 529, "times": 9}'))
        await one.wait(10 * MINUTE)
        (failed,) = one.talk.of(Failed)
        assert failed.by == "keep-warm"
        assert len(one.sent) == 1
        assert one.spending.today.spent == 0


async def test_a_session_that_closes_does_not_wait_for_it(tmp_path: Path) -> None:
    async with away(tmp_path) as one, anyio.create_task_group() as tasks:
        started = anyio.Event()

        async def hang(body: dict[str, Any]) -> str:
            started.set()
            await anyio.sleep_forever()
            return ""

        one.talk.sim.api.replies = hang
        tasks.start_soon(one.wait, 5 * MINUTE)
        await started.wait()
        tasks.cancel_scope.cancel()
    assert not one.talk.of(Failed)
    assert one.spending.today.spent > 0  # it may have been billed: nobody can tell


async def test_without_a_ledger_nothing_is_spent(tmp_path: Path) -> None:
    (tmp_path / "home").write_bytes(b"")
    async with away(tmp_path / "home") as one:
        await one.wait(6 * MINUTE)
        assert not one.sent
        (failed,) = one.talk.of(Failed)
        assert "home" in failed.cause


# --- what it leaves behind -----------------------------------------------------------------------------


async def test_the_request_is_the_same_prefix_and_nothing_of_it_is_written(tmp_path: Path) -> None:
    async with away(tmp_path) as one:
        before, entries = encode_prefix(one.turn.request), len(one.turn.transcript.entries)
        small = make_minimal_request(one.turn.request)
        assert encode_prefix(small)[: len(before)] == before
        assert len(small.view) == len(one.turn.request.view) + 1
        assert (small.max_tokens, small.source) == (1, "keep-warm")

        await one.wait(6 * MINUTE)
        new = one.turn.transcript.entries[entries:]
        assert [type(e.what) for e in new] == [Mark]
        assert encode_prefix(one.turn.request) == before
        assert one.sent[0].tokens.output <= 1
        assert one.sent[0].tokens.cache_read > 60_000


async def test_a_resumed_session_goes_on_counting(tmp_path: Path) -> None:
    loyal = gaps(*[16 * MINUTE] * 400)
    async with away(tmp_path, seen=loyal, settings=MicroSettings(keep_warm=1)) as one:
        await one.wait(5 * MINUTE)
        kept = one.turn.transcript.view.marks[KEPT_WARM]
        assert kept["times"] == 1
        one.layer = one.new_layer()
        await one.wait(60 * MINUTE)
        assert len(one.sent) == 1


async def test_a_damaged_mark_is_no_mark(tmp_path: Path) -> None:
    async with away(tmp_path) as one:
        one.turn.transcript.add(Mark(KEPT_WARM, {"times": "many"}))
        await one.wait(6 * MINUTE)
        assert len(one.sent) == 1


async def test_it_explains_itself_in_money(tmp_path: Path) -> None:
    async with away(tmp_path) as one:
        await one.wait(5 * MINUTE)
        (said,) = one.explained
        assert "tokens is about to be lost" in said
        for way in ("let go", "keep warm", "an hour", "USD"):
            assert way in said


class Summing:
    """Offers one summary, and counts who takes it."""

    def __init__(self, *sums: float) -> None:
        self.sums, self.asked, self.made_one = sums, 0, 0

    def offered(self, request: Request, now: float) -> tuple[float, float, float, float] | None:
        self.asked += 1
        freed, saved, price, margin = self.sums
        return freed, saved, price, margin

    async def made(self) -> Sequence[Change]:
        self.made_one += 1
        return (Results({"t0": "[summed up]"}),)


async def test_a_summary_that_pays_by_the_silence_alone_is_made_and_handed_on(tmp_path: Path) -> None:
    late, summing = gaps(*[3 * HOUR] * 400), Summing(50_000, 0, 20_000, 2.5)
    async with away(tmp_path, seen=late, summing=summing) as one:
        handed = await one.layer(one.turn.request, 280.0)
        assert handed == (Results({"t0": "[summed up]"}),)
        assert summing.made_one == 1
        assert not one.sent
        assert "chosen: sum up" in one.explained[-1]


async def test_no_summary_is_made_where_another_way_is_cheaper(tmp_path: Path) -> None:
    soon, summing = gaps(*[6 * MINUTE] * 400), Summing(10_000, 0, 4_000, 2.5)
    async with away(tmp_path, seen=soon, summing=summing) as one:
        await one.wait(6 * MINUTE)
        assert (summing.asked, summing.made_one, len(one.sent)) == (1, 0, 1)


# --- the decision --------------------------------------------------------------------------------------


def situation(found: GapCounts, **other: Any) -> CacheSituation:
    fields: dict[str, Any] = {
        "tokens": 100_000,
        "idle": 270.0,
        "expires": 300.0,
        "life": 300.0,
        "gaps": found,
        "read": 0.1,
        "write": 1.25,
        "write_hour": 2.0,
        "output": 5.0,
    }
    return CacheSituation(**{**fields, **other})


def test_somebody_who_never_comes_back_is_not_waited_for() -> None:
    assert choose_cache_action(situation(gaps(60, left=100), fresh=500)).way == "let go"


def test_somebody_who_is_back_in_time_anyway_is_not_paid_for() -> None:
    assert choose_cache_action(situation(gaps(*[280] * 50), expires=310)).way == "let go"


def test_somebody_who_is_back_in_six_minutes_is_kept_warm_for() -> None:
    choice = choose_cache_action(situation(gaps(*[360] * 50), fresh=500))
    assert choice.way == "keep warm"
    assert choice.costs["keep warm"] == pytest.approx(100_000 * 0.1 + ASKING + 5)
    assert choice.costs["let go"] == pytest.approx(100_000 * 1.15)


def test_somebody_who_is_back_in_forty_minutes_gets_an_hour() -> None:
    assert choose_cache_action(situation(gaps(*[2_400] * 50), fresh=500)).way == "an hour"


def test_an_hour_needs_something_new_to_write() -> None:
    assert "an hour" not in choose_cache_action(situation(gaps(*[2_400] * 50), fresh=0)).costs
    assert "an hour" not in choose_cache_action(situation(gaps(*[2_400] * 50), fresh=9, life=HOUR)).costs


def test_a_model_that_thinks_before_one_word_is_too_dear_to_keep_warm() -> None:
    assert choose_cache_action(situation(gaps(*[480] * 50), answer=1)).way == "keep warm"
    assert choose_cache_action(situation(gaps(*[480] * 50), answer=32_001)).way == "let go"


def test_what_an_hour_costs_follows_the_price_of_writing_for_an_hour() -> None:
    dear = choose_cache_action(situation(gaps(*[2_400] * 50), fresh=50_000)).costs["an hour"]
    cheap = choose_cache_action(situation(gaps(*[2_400] * 50), fresh=50_000, write_hour=1.25)).costs[
        "an hour"
    ]
    assert dear - cheap == pytest.approx(50_000 * 0.75)


def test_a_summary_has_to_save_so_many_times_its_price() -> None:
    """100,000 tokens, 80,000 of which it frees, for somebody who is back when the cache is cold."""
    late = gaps(*[9_000] * 50)
    offer = {"freed": 80_000, "price": 30_000, "left": 0}
    assert choose_cache_action(situation(late, margin=3, **offer)).way == "sum up", "saves 92,000"
    assert choose_cache_action(situation(late, margin=3.1, **offer)).way == "let go"
    assert choose_cache_action(situation(late, margin=3.1, saved=1_500, **offer)).way == "sum up"
    saves = choose_cache_action(situation(late, margin=3, **offer)).saves
    assert saves == pytest.approx(80_000 * 1.15 - 30_000)


def test_a_summary_for_somebody_who_does_not_come_back_is_money_lost() -> None:
    offer = {"freed": 80_000, "price": 30_000, "saved": 200_000, "margin": 2.5}
    assert "sum up" not in choose_cache_action(situation(gaps(60, left=100), **offer)).costs


def test_by_recorded_gaps_it_is_worth_being_there_for_a_while() -> None:
    choice = choose_cache_action(situation(load_prior_gaps(), fresh=500))
    assert choice.way != "let go"
    assert choice.saves > 0.15 * 100_000
