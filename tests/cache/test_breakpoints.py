"""Where the cache marks stand."""

from __future__ import annotations

import pytest
from kit import FRAME

from sevenfold.cache.prefix import (
    FRONTIER,
    LOOKBACK,
    MOST,
    choose_breakpoints,
    cut_to_cached,
    find_frontier,
    make_frontier_mark,
)
from sevenfold.core.messages import Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.core.request import Request
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Mark, Replace, Reply, Results, Transcript


def conversation(results: int) -> Transcript:
    t = Transcript(lambda: 0.0)
    t.add(user("go"))
    uses = tuple(ToolUse(str(i), "Read", {}) for i in range(results))
    t.add(Reply(assistant(Text("ok"), *uses)), by="model")
    t.add(Message("user", tuple(ToolResult(u.id, "r") for u in uses)), by="tools")
    return t


def test_an_empty_view_has_no_marks() -> None:
    assert choose_breakpoints(Transcript(lambda: 0.0).view) == ()


def test_the_mark_stands_on_the_last_message() -> None:
    t = conversation(3)
    assert choose_breakpoints(t.view) == (t.view[-1].id,)


def test_a_step_longer_than_the_lookback_keeps_the_old_mark_too() -> None:
    t = conversation(LOOKBACK)
    assert choose_breakpoints(t.view) == (t.view[0].id, t.view[-1].id)


def test_a_request_that_must_not_write_marks_what_is_already_kept() -> None:
    t = conversation(3)
    assert choose_breakpoints(t.view, writes=False) == (t.view[0].id,)


# --- the frontier of what was cleared -------------------------------------------------------------------


def steps(many: int, at_once: int = 1) -> Transcript:
    """So many calls: the results stand at 2, 4, 6 ..."""
    t = Transcript(lambda: 0.0)
    t.add(user("go"))
    for n in range(many):
        step(t, n, at_once)
    return t


def step(t: Transcript, n: int, at_once: int = 1) -> None:
    uses = tuple(ToolUse(f"{n}.{i}", "Read", {}) for i in range(at_once))
    t.add(Reply(assistant(*uses), Usage(input=100)), by="model")
    t.add(Message("user", tuple(ToolResult(u.id, "r" * 100) for u in uses)), by="tools")


def clear(t: Transcript, first: int, then: int) -> None:
    """Results from message `first` on are shown otherwise; the next ones are at `then`."""
    mark = make_frontier_mark(t.view, first, then)
    [result] = t.view[first].message.results
    t.add(Results({result.tool_use_id: "[gone]"}), mark, by="clearing")


def at(t: Transcript) -> list[int]:
    return [t.view.where(id) or 0 for id in choose_breakpoints(t.view)]


def test_a_change_marks_what_stands_before_it_and_before_the_next_one() -> None:
    t = steps(20)
    clear(t, 6, 30)

    assert at(t) == [5, 29, 40]


def test_after_the_reply_only_the_place_of_the_next_change_stays_marked() -> None:
    t = steps(20)
    clear(t, 6, 30)
    step(t, 20)

    assert at(t) == [29, 42]


def test_a_mark_of_one_place_is_understood_too() -> None:
    t = steps(20)
    t.add(Results({"2.0": "[gone]"}), Mark(FRONTIER, t.view[5].id), by="clearing")

    assert at(t) == [5, 40]
    step(t, 20)
    assert at(t) == [5, 42]


def test_a_second_change_where_the_first_one_wrote_again_begins_where_that_is_known() -> None:
    t = steps(20)
    clear(t, 6, 30)
    step(t, 20)
    clear(t, 30, 40)
    assert at(t) == [29, 39, 42], "the place that was kept for it"
    step(t, 21)
    clear(t, 16, 40)
    assert at(t) == [5, 39, 44], "nothing nearer is known"
    step(t, 22)
    clear(t, 46, 46)
    assert at(t) == [45, 46], "what came since was marked at every step"


def test_there_is_always_room_for_the_system_prompt() -> None:
    t = steps(20)
    clear(t, 6, 30)
    for n in range(20, 24):
        step(t, n, LOOKBACK)
        assert len(at(t)) <= MOST
        assert at(t)[-1] == len(t.view) - 1
        clear(t, 12 + 2 * (n - 20), 32)
        assert len(at(t)) <= MOST


def test_a_step_longer_than_the_lookback_keeps_the_old_mark_beside_the_frontier() -> None:
    t = steps(20)
    clear(t, 6, 30)
    step(t, 20, LOOKBACK)

    assert at(t) == [29, 40, 42]


def test_a_request_that_must_not_write_knows_no_frontier() -> None:
    t = steps(20)
    clear(t, 6, 30)

    assert choose_breakpoints(t.view, writes=False) == (t.view[38].id,)


@pytest.mark.parametrize("writes", [True, False])
def test_a_fork_marks_the_end_of_the_request_that_its_view_was_cut_to(writes: bool) -> None:
    t = steps(20)
    clear(t, 6, 30)
    step(t, 20, LOOKBACK)
    marked = choose_breakpoints(t.view)
    t.add(Reply(assistant(Text("a long answer " * 1_000)), Usage(input=100)), by="model")

    request = cut_to_cached(Request(FRAME, t.view))
    fork = Transcript.on(request.view, lambda: 0.0)
    fork.add(user("a directive"))

    assert len(request.view) == len(t.view) - 1
    assert marked[-1] == t.view[-2].id
    found = choose_breakpoints(fork.view, writes=writes, sent=request.sent)
    assert (marked[-1] in found) is not writes, "one that writes finds it a block before its own mark"
    assert found[-1] == (fork.view[-1].id if writes else marked[-1])


def test_a_frontier_that_was_summed_up_is_gone() -> None:
    t = steps(20)
    clear(t, 6, 30)
    t.add(Replace(t.view[0].id, t.view[38].id, (user("a summary"),)), by="compaction")

    assert at(t) == [len(t.view) - 1]


@pytest.mark.parametrize(
    "value", [None, "x", 10**9, -1, [], [None], [[1]], {"a": 1}, [10**9, "x", None, 1.5]]
)
def test_a_damaged_mark_marks_nothing(value: object) -> None:
    t = steps(3)
    t.add(Mark(FRONTIER, value), by="clearing")

    assert at(t) == [6]
    assert find_frontier(t.view) == []
    clear(t, 2, 6)
    assert at(t) == [1, 5, 6]


def test_a_change_in_the_first_message_has_nothing_before_it() -> None:
    t = steps(3)
    assert make_frontier_mark(t.view, 0, 4).value == [t.view[i].id for i in (0, 3, 6)]


def test_the_mark_does_not_grow_for_ever() -> None:
    t = steps(100)
    for n in range(2, 80):
        t.add(make_frontier_mark(t.view, 2 * n, 2 * n + 2), by="clearing")
        step(t, 100 + n)
    value = t.view.marks[FRONTIER]
    assert isinstance(value, list)
    assert len(value) < 12
