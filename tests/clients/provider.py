"""`sevenfold simulate` as a process beside the client, and replies that keep the bodies of requests."""

from __future__ import annotations

import json
import signal
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
    script = folder / "provider.jsonl"
    script.write_text("".join(json.dumps(step) + "\n" for step in steps), encoding="utf-8")
    words = ("simulate", "--json", "--quiet", "--script", str(script), *options)
    with start_sevenfold(folder, *words) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield SimulatedProvider(ready["url"], ready["token"])


@contextmanager
def start_sevenfold(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A `sevenfold` command that serves, with a home of its own; ended with SIGTERM."""
    home = folder / "sevenfold-home"
    home.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "sevenfold", *words],
        cwd=home,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    with process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)


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
