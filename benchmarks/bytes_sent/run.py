"""Bytes sent in a session of 60 tool calls, with and without message threads; our time per turn in it.

python -m benchmarks.bytes_sent.run [--quick] [--json]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import anyio

from benchmarks.bytes_sent.turns import measure_turns
from benchmarks.bytes_sent.workload import CALLS, FLAGS, LONG, MODEL, SHORT, make_replies, write_files
from benchmarks.report import Table, arguments, show
from sevenfold.session.session import Session
from sevenfold.simulator import LedgerRow, ManualClock, Simulator


def measure_session(calls: int, flags: dict[str, bool]) -> list[LedgerRow]:
    """The requests of one session, in a folder of its own."""
    with tempfile.TemporaryDirectory() as made:
        project = Path(made).resolve() / "project"
        project.mkdir()
        write_files(project, calls)
        return anyio.run(hold_session, project, calls, flags)


async def hold_session(project: Path, calls: int, flags: dict[str, bool]) -> list[LedgerRow]:
    async with Simulator(replies=make_replies(calls), clock=ManualClock()) as sim:
        environ = {"HOME": str(project.parent), "PATH": "/usr/bin:/bin", "ANTHROPIC_API_KEY": "k"}
        async with Session(
            MODEL,
            project,
            home=project.parent / "home",
            environ={**environ, "ANTHROPIC_BASE_URL": sim.url},
            settings={"flags": {**FLAGS, **flags}},
        ) as session:
            await session.ask("Read all files.")
        return [row for row in sim.ledger.rows if row.source == "main"]


def run(quick: bool) -> list[Table]:
    calls = 12 if quick else CALLS
    kinds = {
        "no layer clears, no threads": {"micro_cost": False, "micro_api": False},
        "no layer clears, threads": {"micro_cost": False, "micro_api": False, "threads": True},
        "as a session is, no threads": {},
        "as a session is, threads": {"threads": True},
    }
    table = Table(
        f"Bytes sent in a session of {calls} tool calls",
        "session", "MB sent", "requests", "create", "continue", "base-price tokens, thousand",
    )  # fmt: skip
    for name, flags in kinds.items():
        rows = measure_session(calls, flags)
        sent = sum(row.received_bytes for row in rows) / 1e6
        units = sum(row.units or 0.0 for row in rows) / 1e3
        threads = [row.thread for row in rows]
        counts = threads.count("create"), threads.count("continue")
        table.add(name, f"{sent:.2f}", len(rows), *counts, f"{units:.0f}")
    output = sum(LONG if n % 5 == 4 else SHORT for n in range(calls))
    table.notes.append(f"about {output:,} bytes of tool output, over loopback; simulated prices")
    return [table, measure_turns(calls, 2) if quick else measure_turns()]


def main() -> int:
    options = arguments(__doc__)
    show(run(options.quick), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
