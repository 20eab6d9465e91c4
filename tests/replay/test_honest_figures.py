"""Figures that do not flatter: each request at its own price, and like compared with like."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from replay import sessions

from sevenfold.cache.prices import Price, Prices
from sevenfold.core.messages import Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Entry, PlacedMessage, Replace, Reply, Transcript
from sevenfold.recordings.finder import ReplayFile
from sevenfold.replay.bookkeeping import MICRO, ReplayBooks
from sevenfold.replay.costs import CacheProvider, find_session_price
from sevenfold.replay.driver import drive_session
from sevenfold.replay.outcome import Kind, LayerAction, ReplayOutcome, RequestRow, TimeSpent
from sevenfold.replay.policies import ClearRule, Policy, exclude_layers, load_policy
from sevenfold.replay.report.charts import draw_waterfall
from sevenfold.replay.report.page import format_page
from sevenfold.replay.results import ReplayFigures, compute_figures
from sevenfold.replay.runner import ReplayJob, ReplayResult, replay_file
from sevenfold.testing import FakeClock

PRICES = Prices.load()


def price(model: str) -> Price:
    found = PRICES.of(model)
    assert found is not None
    return found


def row(model: str = "", usage: int = 1_000, recorded: int = 0, kind: Kind = "turn") -> RequestRow:
    return RequestRow(0.0, kind, Usage(usage), Usage(recorded), model=model)


# --- prices -----------------------------------------------------------------------------------------------


def test_each_request_is_counted_at_the_price_of_the_model_that_answered_it() -> None:
    dear, cheap = price("claude-opus-4-5"), price("claude-haiku-4-5")
    rows = row(dear.model, 1_000, 2_000), row(cheap.model, 1_000, 2_000)

    known = compute_figures(ReplayOutcome(rows), dear, priced=True, others={cheap.model: cheap})

    assert known.paid is not None
    assert known.paid.amount == pytest.approx(2_000 * (dear.input + cheap.input) / 1e6)
    assert known.paid.units == pytest.approx(2_000 * (1 + cheap.input / dear.input))
    assert known.of_paid == pytest.approx(0.5)


def test_models_without_a_price_are_named_with_their_requests() -> None:
    models = ("claude-opus-4-5", "claude-opus-4-5", "who-knows", "claude-haiku-4-5")
    replies = [Reply(assistant(Text("x")), Usage(9), model=model) for model in models]
    entries = [Entry(n, 0.0, reply) for n, reply in enumerate(replies)]

    found = find_session_price(entries, PRICES, None)

    assert list(found.others) == ["claude-haiku-4-5"]
    assert found.error == (
        "no price is known for who-knows, which answered 1 of 4 requests: "
        "they are counted at the price of claude-opus-4-5"
    )
    asked = find_session_price(entries, PRICES, "claude-haiku-4-5")
    assert (asked.others, asked.error) == ({}, "")


def replayed(folder: Path, data: bytes, *policies: Policy, at: str | None = None) -> ReplayResult:
    path = folder / "a.jsonl"
    path.write_bytes(data)
    return replay_file(ReplayJob(0, ReplayFile(str(path)), policies or (load_policy("append-only"),), at))


def test_at_a_price_that_was_asked_for_nothing_is_called_paid(tmp_path: Path) -> None:
    one = replayed(tmp_path, sessions.claude_code(), at="claude-haiku-4-5")

    html = format_page([one], [load_policy("append-only")], sessions.BEGAN)

    assert one.by_policy["append-only"].paid_at == "claude-haiku-4-5"
    assert "recorded, priced as claude-haiku-4-5" in html
    assert "<dt>really paid</dt>" not in html


# --- like with like ---------------------------------------------------------------------------------------


def test_only_requests_that_say_what_was_paid_are_compared_with_it() -> None:
    rows = row("", 1_000, 1_000), row("", 50_000), row("", 10, kind="notes")

    known = compute_figures(ReplayOutcome(rows), price("claude-opus-4-5"), priced=True)

    assert known.of_paid == pytest.approx(1.01)
    assert (known.paid_requests, known.turns) == (1, 2)


def test_a_file_in_which_usage_is_missing_here_and_there_says_so(tmp_path: Path) -> None:
    lines = sessions.claude_code().splitlines(keepends=True)
    bare = [line.replace(b'"usage"', b'"used"') if n < 4 else line for n, line in enumerate(lines)]

    one = replayed(tmp_path, b"".join(bare))

    assert one.errors == (
        "usage is recorded for 3 of 4 requests: what was paid is known for those, "
        "and only they are compared with it",
    )


# --- layers -----------------------------------------------------------------------------------------------


def test_a_layer_that_only_asks_has_done_so_as_often() -> None:
    put_in = RequestRow(9.0, "turn", Usage(1), happened=(LayerAction("compaction", "replaced", 900),))
    rows = [row(kind=kind) for kind in ("notes", "notes", "extraction", "keep warm", "summary")]

    layers = compute_figures(ReplayOutcome((*rows, put_in)), price("claude-opus-4-5"), priced=True).layers

    assert {name: (layer.times, layer.requests) for name, layer in layers.items()} == {
        "session memory": (2, 2),
        "extraction": (1, 1),
        "keep warm": (1, 1),
        "compaction": (1, 1),
    }


def test_reading_back_and_the_recording_are_no_layers() -> None:
    did = LayerAction("read back", "needed", -5), LayerAction("recording", "left out 9 tokens")

    outcome = ReplayOutcome((RequestRow(0.0, "turn", Usage(1), happened=did),))
    assert compute_figures(outcome, price("gpt-5"), priced=True).layers == {}


def test_the_first_bar_of_a_waterfall_says_that_it_is_an_estimate() -> None:
    assert "without its layers, estimated" in draw_waterfall("w", "mine", ReplayFigures())


def test_what_the_recording_left_out_by_itself_is_saved_by_nobody() -> None:
    """The recording shrinks by as much as layer 2 had cleared: from then on nothing is saved by it."""

    def saved(shrinks: bool) -> float:
        log = Transcript(FakeClock(0.0).now)
        log.add(user("read it"))
        prompt = 20_000
        for n in range(12):
            use = ToolUse(f"t{n}", "Read", {"file_path": f"/{n}"})
            log.add(Reply(assistant(use), Usage(cache_write=prompt)), by="model")
            log.add(Message("user", (ToolResult(f"t{n}", "w " * 3_000),)), by="tools")
            prompt += 2_500
            if n == 9 and shrinks:
                prompt = 20_000
        log.add(Reply(assistant(Text("done")), Usage(cache_write=prompt)), by="model")
        clears = replace(load_policy("clear-every-10"), clear=ClearRule(every=3, keep=1))
        outcome = drive_session(log.entries, clears, "claude-opus-4-5", price("claude-opus-4-5"))
        return outcome.layers[MICRO].saved

    assert saved(shrinks=True) < 0.9 * saved(shrinks=False)


def test_savings_end_where_the_recording_has_removed_as_much() -> None:
    books = ReplayBooks(price("claude-opus-4-5"), "5m")
    books.record_action(MICRO, "cleared", 1_000)
    books.record_original_compaction(1_000)
    books.record_request("turn", 0.0, Usage(cache_read=9_000))

    assert books.make_outcome(TimeSpent()).layers[MICRO].saved == 0


# --- policies that do what they say -----------------------------------------------------------------------


def long_session() -> list[Entry]:
    """Files are read with pauses in which the cache goes cold; in the middle of it it was compacted."""
    clock = FakeClock(0.0)
    log = Transcript(clock.now)
    for n in range(40):
        clock.time += 4_000.0
        log.add(user(f"read number {n}"))
        use = ToolUse(f"t{n}", "Read", {"file_path": f"/{n}"})
        log.add(Reply(assistant(use), Usage(cache_write=20_000 + 6_000 * (n % 25))), by="model")
        log.add(Message("user", (ToolResult(f"t{n}", f"word{n} " * 3_000),)), by="tools")
        log.add(Reply(assistant(Text("read"))), by="model")
        if n == 24:
            end = log.view[-1].id
            log.add(Replace(log.view[0].id, end, (user("what was read so far"),)), by="recorded")
    return list(log.entries)


def costs(entries: list[Entry], chosen: Policy) -> list[tuple[str, int]]:
    outcome = drive_session(entries, chosen, "claude-opus-4-5", price("claude-opus-4-5"), window=1_000_000)
    return [(row.kind, row.context) for row in outcome.rows]


def test_a_rule_that_counts_stands_in_place_of_layer_2() -> None:
    entries = long_session()
    mine = Policy(name="mine", clear=ClearRule(every=30, keep=20))
    alone = replace(mine, flags=replace(mine.flags, micro_cost=False))
    plain = replace(mine, micro=replace(mine.micro, policy="plain", idle_minutes=1))

    assert costs(entries, mine) == costs(entries, alone) == costs(entries, plain)


def test_with_compact_off_the_compactions_of_the_recording_are_carried_out() -> None:
    entries = long_session()
    off = replace(load_policy("balanced"), flags=replace(load_policy("balanced").flags, compact=False))

    assert costs(entries, off) == costs(entries, exclude_layers(load_policy("balanced"), ["compaction"]))
    assert costs(entries, off) == costs(entries, replace(load_policy("balanced"), compactions="recorded"))


def test_keeping_warm_for_ever_ends_when_somebody_speaks(tmp_path: Path) -> None:
    warm = replace(load_policy("append-only"), name="warm", keep_warm=10**9)

    assert replayed(tmp_path, sessions.claude_code(), warm).by_policy["warm"].turns == 4


# --- thinking that is not shown again ---------------------------------------------------------------------


def test_only_what_changed_its_weight_is_weighed_again() -> None:
    weighed: list[PlacedMessage] = []

    def weigh(placed: PlacedMessage) -> int:
        weighed.append(placed)
        return 100

    log = Transcript(FakeClock(0.0).now)
    provider = CacheProvider(2_000, weigh)
    for n in range(50):
        log.add(user(f"question {n}"))
        log.add(Reply(assistant(Thinking(f"hm {n}"), Text("so")), Usage()), by="model")
        provider.ask(Request(Frame("m"), log.view), float(n))
    before = len(weighed)

    [last] = log.add(user("one more"))
    provider.reweigh(log.view[-3].id, lambda message: message.role == "assistant")
    provider.ask(Request(Frame("m"), log.view), 60.0)

    assert before == 100
    assert len(weighed) - before == 2  # the last reply, and the question behind it
    assert weighed[-1].id == last
