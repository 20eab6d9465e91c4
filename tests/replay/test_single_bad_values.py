"""One value that cannot be: only it is lost, the session is replayed, and it is said of the file."""

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
from sevenfold.replay.runner import ReplayJob, replay_file

Json = dict[str, Any]
DEEP = '{"a":' * 5_000 + "1" + "}" * 5_000


def recorded_of(folder: Path, data: bytes) -> RecordedSession:
    path = folder / "a.jsonl"
    path.write_bytes(data)
    found = read_recording(ReplayFile(str(path)))
    assert found is not None
    return found


def usages(recorded: RecordedSession) -> list[Usage]:
    return [said.what.usage for said in recorded.entries if isinstance(said.what, Reply)]


def changed(data: bytes, wanted: Callable[[Json], bool], change: Callable[[Json], None]) -> bytes:
    """The same lines, the first of the wanted ones changed."""
    records = [json.loads(line) for line in data.splitlines()]
    change(next(record for record in records if wanted(record)))
    return sessions.jsonl(records)


# --- Codex ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [{"input_tokens": -5}, {"input_tokens": "many"}, {"output_tokens": 1.5},
     {"cached_input_tokens": 9_000_000}],
)  # fmt: skip
def test_usage_of_a_rollout_that_cannot_be_is_said_and_left_out(wrong: Json, tmp_path: Path) -> None:
    def counts(record: Json) -> bool:
        return bool(record["payload"].get("info"))

    def change(record: Json) -> None:
        record["payload"]["info"]["last_token_usage"] |= wrong

    good = recorded_of(tmp_path, sessions.codex())
    recorded = recorded_of(tmp_path, changed(sessions.codex(), counts, change))

    assert [p.why for p in recorded.problems] == ["its usage cannot be: it is left out"]
    assert usages(recorded) == [Usage(), *usages(good)[1:]]


# --- times ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("time", ["yesterday", 10**400, {"at": 3}], ids=["words", "huge", "object"])
def test_a_time_that_nobody_can_read_is_said(time: object, tmp_path: Path) -> None:
    listed = [{**m, "timestamp": sessions.BEGAN + n} for n, m in enumerate(sessions.messages())]
    listed[2]["timestamp"] = time

    recorded = recorded_of(tmp_path, json.dumps(listed).encode("utf-8"))

    [problem] = recorded.problems
    assert (problem.line, problem.why[:26]) == (3, "1 time cannot be read: eac")
    assert [said.at for said in recorded.entries][:3] == [
        sessions.BEGAN, sessions.BEGAN + 1, sessions.BEGAN + 1,
    ]  # fmt: skip


def test_times_of_a_rollout_that_nobody_can_read_are_said(tmp_path: Path) -> None:
    data = sessions.codex().replace(b'"timestamp": "2026', b'"timestamp": "x2026')

    recorded = recorded_of(tmp_path, data)

    assert recorded.problems[0].why.endswith("times cannot be read: each counts as the one before it")


def test_a_session_of_a_tool_that_dates_everything_and_is_not_dated_is_wrong(tmp_path: Path) -> None:
    records = [json.loads(line) for line in sessions.claude_code().splitlines()]
    one = [record | {"timestamp": "then"} if n == 3 else record for n, record in enumerate(records)]
    every = [record | {"timestamp": "then"} for record in records]
    (tmp_path / "every.jsonl").write_bytes(sessions.jsonl(every))

    some = recorded_of(tmp_path, sessions.jsonl(one))
    none = replay_file(ReplayJob(0, ReplayFile(str(tmp_path / "every.jsonl")), ()))

    assert [p.why for p in some.problems] == ["1 time cannot be read: each counts as the one before it"]
    assert none.errors[0].startswith("no times are recorded that can be read")


# --- values in lines and lists ----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["NaN", "Infinity", DEEP])
def test_one_value_that_is_no_json_costs_a_list_only_that_value(bad: str, tmp_path: Path) -> None:
    listed = sessions.messages()
    listed[2]["extra"] = "@@"
    data = json.dumps(listed).replace('"@@"', bad).encode("utf-8")

    recorded = recorded_of(tmp_path, data)

    assert len(recorded.requests) == 2
    [problem] = recorded.problems
    assert problem.why.endswith("it is left out, the rest of the line is kept")


@pytest.mark.parametrize("bad", ["NaN", "-Infinity", DEEP])
def test_one_value_that_is_no_json_costs_a_line_only_that_value(bad: str, tmp_path: Path) -> None:
    def uses(record: Json) -> bool:
        return bool(record["message"]["content"][0]) and record["uuid"] == "a0.1"

    def change(record: Json) -> None:
        record["message"]["content"][0]["input"] = {"file_path": "/w/0.py", "more": "@@"}

    data = changed(sessions.claude_code(), uses, change).replace(b'"@@"', bad.encode())

    recorded = recorded_of(tmp_path, data)

    [problem] = recorded.problems
    assert problem.why.endswith("it is left out, the rest of the line is kept")
    assert len(recorded.requests) == 4
    assert any(use.input.get("file_path") == "/w/0.py"
               for said in recorded.requests if isinstance(said.what, Reply)
               for use in said.what.message.tool_uses)  # fmt: skip


def test_usage_with_a_count_that_is_no_number_goes_as_a_whole(tmp_path: Path) -> None:
    data = sessions.claude_code().replace(b'"input_tokens": 3,', b'"input_tokens": NaN,', 2)

    recorded = recorded_of(tmp_path, data)

    assert usages(recorded)[0] == Usage()
    assert len(usages(recorded)) == 4


@pytest.mark.parametrize("at", [b'"later"', b"NaN", b"null"])
def test_a_line_of_ours_with_a_wrong_time_keeps_its_words(at: bytes, tmp_path: Path) -> None:
    lines = sessions.sevenfold().splitlines()
    start, _, rest = lines[3].partition(b'"at":')
    lines[3] = start + b'"at":' + at + rest[rest.index(b",") :]

    good = recorded_of(tmp_path, sessions.sevenfold())
    recorded = recorded_of(tmp_path, b"\n".join(lines))

    assert [said.what for said in recorded.entries] == [said.what for said in good.entries]
    assert [p.why[:15] for p in recorded.problems] == ["at is not what "]


# --- lists of messages ------------------------------------------------------------------------------------


def test_usage_in_a_list_of_messages_is_read(tmp_path: Path) -> None:
    listed = sessions.messages()
    listed[2]["usage"] = {
        "prompt_tokens": 900,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 600},
    }
    listed[4]["usage"] = {"input_tokens": 5, "cache_read_input_tokens": 900, "output_tokens": 9,
                          "cache_creation_input_tokens": 20}  # fmt: skip

    recorded = recorded_of(tmp_path, json.dumps(listed).encode("utf-8"))

    assert usages(recorded) == [Usage(300, 0, 600, 7), Usage(5, 20, 900, 9)]
    listed[2]["usage"]["prompt_tokens"] = -1
    worse = recorded_of(tmp_path, json.dumps(listed).encode("utf-8"))
    assert [p.why for p in worse.problems] == ["its usage cannot be: it is left out"]


def test_a_session_that_begins_with_a_reply_has_all_its_requests(tmp_path: Path) -> None:
    from sevenfold.replay.policies import load_policy

    records = [json.loads(line) for line in sessions.claude_code().splitlines()]
    (tmp_path / "a.jsonl").write_bytes(sessions.jsonl(records[1:]))

    done = replay_file(ReplayJob(0, ReplayFile(str(tmp_path / "a.jsonl")), (load_policy("append-only"),)))

    figures = done.by_policy["append-only"]
    assert figures.turns == figures.paid_requests == 4
    assert figures.of_paid == pytest.approx(1.0, abs=0.15)
