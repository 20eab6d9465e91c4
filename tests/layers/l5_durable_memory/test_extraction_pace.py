"""Extraction takes its time: what lasts is looked at once, the rest in batches, a short session never."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from layers.l5_durable_memory.learning import Learner, topic

from sevenfold.cache.prices import Prices
from sevenfold.core.messages import Text, assistant, user
from sevenfold.core.request import KEPT_WARM, TTL_SECONDS
from sevenfold.core.transcript import Replace, Reply, Undo
from sevenfold.layers.l5_durable_memory.extraction import LULL, Extraction, is_lasting
from sevenfold.settings.layers import ExtractionSettings
from sevenfold.storage.waiting_notes import CURSOR

pytestmark = pytest.mark.anyio
TABS = "Please use tabs in this repository."
AFTER_EACH_TURN = ExtractionSettings(batch=1, least_requests=0, patient=False)
INDENT = topic("tabs", "Indent with tabs in this repository.", "use tabs in this repository")


@pytest.fixture
def learner(tmp_path: Path) -> Learner:
    """Of a session of any length."""
    return Learner(tmp_path, ExtractionSettings(least_requests=0), prices=Prices.load())


@pytest.mark.parametrize(
    "text",
    [
        "Remember that the staging server is called kiwi",
        "never push to main without asking",
        "From now on answer in German, please",
        "I'm a data scientist, explain it without jargon",
        "we use pnpm here",
        "We decided to drop Python 3.9",
        "the code freeze begins on 3 March",
        "以后都用中文回答",
        "我们用的是 pnpm",
        "can you always answer in German?",
        "Could you never push to main, please?",
        "Would it help if we use pnpm from now on?",
        "Why don't we use pnpm from now on?",
        "Why does it fail? We use pnpm here.",
        "When you commit, always sign off, ok?",
        "the test always fails, right?",
        "Do always run the tests before you commit, ok?",
        "Have it always in UTC, ok?",
        "你能总是用中文回答吗？",
        "Запомни, что сервер называется киви",
        "다음부터는 한국어로 대답해 주세요",
    ],
)
def test_words_that_mean_more_than_this_session_do_not_wait(text: str) -> None:
    assert is_lasting(text)


@pytest.mark.parametrize(
    "text",
    [
        "continue",
        "ok, and now the tests",
        "fix the failing build",
        "why is that?",
        "继续",
        "run it again",
        "why does the loop never end?",
        "Fix it. And why does app.py always fail?",
        "which convention is that?",
        "who calls this whenever the file is saved?",
        "do we use pnpm, and is it always there?",
        "When is the deadline?",
        "has it always been like that?",
        "wann ist die Deadline?",
        "为什么总是失败？",
    ],
)
def test_words_about_the_task_at_hand_can_wait(text: str) -> None:
    assert not is_lasting(text)


async def test_a_turn_about_the_task_at_hand_waits_for_a_silence(learner: Learner) -> None:
    learner.say("Fix the failing build.")
    assert await learner.rest() == []
    assert await learner.silent(LULL - 1) == []
    assert not learner.model.requests

    learner.kept_until = learner.clock.time + TTL_SECONDS["5m"]
    learner.says("Nothing to save.")
    cursor, kept = await learner.silent(LULL)
    assert (cursor.name, cursor.value) == (CURSOR, {"last": learner.view[-1].id})
    assert kept.name == KEPT_WARM, "the look has read the prefix, and layers must not take it for cold"
    assert kept.value == {"since": learner.view.replied_at, "until": learner.kept_until}
    assert len(learner.model.requests) == 1
    assert await learner.silent(2 * LULL) == [], "once"


async def test_what_lasts_is_looked_at_with_all_that_waited(learner: Learner) -> None:
    learner.say("Fix the failing build.")
    await learner.rest()
    learner.say("Always run the linter first.")
    assert await learner.rest() == []
    learner.says("Nothing to save.")
    assert await learner.silent(math.inf)
    assert '<since entry="0"/>' in learner.asked[-1]
    assert await learner.silent(math.inf) == []


@pytest.mark.parametrize("text", ["Step, please.", "Always do it in steps."])
async def test_so_many_turns_wait_and_no_more(learner: Learner, text: str) -> None:
    learner.says("Nothing to save.")
    for _ in range(ExtractionSettings().batch):
        assert not learner.model.requests
        learner.say(text)
        await learner.rest()
    assert len(learner.model.requests) == 1


async def test_a_short_session_in_which_nothing_lasting_was_said_spends_nothing(tmp_path: Path) -> None:
    learner = Learner(tmp_path, prices=Prices.load())
    least = ExtractionSettings().least_requests
    for n in range(least - 1):
        learner.say(f"Step {n}, please.")
        assert await learner.rest() == []
    assert await learner.silent(math.inf) == []
    assert not learner.model.requests

    learner.resume()
    learner.say("One more step, please.")
    learner.says("Nothing to save.")
    assert await learner.rest(), "what was left is looked at when the session goes on"
    assert '<since entry="0"/>' in learner.asked[-1]


async def test_what_lasts_is_looked_at_in_a_short_session_too(tmp_path: Path) -> None:
    learner = Learner(tmp_path, prices=Prices.load())
    learner.say("Always run the linter first.")
    assert await learner.rest() == [], "with the batch, or in the end"
    learner.says("Nothing to save.")
    assert await learner.silent(math.inf)


async def test_without_patience_a_silence_is_no_reason_to_look(tmp_path: Path) -> None:
    settings = ExtractionSettings(least_requests=0, patient=False)
    learner = Learner(tmp_path, settings, prices=Prices.load())
    learner.say("Fix the failing build.")
    await learner.rest()
    learner.kept_until = learner.clock.time + TTL_SECONDS["5m"]
    assert await learner.silent(LULL) == []
    learner.says("Nothing to save.")
    assert await learner.silent(math.inf)


async def test_the_end_of_a_session_is_a_silence_that_does_not_end(learner: Learner) -> None:
    learner.say("Fix the failing build.")
    await learner.rest()
    learner.says("Nothing to save.")
    assert await learner.silent(math.inf)


async def test_after_a_crash_what_waited_is_looked_at_when_the_session_goes_on(learner: Learner) -> None:
    learner.say("Fix the failing build.")
    await learner.rest()
    learner.resume()
    learner.say("Always run the linter first.")
    await learner.rest()
    learner.says("Nothing to save.")
    await learner.silent(math.inf)
    assert '<since entry="0"/>' in learner.asked[-1]


@pytest.mark.parametrize(
    ("settings", "prices"),
    [(AFTER_EACH_TURN, Prices.load()), (ExtractionSettings(), None)],
    ids=["as it is set", "where tokens cost nothing"],
)
async def test_nothing_waits(tmp_path: Path, settings: ExtractionSettings, prices: Prices | None) -> None:
    learner = Learner(tmp_path, settings, prices=prices)
    learner.say("Fix the failing build.")
    learner.says("Nothing to save.")
    assert await learner.rest()


async def test_what_waited_when_a_summary_took_its_place_can_still_be_learned(learner: Learner) -> None:
    learner.say(TABS)
    assert await learner.rest() == []
    summary = user(f"A summary. The user said: {TABS}")
    learner.log.add(Replace(learner.view[0].id, learner.view[-1].id, (summary,)), by="Compaction")

    told = await learner.learn(learner.write("tabs.md", INDENT), after=math.inf)

    assert "not done" not in told[0]
    assert "Indent with tabs" in (learner.memory / "tabs.md").read_text(encoding="utf-8")


async def test_a_prefix_that_is_gone_is_not_paid_for_again_to_look_through_it(learner: Learner) -> None:
    learner.say("Fix the failing build.")
    await learner.rest()
    learner.says("Nothing to save.")
    for until in (None, learner.clock.time, learner.clock.time - 60):
        learner.kept_until = until
        assert await learner.silent(8 * 3_600) == []
    assert await learner.silent(math.inf), "the next turn, or the end, makes up for it"


async def test_a_long_reply_takes_its_time_off_the_silence(learner: Learner) -> None:
    learner.say("Fix the failing build.")
    await learner.rest()
    learner.kept_until = learner.clock.time + TTL_SECONDS["5m"] - 80  # the reply took 80 seconds
    assert await learner.silent(0.0) == []
    learner.clock.time += LULL - 80
    learner.says("Nothing to save.")
    assert await learner.silent(LULL - 80), "the prefix lives from the start of its request"


async def test_what_the_agent_saved_itself_does_not_count_for_the_turns_before(learner: Learner) -> None:
    learner.say("By the way, the staging server is called kiwi.")
    await learner.rest()
    learner.log.add(user("Remember: tabs."))
    path = str(learner.memory / "tabs.md")
    learner.result("t1", "Created it.", "Write", file_path=path, content="…")
    learner.log.add(Reply(assistant(Text("Saved."))), by="model")
    assert await learner.rest() == []
    learner.says("Nothing to save.")
    assert await learner.silent(math.inf)
    assert len(learner.model.requests) == 1


async def test_nothing_is_written_in_a_silence_in_which_nothing_was_asked(tmp_path: Path) -> None:
    settings = ExtractionSettings(least_requests=0)
    learner = Learner(tmp_path, settings, prices=Prices.load(), mode="plan")
    learner.say("Fix the failing build.")
    await learner.rest()
    learner.kept_until = learner.clock.time + 3_600
    for tick in range(20):
        assert await learner.silent(LULL + 15 * tick) == []
    assert not learner.model.requests


async def test_a_layer_that_is_made_anew_goes_on_where_the_old_one_was(learner: Learner) -> None:
    learner.say("Fix the failing build.")
    await learner.rest()
    learner.layer = Extraction(learner.parts)
    assert learner.layer.waiting
    learner.says("Nothing to save.")
    assert await learner.silent(math.inf)


async def test_words_that_were_taken_back_are_no_source_also_when_a_summary_spans_them(
    learner: Learner,
) -> None:
    learner.say("Fix the failing build.")
    await learner.rest()
    learner.say(TABS)
    taken_back = frozenset(placed.id for placed in learner.view.since(learner.view[1].id))
    learner.log.add(Undo(taken_back), by="session")
    learner.say("And the tests.")
    summary = Replace(learner.view[0].id, learner.view[-1].id, (user(f"A summary. {TABS}"),))
    learner.log.add(summary, by="Compaction")

    told = await learner.learn(learner.write("tabs.md", INDENT), after=math.inf)

    assert "not done" in told[0]
    assert not (learner.memory / "tabs.md").exists()


async def test_what_was_undone_and_not_summed_up_is_no_source(learner: Learner) -> None:
    learner.say("Fix the failing build.")
    await learner.rest()
    learner.say(TABS)
    first = learner.view[2].id
    learner.log.add(Replace(first, learner.view[-1].id, ()), by="user")

    told = await learner.learn(learner.write("tabs.md", INDENT), after=math.inf)

    assert "not done" in told[0]
    assert not (learner.memory / "tabs.md").exists()
