"""Compares estimated with reported tokens on recorded sessions, before and after calibration.

python -m benchmarks.estimator.run [--quick] [--json]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.estimator.pairs import KINDS, Measure, Pair, pairs_of
from benchmarks.report import Table, arguments, show
from sevenfold.core.tokens import Calibration

DATA: Final = (Path(__file__).parents[2] / "../shared/data/sessions").resolve()
MEASURES: Final[tuple[Measure, ...]] = ("between requests", "since the reply")
Estimates: TypeAlias = list[tuple[Pair, int]]
"""Pairs with what was estimated for each, before its own usage was known."""


def figures(quick: bool, data: Path = DATA) -> dict[str, Any]:
    """All figures; `quick` reads every fourth session."""
    files = sorted(data.glob("*.jsonl*"))[:: 4 if quick else 1]
    if not files:
        return {"skipped": f"no recorded sessions in {data}"}
    pairs = [pair for path in files for pair in pairs_of(path)]
    measures = {m: _measured([p for p in pairs if p.measure == m]) for m in MEASURES}
    return {"sessions": len(files), "measures": measures}


def _measured(found: Sequence[Pair]) -> dict[str, Any]:
    pairs = [pair for pair in found if pair.reported > 0]
    ways: dict[str, Estimates] = {
        "raw": [(pair, pair.size.tokens()) for pair in pairs],
        "calibrated": from_nothing(pairs),
        "raw_held_out": [(p, p.size.tokens()) for p in _halves(pairs)[1]],
        "calibrated_held_out": from_other_sessions(pairs),
    }
    return {
        "requests": len(pairs),
        "left_out": len(found) - len(pairs),
        "all": {way: errors(estimates) for way, estimates in ways.items()},
        "kinds": {
            kind: {
                "requests": sum(p.kind == kind for p in pairs),
                **{way: errors([e for e in ways[way] if e[0].kind == kind]) for way in ways},
            }
            for kind in KINDS
        },
    }


def from_nothing(pairs: Iterable[Pair]) -> Estimates:
    """Each session on its own: an estimate knows only what that session has reported so far."""
    known: dict[tuple[str, str], Calibration] = {}
    out: Estimates = []
    for pair in pairs:
        key = pair.session, pair.model
        calibration = known.get(key, Calibration())
        out.append((pair, calibration.tokens(pair.size)))
        known[key] = calibration.learn(pair.size, pair.reported)
    return out


def from_other_sessions(pairs: Sequence[Pair]) -> Estimates:
    """Learned per model on every other session, then only applied to the rest."""
    seen, unseen = _halves(pairs)
    known: dict[str, Calibration] = {}
    for pair in seen:
        calibration = known.get(pair.model, Calibration())
        known[pair.model] = calibration.learn(pair.size, pair.reported)
    return [(p, known.get(p.model, Calibration()).tokens(p.size)) for p in unseen]


def _halves(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    learnt_from = set(sorted({p.session for p in pairs})[::2])
    seen = [p for p in pairs if p.session in learnt_from]
    return seen, [p for p in pairs if p.session not in learnt_from]


def errors(estimates: Estimates) -> dict[str, float] | None:
    """Median and 90th percentile of the absolute error, in percent; None of nothing."""
    if not estimates:
        return None
    off = [abs(tokens - pair.reported) for pair, tokens in estimates]
    new = [100 * o / pair.reported for o, (pair, _) in zip(off, estimates, strict=True)]
    whole = [100 * o / pair.prompt for o, (pair, _) in zip(off, estimates, strict=True)]
    total = sum(tokens for _, tokens in estimates) / sum(pair.reported for pair, _ in estimates)
    return {
        "requests": len(estimates),
        "new_median": _quantile(new, 0.5),
        "new_p90": _quantile(new, 0.9),
        "whole_median": _quantile(whole, 0.5),
        "whole_p90": _quantile(whole, 0.9),
        "total_ratio": round(total, 3),
    }


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[round(share * (len(ordered) - 1))], 2)


WAYS: Final = {
    "raw": "raw rule",
    "calibrated": "calibrated, each session from nothing",
    "raw_held_out": "raw rule, held-out half",
    "calibrated_held_out": "calibrated on the other half",
}
COLUMNS: Final = ("requests", "new median %", "new p90 %", "whole median %", "whole p90 %", "total")


def run(quick: bool, data: Path = DATA) -> list[Table]:
    found = figures(quick, data)
    if "skipped" in found:
        table = Table("estimated against reported tokens", "estimate")
        table.notes.append(f"skipped: {found['skipped']}")
        return [table]
    return [_table(measure, found) for measure in MEASURES]


def _table(measure: Measure, found: dict[str, Any]) -> Table:
    these = found["measures"][measure]
    table = Table(
        f"estimated against reported tokens {measure}, {found['sessions']} sessions", "estimate", *COLUMNS
    )
    for way, name in WAYS.items():
        table.add(name, *_cells(these["all"][way]))
    for kind, of_kind in these["kinds"].items():
        for way in ("raw", "calibrated"):
            table.add(f"{kind}: {WAYS[way]}", *_cells(of_kind[way]))
    table.notes.append("absolute error of the new tokens and of the whole context; total: ratio of sums")
    if not these["kinds"]["cjk"]["requests"]:
        table.notes.append("these sessions hold no request that is mostly CJK: nothing is shown for it")
    if these["left_out"]:
        table.notes.append(f"{these['left_out']} requests no larger than the one before are left out")
    return table


def _cells(e: dict[str, float] | None) -> tuple[object, ...]:
    if e is None:
        return 0, "-", "-", "-", "-", "-"
    names = ("new_median", "new_p90", "whole_median", "whole_p90", "total_ratio")
    return int(e["requests"]), *(e[name] for name in names)


if __name__ == "__main__":
    options = arguments(__doc__)
    show(run(options.quick), as_json=options.json)
