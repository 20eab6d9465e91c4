"""Run every benchmark, or those that are named, and write what they measured into RESULTS.md.

python -m benchmarks [NAME…] [--quick]

`--quick` has fewer repetitions, prints the tables and writes nothing. Without it RESULTS.md, the figures
in the README and docs/figures.md are written anew from what each benchmark measured last.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks import headlines
from benchmarks.gathering import PAGE, gather, kept, names, page


def main() -> int:
    there = names()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"which: {', '.join(there)}; all when none is named")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions; writes nothing")
    parser.add_argument("--write", action="store_true", help="only write the pages anew, run nothing")
    options = parser.parse_args()
    if unknown := sorted(set(options.name) - set(there)):
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(there)}")
    wrong = [] if options.write else gather(options.name or there, options.quick)
    if not options.quick:
        measured = kept()
        PAGE.write_text(page(measured.values()), encoding="utf-8")
        headlines.write(measured)
        print(f"written: {PAGE}", file=sys.stderr)
    for text in wrong:
        print(text, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
