"""What layers 1 and 2 would have saved on real recorded sessions, and what they would have missed.

python -m benchmarks.policy.run [--quick] [--json]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from benchmarks.policy import policies
from benchmarks.policy.samples import halves, session_files
from benchmarks.report import Table, arguments, show
from sevenfold.cache.prices import Price
from sevenfold.events import Emit
from sevenfold.layers.l2_microcompaction.settings import MicroSettings
from sevenfold.protocols import Layers
from sevenfold.replay.driving import Drive, Outcome
from sevenfold.request import Frame, Ttl
from sevenfold.storage.claude_code import read_session, to_transcript
from sevenfold.tokens import Thresholds
from sevenfold.transcript import Entry, Reply

MODEL: Final = "claude-opus-4-5"
WINDOW, OUTPUT = 200_000, 32_000


@dataclass(frozen=True)
class Policy:
    name: str
    layers: Callable[[Emit], Layers]
    keep_warm: int = 0
    as_recorded: bool = False
    """The cache's lifetime is the one that was paid for then; else five minutes."""


POLICIES: Final = (
    Policy("append-only, lifetimes as recorded", policies.nothing, as_recorded=True),
    Policy("append-only, five minutes", policies.nothing),
    Policy("append-only, kept warm twice", policies.nothing, 2),
    Policy("rolling: every 10 calls, keep 5", policies.rolling),
    Policy("watermark: at 30K, keep 3", policies.watermark),
    Policy("plain: after 60 minutes, keep 5", policies.ours(MicroSettings(policy="plain"))),
    Policy("sevenfold (default)", policies.ours()),
    Policy("sevenfold, kept warm twice", policies.ours(), 2),
)
DEFAULT: Final = next(i for i, p in enumerate(POLICIES) if p.name == "sevenfold (default)")


@dataclass(frozen=True)
class Result:
    path: Path
    paid: float
    cost: float
    outcome: Outcome


def price() -> Price:
    found = policies.PRICES.of(MODEL)
    if found is None:
        raise SystemExit(f"the price table has no {MODEL}")
    return found


def paid_for_input(entries: Sequence[Entry]) -> float:
    """In base-price tokens, from the usage that was recorded."""
    usages = [e.what.usage for e in entries if isinstance(e.what, Reply)]
    return sum(price().units(replace(usage, output=0)) for usage in usages)


def replayed(job: tuple[Path, int]) -> Result:
    path, n = job
    policy, entries = POLICIES[n], to_transcript(read_session(path)).entries
    hour = sum(e.what.usage.cache_write_1h for e in entries if isinstance(e.what, Reply))
    ttl: Ttl = "1h" if policy.as_recorded and hour else "5m"
    thresholds = Thresholds.of(WINDOW, OUTPUT)
    drive = Drive(
        entries, policy.layers, Frame(MODEL, ttl=ttl), thresholds, keep_warm=policy.keep_warm
    )
    outcome = drive.run()
    outcome.events.clear()
    return Result(path, paid_for_input(entries), price().units(outcome.usage), outcome)


def run(quick: bool = False) -> list[Table]:
    files = session_files()
    if not files:
        empty = Table("Layers 1 and 2 on recorded sessions", "policy")
        empty.notes.append("skipped: the shared sessions are not beside this checkout")
        return [empty]
    tuned, held = halves(files[:8] if quick else files)
    chosen = range(len(POLICIES)) if not quick else (1, DEFAULT)
    with Pool() as pool:
        done = {n: pool.map(replayed, [(path, n) for path in (*tuned, *held)]) for n in chosen}
    tables = [
        _table(f"Simulated input cost, {len(part)} sessions {name}", done, {*part})
        for name, part in (("held out", held), ("tuned on", tuned))
    ]
    tables[0].notes += [
        "paid: what the recorded usage cost at the same prices; simulated: the provider's cache rules over "
        "the recorded words and times, recorded compactions charged to every policy alike",
        "needed again: of the cleared results, by trace (an edited line, a rare word); robust: a line or "
        "two words; every need is charged as an extra request that reads the whole result back",
        "the path is fixed: what the agent would have done otherwise, and needs without a trace, are "
        "not seen",
    ]
    return [*tables, _sessions(done, held)]


def _table(title: str, done: dict[int, list[Result]], part: set[Path]) -> Table:
    table = Table(
        title,
        "policy",
        "% of paid",
        "context K",
        "clearings",
        "cleared",
        "needed %",
        "robust %",
        "by tokens %",
        "extra/100",
        "warm/100",
    )
    for n, results in done.items():
        ours = [r for r in results if r.path in part]
        table.add(POLICIES[n].name, *_figures(ours))
    return table


def _figures(results: Sequence[Result]) -> tuple[str, ...]:
    def total(name: str) -> int:
        return sum(getattr(r.outcome, name) for r in results)

    requests, cleared = total("requests"), max(1, total("cleared"))
    share = sum(r.cost for r in results) / sum(r.paid for r in results)
    return (
        f"{100 * share:.1f}",
        f"{total('context') / requests / 1000:.0f}",
        str(total("clearings")),
        str(total("cleared")),
        f"{100 * total('needed') / cleared:.1f}",
        f"{100 * total('needed_robust') / cleared:.1f}",
        f"{100 * total('needed_tokens') / max(1, total('cleared_tokens')):.1f}",
        f"{100 * total('extra_requests') / requests:.1f}",
        f"{100 * total('kept_warm') / requests:.1f}",
    )


def _sessions(done: dict[int, list[Result]], held: Sequence[Path]) -> Table:
    table = Table(
        "Held-out sessions, default policy",
        "session",
        "requests",
        "paid, K tokens",
        "append-only %",
        "sevenfold %",
        "extra",
    )
    before = {r.path: r for r in done[1]}
    for result in done[DEFAULT]:
        if result.path in held:
            append = before[result.path]
            table.add(
                result.path.name[:8],
                result.outcome.requests,
                f"{result.paid / 1000:,.0f}",
                f"{100 * append.cost / result.paid:.1f}",
                f"{100 * result.cost / result.paid:.1f}",
                result.outcome.extra_requests,
            )
    return table


if __name__ == "__main__":
    options = arguments(__doc__)
    show(run(options.quick), as_json=options.json)
    sys.exit(0)
