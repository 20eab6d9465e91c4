"""Files that are torn, empty, binary or absurd: what can be read is read, and the rest is said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay import sessions

from sevenfold.core.errors import SevenfoldError
from sevenfold.recordings.claude_code import ClaudeCodeReader
from sevenfold.recordings.finder import READERS, ReplayFile, Unreadable, find_replay_files, read_recording
from sevenfold.recordings.messages import MessagesReader
from sevenfold.recordings.reader import make_times_monotonic
from sevenfold.recordings.recorded_session import RecordedSession, convert_recording

EACH = {
    "sevenfold": sessions.sevenfold(),
    "claude-code": sessions.claude_code(),
    "codex": sessions.codex(),
    "messages": json.dumps(sessions.messages()).encode(),
}


def found(path: Path, data: bytes) -> ReplayFile:
    path.write_bytes(data)
    return ReplayFile(str(path))


@pytest.mark.parametrize("name", EACH)
def test_a_torn_file_is_read_up_to_the_tear_which_is_said(name: str, tmp_path: Path) -> None:
    whole = read_recording(found(tmp_path / "whole", EACH[name]))
    torn = read_recording(found(tmp_path / "torn", EACH[name][:-30]))

    assert whole is not None
    assert torn is not None
    assert 0 < len(torn.entries) <= len(whole.entries)
    assert torn.problems


@pytest.mark.parametrize("name", EACH)
def test_a_torn_archive_is_read_up_to_the_tear_which_is_said(name: str, tmp_path: Path) -> None:
    noise = bytes(range(256)) * 40
    packed = gzip.compress(EACH[name] + b"\n" * 100 + noise.hex().encode())[:-20]

    with_problems = read_recording(found(tmp_path / "torn.gz", packed))

    assert with_problems is not None
    assert any("damaged" in problem.why for problem in with_problems.problems)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"\x7fELF\0\0\0\1" * 99, "binary"),
        (b"hello world\n", "not a session in a known format"),
        (b'{"a": 1}\n', "not a session in a known format"),
        (gzip.compress(b"")[:-9], "empty"),
    ],
    ids=["empty", "blank", "binary", "text", "other json", "empty archive"],
)
def test_what_is_no_session_is_refused_with_the_reason(data: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=why):
        read_recording(found(tmp_path / "file", data))


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="no such file"):
        read_recording(ReplayFile(str(tmp_path / "nothing")))


def test_a_session_in_which_nothing_was_said_is_refused(tmp_path: Path) -> None:
    head = sessions.jsonl([{"type": "session_meta", "timestamp": "x", "payload": {"id": "a"}}])

    with pytest.raises(Unreadable, match="nothing in it was said"):
        read_recording(found(tmp_path / "file", head))


def test_a_transcript_from_the_future_is_refused(tmp_path: Path) -> None:
    mark = {"type": "mark", "name": "session", "value": {"format": 99}}
    line = sessions.jsonl([{"id": 0, "at": 1.0, "what": mark}])

    with pytest.raises(SevenfoldError, match="format 99"):
        read_recording(found(tmp_path / "file", line))


def test_half_characters_and_broken_utf8_are_mended(tmp_path: Path) -> None:
    data = json.dumps(sessions.messages()).replace("what a says", "half \\ud83d of one").encode()
    broken = data.replace(b"be brief", b"be \xff\xfe brief")

    recorded = read_recording(found(tmp_path / "file", broken))

    assert recorded is not None
    assert recorded.problems == ()
    assert "half \ufffd of one" in str(recorded.entries[3].what)


def test_results_that_nobody_asked_for_are_dropped_and_said() -> None:
    stray = {"role": "tool", "tool_call_id": "nobody", "content": "x"}
    twice = {"role": "tool", "tool_call_id": "c1", "content": "again"}
    data = json.dumps([*sessions.messages(), stray, twice, "text", {"role": "odd"}]).encode()

    recorded = MessagesReader().read(data)

    assert [problem.why for problem in recorded.problems] == [
        "no tool use nobody: its result was dropped",
        "a second result of tool use c1: it was dropped",
        "not a message with a role",
        "not a message with a role",
    ]
    assert len(recorded.entries) == len(sessions.messages())


# --- folders ----------------------------------------------------------------------------------------------


def test_a_folder_may_hold_every_format_and_other_things_too(tmp_path: Path) -> None:
    deep = tmp_path / "2026" / "11"
    deep.mkdir(parents=True)
    for name, data in EACH.items():
        (deep / f"{name}.jsonl").write_bytes(data)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(EACH["messages"]))
    (tmp_path / "settings.json").write_text('{"model": "x"}', encoding="utf-8")
    (tmp_path / "notes.md").write_text("hello", encoding="utf-8")

    there = list(find_replay_files([tmp_path, deep, deep / "codex.jsonl"]))

    formats = {Path(f.path).name: r.format if (r := read_recording(f)) else None for f in there}
    assert formats == {
        "b.json.gz": "messages",
        "settings.json": None,
        "claude-code.jsonl": "claude-code",
        "codex.jsonl": "codex",
        "messages.jsonl": "messages",
        "sevenfold.jsonl": "sevenfold",
    }


def test_a_damaged_session_in_a_folder_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    (tmp_path / "b.jsonl").write_bytes(b"\x00\x01" * 500)

    for file in find_replay_files([tmp_path]):
        with pytest.raises(Unreadable):
            read_recording(file)


# --- times ------------------------------------------------------------------------------------------------


def timed(*times: str | float) -> RecordedSession:
    said = [{"role": "user", "content": "x", "timestamp": at} for at in times]
    return MessagesReader().read(json.dumps(said).encode())


def at(recorded: RecordedSession) -> list[float]:
    return [entry.at for entry in recorded.entries]


@pytest.mark.parametrize("absurd", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", -5.0, 1e10])
def test_a_time_that_cannot_be_counts_as_the_one_before(absurd: str | float) -> None:
    first, last = sessions.BEGAN, sessions.BEGAN + 60

    recorded = make_times_monotonic(timed(first, absurd, last))

    assert at(recorded) == [first, first, last]
    [problem] = recorded.problems
    assert "1 time cannot be" in problem.why


def test_an_absurd_first_time_counts_as_the_first_that_can_be() -> None:
    recorded = make_times_monotonic(timed(9e9, sessions.BEGAN, sessions.BEGAN + 1))

    assert at(recorded) == [sessions.BEGAN, sessions.BEGAN, sessions.BEGAN + 1]


def test_times_that_go_back_are_held_and_said_when_it_is_much() -> None:
    begin = sessions.BEGAN

    recorded = make_times_monotonic(timed(begin + 9_000, begin + 8_990, begin, begin + 9_010))

    assert at(recorded) == [begin + 9_000, begin + 9_000, begin + 9_000, begin + 9_010]
    [problem] = recorded.problems
    assert "1 time before what came earlier" in problem.why


def test_where_no_time_can_be_nobody_was_idle() -> None:
    recorded = make_times_monotonic(timed(-7.0, 1e10))

    assert at(recorded) == [0.0, 0.0]
    [problem] = recorded.problems
    assert "2 times cannot be: no idle time is counted" in problem.why


def test_times_in_milliseconds_are_times() -> None:
    assert at(make_times_monotonic(timed(sessions.BEGAN * 1000))) == [sessions.BEGAN]


def test_a_file_without_times_is_left_as_it_is() -> None:
    recorded = ClaudeCodeReader().read(
        sessions.jsonl([{"type": "user", "uuid": "u", "message": {"content": "hello"}}])
    )

    assert make_times_monotonic(recorded) is recorded


# --- anything ---------------------------------------------------------------------------------------------

ANY: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "role",
                    "content",
                    "payload",
                    "id",
                    "call_id",
                    "output",
                    "arguments",
                    "messages",
                    "tool_calls",
                    "function",
                    "name",
                    "info",
                    "timestamp",
                    "text",
                    "last_token_usage",
                    "at",
                    "what",
                    "by",
                    "message",
                    "usage",
                ]
            )
            | st.text(max_size=5),
            inner
            | st.sampled_from(
                [
                    "message",
                    "user",
                    "assistant",
                    "tool",
                    "response_item",
                    "event_msg",
                    "token_count",
                    "function_call",
                    "reply",
                    "function_call_output",
                    "reasoning",
                    "compacted",
                    "session_meta",
                    "text",
                    "tool_use",
                    "replace",
                ]
            ),
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(st.lists(ANY, max_size=5), st.integers(0, 40))
def test_no_reader_breaks_on_anything(values: list[Any], cut: int) -> None:
    lines = sessions.jsonl(values)
    for data in (lines[cut:], json.dumps(values).encode()[: -cut or None]):
        for reader in READERS:
            reader.recognises(data)
            convert_recording(make_times_monotonic(reader.read(data)))
