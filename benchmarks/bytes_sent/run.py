"""Bytes sent in a session of 60 tool calls, with and without message threads.

python -m benchmarks.bytes_sent.run [--quick] [--json]
"""

from __future__ import annotations

import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any, Final

import anyio

from benchmarks.report import Table, arguments, show
from sevenfold.session.session import Session
from sevenfold.simulator import LedgerRow, ManualClock, Simulator

MODEL: Final = "claude-opus-5-5"
CALLS: Final = 60
SHORT, LONG, LINE = 8_000, 51_000, 60  # Bytes that a call returns
FLAGS: Final = dict.fromkeys(("notes", "payout", "recall", "extraction", "dream"), False)
"""Layers that would send requests of their own: this is about the conversation."""


def write_files(folder: Path, calls: int) -> None:
    """One file for each call: four short ones, then a long one."""
    for n in range(calls):
        size = LONG if n % 5 == 4 else SHORT
        lines = [
            f"{i:04d} a line of file {n:02d} that a tool shows, word after word" for i in range(size // 60)
        ]
        (folder / f"f{n}.txt").write_text("\n".join(islice(lines, size // LINE)), encoding="utf-8")


def make_replies(calls: int) -> Any:
    """A model that shows one file after the other, then is done."""

    def reply(body: dict[str, Any]) -> list[dict[str, Any]]:
        done = sum(b["type"] == "tool_result" for m in body["messages"] for b in m["content"])
        if done >= calls:
            return [{"type": "text", "text": "I have read them all."}]
        args = {"command": f"cat f{done}.txt", "description": "show a file"}
        return [{"type": "tool_use", "id": f"toolu_{done}", "name": "Bash", "input": args}]

    return reply


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
    return [table]


def main() -> int:
    options = arguments(__doc__)
    show(run(options.quick), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
