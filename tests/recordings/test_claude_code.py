"""Reading other people's session files: trees, replies in pieces, compactions, and damage of any kind."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.core.errors import StorageFailure
from sevenfold.core.messages import Message, Opaque, Text, Thinking, ToolResult, ToolUse, user
from sevenfold.core.request import has_paired_tools
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply
from sevenfold.recordings.claude_code import ClaudeCodeReader, read_session
from sevenfold.recordings.reader import read_beginning
from sevenfold.recordings.recorded_session import (
    CLEARED,
    INTERRUPTED,
    RecordedClearing,
    RecordedCompaction,
    RecordedEvent,
    RecordedSession,
    convert_recording,
)
from sevenfold.storage import jsonl as lines

Json = dict[str, Any]


def record(kind: str, uuid: str, parent: str | None, **fields: Any) -> Json:
    number = int("".join(c for c in uuid if c.isdigit()) or 0)
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "isSidechain": False,
        "sessionId": "s-1",
        "version": "2.1.17",
        "cwd": "/w",
        "gitBranch": "main",
        "timestamp": f"2026-01-27T09:{number // 60 % 60:02d}:{number % 60:02d}.500Z",
        **fields,
    }


def said(uuid: str, parent: str | None, content: Any, **fields: Any) -> Json:
    return record("user", uuid, parent, message={"role": "user", "content": content}, **fields)


def piece(uuid: str, parent: str | None, id: str, block: Json, output: int = 1, **fields: Any) -> Json:
    """One record of a reply: one block of it."""
    message = {
        "id": id,
        "role": "assistant",
        "model": fields.pop("model", "claude-x"),
        "content": [block],
        "stop_reason": fields.pop("stop", None),
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 200,
            "cache_read_input_tokens": 3000,
            "cache_creation": {"ephemeral_5m_input_tokens": 150, "ephemeral_1h_input_tokens": 50},
            "output_tokens": output,
        },
    }
    return record("assistant", uuid, parent, message=message, requestId=f"req-{id}", **fields)


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def use(id: str, name: str = "Bash", **args: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": args}


def result(uuid: str, parent: str | None, id: str, content: Any = "done", **fields: Any) -> Json:
    block = {"type": "tool_result", "tool_use_id": id, "content": content}
    return said(uuid, parent, [block], toolUseResult=fields.pop("notes", "done"), **fields)


def encoded(*records: Json | bytes) -> bytes:
    return b"".join((r if isinstance(r, bytes) else json.dumps(r).encode()) + b"\n" for r in records)


def read(*records: Json | bytes) -> RecordedSession:
    return read_session(encoded(*records))


def words(entries: tuple[RecordedEvent, ...]) -> list[str]:
    return [e.message.text for e in entries if e.message]


def test_a_reply_in_pieces_is_one_reply_with_its_usage_counted_once() -> None:
    recorded = read(
        said("u1", None, "hello"),
        piece("a1", "u1", "m1", {"type": "thinking", "thinking": "hm", "signature": "sig"}),
        piece("a2", "a1", "m1", text("let me look")),
        piece("a3", "a2", "m1", use("t1", command="ls"), output=77, stop="tool_use"),
        result("u2", "a3", "t1"),
        piece("a4", "u2", "m2", text("done")),
    )
    first, second = recorded.requests
    assert isinstance(first.what, Reply)
    assert first.what == Reply(
        Message(
            "assistant",
            (Thinking("hm", "sig"), Text("let me look"), ToolUse("t1", "Bash", {"command": "ls"})),
        ),
        Usage(input=10, cache_write=200, cache_read=3000, output=77, cache_write_1h=50),
        "tool_use",
        model="claude-x",
    )
    assert (first.uuid, first.parent, first.line) == ("a1", "u1", 2)
    assert (first.request_id, first.model, first.counted) == ("req-m1", "claude-x", True)
    assert first.at == 1769504403.5
    assert not second.counted
    assert [s.uuid for s in recorded.active] == ["u1", "a1", "u2", "a4"]
    assert recorded.problems == ()


def test_what_a_session_is_about_is_read_from_its_records() -> None:
    recorded = read(
        {"type": "summary", "summary": "Of another session", "leafUuid": "elsewhere"},
        said("u1", None, "hello"),
        {"type": "summary", "summary": "Saying hello", "leafUuid": "u1"},
        {"type": "summary", "summary": "Of a third", "leafUuid": "far"},
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}},
        {"type": "queue-operation", "operation": "enqueue", "sessionId": "s-1"},
        {"type": "something-new", "future": True},
        record("progress", "p1", "u1", data={"type": "hook_progress"}),
    )
    assert (recorded.session, recorded.version, recorded.folder, recorded.git_branch) == (
        "s-1",
        "2.1.17",
        "/w",
        "main",
    )
    assert recorded.title == "Saying hello"
    assert recorded.skipped == {
        "summary": 3,
        "file-history-snapshot": 1,
        "queue-operation": 1,
        "something-new": 1,
        "progress": 1,
    }
    named = read(said("u1", None, "x"), {"type": "custom-title", "customTitle": "Mine"})
    assert named.title == "Mine"
    assert read({"type": "summary", "summary": "Only", "leafUuid": "x"}).title == "Only"


def test_results_of_parallel_tools_stand_together_behind_the_reply_in_the_order_asked() -> None:
    """As the files have it: results hang on different pieces, and pieces follow results."""
    recorded = read(
        said("u1", None, "go"),
        piece("a1", "u1", "m1", use("t1", "Read")),
        piece("a2", "a1", "m1", use("t2", "Grep")),
        result("r2", "a2", "t2", "two", sourceToolAssistantUUID="a2"),
        piece("a3", "r2", "m1", use("t3", "Glob")),
        record("progress", "p1", "a3"),
        result("r1", "a1", "t1", "one", sourceToolAssistantUUID="a1"),
        result("r3", "p1", "t3", "three", sourceToolAssistantUUID="a3"),
        piece("a4", "r3", "m2", text("all three")),
    )
    assert [s.uuid for s in recorded.active] == ["u1", "a1", "r2", "a4"]
    view = convert_recording(recorded).view
    assert has_paired_tools(view)
    assert [r.text for r in view[2].message.results] == ["one", "two", "three"]
    assert [p.by for p in view] == ["user", "model", "tools", "model"]


def test_the_active_branch_ends_at_the_last_leaf_and_the_others_can_be_reached() -> None:
    recorded = read(
        said("u1", None, "start"),
        piece("a1", "u1", "m1", text("ok")),
        said("u2", "a1", "the wrong way"),
        piece("a2", "u2", "m2", text("lost")),
        said("u3", "a1", "the right way"),
        piece("a3", "u3", "m3", text("found")),
    )
    assert words(recorded.active) == ["start", "ok", "the right way", "found"]
    assert recorded.tips == ("a2", "a3")
    assert words(recorded.branch("a2")) == ["start", "ok", "the wrong way", "lost"]
    assert convert_recording(recorded, "a2").view[-1].message.text == "lost"
    assert recorded.branch("nowhere") == ()


def test_the_chain_goes_on_through_records_that_say_nothing() -> None:
    recorded = read(
        record("progress", "p1", None),
        record("progress", "p2", "p1"),
        said("u1", "p2", "hello"),
        record("system", "s1", "u1", subtype="stop_hook_summary"),
        record("system", "s2", "s1", subtype="turn_duration"),
        piece("a1", "s2", "m1", text("hi")),
        record("attachment", "x1", "a1", attachment={"type": "file"}),
        said("u2", "x1", "more"),
    )
    assert [(s.uuid, s.parent) for s in recorded.active] == [("u1", None), ("a1", "u1"), ("u2", "a1")]
    assert recorded.problems == ()


BOUNDARY = record(
    "system",
    "b1",
    None,
    subtype="compact_boundary",
    logicalParentUuid="a1",
    compactMetadata={"trigger": "auto", "preTokens": 155_000},
)
SUMMARY = said("c1", "b1", "In short: …", isCompactSummary=True, isVisibleInTranscriptOnly=True)


def test_a_compaction_is_a_replacement_of_all_before_it_by_the_summary() -> None:
    recorded = read(
        said("u1", None, "long"),
        piece("a1", "u1", "m1", text("story")),
        BOUNDARY,
        SUMMARY,
        said("u2", "c1", "go on"),
        piece("a2", "u2", "m2", text("going on")),
    )
    (compaction,) = recorded.compactions
    assert compaction.what == RecordedCompaction("auto", 155_000, user("In short: …"))
    assert [s.uuid for s in recorded.active] == ["u1", "a1", "b1", "u2", "a2"]
    transcript = convert_recording(recorded)
    assert [m.text for m in transcript.view.messages] == ["In short: …", "go on", "going on"]
    said_before = [e.what.text for e in transcript.entries if isinstance(e.what, Message)]
    assert said_before == ["long", "go on"]
    assert transcript.view.marks["compacted"] == {"trigger": "auto", "tokens_before": 155_000}


ATTACHED = (
    record("attachment", "x1", "b1", attachment={"type": "file", "filename": "/w/a.py"}),
    record("attachment", "x2", "x1", attachment={"type": "todo_reminder", "content": []}),
    record("progress", "x3", "x2", data={"type": "hook_progress"}),
)
"""Records that current versions write between a boundary and its summary."""


@pytest.mark.parametrize("parent", ["x3", "b1", "not-in-this-file"])
def test_attachments_may_stand_between_a_boundary_and_its_summary(parent: str) -> None:
    recorded = read(
        said("u1", None, "long"),
        piece("a1", "u1", "m1", text("story")),
        BOUNDARY,
        *ATTACHED,
        {**SUMMARY, "parentUuid": parent},
        record("attachment", "x4", "c1", attachment={"type": "file", "filename": "/w/b.py"}),
        said("u2", "x4", "go on"),
        piece("a2", "u2", "m2", text("going on")),
    )
    (compaction,) = recorded.compactions
    assert compaction.what == RecordedCompaction("auto", 155_000, user("In short: …"))
    transcript = convert_recording(recorded)
    assert [m.text for m in transcript.view.messages] == ["In short: …", "go on", "going on"]
    assert (transcript.problems, recorded.abandoned) == ([], ())


@pytest.mark.parametrize("logical", ["not-in-this-file", None])
def test_a_compaction_that_names_nothing_we_have_follows_the_line_before(logical: str | None) -> None:
    recorded = read(
        said("u1", None, "long"),
        piece("a1", "u1", "m1", text("story")),
        {**BOUNDARY, "logicalParentUuid": logical},
        SUMMARY,
    )
    assert [s.uuid for s in recorded.active] == ["u1", "a1", "b1"]
    assert recorded.problems == ()


def test_messages_that_a_compaction_kept_stay_behind_the_summary() -> None:
    kept = {"trigger": "manual", "preservedSegment": {"headUuid": "u2", "tailUuid": "a2"}}
    recorded = read(
        said("u1", None, "old"),
        piece("a1", "u1", "m1", text("story")),
        said("u2", "a1", "new"),
        piece("a2", "u2", "m2", text("kept")),
        {**BOUNDARY, "logicalParentUuid": "a2", "compactMetadata": kept},
        SUMMARY,
    )
    view = convert_recording(recorded).view
    assert [m.text for m in view.messages] == ["In short: …", "new", "kept"]


def test_a_summary_whose_boundary_was_lost_still_replaces() -> None:
    recorded = read(said("u1", None, "long"), b'{"type":"system","uu', SUMMARY, said("u2", "c1", "on"))
    assert [m.text for m in convert_recording(recorded).view.messages] == ["In short: …", "on"]
    assert [p.line for p in recorded.problems] == [2]


def test_a_boundary_whose_summary_was_lost_removes_nothing_and_is_reported() -> None:
    recorded = read(said("u1", None, "long"), {**BOUNDARY, "logicalParentUuid": "u1"}, b"{")
    transcript = convert_recording(recorded)
    assert [m.text for m in transcript.view.messages] == ["long"]
    assert [p.line for p in transcript.problems] == [3, 2]


def test_a_file_that_begins_with_a_compaction_begins_with_its_summary() -> None:
    recorded = read(BOUNDARY, SUMMARY, said("u2", "c1", "on"))
    assert recorded.continues == "a1"
    assert [m.text for m in convert_recording(recorded).view.messages] == ["In short: …", "on"]


def test_cleared_results_are_cleared_in_the_view_and_still_in_the_transcript() -> None:
    facts = {
        "trigger": "auto",
        "preTokens": 65_398,
        "tokensSaved": 45_149,
        "compactedToolIds": ["t1", "gone"],
    }
    recorded = read(
        said("u1", None, "go"),
        piece("a1", "u1", "m1", use("t1")),
        result("r1", "a1", "t1", "very long"),
        record("system", "b1", "r1", subtype="microcompact_boundary", microcompactMetadata=facts),
        said("u2", "b1", "next"),
    )
    [clearing] = [one for one in recorded.entries if isinstance(one.what, RecordedClearing)]
    assert clearing.what == RecordedClearing(("t1", "gone"), "auto", 65_398, 45_149)
    transcript = convert_recording(recorded)
    assert transcript.view[2].message.results[0].text == CLEARED
    assert any(
        isinstance(e.what, Message) and e.what.results and e.what.results[0].text == "very long"
        for e in transcript.entries
    )


def test_what_a_tool_noted_beside_its_result_is_understood() -> None:
    envelope = (
        "<persisted-output>\nOutput too large (26.9KB). Full output saved to: /x/y.txt\n\n"
        "Preview (first 2KB):\n…\n</persisted-output>"
    )
    pieces = [piece(f"a{i}", None if i == 1 else f"a{i - 1}", "m1", use(f"t{i}", "T")) for i in range(1, 8)]
    recorded = read(
        *pieces,
        result("r1", "a1", "t1", notes={"type": "text", "file": {"filePath": "/w/a.py", "content": "…"}}),
        result("r2", "a2", "t2", notes={"filePath": "/w/b.py", "originalFile": None}),
        result("r3", "a3", "t3", envelope, notes={"stdout": envelope, "interrupted": True}),
        result("r4", "a4", "t4", notes={"agentId": "ag", "totalTokens": 900, "status": "completed"}),
        result("r5", "a5", "t5", "[Old tool result content cleared]", notes=[text("x")]),
        result("r6", "a6", "t6", notes={"filePath": 3}),
        said("r7", "a7", [{"type": "tool_result", "tool_use_id": "t7", "content": "no", "is_error": True}]),
    )
    facts = recorded.results
    assert [facts[f"t{i}"].path for i in (1, 2, 6)] == ["/w/a.py", "/w/b.py", ""]
    assert (facts["t3"].persisted, facts["t3"].interrupted) == ("/x/y.txt", True)
    assert (facts["t4"].agent, facts["t4"].agent_tokens) == ("ag", 900)
    assert facts["t5"].cleared
    assert facts["t7"].is_error
    assert {f.tool for f in facts.values()} == {"T"}
    assert facts["t1"].line == 8
    assert recorded.problems == ()


def test_conversations_of_sub_agents_are_kept_apart() -> None:
    recorded = read(
        said("u1", None, "go"),
        piece("a1", "u1", "m1", use("t1", "Task")),
        said("s1", None, "look for x", isSidechain=True),
        said("s5", None, "look for y", isSidechain=True),
        piece("s2", "s1", "n1", use("t9"), isSidechain=True),
        result("s3", "s2", "t9", isSidechain=True),
        piece("s6", "s5", "n2", text("y found"), isSidechain=True),
        said("g1", "a1", "with an id", isSidechain=True, agentId="ag-7"),
        result("r1", "a1", "t1", "x found"),
    )
    assert [s.uuid for s in recorded.entries] == ["u1", "a1", "r1"]
    assert {k: [s.uuid for s in v] for k, v in recorded.sidechains.items()} == {
        "s1": ["s1", "s2", "s3"],
        "s5": ["s5", "s6"],
        "ag-7": ["g1"],
    }
    assert recorded.results["t9"].tool == "Bash"
    assert recorded.problems == ()


def test_a_file_of_one_sub_agent_is_read_as_its_conversation() -> None:
    recorded = read(
        said("s1", None, "look", isSidechain=True, agentId="ag"),
        piece("s2", "s1", "m1", text("seen"), isSidechain=True, agentId="ag"),
    )
    assert words(recorded.active) == ["look", "seen"]
    assert recorded.sidechains == {}


def test_replies_that_no_model_gave_are_told_apart() -> None:
    recorded = read(
        said("u0", None, "<caveat/>", isMeta=True),
        piece("a0", "u0", "x1", text("No response requested."), model="<synthetic>"),
        piece("a1", "a0", "x2", text("API Error: 529"), model="<synthetic>", isApiErrorMessage=True),
        record(
            "system",
            "e1",
            "a1",
            subtype="api_error",
            error={"status": 529, "error": {"error": {"type": "overloaded", "message": "Overloaded"}}},
            retryAttempt=2,
        ),
        said("u2", "e1", "again"),
    )
    meta, made_up, failed, again = recorded.active
    assert (meta.meta, made_up.made_up, failed.failed, again.meta) == (True, True, True, False)
    assert recorded.requests == ()
    (error,) = recorded.api_errors
    assert (error.line, error.status, error.why, error.attempt) == (4, 529, "Overloaded", 2)
    view = convert_recording(recorded).view
    assert [m.text for m in view.messages] == ["<caveat/>", "No response requested.", "again"]
    assert view.reported is None


def test_a_use_that_was_never_answered_is_answered_as_interrupted() -> None:
    recorded = read(
        said("u1", None, "go"),
        piece("a1", "u1", "m1", use("t1")),
        piece("a2", "a1", "m1", use("t2")),
        result("r2", "a2", "t2", "two"),
        said("u2", "a2", "[Request interrupted by user for tool use]"),
        piece("a3", "u2", "m2", use("t3")),
    )
    view = convert_recording(recorded).view
    assert has_paired_tools(view)
    answers = [(r.tool_use_id, r.text, r.is_error) for p in view for r in p.message.results]
    assert answers == [("t1", INTERRUPTED, True), ("t2", "two", False), ("t3", INTERRUPTED, True)]
    assert view[3].message.text == "[Request interrupted by user for tool use]"


def test_a_result_of_nothing_is_dropped_and_reported_and_what_came_with_it_stays() -> None:
    orphan = {"type": "tool_result", "tool_use_id": "t0", "content": "?"}
    recorded = read(
        said("u1", None, "go"),
        said("u2", "u1", [orphan]),
        said("u3", "u2", [orphan, text("and this")]),
        said("u4", "u3", "end"),
    )
    assert [(p.line, "t0" in p.why) for p in recorded.problems] == [(2, True), (3, True)]
    assert words(recorded.active) == ["go", "and this", "end"]
    assert has_paired_tools(convert_recording(recorded).view)


def test_a_second_result_of_the_same_use_is_dropped_and_reported() -> None:
    recorded = read(
        piece("a1", None, "m1", use("t1")),
        result("r1", "a1", "t1", "first"),
        result("r2", "a1", "t1", "second"),
        said("u2", "r2", "next"),
    )
    assert [p.line for p in recorded.problems] == [3]
    assert [s.uuid for s in recorded.active] == ["a1", "r1", "u2"]


def test_tools_that_reuse_their_ids_are_told_apart_by_what_they_follow() -> None:
    recorded = read(
        piece("a1", None, "m1", use("call_0")),
        result("r1", "a1", "call_0", "one"),
        piece("a2", "r1", "m2", use("call_0")),
        result("r2", "a2", "call_0", "two"),
        piece("a3", "r2", "m3", use("call_0")),
        result("r3", None, "call_0", "three"),
    )
    view = convert_recording(recorded).view
    assert [r.text for p in view for r in p.message.results] == ["one", "two", "three"]
    assert has_paired_tools(view)


def test_a_result_written_before_its_use_is_put_behind_it() -> None:
    recorded = read(said("u1", None, "go"), result("r1", "a1", "t1"), piece("a1", "u1", "m1", use("t1")))
    assert [s.uuid for s in recorded.active] == ["u1", "a1", "r1"]
    assert recorded.problems == ()


# --- damage -----------------------------------------------------------------------------------------


def test_lines_that_are_no_records_are_reported_by_number_and_nothing_else_is_lost() -> None:
    deep = b'{"type":"user","uuid":"d","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    recorded = read(
        said("u1", None, "one"),
        b"not json",
        b"[1, 2]",
        b"12",
        b"",
        b'{"type": 5}',
        said("u2", "u1", [3]),
        said("u3", "u2", {"a": 1}),
        record("user", "u4", "u3", message="x"),
        b"\0\0\0",
        b"\xff\xfe{}",
        deep,
        piece("a1", "u3", "m1", text("two")),
        b'{"type":"user","uuid":"u9","parentUuid":"a1","message":{"role":"user","conte',
    )
    assert [p.line for p in recorded.problems] == [2, 3, 4, 6, 7, 8, 9, 11, 12, 14]
    assert all(p.why for p in recorded.problems)
    assert words(recorded.active) == ["one", "two"]


def test_half_characters_and_broken_bytes_are_replaced() -> None:
    one = encoded(said("u1", None, "HALF and 😀")).replace(b"HALF", b"\\ud83d")
    two = encoded(said("u2", "u1", "BYTE")).replace(b"BYTE", b"caf\xe9")
    recorded = read_session(one + two)
    assert words(recorded.active) == ["\ufffd and 😀", "caf\ufffd"]
    assert recorded.problems == ()
    assert convert_recording(recorded).view[0].message.text.encode("utf-8")


def test_blocks_of_kinds_nobody_knows_yet_survive() -> None:
    recorded = read(said("u1", None, [{"type": "hologram", "data": [1, 2]}, text("x")]))
    (message,) = convert_recording(recorded).view.messages
    assert message.content[0] == Opaque("hologram", '{"type": "hologram", "data": [1, 2]}')


def test_what_follows_a_lost_line_is_taken_in_the_order_of_the_file() -> None:
    recorded = read(said("u1", None, "one"), b'{"uuid":"a1", broken', said("u2", "a1", "two"))
    assert words(recorded.active) == ["one", "two"]
    assert [p.line for p in recorded.problems] == [2, 3]


def test_a_file_that_continues_another_says_so() -> None:
    recorded = read(said("u1", "in-another-file", "go on"), piece("a1", "u1", "m1", text("yes")))
    assert recorded.continues == "in-another-file"
    assert words(recorded.active) == ["go on", "yes"]
    assert recorded.problems == ()


def test_repeated_lines_count_once() -> None:
    one, two = said("u1", None, "one"), piece("a1", "u1", "m1", text("two"))
    recorded = read(one, two, one, two)
    assert words(recorded.entries) == ["one", "two"]
    assert recorded.skipped == {"repeated": 2}


def test_a_reply_written_again_with_new_uuids_is_not_doubled() -> None:
    recorded = read(
        said("u1", None, "one"),
        piece("a1", "u1", "m1", text("two")),
        piece("a2", "a1", "m1", use("t1")),
        piece("a3", "u1", "m1", text("two")),
        piece("a4", "a3", "m1", use("t1")),
        result("r1", "a4", "t1"),
    )
    (reply,) = recorded.requests
    assert reply.message
    assert len(reply.message.content) == 2


def test_circles_end() -> None:
    recorded = read(
        said("u1", "u2", "one"),
        said("u2", "u1", "two"),
        said("u3", "u3", "three"),
        record("progress", "p1", "p2"),
        record("progress", "p2", "p1"),
        said("u4", "p1", "four"),
    )
    assert words(recorded.active) == ["one", "two", "three", "four"]
    assert [p.line for p in recorded.problems] == [3, 6]


def test_an_empty_file_is_an_empty_session() -> None:
    for source in (b"", b"\n\n", gzip.compress(b"")):
        recorded = read_session(source)
        assert (recorded.entries, recorded.active, recorded.problems) == ((), (), ())
        assert len(convert_recording(recorded).view) == 0


def test_packed_files_are_read_and_a_damaged_one_up_to_the_damage(tmp_path: Path) -> None:
    data = encoded(*(said(f"u{i}", f"u{i - 1}" if i else None, f"n{i} " * 50) for i in range(500)))
    plain, packed, cut = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz", tmp_path / "cut.gz"
    plain.write_bytes(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))
    packed.write_bytes(gzip.compress(data))
    cut.write_bytes(gzip.compress(data)[:-500])
    assert read_session(plain).entries == read_session(packed).entries == read_session(data).entries
    damaged = read_session(cut)
    assert 0 < len(damaged.entries) < 500
    assert "damaged" in damaged.problems[-1].why
    assert damaged.problems[-1].line > len(damaged.entries)


def test_a_line_too_long_for_memory_is_skipped_and_reported() -> None:
    long = b'{"type":"user","uuid":"u2","x":"' + b"x" * lines.LONGEST_LINE + b'"}'
    recorded = read(said("u1", None, "one"), long, said("u3", "u1", "three"))
    assert words(recorded.active) == ["one", "three"]
    assert [p.line for p in recorded.problems] == [2]


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageFailure, match=r"none.jsonl could not be read: it does not exist"):
        read_session(tmp_path / "none.jsonl")


def test_the_reader_knows_its_own_files(tmp_path: Path) -> None:
    reader = ClaudeCodeReader()
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(encoded(said("u1", None, "one"))))
    assert reader.recognises(read_beginning(path))
    assert reader.read(path).format == reader.format == "claude-code"
    snapshot = encoded({"type": "file-history-snapshot", "snapshot": {}}, said("u1", None, "x"))
    assert reader.recognises(snapshot)
    ours = b'{"id":0,"at":1.0,"what":{"type":"mark","name":"session","value":{}},"by":"session"}\n'
    for other in (b"", b"# notes\n", b'{"role":"user","content":"hi"}\n', ours):
        assert not reader.recognises(other)


_uuid = st.sampled_from(["a", "b", "c", "d", "e", None])
_blocks = st.lists(
    st.sampled_from(
        [
            text("x"),
            use("t1"),
            use("t2"),
            {"type": "tool_result", "tool_use_id": "t1", "content": "1"},
            {"type": "tool_result", "tool_use_id": "t2", "content": None},
        ]
    ),
    max_size=3,
)
_records = st.builds(
    lambda kind, uuid, parent, blocks, id, flags: {
        "type": kind[0],
        "subtype": kind[1],
        "uuid": uuid,
        "parentUuid": parent,
        "logicalParentUuid": parent,
        "message": {"id": id, "content": blocks, "usage": {"input_tokens": 5}},
        "microcompactMetadata": {"compactedToolIds": ["t1"]},
        **flags,
    },
    st.sampled_from(
        [
            ("user", None),
            ("assistant", None),
            ("system", "compact_boundary"),
            ("system", "microcompact_boundary"),
            ("progress", None),
        ]
    ),
    st.uuids().map(str) | _uuid,
    _uuid,
    _blocks,
    st.sampled_from(["m1", "m2", None]),
    st.fixed_dictionaries(
        {},
        optional={
            "isSidechain": st.booleans(),
            "isCompactSummary": st.booleans(),
            "isApiErrorMessage": st.booleans(),
        },
    ),
)


@settings(max_examples=300)
@given(st.lists(_records | st.binary(max_size=20), max_size=25), st.integers(0, 10_000))
def test_whatever_the_file_the_view_keeps_the_rules(records: list[Json | bytes], cut: int) -> None:
    data = encoded(*records)
    recorded = read_session(data[: min(cut, len(data))] if cut < 5_000 else data)
    uuids = [s.uuid for s in recorded.entries]
    assert len(uuids) == len(set(uuids))
    for tip in (None, *recorded.tips):
        assert has_paired_tools(convert_recording(recorded, tip).view)


def test_results_given_as_blocks_or_as_nothing_are_results() -> None:
    recorded = read(
        piece("a1", None, "m1", use("t1")),
        piece("a2", "a1", "m1", use("t2")),
        result("r1", "a1", "t1", [text("one"), text("two")]),
        result("r2", "a2", "t2", None),
    )
    message = convert_recording(recorded).view[1].message
    assert message.results == (ToolResult("t1", (Text("one"), Text("two"))), ToolResult("t2", ""))


def test_an_unfinished_count_of_the_output_is_replaced_by_an_estimate_and_marked() -> None:
    recorded = read(
        said("u1", None, "go"),
        piece("a1", "u1", "m1", text("word " * 400), output=1),
        said("u2", "a1", "go"),
        piece("a2", "u2", "m2", text("short"), output=9, stop="end_turn"),
    )
    replies = [e.what for e in convert_recording(recorded).entries if isinstance(e.what, Reply)]
    assert [(r.usage.output, r.diagnostics) for r in replies] == [
        (500, {"request_id": "req-m1", "output": "estimated"}),
        (9, {"request_id": "req-m2"}),
    ]
