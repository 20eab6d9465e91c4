"""Four formats of recorded sessions, told apart by what is in them and read as the same values."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from replay import sessions

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
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Replace, Reply, Results, Transcript, Undo
from sevenfold.recordings.claude_code import ClaudeCodeReader
from sevenfold.recordings.codex import CodexReader
from sevenfold.recordings.finder import READERS, find_reader
from sevenfold.recordings.messages import MessagesReader
from sevenfold.recordings.own_sessions import OwnReader
from sevenfold.recordings.recorded_session import (
    RecordedClearing,
    RecordedCompaction,
    RecordedSession,
    convert_recording,
)

EACH = {
    "sevenfold": sessions.sevenfold(),
    "claude-code": sessions.claude_code(),
    "codex": sessions.codex(),
    "messages": json.dumps(sessions.messages()).encode(),
}


def said(recorded: RecordedSession) -> list[Message]:
    return [entry.message for entry in recorded.active if entry.message is not None]


@pytest.mark.parametrize("name", EACH)
def test_a_file_is_recognised_by_its_own_reader_and_by_no_other(name: str) -> None:
    head = EACH[name][:65_536]

    assert [reader.format for reader in READERS if reader.recognises(head)] == [name]


@pytest.mark.parametrize("name", EACH)
def test_every_format_gives_a_conversation_in_which_each_use_is_answered(name: str) -> None:
    reader = find_reader(EACH[name])
    assert reader is not None

    transcript = convert_recording(reader.read(EACH[name]))

    assert transcript.problems == []
    replies = [e.what for e in transcript.entries if isinstance(e.what, Reply)]
    results = [r for e in transcript.entries if isinstance(e.what, Message) for r in e.what.results]
    uses = [use.id for reply in replies for use in reply.message.tool_uses]
    assert uses
    assert [result.tool_use_id for result in results] == uses
    assert not any(result.is_error for result in results)


@pytest.mark.parametrize("name", EACH)
def test_a_gzipped_file_says_the_same(name: str, tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed.gz"
    plain.write_bytes(EACH[name])
    half = len(EACH[name]) // 2
    parts = [gzip.compress(part) for part in (EACH[name][:half], EACH[name][half:], b"")]
    reader = find_reader(EACH[name])
    assert reader is not None

    for padding in (b"", b"\0" * 100_000):
        packed.write_bytes(padding.join([*parts, b""]))
        assert reader.read(packed) == reader.read(plain)


def test_usage_is_counted_once_for_a_reply_that_is_several_records() -> None:
    recorded = ClaudeCodeReader().read(sessions.claude_code(rounds=3))

    used = [s.what.usage for s in recorded.requests if isinstance(s.what, Reply)]
    assert len(used) == 4
    assert used[0] == Usage(3, 19_997, 0, 40)


# --- Codex ------------------------------------------------------------------------------------------------


def test_a_rollout_is_read_from_what_the_model_saw_and_not_from_what_the_screen_showed() -> None:
    recorded = CodexReader().read(sessions.codex(rounds=1))

    use = ToolUse("call_0", "shell", {"cmd": "ls 0"})
    assert said(recorded) == [
        user("be brief"),
        user("list the files"),
        assistant(RedactedThinking("c2VhbGVk"), use),
        Message("user", (ToolResult("call_0", "0.py"),)),
        assistant(Text("two files")),
    ]
    assert [entry.meta for entry in recorded.active][:2] == [True, False]
    assert (recorded.session, recorded.version) == ("a-codex-session", "0.150.0")


def test_cached_tokens_of_a_rollout_are_taken_out_of_its_input_and_said_again_count_once() -> None:
    recorded = CodexReader().read(sessions.codex(rounds=2))

    replies = [s.what for s in recorded.requests if isinstance(s.what, Reply)]
    assert [reply.usage for reply in replies] == [
        Usage(8_000, 0, 0, 30),
        Usage(1_100, 0, 7_000, 30),
        Usage(1_200, 0, 7_000, 30),
    ]
    assert {reply.model for reply in replies} == {"gpt-5.1-codex"}


def test_a_compacted_rollout_goes_on_from_what_was_left() -> None:
    left = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "kept"}]}]
    record = {
        "timestamp": sessions.stamp(60),
        "type": "compacted",
        "payload": {"message": "", "replacement_history": left},
    }
    recorded = CodexReader().read(sessions.codex() + sessions.jsonl([record]))

    assert [entry.what for entry in recorded.compactions] == [
        RecordedCompaction("auto", 0, Message("user", (Text("kept"),)))
    ]


def test_a_rollout_of_the_first_versions_has_no_envelope() -> None:
    records = [
        {"id": "old", "timestamp": sessions.stamp(0), "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a greeting"}]},
        {"type": "local_shell_call", "call_id": "s", "action": {"command": ["ls"]}},
        {"type": "function_call_output", "call_id": "s", "output": {"content": "x", "success": False}},
    ]
    data = sessions.jsonl(records)

    reader = find_reader(data)

    assert isinstance(reader, CodexReader)
    assert said(reader.read(data)) == [
        user("hello"),
        assistant(Thinking("a greeting"), ToolUse("s", "shell", {"command": ["ls"]})),
        Message("user", (ToolResult("s", "x", is_error=True),)),
    ]


# --- lists of messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        lambda m: json.dumps(m),
        lambda m: json.dumps(m, indent=2),
        lambda m: "\ufeff" + json.dumps({"model": "gpt-5", "messages": m}),
        lambda m: json.dumps({"messages": m, "model": "gpt-5"}, indent=1),
        lambda m: "\n".join(json.dumps(one) for one in m),
    ],
    ids=["list", "indented", "object", "indented object", "lines"],
)
def test_messages_may_be_a_list_an_object_or_lines(written: object) -> None:
    assert callable(written)
    data = written(sessions.messages()).encode("utf-8")

    reader = find_reader(data)

    assert isinstance(reader, MessagesReader)
    assert said(reader.read(data)) == [
        user("be brief"),
        user("read a"),
        assistant(ToolUse("c1", "read", {"path": "a"})),
        Message("user", (ToolResult("c1", "what a says"),)),
        assistant(Text("it says: what a says")),
    ]


def test_the_model_is_the_one_that_stands_beside_the_messages() -> None:
    data = json.dumps({"messages": sessions.messages(), "model": "gpt-5"}).encode()

    assert {entry.model for entry in MessagesReader().read(data).requests} == {"gpt-5"}


def test_ids_that_are_used_again_belong_to_the_newest_use() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    asks = {"role": "assistant", "tool_calls": [call]}
    data = json.dumps(
        [
            {"role": "user", "content": "go"},
            asks,
            {"role": "tool", "tool_call_id": "c", "content": "first"},
            asks,
            {"role": "tool", "tool_call_id": "c", "content": "second"},
        ]
    ).encode()

    results = [r for m in said(MessagesReader().read(data)) for r in m.results]

    assert [(r.tool_use_id, r.content) for r in results] == [("c", "first"), ("c~2", "second")]


def test_calls_without_ids_and_arguments_that_are_no_json_are_kept() -> None:
    data = json.dumps(
        [
            {"role": "user", "content": "go"},
            {"role": "assistant", "function_call": {"name": "f", "arguments": "not json"}},
            {"role": "function", "name": "f", "content": "done"},
        ]
    ).encode()

    use, result = said(MessagesReader().read(data))[1:]

    assert use == assistant(ToolUse("function-2", "f", {"input": "not json"}))
    assert result == Message("user", (ToolResult("function-2", "done"),))


def test_blocks_as_the_messages_api_has_them_are_read_too() -> None:
    data = json.dumps(
        [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]},
        ]
    ).encode()

    assert said(MessagesReader().read(data))[1:] == [
        assistant(ToolUse("t", "f", {})),
        Message("user", (ToolResult("t", "x"),)),
    ]


# --- our own ----------------------------------------------------------------------------------------------


def written(build: object) -> RecordedSession:
    log: list[bytes] = []
    transcript = Transcript(lambda: sessions.BEGAN, log.append)
    assert callable(build)
    build(transcript)
    return OwnReader().read(b"".join(log))


def test_a_transcript_of_ours_is_read_with_its_compaction_and_what_it_kept() -> None:
    def build(log: Transcript) -> None:
        log.add(user("old"), by="user")
        log.add(Reply(assistant(Text("older answer"))), by="model")
        log.add(user("new"), by="user")
        log.add(Replace(0, 1, (user("what was said"),)), by="Compaction")
        log.add(Results({"nobody": "gone"}), by="Microcompaction")

    recorded = written(build)

    [compaction] = recorded.compactions
    [clearing] = [one for one in recorded.entries if isinstance(one.what, RecordedClearing)]
    assert compaction.what == RecordedCompaction("Compaction", 0, user("what was said"), kept_from="2")
    assert clearing.what == RecordedClearing(("nobody",), "Microcompaction")
    view = convert_recording(recorded).view
    assert [placed.message.text for placed in view] == ["what was said", "new"]


def test_what_was_undone_was_never_said_and_what_was_redone_was() -> None:
    def build(log: Transcript) -> None:
        log.add(user("first"), by="user")
        log.add(user("taken back"), by="user")
        log.add(Undo(frozenset({1})), by="rewind")
        log.add(user("kept after all"), by="user")
        log.add(Undo(frozenset({3})), by="rewind")
        log.add(Undo(frozenset({4})), by="rewind")

    recorded = written(build)

    assert [message.text for message in said(recorded)] == ["first", "kept after all"]


def test_a_transcript_of_ours_keeps_model_and_usage() -> None:
    recorded = OwnReader().read(sessions.sevenfold())

    replies = [s.what for s in recorded.requests if isinstance(s.what, Reply)]
    assert {reply.model for reply in replies} == {"claude-sonnet-4-5"}
    assert replies[0].usage == Usage(10, 900, 5_000, 20)
    assert (recorded.session, recorded.folder) == ("one-of-ours", "/w")
