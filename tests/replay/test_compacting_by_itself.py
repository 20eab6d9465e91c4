"""A policy that compacts by itself is charged for all of it: the summary, and what is missed afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from replay.sessions import count_charged, count_paid

from sevenfold.cache.prices import Prices
from sevenfold.core.messages import Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Entry, Reply, Transcript
from sevenfold.recordings.claude_code import read_session
from sevenfold.recordings.recorded_session import convert_recording
from sevenfold.replay.costs import LARGEST_FIXED, compute_token_rates, estimate_message
from sevenfold.replay.driver import drive_session
from sevenfold.replay.outcome import ReplayOutcome
from sevenfold.replay.policies import Policy, load_policy
from sevenfold.replay.stand_ins import SUMMARY_OUTPUT, UNKNOWN_REST, ReplayDisk
from sevenfold.settings.layers import CompactionSettings, ExtractionSettings, Switches
from sevenfold.testing import FakeClock

SESSIONS = Path(__file__).parents[2] / "../shared/data/sessions"
MODEL = "claude-opus-4-5"
FIXED = 20_000
LINE = "return compute_total(order_of_the_day)"
QUIET = Switches(notes=False, payout=False, extraction=False)
OURS = Policy(name="ours", flags=QUIET)
FULL = replace(OURS, compaction=CompactionSettings(by_size=False), auto_compact_percent=50)


class Talk:
    """A session written by hand; the usage that is recorded makes every estimated token one real one."""

    def __init__(self, inherited: int = 0) -> None:
        self.clock = FakeClock(0.0)
        self.log = Transcript(self.clock.now)
        self.prompt = FIXED + inherited
        self.calls = 0

    def grow(self, message: Message) -> None:
        self.prompt += estimate_message(message)

    def says(self, text: str, after: float = 1.0) -> None:
        self.clock.time += after
        self.log.add(user(text))
        self.grow(user(text))

    def replies(self, *blocks: Text | ToolUse | Thinking) -> None:
        self.clock.time += 1.0
        said = assistant(*blocks)
        reply = Reply(said, Usage(cache_write=self.prompt, output=10), model=MODEL)
        self.log.add(reply, by="model")
        self.grow(said)

    def reads(self, text: str, path: str = "/other", **more: int) -> str:
        self.calls += 1
        use = ToolUse(f"toolu_{self.calls}", "Read", {"file_path": path, **more})
        self.replies(Text(f"reading, number {self.calls}"), use)
        answer = Message("user", (ToolResult(use.id, text),))
        self.clock.time += 1.0
        self.log.add(answer, by="tools")
        self.grow(answer)
        return use.id

    def edits(self, old: str) -> None:
        edit = {"file_path": "/order.py", "old_string": old, "new_string": "-"}
        self.calls_tool(ToolUse("e", "Edit", edit))

    def calls_tool(self, use: ToolUse, result: str = "done") -> None:
        self.replies(Text("now this"), use)
        self.hears(use, result)

    def hears(self, use: ToolUse, result: str) -> None:
        answer = Message("user", (ToolResult(use.id, result),))
        self.log.add(answer, by="tools")
        self.grow(answer)

    def goes_on(self, times: int) -> None:
        for n in range(times):
            self.says(f"and what about step {n}?")
            self.replies(Text("that is done as well"))

    @property
    def entries(self) -> list[Entry]:
        return self.log.entries


def long_talk(*, needed: bool, limit: int | None = 1, inherited: int = 0) -> Talk:
    """Much is read, and the user goes on; in the end a line of the first file is edited, or not."""
    talk = Talk(inherited)
    talk.says("please look at the orders")
    more = {} if limit is None else {"limit": limit}
    talk.reads(f"{LINE}\n" + "a plain word here\n" * 600, "/order.py", **more)
    for _ in range(9):
        talk.reads("some other words there\n" * 1_600)
    talk.replies(Text("I have seen it all."))
    talk.goes_on(8)
    if needed:
        talk.edits(LINE)
    talk.replies(Text("all done"))
    return talk


def driven(talk: Talk, under: Policy = OURS) -> ReplayOutcome:
    price = Prices.load().of(MODEL)
    assert price
    return drive_session(talk.entries, under, MODEL, price)


def test_a_summary_that_pays_is_asked_for_when_the_user_speaks_and_is_charged() -> None:
    own = replace(OURS, compaction=replace(OURS.compaction, by_small_model=False))
    outcome = driven(long_talk(needed=False), own)

    [made] = outcome.compactions
    assert made.by == "summary"
    assert made.tokens_after < 0.6 * made.tokens_before
    assert made.fidelity is not None
    assert made.fidelity > 0.9
    [asked] = [row for row in outcome.rows if row.kind == "summary"]
    assert asked.usage.output == SUMMARY_OUTPUT
    assert asked.usage.cache_read > 0.9 * asked.context, "it is asked for on the cached prefix"
    assert outcome.turns == sum(isinstance(e.what, Reply) for e in long_talk(needed=False).entries)
    assert outcome.extra_requests == 0
    assert outcome.layers["compaction"].cost > SUMMARY_OUTPUT * 5
    assert outcome.layers["compaction"].saved > 0


def test_a_summary_by_the_small_model_is_charged_at_its_price() -> None:
    outcome, price = driven(long_talk(needed=False)), Prices.load().of(MODEL)
    assert price
    small = Prices.load().of(price.small)
    assert small

    [asked] = [row for row in outcome.rows if row.kind == "summary"]
    assert asked.model.endswith(small.model)
    assert asked.usage.output == round(SUMMARY_OUTPUT * small.output / price.output)
    assert asked.usage.cache_read == 0, "it shares nothing with the conversation"
    assert len(outcome.compactions) == 1


def test_without_it_nothing_is_compacted_before_the_window_is_full() -> None:
    never = replace(OURS, compaction=CompactionSettings(by_size=False))

    assert driven(long_talk(needed=False), never).compactions == ()
    assert driven(long_talk(needed=False), FULL).compactions != ()


def test_what_a_summary_took_and_a_later_reply_needs_is_read_back_and_paid_for() -> None:
    outcome = driven(long_talk(needed=True))

    assert outcome.extra_requests == 1
    assert (outcome.regret.needed, outcome.regret.robust) == (1, 1)
    removed, needed = outcome.regret.by_layer["compaction"]
    assert (removed, needed) == (20, 1), "ten results, and the inputs of ten calls"
    back = next(row for row in outcome.rows if row.kind == "read back")
    after = outcome.rows[outcome.rows.index(back) + 1]
    assert after.context > back.context + 1_500, "it is in the view again"


def test_a_file_that_was_given_back_after_the_summary_is_not_missed() -> None:
    whole = replace(OURS, compaction=replace(OURS.compaction, file_tokens=5_000))
    outcome = driven(long_talk(needed=True, limit=None), whole)

    assert len(outcome.compactions) == 1
    assert outcome.extra_requests == 0, "the files worked on last were read again"


def test_a_result_that_layer_1_stored_is_missed_when_its_middle_is_needed() -> None:
    talk = Talk()
    talk.says("run it")
    use = ToolUse("b", "Bash", {"command": "make"})
    talk.replies(Text("running"), use)
    lines = "\n".join(f"plain output of the build, line {n}" for n in range(1_500))
    message = Message("user", (ToolResult("b", f"{lines}\n{LINE}\n{lines}"),))
    talk.log.add(message, by="tools")
    talk.grow(message)
    talk.goes_on(1)
    talk.edits(LINE)
    outcome = driven(talk)

    assert outcome.regret.by_layer["tool results"] == (1, 1)
    assert outcome.extra_requests == 1


def test_the_input_of_a_call_counts_as_removed_where_it_counts_as_needed() -> None:
    talk = Talk()
    talk.says("please write the orders")
    for n in range(10):
        text = f"{LINE} or {n}\n" + "a plain word here\n" * 1_600
        talk.calls_tool(ToolUse(f"w{n}", "Write", {"file_path": f"/order_{n}.py", "content": text}))
    talk.replies(Text("I have written it all."))
    talk.goes_on(8)
    talk.edits(f"{LINE} or 3")
    talk.replies(Text("all done"))
    found = driven(talk).regret

    assert found.by_layer["compaction"] == (18, 1), "the results and the inputs of nine calls"
    assert (found.needed, found.robust) == (1, 1)
    assert 0.05 < found.token_share < 0.15
    assert (found.large_removed, found.large_needed) == (0, 0), "inputs are no results"


def long_thinking() -> Talk:
    """Much is thought, and one of the thoughts is needed after a silence."""
    talk = Talk()
    talk.says("find out why")
    for n in range(16):
        use = ToolUse(f"b{n}", "Bash", {"command": "make"})
        talk.replies(Thinking(f"the cause_{n} is in handler_{n} " + "hm " * 400, "signed"), use)
        talk.hears(use, "failed")
    talk.replies(Text("not sure yet"))
    talk.says("go on", after=8_000.0)
    talk.calls_tool(ToolUse("g", "Bash", {"command": "grep cause_2 handler_2"}))
    talk.replies(Text("done"))
    return talk


def test_thinking_counts_as_removed_where_it_counts_as_needed() -> None:
    outcome = driven(long_thinking())

    removed, needed = outcome.regret.by_layer["microcompaction"]
    assert (removed, needed) == (16 + 1 - 10, 1)
    assert (outcome.regret.removed, outcome.regret.needed) == (removed, needed)
    assert outcome.regret.needed_tokens * removed == pytest.approx(outcome.regret.removed_tokens, rel=0.05)
    assert outcome.regret.large_removed == 0
    assert outcome.layers["microcompaction"].saved > 0
    [did] = [did for row in outcome.rows for did in row.happened if did.tokens > 0]
    assert did.what == "dropped the thinking of 7 replies"


def test_an_agent_compacts_at_the_limit_and_drops_no_thinking() -> None:
    price = Prices.load().of(MODEL)
    assert price
    talk = long_talk(needed=False, limit=None)
    agent, full = (drive_session(talk.entries, under, MODEL, price, role="agent") for under in (OURS, FULL))
    thinks = drive_session(long_thinking().entries, OURS, MODEL, price, role="agent")

    assert agent.compactions == ()
    assert len(full.compactions) == 1
    assert full.compactions[0].tokens_after < driven(talk, FULL).compactions[0].tokens_after, "no files"
    assert not any(row.happened for row in thinks.rows)


def test_inherited_history_is_conversation_that_a_summary_can_take_away() -> None:
    talk = long_talk(needed=False, inherited=60_000)
    known = compute_token_rates(talk.entries)
    outcome = driven(talk)

    assert known.fixed == LARGEST_FIXED
    assert known.inherited == pytest.approx(FIXED + 60_000 - LARGEST_FIXED, rel=0.02)
    assert outcome.rows[0].context == pytest.approx(FIXED + 60_000, rel=0.02)
    assert outcome.compactions[0].tokens_after < LARGEST_FIXED + 20_000


def test_some_models_are_not_shown_what_they_thought_before_the_user_last_spoke() -> None:
    talk = Talk()
    talk.says("think")
    talk.replies(Thinking("hm " * 4_000, "signed"), Text("I have thought."))
    talk.goes_on(2)
    keeps = Prices.load().of(MODEL)
    assert keeps
    forgets = replace(keeps, keeps_thinking=False)
    with_it = drive_session(talk.entries, OURS, MODEL, keeps)
    without = drive_session(talk.entries, OURS, MODEL, forgets)

    assert with_it.rows[1].context - without.rows[1].context > 2_000
    assert without.rows[1].usage.cache_read > 0, "and that breaks nothing"


def test_a_file_is_known_as_the_calls_show_it() -> None:
    disk = ReplayDisk()
    disk.apply_call(ToolUse("r", "Read", {"file_path": "/a"}), ToolResult("r", "  1→one\n  2→two\n"))
    disk.apply_call(
        ToolUse("e", "Edit", {"file_path": "/a", "old_string": "two", "new_string": "three"}),
        ToolResult("e", "done"),
    )
    disk.apply_call(ToolUse("w", "Write", {"file_path": "/b", "content": "new"}), ToolResult("w", "ok"))
    disk.apply_call(ToolUse("p", "Read", {"file_path": "/c", "offset": 5}), ToolResult("p", "  5→five\n"))
    failed = ToolResult("x", "no such file", is_error=True)
    disk.apply_call(ToolUse("x", "Read", {"file_path": "/d"}), failed)

    assert disk.read("/a") == "one\nthree"
    assert disk.read("/b") == "new"
    assert disk.read("/c") == "\n\n\n\nfive" + UNKNOWN_REST, "the rest is not known"
    assert disk.read("/d") is None


def test_while_the_user_is_away_the_layer_that_keeps_warm_is_asked_and_paid() -> None:
    def away() -> Talk:
        talk = Talk()
        talk.says("please look")
        talk.reads("some other words there\n" * 2_500)
        talk.reads("some other words there\n" * 2_500)
        talk.replies(Text("I have seen it."))
        talk.says("go on", after=400)
        talk.replies(Text("done"))
        return talk

    cold = driven(away())
    warm = driven(away(), replace(OURS, flags=replace(QUIET, pre_cold=True)))

    assert [one.why for one in cold.breaks] == ["silence"]
    last = max(n for n, row in enumerate(warm.rows) if row.kind == "turn")
    assert sum(row.kind == "keep warm" for row in warm.rows[:last]) == 1
    assert warm.count_requests("keep warm") == 3, "and in the silence after the last reply"
    assert warm.breaks == ()


@pytest.mark.skipif(not SESSIONS.is_dir(), reason="the shared sessions are not beside this checkout")
def test_on_a_real_session_the_default_costs_less_than_was_paid_and_misses_little() -> None:
    path = sorted(SESSIONS.glob("08940314*.jsonl.gz"))[0]
    entries = convert_recording(read_session(path)).entries
    price = Prices.load().of("claude-sonnet-4-5")
    assert price
    outcome = drive_session(entries, load_policy("balanced"), price.model, price)

    assert price.units(count_charged(outcome)) < 0.9 * price.units(count_paid(outcome))
    assert outcome.extra_per_100 < 8
    assert outcome.regret.robust_share < 0.06
    assert all(made.by != "recorded" for made in outcome.compactions)


EACH = ExtractionSettings(batch=1, least_requests=0, patient=False)


def test_extraction_after_each_turn_is_a_fork_more_for_each_and_can_be_left_out() -> None:
    talk = long_talk(needed=False)
    price = Prices.load().of(MODEL)
    assert price
    quiet = drive_session(talk.entries, OURS, MODEL, price)
    flags = replace(OURS.flags, extraction=True)
    learning = replace(OURS, flags=flags, extraction=EACH, side_work="fork")
    learns = drive_session(talk.entries, learning, MODEL, price)

    spoken = [e for e in talk.entries if isinstance(e.what, Message) and e.by == "user"]
    rows = [row for row in learns.rows if row.kind == "extraction"]
    assert spoken
    assert len(rows) == len(spoken)
    assert [row.kind for row in quiet.rows].count("extraction") == 0
    assert all(row.usage.cache_read > 0.8 * row.context for row in rows)
    assert price.units(count_charged(learns)) > price.units(count_charged(quiet))


def test_extraction_waits_for_a_silence_which_it_makes_cheaper() -> None:
    price = Prices.load().of(MODEL)
    assert price
    flags, waits = replace(OURS.flags, extraction=True), ExtractionSettings(least_requests=0)
    learning = replace(OURS, flags=flags, extraction=waits, side_work="fork")
    talk = long_talk(needed=False)
    learns = drive_session(talk.entries, learning, MODEL, price)
    rests = [e for e in talk.entries if isinstance(e.what, Reply) and not e.what.message.tool_uses]
    assert 0 < learns.count_requests("extraction") < len(rests), "several turns in one look"

    silent = [
        replace(entry, at=entry.at + 400.0 * (n >= len(talk.entries) // 2))
        for n, entry in enumerate(talk.entries)
    ]
    every = replace(learning, extraction=EACH)
    patient, at_once = (drive_session(silent, one, MODEL, price) for one in (learning, every))
    lost = [len([b for b in one.breaks if b.why == "silence"]) for one in (patient, at_once)]
    assert lost[0] <= lost[1]
    assert price.units(count_charged(patient)) < price.units(count_charged(at_once))


def test_what_is_new_on_the_small_model_is_the_cheaper_extraction_and_is_charged_as_such() -> None:
    price, small = (Prices.load().of(name) for name in (MODEL, "claude-haiku-4-5"))
    assert price
    assert small
    flags, always = replace(OURS.flags, extraction=True), ExtractionSettings(batch=1, least_requests=0)
    learning = replace(OURS, flags=flags, extraction=always)
    forked, lean = (
        drive_session(long_talk(needed=False).entries, replace(learning, side_work=way), MODEL, price)
        for way in ("fork", "cheapest")
    )
    rows = [row for row in lean.rows if row.kind == "extraction"]
    assert {row.model for row in rows} == {f"side:{small.model}"}, "the books say which way was taken"
    assert len(rows) == forked.count_requests("extraction")
    costs = [one.layers["extraction"].cost for one in (lean, forked)]
    assert costs[0] < costs[1] / 3
    assert costs[0] == pytest.approx(sum(price.units(row.usage) for row in rows))


def test_a_short_session_is_charged_no_extraction_as_the_product_makes_none() -> None:
    talk = long_talk(needed=False)
    price = Prices.load().of(MODEL)
    assert price
    policy = replace(OURS, flags=replace(OURS.flags, extraction=True))
    for entries, times in ((talk.entries[:2], 0), (talk.entries, 1)):
        outcome = drive_session(entries, policy, MODEL, price)
        assert outcome.count_requests("extraction") == times
