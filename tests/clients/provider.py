"""What a client talks to: `sevenfold simulate` and `sevenfold proxy` as processes beside it.

`KeptBodies` are replies for a simulator in the test's own process that keep the bodies of requests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from sevenfold.simulator.script import Script, ScriptAnswer, make_echo, make_scripted_reply, parse_steps

Json = dict[str, Any]
PATIENCE = 60.0


@dataclass(frozen=True)
class SimulatedProvider:
    """A running `sevenfold simulate`."""

    url: str
    token: str

    def read_ledger(self) -> Json:
        reply = httpx.get(f"{self.url}/sevenfold/ledger", headers=self._headers(), trust_env=False)
        found: Json = reply.raise_for_status().json()
        return found

    def read_requests(self) -> list[Json]:
        rows: list[Json] = self.read_ledger()["requests"]
        return rows

    def add_steps(self, steps: Sequence[Json]) -> None:
        """More steps for its script."""
        address, body = f"{self.url}/sevenfold/script", {"items": list(steps)}
        httpx.post(address, json=body, headers=self._headers(), trust_env=False).raise_for_status()

    def _headers(self) -> dict[str, str]:
        return {"x-sevenfold-token": self.token}


@contextmanager
def run_provider(folder: Path, steps: Sequence[Json], *options: str) -> Iterator[SimulatedProvider]:
    """`sevenfold simulate --script` with these steps, until the block ends."""
    home, script = folder / "provider-home", folder / "provider.jsonl"
    home.mkdir(exist_ok=True)
    script.write_text("".join(json.dumps(step) + "\n" for step in steps), encoding="utf-8")
    words = ("simulate", "--script", str(script), *options)
    with run_sevenfold(home, folder / "provider.log", *words) as (_, ready):
        yield SimulatedProvider(ready["url"], ready["token"])


@dataclass(frozen=True)
class RunningProxy:
    """A running `sevenfold proxy`."""

    url: str
    process: subprocess.Popen[str]

    def read_receipt(self) -> Json:
        found: Json = httpx.get(f"{self.url}/sevenfold/ledger", trust_env=False).raise_for_status().json()
        return found

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait(PATIENCE)


@contextmanager
def run_proxy(home: Path, upstream: str, log: Path) -> Iterator[RunningProxy]:
    """`sevenfold proxy` before this provider, of the user in whose home the client runs."""
    with run_sevenfold(home, log, "proxy", "--upstream", upstream) as (process, ready):
        yield RunningProxy(ready["url"], process)


@contextmanager
def run_sevenfold(home: Path, log: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], Json]]:
    """A `sevenfold` command that serves, and its first line; ended with SIGTERM when the block ends."""
    with log.open("a", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "sevenfold", *words, "--json", "--quiet"],
            cwd=home,
            env={"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
        )
    with process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)  # its last words may be longer than a pipe


@dataclass
class KeptBodies:
    """Replies for a `Simulator` in this process (`run_in_thread(replies=…)`) that keep what was asked.

    It answers from a script as `sevenfold simulate` does, except that faults are not played.
    """

    steps: Sequence[Json] = ()
    bodies: list[Json] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._script = Script(parse_steps(json.dumps(list(self.steps))))

    def __call__(self, body: Json) -> ScriptAnswer:
        self.bodies.append(body)
        step = self._script.take(body)
        return make_scripted_reply(step.reply) if step and step.reply else make_echo(body)
