"""A summary before the window is full: only when it pays, never by force, never soon after another."""

from __future__ import annotations

import pytest
from layers.l4_compaction.summaries import FRAME, Compacting, edits, rounds, summary
from msgspec.structs import replace

from sevenfold.cache.prices import Prices
from sevenfold.cli.output import EventNarrator
from sevenfold.core.errors import Failure, KeyRefused, StorageFailure
from sevenfold.core.events import Compacted, Failed, Notice, Progress
from sevenfold.core.messages import Message, Text, assistant, user
from sevenfold.core.protocols import Capabilities
from sevenfold.core.tokens import Thresholds, Usage
from sevenfold.core.transcript import Mark, PlacedMessage, Reply, Results, Transcript
from sevenfold.hooks.hooks import HookOutcome
from sevenfold.layers.l4_compaction.plan import (
    AGAIN,
    ANSWER,
    BREAKER,
    CALL,
    LEFT,
    NEEDED,
    CompactionBreaker,
    CompactionPlan,
    SummaryRates,
    estimate_worth,
    is_turn_start,
    make_plan,
    plan_everything,
)
from sevenfold.layers.shared.boundary import find_last_boundary
from sevenfold.layers.shared.restore import CompactionCut, CompactionHooks, Restorer
from sevenfold.settings.layers import CompactionSettings, Switches

pytestmark = pytest.mark.anyio
PRICED = replace(FRAME, model="claude-opus-4-5")
RATES = SummaryRates(write=1.25, read=0.1, output=5.0)
APART = 8
SETTINGS = CompactionSettings(replies_apart=APART)


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
    known = {"script": [summary()] * 2, "window": 200_000, "frame": PRICED, "settings": SETTINGS, **fields}
    return Compacting(log=log, **known)  # type: ignore[arg-type]


# --- when -----------------------------------------------------------------------------------------------


async def test_a_summary_that_pays_is_made_when_the_user_speaks() -> None:
    talk = compacting(long_talk())
    handed = await talk.fit()

    assert len(edits(handed)) == 1
    boundary = find_last_boundary(talk.log.view)
    assert boundary is not None
    assert boundary.trigger == "price"
    assert talk.texts[0].startswith("<summary>")
    assert talk.texts[-1] == "now test it"


@pytest.mark.parametrize(
    "fields",
    [
        {"settings": CompactionSettings(by_size=False)},
        {"settings": CompactionSettings(turn_tokens=150_000)},
        {"settings": CompactionSettings(margin=50.0)},
        {"frame": FRAME},
        {"frame": replace(FRAME, model="offline")},
        {"options": {"switches": Switches(compact=False)}},
        {"options": {"can_wait": False}},
    ],
    ids=["off", "too small", "too dear", "no price", "for free", "no compaction", "no time"],
)
async def test_else_the_view_is_left_alone(fields: dict[str, object]) -> None:
    talk = compacting(long_talk(), **fields)

    assert await talk.fit() == []
    assert talk.model.requests == []


@pytest.mark.parametrize("window", [200_000, 1_000_000])
async def test_the_size_decides_the_same_in_every_window_and_later_in_the_middle_of_a_task(
    window: int,
) -> None:
    able = {"window": window, "able": Capabilities(window=window)}
    small, large = SETTINGS.turn_tokens - 5_000, SETTINGS.turn_tokens + 5_000
    assert await compacting(long_talk(small), **able).fit() == []
    assert edits(await compacting(long_talk(large), **able).fit())

    busy = long_talk(large)
    rounds(busy, 1, first=100)
    assert await compacting(busy, **able).fit() == []
    larger = long_talk(SETTINGS.task_tokens + 5_000)
    rounds(larger, 1, first=100)
    assert edits(await compacting(larger, **able).fit())


async def test_a_small_context_is_not_worth_it() -> None:
    assert await compacting(long_talk(60_000)).fit() == []


@pytest.mark.parametrize("error", [KeyRefused("no"), StorageFailure("the disk is full")])
async def test_a_failed_try_leaves_everything_as_it_was_and_is_not_made_up_for_by_a_digest(
    error: Failure,
) -> None:
    talk = compacting(long_talk(), script=[error] * 9)
    handed = await talk.fit()

    assert edits(handed) == []
    assert talk.of(Failed)
    assert talk.of(Progress)[-1].done
    tries = len(talk.model.requests)
    assert await talk.fit() == [], "not again at once"
    for _ in range(4):
        chat(talk.log, APART)
        await talk.fit()
    assert len(talk.model.requests) == 3 * tries, "after three failures it is not tried any more"
    assert "failures" not in talk.log.view.marks[BREAKER], "a full window is another matter"


# --- the brake ------------------------------------------------------------------------------------------


def chat(t: Transcript, replies: int, size: int = 100) -> None:
    """So many short answers, and then the user has the word."""
    for i in range(replies):
        t.add(Reply(assistant(Text(f"answer {i} " + "word " * (size // 5)))), by="model")
        t.add(user("and now?"))


async def test_two_that_pay_never_come_close_together() -> None:
    talk = compacting(long_talk(), script=[summary()] * 9)
    assert edits(await talk.fit())

    chat(talk.log, APART - 1, size=80_000)
    assert talk.tokens > 100_000, "it would pay"
    assert await talk.fit() == []
    chat(talk.log, 1)
    assert edits(await talk.fit())


async def test_none_comes_soon_after_a_compaction_by_hand() -> None:
    talk = compacting(long_talk(), script=[summary()] * 9)
    assert edits(await talk.compact())

    chat(talk.log, APART - 1, size=80_000)
    assert await talk.fit() == []
    chat(talk.log, 1)
    assert edits(await talk.fit())


async def test_a_window_that_is_really_full_gets_its_summary_after_any_number_that_paid() -> None:
    talk = compacting(long_talk(), script=[summary()] * 9)
    for _ in range(5):
        assert edits(await talk.fit())
        chat(talk.log, APART, size=70_000)
    state = talk.log.view.marks[BREAKER]
    assert {"at", "refills", "failures"}.isdisjoint(state), "they are not counted as full windows"

    chat(talk.log, 8, size=80_000)
    assert edits(await talk.fit())
    boundary = find_last_boundary(talk.log.view)
    assert boundary is not None
    assert (boundary.by, boundary.trigger) == ("summary", "auto")
    assert talk.of(Notice) == []


async def test_a_full_window_long_after_another_is_not_full_again_at_once() -> None:
    """The one that paid in between took the replies out of the view that would have been counted."""
    talk = compacting(long_talk(190_000), script=[summary()] * 9)
    for _ in range(4):
        assert edits(await talk.fit())
        boundary = find_last_boundary(talk.log.view)
        assert boundary is not None
        assert (boundary.by, boundary.trigger) == ("summary", "auto")
        chat(talk.log, APART, size=70_000)
        assert edits(await talk.fit())
        chat(talk.log, 2, size=400_000)
    assert talk.of(Notice) == []


async def test_none_is_made_while_the_breaker_is_open() -> None:
    talk = compacting(long_talk())
    talk.log.add(CompactionBreaker(PRICED.model, failures=3).mark, by="Compaction")

    assert await talk.fit() == []
    assert talk.model.requests == []


async def test_none_is_made_where_something_has_left_the_view_in_this_pass() -> None:
    talk = compacting(long_talk())
    warm = talk.log.view
    talk.log.add(Mark("anything", 1), by="Microcompaction")
    marked = replace(talk.request, warm=warm)
    assert await talk.layer.fit(marked, talk.pressure()), "a mark changes nothing"

    talk.log.add(Results({"u3": "cleared"}), by="Microcompaction")
    asked = len(talk.model.requests)
    assert await talk.layer.fit(replace(talk.request, warm=warm), talk.pressure()) == ()
    assert len(talk.model.requests) == asked


# --- what it must come to -------------------------------------------------------------------------------


async def test_one_that_loses_too_much_is_not_used_and_the_brake_holds() -> None:
    talk = compacting(long_talk(), score=lambda gone, there: 0.49)

    assert edits(await talk.fit()) == []
    assert "fidelity 0.49" in talk.of(Failed)[0].cause
    assert talk.of(Progress)[-1].done
    assert await talk.fit() == []
    assert len(talk.model.requests) == 1


async def test_one_that_frees_too_little_is_not_used() -> None:
    class Long:
        """A message that comes back whatever the room."""

        def stands(self, placed: PlacedMessage) -> bool:
            return False

        def again(self, cut: CompactionCut, room: int) -> list[Message]:
            return [user("context " * 50_000)]

    talk = compacting(long_talk(), options={"restorer": Restorer(standing=Long())})

    assert edits(await talk.fit()) == []
    assert "were expected" in talk.of(Failed)[0].cause
    assert talk.of(Compacted) == []


@pytest.mark.parametrize(("pasted", "made"), [(0, True), (70_000, False)])
async def test_what_the_user_has_pasted_stays_so_it_is_not_counted_as_freed(
    pasted: int, made: bool
) -> None:
    t = Transcript(lambda: 0.0)
    t.add(user("look at this: " + "line " * int(pasted * 0.8)))
    rounds(t, 40, size=(120_000 - pasted) // 40 * 4)
    t.add(Reply(assistant(Text("It is fine.")), Usage(input=120_000)), by="model")
    t.add(user("thanks"))
    talk = compacting(t)

    assert bool(edits(await talk.fit())) is made
    assert bool(talk.of(Progress)) is made, "nothing is announced that does not come"


async def test_a_hook_that_refuses_is_not_asked_again_at_once() -> None:
    asked: list[str] = []

    async def refuse(trigger: str, instructions: str) -> HookOutcome:
        asked.append(trigger)
        return HookOutcome(block=True, reason="not now")

    talk = compacting(long_talk(), options={"hooks": CompactionHooks(refuse)})
    assert edits(await talk.fit()) == []
    assert await talk.fit() == []
    assert asked == ["auto"]
    assert len(talk.of(Notice)) == 1
    chat(talk.log, APART)
    await talk.fit()
    assert len(asked) == 2
    assert len(talk.of(Notice)) == 1, "it is said once"


def test_people_read_why() -> None:
    [line] = EventNarrator().describe_event(Compacted("summary", "price", 120_000, 21_000, 0.93))
    assert line.text.endswith("because it pays (compaction.bySize turns it off)")
    [line] = EventNarrator().describe_event(Compacted("summary", "auto", 120_000, 21_000, 0.93))
    assert "pays" not in line.text


async def test_a_fork_is_never_compacted_by_price() -> None:
    talk = compacting(long_talk())
    request = replace(talk.request, source="fork:notes")

    assert await talk.layer.fit(request, talk.pressure()) == ()


def test_a_turn_begins_when_the_user_has_the_last_word() -> None:
    assert is_turn_start(long_talk().view)
    assert not is_turn_start(long_talk(asked=False).view)
    assert not is_turn_start(Transcript(lambda: 0.0).view)


# --- the sums -------------------------------------------------------------------------------------------


def planned_for(talk: Compacting, **fields: object) -> CompactionPlan:
    found = make_plan(talk.request, talk.pressure(**fields), "price", talk.able)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_the_sums_by_hand() -> None:
    log = long_talk(120_000, asked=False)
    log.add(user("now test it" * 1_000))
    talk = compacting(log)
    planned = planned_for(talk)
    tokens, count = talk.tokens, log.view.calibration.tokens
    fresh, reply = count(log.view[-1].size), count(log.view[-2].size)
    warm = estimate_worth(planned, RATES, SETTINGS)

    assert planned.cut == len(log.view) - 2, "the newest round stays"
    freed = planned.removed - LEFT
    assert warm.freed == freed
    assert warm.saving == pytest.approx(freed * 0.1 * SETTINGS.requests_ahead)
    again = (tokens - freed) * 0.1 + CALL + NEEDED * 1.25
    asking = (tokens - fresh) * 0.1 + fresh * 1.25 + ANSWER * 5
    written = LEFT * 1.25 + reply * 1.15
    assert warm.price == pytest.approx(asking + written + AGAIN * again, abs=5)
    assert warm.times == pytest.approx(warm.saving / warm.price)

    whole = replace(SETTINGS, record_characters=0)
    cold = estimate_worth(planned_for(talk, warm=False), RATES, whole)
    assert cold.saving - warm.saving == pytest.approx(freed * 1.15), "it need not be written again"
    assert cold.price > warm.price, "but nothing of the question is in the cache"
    short = estimate_worth(planned_for(talk, warm=False), RATES, SETTINGS)
    record = sum(min(len(r.text), 2_000) for p in planned.stretch for r in p.message.results) / 4
    assert cold.price - short.price == pytest.approx(tokens - record, rel=0.05), "a record is shorter"


async def test_on_a_cold_cache_it_is_asked_for_on_a_record_with_what_tools_said_cut_short() -> None:
    talk = compacting(long_talk(SETTINGS.cold_tokens + 5_000))
    assert await talk.fit() == [], "too small while the cache is warm"

    assert edits(list(await talk.layer.fit(talk.request, talk.pressure(warm=False))))
    [asked] = talk.model.requests
    [record, directive] = [placed.message.text for placed in asked.view]
    assert asked.frame.tools == ()
    assert record.startswith("<record>")
    assert len(record) < SETTINGS.cold_tokens * 4 / 2
    assert "build everything" in record
    assert 'kind="compact-plain"' in directive


def test_what_the_user_said_takes_room_in_what_takes_the_place() -> None:
    planned = planned_for(compacting(long_talk()))
    few = estimate_worth(planned, RATES, SETTINGS, 1_000)
    many = estimate_worth(planned, RATES, SETTINGS, 40_000)

    assert few == estimate_worth(planned, RATES, SETTINGS), "some are expected"
    assert few.freed - many.freed == ANSWER + 40_000 - LEFT
    assert many.times < few.times


def test_nothing_pays_better_than_keeping_nothing() -> None:
    """So the sums for all of it say, cheaply, when there is no need to look for a cut."""
    log = long_talk()
    rounds(log, 1, size=40_000, first=100)
    talk = compacting(log)
    whole = plan_everything(talk.request, talk.pressure(), "price")

    assert planned_for(talk).cut < whole.cut
    assert (
        estimate_worth(whole, RATES, SETTINGS).times
        > estimate_worth(planned_for(talk), RATES, SETTINGS).times
    )


def test_all_constants_shrink_with_the_window() -> None:
    small = compacting(long_talk(12_000), window=20_000)
    large = compacting(long_talk(120_000))
    sums, tenfold = (estimate_worth(planned_for(one), RATES, SETTINGS) for one in (small, large))

    assert sums.times == pytest.approx(tenfold.times, rel=0.1)


def test_prices_are_those_of_the_model_and_the_lifetime() -> None:
    price = Prices.load().of("claude-opus-4-5")
    assert price
    assert SummaryRates.of(price, "5m", caches=True) == SummaryRates(1.25, 0.1, 5.0)
    assert SummaryRates.of(price, "1h", caches=True).write == 2.0
    assert SummaryRates.of(price, "5m", caches=False) == SummaryRates(1.0, 1.0, 5.0)
    assert Thresholds.of(200_000, 32_000).auto_compact > SETTINGS.task_tokens
    assert Capabilities().caches_prompts
