"""The commands and the code of the README and of the quickstart run as they are written there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from replay import sessions

from sevenfold.offline import encode_reply
from sevenfold.simulator import run_in_thread

pytestmark = pytest.mark.real
ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BUILT = ("README.md", "LICENSE", "pyproject.toml", "src", "plugin", ".claude-plugin")
DONE = "the line is done:"
PATIENCE = 60.0  # Seconds that a server may take to start


@dataclass
class Typist:
    """A shell at which the lines of a page are typed, one after the other."""

    shell: subprocess.Popen[str]

    def type(self, line: str) -> str:
        """The output of the line, which must succeed."""
        assert self.shell.stdin
        assert self.shell.stdout
        # What is typed here is no input of the command itself
        self.shell.stdin.write(f"eval {shlex.quote(line)} < /dev/null\necho '{DONE}' $?\n")
        self.shell.stdin.flush()
        said: list[str] = []
        for printed in self.shell.stdout:
            if printed.startswith(DONE):
                assert printed == f"{DONE} 0\n", f"{line}\n{''.join(said)}"
                break
            said.append(printed)
        if (port := re.search(r"--port (\d+) &$", line)) is not None:
            wait_for_port(int(port[1]))
        return "".join(said)

    def run_python(self, code: str) -> str:
        path = Path("block.py")
        return self.type(f"cat > {path} <<'END OF BLOCK'\n{code}END OF BLOCK") + self.type(f"python {path}")


def wait_for_port(port: int) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail(f"nothing listens on port {port}")


def list_blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of this repository, as a clone would be."""
    there = tmp_path / "sevenfold"
    listed = subprocess.run(
        ["git", "ls-files", "-z", *BUILT], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, there / name)
    subprocess.run(["git", "init", "-q"], cwd=there, check=True)
    return there


@pytest.fixture
def typist(tmp_path: Path, copy: Path) -> Iterator[Typist]:
    """A shell in the copy; its user has used Claude Code and has no key."""
    home = tmp_path / "home"
    recorded = home / ".claude" / "projects" / "shop"
    recorded.mkdir(parents=True)
    (recorded / "session.jsonl").write_bytes(sessions.claude_code())
    cached = subprocess.run(
        [sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=False
    )
    environ = {
        **{name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG"))},
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "PIP_CACHE_DIR": cached.stdout.strip() or str(tmp_path / "cache"),
    }
    with subprocess.Popen(
        ["bash", "--noprofile", "--norc"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=copy,
        env=environ,
    ) as shell:
        yield Typist(shell)
        shell.kill()


def test_the_quickstart_runs_line_by_line(typist: Typist) -> None:
    said = {}
    for language, block in list_blocks("docs/quickstart.md"):
        if language == "python":
            assert typist.run_python(block).startswith("2 requests, ")
        for line in block.splitlines() if language == "sh" else ():
            said[line] = typist.type(line)

    assert "TAX_RATE = 0.07" in said['sevenfold chat -p "what is in till.py?"']
    assert "whole cents" in said['sevenfold memory recall "do we round prices?"']
    assert "removed again" in said["sevenfold memory undo"]
    assert "would run: claude plugin install sevenfold@sevenfold" in said["sevenfold setup claude"]
    assert "removed: " in said["sevenfold setup codex --remove --yes"]
    assert "balanced" in said["sevenfold replay ~/.claude/projects --compare"]


def test_the_readme_runs_block_by_block(typist: Typist) -> None:
    """Its installation is that of the quickstart, and is not done again."""
    with run_in_thread(replies=encode_reply) as provider:
        typist.type(f"export ANTHROPIC_BASE_URL={provider.url} ANTHROPIC_API_KEY=any")
        for language, block in list_blocks("README.md"):
            if language == "python":
                typist.run_python(block)
            lines = block.splitlines() if language == "sh" else []
            for line in (line for line in lines if "venv" not in line and "pip" not in line):
                said = typist.type(line)
                if line.startswith("sevenfold memory recall"):
                    assert "nothing" not in said.lower()
        assert len(provider.ledger.rows) > 5
