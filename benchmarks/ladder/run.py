"""Which layer acts when: a long scripted session on the real wire, request by request.

python -m benchmarks.ladder.run [--quick] [--json] [--policy specified|balanced] [--calls N] [--window N]
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal

import anyio

from benchmarks.report import Table, show
from sevenfold.core.events import (
    CacheBroke,
    Cleared,
    Compacted,
    Event,
    Failed,
    Forked,
    Progress,
    Replied,
    Stored,
)
from sevenfold.core.messages import parse_directive
from sevenfold.core.tokens import REFERENCE_WINDOW
from sevenfold.layers.l3_session_memory.notes_compaction import NotesCompaction
from sevenfold.layers.l3_session_memory.notes_update import NotesUpdater
from sevenfold.offline import encode_reply
from sevenfold.session.session import Session
from sevenfold.simulator import ManualClock, Simulator

Json = dict[str, Any]
MODEL: Final = "claude-sonnet-4-6"
"""Tokens cost money, and its window is a million tokens: a setting makes it smaller."""
POLICIES: Final = ("specified", "balanced")
RUNS: Final = (("specified", 320, 200_000), ("balanced", 320, 200_000))
LARGE: Final = (("specified", 1_500, 1_000_000), ("balanced", 1_500, 1_000_000))
FILES: Final = 60
MOST_ROWS: Final = 60  # Of the first table
STEP_SECONDS, SILENCE_SECONDS = 8.0, 90.0
LONG_SILENCE: Final = 4_000.0  # Seconds: longer than any cache is kept
LAYERS: Final = {
    "1": "large tool results kept on disk",
    "2": "old results cleared",
    "3": "notes brought up to date",
    "3 pays": "the notes stand in for the older part",
    "3 declines": "the notes cannot stand in",
    "4": "summary",
    "5": "extraction",
    "cache": "the cache broke and no layer had said so",
    "failed": "a layer failed",
}


class BenchmarkClock(ManualClock):
    """The simulator's clock, for the session as well. The script alone moves it: whoever waits is stopped
    when what they wait for has come.
    """

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep_forever()


@dataclass(frozen=True)
class LongTask:
    """A task of so many calls, and the model that does it."""

    calls: int
    window: int
    settings: Json
    length: int = 10_000  # Characters of each result
    calls_per_turn: int = 20
    long_every: int = 12  # After so many turns the user is silent for longer than any cache is kept
    model: str = MODEL
    thinks: Literal["", "first", "always"] = ""  # Before the first call of each turn, or before every call


class FileReader:
    """A model that reads one file after the other; what layers ask it is answered by rule."""

    def __init__(self, task: LongTask, clock: BenchmarkClock) -> None:
        self._task, self._clock, self._replies = task, clock, 0
        self.session: Session | None = None

    async def __call__(self, body: Json) -> list[Json]:
        if is_side_request(body):
            return encode_reply(body)
        if self.session is not None:  # a step takes longer than what layers ask beside it
            await self.session.tray.drain(60)
        self._clock.advance(STEP_SECONDS)
        turn, call = divmod(self._replies, self._task.calls_per_turn + 1)
        self._replies += 1
        if call == self._task.calls_per_turn:
            return [{"type": "text", "text": f"Part {turn + 1} is done."}]
        n = self._replies
        # Another part of a file each time round.
        args = {"file_path": f"src/module_{n * 7 % FILES}.py", "offset": 1 + n // FILES}
        use: Json = {"type": "tool_use", "id": f"toolu_{n}", "name": "Read", "input": args}
        thinks = self._task.thinks == "always" or (self._task.thinks == "first" and not call)
        return [{"type": "thinking", "thinking": f"Number {n} is next."}, use] if thinks else [use]


def is_side_request(body: Json) -> bool:
    """True if a layer asks, and not the user."""
    last = body["messages"][-1]["content"]
    texts = [last] if isinstance(last, str) else [b["text"] for b in last if b["type"] == "text"]
    return not body.get("tools") or any(parse_directive(text) for text in texts)


@dataclass(frozen=True)
class LadderRow:
    """One action of a layer."""

    request: int  # Requests of the conversation before it
    tokens: int  # Of context then
    layer: str
    text: str


@dataclass
class LadderLog:
    """What the layers of one session did."""

    rows: list[LadderRow] = field(default_factory=list)
    requests: int = 0
    most: int = 0
    hits: list[float] = field(default_factory=list)  # Of forks: the part read from the cache
    refused: int = 0  # Requests that the provider refused

    @property
    def counts(self) -> Counter[str]:
        return Counter(row.layer for row in self.rows)

    @property
    def order(self) -> list[str]:
        """The compactions in their order."""
        return [row.layer for row in self.rows if row.layer in ("3 pays", "4")]


def read_event(event: Event) -> tuple[str, str] | None:
    """The layer that acted and what it says; None for an event that is no action of a layer."""
    match event:
        case Stored():
            return "1", f"{event.tool}: {event.characters:,} characters on disk"
        case Cleared():
            return "2", event.why
        case Compacted(by, trigger, before, after):
            layer = "3 pays" if by == "notes" else "4"
            return layer, f"{by} ({trigger}): {before:,} tokens before, {after:,} after"
        case Progress(NotesUpdater.label, said, True):
            return "3", said
        case Progress(NotesCompaction.label, said, True):
            return "3 declines", said
        case Forked("extract"):
            return "5", f"{event.steps} steps, {event.usage.prompt:,} tokens read"
        case CacheBroke(expected=False):
            return "cache", f"{event.before:,} tokens read before, {event.after:,} now: {event.why}"
        case Failed(by, cause):
            return "failed", f"{by}: {cause}"
    return None


async def drive(folder: Path, task: LongTask) -> LadderLog:
    """A session that does this task, through the real client to the simulator."""
    project, log, clock = folder / "project", LadderLog(), BenchmarkClock()
    _write_files(project / "src", task.length)
    replies = FileReader(task, clock)
    async with Simulator(replies=replies, clock=clock, window=task.window) as simulator:
        environ = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "ANTHROPIC_API_KEY": "k"}
        environ["ANTHROPIC_BASE_URL"] = simulator.url
        options: Json = {"home": folder / "home", "environ": environ, "clock": clock, "interactive": True}
        fixed = {"window": task.window, "maxSteps": task.calls_per_turn + 10, "dailyBackgroundLimit": None}
        settings = {**fixed, **task.settings}
        async with Session(task.model, project, settings=settings, **options) as session:

            def note(event: Event) -> None:
                if acted := read_event(event):
                    log.rows.append(LadderRow(log.requests, session.request.tokens, *acted))
                if isinstance(event, Forked):
                    log.hits.append(event.hit_rate)
                log.requests += isinstance(event, Replied) and event.source == "main"

            session.subscribe(note)
            replies.session = session
            for turn in range(1, -(-task.calls // task.calls_per_turn) + 1):
                await session.ask(f"Go on with part {turn} of the review, file by file.")
                await session.tray.drain(60)
                log.most = max(log.most, session.request.tokens)
                clock.advance(SILENCE_SECONDS if turn % task.long_every else LONG_SILENCE)
        log.refused = simulator.ledger.total.errors
    return log


def _write_files(folder: Path, length: int) -> None:
    folder.mkdir(parents=True)
    for n in range(FILES):
        lines = [
            f"def step_{n}_{i}(value):  # what part {n} does with number {i}\n" for i in range(length // 50)
        ]
        (folder / f"module_{n}.py").write_text("".join(lines)[:length], encoding="utf-8")


def make_tables(policy: str, task: LongTask, log: LadderLog) -> Iterator[Table]:
    where = f"{policy}: {task.calls:,} calls on {task.window:,}"
    table = Table(f"which layer acted when, {where}", "request", "tokens", "layer", "event")
    groups = [list(alike) for _, alike in groupby(log.rows, lambda row: row.layer)]
    for *before, last in groups[:MOST_ROWS]:
        first = before[0] if before else last
        times = f"{len(before) + 1} times, the last: " if before else ""
        table.add(
            _span(first.request, last.request),
            _span(first.tokens, last.tokens),
            last.layer,
            times + last.text,
        )
    if (more := len(groups) - MOST_ROWS) > 0:
        table.notes.append(f"{more:,} more rows like these are left out")
    yield table
    sums = Table(f"how often each layer acted, {where}", "layer", "times", "what")
    for layer, what in LAYERS.items():
        sums.add(layer, log.counts[layer], what)
    sums.notes += [
        f"{log.requests:,} requests of the conversation, {log.refused} refused; at the end of a turn at "
        f"most {log.most:,} tokens",
        f"{len(log.hits)} forks; the least that one read from the cache: {min(log.hits, default=0.0):.0%}",
    ]
    yield sums


def _span(first: int, last: int) -> str:
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def run(quick: bool = False, runs: Sequence[tuple[str, int, int]] = ()) -> list[Table]:
    chosen = runs or (RUNS if quick else (*RUNS, *LARGE))
    tables = list[Table]()
    for policy, calls, window in chosen:
        every = 12 if window <= REFERENCE_WINDOW else 45  # rarer than the window gets full
        task = LongTask(calls, window, {"policy": policy}, long_every=every)
        with tempfile.TemporaryDirectory() as name:
            log = anyio.run(drive, Path(name).resolve(), task)
        tables += make_tables(policy, task, log)
    return tables


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only the sessions on 200,000 tokens")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--policy", choices=POLICIES, help="one session, with this policy")
    parser.add_argument("--calls", type=int, default=320, help="tool calls of that session")
    parser.add_argument("--window", type=int, default=200_000, help="its window")
    return parser.parse_args()


if __name__ == "__main__":
    asked = arguments()
    one = ((asked.policy, asked.calls, asked.window),) if asked.policy else ()
    show(run(asked.quick, one), as_json=asked.json)
