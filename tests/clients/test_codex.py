"""Codex with the provider that it comes with, which would rather have a WebSocket."""

from __future__ import annotations

import pytest
from clients.conftest import StartProvider, StartProxy
from clients.programs import Codex
from clients.sessions import use

pytestmark = [pytest.mark.clients, pytest.mark.real]


@pytest.mark.parametrize("way", ["direct", "through the proxy"])
def test_without_a_websocket_it_goes_on_over_http_at_once(
    way: str, start_provider: StartProvider, start_proxy: StartProxy, codex: Codex
) -> None:
    call = use("exec_command", cmd="echo 21 degrees")
    provider = start_provider([{"reply": {"content": [call]}}, {"reply": {"text": "All done."}}])
    url = provider.url if way == "direct" else start_proxy(provider.url).url
    words = ("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Go.")
    line = (codex.program, "-c", f'openai_base_url="{url}/v1"', *words)

    ran = codex.place.run(line, {"CODEX_API_KEY": "sk-test"})

    assert "All done." in ran.out, ran.out + ran.err
    assert "Reconnecting" not in ran.out
    assert [row["status"] for row in provider.read_requests()] == [200, 200]
