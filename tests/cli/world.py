"""A home, a project and the command line, cut off from the real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sevenfold.core.transcript import Transcript
from sevenfold.storage.jsonl import read_log

PATIENCE = 60.0


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout, and nothing else."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class World:
    """`SEVENFOLD_HOME` is not below `HOME`, so that mixing them up would be seen."""

    top: Path
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in (self.user, self.project):
            folder.mkdir(parents=True)

    @property
    def home(self) -> Path:
        return self.top / "home"

    @property
    def user(self) -> Path:
        return self.top / "user"

    @property
    def project(self) -> Path:
        return self.top / "project"

    @property
    def env(self) -> dict[str, str]:
        return {
            "HOME": str(self.user),
            "SEVENFOLD_HOME": str(self.home),
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            **self.variables,
        }

    def at(self, url: str, key: str = "sk-test") -> World:
        """The same world with a provider at this address."""
        self.variables |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": key}
        return self

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """In a process group of its own, so that it can be signalled as a terminal would."""
        return subprocess.Popen(
            [sys.executable, "-m", "sevenfold", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env,
            cwd=self.project,
            start_new_session=True,
        )

    def run(self, *words: str, stdin: bytes = b"") -> Ran:
        """As a process of its own: for pipes, exit codes, and what really arrives on stdout."""
        ran = subprocess.run(
            [sys.executable, "-m", "sevenfold", *words],
            input=stdin,
            capture_output=True,
            env=self.env,
            cwd=self.project,
            timeout=PATIENCE,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    # --- what is there afterwards -----------------------------------------------------------------------

    def write(self, name: str, text: str) -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def settings(self, values: Any) -> Path:
        self.home.mkdir(exist_ok=True, mode=0o700)
        path = self.home / "settings.json"
        path.write_text(values if isinstance(values, str) else json.dumps(values), encoding="utf-8")
        return path

    @property
    def transcripts(self) -> list[Path]:
        return sorted(self.home.glob("projects/*/*.jsonl"))

    def transcript(self) -> Transcript:
        """Of the only session there is."""
        [path] = self.transcripts
        return Transcript.load(read_log(path), lambda: 0.0)

    def kept(self) -> Iterator[str]:
        """Who said what, in order."""
        for placed in self.transcript().view:
            yield f"{placed.by}: {placed.message.text}"


def is_running(command: str) -> bool:
    """Whether a process with these words is there."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if words.strip() == command:
            return True
    return False
