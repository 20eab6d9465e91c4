"""The log: what it keeps, what it refuses, and how big it says it is."""

from __future__ import annotations

import msgspec
import pytest

from sevenfold.core.errors import FromTheFuture
from sevenfold.core.messages import (
    Message,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    assistant,
    user,
)
from sevenfold.core.request import find_open_loop, has_paired_tools
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Entry, Mark, Pin, Replace, Reply, Transcript, Undo, Unknown


def new() -> tuple[Transcript, list[bytes]]:
    disk: list[bytes] = []
    return Transcript(lambda: 5.0, disk.append), disk


def test_tokens_after_a_cut_do_not_go_below_nothing() -> None:
    t, _ = new()
    result = Message("user", (ToolResult("u", "x" * 40_000),))  # 10,000 estimated, 2,000 real
    [a, b] = t.add(result, Reply(assistant(Text("y")), Usage(input=2_000)))
    t.add(Replace(a, b, (user("s" * 400),)))

    assert 0 < t.view.tokens < 300


def test_what_a_pin_frees_counts_until_the_provider_reports() -> None:
    t, _ = new()
    t.add(user("x"), Reply(assistant(Text("y")), Usage(input=1_000)))
    [m] = t.add(user("z"))
    before = t.view.tokens
    t.add(Pin(m, {"delete": []}, frees=300))
    assert t.view.tokens == before - 300

    t.add(Reply(assistant(Text("y")), Usage(input=700)))
    assert t.view.tokens == 700


def test_who_said_it_is_beside_the_message() -> None:
    t, _ = new()
    t.add(user("do x"))
    t.add(user("<memory>"), by="recall")
    t.add(Reply(assistant(Text("ok"))), by="model")
    assert [p.message.text for p in t.view if p.by == "user"] == ["do x"]

    t.add(Replace(t.view[0].id, t.view[1].id, (user("summary"),)), by="compaction")
    assert [p.by for p in t.view] == ["compaction", "model"]


def test_an_old_view_does_not_find_what_came_later() -> None:
    t, _ = new()
    t.add(user("a"))
    old = t.view
    [b] = t.add(user("b"))

    assert old.where(b) is None
    assert t.view.where(b) == 1
    with pytest.raises(IndexError):
        old[1]


def test_a_preview_writes_nothing() -> None:
    t, disk = new()
    [a] = t.add(user("a"))
    t.add(user("b"))
    lines = len(disk)

    assert t.preview(Undo(frozenset({a}))).messages == (user("b"),)
    assert len(t.view) == 2
    assert len(disk) == lines


def test_a_record_of_an_unknown_kind_is_kept_and_changes_nothing() -> None:
    t, disk = new()
    t.add(user("a"))
    later = b'{"id":1,"at":6.0,"what":{"type":"telepathy","to":"all"},"by":"layer 9"}\n'
    again = Transcript.load(b"".join(disk) + later, lambda: 7.0)

    assert again.view.messages == (user("a"),)
    assert isinstance(again.entries[1].what, Unknown)
    assert again.entries[1].what.raw == later.strip()
    assert again.add(user("b")) == [2], "its id is not used again"
    assert not again.problems


def test_a_malformed_line_is_reported_with_its_number_and_is_not_the_end() -> None:
    t, disk = new()
    t.add(user("a"))
    t.add(user("b"))
    again = Transcript.load(disk[0] + b'{"id": 1, "at"\n' + b"\xff\xfe\n" + disk[1], lambda: 0.0)

    assert [m.text for m in again.view.messages] == ["a", "b"]
    assert [p.line for p in again.problems] == [2, 3]


def test_a_transcript_from_the_future_is_refused_with_the_fix() -> None:
    header = msgspec.json.encode(Entry(0, 0.0, Mark("session", {"format": 99, "id": "s"})))
    with pytest.raises(FromTheFuture, match=r"format 99.*upgrade"):
        Transcript.load(header + b"\n", lambda: 0.0)


def test_marks_are_found_again_and_the_last_one_counts() -> None:
    t, disk = new()
    t.add(Mark("cursor", 1), Mark("cursor", {"at": 2}))

    assert Transcript.load(b"".join(disk), lambda: 0.0).view.marks == {"cursor": {"at": 2}}


def test_the_estimate_learns_what_the_provider_really_charges() -> None:
    t, _ = new()
    t.add(user("start"), Reply(assistant(Text("ok")), Usage(input=1_000, output=2)))
    total = 1_002
    for _ in range(60):  # every text costs twice what the raw rule says
        t.add(user("word " * 800))
        total += 2_000
        t.add(Reply(assistant(Text("ok")), Usage(input=total)))
    before = t.view.tokens
    t.add(user("word " * 800))

    assert 1_900 <= t.view.tokens - before <= 2_000


def test_an_edit_between_two_replies_teaches_nothing() -> None:
    t, _ = new()
    [a, _b] = t.add(user("start " * 500), Reply(assistant(Text("ok")), Usage(input=1_000)))
    t.add(Replace(a, a, (user("short"),)), user("more " * 500))
    before = t.view.calibration
    t.add(Reply(assistant(Text("ok")), Usage(input=5_000)))

    assert t.view.calibration == before


def test_an_open_tool_loop_begins_where_the_user_spoke() -> None:
    t, _ = new()
    t.add(user("go"))
    t.add(Reply(assistant(RedactedThinking("x"), ToolUse("1", "Read", {}))), by="model")
    t.add(Message("user", (ToolResult("1", "r"),)), by="tools")
    assert find_open_loop(t.view) == 1

    t.add(Reply(assistant(Thinking("t"), Text("done"))), by="model")
    assert find_open_loop(t.view) == len(t.view)
    t.add(user("next"))
    assert find_open_loop(t.view) == len(t.view)
    assert has_paired_tools(t.view)
