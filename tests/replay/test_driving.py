"""A recorded session driven again: what it would have cost, to the token, and what was missed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import pytest
from msgspec.structs import replace
from replay.sessions import count_charged

from sevenfold.cache.prefix import make_frontier_mark
from sevenfold.cache.prices import Prices
from sevenfold.core.messages import Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Change, Layers
from sevenfold.core.request import Frame, Request, Ttl
from sevenfold.core.tokens import Pressure, Thresholds, Usage
from sevenfold.core.transcript import Mark, Replace, Reply, Results, Transcript
from sevenfold.layers.parts import LayerParts
from sevenfold.recordings.claude_code import read_session
from sevenfold.recordings.recorded_session import BY_RULE, LEFT, convert_recording
from sevenfold.replay.costs import compute_token_rates, estimate_message
from sevenfold.replay.driver import ANALYSIS, CALL_OUTPUT, SessionDrive, drive_session
from sevenfold.replay.outcome import ReplayOutcome
from sevenfold.replay.policies import Policy, load_policy
from sevenfold.settings.layers import Switches
from sevenfold.testing import FakeClock

SESSIONS = Path(__file__).parents[2] / "../shared/data/sessions"
UNSEEN = 10_000
"""Tokens of the system prompt and the tools."""
RATE = 1.25
"""Real tokens for an estimated one, everywhere in these sessions."""


class Recorded:
    """A session written by hand, with the usage that a provider would have reported for it."""

    def __init__(self, read_first: int = 0) -> None:
        self.clock = FakeClock(0.0)
        self.log = Transcript(self.clock.now)
        self.read_first = read_first
        self.parts: list[int] = []
        """Real tokens of each message."""
        self.prompts: list[int] = []
        """Real tokens of each request."""

    @property
    def prompt(self) -> int:
        return UNSEEN + sum(self.parts)

    def _grow(self, message: Message) -> None:
        self.parts.append(round(estimate_message(message) * RATE))

    def says(self, characters: int, after: float = 1.0) -> None:
        self.clock.time += after
        message = user("w" * characters)
        self.log.add(message)
        self._grow(message)

    def replies(self, *uses: ToolUse, text: str = "so be it", output: int = 10) -> None:
        self.clock.time += 1.0
        said = assistant(Text(text), *uses)
        first = not any(isinstance(e.what, Reply) for e in self.log.entries)
        read = self.read_first if first else 0
        usage = Usage(cache_read=read, cache_write=self.prompt - read, output=output)
        self.log.add(Reply(said, usage), by="model")
        self.prompts.append(self.prompt)
        self._grow(said)

    def result(self, id: str, text: str) -> None:
        self.replies(ToolUse(id, "Read", {"file_path": f"/{id}"}), text=f"reading {id}")
        self.clock.time += 1.0
        message = Message("user", (ToolResult(id, text),))
        self.log.add(message, by="tools")
        self._grow(message)

    def leaves(self, after: float) -> None:
        """Asks something on a branch that the user leaves."""
        self.clock.time += after
        self.log.add(Mark(LEFT, None), by="recorded")

    def edits(self, old: str) -> None:
        self.replies(ToolUse("e", "Edit", {"file_path": "/x", "old_string": old}), text="now")
        message = Message("user", (ToolResult("e", "done"),))
        self.log.add(message, by="tools")
        self._grow(message)


def nothing(parts: LayerParts) -> Layers:
    return Layers()


MODEL = "claude-opus-4-5"
PRICE = Prices.load().of(MODEL)
assert PRICE
KEEPING_WARM = 70
"""About as many tokens as the question has that only keeps warm."""


def driven(
    recorded: Recorded,
    layers: Callable[[LayerParts], Layers] = nothing,
    ttl: Ttl = "5m",
    keep_warm: int = 0,
    compacts: bool = False,
) -> ReplayOutcome:
    assert PRICE
    frame, thresholds = Frame(MODEL, ttl=ttl), Thresholds.of(200_000, 32_000)
    entries = recorded.log.entries
    policy = Policy(
        keep_warm=keep_warm, compactions="own" if compacts else "recorded", flags=Switches(extraction=False)
    )
    return SessionDrive(entries, policy, frame, thresholds, PRICE, layers=layers).run()


class Clear:
    """Clears these results, each as soon as there are so many replies."""

    def __init__(self, when: dict[str, int]) -> None:
        self._when = when

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        view = request.view
        replies = sum(placed.by == "model" for placed in view)
        due = [use for use, n in self._when.items() if n == replies and view.result_at(use)]
        if not due:
            return ()
        first = view.result_at(due[0]) or 0
        return Results(dict.fromkeys(due, "[cleared]")), make_frontier_mark(view, first, len(view))


def clear(**when: int) -> Callable[[LayerParts], Layers]:
    return lambda parts: Layers(fit=(Clear(when),))


# --- counting -------------------------------------------------------------------------------------------


def test_the_real_tokens_are_worked_out_from_what_was_reported() -> None:
    recorded = Recorded(read_first=4_000)
    recorded.says(4_000)
    recorded.result("r1", "x" * 40_000)
    recorded.replies()
    known = compute_token_rates(recorded.log.entries)

    assert known.unseen == UNSEEN
    assert known.known == 4_000
    assert known.usual == pytest.approx(RATE, rel=0.01)
    assert known.rate(2) == pytest.approx(RATE, rel=0.01)
    assert known.rate(999) == known.usual


def test_a_difference_that_makes_no_sense_teaches_nothing() -> None:
    recorded = Recorded()
    recorded.says(4_000)
    recorded.result("r1", "x" * 40_000)
    recorded.parts.append(90_000)  # something that is not in the file
    recorded.replies()
    known = compute_token_rates(recorded.log.entries)

    assert known.rates == {}
    assert known.usual == RATE


def test_after_a_compaction_what_is_unseen_is_worked_out_anew() -> None:
    recorded = Recorded()
    recorded.says(4_000)
    recorded.result("r1", "x" * 40_000)
    summary = user("s" * 8_000)
    [id] = recorded.log.add(Replace(0, recorded.log.entries[-1].id, (summary,)), by="compaction")
    recorded.parts = [round(estimate_message(summary) * RATE), -3_000]  # inherited history is gone too
    recorded.replies()
    known = compute_token_rates(recorded.log.entries)

    assert known.unseen == UNSEEN
    assert known.resets == {id: UNSEEN - 3_000}


def test_the_system_prompt_after_a_compaction_is_measured_with_the_session_s_own_rate() -> None:
    clock, rate = FakeClock(0.0), 0.9
    log = Transcript(clock.now)
    view = list[Message]()

    def tell(message: Message, *, replies: bool = False) -> int:
        used = Usage(cache_write=UNSEEN + round(rate * sum(map(estimate_message, view))), output=10)
        view.append(message)
        what = Reply(message, used) if replies else message
        return log.add(what, by="model" if replies else "user")[0]

    for n in range(8):
        tell(user(f"{n}" * 8_000))
        tell(assistant(Text("so be it")), replies=True)
    summary = user("s" * 60_000)
    [id] = log.add(Replace(log.view[0].id, log.view[-1].id, (summary,)), by="recorded")
    view[:] = [summary]
    tell(user("go on"))
    tell(assistant(Text("so be it")), replies=True)

    known = compute_token_rates(log.entries)
    assert known.unseen == pytest.approx(UNSEEN, abs=1_000)
    assert known.resets == {id: known.unseen}
    assert known.inherited == 0


def test_background_layers_see_the_results_of_the_calls_as_in_a_session() -> None:
    seen = list[str]()

    async def watch(request: Request) -> Sequence[Change]:
        seen.append(request.view[-1].by)
        return ()

    recorded = Recorded()
    recorded.says(100)
    recorded.result("a", "word " * 100)
    recorded.result("b", "word " * 100)
    recorded.replies()
    driven(recorded, lambda parts: Layers(replied=(watch,)))

    assert seen == ["tools", "tools", "model"]


# --- what it costs, by hand -----------------------------------------------------------------------------


def session_of(*gaps: float) -> Recorded:
    """A question of 4,000 characters and an answer, after each of these silences."""
    recorded = Recorded()
    for gap in gaps:
        recorded.says(4_000, gap)
        recorded.replies()
    return recorded


QUESTION = 1_250
ANSWER = round(2 * RATE)


@pytest.mark.parametrize("ttl", ["5m", "1h"])
def test_append_only_within_the_lifetime_writes_everything_once(ttl: Ttl) -> None:
    life = 300 if ttl == "5m" else 3_600
    outcome = driven(session_of(1, life, life, life), ttl=ttl)

    prompts = [UNSEEN + n * QUESTION + (n - 1) * ANSWER for n in range(1, 5)]
    assert outcome.turns == len(outcome.rows) == 4
    assert outcome.usage.cache_write == prompts[-1]
    assert outcome.usage.cache_read == sum(prompts[:-1])
    assert outcome.usage.cache_write_1h == (prompts[-1] if ttl == "1h" else 0)
    assert outcome.usage.input == 0
    assert outcome.context == sum(prompts)


def test_a_silence_beyond_the_lifetime_writes_everything_again() -> None:
    outcome = driven(session_of(1, 301, 299))

    prompts = [UNSEEN + n * QUESTION + (n - 1) * ANSWER for n in range(1, 4)]
    assert outcome.usage.cache_write == prompts[0] + prompts[1] + (prompts[2] - prompts[1])
    assert outcome.usage.cache_read == prompts[1]


def test_the_lifetime_is_counted_from_the_end_of_the_reply() -> None:
    recorded = Recorded()
    recorded.says(4_000)
    recorded.clock.time += 250  # a long reply
    recorded.replies()
    recorded.says(4_000, 200)
    recorded.replies()
    outcome = driven(recorded)

    assert outcome.usage.cache_read == UNSEEN + QUESTION


def test_what_others_had_sent_before_is_read_by_the_first_request() -> None:
    recorded = Recorded(read_first=8_000)
    recorded.says(4_000)
    recorded.replies()
    outcome = driven(recorded)

    assert count_charged(outcome) == Usage(cache_write=UNSEEN - 8_000 + QUESTION, cache_read=8_000)


def test_keeping_warm_reads_the_prefix_at_its_price_and_saves_the_rewriting() -> None:
    cold, warm = driven(session_of(1, 500)), driven(session_of(1, 500), keep_warm=2)
    two = [UNSEEN + QUESTION, UNSEEN + 2 * QUESTION + ANSWER]

    assert cold.usage.cache_write == sum(two)
    assert (cold.count_requests("keep warm"), warm.count_requests("keep warm")) == (0, 1 + 2), (
        "two at the end"
    )
    assert warm.turns == cold.turns == 2
    assert [one.why for one in cold.breaks] == ["silence"]
    assert warm.breaks == ()
    assert warm.layers["keep warm"].saved > warm.layers["keep warm"].cost > 0
    assert warm.rows[1].usage.input == pytest.approx(KEEPING_WARM, abs=30)
    assert warm.usage.cache_read >= 2 * two[0]
    assert warm.usage.cache_write == pytest.approx(two[1], abs=ANSWER)
    assert driven(session_of(1, 5_000), keep_warm=2).count_requests("keep warm") == 2 + 2, (
        "then it is let go"
    )


def left_after(*silences: float) -> Recorded:
    """A question, requests on a branch that is left, and a minute later another question."""
    recorded = session_of(1)
    for silence in silences:
        recorded.leaves(silence)
    recorded.says(4_000, 60)
    recorded.replies()
    return recorded


def test_a_left_request_after_a_silence_wrote_the_prefix_anew_and_is_charged_apart() -> None:
    soon, late = driven(left_after(10)), driven(left_after(7_200))

    assert late.breaks == ()
    assert late.rows[-1].usage.cache_read == UNSEEN + QUESTION + ANSWER
    assert [row.usage for row in late.rows] == [row.usage for row in soon.rows]


def test_the_cache_is_kept_warm_in_the_silence_before_a_left_request_too() -> None:
    def count_in_silence(recorded: Recorded) -> int:
        rows = driven(recorded, keep_warm=2).rows
        return [row.kind for row in rows if row.at < recorded.clock.time].count("keep warm")

    assert count_in_silence(left_after(7_200)) == 2
    assert count_in_silence(left_after(400, 400)) == 1 + 1
    assert count_in_silence(left_after(10)) == 0


def test_idle_layers_are_asked_before_and_after_a_left_request_as_the_session_would() -> None:
    asked = list[float]()

    async def note_silence(request: Request, idle: float) -> Sequence[Change]:
        asked.append(idle)
        return ()

    recorded = session_of(1)
    recorded.leaves(400)
    recorded.says(4_000, 400)
    recorded.replies()
    driven(recorded, lambda parts: Layers(idle=(note_silence,)))

    assert asked == [271, 400 + 271, 271], "the session counts from the last reply that it still has"


def test_a_compaction_costs_the_request_that_asked_for_it_and_shortens_the_rest() -> None:
    recorded = Recorded()
    recorded.says(4_000)
    recorded.result("r1", "x" * 40_000)
    long = recorded.prompt
    summary = user("s" * 8_000)
    recorded.log.add(Replace(0, recorded.log.entries[-1].id, (summary,)), by="compaction")
    recorded.parts = [round(estimate_message(summary) * RATE)]
    recorded.replies()
    outcome = driven(recorded)

    assert [row.kind for row in outcome.rows] == ["turn", "summary", "turn"]
    short = UNSEEN + 2_500
    assert outcome.context == pytest.approx(UNSEEN + QUESTION + short, abs=60)
    assert outcome.rows[1].context == pytest.approx(long, abs=60)
    assert outcome.rows[1].usage.output == pytest.approx(2_500 * ANALYSIS, rel=0.02)
    [made] = outcome.compactions
    assert (made.by, made.request) == ("recorded", 2)
    assert made.tokens_before - made.tokens_after == pytest.approx(long - short, abs=60)
    assert outcome.usage.cache_read == pytest.approx(UNSEEN + QUESTION + UNSEEN, abs=60)


def test_a_compaction_by_rule_asks_no_model() -> None:
    recorded = Recorded()
    recorded.says(4_000)
    recorded.result("r1", "x" * 40_000)
    recorded.log.add(Replace(0, recorded.log.entries[-1].id, (user("s" * 8_000),)), by=BY_RULE)
    recorded.parts = [2_500]
    recorded.replies()
    outcome = driven(recorded)

    assert [row.kind for row in outcome.rows] == ["turn", "turn"]
    assert [made.by for made in outcome.compactions] == [BY_RULE]


def test_what_was_put_beside_a_summary_was_not_written_by_a_model() -> None:
    def ask_for_summary(*beside: Message) -> Usage:
        recorded = Recorded()
        recorded.says(4_000)
        recorded.result("r1", "x" * 40_000)
        by = user("s" * 8_000), *beside
        recorded.log.add(Replace(0, recorded.log.entries[-1].id, by), by="recorded")
        recorded.parts = [2_500 * len(by)]
        recorded.replies()
        return driven(recorded).rows[1].usage

    assert ask_for_summary(user("f" * 8_000)) == ask_for_summary()


# --- what is missed -------------------------------------------------------------------------------------

LINE = "return compute_total(order)"


def reading() -> Recorded:
    """A file is read, others too, and then a line of the first one is edited."""
    recorded = Recorded()
    recorded.says(4_000)
    recorded.result("r1", f"{LINE}\n" + "x" * 39_972)
    for n in range(2, 6):
        recorded.result(f"r{n}", "y" * 4_000)
    recorded.edits(LINE)
    recorded.replies()
    return recorded


def test_a_result_that_was_cleared_and_not_needed_only_saves() -> None:
    before, after = driven(reading()), driven(reading(), clear(r2=4))

    assert after.regret.removed == 1
    assert after.regret.removed_tokens == pytest.approx((1_000 + 20) * RATE, abs=2)
    assert (after.extra_requests, after.regret.needed) == (0, 0)
    assert after.turns == before.turns
    assert after.regret.by_layer == {"Clear": (1, 0)}
    freed = after.regret.removed_tokens - 28
    left = before.turns - 4
    assert before.context - after.context == pytest.approx(left * freed, rel=0.02)


def test_a_result_that_was_cleared_and_needed_costs_one_request_more() -> None:
    before, after = driven(reading()), driven(reading(), clear(r1=4))

    *_, at_edit, _ = reading().prompts
    result = round((10_000 + 20) * RATE)
    marker, call = 28, round(estimate_message(assistant(CALL)) * RATE)
    assert after.extra_requests == 1
    assert after.turns == before.turns == 7
    assert (after.regret.needed, after.regret.robust) == (1, 1)
    assert after.regret.needed_tokens == after.regret.removed_tokens == pytest.approx(result, abs=2)
    assert count_charged(after).output == CALL_OUTPUT
    assert after.layers["Clear"].cost > 0
    # one request without it; one more, that asks for it; and two that have it again behind its marker
    freed, again = result - marker, call + result
    by_hand = -freed + (at_edit - freed) + 2 * (again - freed)
    assert after.context - before.context == pytest.approx(by_hand, abs=20)


CALL = ToolUse("r1.again1", "Read", {"file_path": "/r1"})


def test_two_that_are_missed_by_one_reply_are_asked_for_at_once() -> None:
    recorded = Recorded()
    recorded.says(4_000)
    recorded.result("r1", f"{LINE}\n" + "x" * 4_000)
    recorded.result("r2", "another_line = of_some(length)\n" + "y" * 4_000)
    recorded.result("r3", "z" * 4_000)
    recorded.edits(f"{LINE}\nanother_line = of_some(length)")
    outcome = driven(recorded, clear(r1=3, r2=3))

    assert (outcome.extra_requests, outcome.regret.needed) == (1, 2)
    assert count_charged(outcome).output == 2 * CALL_OUTPUT


def test_what_was_read_back_is_there_until_it_is_cleared_again() -> None:
    recorded = Recorded()
    recorded.says(4_000)
    recorded.result("r1", "some_rare_word other_rare_word third_rare_word\n" + "x" * 8_000)
    recorded.result("r2", "y" * 4_000)
    recorded.replies(text="some_rare_word")
    recorded.says(400)
    recorded.replies(text="other_rare_word")
    recorded.says(400)
    recorded.result("r3", "z" * 4_000)
    recorded.replies(text="third_rare_word")
    once = driven(recorded, clear(r1=2))
    twice = driven(recorded, clear(r1=2, **{"r1.again1": 5}))

    assert once.regret.needed == 1, "it stays in the view"
    assert once.extra_requests == 1
    assert twice.regret.removed == 2
    assert twice.regret.needed == 2, "and is missed when that is cleared as well"
    assert twice.extra_requests == 2


def test_a_copy_in_view_is_enough() -> None:
    recorded = Recorded()
    recorded.says(4_000)
    recorded.result("r1", f"{LINE}\n" + "x" * 4_000)
    recorded.result("r2", f"{LINE}\n" + "x" * 4_000)
    recorded.result("r3", "z" * 4_000)
    recorded.edits(LINE)

    assert driven(recorded, clear(r1=3)).regret.needed == 0
    assert driven(recorded, clear(r2=3)).regret.needed == 0
    assert driven(recorded, clear(r1=3, r2=3)).regret.needed == 1


def test_what_a_compaction_took_is_missed_by_nobody() -> None:
    recorded = Recorded()
    recorded.says(4_000)
    recorded.result("r1", f"{LINE}\n" + "x" * 4_000)
    recorded.result("r2", "y" * 4_000)
    recorded.replies()
    last = recorded.log.entries[-1].id
    recorded.log.add(Replace(0, last, (user("a summary"),)), by="compaction")
    recorded.edits(LINE)
    outcome = driven(recorded, clear(r1=2))

    assert outcome.regret.removed == 1
    assert outcome.regret.needed == 0


def test_an_empty_session_costs_nothing() -> None:
    assert driven(Recorded()).rows == ()


# --- on real sessions -----------------------------------------------------------------------------------


@pytest.mark.skipif(not SESSIONS.is_dir(), reason="the shared sessions are not beside this checkout")
def test_append_only_is_charged_what_was_really_charged() -> None:
    every: list[float] = []
    for path in sorted(SESSIONS.glob("*.jsonl.gz"))[::3]:
        entries = convert_recording(read_session(path)).entries
        models = {e.what.model for e in entries if isinstance(e.what, Reply)}
        [price] = {found for model in models if (found := Prices.load().of(model))}
        append_only = replace(load_policy("append-only"), compactions="recorded")
        outcome = drive_session(entries, append_only, price.model, price)
        every += outcome.errors
        if len(outcome.errors) > 20:
            assert median(outcome.errors) < 0.05, path.name

    assert len(every) > 500
    assert median(every) < 0.02
