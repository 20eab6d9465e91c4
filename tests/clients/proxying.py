"""`sevenfold proxy` as a process between a client and its provider."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from clients.programs import ClientPlace

Json = dict[str, Any]
PATIENCE = 60.0


@dataclass
class RunningProxy:
    """A proxy that shares its user's home with the client."""

    url: str
    process: subprocess.Popen[str]

    def read_receipt(self) -> Json:
        found: Json = httpx.get(f"{self.url}/sevenfold/ledger", trust_env=False).raise_for_status().json()
        return found

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)


@contextmanager
def run_proxy(place: ClientPlace, upstream: str, log: Path) -> Iterator[RunningProxy]:
    """`sevenfold proxy` before this provider, until the block ends; what it logs goes to a file."""
    words = ("proxy", "--json", "--quiet", "--upstream", upstream)
    with log.open("a", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "sevenfold", *words],
            cwd=place.project,
            env={"HOME": str(place.home), "PATH": place.path, "LANG": "C.UTF-8"},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
        )
    with process:
        try:
            assert process.stdout is not None
            yield RunningProxy(json.loads(process.stdout.readline())["url"], process)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(PATIENCE)
