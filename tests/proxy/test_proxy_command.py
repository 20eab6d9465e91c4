"""`sevenfold proxy` and `sevenfold wrap` as a user starts them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from benchmarks.proxy.scripted import SESSION, client_of, script_calls
from sevenfold.simulator import ManualClock, Simulator, parse_steps, run_in_thread

pytestmark = pytest.mark.real
PATIENCE = 60


def make_environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


@contextmanager
def start_proxy(home: Path, upstream: str, *more: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "sevenfold", "proxy", "--upstream", upstream, *more],
        env=make_environment(home),
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().removeprefix("ready: ").strip(), process
        finally:
            if process.poll() is None:
                process.kill()


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with run_in_thread(clock=ManualClock()) as simulator:
        yield simulator


def add_calls(sim: Simulator, calls: int, first: int = 0) -> None:
    sim.api.script.extend(parse_steps("\n".join(map(json.dumps, script_calls(calls, first)))))


def make_claude_folder(home: Path) -> Path:
    folder = home / ".claude" / "projects" / "-work"
    folder.mkdir(parents=True)
    (folder / f"{SESSION}.jsonl").touch()
    return folder


def test_a_proxy_that_is_killed_goes_on_with_the_same_bytes(tmp_path: Path, sim: Simulator) -> None:
    folder = make_claude_folder(tmp_path)

    async def converse() -> str:
        add_calls(sim, 26)
        with start_proxy(tmp_path, sim.url, "--quiet") as (url, process):
            async with client_of(url) as client:
                await client.ask("Make the reports.")
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE)
        add_calls(sim, 2, 26)
        with start_proxy(tmp_path, sim.url, "--report") as (url, process):
            async with client_of(url, messages=client.messages) as client:
                await client.ask("Two more.")
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=PATIENCE)
        return out

    report = anyio.run(converse)

    rows = list(sim.ledger.rows)
    assert len(rows) == 30
    assert len(list((folder / SESSION / "tool-results").iterdir())) == 1
    after = rows[27]
    assert after.shared is not None
    assert after.shared.diverged is None
    assert after.tokens.cache_read >= 0.99 * (rows[26].tokens.cache_read + rows[26].tokens.cache_write_5m)
    assert report.startswith("3 requests; sent ")
    assert "0 cache breaks, 0 unexplained" in report
    assert "requests shortened: 3; passed through after a trouble: 0" in report


CLIENT = """
import json, os, sys, urllib.request
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
body = {"model": "claude-sonnet-4-6", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
headers = {"content-type": "application/json", "x-api-key": "any"}
request = urllib.request.Request(url, json.dumps(body).encode(), headers)
print(json.load(urllib.request.urlopen(request))["type"], *sys.argv[1:])
print(os.environ["OPENAI_BASE_URL"], file=sys.stderr)
sys.exit(7)
"""


def test_wrap_runs_a_client_with_its_own_words_and_ends_as_it_ends(tmp_path: Path, sim: Simulator) -> None:
    program = tmp_path / "client.py"
    program.write_text(CLIENT, "utf-8")
    line = [sys.executable, "-m", "sevenfold", "wrap", "--upstream", sim.url, sys.executable, str(program)]

    ran = subprocess.run(
        [*line, "--resume", "--json", "-x"],
        env=make_environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (ran.returncode, ran.stdout) == (7, "message --resume --json -x\n")
    lines = ran.stderr.splitlines()
    assert lines[0].startswith("sevenfold: API keys are the supported case")
    assert lines[1].startswith("http://127.0.0.1:")
    assert lines[1].endswith("/v1")
    assert lines[2].startswith("sevenfold: 1 request; sent 0.1 kB instead of 0.1 kB")
    assert len(lines) == 3


def test_wrap_without_such_a_program_and_a_provider_in_the_clear_are_mistakes(tmp_path: Path) -> None:
    cases = {
        ("wrap", "no-such-client"): "there is no program 'no-such-client' in your PATH",
        ("proxy", "--upstream", "http://api.example"): "http://api.example is not encrypted",
    }
    for words, said in cases.items():
        ran = subprocess.run(
            [sys.executable, "-m", "sevenfold", *words],
            env=make_environment(tmp_path),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ran.returncode == 2
        assert said in ran.stderr


def test_the_ready_line_and_the_receipt_are_json_when_asked_for(tmp_path: Path, sim: Simulator) -> None:
    with start_proxy(tmp_path, sim.url, "--json", "--report", "--quiet") as (ready, process):
        url = json.loads(ready)["url"]
        told = httpx.get(f"{url}/sevenfold/ledger", trust_env=False).json()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)

    assert told["totals"]["requests"] == 0
    assert json.loads(out) == told
    assert err == ""
