"""The workload of benchmarks/fit has the announced shape, and its bills are right to the token."""

from __future__ import annotations

from itertools import pairwise

from benchmarks.fit.accounting import Bill, Part
from benchmarks.fit.environments import peers
from benchmarks.fit.workload import CALLS, TURNS, canonical, conversation, tokens_in


def test_the_workload_is_a_thousand_messages_of_204_thousand_tokens() -> None:
    messages = conversation()
    tokens = sum(tokens_in(canonical(message)) for message in messages)
    assert len(messages) == 1_000
    assert sum(message["role"] == "assistant" for message in messages) == 500
    assert 203_000 < tokens < 205_000


def test_every_call_is_answered_in_the_next_message_and_results_are_most_of_it() -> None:
    messages = conversation(turns=3)
    results = 0.0
    for said, answer in pairwise(messages):
        uses = [block["id"] for block in said["content"] if block["type"] == "tool_use"]
        answered = [b["tool_use_id"] for b in answer["content"] if b["type"] == "tool_result"]
        assert uses == answered
        results += tokens_in(canonical(answer)) if answered else 0.0
    whole = sum(tokens_in(canonical(message)) for message in messages)
    assert sum(b["type"] == "tool_use" for m in messages for b in m["content"]) == 3 * CALLS
    assert 0.7 < results / whole < 0.9


def test_the_same_seed_draws_the_same_conversation_and_another_one_does_not() -> None:
    assert conversation(turns=2) == conversation(turns=2)
    assert conversation(turns=2) != conversation(turns=2, seed=8)
    assert TURNS * 25 == 500


def test_a_bill_is_what_one_works_out_by_hand() -> None:
    """A grows by B, then B is cleared to b behind which C stands, then nothing changes but the end."""
    a, b, small_b, c, d = Part("a", 100), Part("b", 80), Part("b'", 10), Part("c", 20), Part("d", 4)
    bill = Bill()
    assert bill.request([a]) == (0, 100)
    assert bill.request([a, b]) == (100, 80)
    assert bill.request([a, b, c]) == (180, 20)
    assert bill.request([a, small_b, c]) == (100, 30)
    assert bill.request([a, small_b, c, d]) == (130, 4)
    bill.call(uncached=50, output=10)
    reads, writes = 100 + 180 + 100 + 130, 100 + 80 + 20 + 30 + 4
    assert bill.cost == reads * 0.1 + writes * 1.25 + 50 + 10 * 5
    assert (bill.requests, bill.breaks, bill.changed, bill.calls) == (5, 1, 1, 100)
    assert (bill.last, bill.average) == (134, (100 + 180 + 200 + 130 + 134) / 5)


def test_a_small_loss_at_the_end_is_a_change_but_not_a_break() -> None:
    bill = Bill()
    bill.request([Part("a", 95), Part("b", 5)])
    bill.request([Part("a", 95), Part("b'", 5)])
    assert (bill.breaks, bill.changed) == (0, 1)
    bill.request([Part("a", 95), Part("c", 5.1)])
    bill.request([Part("a", 95)])
    assert (bill.breaks, bill.changed) == (1, 3)


def test_every_peer_has_an_environment_with_pinned_packages() -> None:
    known = peers()
    for peer in known.peers:
        packages = known.environments[peer.environment]["packages"]
        assert all("==" in package for package in packages)
        assert any(package.startswith(f"{peer.package}==") for package in packages)
