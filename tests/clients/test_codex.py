"""Longer sessions of the real Codex, on the Responses API."""

from __future__ import annotations

from pathlib import Path

import pytest
from clients.conftest import StartProvider, StartProxy
from clients.programs import Codex
from clients.sessions import make_long_session, print_numbers_in_codex

pytestmark = [pytest.mark.clients, pytest.mark.real]
STEP = 128  # In steps of so many tokens a beginning is kept


def test_forty_calls_cost_four_fifths_at_most(
    start_provider: StartProvider, start_proxy: StartProxy, codex: Codex, proxy_log: Path
) -> None:
    directly, through = (start_provider(make_long_session(40, print_numbers_in_codex)) for _ in range(2))
    proxy = start_proxy(through.url)

    runs = [codex.run("Print numbers.", url) for url in (directly.url, proxy.url)]

    assert [ran.events[-1]["type"] for ran in runs] == ["turn.completed"] * 2, runs
    spent, would = (provider.read_ledger()["total"] for provider in (through, directly))
    assert spent["requests"] == would["requests"] == 41
    assert spent["cost"] <= 0.8 * would["cost"]
    rows = directly.read_requests()[1:]
    assert [row["n"] for row in rows if row["shared"]["diverged"]] == []
    assert [row["n"] for row in rows if row["shared"]["tokens"] - row["tokens"]["cache_read"] >= STEP] == []
    totals = proxy.read_receipt()["totals"]
    assert totals["direct_cost"] == pytest.approx(would["cost"], rel=0.01)
    assert totals["unexplained"] == totals["passed"] == totals["failed"] == 0
    assert proxy_log.read_text("utf-8") == ""


def test_wrap_leads_it_to_the_proxy_without_a_setting(start_provider: StartProvider, codex: Codex) -> None:
    """Its own provider would rather have a WebSocket; refused, it goes on over HTTP at once."""
    provider = start_provider(make_long_session(1, print_numbers_in_codex))

    ran = codex.wrap("Print numbers.", provider.url)

    assert ran.code == 0, ran.out + ran.err
    assert "All done." in ran.out
    assert "Reconnecting" not in ran.out
    assert [row["status"] for row in provider.read_requests()] == [200, 200]
    assert not (codex.place.home / ".codex" / "config.toml").exists()
