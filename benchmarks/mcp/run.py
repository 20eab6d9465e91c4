"""`sevenfold mcp` beside the official SDK's server: the first answer, recalls, memory of the process.

python -m benchmarks.mcp.run [--quick] [--json]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.recall_latency.memories import memory as make_memory
from benchmarks.recall_latency.memories import sentences
from benchmarks.report import Table, arguments, show
from sevenfold.memory.store import Memory

MEMORIES: Final = 200
QUESTIONS: Final = 20
LEFT_OUT: Final = ("SEVENFOLD_", "ANTHROPIC_", "PYTHON", "CLAUDE_")
OURS, THEIRS, PYTHON = "`sevenfold mcp`", "`mcp` 2.x `MCPServer`", "an empty Python"


@dataclass(frozen=True)
class Run:
    """One process; seconds and megabytes."""

    initialize: float
    first: float = 0.0
    warm: float = 0.0
    warm_cpu: float = 0.0
    own: float = 0.0
    resident: float = 0.0


def write_memories(project: Path, environ: dict[str, str]) -> None:
    with Memory.open(project, environ=environ) as memory:
        memory.claim()
        folder = memory.path_of()
        folder.mkdir(parents=True)
        for number in range(MEMORIES):
            (folder / f"memory-{number}.md").write_bytes(make_memory(number))
        memory.take_in()
        memory.recall(sentences()[1][0], wait=600.0)
        memory.settled(600.0)


def run_server(command: Sequence[str], project: Path, environ: dict[str, str]) -> Run:
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environ,
        cwd=project,
    )
    with process:
        ask(process, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=CLIENT)
        answered = time.perf_counter() - began
        tell(process, "notifications/initialized")
        first, before = time_recall(process, 0), read_cpu(process.pid)
        warm = [time_recall(process, number) for number in range(1, QUESTIONS + 1)]
        cpu = (read_cpu(process.pid) - before) / QUESTIONS
        own, resident = read_memory(process.pid, "RssAnon"), read_memory(process.pid, "VmHWM")
        assert process.stdin is not None
        process.stdin.close()
    return Run(answered, first, statistics.median(warm), cpu, own, resident)


CLIENT: Final = {"name": "benchmark", "version": "1"}


def time_recall(process: subprocess.Popen[bytes], number: int) -> float:
    questions = sentences()[1]
    began = time.perf_counter()
    query = questions[number % len(questions)]
    answer = ask(process, "tools/call", name="recall", arguments={"query": query})
    took = time.perf_counter() - began
    assert not answer["result"].get("isError"), answer
    return took


def ask(process: subprocess.Popen[bytes], method: str, **params: Any) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    )
    process.stdin.write(b"\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def tell(process: subprocess.Popen[bytes], method: str) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method}).encode() + b"\n")


def read_memory(pid: int, field: str) -> float:
    """A field of the process's status in MB, where the system tells it."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1_024 for line in lines if line.startswith(field)), 0.0)


def read_cpu(pid: int) -> float:
    """Seconds of CPU time so far, in steps of a hundredth."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_python(environ: dict[str, str]) -> Run:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True, env=environ)
    return Run(time.perf_counter() - began)


def compare(times: int) -> list[Table]:
    """All by turns, so that a load of the machine falls on all of them; the first round warms up."""
    runs: dict[str, list[Run]] = {PYTHON: [], OURS: [], THEIRS: []}
    official = [sys.executable, str(Path(__file__).with_name("official.py"))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        project = folder / "project"
        project.mkdir()
        environ = {k: v for k, v in os.environ.items() if not k.startswith(LEFT_OUT)}
        environ |= {"HOME": str(folder), "SEVENFOLD_HOME": str(folder / "home")}
        write_memories(project, environ)
        ours = [sys.executable, "-m", "sevenfold", "mcp", "--project", str(project)]
        for _ in range(times + 1):
            runs[PYTHON].append(run_python(environ))
            runs[OURS].append(run_server(ours, project, environ))
            runs[THEIRS].append(run_server([*official, str(project)], project, environ))
    columns = (
        "initialize ms",
        "fastest ms",
        "first recall ms",
        "warm recall ms",
        "its CPU ms",
        "own MB",
        "resident MB",
    )
    table = Table(f"a server with {MEMORIES} memories, medians of {times}", "server", *columns)
    empty = statistics.median(one.initialize for one in runs[PYTHON][1:])
    for server, (_, *measured) in runs.items():
        answered = [one.initialize for one in measured]
        table.add(
            server,
            round(1_000 * statistics.median(answered)),
            round(1_000 * min(answered)),
            round(1_000 * statistics.median(one.first for one in measured)),
            round(1_000 * statistics.median(one.warm for one in measured), 1),
            round(1_000 * statistics.median(one.warm_cpu for one in measured), 1),
            round(max(one.own for one in measured)),
            round(max(one.resident for one in measured)),
        )
        if server != PYTHON:
            ratio = statistics.median(answered) / empty
            table.notes.append(f"{server}: initialize takes {ratio:.1f} times as long as {PYTHON}")
    table.notes.append(f"memories: {sentences()[2]}; recall by words and by meaning")
    table.notes.append("resident has what all processes share, such as programs and libraries")
    table.notes.append("wall times grow with the load of the machine; compare the rows of one run")
    return [table]


def run(quick: bool) -> list[Table]:
    return compare(3 if quick else 11)


if __name__ == "__main__":
    options = arguments(__doc__)
    show(run(options.quick), as_json=options.json)
