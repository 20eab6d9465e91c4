"""Our step beside other packages' on the same 1,000 messages: time, prefixes broken, input cost.

python -m benchmarks.fit.run [--quick] [--json] [--cache DIR]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import anyio

from benchmarks.fit import ours, ours_context
from benchmarks.fit.accounting import Bill, Part
from benchmarks.fit.environments import CACHE, Missing, Peer, import_seconds, measured, peers, python_of
from benchmarks.fit.workload import TURNS, Json, canonical, conversation, tokens_in
from benchmarks.report import Table, show
from sevenfold.settings.layers import MicroSettings

TRIGGER: Final = 100_000
"""Where the others fire, in tokens."""
LENGTHS: Final = (2, 20, 200)
"""Turns: 100, 1,000 and 10,000 messages."""
NEWEST: Final = 100
"""Our own quiet steps are those among so many of the newest requests."""
FEW: Final = 20
LOOPS: Final = 5
MARGINS: Final = (1.0, 2.0, 4.0, 6.0)
NONE: Final = "–"


@dataclass
class Row:
    """One contender, measured."""

    name: str
    version: str = NONE
    imports: float | None = None
    quiet: Sequence[float] = ()
    firing: Sequence[float] = ()
    bill: Bill = field(default_factory=Bill)
    summaries: int = 0
    settings: str = ""


def run(quick: bool, cache: Path = CACHE) -> list[Table]:
    messages = conversation(TURNS)
    repeat = 4 if quick else 8
    found = list(everyone_else(messages, repeat, cache, quick))
    rows, missing = [r for r in found if r.bill.requests], [r for r in found if not r.bill.requests]
    us = ourselves(messages, repeat)
    return [
        steps(us, rows, missing),
        costs([row for row in us if row.bill.requests], [append_only(messages), *rows]),
        flatness(LENGTHS[:2] if quick else LENGTHS),
        margins(messages),
    ]


# --- measuring -----------------------------------------------------------------------------------------


def everyone_else(messages: list[Json], repeat: int, cache: Path, quick: bool) -> Iterator[Row]:
    """The peers, one after another; one that cannot be measured comes back with the reason."""
    known = peers()
    with tempfile.TemporaryDirectory() as folder:
        workload = Path(folder) / "workload.json"
        workload.write_text(json.dumps(messages), encoding="utf-8")
        for peer in known.peers:
            packages = known.environments[peer.environment]["packages"]
            print(f"  {peer.name}", file=sys.stderr)
            try:
                python = python_of(peer.environment, packages, cache, make=not quick)
                said = measured(peer, python, workload, TRIGGER, repeat)
            except Missing as why:
                yield Row(peer.name, settings=str(why))
                continue
            seconds = import_seconds(python, peer.imports, 2 if quick else 5)
            yield _row(peer, said, seconds)


def _row(peer: Peer, said: Any, seconds: float) -> Row:
    done = said["run"]
    parts = [Part(place, tokens) for place, tokens in enumerate(done["sizes"])]
    bill = Bill()
    for places in done["requests"]:
        bill.request([parts[place] for place in places])
    for prompt, output in done["calls"]:
        bill.call(prompt, output)
    number = said["versions"][peer.package]
    quiet, firing = said["quiet"], said["firing"]
    calls = len(done["calls"])
    return Row(peer.name, number, seconds, quiet, firing, bill, calls, peer.settings)


def append_only(messages: list[Json]) -> Row:
    bill, parts = Bill(), list[Part]()
    for message in messages:
        if message["role"] == "assistant":
            bill.request(parts)
        text = canonical(message)
        parts.append(Part(text, tokens_in(text)))
    return Row("append only", bill=bill)


def ourselves(messages: list[Json], repeat: int) -> list[Row]:
    """The whole pass of our layers, inside real turns; and once over everything that could go."""
    print("  sevenfold", file=sys.stderr)
    seen = _through(messages)
    once = [_fired(ours.at_once, messages) for _ in range(repeat)]
    later = [_fired(ours.after_silence, messages) for _ in range(repeat)]
    what = "import sevenfold.turn; from sevenfold.layers.ladder import make_standard_layers"
    seconds = import_seconds(sys.executable, what, min(repeat, 5))
    number = version("sevenfold")
    return [
        Row("sevenfold Turn.fit", number, seconds, seen.quiet(NEWEST), _join(once, "firing"), seen.bill),
        Row("  the same without writing files", firing=_join(once, "deciding")),
        Row("  after a silence, without writing files", firing=_join(later, "deciding")),
        Row("  as it fired in the run", firing=seen.firing),
        Row("  the same without writing files", firing=seen.deciding),
        _through_context(messages, number, min(repeat, 5)),
    ]


def _fired(work: Callable[..., Awaitable[ours.Seen]], messages: list[Json]) -> ours.Seen:
    with tempfile.TemporaryDirectory() as folder:
        return anyio.run(work, messages, Path(folder))


def _join(runs: Sequence[ours.Seen], times: str) -> list[float]:
    return [took for seen in runs for took in getattr(seen, times)]


def _through_context(messages: list[Json], number: str, times: int) -> Row:
    print("  sevenfold Context", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        seen = ours_context.through(messages, Path(folder))
    seconds = import_seconds(sys.executable, "from sevenfold.context.context import Context", times)
    quiet, name = seen.quiet(NEWEST), "sevenfold Context.prepare"
    return Row(name, number, seconds, quiet, seen.firing, seen.bill)


def _through(messages: list[Json], micro: MicroSettings = ours.DEFAULT) -> ours.Seen:
    with tempfile.TemporaryDirectory() as folder:
        return anyio.run(ours.through, messages, Path(folder), micro)


def flatness(turns: Sequence[int]) -> Table:
    table = Table(
        "our own step as the conversation grows, ms of CPU (nothing fires: the newest 100 requests)",
        "messages",
        "Turn.fit, nothing fires",
        "p90",
        "fires",
        "fired",
        "Context.prepare, nothing fires",
    )
    for count in turns:
        messages = conversation(count)
        print(f"  sevenfold, {len(messages):,} messages", file=sys.stderr)
        seen = _through(messages)
        prepared: list[float] = []
        for _ in range(LOOPS):
            with tempfile.TemporaryDirectory() as folder:
                prepared += ours_context.through(messages, Path(folder), FEW).quiet(FEW, cpu=True)
        quiet = seen.quiet(NEWEST, cpu=True)
        row = (_ms(_median(quiet)), _ms(_p90(quiet)), _ms(_median(seen.firing_cpu)), sum(seen.fired))
        table.add(len(messages), *row, _ms(_median(prepared)))
    table.notes += [
        "with ten times the messages ten times the tokens; nothing fills the window",
        "fires: with writing what is cleared to a file, and reading it back; the goal at 1,000 messages is "
        "2 ms, and 0.5 ms for Context.prepare",
        f"Context.prepare: {FEW} requests after one that took in everything before them, in {LOOPS} loops; "
        "it is handed the whole history as dicts each time and compares what is new, the newest and some "
        "of the rest",
    ]
    return table


def margins(messages: list[Json]) -> Table:
    """How our bill and what is kept change with the one setting that says how sure it must be."""
    table = Table(
        "our cost at other margins (micro.margin), thousand base-price tokens",
        "margin",
        "breaks > 5 %",
        "cost",
        "average context K",
        "last request K",
    )
    for margin in MARGINS:
        print(f"  sevenfold, margin {margin}", file=sys.stderr)
        bill = _through(messages, MicroSettings(margin=margin)).bill
        kept = (_thousand(bill.average), _thousand(bill.last))
        table.add(margin, bill.breaks, _thousand(bill.cost), *kept)
    table.notes.append(
        "to compare with a package that keeps as much: the row with its average context; the default "
        f"is {ours.DEFAULT.margin}"
    )
    return table


# --- telling -------------------------------------------------------------------------------------------


def steps(us: Sequence[Row], rows: Sequence[Row], missing: Sequence[Row]) -> Table:
    table = Table(
        "one step on 1,000 messages, about 204K tokens, milliseconds",
        "who",
        "version",
        "import s",
        "nothing fires",
        "p90",
        "fires",
        "× ours, nothing",
        "× ours, fires",
    )
    for row in (*us, *rows):
        imports = NONE if row.imports is None else round(row.imports, 2)
        quiet, firing = _median(row.quiet), _median(row.firing)
        table.add(
            row.name,
            row.version,
            imports,
            _ms(quiet),
            _ms(_p90(row.quiet)),
            _ms(firing),
            _times(quiet, _median(us[0].quiet)),
            _times(firing, _median(us[0].firing)),
        )
    table.notes += [
        f"{row.name}: {row.settings.replace('=T', f'={TRIGGER:,}').replace(' T', f' {TRIGGER:,}')}"
        for row in rows
    ]
    table.notes += [f"{row.name} is not in the table: {row.settings}" for row in missing]
    table.notes += STEP_NOTES
    return table


def costs(us: Sequence[Row], rows: Sequence[Row]) -> Table:
    table = Table(
        f"{us[0].bill.requests} requests, input cost in thousand base-price tokens",
        "who",
        "breaks > 5 %",
        "any change",
        "cost",
        "of it summaries",
        "× ours",
        "average context K",
        "last request K",
    )
    for row in (*us, *rows):
        bill = row.bill
        table.add(
            row.name,
            bill.breaks,
            bill.changed,
            _thousand(bill.cost),
            _thousand(bill.calls),
            _times(bill.cost, us[0].bill.cost),
            _thousand(bill.average),
            _thousand(bill.last),
        )
    table.notes += [
        f"{row.name} dropped history {row.bill.changed} times and never called its summariser: it "
        "looked only at the last 4,000 tokens, found no user message there to begin with, and put a "
        "sentence that says so in place of everything older"
        for row in rows
        if "Summarization" in row.name and row.bill.changed and not row.summaries
    ]
    table.notes += COST_NOTES
    return table


STEP_NOTES: Final = (
    "others: the package's own hook, called on a conversation of 999 messages; ours: the passes among "
    "the newest 100 requests of the run, each with what was new; fires: everything is there to clear, "
    "and ours sees the conversation for the first time; after a silence: it has seen all of it, and the "
    "cache went cold before anything was cleared",
    "ours writes its decision to the transcript on disk, and what it clears to a file that it reads "
    "back, inside the time; of the others only deepagents writes anything",
    "Context.prepare: dicts in, the request's dicts out, cache marks set; fires: those of the run",
    "what a framework does around the hook (graph state, conversion to the wire) is in no figure",
    "the fake model answers at once and reports usage by bytes: packages that look at reported usage "
    "instead of counting are faster here than without it",
)
COST_NOTES: Final = (
    "tokens are bytes of canonical JSON / 4, for everyone; no system prompt and no tools are counted, "
    "nor the replies, which are the same for all",
    "reads 0.1, writes 1.25; the cache never goes cold and keeps every message of the request before: "
    "providers keep what ends at a breakpoint, so whoever rewrites the middle pays more than this",
    "a summary call costs its input, none of it cached, plus its output × 5; the fake summary is 1,000 "
    "tokens, whatever it stands for",
    "what a cleared result or a summary loses, and what reading it again costs, is not in the figures",
    "the others fire at the same 100,000 tokens, where they can be told to; ours when it pays",
)


def _median(seconds: Sequence[float]) -> float | None:
    return statistics.median(seconds) if seconds else None


def _p90(seconds: Sequence[float]) -> float | None:
    return sorted(seconds)[int(0.9 * len(seconds))] if seconds else None


def _ms(seconds: float | None) -> float | str:
    return NONE if seconds is None else round(1000 * seconds, 3 if seconds < 0.001 else 2)


def _times(theirs: float | None, own: float | None) -> float | str:
    return round(theirs / own, 2 if theirs < 10 * own else 0) if theirs and own else NONE


def _thousand(tokens: float) -> int:
    return round(tokens / 1000)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="fewer repetitions, only environments that exist"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where environments are kept")
    return parser.parse_args()


if __name__ == "__main__":
    options = arguments()
    show(run(options.quick, options.cache), as_json=options.json)
