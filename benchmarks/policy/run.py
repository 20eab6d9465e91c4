"""What the layers would have saved on real recorded sessions, what they cost, and what would be missed.

python -m benchmarks.policy.run [--quick] [--json]

A whole run also draws the frontier, cost against what is missed: `benchmarks/policy/frontier.svg` (requests
that only read back) and `regret.svg` (results needed again beyond doubt).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from random import Random
from statistics import median
from time import process_time
from typing import Final

from msgspec.structs import replace

from benchmarks.policy import policies
from benchmarks.policy.joining import joined
from benchmarks.policy.plot import Point, Series, svg
from benchmarks.policy.samples import halves, session_files
from benchmarks.report import Table, arguments, show
from sevenfold.cache.prices import Price, Prices
from sevenfold.core.transcript import Entry, Reply
from sevenfold.recordings.claude_code import read_session
from sevenfold.recordings.recorded_session import convert_recording
from sevenfold.replay.driver import drive_session
from sevenfold.replay.outcome import Kind, ReplayOutcome, ReplayRegret, TimeSpent
from sevenfold.replay.policies import Policy

MODEL: Final = "claude-opus-4-5"
HERE: Final = Path(__file__).parent
PROCESSES: Final = 2
DRAWS: Final = 2_000
GOAL_EXTRA, GOAL_ROBUST, GOAL_COST, GOAL_LARGE = 4.0, 4.0, 80.0, 50.0
BESIDE: Final[tuple[Kind, ...]] = ("read back", "keep warm", "notes", "summary", "extraction")
COLUMNS: Final = (
    "policy", "% of paid", "context K", "read back %", "warm %", "notes %", "summary %", "extraction %",
    "breaks/100", "compactions", "fidelity", "removed", "needed %", "robust %", "by tokens %", "extra/100",
)  # fmt: skip
NOTES: Final = (
    "paid: what the recorded usage cost at the same prices; simulated: the provider's cache rules over the "
    "recorded words and times; a summary costs its request and 4,500 tokens of output, notes theirs",
    "needed again: of what left the view, by trace (an edited line, a rare word); robust: a line or two "
    "words; every need is charged as an extra request that reads the whole result back",
    "fidelity: the mean over a policy's own compactions, of summaries made by rule; the same measure on 30 "
    "recorded summaries of a model gives 0.615, and 0.826 with the user's words put in verbatim",
    "extraction: the layer's own rules say when; one request on the prefix and 150 tokens of answer, and "
    "one more with 600 where something lasting was said; recall, dreams, agents' status are in no row",
    "the description of Claude Code runs with our notes and our layer 1; the recorded tool is the 100 %",
    "the path is fixed: what the agent would have done otherwise, and needs without a trace, are not seen",
)


@cache
def prices() -> Prices:
    return Prices.load()


def price_of(entries: Sequence[Entry]) -> Price:
    """Of the model that was used; the multiples of all of them are the same."""
    models = (e.what.model for e in entries if isinstance(e.what, Reply))
    found = next((p for model in models if (p := prices().of(model))), prices().of(MODEL))
    if found is None:
        raise SystemExit(f"the price table has no {MODEL}")
    return found


@dataclass(frozen=True)
class Result:
    """One session under one policy, in base-price input tokens."""

    path: Path
    policy: str
    paid: float
    cost: float
    beside: dict[Kind, float]
    outcome: ReplayOutcome


def replayed(job: tuple[Path, Sequence[Policy]]) -> list[Result]:
    path, chosen = job
    began = process_time()
    entries = convert_recording(read_session(path)).entries
    parsing = process_time() - began
    return [_result(path, policy, entries, parsing=parsing) for policy in chosen]


def _result(
    path: Path, policy: Policy, entries: Sequence[Entry], window: int | None = None, parsing: float = 0.0
) -> Result:
    price = price_of(entries)
    outcome = drive_session(entries, policy, price.model, price, window=window or 200_000, prices=prices())
    beside = {kind: _of_kind(outcome, kind, price) for kind in BESIDE}
    paid, cost = price.units(outcome.paid_usage), price.units(outcome.charged_usage)
    slim = replace(outcome, spent=replace(outcome.spent, parsing=parsing))
    return Result(path, policy.name, paid, cost, beside, slim)


def _of_kind(outcome: ReplayOutcome, kind: Kind, price: Price) -> float:
    return sum(price.units(row.usage) for row in outcome.rows if row.kind == kind)


def run(quick: bool = False) -> list[Table]:
    files = session_files()
    if not files:
        empty = Table("The layers on recorded sessions", "policy")
        empty.notes.append("skipped: the shared sessions are not beside this checkout")
        return [empty]
    tuned, held = halves(files[:8] if quick else files)
    compared = [*policies.OTHERS, *policies.LEVERS]
    chosen = [policies.AS_RECORDED, policies.DEFAULT] if quick else compared
    frontier = [] if quick else list(policies.FRONTIER)
    ablation = [] if quick else [policies.DEFAULT, *policies.ABLATION]
    with Pool(PROCESSES) as pool:
        off = list(policies.ABLATION) if ablation else []
        jobs = [(path, [*chosen, *off, *frontier]) for path in held]
        jobs += [(path, [*chosen, *off]) for path in tuned]
        done = [result for part in pool.map(replayed, jobs, chunksize=1) for result in part]
    tables = [
        _compared(f"{len(part)} sessions {name}, windows of 200,000", done, part, chosen)
        for name, part in (("held out", held), ("tuned on", tuned))
    ]
    tables[0].notes += NOTES
    if not quick:
        tables += [_compared("Each layer off, all sessions", done, files, ablation)]
        tables += [_frontier(done, held, "held out"), _spread(done, files)]
        tables += [_large(held), _sessions(done, held)]
        _draw(done, held)
    return [*tables, _accounts(done), _throughput(done)]


def _compared(title: str, done: Sequence[Result], part: Sequence[Path], chosen: Sequence[Policy]) -> Table:
    table = Table(title, *COLUMNS)
    for policy in chosen:
        table.add(policy.name, *_figures(_of(done, policy.name, part)))
    return table


def _of(done: Sequence[Result], policy: str, part: Sequence[Path]) -> list[Result]:
    return [result for result in done if result.policy == policy and result.path in part]


def _share(results: Sequence[Result], paid: float | None = None) -> float:
    whole = paid if paid is not None else sum(r.paid for r in results)
    return 100 * sum(r.cost for r in results) / (whole or 1.0)


def _extra(results: Sequence[Result]) -> float:
    turns = sum(r.outcome.turns for r in results)
    return 100 * sum(r.outcome.extra_requests for r in results) / (turns or 1)


def _regret(results: Sequence[Result]) -> ReplayRegret:
    return sum((r.outcome.regret for r in results), ReplayRegret())


def _figures(results: Sequence[Result], paid: float | None = None) -> tuple[str, ...]:
    whole = paid if paid is not None else sum(r.paid for r in results)
    asked = sum(r.outcome.turns + r.outcome.extra_requests for r in results)
    made = [one for r in results for one in r.outcome.compactions]
    known = [one.fidelity for one in made if one.fidelity is not None]
    missed = _regret(results)
    breaks = 100 * sum(len(r.outcome.breaks) for r in results) / (asked or 1)
    return (
        f"{_share(results, whole):.1f}",
        f"{sum(r.outcome.context for r in results) / (asked or 1) / 1000:.0f}",
        *(f"{100 * sum(r.beside[k] for r in results) / (whole or 1):.1f}" for k in BESIDE),
        f"{breaks:.1f}",
        str(len(made)),
        f"{sum(known) / len(known):.2f}" if known else "-",
        str(missed.removed),
        f"{100 * missed.share:.1f}",
        f"{100 * missed.robust_share:.1f}",
        f"{100 * missed.token_share:.1f}",
        f"{_extra(results):.1f}",
    )


# --- the frontier -----------------------------------------------------------------------------------------


def _frontier(done: Sequence[Result], part: Sequence[Path], name: str) -> Table:
    table = Table(
        f"The frontier, {name}: how much better than its price a summary has to be",
        "margin", "% of paid", "extra/100", "robust %", "compactions",
    )  # fmt: skip
    for policy in policies.FRONTIER:
        results = _of(done, policy.name, part)
        table.add(
            policy.name,
            f"{_share(results):.1f}",
            f"{_extra(results):.1f}",
            f"{100 * _regret(results).robust_share:.1f}",
            sum(len(r.outcome.compactions) for r in results),
        )
    table.notes.append(f"the goal: at most {GOAL_COST:g} %, {GOAL_EXTRA:g} extra, {GOAL_ROBUST:g} %")
    return table


def _spread(done: Sequence[Result], files: Sequence[Path]) -> Table:
    """How much of a figure is chance: other sessions of the same kind would give others."""
    table = Table(
        f"How far the figures of {len(files)} sessions can be trusted, default policy",
        "drawn anew from", "5 % are below", "median", "95 % are below", "extra/100, 95 % are below",
    )  # fmt: skip
    results, draw = _of(done, policies.DEFAULT.name, files), Random(8)
    drawn = [draw.choices(results, k=len(results)) for _ in range(DRAWS)]
    costs = sorted(_share(one) for one in drawn)
    extra = sorted(_extra(one) for one in drawn)
    at = [DRAWS // 20, DRAWS // 2, DRAWS - DRAWS // 20]
    table.add("all sessions", *(f"{costs[n]:.1f}" for n in at), f"{extra[at[-1]]:.1f}")
    table.notes.append(
        f"{DRAWS:,} draws with replacement; all sessions are of one code base, so it says nothing of others"
    )
    return table


def _draw(done: Sequence[Result], held: Sequence[Path]) -> None:
    measures: tuple[tuple[str, str, float, Callable[[list[Result]], float]], ...] = (
        ("frontier.svg", "requests that only read back, of 100", GOAL_EXTRA, _extra),
        (
            "regret.svg",
            "of what left the view, needed again beyond doubt, %",
            GOAL_ROBUST,
            lambda results: 100 * _regret(results).robust_share,
        ),
    )
    for file, across, goal, measure in measures:

        def points(
            chosen: Sequence[Policy],
            name: Callable[[Policy], str],
            measure: Callable[[list[Result]], float] = measure,
        ) -> list[Point]:
            found = [(policy, _of(done, policy.name, held)) for policy in chosen]
            return [Point(measure(r), _share(r), name(policy)) for policy, r in found]

        half = len(policies.MARGINS)
        series = [
            Series("default, by margin", points(policies.FRONTIER[:half], _margin)),
            Series("with pre_cold on", points(policies.FRONTIER[half:], _margin)),
            Series("others", points([*policies.OTHERS], lambda policy: policy.name), line=False),
        ]
        title = f"Cost against regret, {len(held)} held-out sessions, simulated"
        text = svg(title, across, "% of what was paid", series, (goal, GOAL_COST))
        (HERE / file).write_text(text, encoding="utf-8")


def _margin(policy: Policy) -> str:
    return f"{policy.compaction.margin:g}"


# --- a large window ---------------------------------------------------------------------------------------


def _large(held: Sequence[Path]) -> Table:
    """Sessions put behind each other: the recordings have none that was this long."""
    long = list(joined([convert_recording(read_session(path)).entries for path in held]))
    jobs = [(n, entries, policy) for n, entries in enumerate(long) for policy in policies.LARGE]
    with Pool(PROCESSES) as pool:
        done = pool.starmap(_in_a_million, jobs, chunksize=1)
    table = Table(f"{len(long)} joined sessions of held-out ones, windows of 1,000,000", *COLUMNS)
    whole = sum(r.cost for r in done if r.policy == policies.LARGE[0].name)
    for policy in policies.LARGE:
        table.add(policy.name, *_figures([r for r in done if r.policy == policy.name], whole))
    table.notes += [
        "no recording has a prompt over 200,000 tokens: several were joined, without their compactions",
        "% of paid: of what append-only would cost, as nothing was paid for such a session; the goal is "
        f"{GOAL_LARGE:g} %",
    ]
    return table


def _in_a_million(number: int, entries: Sequence[Entry], policy: Policy) -> Result:
    return _result(Path(f"joined-{number}"), policy, entries, 1_000_000)


# --- the rest ---------------------------------------------------------------------------------------------


def _sessions(done: Sequence[Result], held: Sequence[Path]) -> Table:
    table = Table(
        "Held-out sessions, default policy",
        "session", "requests", "paid, K tokens", "append-only %", "sevenfold %", "extra", "compactions",
    )  # fmt: skip
    before = {r.path: r for r in _of(done, policies.APPEND_ONLY.name, held)}
    for result in _of(done, policies.DEFAULT.name, held):
        append = before[result.path]
        table.add(
            result.path.name[:8],
            result.outcome.turns,
            f"{result.paid / 1000:,.0f}",
            f"{100 * append.cost / result.paid:.1f}",
            f"{100 * result.cost / result.paid:.1f}",
            result.outcome.extra_requests,
            len(result.outcome.compactions),
        )
    return table


def _accounts(done: Sequence[Result]) -> Table:
    table = Table(
        "Our count of each request against the recorded one, append-only",
        "up to the first compaction", "requests", "median %", "worst session's median %",
    )  # fmt: skip
    found = [r.outcome for r in done if r.policy == policies.AS_RECORDED.name]
    clean = [outcome.errors for outcome in found]
    ours = [_all_errors(outcome) for outcome in found]
    for name, errors in (("where the recording left nothing out itself", clean), ("all", ours)):
        every = [error for one in errors for error in one]
        worst = max((median(one) for one in errors if len(one) > 20), default=0.0)
        table.add(name, len(every), f"{100 * median(every):.2f}", f"{100 * worst:.1f}")
    table.notes.append(
        "some recordings cleared old results by themselves; append-only does not, and sends them on"
    )
    return table


def _all_errors(outcome: ReplayOutcome) -> list[float]:
    end = outcome.compactions[0].request if outcome.compactions else len(outcome.rows)
    rows = [row for row in outcome.rows[:end] if row.recorded.prompt]
    return [abs(row.context - row.recorded.prompt) / row.recorded.prompt for row in rows]


def _throughput(done: Sequence[Result]) -> Table:
    table = Table(
        "Requests a second on one core",
        "policy", "requests", "parsing", "tracing needs", "layers", "writing by rule", "simulator",
        "all together",
    )  # fmt: skip
    for policy in (policies.AS_RECORDED, policies.TWO, policies.DEFAULT):
        results = [r for r in done if r.policy == policy.name]
        spent = sum((r.outcome.spent for r in results), TimeSpent())
        turns = sum(r.outcome.turns for r in results)
        if not turns:
            continue
        parts = (spent.parsing, spent.tracing, spent.layers, spent.asking, spent.simulator)
        rates = (f"{turns / part:,.0f}" if part else "-" for part in (*parts, spent.total))
        table.add(policy.name, turns, *rates)
    table.notes.append("each column alone; layers: with their compactions, but for the text they ask for")
    return table


if __name__ == "__main__":
    options = arguments(__doc__)
    show(run(options.quick), as_json=options.json)
    sys.exit(0)
