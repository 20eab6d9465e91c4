"""Longer sessions of the real Claude Code: what it sends is a prefix that grows."""

from __future__ import annotations

from typing import Any

import pytest
from clients.conftest import StartProvider
from clients.programs import ClaudeCode
from clients.sessions import make_long_session, make_mixed_session

pytestmark = [pytest.mark.clients, pytest.mark.real]
Row = dict[str, Any]


def read_share(row: Row) -> float:
    """The share of the prefix, as the request before it ended, that came from the cache."""
    return float(row["tokens"]["cache_read"] / row["shared"]["tokens"])


def test_sixty_calls_read_what_was_sent_before(
    start_provider: StartProvider, claude_code: ClaudeCode
) -> None:
    provider = start_provider(make_long_session(60))

    ran = claude_code.run("Print numbers.", provider.url)

    assert ran.json["result"] == "All done.", ran.out + ran.err
    rows = provider.read_requests()
    assert len(rows) == 61
    assert [row["n"] for row in rows[1:] if row["shared"]["diverged"] or read_share(row) < 1] == []


def test_resumes_agents_compact_and_clear(start_provider: StartProvider, claude_code: ClaudeCode) -> None:
    provider = start_provider(make_mixed_session(claude_code.place.project))

    def run(prompt: str, *options: str) -> tuple[str, str, list[Row]]:
        before = len(provider.read_requests())
        ran = claude_code.run(prompt, provider.url, *options)
        assert ran.code == 0, ran.out + ran.err
        return ran.json["result"], ran.json["session_id"], provider.read_requests()[before:]

    said, session, rows = run("prompt-begin")
    assert said == "Begun."
    agents = {row["source"] for row in rows} - {session}
    assert len(agents) == 2
    assert all(name.startswith(session) for name in agents)
    assert not [row for row in rows if row["shared"] and row["shared"]["diverged"]]

    said, resumed, rows = run("prompt-go-on", "--resume", session)
    assert (said, resumed) == ("Gone on.", session)
    assert [read_share(row) for row in rows] == [1.0, 1.0]

    _, _, rows = run("/compact", "--resume", session)
    assert len(rows) == 1
    said, _, rows = run("prompt-after", "--resume", session)
    assert said == "After."
    assert [bool(row["shared"]["diverged"]) for row in rows] == [True, False]

    _, cleared, rows = run("/clear", "--resume", session)
    assert cleared != session
    assert rows == []
    said, _, rows = run("prompt-fresh", "--resume", cleared)
    assert said == "Fresh."
    assert {row["source"] for row in rows} == {cleared}
