"""Longer sessions of the real Claude Code: directly its prefix grows; a proxy changes nothing, or saves."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clients.conftest import StartProvider, StartProxy
from clients.programs import ClaudeCode, ClientPlace
from clients.provider import SimulatedProvider
from clients.sessions import answer, make_long_session, make_mixed_session, print_numbers, use

pytestmark = [pytest.mark.clients, pytest.mark.real]
Row = dict[str, Any]
SMALL = "claude-sonnet-4-6"  # its window is 200,000 tokens
MODEL = ("--model", "claude-opus-5-5")  # its window is a million tokens


def read_share(row: Row) -> float:
    """The share of the prefix, as the request before it ended, that came from the cache."""
    return float(row["tokens"]["cache_read"] / row["shared"]["tokens"])


def read_figures(provider: SimulatedProvider) -> list[Row]:
    """The rows of a ledger without names and times."""
    others = ("at", "id", "message_id", "source")
    return [{key: row[key] for key in row if key not in others} for row in provider.read_requests()]


def test_nothing_fires_and_the_ledger_is_the_same(
    start_provider: StartProvider, start_proxy: StartProxy, claude_code: ClaudeCode, tmp_path: Path
) -> None:
    """Number by number: two providers, and two homes and projects whose paths are equally long."""
    directly, through = (start_provider(make_long_session(8)) for _ in range(2))
    other = ClientPlace(tmp_path / "direct-home", tmp_path / "another")
    assert [len(str(path)) for path in (other.home, other.project)] == [
        len(str(path)) for path in (claude_code.place.home, claude_code.place.project)
    ]
    other.home.mkdir()
    other.project.mkdir()
    proxy = start_proxy(through.url)

    replace(claude_code, place=other).run("Print numbers.", directly.url)
    ran = claude_code.run("Print numbers.", proxy.url)

    assert ran.json["result"] == "All done.", ran.out + ran.err
    assert read_figures(through) == read_figures(directly)
    totals = proxy.read_receipt()["totals"]
    assert totals["requests"] == 9
    assert totals["sent"] == totals["received"]
    assert totals["passed"] == totals["breaks"] == 0


def test_sixty_calls_cost_four_fifths_at_most(
    start_provider: StartProvider, start_proxy: StartProxy, claude_code: ClaudeCode, proxy_log: Path
) -> None:
    directly, through = (start_provider(make_long_session(60)) for _ in range(2))
    proxy = start_proxy(through.url)

    claude_code.run("Print numbers.", directly.url, *MODEL)
    ran = claude_code.run("Print numbers.", proxy.url, *MODEL)

    assert ran.json["result"] == "All done.", ran.out + ran.err
    sums = [provider.read_ledger()["total"] for provider in (through, directly)]
    assert [found["requests"] for found in sums] == [61, 61]
    rows = directly.read_requests()[1:]
    assert [row["n"] for row in rows if row["shared"]["diverged"] or read_share(row) < 1] == []
    spent, would = (found["cost"] for found in sums)
    assert spent <= 0.8 * would
    receipt = proxy.read_receipt()
    totals = receipt["totals"]
    assert totals["cost"] == pytest.approx(spent)
    assert totals["direct_cost"] == pytest.approx(would, rel=0.01)
    assert totals["unexplained"] == totals["passed"] == totals["failed"] == 0
    assert [found["why"][:15] for found in receipt["breaks"]] == ["layer 2 cleared"] * totals["breaks"]
    assert proxy_log.read_text("utf-8") == ""


def test_a_window_of_200k_needs_no_summary_behind_the_proxy(
    start_provider: StartProvider, start_proxy: StartProxy, claude_code: ClaudeCode
) -> None:
    """46 requests of 20 KB: alone the client asks for a summary on the way."""
    summary = {"match": {"text": "<summary>"}, "reply": {"text": "<summary>Numbers.</summary>"}, "times": 9}
    directly, through = (start_provider([summary, *make_long_session(45)]) for _ in range(2))
    proxy = start_proxy(through.url)

    runs = [claude_code.run("Print numbers.", url, "--model", SMALL) for url in (directly.url, proxy.url)]

    assert [ran.json["result"] for ran in runs] == ["All done.", "All done."]
    assert [len(provider.read_requests()) for provider in (directly, through)] == [47, 46]
    totals = proxy.read_receipt()["totals"]
    assert totals["unexplained"] == totals["passed"] == totals["failed"] == 0


@pytest.mark.parametrize("way", ["direct", "through the proxy"])
def test_agents_resume_compact_and_clear(
    way: str,
    start_provider: StartProvider,
    start_proxy: StartProxy,
    claude_code: ClaudeCode,
    proxy_log: Path,
) -> None:
    """The same prefix is read on both ways, also after the proxy was killed and started again."""
    provider = start_provider(make_mixed_session(claude_code.place.project))
    proxy = start_proxy(provider.url) if way == "through the proxy" else None

    def run(prompt: str, *options: str) -> tuple[str, str, list[Row]]:
        before = len(provider.read_requests())
        ran = claude_code.run(prompt, proxy.url if proxy else provider.url, *options)
        assert ran.code == 0, ran.out + ran.err
        return ran.json["result"], ran.json["session_id"], provider.read_requests()[before:]

    said, session, rows = run("prompt-begin")
    assert said == "Begun."
    agents = {row["source"] for row in rows} - {session}
    assert len(agents) == 2
    assert all(name.startswith(session) for name in agents)
    assert not [row for row in rows if row["shared"] and row["shared"]["diverged"]]

    if proxy:
        conversations = {row["conversation"] for row in proxy.read_receipt()["rows"]}
        assert len(conversations) == 3  # the session and its agents
        proxy.kill()
        proxy = start_proxy(provider.url)
    said, resumed, rows = run("prompt-go-on", "--resume", session)
    assert (said, resumed) == ("Gone on.", session)
    assert [read_share(row) for row in rows] == [1.0, 1.0]
    said, _, rows = run("prompt-again", "--resume", session)
    assert said == "Again."
    assert [read_share(row) for row in rows] == [1.0, 1.0]

    _, _, rows = run("/compact", "--resume", session)
    assert len(rows) == 1
    said, _, rows = run("prompt-after", "--resume", session)
    assert said == "After."
    # The client's own summary is another beginning.
    assert [bool(row["shared"]["diverged"]) for row in rows] == [True, False]

    _, cleared, rows = run("/clear", "--resume", session)
    assert cleared != session
    assert rows == []
    said, _, rows = run("prompt-fresh", "--resume", cleared)
    assert said == "Fresh."
    assert {row["source"] for row in rows} == {cleared}
    if proxy:
        totals = proxy.read_receipt()["totals"]
        assert totals["unexplained"] == totals["passed"] == 0
        assert proxy_log.read_text("utf-8") == ""


def test_what_was_cleared_is_read_again_after_a_kill(
    start_provider: StartProvider, start_proxy: StartProxy, claude_code: ClaudeCode, proxy_log: Path
) -> None:
    calls = 30
    provider = start_provider(make_long_session(calls))
    proxy = start_proxy(provider.url)
    ran = claude_code.run("Print numbers.", proxy.url, *MODEL)
    session = ran.json["session_id"]
    before = provider.read_requests()
    (cleared,) = (claude_code.place.home / ".claude").glob(f"projects/*/{session}/tool-results/*cleared*")
    first = re.search(r"(?m)^100000$", cleared.read_text("utf-8"))
    read = use("Read", file_path=str(cleared), limit=20)
    provider.add_steps([answer("prompt-again", "It is kept.", read), answer("prompt-again", "Read.")])

    proxy.kill()
    proxy = start_proxy(provider.url)
    again = claude_code.run("prompt-again", proxy.url, *MODEL, "--resume", session, trusted=False)

    assert first is not None
    assert again.json["result"] == "Read.", again.out + again.err
    assert again.json["permission_denials"] == []
    rows = provider.read_requests()[len(before) :]
    assert min(map(read_share, rows)) >= 0.99
    totals = proxy.read_receipt()["totals"]
    assert totals["requests"] == totals["shortened"] == 2
    assert proxy_log.read_text("utf-8") == ""


def test_wrap_runs_it_and_says_what_it_saved(
    start_provider: StartProvider, claude_code: ClaudeCode
) -> None:
    provider = start_provider([{"reply": {"content": [print_numbers(1)]}}, {"reply": {"text": "Wrapped."}}])

    ran = claude_code.wrap("Print numbers.", provider.url)

    assert ran.json["result"] == "Wrapped.", ran.out + ran.err
    assert re.search(r"sevenfold: 2 requests; sent [\d.]+ MB instead of", ran.err)
