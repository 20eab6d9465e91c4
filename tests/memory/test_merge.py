"""Three-way merge: the side that changed, and both changes of one text."""

from __future__ import annotations

import pytest

from sevenfold.memory.backend import HEAD
from sevenfold.memory.merge import choose_side, merge_lines, merge_texts


@pytest.mark.parametrize(
    ("before", "ours", "theirs", "side"),
    [
        ("a", "a", "a", "ours"),
        ("a", "b", "a", "ours"),
        ("a", "b", "b", "ours"),
        ("a", "a", "b", "theirs"),
        (None, None, "b", "theirs"),
        ("a", "a", None, "theirs"),
        ("a", "b", "c", None),
        ("a", None, "b", None),
        (None, "a", "b", None),
    ],
)
def test_the_side_that_changed_is_taken(
    before: str | None, ours: str | None, theirs: str | None, side: str | None
) -> None:
    assert choose_side(before, ours, theirs) == side


def test_changes_of_different_lines_come_together_and_those_of_one_line_do_not() -> None:
    old = b"a\nb\nc\nd\n"
    for merge in (merge_lines, merge_texts):
        assert merge(old, b"A\nb\nc\nd\n", b"a\nb\nc\nD\n") == b"A\nb\nc\nD\n"
        assert merge(old, b"A\nb\nc\nd\n", b"X\nb\nc\nd\n") is None


def test_texts_of_others_are_merged_in_bounded_time_and_size() -> None:
    assert merge_texts(None, b"a\n", b"b\n") is None
    many = b"x\n" * 2_000
    assert merge_texts(b"1\n" + many + b"2\n", many, b"3\n" + many + b"4\n") is None
    large = b"y" * (HEAD - 3) + b"\n"
    assert merge_texts(b"a\nb\nc\n", large + b"b\nc\n", b"a\nb\n" + large) is None
