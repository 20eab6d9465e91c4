"""How one list became another, in steps that lead from the old one to the new one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.context.follower import ListStep, compare_lists


def steps(old: str, new: str, answers: str = "", fixed: str = "") -> list[ListStep]:
    """One letter an item; those in `answers` answer the one before, those in `fixed` cannot be swapped."""
    return compare_lists(
        list(old), list(new), lambda i: old[i] in answers, lambda i, j: old[i] not in fixed
    )


def told(old: str, new: str, **more: str) -> str:
    return " ".join(f"{s.kind} {old[s.old : s.old + s.count]}" for s in steps(old, new, **more))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("abc", "abcd", "keep a keep b keep c"),
        ("abc", "bcd", "out a keep b keep c"),
        ("abcde", "abed", "keep a keep b out cd keep e"),
        ("abc", "xbc", "swap a keep b keep c"),
        ("abc", "ab", "keep a keep b undo c"),
        ("abc", "xabc", "undo abc"),
        ("abc", "axc", "keep a swap b keep c"),
        ("abc", "abx", "keep a keep b undo c"),
        ("abc", "", "undo abc"),
        ("", "abc", ""),
    ],
)
def test_a_change_is_told_in_the_fewest_words(old: str, new: str, expected: str) -> None:
    assert told(old, new) == expected


def test_what_cannot_be_swapped_is_learned_anew() -> None:
    assert told("abc", "xbc", fixed="a") == "undo abc"


def test_an_answer_stays_only_with_what_it_answers() -> None:
    assert told("aBcB", "cB", answers="B") == "out aB keep c keep B"
    assert told("aBaC", "aC", answers="BC") == "keep a undo BaC"
    assert told("aB", "B", answers="B") == "undo aB"


@given(st.text("abcd", max_size=12), st.text("abcde", max_size=12), st.sets(st.sampled_from("abcd")))
def test_the_steps_lead_from_the_old_list_to_the_beginning_of_the_new_one(
    old: str, new: str, answers: set[str]
) -> None:
    made, at, done = "", 0, 0
    for step in steps(old, new, answers="".join(answers)):
        assert step.old == at, "every item of the old list has its step"
        at += step.count
        assert step.new == done
        if step.kind == "keep":
            assert old[step.old] == new[step.new]
        if step.kind in ("keep", "swap"):
            made += new[step.new]
            done += 1
    assert at == len(old)
    assert new.startswith(made)
