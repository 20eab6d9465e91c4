"""The policies of the product on recorded sessions of several repositories: cost, and what is missed.

python -m benchmarks.policy.run [--quick] [--json]

A whole run also draws `benchmarks/policy/frontier.svg`: cost against what was needed again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Final

from benchmarks.policy import policies
from benchmarks.policy.figures import (
    MOST_REGRET,
    MOST_ROBUST,
    MOST_SUMMARIES,
    Compared,
    HeldOut,
    RepositoryMeans,
    compare,
    hold_out,
    lengthen_summaries,
)
from benchmarks.policy.plot import Point, Series, svg
from benchmarks.policy.replays import DATA, SessionReplay, find_repositories, replay_repositories
from benchmarks.report import Table, arguments, show
from sevenfold.replay.outcome import TimeSpent
from sevenfold.replay.stand_ins import SUMMARY_OUTPUT

PLOT: Final = Path(__file__).with_name("frontier.svg")
GOAL_REGRET, GOAL_COST = 3.0, 82.0
BEGINNINGS: Final = (8, 15)
"""Requests after which recordings are cut, to stand in for short sessions."""
LINE_TO_BEAT: Final = Point(2.2, 78.9, "policy A, as published")
COLUMNS: Final = (
    "sessions", "% of append-only", "% of paid", "extra/100", "robust/100", "regret >= 150, %",
    "summaries/100", "> 2 % dearer, %", "under 20 requests, %", "recall and dreams, %",
)  # fmt: skip
NOTES: Final = (
    "simulated: the provider's cache rules over the recorded words and times; breaks that the recording "
    "had are kept, and two hours of silence after the last reply are charged",
    "extra: requests that only read back what was gone; robust: those that were needed beyond doubt (an "
    "edited line or two rare words); all of them are charged",
    "regret >= 150: of tool results of at least 150 tokens that left the view, those needed beyond doubt",
    "summaries: compactions for which a model was asked; notes that stand in for the older part are none",
    "under 20 requests: cost in % of append-only of the sessions that short, and how many there are",
    "recall and dreams, in % of append-only, are assumed (alike in every row) and stand beside the cost",
    "costs are added up in base-price tokens; a recording that is in another file as a whole is left out",
    "all four repositories were looked at while the policies were tuned: the table 'Each repository held "
    "out' is the figure to go by",
)


def run(quick: bool = False, data: Path = DATA) -> list[Table]:
    repositories = find_repositories(data)
    if not repositories:
        empty = Table("Policies on recorded sessions", "policy")
        empty.notes.append("skipped: the shared sessions are not beside this checkout")
        return [empty]
    done = replay_repositories(repositories, policies.ALL, quick=quick)
    usual, long = [one for one in done if not one.long], [one for one in done if one.long]
    held = hold_out(usual)
    tables = [_compare_policies("All repositories", usual, NOTES)]
    tables.append(_average_repositories(usual))
    tables += [_compare_policies("Beyond 200,000 tokens", long, _describe_long(long))] if long else []
    for name in repositories:
        own = [one for one in usual if one.repository == name]
        tables += [_compare_policies(name, own, ())] if own else []
    tables += [_tabulate_held_out(held, long), _tabulate_changes(usual, long), _tabulate_sizes(usual, long)]
    if not quick:
        PLOT.write_text(_draw_frontier(usual), encoding="utf-8")
    return [*tables, _tabulate_beginnings(repositories, quick), _measure_throughput(done)]


def _compare_policies(name: str, done: Sequence[SessionReplay], notes: Sequence[str]) -> Table:
    table = Table(f"{name}: the policies as they run", "policy", *COLUMNS)
    rows = [(policy.name, compare(done, policy.name)) for policy in policies.SHOWN]
    for policy, found in sorted(rows, key=lambda row: row[1].of_base):
        table.add(policy, *_format_figures(found))
    table.notes += notes
    return table


def _average_repositories(usual: Sequence[SessionReplay]) -> Table:
    table = Table(
        "Each repository counts alike: the policies as they run",
        "policy", "% of append-only", "extra/100", "robust/100", "regret >= 150, %", "summaries/100",
        "> 2 % dearer, %", "most regret of a repository, %",
    )  # fmt: skip
    rows = [(policy.name, RepositoryMeans.of(usual, policy.name)) for policy in policies.SHOWN]
    for policy, found in sorted(rows, key=lambda row: row[1].of_base):
        table.add(
            policy,
            f"{found.of_base:.1f}",
            *_format_losses(found),
            f"{found.dearer:.1f}",
            f"{found.most_regret:.2f}",
        )
    table.notes.append(
        "means of the repositories: in the table above, one of them has more than half of the cost and of "
        "the summaries"
    )
    return table


def _describe_long(long: Sequence[SessionReplay]) -> list[str]:
    names = ", ".join(sorted({one.repository for one in long}))
    return [f"recordings with a prompt of more than 200,000 tokens; all of {names}"]


def _format_figures(found: Compared) -> tuple[str, ...]:
    short = found.short
    return (
        str(len(found.pairs)),
        f"{found.of_base:.1f}",
        f"{found.of_paid:.1f}",
        *_format_losses(found),
        f"{found.dearer:.1f}",
        f"{short.of_base:.1f} ({len(short.pairs)})" if short.pairs else "-",
        f"{found.memory:.1f}",
    )


def _format_losses(found: Compared | RepositoryMeans) -> tuple[str, ...]:
    return (f"{found.extra:.2f}", f"{found.robust:.2f}", f"{found.regret:.2f}", f"{found.summaries:.2f}")


def _tabulate_held_out(held: Sequence[HeldOut], long: Sequence[SessionReplay]) -> Table:
    """Sizes that were chosen on the other repositories, reported on this one."""
    table = Table(
        "Each repository held out: sizes chosen on the other three",
        "held out", "sizes", "sessions", "% of append-only", "90 % of draws", "extra/100", "robust/100",
        "regret >= 150, %", "summaries/100", "> 2 % dearer, %", "default, % of append-only",
    )  # fmt: skip

    def add(name: str, sizes: str, found: Compared, default: Compared) -> None:
        low, high = found.draw_interval()
        table.add(
            name,
            sizes,
            len(found.pairs),
            f"{found.of_base:.1f}",
            f"{low:.1f}-{high:.1f}",
            *_format_losses(found),
            f"{found.dearer:.1f}",
            f"{default.of_base:.1f}",
        )

    for one in held:
        sizes = one.chosen.name if one.kept_limits else f"{one.chosen.name} (none kept the limits)"
        add(one.repository, sizes, one.compared, one.default)
    pooled = Compared([pair for one in held for pair in one.compared.pairs])
    usual = Compared([pair for one in held for pair in one.default.pairs])
    add("all, each under the sizes chosen without it", "", pooled, usual)
    for one in held:
        if own := [replay for replay in long if replay.repository == one.repository]:
            found = compare(own, policies.find_replayed_name(one.chosen))
            add(
                f"{one.repository}, beyond 200,000 tokens",
                one.chosen.name,
                found,
                compare(own, policies.DEFAULT.name),
            )
    each = [one.compared.of_base for one in held]
    table.notes += [
        f"from {min(each):.1f} to {max(each):.1f} % of append-only; {mean(each):.1f} % is the mean of the "
        f"repositories, {pooled.of_base:.1f} % that of all sessions by cost",
        "sizes: turnTokens/taskTokens/coldTokens in thousands; the cheapest that keep, on the other three, "
        f"at most {MOST_ROBUST:g} robust extra requests and {MOST_SUMMARIES:g} summaries per 100 and "
        f"{MOST_REGRET:g} % regret as means of the repositories; recordings up to 200,000 tokens alone",
        "90 % of draws: sessions drawn anew with replacement; it says nothing of other repositories",
        "only these three numbers are chosen anew: every other one was set with all four in sight",
    ]
    return table


def _tabulate_changes(usual: Sequence[SessionReplay], long: Sequence[SessionReplay]) -> Table:
    table = Table(
        "One change at a time from balanced",
        "change", "% of append-only", "points", "extra/100", "robust/100", "regret >= 150, %",
        "summaries/100", "> 2 % dearer, %", "beyond 200,000: % of append-only", "points there",
    )  # fmt: skip
    rows = list(zip(_list_changes(usual), _list_changes(long), strict=True))
    (_, default), (_, default_long) = rows[0]
    for (name, found), (_, beyond) in sorted(rows, key=lambda row: row[0][1].of_base):
        table.add(
            name,
            f"{found.of_base:.1f}",
            f"{found.of_base - default.of_base:+.1f}",
            *_format_losses(found),
            f"{found.dearer:.1f}",
            f"{beyond.of_base:.1f}" if long else "-",
            f"{beyond.of_base - default_long.of_base:+.1f}" if long else "-",
        )
    table.notes.append(f"a summary is charged with {SUMMARY_OUTPUT:,} tokens of output in all other rows")
    return table


def _list_changes(done: Sequence[SessionReplay]) -> list[tuple[str, Compared]]:
    """The default, and the default with each change."""
    default, base, unbroken = policies.DEFAULT.name, policies.BASE.name, policies.BASE_WITHOUT_BREAKS.name
    return [
        (default, compare(done, default)),
        (policies.LONG_SUMMARIES, compare(lengthen_summaries(done), default)),
        *(
            (change.name, compare(done, change.name, base if change.recorded_breaks else unbroken))
            for change in policies.CHANGES
        ),
    ]


def _tabulate_sizes(usual: Sequence[SessionReplay], long: Sequence[SessionReplay]) -> Table:
    table = Table(
        "The frontier: sizes from which balanced compacts",
        "sizes", "% of append-only", "extra/100", "robust/100", "regret >= 150, %", "summaries/100",
        "beyond 200,000: % of append-only", "regret >= 150 there, %",
    )  # fmt: skip
    for policy in policies.GRID:
        name = policies.find_replayed_name(policy)
        found, beyond = compare(usual, name), compare(long, name)
        table.add(
            f"{policy.name} (the default)" if name == policies.DEFAULT.name else policy.name,
            f"{found.of_base:.1f}",
            *_format_losses(found),
            f"{beyond.of_base:.1f}" if long else "-",
            f"{beyond.regret:.2f}" if long else "-",
        )
    table.notes.append("sizes: turnTokens/taskTokens/coldTokens in thousands; figures on data tuned on")
    return table


def _tabulate_beginnings(repositories: Mapping[str, Sequence[Path]], quick: bool) -> Table:
    table = Table(
        "Short sessions: recordings that end early",
        "policy", "requests", "sessions", "% of append-only", "extra/100", "> 2 % dearer, %",
    )  # fmt: skip
    shown = (policies.BASE, policies.DEFAULT)
    for first in BEGINNINGS:
        done = replay_repositories(repositories, shown, quick=quick, first=first)
        found = compare(done, policies.DEFAULT.name)
        figures = (f"{found.of_base:.1f}", f"{found.extra:.2f}", f"{found.dearer:.1f}")
        table.add(policies.DEFAULT.name, f"the first {first}", len(found.pairs), *figures)
    table.notes.append(
        "stands in for sessions under 20 requests, of which there is one: each recording is cut after so "
        "many requests, and two hours of silence follow as ever"
    )
    return table


def _draw_frontier(done: Sequence[SessionReplay]) -> str:
    def place(replayed: str, name: str) -> Point:
        found = compare(done, replayed)
        return Point(found.regret, found.of_base, name)

    series = [
        Series("balanced, by size", [place(policies.find_replayed_name(p), p.name) for p in policies.GRID]),
        Series("policies by name", [place(p.name, p.name) for p in policies.NAMED], line=False, below=True),
        Series(
            "the line to beat",
            [LINE_TO_BEAT, place(policies.POLICY_A.name, policies.POLICY_A.name)],
            line=False,
        ),
    ]
    sessions = len({(one.repository, one.path) for one in done})
    return svg(
        f"Cost against regret, {sessions} sessions up to 200,000 tokens, simulated, looked at while tuning",
        "of tool results of at least 150 tokens that left the view, needed again beyond doubt, %",
        "% of append-only",
        series,
        (GOAL_REGRET, GOAL_COST),
    )


def _measure_throughput(done: Sequence[SessionReplay]) -> Table:
    table = Table(
        "Requests a second on one core",
        "policy", "requests", "parsing", "tracing needs", "layers", "writing by rule", "simulator",
        "all together",
    )  # fmt: skip
    for policy in policies.NAMED:
        replays = [one for one in done if one.policy == policy.name]
        spent = sum((one.spent for one in replays), TimeSpent())
        turns = sum(one.turns for one in replays)
        parts = (spent.parsing, spent.tracing, spent.layers, spent.asking, spent.simulator)
        rates = (f"{turns / part:,.0f}" if part else "-" for part in (*parts, spent.total))
        table.add(policy.name, turns, *rates)
    table.notes.append("each column alone; layers: with their compactions, but for the text they ask for")
    return table


if __name__ == "__main__":
    options = arguments(__doc__)
    show(run(options.quick), as_json=options.json)
    sys.exit(0)
