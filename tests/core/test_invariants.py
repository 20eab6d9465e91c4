"""What a layer hands back is written whole and in order, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.core.messages import THOUGHTS, Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.request import (
    complete_changes,
    find_open_loop,
    has_paired_tools,
    is_in_open_loop,
    is_loop_broken,
)
from sevenfold.core.transcript import Mark, Pin, Replace, Reply, Results, Transcript, Unthink, View, What


def talk(*parts: str) -> Transcript:
    """u: the user speaks; c: a call and its result; C: the same, thought about; a, A: an answer."""
    t = Transcript(lambda: 0.0)
    for n, part in enumerate("".join(parts)):
        thought = (Thinking("hm", f"s{n}"),) if part.isupper() else ()
        if part == "u":
            t.add(user("speak"))
        elif part == "h":
            t.add(user("a hook says"), by="hooks")
        elif part in "aA":
            t.add(Reply(assistant(*thought, Text("so"))), by="model")
        else:
            t.add(Reply(assistant(*thought, ToolUse(f"t{n}", "Read", {}))), by="model")
            t.add(Message("user", (ToolResult(f"t{n}", "result"),)), by="tools")
    return t


def thoughts(view: View) -> list[int]:
    return [
        at
        for at, placed in enumerate(view)
        if any(isinstance(block, THOUGHTS) for block in placed.message.content)
    ]


def written(t: Transcript, *handed: What, binds: bool = True) -> View | None:
    whole = complete_changes(handed, t, binds)
    if whole is None:
        return None
    again = Transcript(lambda: 0.0)
    for entry in t.entries:
        again.add(entry.what, by=entry.by)
    again.add(*whole)
    return again.view


def test_results_shown_otherwise_are_written_as_they_are_where_thinking_is_free() -> None:
    handed = Results({"t1": "[gone]"}), Mark("m", 1)
    assert complete_changes(handed, talk("uCCC"), False) == handed


def test_what_names_a_result_that_is_not_there_is_refused_whole() -> None:
    handed = Mark("m", 1), Results({"t1": "[gone]", "t9": "[gone]"})
    assert complete_changes(handed, talk("uCC"), False) is None
    assert complete_changes(handed, talk("uCC"), True) is None


@pytest.mark.parametrize("what", [Pin(99, {}), Replace(0, 99, ()), Replace(3, 1, ())])
def test_what_refers_to_something_that_is_gone_is_refused(what: What) -> None:
    assert complete_changes((what,), talk("ucc"), False) is None


def test_what_would_split_a_call_from_its_result_is_refused() -> None:
    t = talk("ucc")
    assert complete_changes((Replace(0, 1, (user("summary"),)),), t, False) is None
    assert complete_changes((Replace(0, 2, (user("summary"),)),), t, False) is not None


def test_bound_thinking_behind_the_change_goes_with_it_and_what_stands_before_stays() -> None:
    t = talk("uCCAuCCAu")
    view = written(t, Results({"t2": "[gone]"}))

    assert view is not None
    assert thoughts(t.view) == [1, 3, 5, 7, 9, 11]
    assert thoughts(view) == [1, 3], "the call whose result went was thought before it"
    assert has_paired_tools(view)


def test_all_of_it_is_one_write_in_which_no_line_leaves_thinking_on_a_changed_prefix() -> None:
    whole = complete_changes((Results({"t1": "[gone]"}), Mark("m", 1)), talk("uCCAu"), True)

    assert whole is not None
    assert [type(what) for what in whole] == [Unthink, Results, Mark]


def test_nothing_is_unthought_where_nothing_was_thought_behind() -> None:
    handed = (Results({"t2": "[gone]"}),)
    assert complete_changes(handed, talk("uCcau"), True) == handed


@pytest.mark.parametrize(
    ("parts", "use", "allowed"),
    [
        ("uCCC", "t1", False),
        ("uCCC", "t3", True),
        ("uCcc", "t1", True),
        ("uCCAu", "t1", True),
        ("uCCAuC", "t1", False),
        ("uCCAuc", "t1", True),
        ("uCCAuCA", "t1", True),
        ("uCCAuCAh", "t1", True),
    ],
)
def test_a_tool_loop_that_goes_on_keeps_its_thoughts(parts: str, use: str, allowed: bool) -> None:
    t = talk(parts)
    view = written(t, Results({use: "[gone]"}))

    assert (view is not None) == allowed
    at = t.view.result_at(use)
    assert at is not None
    assert is_loop_broken(t.view, t.view[at].id) == (not allowed)


@given(st.text("ucCaAh", max_size=12))
def test_whether_a_loop_is_open_is_said_without_looking_for_its_beginning(parts: str) -> None:
    view = talk(parts).view
    assert is_in_open_loop(view) == (find_open_loop(view) < len(view))


@given(st.text("ucCaA", min_size=1, max_size=14), st.integers(0, 14))
def test_whatever_is_cleared_no_thought_is_left_on_a_prefix_it_was_not_made_on(
    parts: str, which: int
) -> None:
    t = talk("u", parts)
    uses = [use.id for message in t.view.messages for use in message.tool_uses]
    if not uses:
        return
    use = uses[which % len(uses)]
    view = written(t, Results({use: "[gone]"}))
    start = find_open_loop(t.view)
    if view is None:
        behind = [at for at in thoughts(t.view) if at > (t.view.result_at(use) or 0)]
        assert any(at >= start for at in behind), "only an open loop is a reason to refuse"
        return
    changed = t.view.result_at(use) or 0
    assert all(at <= changed for at in thoughts(view))
    assert [at for at in thoughts(t.view) if at <= changed] == thoughts(view)
