"""One field that is wrong does not cost the words beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from replay import sessions

from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Reply
from sevenfold.recordings.finder import ReplayFile, read_recording
from sevenfold.recordings.recorded_session import RecordedSession
from sevenfold.replay.policies import load_policy
from sevenfold.replay.runner import ReplayJob, replay_file

Json = dict[str, Any]


def changed(data: bytes, line: int, change: Callable[[Json], object]) -> bytes:
    records = [json.loads(one) for one in data.splitlines()]
    change(records[line - 1])
    return sessions.jsonl(records)


def read_from(folder: Path, data: bytes) -> RecordedSession:
    path = folder / "session.jsonl"
    path.write_bytes(data)
    recorded = read_recording(ReplayFile(str(path)))
    assert recorded is not None
    return recorded


def words(recorded: RecordedSession) -> list[object]:
    return [s.what.message if isinstance(s.what, Reply) else s.what for s in recorded.entries]


def wrong_count(record: Json) -> None:
    record["message"]["usage"]["cache_read_input_tokens"] = "x"


def wrong_time(record: Json) -> None:
    record["timestamp"] = 1_780_000_000


def wrong_both(record: Json) -> None:
    wrong_count(record)
    wrong_time(record)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        (wrong_count, ["message.usage"]),
        (wrong_time, ["timestamp"]),
        (wrong_both, ["message.usage", "timestamp"]),
    ],
)
def test_a_record_with_a_wrong_field_keeps_its_words(
    change: Callable[[Json], object], fields: list[str], tmp_path: Path
) -> None:
    good = sessions.claude_code()
    lines = b"\n\n" + changed(good, 12 - 1, change)  # blank lines count too

    recorded = read_from(tmp_path, lines)

    assert words(recorded) == words(read_from(tmp_path, good))
    assert sorted(p.why.split()[0] for p in recorded.problems) == fields
    assert {problem.line for problem in recorded.problems} == {13}


def test_a_record_without_what_it_needs_is_said_as_it_is(tmp_path: Path) -> None:
    data = changed(sessions.claude_code(), 11, lambda record: record.update(message="words"))

    assert "message" in read_from(tmp_path, data).problems[0].why


def test_a_wrong_field_in_one_of_our_own_costs_no_words_either(tmp_path: Path) -> None:
    good = sessions.sevenfold()

    data = changed(good, 3, lambda record: record["what"]["usage"].update(input="x"))
    recorded = read_from(tmp_path, data)

    assert words(recorded) == words(read_from(tmp_path, good))
    assert [p.why.split()[0] for p in recorded.problems] == ["what.usage"]


@pytest.mark.parametrize("number", [10**30, -5])
def test_usage_that_cannot_be_is_left_out_and_the_rest_is_replayed(number: int, tmp_path: Path) -> None:
    def absurd(record: Json) -> None:
        record["message"]["usage"]["cache_read_input_tokens"] = number

    data = changed(sessions.claude_code(), 11, absurd)
    recorded = read_from(tmp_path, data)
    done = replay_file(
        ReplayJob(0, ReplayFile(str(tmp_path / "session.jsonl")), (load_policy("balanced"),))
    )

    last = recorded.entries[-1].what
    assert isinstance(last, Reply)
    assert last.usage == Usage()
    assert done.errors[0] == "line 11: its usage cannot be: it is left out"
    assert done.errors[1].startswith("usage is recorded for 3 of 4 requests")
    assert len(done.errors) == 2
    assert done.by_policy["balanced"].turns == 4
