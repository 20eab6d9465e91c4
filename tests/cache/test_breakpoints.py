"""Where the cache marks stand."""

from __future__ import annotations

from sevenfold.cache.breakpoints import LOOKBACK, place
from sevenfold.messages import Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.transcript import Reply, Transcript


def conversation(results: int) -> Transcript:
    t = Transcript(lambda: 0.0)
    t.add(user("go"))
    uses = tuple(ToolUse(str(i), "Read", {}) for i in range(results))
    t.add(Reply(assistant(Text("ok"), *uses)), by="model")
    t.add(Message("user", tuple(ToolResult(u.id, "r") for u in uses)), by="tools")
    return t


def test_an_empty_view_has_no_marks() -> None:
    assert place(Transcript(lambda: 0.0).view) == ()


def test_the_mark_stands_on_the_last_message() -> None:
    t = conversation(3)
    assert place(t.view) == (t.view[-1].id,)


def test_a_step_longer_than_the_lookback_keeps_the_old_mark_too() -> None:
    t = conversation(LOOKBACK)
    assert place(t.view) == (t.view[0].id, t.view[-1].id)


def test_a_request_that_must_not_write_marks_what_is_already_kept() -> None:
    t = conversation(3)
    assert place(t.view, writes=False) == (t.view[0].id,)
