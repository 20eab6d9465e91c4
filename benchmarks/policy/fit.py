"""Fit the need model: which tool results will be needed again, from recorded sessions.

python -m benchmarks.policy.fit [--sessions FOLDER…] [--out FILE] [--all]

Reads Claude Code session files; each repository may have a folder of its own. Without --all it fits on
every second session and checks itself on the others.
Your own coefficients are used when `micro.needModel` in the settings names the file.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

from benchmarks.policy.samples import SESSIONS, Sample, Samples, halves, session_files
from sevenfold.layers.l2_microcompaction.cost import COEFFICIENTS, FEATURES, compute_probability

RIDGE = 1.0
"""Keeps a coefficient near nothing where the sessions say nothing about it."""
MOST_STEPS = 25


def fitted(samples: Sequence[Sample]) -> tuple[float, ...]:
    """Logistic regression by Newton's method; small enough to need no library."""
    n = len(FEATURES)
    weights = [0.0] * n
    for _ in range(MOST_STEPS):
        gradient = [-RIDGE * w for w in weights]
        hessian = [[RIDGE * (i == j) for j in range(n)] for i in range(n)]
        for sample in samples:
            chance = compute_probability(tuple(weights), sample.features)
            known = [(i, x) for i, x in enumerate(sample.features) if x]
            for i, x in known:
                gradient[i] += x * (sample.needed - chance)
                spread = x * chance * (1 - chance)
                row = hessian[i]
                for j, y in known:
                    row[j] += spread * y
        step = _solved(hessian, gradient)
        weights = [w + s for w, s in zip(weights, step, strict=True)]
        if max(map(abs, step)) < 1e-6:
            break
    return tuple(weights)


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss with pivots; the matrix is small and positive."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    n = len(rows)
    for i in range(n):
        best = max(range(i, n), key=lambda k: abs(rows[k][i]))
        rows[i], rows[best] = rows[best], rows[i]
        for k in range(n):
            if k != i and rows[k][i]:
                share = rows[k][i] / rows[i][i]
                rows[k] = [a - share * b for a, b in zip(rows[k], rows[i], strict=True)]
    return [row[n] / row[i] for i, row in enumerate(rows)]


def area_under_curve(samples: Sequence[Sample], weights: tuple[float, ...]) -> float:
    """How often a result that was needed gets a higher chance than one that was not."""
    ranked = sorted(samples, key=lambda s: compute_probability(weights, s.features))
    needed = [rank for rank, sample in enumerate(ranked, 1) if sample.needed]
    others = len(ranked) - len(needed)
    if not needed or not others:
        return math.nan
    return (sum(needed) - len(needed) * (len(needed) + 1) / 2) / (len(needed) * others)


def toml(weights: Sequence[float], sessions: int, samples: int) -> str:
    lines = [
        "# How likely a cleared tool result is needed again: the coefficients of a logistic model.",
        f"# Fitted by benchmarks/policy/fit.py on {sessions} sessions, {samples:,} samples.",
        "[coefficients]",
        *(f"{name} = {weight:.3f}" for name, weight in zip(FEATURES, weights, strict=True)),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--sessions", type=Path, nargs="+", default=[SESSIONS], help="folders of session files"
    )
    parser.add_argument("--out", type=Path, default=COEFFICIENTS, help="the file to write")
    parser.add_argument("--all", action="store_true", help="fit on all of them, check on none")
    options = parser.parse_args()
    files = [path for folder in options.sessions for path in session_files(folder)]
    if len(files) < 2:
        named = ", ".join(map(str, options.sessions))
        print(f"{named}: no session files (*.jsonl, *.jsonl.gz) there", file=sys.stderr)
        return 1
    tuning, others = (files, []) if options.all else halves(files)
    read = [Samples(path) for path in tuning]
    samples = [sample for one in read for sample in one.samples]
    weights = fitted(samples)
    remaining = [count for one in read for count in one.remaining]
    print(f"{len(tuning)} sessions, {len(samples):,} samples, ", end="")
    print(
        f"{mean(s.needed for s in samples):.1%} needed again ({mean(s.robust for s in samples):.1%} robust)"
    )
    print(f"requests still to come, to the end or a compaction: mean {mean(remaining):.0f}, ", end="")
    print(f"median {median(remaining):.0f}")
    print(f"area under the curve: {area_under_curve(samples, weights):.3f} where fitted", end="")
    held = [sample for path in others for sample in Samples(path).samples]
    print(f", {area_under_curve(held, weights):.3f} on {len(others)} others" if held else "")
    options.out.write_text(toml(weights, len(tuning), len(samples)), encoding="utf-8")
    print(f"written: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
