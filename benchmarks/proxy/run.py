"""What the proxy saves, what it adds: scripted sessions against the simulator, with and without it.

python -m benchmarks.proxy.run [--quick] [--json]
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import httpx

from benchmarks.proxy.scripted import (
    SESSION,
    Json,
    ScriptedClient,
    client_of,
    make_output,
    script_calls,
    use_tool,
)
from benchmarks.report import Table, arguments, show
from sevenfold.simulator import ManualClock, Simulator, parse_steps

CALLS: Final = 60
MESSAGES: Final = 1_000
CONVERSATIONS: Final = 10
KILLED_AFTER: Final = 50  # Two clears lie before, and none is due in the next request
LIMITS: Final = "limits: cost 80 %, 0 unexplained, 99 % read after a kill, median 3 ms, p99 30 ms, 90 MB"


@dataclass
class ProxyProcess:
    """`sevenfold proxy` in a process of its own, as users have it."""

    url: str
    process: subprocess.Popen[str]

    async def read_receipt(self) -> Json:
        async with httpx.AsyncClient(trust_env=False) as http:
            found: Json = (await http.get(f"{self.url}/sevenfold/ledger")).json()
        return found

    def read_peak(self) -> float:
        """The largest amount of memory it has had, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found[1]) / 1_000 if found else 0.0

    def read_cpu(self) -> float:
        """The CPU time it has taken so far, in milliseconds."""
        after_name = Path(f"/proc/{self.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return 1_000 * (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@asynccontextmanager
async def proxy_before(upstream: str, home: Path) -> AsyncIterator[ProxyProcess]:
    with run_proxy(upstream, home) as proxy:
        yield proxy


@contextmanager
def run_proxy(upstream: str, home: Path) -> Iterator[ProxyProcess]:
    folder = home / ".claude" / "projects" / "-work"
    folder.mkdir(parents=True, exist_ok=True)
    for n in range(CONVERSATIONS):
        (folder / f"{make_session(n)}.jsonl").touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "sevenfold", "proxy", "--quiet", "--upstream", upstream],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        cwd=home,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().removeprefix("ready: ").strip()
    try:
        yield ProxyProcess(url, process)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        process.stdout.close()


def make_session(n: int) -> str:
    return SESSION[:-2] + f"{n + 1:02}"


def add_steps(sim: Simulator, steps: Sequence[Json]) -> None:
    sim.api.script.extend(parse_steps("\n".join(map(json.dumps, steps))))


def read_back(name: str, given: Json) -> str:
    """Runs commands, and reads files that are there."""
    if name == "Read":
        return Path(given["file_path"]).read_text("utf-8")[:20_000]
    return make_output(str(given["command"]))


def list_kept(home: Path) -> list[Path]:
    return sorted(home.glob("**/tool-results/*"))


async def hold_session(sim: Simulator, client: ScriptedClient, calls: int, home: Path, again: int) -> None:
    """So many commands; then so many files with what was cleared are read again."""
    add_steps(sim, script_calls(calls))
    await client.ask("Make the reports.")
    if not again:
        return
    client.run = read_back
    kept = list_kept(home)
    for n in range(again):
        step = use_tool("Read", file_path=str(kept[0])) if kept else use_tool("Bash", command=f"report {n}")
        add_steps(sim, [{"reply": step}, {"reply": {"text": "seen"}}])
        await client.ask(f"What did report {n} say?")


async def compare_costs(title: str, table: Table, calls: int, again: int = 0) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        async with Simulator(clock=ManualClock()) as sim, client_of(sim.url) as client:
            await hold_session(sim, client, calls, home, again)
            direct, plain = sim.ledger.total, sim.ledger.total.received_bytes
        async with (
            Simulator(clock=ManualClock()) as sim,
            proxy_before(sim.url, home) as proxy,
            client_of(proxy.url) as client,
        ):
            await hold_session(sim, client, calls, home, again)
            through, receipt = sim.ledger.total, (await proxy.read_receipt())["totals"]
    same = "identical" if direct == through else f"{through.cost / direct.cost:.1%}"
    table.add(
        title,
        direct.requests,
        f"${direct.cost:.4f}",
        f"${through.cost:.4f}",
        same,
        f"${receipt['direct_cost']:.4f}",
        f"{plain / 1e6:.1f} MB",
        f"{through.received_bytes / 1e6:.1f} MB",
        receipt["breaks"],
        receipt["unexplained"],
    )


async def measure_restart(table: Table, calls: int) -> None:
    """Kill the proxy in mid-session: how much of the prefix does the next request read?"""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        async with Simulator(clock=ManualClock()) as sim:
            add_steps(sim, script_calls(calls))
            async with proxy_before(sim.url, home) as proxy, client_of(proxy.url) as client:
                await client.ask("Make the reports.")
                proxy.kill()
            before = sim.ledger[-1].tokens
            add_steps(sim, script_calls(1, calls))
            async with proxy_before(sim.url, home) as proxy, client_of(proxy.url) as second:
                second.messages = client.messages
                await second.ask("One more.")
                receipt = await proxy.read_receipt()
            after = sim.ledger[calls + 1].tokens
    cached = before.cache_read + before.cache_write_5m
    first = receipt["rows"][0]["milliseconds"]
    table.add(f"{calls + 1} requests, then SIGKILL", f"{after.cache_read / cached:.1%}", f"{first:.0f} ms")


def make_long_history(rounds: int) -> list[Json]:
    messages: list[Json] = [{"role": "user", "content": [{"type": "text", "text": "Go."}]}]
    for n in range(rounds):
        use = {"type": "tool_use", "id": f"toolu_{n:06}", "name": "Bash", "input": {"command": f"step {n}"}}
        text = make_output(f"step {n}", 2_000)
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": text}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return messages


async def measure_time(table: Table, requests: int) -> None:
    """The time before a request is sent on, around so many messages."""
    known = MESSAGES - requests
    with tempfile.TemporaryDirectory() as folder:
        async with (
            Simulator(clock=ManualClock()) as sim,
            proxy_before(sim.url, Path(folder)) as proxy,
            client_of(proxy.url) as client,
        ):
            add_steps(sim, script_calls(requests))
            client.messages = make_long_history(known // 2)
            client.run = lambda name, given: make_output(str(given["command"]), 2_000)
            begun = proxy.read_cpu()
            await client.ask("Go on.")
            cpu = (proxy.read_cpu() - begun) / requests
            receipt = await proxy.read_receipt()
    first, *rows = receipt["rows"]
    for name, chosen in (
        ("the client's own bytes", [row for row in rows if not row["shortened"]]),
        ("shortened", [row for row in rows if row["shortened"]]),
        ("all", rows),
    ):
        times = sorted(row["milliseconds"] for row in chosen)
        if times:
            median, p99 = times[len(times) // 2], times[int(0.99 * (len(times) - 1))]
            table.add(name, len(times), f"{median:.2f} ms", f"{p99:.1f} ms", f"{times[-1]:.1f} ms")
    table.notes.append(f"CPU time of the whole process, relaying included: {cpu:.1f} ms a request")
    table.notes.append("wall time: on a busy machine compare the CPU time")
    table.notes.append(f"the first request, with {known} new messages: {first['milliseconds']:.0f} ms")
    table.notes.append(
        f"from {known} to {known + 2 * requests} messages, {rows[-1]['received'] / 1e6:.1f} MB"
    )


async def measure_memory(table: Table, calls: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Simulator(clock=ManualClock()) as sim, proxy_before(sim.url, Path(folder)) as proxy:
            idle = proxy.read_peak()
            for n in range(CONVERSATIONS):
                add_steps(sim, script_calls(calls))
                async with client_of(proxy.url, session=make_session(n)) as client:
                    await client.ask(f"Make the reports of {n}.")
            work = f"{CONVERSATIONS} conversations of {calls + 1} requests"
            table.add(work, f"{idle:.0f} MB", f"{proxy.read_peak():.0f} MB")


async def measure_all(quick: bool) -> list[Table]:
    costs = Table(
        "What a session costs, simulated",
        "session", "requests", "direct", "proxy", "share", "direct, by the receipt", "sent direct",
        "sent by proxy", "breaks", "unexplained",
    )  # fmt: skip
    costs.notes.append(LIMITS)
    await compare_costs("nothing fires", costs, 8)
    await compare_costs("commands of 20 KB each", costs, CALLS)
    await compare_costs("the same, then 5 re-reads of what was cleared", costs, CALLS, 5)
    restart = Table("The proxy is killed and started again", "session", "prefix read", "added then")
    await measure_restart(restart, 20 if quick else KILLED_AFTER)
    title = f"Time added before a request is sent, at {MESSAGES:,} messages"
    times = Table(title, "request", "count", "median", "p99", "most")
    await measure_time(times, 40 if quick else 240)
    memory = Table("Memory of the process at its peak", "work", "at the start", "after it")
    await measure_memory(memory, 10 if quick else 40)
    return [costs, restart, times, memory]


def run(quick: bool) -> list[Table]:
    return anyio.run(measure_all, quick)


def main() -> None:
    options: Any = arguments(__doc__)
    show(run(options.quick), as_json=options.json)


if __name__ == "__main__":
    main()
