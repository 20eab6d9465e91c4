"""What the agent needed after each real compaction, and which share of it a replacement still has.

python -m benchmarks.fidelity.run [--quick] [--json] [--model NAME [--parts N] [--seconds S]]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from multiprocessing import Pool
from pathlib import Path
from statistics import fmean
from typing import Final

import msgspec

from benchmarks.fidelity.cases import SESSIONS, cases
from benchmarks.fidelity.contenders import CONTENDERS, budget, within
from benchmarks.fidelity.lean import list_lean_files, make_lean_tables, measure_lean
from benchmarks.fidelity.local import CASES, SECONDS, make_model_table, measure_model
from benchmarks.fidelity.needs import CALLS, KINDS, needs_of
from benchmarks.report import Table, show
from sevenfold.core.tokens import TEXT_RATE, count_bytes
from sevenfold.layers.shared.fidelity import WEIGHTS, ItemFinder, measure_fidelity

QUICK: Final = 8
"""Files that a quick run looks at."""
SAID: Final = "all user messages"
EVERYTHING: Final = "mean of the kinds"
NOTES: Final = (
    "each figure is the mean over the compactions that have such a need; all contenders had the same "
    "input, and no more bytes than the real summary",
    "names used: the agent had them from the real summary, or guessed them, so that this row favours "
    "the real summary, as paths do; read again: a tool had to show them once more",
    "the lists of names hold nearly every name there was, and nothing else",
    "this counts whether words are there, not whether an agent that reads them would understand them "
    "and act on them: what was concluded, decided or planned leaves no such trace, and a summary that "
    "explains is worth more than these figures say",
    "the path is fixed: an agent that had known more would have made other calls; names of the "
    "language's own library count although any model knows them; one code base, one vendor",
)


class Result(msgspec.Struct, frozen=True):
    """One contender on one compaction: what was there of each kind, and of how many."""

    case: str
    contender: str
    shares: dict[str, tuple[float, int]]
    score: float
    kinds: dict[str, float]
    tokens: int
    calls: int

    @property
    def overall(self) -> float:
        there = [got / of for kind, (got, of) in self.shares.items() if of and kind != SAID]
        return fmean(there) if there else 1.0


def measured(path: Path) -> list[Result]:
    out: list[Result] = []
    for case in cases(path):
        needs = needs_of(case.removed, case.after)
        for contender in CONTENDERS:
            text = within(contender.text(case), budget(case))
            there = ItemFinder([text])
            looks = [*KINDS, (SAID, lambda there, needs: there.quoted(needs.said))]
            found = {kind: look(there, needs) for kind, look in looks}
            shares = {kind: (sum(parts.values()), len(parts)) for kind, parts in found.items()}
            got = measure_fidelity(case.removed, [text])
            out.append(
                Result(
                    case.name,
                    contender.name,
                    shares,
                    got.score,
                    {kind: share.part for kind, share in got.kinds.items() if share.of},
                    int(count_bytes(text) * TEXT_RATE),
                    needs.calls,
                )
            )
    return out


def run(quick: bool = False) -> list[Table]:
    files = sorted([*SESSIONS.glob("*.jsonl.gz"), *SESSIONS.glob("*.jsonl")])
    if not files:
        empty = Table("What is needed after a compaction", "kind")
        empty.notes.append("skipped: the shared sessions are not beside this checkout")
        return [empty]
    with Pool() as pool:
        parts = pool.map(measured, files[:QUICK] if quick else files, chunksize=1)
        all_files = list_lean_files()
        lean = pool.map(measure_lean, all_files[:QUICK] if quick else all_files, chunksize=1)
    results = [result for part in parts for result in part]
    tuned, other = ([r for part in parts[n::2] for r in part] for n in (0, 1))
    halves = [
        _needed(other, "in the half that was kept back from tuning"),
        _needed(tuned, "in the half that our notes and summary were tuned on"),
    ]
    halves[0].notes += NOTES
    lean_tables = make_lean_tables([result for part in lean for result in part])
    return [*halves, _scores(results), _compactions(results), *lean_tables]


def _needed(results: Sequence[Result], which: str) -> Table:
    first = [r for r in results if r.contender == CONTENDERS[0].name]
    table = Table(
        f"Share that is there of what was needed in the next {CALLS} calls, %, {len(first)} compactions "
        f"{which}",
        "kind",
        "needed",
        *(contender.name for contender in CONTENDERS),
    )
    for kind in (*(name for name, _ in KINDS), SAID):
        needed = sum(r.shares[kind][1] for r in first)
        table.add(kind, needed, *(_percent(_parts(results, c.name, kind)) for c in CONTENDERS))
    overall = [[r.overall for r in results if r.contender == c.name] for c in CONTENDERS]
    table.add(EVERYTHING, "", *map(_percent, overall))
    table.add("better than the real summary", "", *(_wins(overall[0], ours) for ours in overall))
    tokens = [[r.tokens for r in results if r.contender == c.name] for c in CONTENDERS]
    table.add("tokens", "", *(round(fmean(some)) for some in tokens))
    return table


def _scores(results: Sequence[Result]) -> Table:
    table = Table(
        "Fidelity as the library measures it, %, mean over the same compactions",
        "kind",
        "weight",
        *(contender.name for contender in CONTENDERS),
    )
    for kind, weight in WEIGHTS.items():
        some = [
            [r.kinds[kind] for r in results if r.contender == c.name and kind in r.kinds]
            for c in CONTENDERS
        ]
        table.add(kind, weight, *map(_percent, some))
    scores = [[r.score for r in results if r.contender == c.name] for c in CONTENDERS]
    table.add("score", "", *map(_percent, scores))
    table.notes.append(
        "of everything that was taken away, whether it was needed later or not; without tail and "
        "restored files, which would add to every contender alike"
    )
    return table


def _compactions(results: Sequence[Result]) -> Table:
    table = Table(
        "Mean of the kinds, by compaction, %",
        "compaction",
        "tokens",
        "calls",
        *(contender.name for contender in CONTENDERS),
    )
    for case in dict.fromkeys(r.case for r in results):
        ours = [r for r in results if r.case == case]
        table.add(case, ours[0].tokens, ours[0].calls, *(f"{100 * r.overall:.0f}" for r in ours))
    return table


def _parts(results: Iterable[Result], contender: str, kind: str) -> list[float]:
    shares = (r.shares[kind] for r in results if r.contender == contender)
    return [got / of for got, of in shares if of]


def _percent(parts: Sequence[float]) -> str:
    return f"{100 * fmean(parts):.1f}" if parts else "-"


def _wins(real: Sequence[float], ours: Sequence[float]) -> str:
    better = sum(a > b + 1e-9 for a, b in zip(ours, real, strict=True))
    return "" if ours is real else f"{better} of {len(real)}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer sessions")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--model", help="only ask this model for summaries, of the whole and of a record")
    parser.add_argument("--parts", type=int, default=CASES, help="parts of sessions that it is asked about")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the longest that one may take")
    return parser.parse_args()


if __name__ == "__main__":
    options = arguments()
    if options.model:
        asked = measure_model(options.model, list_lean_files(), options.parts, options.seconds)
        tables = [make_model_table(options.model, asked)] if asked else []
    else:
        tables = run(options.quick)
    show(tables, as_json=options.json)
    sys.exit(0)
