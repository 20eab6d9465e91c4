"""The ledger: what a request is about to lose, what it did lose, and why."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from sevenfold.cache.ledger import Ledger
from sevenfold.cache.prices import MILLION, Prices
from sevenfold.core.events import CacheBroke, Event, Sending
from sevenfold.core.messages import Text, assistant, user
from sevenfold.core.request import TTL_SECONDS, Frame, Request
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Replace, Reply, Transcript
from sevenfold.testing import FakeClock

FRAME = Frame(
    "claude-sonnet-4-5",
    ("static", "session"),
    ({"name": "Read", "input_schema": {}}, {"name": "Bash", "input_schema": {}}),
    {"thinking": {"type": "enabled"}},
)


class Setup:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.clock = FakeClock()
        self.prices = Prices.load()
        self.ledger = Ledger(self.prices, self.clock, self.events.append)
        self.log = Transcript(self.clock.now)
        self.frame = FRAME

    def step(self, read: int, written: int, **change: Any) -> Sending:
        """Say something, send it, and be told that this much was read and written."""
        self.log.add(user("x" * 4_000))
        self.frame = replace(self.frame, **change) if change else self.frame
        request = Request(self.frame, self.log.view)
        self.ledger.before(request)
        usage = Usage(input=10, cache_write=written, cache_read=read, output=5)
        reply = Reply(assistant(Text("ok")), usage)
        self.log.add(reply, by="model")
        self.ledger.after(request, reply)
        return [e for e in self.events if isinstance(e, Sending)][-1]

    @property
    def breaks(self) -> list[CacheBroke]:
        return [e for e in self.events if isinstance(e, CacheBroke)]


def test_a_request_that_extends_the_last_one_loses_nothing() -> None:
    s = Setup()
    s.step(0, 10_000)
    sending = s.step(10_000, 1_000)

    assert (sending.lost, sending.why, sending.cost) == (0, "", 0.0)
    assert sending.shared == 10_000
    assert s.breaks == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": "claude-haiku-4-5"}, "the model changed from claude-sonnet-4-5"),
        ({"tools": FRAME.tools[:1]}, "the tools changed: -Bash"),
        ({"tools": (*FRAME.tools, {"name": "New"})}, "the tools changed: \\+New"),
        ({"tools": FRAME.tools[::-1]}, "the tools changed: their order"),
        ({"system": ("static", "other")}, "the system prompt changed in part 2"),
        ({"params": {}}, "request parameters changed: thinking"),
        ({"ttl": "1h"}, "the cache lifetime changed from 5m to 1h"),
    ],
)
def test_a_changed_frame_is_diagnosed_before_sending_and_named_afterwards(
    change: dict[str, Any], why: str
) -> None:
    s = Setup()
    s.step(0, 50_000)
    sending = s.step(0, 50_000, **change)

    assert sending.lost > 40_000
    assert sending.cost > 0
    [broke] = s.breaks
    assert re.match(why, sending.why)
    assert re.match(why, broke.why)
    assert not broke.expected


def test_an_edited_message_is_found_and_what_stands_before_it_is_kept() -> None:
    s = Setup()
    s.step(0, 10_000)
    s.step(10_000, 10_000)
    second = s.log.view[2].id
    s.log.add(Replace(second, second, (user("short"),)))
    sending = s.step(9_000, 2_000)

    assert sending.why == "message 3 of 3 changed"
    assert 0 < sending.lost < 20_000
    [broke] = s.breaks
    assert (broke.before, broke.after) == (20_000, 9_000)


def test_the_loss_is_priced_as_writing_again_instead_of_reading() -> None:
    s = Setup()
    s.step(0, 100_000)
    sending = s.step(0, 100_000, tools=())
    price = s.prices.of("claude-sonnet-4-5")

    assert price is not None
    expected = 100_000 * (price.write_5m - price.read) * price.input / MILLION
    assert sending.cost == pytest.approx(expected)


@pytest.mark.parametrize("ttl", ["5m", "1h"])
def test_a_cold_cache_is_foreseen_by_its_own_lifetime(ttl: Any) -> None:
    s = Setup()
    s.frame = replace(FRAME, ttl=ttl)
    s.step(0, 10_000)
    s.clock.time += TTL_SECONDS[ttl] - 1
    assert s.step(10_000, 0).lost == 0

    s.clock.time += TTL_SECONDS[ttl] + 1
    sending = s.step(0, 10_000)
    assert sending.lost == 10_000
    assert sending.why.startswith("idle for")
    assert s.breaks[0].why == sending.why


def test_what_stands_before_the_messages_may_outlive_them() -> None:
    s = Setup()
    s.frame = replace(FRAME, system=("rules " * 8_000,), system_ttl="1h")
    head = s.frame.tokens
    s.step(0, 50_000)
    s.clock.time += TTL_SECONDS["5m"] + 1
    sending = s.step(head, 50_000 - head)
    assert (sending.shared, sending.lost) == (head, 50_000 - head)
    price = s.prices.of("claude-sonnet-4-5")
    assert price is not None
    once = price.input / MILLION
    assert sending.cost == pytest.approx(sending.lost * (price.write_5m - price.read) * once)

    s.clock.time += TTL_SECONDS["1h"] + 1
    sending = s.step(0, 50_000)
    assert (sending.shared, sending.lost) == (0, 50_000)
    more = head * (price.write_1h - price.write_5m)
    expected = 50_000 * (price.write_5m - price.read) + more
    assert sending.cost == pytest.approx(expected * once)


def test_a_break_with_no_cause_here_is_put_down_to_the_server() -> None:
    s = Setup()
    s.step(0, 10_000)
    s.step(0, 10_000)

    assert "server" in s.breaks[0].why


def test_the_providers_own_diagnosis_is_used_where_it_is_offered() -> None:
    s = Setup()
    s.step(0, 10_000)
    request = Request(FRAME, s.log.view)
    s.ledger.before(request)
    told = {"cache_miss_reason": {"type": "tools_changed"}}
    s.ledger.after(request, Reply(assistant(Text("x")), Usage(input=10_000), diagnostics=told))

    assert s.breaks[0].why == "the provider says tools_changed, and nothing changed here"


def test_an_announced_break_is_expected_once() -> None:
    s = Setup()
    s.step(0, 50_000)
    s.ledger.expect("old results are cleared")
    sending = s.step(0, 30_000, tools=())
    assert (sending.expected, sending.why) == (True, "old results are cleared")
    assert s.breaks[0].expected

    s.step(0, 30_000)
    assert not s.breaks[1].expected


def test_small_differences_are_no_break() -> None:
    s = Setup()
    s.step(0, 10_000)
    s.step(8_100, 2_000)  # less than 95 %, but not by 2,000 tokens
    s.step(9_700, 2_000)  # by 400 tokens, not less than 95 %

    assert s.breaks == []


@pytest.mark.parametrize(("window", "broke"), [(8_000, 1), (32_000, 1), (200_000, 0)])
def test_in_a_small_window_a_smaller_difference_is_a_break(window: int, broke: int) -> None:
    s = Setup()
    s.ledger.window = window
    s.step(0, 5_000)
    s.step(4_000, 2_000)

    assert len(s.breaks) == broke


def test_a_fork_is_not_blamed_for_what_the_conversation_cached_while_it_ran() -> None:
    s = Setup()
    s.step(0, 10_000)
    fork = Request(s.frame, s.log.view, source="fork:notes")
    s.ledger.before(fork)
    s.step(10_000, 8_000)  # the conversation goes on, and caches more
    read = Usage(input=500, cache_read=10_000, output=5)
    s.ledger.after(fork, Reply(assistant(Text("noted")), read))
    assert s.breaks == []

    s.ledger.before(fork)
    s.ledger.after(fork, Reply(assistant(Text("noted")), Usage(input=18_000, output=5)))
    assert [b.source for b in s.breaks] == ["fork:notes"], "one that reads nothing is one still"


def test_each_source_has_its_own_account() -> None:
    s = Setup()
    s.step(0, 10_000)
    request = Request(FRAME, s.log.view, source="notes")
    s.ledger.before(request)
    s.ledger.after(request, Reply(assistant(Text("x")), Usage(cache_read=10_000, output=7)))

    assert s.breaks == []
    assert s.ledger.accounts["notes"].usage.output == 7
    assert s.ledger.total.requests == 2
    assert s.ledger.total.cost > s.ledger.accounts["notes"].cost > 0


def test_after_a_resume_the_next_request_is_compared_with_what_was_sent_before() -> None:
    s = Setup()
    s.step(0, 50_000)
    again = Ledger(s.prices, s.clock, s.events.append)
    again.recall(FRAME, s.log)
    again.before(Request(replace(FRAME, model="claude-haiku-4-5"), s.log.view))

    sending = [e for e in s.events if isinstance(e, Sending)][-1]
    assert sending.lost == 50_000


def test_a_model_without_a_price_has_no_cost_but_is_counted() -> None:
    s = Setup()
    s.frame = replace(FRAME, model="somebody-elses-model")
    s.step(0, 10_000)

    assert s.ledger.lines[0].cost is None
    assert s.ledger.total.usage.cache_write == 10_000
