"""Sessions of the real Codex: its own provider, a longer one through the proxy, and `wrap`."""

from __future__ import annotations

from pathlib import Path

import pytest
from clients.conftest import StartProvider, StartProxy
from clients.programs import EXECUTE, Codex
from clients.sessions import Json, use

pytestmark = [pytest.mark.clients, pytest.mark.real]
ONE_CALL: list[Json] = [
    {"reply": {"content": [use("exec_command", cmd="echo 21 degrees")]}},
    {"reply": {"text": "All done."}},
]
KEY = {"CODEX_API_KEY": "sk-test"}


@pytest.mark.parametrize("way", ["direct", "through the proxy"])
def test_without_a_websocket_it_goes_on_over_http_at_once(
    way: str, start_provider: StartProvider, start_proxy: StartProxy, codex: Codex
) -> None:
    """The provider that it comes with would rather have a WebSocket."""
    provider = start_provider(ONE_CALL)
    url = provider.url if way == "direct" else start_proxy(provider.url).url

    ran = codex.place.run((codex.program, "-c", f'openai_base_url="{url}/v1"', *EXECUTE, "Go."), KEY)

    assert "All done." in ran.out, ran.out + ran.err
    assert "Reconnecting" not in ran.out
    assert [row["status"] for row in provider.read_requests()] == [200, 200]


def test_forty_calls_cost_four_fifths_at_most(
    start_provider: StartProvider, start_proxy: StartProxy, codex: Codex, proxy_log: Path
) -> None:
    starts = range(100_000, 220_000, 3_000)
    calls = [use("exec_command", cmd=f"seq {start} {start + 2_900}") for start in starts]
    steps = [*({"reply": {"content": [call]}} for call in calls), ONE_CALL[-1]]
    directly, through = (start_provider(steps) for _ in range(2))
    proxy = start_proxy(through.url)

    runs = [codex.run("Print numbers.", url) for url in (directly.url, proxy.url)]

    assert ["All done." in ran.out for ran in runs] == [True, True], runs
    spent, would = (provider.read_ledger()["total"] for provider in (through, directly))
    assert spent["requests"] == would["requests"] == 41
    assert spent["cost"] <= 0.8 * would["cost"]
    assert [row["n"] for row in directly.read_requests()[1:] if row["shared"]["diverged"]] == []
    totals = proxy.read_receipt()["totals"]
    assert totals["cost"] == pytest.approx(spent["cost"])
    assert totals["direct_cost"] == pytest.approx(would["cost"], rel=0.01)
    assert totals["unexplained"] == totals["passed"] == totals["failed"] == 0
    assert proxy_log.read_text("utf-8") == ""


def test_wrap_leads_it_to_the_proxy_without_a_setting(start_provider: StartProvider, codex: Codex) -> None:
    provider = start_provider(ONE_CALL)

    ran = codex.place.wrap(codex.program, (*EXECUTE, "Go."), provider.url, KEY, "--json")

    assert "All done." in ran.out, ran.out + ran.err
    receipt = ran.events[-1]
    assert receipt["totals"]["requests"] == 2
    assert all(row["conversation"] for row in receipt["rows"])
    assert not (codex.place.home / ".codex" / "config.toml").exists()
