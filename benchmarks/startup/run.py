"""Start to the first request: time, CPU time, modules loaded and regular expressions compiled.

python -m benchmarks.startup.run [--quick] [--json]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.report import Table, arguments, show

PROBE: Final = Path(__file__).parent / "probe.py"
ASK: Final = ("chat", "-p", "Hello")
MODEL: Final = "claude-sonnet-4-5"
LEFT_OUT: Final = ("SEVENFOLD_", "ANTHROPIC_", "PYTHON")
"""Variables that are not passed on: an installed package has its bytecode, and a user has no settings."""
HTTP: Final = "`chat -p` to the first request over HTTP"
STARTS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("the interpreter alone", "code", ("pass",)),
    ("import sevenfold", "code", ("import sevenfold",)),
    ("`sevenfold --version`", "command", ("--version",)),
    ("import of `Session`", "code", ("import sevenfold; sevenfold.Session",)),
    (HTTP, "http", (*ASK, "--model", MODEL)),
    ("`chat -p` to the first request of the offline engine", "offline", (*ASK, "--model", "offline")),
)


@dataclass(frozen=True)
class Start:
    """One start, measured at its moment and at the end of the process; times in seconds."""

    wall: float
    cpu: float
    modules: tuple[str, ...]
    patterns: Mapping[str, int]
    """Regular expressions compiled, by the module that had them compiled."""
    rest_wall: float
    """From the moment to the end of the process."""
    rest_cpu: float


@contextmanager
def open_project() -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder under git, and the environment of a user with a key whose provider is the simulator."""
    command = [sys.executable, "-m", "sevenfold", "simulate", "--json"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        project = folder / "project"
        subprocess.run(["git", "init", "-q", project], check=True)
        environ = {k: v for k, v in os.environ.items() if not k.startswith(LEFT_OUT)}
        environ |= {"HOME": str(folder), "SEVENFOLD_HOME": str(folder / "home"), "ANTHROPIC_API_KEY": "k"}
        simulator = subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            assert simulator.stdout is not None
            environ["ANTHROPIC_BASE_URL"] = json.loads(simulator.stdout.readline())["url"]
            yield project, environ
        finally:
            simulator.terminate()
            simulator.communicate()


def start(kind: str, words: tuple[str, ...], project: Path, environ: Mapping[str, str]) -> Start:
    out = project.parent / "measured.json"
    command = [sys.executable, str(PROBE), str(out), kind, *words]
    began = time.perf_counter()
    subprocess.run(
        command, check=True, env=environ, cwd=project, stdin=subprocess.DEVNULL, capture_output=True
    )
    ended = time.perf_counter()
    read = json.loads(out.read_text(encoding="utf-8"))
    return Start(
        read["at"] - began,
        read["cpu"],
        tuple(read["modules"]),
        read["patterns"],
        ended - read["at"],
        read["cpu_ended"] - read["cpu"],
    )


def starts(times: int) -> list[Table]:
    """All kinds by turns, so that a load of the machine falls on all of them; the first run warms up."""
    runs: dict[str, list[Start]] = {}
    with open_project() as (project, environ):
        for _ in range(times + 1):
            for name, kind, words in STARTS:
                runs.setdefault(name, []).append(start(kind, words, project, environ))
    columns = "wall ms", "fastest ms", "CPU ms", "modules", "regular expressions"
    table = Table("start of a process to a moment, medians", "moment", *columns)
    table.notes.append("wall times grow with the load of the machine; CPU times less, counts not at all")
    for name, (_, *measured) in runs.items():
        walls = [one.wall for one in measured]
        last = measured[-1]
        cpu = statistics.median(one.cpu for one in measured)
        walls_ms = _ms(statistics.median(walls)), _ms(min(walls))
        table.add(name, *walls_ms, _ms(cpu), len(last.modules), sum(last.patterns.values()))
    rest = Table(
        "from the first request to the end of the process, medians", "request", "wall ms", "CPU ms"
    )
    for name in [name for name, kind, _ in STARTS if kind in ("http", "offline")]:
        measured = runs[name][1:]
        wall = statistics.median(one.rest_wall for one in measured)
        rest.add(name, _ms(wall), _ms(statistics.median(one.rest_cpu for one in measured)))
    return [table, rest]


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


def run(quick: bool) -> list[Table]:
    return starts(3 if quick else 21)


if __name__ == "__main__":
    options = arguments(__doc__)
    show(run(options.quick), as_json=options.json)
