"""How benchmarks print what they measured."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Table:
    """A titled table; notes say what the figures do not show."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __init__(self, title: str, *columns: str) -> None:
        self.title, self.columns, self.rows, self.notes = title, columns, [], []

    def add(self, *row: Any) -> None:
        self.rows.append(row)

    def text(self) -> str:
        cells = [tuple(map(str, row)) for row in (self.columns, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in cells
        ]
        notes = [f"  note: {note}" for note in self.notes]
        return "\n".join([self.title, *(f"  {line}" for line in lines), *notes])

    def data(self) -> dict[str, Any]:
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"title": self.title, "rows": rows, "notes": self.notes}


def arguments(doc: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser.parse_args()


def machine() -> str:
    where = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return f"Python {platform.python_version()}, {where}"


def show(tables: list[Table], *, as_json: bool) -> None:
    if as_json:
        json.dump({"machine": machine(), "tables": [t.data() for t in tables]}, sys.stdout, indent=1)
        print()
        return
    print(machine())
    for table in tables:
        print(f"\n{table.text()}")
