"""The books of a replay: who is credited with what, and only for what was really done."""

from __future__ import annotations

import pytest

from sevenfold.cache.prices import Prices
from sevenfold.core.messages import Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.replay.bookkeeping import EXTRACTION, KEEP_WARM, ReplayBooks
from sevenfold.replay.costs import USUAL, estimate_message
from sevenfold.replay.driver import drive_session
from sevenfold.replay.needs import LostItem, MissedSource
from sevenfold.replay.outcome import ReplayOutcome, TimeSpent
from sevenfold.replay.policies import Policy
from sevenfold.settings.layers import Switches, ToolResultSettings
from sevenfold.testing import FakeClock

MODEL = "claude-opus-4-5"
PRICE = Prices.load().of(MODEL)
assert PRICE
WRITTEN, READ = Usage(cache_write=50_000), Usage(cache_read=50_000)


def tally() -> ReplayBooks:
    assert PRICE
    return ReplayBooks(PRICE, "5m")


def test_nobody_is_credited_with_a_cache_that_a_long_reply_kept() -> None:
    books = tally()
    books.record_request("turn", 0.0, WRITTEN)
    books.record_reply(250.0)
    books.record_request("turn", 400.0, READ)

    assert books.make_outcome(TimeSpent()).layers == {}
    assert books.breaks == []


def test_keeping_warm_is_credited_once_for_the_silence_it_bridged() -> None:
    books = tally()
    books.record_request("turn", 0.0, WRITTEN)
    books.record_request("keep warm", 270.0, READ)
    books.record_request("turn", 500.0, READ)
    books.record_request("turn", 700.0, READ)

    saved = books.make_outcome(TimeSpent()).layers[KEEP_WARM].saved
    assert saved == pytest.approx(50_000 * (1.25 - 0.1))


def test_a_look_that_kept_the_cache_is_credited_and_not_keeping_warm() -> None:
    books = tally()
    books.record_request("turn", 0.0, WRITTEN)
    books.record_request("extraction", 255.0, READ)
    books.record_request("turn", 500.0, READ)

    layers = books.make_outcome(TimeSpent()).layers
    assert KEEP_WARM not in layers
    assert layers[EXTRACTION].saved == pytest.approx(50_000 * (1.25 - 0.1))


def test_a_silence_longer_than_the_warmth_is_a_silence() -> None:
    books = tally()
    books.record_request("turn", 0.0, WRITTEN)
    books.record_request("keep warm", 270.0, READ)
    books.record_request("turn", 900.0, WRITTEN)

    assert [one.why for one in books.breaks] == ["silence"]
    assert books.make_outcome(TimeSpent()).layers[KEEP_WARM].saved == 0


def test_a_warm_cache_that_is_lost_otherwise_was_not_lost_by_silence() -> None:
    books = tally()
    books.record_request("turn", 0.0, WRITTEN)
    books.record_request("keep warm", 270.0, READ)
    books.record_action("microcompaction", "cleared 3", 10, "cleared")
    books.record_request("turn", 500.0, WRITTEN)

    assert [one.why for one in books.breaks] == ["microcompaction: cleared"]


def test_what_was_removed_before_the_books_began_anew_is_not_counted_as_needed() -> None:
    books = tally()
    old, new = (LostItem(use, 500, "compaction") for use in ("old", "new"))
    books.record_removed([old])
    books.record_request("turn", 0.0, WRITTEN)
    books.begin_anew()
    books.record_removed([new])
    for lost in (old, new):
        books.record_needed(MissedSource(lost.source, robust=True), lost)
    found = books.make_outcome(TimeSpent())

    assert (found.regret.removed, found.regret.needed) == (found.regret.large_removed, 1) == (1, 1)
    assert (found.rows, books.turns) == ((), 1)


# --- layer 1 ----------------------------------------------------------------------------------------------

ONLY_FIRST = Switches(micro_cost=False, micro_cache_edit=False, notes=False, compact=False, reactive=False)


def two_results(first: str, second: str) -> ReplayOutcome:
    clock = FakeClock(0.0)
    log = Transcript(clock.now)
    uses = [ToolUse(id, "Grep", {"pattern": id}) for id in ("a", "b")]
    results = ToolResult("a", first), ToolResult("b", second)
    log.add(user("look"), by="user")
    log.add(Reply(assistant(Text("so"), *uses), Usage(1_000)), by="model")
    log.add(Message("user", results), by="tools")
    log.add(Reply(assistant(Text("done"))), by="model")
    settings = ToolResultSettings(limits={"Grep": 20_000})
    assert PRICE
    policy = Policy(name="first", flags=ONLY_FIRST, tool_results=settings)
    return drive_session(log.entries, policy, MODEL, PRICE, window=200_000)


def test_a_result_that_is_only_worded_otherwise_was_not_removed() -> None:
    outcome = two_results("", "found")

    assert outcome.regret.removed == 0
    assert not any(row.happened for row in outcome.rows)


def test_what_a_stored_result_spares_is_held_against_what_is_shown_of_it_alone() -> None:
    large, beside = "a long line of text\n" * 3_000, "x" * 15_000

    [did] = [did for row in two_results(large, beside).rows for did in row.happened]
    [alone] = [did for row in two_results(large, "").rows for did in row.happened]

    whole = estimate_message(Message("user", (ToolResult("a", large),))) * USUAL
    assert did.what == "stored 1 results"
    assert did.tokens == alone.tokens
    assert whole * 0.9 < did.tokens < whole
