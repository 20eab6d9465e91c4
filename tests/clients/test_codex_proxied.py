"""The real Codex through the proxy, in a longer session."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from clients.conftest import StartProvider, StartProxy
from clients.programs import Codex
from clients.sessions import Json, use

pytestmark = [pytest.mark.clients, pytest.mark.real]


def test_forty_calls_cost_less_and_every_break_is_explained(
    start_provider: StartProvider, start_proxy: StartProxy, codex: Codex, proxy_log: Path
) -> None:
    calls = [
        use("exec_command", cmd=f"seq {n}000000 {n}002900", max_output_tokens=20_000) for n in range(1, 41)
    ]
    steps: list[Json] = [
        *({"reply": {"content": [call]}} for call in calls),
        {"reply": {"text": "All done."}},
    ]
    provider = start_provider([*steps, *steps])
    codex.run("Print numbers.", provider.url)
    direct = provider.read_requests()
    proxy = start_proxy(provider.url)

    ran = codex.run("Print numbers.", proxy.url)

    assert "All done." in ran.out, ran.err
    through = provider.read_requests()[len(direct) :]
    spent, would = (sum(row["cost"] for row in rows) for rows in (through, direct))
    assert spent <= 0.8 * would
    totals = proxy.read_receipt()["totals"]
    assert totals["requests"] == 41
    assert totals["unexplained"] == totals["passed"] == totals["failed"] == 0
    assert proxy_log.read_text("utf-8") == ""


def test_wrap_runs_it_and_says_what_it_saved(start_provider: StartProvider, codex: Codex) -> None:
    call = use("exec_command", cmd="echo 21 degrees")
    provider = start_provider([{"reply": {"content": [call]}}, {"reply": {"text": "Wrapped."}}])
    folder = codex.place.home / "bin"
    folder.mkdir()
    (folder / "codex").symlink_to(codex.program)
    words = ("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Go.")
    line = (sys.executable, "-m", "sevenfold", "wrap", "--upstream", provider.url, "codex", *words)
    keys = {"CODEX_API_KEY": "sk-test", "OPENAI_API_KEY": "sk-test"}

    ran = codex.place.run(line, {**keys, "PATH": f"{folder}:{codex.place.path}"})

    assert "Wrapped." in ran.out, ran.out + ran.err
    assert re.search(r"sevenfold: 2 requests; sent [\d.]+ kB instead of", ran.err), ran.err
