"""The first recall of a process, from its start to its answer: with an index, without, in a new home."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.recall_latency.memories import sentences, written
from benchmarks.report import Table
from sevenfold.memory.store import Memory

REPEATS: Final = 5
FEW: Final = 12
SETTLE: Final = 600.0
_PROGRAM: Final = """
import sys, time
from sevenfold.memory.store import Memory
memory = Memory.open(sys.argv[1], home=sys.argv[2])
memory.recall(sys.argv[3])
print(time.process_time(), flush=True)
memory.close()
"""


def first_recalls(sizes: Sequence[int]) -> Table:
    table = Table(
        f"First recall of a process, s, median of {REPEATS}",
        *("memories", "state", "answer, wall", "answer, CPU", "process ends", "command ends"),
    )
    with tempfile.TemporaryDirectory() as place:
        for size in (FEW, *sizes):
            _measure(Path(place), size, table)
    table.notes += [
        "from the start of the process: Python, imports, listing the folder, opening or making the index; "
        "`Memory.open(…).recall(…)` in a program, `sevenfold memory recall` as a command",
        "no index: removed before each; new home: the table of words too; CPU is the process's own until "
        "its answer, and says more than the wall clock on a machine that others use",
        "compiled modules and files are in the page cache",
    ]
    return table


def _measure(place: Path, size: int, table: Table) -> None:
    project, home = place / "project", place / "home"
    project.mkdir()
    with Memory.open(project, home=home) as memory:
        folder, state = memory.path_of(), memory.local
        written(folder, size)
        memory.settled(SETTLE)

    def forget(*folders: Path) -> None:
        for one in folders:
            shutil.rmtree(one, ignore_errors=True)

    states: dict[str, Callable[[], None]] = {
        "index there": lambda: None,
        "no index": lambda: forget(state / "search"),
    }
    if size == FEW:
        states["new home"] = lambda: forget(state / "search", home / "words")
    for name, before in states.items():
        runs = [_run(project, home, before) for _ in range(REPEATS)]
        table.add(size, name, *(f"{median(column):.2f}" for column in zip(*runs, strict=True)))
    shutil.rmtree(project)
    shutil.rmtree(home)


def _run(project: Path, home: Path, before: Callable[[], None]) -> tuple[float, float, float, float]:
    question = sentences()[1][0]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before()
    began = time.perf_counter()
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(project), str(home), question],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert program.stdout is not None
    cpu = float(program.stdout.readline())
    answered = time.perf_counter() - began
    program.wait()
    ended = time.perf_counter() - began
    before()
    began = time.perf_counter()
    command = [sys.executable, "-m", "sevenfold", "memory", "recall", question, "--json", "-q"]
    where = ["--project", str(project), "--home", str(home)]
    subprocess.run([*command, *where], check=True, env=environment, stdout=subprocess.DEVNULL)
    return answered, cpu, ended, time.perf_counter() - began
