"""Real sessions of Claude Code, when the shared data lies beside the checkout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sevenfold.core.messages import Message, Opaque
from sevenfold.core.request import has_paired_tools
from sevenfold.core.transcript import Replace, Reply
from sevenfold.recordings.claude_code import ClaudeCodeReader, read_session
from sevenfold.recordings.reader import read_beginning
from sevenfold.recordings.recorded_session import RecordedClearing, RecordedSession, convert_recording

DATA = (Path(__file__).parents[2] / "../shared/data/sessions").resolve()
FILES = sorted(DATA.glob("*.jsonl.gz"))

pytestmark = pytest.mark.skipif(not FILES, reason="the shared sessions are not here")


@pytest.fixture(scope="module")
def sessions() -> dict[str, RecordedSession]:
    return {path.name.split(".")[0]: read_session(path) for path in FILES}


def test_all_of_them_load_without_a_problem(sessions: dict[str, RecordedSession]) -> None:
    assert len(sessions) == 34
    assert {name: s.problems for name, s in sessions.items() if s.problems} == {}
    assert all(s.session == name for name, s in sessions.items())
    assert all(ClaudeCodeReader().recognises(read_beginning(path)) for path in FILES)


def test_every_block_of_them_is_known(sessions: dict[str, RecordedSession]) -> None:
    blocks = [b for s in sessions.values() for e in s.entries if e.message for b in e.message.content]
    assert len(blocks) > 15_000
    assert not any(isinstance(b, Opaque) for b in blocks)


def test_their_compactions_and_clearings_are_all_there(sessions: dict[str, RecordedSession]) -> None:
    compactions = [c for s in sessions.values() for c in s.compactions]
    assert len(compactions) == 30
    assert all(c.what.summary and c.what.tokens_before > 0 for c in compactions)  # type: ignore[union-attr]
    clearings = [c for s in sessions.values() for c in s.entries if isinstance(c.what, RecordedClearing)]
    assert len(clearings) == 5
    assert all(c.what.tool_use_ids and c.what.tokens_saved for c in clearings)  # type: ignore[union-attr]
    active = [c for s in sessions.values() for c in s.active if c in s.compactions]
    assert active == compactions


def test_the_index_agrees_on_tool_uses_and_compactions(sessions: dict[str, RecordedSession]) -> None:
    for row in json.loads((DATA / "index.json").read_bytes()):
        session = sessions[row["session"]]
        uses = sum(len(e.message.tool_uses) for e in session.entries if e.message)
        assert uses == int(row["tool_use"]), row["session"]
        assert len(session.compactions) == int(row["compact_boundary"])
        largest = max(r.what.usage.prompt for r in session.requests if isinstance(r.what, Reply))
        assert abs(largest - int(row["max_context_tokens"])) < 0.05 * largest, row["session"]


def test_each_request_is_counted_once(sessions: dict[str, RecordedSession]) -> None:
    for name, session in sessions.items():
        ids = [r.request_id for r in session.requests]
        assert len(ids) == len(set(ids)), name
        assert all(r.what.usage.prompt > 1_000 for r in session.requests if isinstance(r.what, Reply))
    assert sum(len(s.requests) for s in sessions.values()) == 4727


def test_nearly_all_of_each_lies_on_the_active_branch(sessions: dict[str, RecordedSession]) -> None:
    for name, session in sessions.items():
        assert len(session.active) >= 0.98 * len(session.entries), name


def test_as_transcripts_they_keep_the_rules_and_lose_nothing_that_was_said(
    sessions: dict[str, RecordedSession],
) -> None:
    for name, session in sessions.items():
        transcript = convert_recording(session)
        assert has_paired_tools(transcript.view), name
        assert transcript.problems == [], name
        replaced = [e for e in transcript.entries if isinstance(e.what, Replace)]
        assert len(replaced) == len(session.compactions), name
        told = [e for e in transcript.entries if isinstance(e.what, Message | Reply)]
        shown = [s for s in session.active if s.message and not s.failed]
        assert len(shown) <= len(told) <= len(shown) + 2, name
        assert 0 < transcript.view.tokens < 200_000, name


def test_pointers_to_whole_outputs_are_found(sessions: dict[str, RecordedSession]) -> None:
    facts = [f for s in sessions.values() for f in s.results.values()]
    assert len(facts) == 4949
    assert sum(bool(f.persisted) for f in facts) == 23
    read = [f for f in facts if f.tool == "Read" and not f.is_error]
    assert sum(bool(f.path) for f in read) > 0.95 * len(read) > 1_000
