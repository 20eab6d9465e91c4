"""Every example runs, as its docstring says, on a machine without a key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SAYS = {
    "agents.py": "plan.txt:2: TODO: buy paint",
    "ask.py": "requests",
    "context_anthropic.py": "tokens less in each request\n4 requests, ",
    "context_openai.py": "tokens less in each request\n4 requests, ",
    "fleet.py": "Everything is there, 22 memories on each machine: True.",
    "own_provider.py": "shout:anything: DOES ANYBODY LISTEN!!!",
    "own_backend.py": "Mocks are fine.\nUse a real database.",
    "own_layer.py": "the rule was added 1 time",
    "own_tool.py": "umbrella",
    "simulated_cache.py": "simulated cost: $0.00",
}


@pytest.mark.real
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_example_runs(example: Path, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "SEVENFOLD_HOME": str(tmp_path / "h")}
    command = [sys.executable, str(example)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environ)

    assert (done.returncode, done.stderr) == (0, "")
    assert SAYS[example.name] in done.stdout
