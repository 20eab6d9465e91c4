"""Real clients as programs: Claude Code, Codex, and scripts of ours that use an SDK.

    def test_it(start_provider: StartProvider, claude_code: ClaudeCode) -> None:
        provider = start_provider([{"reply": {"text": "Hello."}}])
        ran = claude_code.run("say hello", provider.url)
        assert ran.json["result"] == "Hello."

Each runs with an empty environment, a home of its own and a time limit, in the namespace of the test.
`make test-clients ARGS="-k test_it"` runs it. Mark such a test with `clients` and `real`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clients.environments import find_environment

PATIENCE = 180.0


@dataclass(frozen=True)
class ClientRun:
    """How a client ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def events(self) -> list[Any]:
        """One JSON value a line; lines that are none are left out."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]


@dataclass(frozen=True)
class ClientPlace:
    """Where a client runs: a home and a working folder that nothing else uses."""

    home: Path
    project: Path
    path: str = "/usr/bin:/bin"

    def run(
        self,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        *,
        text: str = "",
        patience: float = PATIENCE,
    ) -> ClientRun:
        """Run a client to its end, `text` being its input. `TimeoutExpired` after `patience` seconds."""
        process = self.start(command, environment)
        try:
            out, err = process.communicate(text, patience)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return ClientRun(process.returncode, out, err)

    def wrap(
        self,
        program: Path,
        words: Sequence[str],
        upstream: str,
        environment: Mapping[str, str],
        *options: str,
    ) -> ClientRun:
        """`sevenfold wrap PROGRAM WORDS`, with the program in the PATH as its user has it."""
        folder = self.home / "bin"
        folder.mkdir()
        (folder / program.name).symlink_to(program)
        ours = (sys.executable, "-m", "sevenfold", "wrap", *options, "--upstream", upstream)
        return self.run((*ours, program.name, *words), {**environment, "PATH": f"{folder}:{self.path}"})

    def start(
        self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a client in a process group of its own, which has its process id."""
        clean = {"HOME": str(self.home), "PATH": self.path, "LANG": "C.UTF-8", **(environment or {})}
        return subprocess.Popen(
            [str(word) for word in command],
            cwd=self.project,
            env=clean,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )


def make_place(folder: Path) -> ClientPlace:
    place = ClientPlace(folder / "client-home", folder / "project")
    place.home.mkdir()
    place.project.mkdir()
    return place


@dataclass(frozen=True)
class ClaudeCode:
    """The `claude` program."""

    place: ClientPlace
    program: Path

    def run(
        self,
        prompt: str,
        url: str,
        *options: str,
        trusted: bool = True,
        environment: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> ClientRun:
        """`claude -p PROMPT` against a provider; `trusted` lets it use every tool unasked.

        The last of two equal options counts.
        """
        skip = ("--dangerously-skip-permissions",) if trusted else ()
        words = ("-p", prompt, "--output-format", "json", *skip, *options)
        environment = {**self.make_environment(url), **(environment or {})}
        return self.place.run((self.program, *words), environment, patience=patience)

    def wrap(self, prompt: str, upstream: str) -> ClientRun:
        """`sevenfold wrap claude -p PROMPT`; no address of a provider is in its environment."""
        words = ("-p", prompt, "--output-format", "json", "--dangerously-skip-permissions")
        environment = self.make_environment("")
        del environment["ANTHROPIC_BASE_URL"]
        return self.place.wrap(self.program, words, upstream, environment)

    def call(self, *words: str, environment: Mapping[str, str] | None = None) -> ClientRun:
        """`claude WORDS`, for what asks no model: `plugin validate`, `mcp list`."""
        environment = {**self.make_environment("http://127.0.0.1:9"), **(environment or {})}
        return self.place.run((self.program, *words), environment)

    @staticmethod
    def make_environment(url: str) -> dict[str, str]:
        off = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER")
        return {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "sk-ant-test",
            **dict.fromkeys((*off, "DISABLE_ERROR_REPORTING", "IS_SANDBOX"), "1"),
        }


def find_claude_code(place: ClientPlace) -> ClaudeCode:
    found = find_environment("claude-code").folder.glob("lib/python*/site-packages/claude_agent_sdk")
    return ClaudeCode(place, next(found) / "_bundled" / "claude")


EXECUTE = ("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")


@dataclass(frozen=True)
class Codex:
    """The `codex` program."""

    place: ClientPlace
    program: Path

    def run(self, prompt: str, url: str, *options: str, settings: str = "") -> ClientRun:
        """`codex exec --json PROMPT` against a provider; `settings` is added to its config.toml."""
        self.configure(url, settings)
        return self.place.run((self.program, *EXECUTE, *options, prompt), {"SIMULATOR_KEY": "sk-test"})

    def configure(self, url: str, settings: str = "") -> None:
        folder = self.place.home / ".codex"
        folder.mkdir(exist_ok=True)
        text = f"""
model = "gpt-5.5"
model_provider = "simulator"
check_for_update_on_startup = false
{settings}
[analytics]
enabled = false
[model_providers.simulator]
name = "simulator"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SIMULATOR_KEY"
"""
        (folder / "config.toml").write_text(text, encoding="utf-8")


def find_codex(place: ClientPlace) -> Codex:
    packages = find_environment("codex").folder / "node_modules" / "@openai"
    return Codex(place, next(packages.glob("codex-*/vendor/*/bin/codex")))
