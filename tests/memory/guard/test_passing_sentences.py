"""Sentences that do not pass are cut out; the rest stays as it was written."""

from __future__ import annotations

import pytest

from sevenfold.memory.guard.passing_sentences import keep_passing_sentences


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("Good.\nStill good.", "Good.\nStill good."),
        ("Good. Bad one. Good again.", "Good. Good again."),
        ("- Bad one. Good.\n- Bad one.\n- Good.", "- Good.\n- Good."),
        ("**Why:** Bad one. Good.", "**Why:** Good."),
        ("Run `find . -name x` and be good. Bad one.", "Run `find . -name x` and be good."),
        ("# Title\n\nBad one.\n\n# Next\n\nGood.", "# Next\n\nGood."),
        ("Good.\n\n```\na = 1\n\nb = 2\n```", "Good.\n\n```\na = 1\n\nb = 2\n```"),
        ("Bad one:\n```\na = 1\n```\nGood.", "Good."),
        ("好的。坏 bad 的。好的。", "好的。 好的。"),
        ("Bad one.", ""),
    ],
)
def test_what_does_not_pass_is_cut_out(body: str, left: str) -> None:
    assert keep_passing_sentences(body, lambda clause: "bad" not in clause.lower()) == left
