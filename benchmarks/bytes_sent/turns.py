"""The time that a turn of the same session takes in our process, beside a bare loop with the official SDK.

The simulator runs in a process of its own, so that its time is not in the figures.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from benchmarks.bytes_sent.workload import CALLS, FLAGS, MODEL, make_replies, write_files
from benchmarks.report import Table
from sevenfold.core.messages import parse_directive
from sevenfold.session.session import Session
from sevenfold.simulator import ManualClock, Simulator

GOAL: Final = 5.0  # Milliseconds a turn
TIMES: Final = 5
ROOM: Final = 8_000  # Tokens of a reply that the bare loop asks for
SHELL: Final[Any] = {
    "name": "Bash",
    "description": "Runs a command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
}


class Spent(msgspec.Struct, frozen=True):
    """Seconds a turn: of the processor in our process, and on the wall."""

    cpu: float
    wall: float


def measure_turns(calls: int = CALLS, times: int = TIMES) -> Table:
    kinds: dict[str, Callable[[Path, str, int], Spent]] = {
        "a bare loop with the SDK": _loop_bare,
        "a session, as it is": partial(_hold_session, {}),
        "a session without notes, recall, extraction and dreams": partial(_hold_session, FLAGS),
    }
    spent: dict[str, list[Spent]] = {name: [] for name in kinds}
    for _ in range(times):  # by turns: what else the machine does meets all of them
        for name, measure in kinds.items():
            with _prepare(calls) as (folder, url):
                spent[name].append(measure(folder, url, calls))
    table = Table(
        f"Our time per turn in a session of {calls} tool calls, milliseconds",
        "loop", "CPU", "CPU beyond the bare loop", "wall", "wall beyond the bare loop",
    )  # fmt: skip
    bare_cpu, bare_wall = _take_medians(spent["a bare loop with the SDK"])
    for name, found in spent.items():
        cpu, wall = _take_medians(found)
        table.add(name, f"{cpu:.2f}", f"{cpu - bare_cpu:+.2f}", f"{wall:.1f}", f"{wall - bare_wall:+.1f}")
    table.notes += [
        f"goal: at most {GOAL:g} ms of CPU beyond the bare loop; medians of {times} sessions, by turns",
        "the simulator runs in a process of its own; the commands (`cat`) are processes too, and starting "
        "them is in all rows",
        "the bare loop streams with the official SDK, keeps a list of messages and does nothing else: no "
        "transcript, no permissions, no layers; it sends the whole list as dicts each time",
    ]
    return table


def _take_medians(found: list[Spent]) -> tuple[float, float]:
    cpu, wall = (statistics.median(getattr(one, name) for one in found) for name in ("cpu", "wall"))
    return 1000 * cpu, 1000 * wall


@contextmanager
def _prepare(calls: int) -> Iterator[tuple[Path, str]]:
    """A folder with the files, and a simulator in another process."""
    ours, theirs = get_context("spawn").Pipe()
    server = get_context("spawn").Process(target=_serve, args=(theirs, calls), daemon=True)
    with tempfile.TemporaryDirectory() as made:
        project = Path(made).resolve() / "project"
        project.mkdir()
        write_files(project, calls)
        server.start()
        try:
            yield project, ours.recv()
        finally:
            ours.send("end")
            server.join()


def _serve(pipe: Connection, calls: int) -> None:
    reply = make_replies(calls)

    def answer(body: dict[str, Any]) -> list[dict[str, Any]]:
        aside = any(parse_directive(b.get("text", "")) for b in body["messages"][-1]["content"])
        return [{"type": "text", "text": "There is nothing to write."}] if aside else reply(body)

    async def serve() -> None:
        async with Simulator(replies=answer, clock=ManualClock()) as sim:
            pipe.send(sim.url)
            await anyio.to_thread.run_sync(pipe.recv)

    anyio.run(serve)


def _hold_session(flags: dict[str, bool], project: Path, url: str, calls: int) -> Spent:
    environ = {"HOME": str(project.parent), "PATH": "/usr/bin:/bin", "ANTHROPIC_API_KEY": "k"}

    async def hold() -> Spent:
        async with Session(
            MODEL,
            project,
            home=project.parent / "home",
            environ={**environ, "ANTHROPIC_BASE_URL": url},
            settings={"flags": flags},
        ) as session:
            gc.collect()
            cpu, wall = time.process_time(), time.perf_counter()
            await session.ask("Read all files.")
            return Spent(
                (time.process_time() - cpu) / (calls + 1), (time.perf_counter() - wall) / (calls + 1)
            )

    return anyio.run(hold)


def _loop_bare(project: Path, url: str, calls: int) -> Spent:
    import anthropic

    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Read all files."}]}]
    with anthropic.Anthropic(api_key="k", base_url=url) as client:
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        while True:
            with client.messages.stream(
                model=MODEL, max_tokens=ROOM, tools=[SHELL], messages=messages
            ) as stream:
                reply = stream.get_final_message()
            messages.append({"role": "assistant", "content": [b.to_dict() for b in reply.content]})
            uses = [block for block in reply.content if block.type == "tool_use"]
            if not uses:
                break
            messages.append({"role": "user", "content": [_call(use, project) for use in uses]})
        return Spent((time.process_time() - cpu) / (calls + 1), (time.perf_counter() - wall) / (calls + 1))


def _call(use: Any, project: Path) -> dict[str, Any]:
    command = ["/bin/sh", "-c", str(use.input["command"])]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True)
    return {"type": "tool_result", "tool_use_id": use.id, "content": done.stdout}
