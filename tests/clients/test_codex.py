"""Longer sessions of the real Codex, on the Responses API."""

from __future__ import annotations

import pytest
from clients.conftest import StartProvider
from clients.programs import Codex
from clients.sessions import make_long_session, print_numbers_in_codex

pytestmark = [pytest.mark.clients, pytest.mark.real]
STEP = 128  # In steps of so many tokens a beginning is kept


def test_forty_calls_read_what_was_sent_before(start_provider: StartProvider, codex: Codex) -> None:
    provider = start_provider(make_long_session(40, print_numbers_in_codex))

    ran = codex.run("Print numbers.", provider.url)

    assert ran.events[-1]["type"] == "turn.completed", ran.out + ran.err
    rows = provider.read_requests()
    assert len(rows) == 41
    assert [row["n"] for row in rows[1:] if row["shared"]["diverged"]] == []
    assert [
        row["n"] for row in rows[1:] if row["shared"]["tokens"] - row["tokens"]["cache_read"] >= STEP
    ] == []


def test_wrap_leads_it_to_the_proxy_without_a_setting(start_provider: StartProvider, codex: Codex) -> None:
    """Its own provider would rather have a WebSocket; refused, it goes on over HTTP at once."""
    provider = start_provider(make_long_session(1, print_numbers_in_codex))

    ran = codex.wrap("Print numbers.", provider.url)

    assert ran.code == 0, ran.out + ran.err
    assert "All done." in ran.out
    assert "Reconnecting" not in ran.out
    assert [row["status"] for row in provider.read_requests()] == [200, 200]
    assert not (codex.place.home / ".codex" / "config.toml").exists()
