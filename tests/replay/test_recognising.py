"""What a file is told by, however long its first line is, and what is said of one that nobody knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from replay import sessions

from sevenfold.recordings.finder import ReplayFile, Unreadable, find_replay_files, read_recording

LONG = "be good and brief " * 9_000
"""Over 64 KiB and over 128."""


def written(folder: Path, data: bytes, name: str = "a.jsonl") -> ReplayFile:
    path = folder / name
    path.write_bytes(data)
    return ReplayFile(str(path), len(data), named=False)


def long_claude() -> bytes:
    first, *rest = [json.loads(line) for line in sessions.claude_code().splitlines()]
    first["message"]["content"] = LONG
    return sessions.jsonl([first, *rest])


def long_ours() -> bytes:
    lines = sessions.sevenfold().splitlines()
    entry = json.loads(lines[1])
    entry["what"]["content"][0]["text"] = LONG
    return b"\n".join([json.dumps(entry).encode("utf-8"), *lines[2:]]) + b"\n"


def long_messages() -> list[dict[str, Any]]:
    return [{"role": "system", "content": LONG}, *sessions.messages()[1:]]


def content_first() -> list[dict[str, Any]]:
    return [dict(reversed(list(message.items()))) for message in long_messages()]


@pytest.mark.parametrize(
    ("data", "format"),
    [
        (long_claude(), "claude-code"),
        (long_ours(), "sevenfold"),
        (sessions.jsonl(long_messages()), "messages"),
        (json.dumps(content_first()).encode("utf-8"), "messages"),
        (json.dumps({"tools": [LONG], "messages": sessions.messages()}).encode(), "messages"),
    ],
    ids=["claude-code", "ours", "a message a line", "content before role", "tools before messages"],
)
def test_a_long_first_line_hides_no_session(data: bytes, format: str, tmp_path: Path) -> None:
    recorded = read_recording(written(tmp_path, data))

    assert recorded is not None
    assert recorded.format == format
    assert recorded.problems == ()
    assert recorded.requests


def test_a_conversation_in_another_format_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    answer = {"choices": [{"message": {"role": "assistant", "content": "hello"}}]}

    with pytest.raises(Unreadable, match="looks like a conversation, but in none of the known"):
        read_recording(written(tmp_path, json.dumps(answer).encode("utf-8"), "answer.json"))


@pytest.mark.parametrize("other", [{"name": "x"}, {"users": [{"role": "user"}]}, [1, 2], {"a": LONG}])
def test_other_json_in_a_folder_is_passed_over(other: object, tmp_path: Path) -> None:
    assert read_recording(written(tmp_path, json.dumps(other).encode("utf-8"), "other.json")) is None


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (sessions.claude_code() + sessions.codex(), "21 lines are"),
        (sessions.codex() + sessions.claude_code(1), "5 lines are"),
    ],
)
def test_two_formats_in_one_file_are_said(data: bytes, lines: str, tmp_path: Path) -> None:
    recorded = read_recording(written(tmp_path, data))

    assert recorded is not None
    [problem] = [p.why for p in recorded.problems if "another format" in p.why]
    assert problem.startswith(lines)


# --- our own home -----------------------------------------------------------------------------------------

LEDGER = b'895c67f2784b57b8\n{"head":"2cb8bf7f9bc6","rows":{"tea.md":["","tea"]}}'
"""What we keep about a memory begins with a checksum."""


def test_what_we_keep_about_memories_is_no_session_of_a_folder(tmp_path: Path) -> None:
    state = tmp_path / "-w" / "memory-state"
    (state / "search").mkdir(parents=True)
    (state / "seen.json").write_bytes(LEDGER)
    (state / "search" / "index.jsonl").write_bytes(LEDGER)
    (tmp_path / "-w" / "one.jsonl").write_bytes(sessions.sevenfold())

    assert [Path(one.path).name for one in find_replay_files([tmp_path])] == ["one.jsonl"]
    assert len(list(find_replay_files([state]))) == 2, "who names it means it"


def test_json_that_begins_otherwise_is_passed_over_unless_somebody_talks_in_it(tmp_path: Path) -> None:
    said = b"//\n" + json.dumps(sessions.messages()).encode("utf-8")

    assert read_recording(written(tmp_path, LEDGER, "seen.json")) is None
    assert read_recording(written(tmp_path, b"// a comment", "tsconfig.json.gz")) is None
    for data, name in ((LEDGER, "lines.jsonl"), (said, "talk.json")):
        with pytest.raises(Unreadable):
            read_recording(written(tmp_path, data, name))
