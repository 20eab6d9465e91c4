"""Runs benchmarks one after another, keeps what each measured, and writes all of it into one page."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from benchmarks.report import Table, machine
from sevenfold.core.clock import SystemClock, format_date

HERE: Final = Path(__file__).parent
RESULTS: Final = "results.json"
"""What a benchmark measured last, in its own folder."""
PAGE: Final = HERE / "RESULTS.md"
SAMPLE: Final = "(a sample)"
"""How the title of a table with words from somebody's data ends: those are looked at, not kept."""
NAMED: tuple[str, ...] = (
    "sevenfold",
    "anthropic",
    "openai",
    "httpx",
    "msgspec",
    "anyio",
    "numpy",
    "pygit2",
)
"""Packages whose versions matter for the figures; peers name theirs in the tables."""


@dataclass(frozen=True)
class Measured:
    """What one benchmark printed, where and when."""

    name: str
    date: str
    machine: str
    versions: dict[str, str]
    seconds: float
    quick: bool
    tables: list[dict[str, Any]] = field(default_factory=list)

    @property
    def command(self) -> str:
        return f"python -m benchmarks.{self.name}.run" + (" --quick" if self.quick else "")

    def cell(self, table: str, row: str, column: str) -> str:
        """One figure: of the first table whose title, and of its first row that, begin like this."""
        for one in self.tables:
            if not one["title"].startswith(table) or column not in one["columns"]:
                continue
            at = one["columns"].index(column)
            for cells in one["rows"]:
                if str(cells[0]).startswith(row):
                    return str(cells[at])
        raise LookupError(f"{self.name} has no figure {table} / {row} / {column}")


def names() -> list[str]:
    return sorted(path.parent.name for path in HERE.glob("*/run.py"))


def measure(name: str, quick: bool) -> Measured:
    run: Callable[[bool], list[Table]] = importlib.import_module(f"benchmarks.{name}.run").run
    began = perf_counter()
    tables = run(quick)
    took = perf_counter() - began
    there = {one.metadata["Name"].lower(): one.version for one in distributions()}
    versions = {package: there[package] for package in NAMED if package in there}
    day = format_date(SystemClock().now())
    kept = [asdict(table) for table in tables if SAMPLE not in table.title]
    return Measured(name, day, machine(), versions, round(took, 1), quick, _plain(kept))


def _plain(tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As it is read back: tuples are lists, figures stay figures."""
    read: list[dict[str, Any]] = json.loads(json.dumps(tables, default=str))
    return read


def gather(chosen: Sequence[str], quick: bool) -> list[str]:
    """Run these and keep what they measured; returns what went wrong, and goes on after each."""
    wrong: list[str] = []
    for n, name in enumerate(chosen, 1):
        print(f"[{n}/{len(chosen)}] benchmarks/{name}", file=sys.stderr, flush=True)
        try:
            measured = measure(name, quick)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the others are still worth running
            wrong.append(f"benchmarks/{name} failed: {error!r}")
            print(f"  failed: {error!r}", file=sys.stderr, flush=True)
            continue
        print(f"  {measured.seconds:.0f} s", file=sys.stderr, flush=True)
        if not quick:
            path = HERE / name / RESULTS
            path.write_text(json.dumps(asdict(measured), indent=1) + "\n", encoding="utf-8")
        else:
            print("\n".join(_tables(measured)))
    return wrong


def kept() -> dict[str, Measured]:
    """What each benchmark measured last."""
    found = [HERE / name / RESULTS for name in names()]
    read = [json.loads(path.read_text(encoding="utf-8")) for path in found if path.is_file()]
    return {one["name"]: Measured(**one) for one in read}


def page(measured: Iterable[Measured]) -> str:
    """All tables, with what is needed to get them again."""
    parts = [
        "# Benchmarks: what was measured\n",
        "Written by `make bench`, which runs every benchmark and keeps what it printed; "
        "`python -m benchmarks NAME…` measures only some again. What a figure means and what it does "
        "not show stands in the README of its benchmark and in the notes below each table. Costs are "
        "simulated; retrieval figures are recall, not answers.\n",
    ]
    for one in measured:
        versions = ", ".join(f"{name} {version}" for name, version in one.versions.items())
        parts += [
            f"## {one.name}\n",
            f"`{one.command}` · {one.date} · {one.seconds:.0f} s · {one.machine} · {versions} · "
            f"[what it measures]({one.name}/README.md)\n",
            *_tables(one),
        ]
    return "\n".join(parts).rstrip() + "\n"


def _tables(measured: Measured) -> list[str]:
    lines = []
    for table in measured.tables:
        lines += [f"**{table['title']}**\n", _row(table["columns"])]
        lines.append("|" + "|".join("---" for _ in table["columns"]) + "|")
        lines += [*map(_row, table["rows"]), ""]
        lines += [f"- {note}" for note in table["notes"]] + ([""] if table["notes"] else [])
    return lines


def _row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
