"""The simulator's ledger, and what it tells those who ask why the cache missed."""

from __future__ import annotations

import pytest
from simulator.wire import HOUR, SMALL, api, assistant, body, text, user

from sevenfold.cache.prices import Prices
from sevenfold.core.tokens import Usage
from sevenfold.simulator import LedgerRow


def test_a_row_says_what_the_cache_did_and_what_it_cost() -> None:
    sim, clock = api(replies=lambda _: "y" * 40)
    request = body(user(text(1_500, "a", HOUR), text(500, "b", SMALL), text(20, "c")))
    sim.answer(request)
    clock.advance(10)
    row = sim.answer(request).row
    assert (row.n, row.id, row.message_id) == (2, "req_sim_000002", "msg_sim_000002")
    assert (row.at, row.endpoint, row.source) == (clock.now(), "/v1/messages", "default")
    assert (row.blocks, row.breakpoints, row.stop_reason) == (3, 2, "end_turn")
    assert (row.tokens.input, row.tokens.cache_read, row.tokens.output) == (20, 2_000, 10)
    assert row.hit_rate == pytest.approx(2_000 / 2_020)
    price = Prices.load().of(request["model"])
    assert price is not None
    usage = Usage(input=20, cache_read=2_000, output=10)
    assert (row.cost, row.units) == (price.cost(usage), price.units(usage))
    first = sim.ledger[0].tokens
    assert (first.cache_write_1h, first.cache_write_5m) == (1_500, 500)


def test_the_total_adds_up_what_the_rows_say() -> None:
    sim, _ = api()
    for n in range(3):
        sim.answer(body(user(text(2_000, mark=SMALL), f"question {n}")))
    sim.answer(body())
    total, rows = sim.ledger.total, list(sim.ledger.rows)
    assert (total.requests, total.errors, total.currency) == (4, 1, "USD")
    assert total.tokens.cache_read == sum(r.tokens.cache_read for r in rows) == 4_000
    assert total.cost == pytest.approx(sum(r.cost or 0 for r in rows))
    assert total.units == pytest.approx(sum(r.units or 0 for r in rows))
    assert total.hit_rate == total.tokens.hit_rate > 0.5


def test_a_model_without_a_price_costs_nothing_we_know_of() -> None:
    sim, _ = api()
    row = sim.answer(body(user("a"), model="my-own-model")).row
    assert (row.cost, row.units) == (None, None)
    assert sim.ledger.total.unpriced == 1


def test_a_refused_request_is_a_row_with_its_error() -> None:
    sim, _ = api()
    row = sim.answer(body(assistant("a"))).row
    assert row.status == 400
    assert row.error == 'invalid_request_error: messages: first message must use the "user" role'
    assert row.tokens.input == 0


# --- what two requests share -----------------------------------------------------------------------------


def test_a_request_that_only_grew_shares_all_of_the_one_before() -> None:
    sim, _ = api()
    start = [user(text(100)), assistant(text(50))]
    sim.answer(body(*start[:1]))
    shared = sim.answer(body(*start, user("more"))).row.shared
    assert shared is not None
    assert (shared.blocks, shared.of_blocks, shared.tokens, shared.diverged) == (1, 1, 100, None)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"tools": [{"name": "Bash", "input_schema": {"type": "object"}}]}, "tools[0] Bash"),
        ({"system": "another"}, "system[0] text"),
        ({"tool_choice": {"type": "any"}}, "messages[0].content[0] text (tool_choice changed)"),
        ({"messages": [user("one"), assistant("TWO"), user("three")]}, "messages[1].content[0] text"),
        ({"messages": [user("one")]}, "the end: messages[1].content[0] text is gone"),
        ({"model": "claude-opus-5"}, "model (claude-opus-4-8 -> claude-opus-5)"),
        (
            {"model": "claude-opus-5", "system": "another"},
            "model (claude-opus-4-8 -> claude-opus-5); system[0] text",
        ),
    ],
)
def test_the_first_block_that_differs_is_named(change: dict[str, object], where: str) -> None:
    sim, _ = api()
    tools = [{"name": "Bash", "input_schema": {}}]
    request = body(user("one"), assistant("two"), user("three"), tools=tools, system="be brief")
    sim.answer(request)
    shared = sim.answer({**request, **change}).row.shared
    assert shared is not None
    assert shared.diverged == where


def test_each_source_is_compared_with_itself() -> None:
    sim, _ = api()

    def ask(source: str, said: str) -> LedgerRow:
        return sim.answer(body(user(said)), {"x-api-key": "k", "x-sevenfold-source": source}).row

    ask("main", "one")
    assert ask("notes", "two").shared is None
    shared = ask("main", "one").shared
    assert shared is not None
    assert shared.diverged is None


def test_the_ledger_is_plain_json() -> None:
    sim, _ = api()
    sim.answer(body(user("a")))
    said = sim.ledger.as_json()
    assert set(said) == {"requests", "total"}
    assert set(said["requests"][0]["tokens"]) == {
        "input", "cache_write_5m", "cache_write_1h", "cache_read", "output"
    }  # fmt: skip
    assert said["total"]["requests"] == 1


# --- diagnostics -----------------------------------------------------------------------------------------


def test_nobody_is_told_who_does_not_ask() -> None:
    sim, _ = api()
    assert "diagnostics" not in sim.answer(body(user("a"))).body
    first = sim.answer(body(user("a"), diagnostics={"previous_message_id": None}))
    assert first.body["diagnostics"] is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "claude-opus-5"}, "model_changed"),
        ({"tools": [{"name": "Read", "input_schema": {}}]}, "tools_changed"),
        ({"system": "another"}, "system_changed"),
        ({"messages": [user(text(300, "z"))]}, "messages_changed"),
    ],
)
def test_the_reason_for_a_miss_is_told(change: dict[str, object], reason: str) -> None:
    sim, _ = api()
    request = body(user(text(300)), tools=[{"name": "Bash", "input_schema": {}}], system="brief")
    before = sim.answer(request).body["id"]
    asked = {**request, **change, "diagnostics": {"previous_message_id": before}}
    why = sim.answer(asked).body["diagnostics"]["cache_miss_reason"]
    assert why["type"] == reason
    assert why["cache_missed_input_tokens"] >= 300


def test_nothing_is_told_when_nothing_was_lost_or_nothing_is_known() -> None:
    sim, _ = api()
    before = sim.answer(body(user("a"))).body["id"]
    asked = {"previous_message_id": before}
    grown = sim.answer(body(user("a"), assistant("b"), user("c"), diagnostics=asked))
    assert grown.body["diagnostics"] is None
    changed = sim.answer(body(user("a"), tool_choice={"type": "any"}, diagnostics=asked))
    assert changed.body["diagnostics"] == {"cache_miss_reason": {"type": "unavailable"}}
    lost = sim.answer(body(user("a"), diagnostics={"previous_message_id": "msg_nobody"}))
    reason = lost.body["diagnostics"]["cache_miss_reason"]
    assert reason == {"type": "previous_message_not_found"}
