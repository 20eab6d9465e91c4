"""Run every benchmark and print what it measured.

python -m benchmarks [--quick] [--json]
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from benchmarks.report import Table, arguments, show

HERE = Path(__file__).parent


def main() -> int:
    options = arguments(__doc__)
    tables: list[Table] = []
    for folder in sorted(path.parent for path in HERE.glob("*/run.py")):
        print(f"running benchmarks/{folder.name}", file=sys.stderr)
        tables += importlib.import_module(f"benchmarks.{folder.name}.run").run(options.quick)
    show(tables, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
