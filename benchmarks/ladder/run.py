"""Which layer acts when: a long scripted session on the real wire, request by request.

python -m benchmarks.ladder.run [--quick] [--json] [--policy specified|balanced] [--calls N] [--window N]

Afterwards the file that the session wrote is replayed under the same policy (`prediction.py`).
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby, islice
from pathlib import Path
from typing import Any, Final, Literal

import anyio

from benchmarks.ladder.prediction import PredictedAction, predict_actions
from benchmarks.report import Table, show
from sevenfold.cache.ledger import FORK, MAIN, PLAIN
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
from sevenfold.core.protocols import Model
from sevenfold.core.tokens import REFERENCE_WINDOW
from sevenfold.layers.l3_session_memory.notes_compaction import NotesCompaction
from sevenfold.layers.l3_session_memory.notes_update import NotesUpdater
from sevenfold.offline import encode_reply
from sevenfold.session.session import Session
from sevenfold.settings.layers import PolicyName
from sevenfold.simulator import LedgerRow, ManualClock, Simulator

Json = dict[str, Any]
MODEL: Final = "claude-sonnet-4-6"
"""Tokens cost money, and its window is a million tokens: a setting makes it smaller."""
LadderRun = tuple[PolicyName, int, int]
POLICIES: Final[tuple[PolicyName, ...]] = ("specified", "balanced")
RUNS: Final[tuple[LadderRun, ...]] = (("specified", 320, 200_000), ("balanced", 320, 200_000))
LARGE: Final[tuple[LadderRun, ...]] = (("specified", 1_500, 1_000_000), ("balanced", 1_500, 1_000_000))
STEP_SECONDS, SILENCE_SECONDS = 8.0, 90.0
MORNING: Final = 1_700_035_200.0  # The model is told when a new day begins: none does before the end
LONG_SILENCE: Final = 4_000.0  # Seconds: longer than any cache is kept
COMPACTION: Final = "compaction"  # The name under which layer 4 says how it is going
LAYERS: Final = {
    "1": "large tool results kept on disk",
    "2": "old results cleared",
    "3": "notes brought up to date",
    "3 pays": "the notes stand in for the older part",
    "3 declines": "the notes cannot stand in",
    "4": "summary",
    "5": "extraction",
    "silence": "the cache expired while the user was silent",
    "cache": "the cache broke for another reason, and no layer had said so",
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
        self.question = ""
        self.buried = 0  # Requests in which the user's question was not the last text

    async def __call__(self, body: Json) -> list[Json]:
        if is_side_request(body):
            return encode_reply(body)
        self.buried += find_last_text(body) != self.question
        if self.session is not None:  # a step takes longer than what layers ask beside it
            await self.session.tray.drain(60)
        self._clock.advance(STEP_SECONDS)
        turn, call = divmod(self._replies, self._task.calls_per_turn + 1)
        self._replies += 1
        if call == self._task.calls_per_turn:
            return [{"type": "text", "text": f"Part {turn + 1} is done."}]
        n = self._replies
        args = {"file_path": f"src/module_{n}.py"}
        use: Json = {"type": "tool_use", "id": f"toolu_{n}", "name": "Read", "input": args}
        thinks = self._task.thinks == "always" or (self._task.thinks == "first" and not call)
        return [{"type": "thinking", "thinking": f"Number {n} is next."}, use] if thinks else [use]


def is_side_request(body: Json) -> bool:
    """True if a layer asks, and not the user."""
    last = body["messages"][-1]["content"]
    texts = [last] if isinstance(last, str) else [b["text"] for b in last if b["type"] == "text"]
    return not body.get("tools") or any(parse_directive(text) for text in texts)


def find_last_text(body: Json) -> str:
    """The last text that does not come from the model or from a tool."""
    for message in reversed(body["messages"]):
        if message["role"] == "assistant":
            continue
        if isinstance(content := message["content"], str):
            return content
        if texts := [block["text"] for block in content if block["type"] == "text"]:
            return str(texts[-1])
    return ""


@dataclass(frozen=True)
class LadderRow:
    """One action of a layer."""

    request: int  # Requests of the conversation before it
    tokens: int  # Of context then
    layer: str
    text: str
    after: int | None = None  # Tokens of context afterwards, where it changed the view


@dataclass
class LadderLog:
    """What the layers of one session did."""

    rows: list[LadderRow] = field(default_factory=list)
    path: Path = Path()  # The file that the session wrote
    requests: int = 0
    most: int = 0
    forks: int = 0
    cold: int = 0  # Forks of a prefix that was not in the cache any more
    shares: list[float] = field(default_factory=list)  # Of the others: read, of what the parent had cached
    marks: int = 0  # The most cache marks of a request
    buried: int = 0  # Requests in which the user's question was not the last text
    refused: int = 0  # Requests that the provider refused
    _reason: str = ""  # Of the summary that is on its way

    def add_event(self, event: Event, tokens: int) -> None:
        """Add a row if a layer acted; `tokens`: of context now."""
        if isinstance(event, Progress) and event.by == COMPACTION and not event.done:
            self._reason = self._reason or event.said
        if (acted := read_event(event)) is None:
            return
        after, (layer, text) = None, acted
        if isinstance(event, Compacted):
            tokens, after = event.tokens_before, event.tokens_after
            text, self._reason = f"{text}: {self._reason}" if self._reason else text, ""
        elif isinstance(event, Cleared):
            after = tokens - event.tokens
        self.rows.append(LadderRow(self.requests, tokens, layer, text, after))

    def read_wire(self, rows: Sequence[LedgerRow]) -> None:
        """Take in what the provider saw."""
        cached = 0
        for row in (row for row in rows if row.status < 400):
            self.marks = max(self.marks, row.breakpoints)
            used = row.tokens
            if row.source == MAIN:
                cached = used.cache_read + used.cache_write_5m + used.cache_write_1h
            elif row.source.startswith(FORK) and not row.source.endswith(PLAIN):
                self.forks += 1
                self.cold += not row.breakpoints
                self.shares += [used.cache_read / cached] if row.breakpoints else []

    def list_actions(self, layer: str) -> list[int]:
        """The requests before which this layer acted."""
        return [row.request for row in self.rows if row.layer == layer]

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
        case Compacted(by, trigger):
            return "3 pays" if by == "notes" else "4", f"{by} ({trigger})"
        case Progress(NotesUpdater.label, said, True):
            return "3", said
        case Progress(NotesCompaction.label, said, True):
            return "3 declines", said
        case Forked("extract"):
            return "5", f"{event.steps} steps, {event.usage.prompt:,} tokens read"
        case CacheBroke(expected=False):
            cause = "silence" if event.why.startswith("idle for") else "cache"
            return cause, f"{event.before:,} tokens read before, {event.after:,} now: {event.why}"
        case Failed(by, cause):
            return "failed", f"{by}: {cause}"
    return None


async def drive(
    folder: Path, task: LongTask, connect: Callable[[str, str], Model] | None = None
) -> LadderLog:
    """A session that does this task, over HTTP to the simulator.

    `connect`: makes the model from the address of the simulator and its name, in place of our own client.
    """
    project, log, clock = folder / "project", LadderLog(), BenchmarkClock(MORNING)
    _write_files(project / "src", task)
    replies = FileReader(task, clock)
    async with Simulator(replies=replies, clock=clock, window=task.window) as simulator:
        environ = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "ANTHROPIC_API_KEY": "k"}
        environ["ANTHROPIC_BASE_URL"] = simulator.url
        options: Json = {"home": folder / "home", "environ": environ, "clock": clock, "interactive": True}
        fixed = {"window": task.window, "maxSteps": task.calls_per_turn + 10}
        settings = {**fixed, **task.settings}
        model = connect(simulator.url, task.model) if connect else task.model
        async with Session(model, project, settings=settings, **options) as session:

            def note(event: Event) -> None:
                log.add_event(event, session.request.tokens)
                log.requests += isinstance(event, Replied) and event.source == "main"

            session.subscribe(note)
            replies.session = session
            for turn in range(1, -(-task.calls // task.calls_per_turn) + 1):
                replies.question = f"Go on with part {turn} of the review, file by file."
                await session.ask(replies.question)
                await session.tray.drain(60)
                log.most = max(log.most, session.request.tokens)
                clock.advance(SILENCE_SECONDS if turn % task.long_every else LONG_SILENCE)
            log.path = session.path
        log.refused, log.buried = simulator.ledger.total.errors, replies.buried
        log.read_wire(list(simulator.ledger.rows))
    return log


def _write_files(folder: Path, task: LongTask) -> None:
    """One file for each call."""
    folder.mkdir(parents=True)
    for n in range(task.calls + task.calls // task.calls_per_turn + 1):
        lines = (f"def step_{n}_{i}(value):  # what part {n} does with number {i}\n" for i in count())
        text = "".join(islice(lines, task.length // 50))[: task.length]
        (folder / f"module_{n}.py").write_text(text, encoding="utf-8")


def _make_prediction_table(where: str, log: LadderLog, predicted: Sequence[PredictedAction]) -> Table:
    table = Table(
        f"what replay predicts, {where}", "layer", "session", "replay", "before the same requests"
    )
    for layer in ("2", "3 pays", "4"):
        ours, theirs = log.list_actions(layer), [one.request for one in predicted if one.layer == layer]
        table.add(layer, len(ours), len(theirs), describe_difference(ours, theirs))
    table.notes.append("the file of the session, replayed under the same policy")
    return table


def _make_action_table(where: str, log: LadderLog) -> Table:
    """One row for each change of the view, and one for all that happened beside it between two of them."""
    table = Table(f"which layer acted when, {where}", "request", "tokens", "after", "layer", "why")
    for beside, alike in groupby(log.rows, lambda row: row.after is None):
        rows = list(alike)
        for some in [rows] if beside else [[row] for row in rows]:
            times = Counter(row.layer for row in some)
            table.add(
                _span(some[0].request, some[-1].request),
                _span(some[0].tokens, some[-1].tokens),
                "" if beside else f"{some[0].after:,}",
                ", ".join(sorted(times)),
                _describe_beside(times) if len(some) > 1 else some[0].text,
            )
    return table


def _describe_beside(times: Counter[str]) -> str:
    return "; ".join(f"{LAYERS[layer]}: {n} times" for layer, n in sorted(times.items()))


def _make_sum_table(where: str, log: LadderLog) -> Table:
    sums = Table(f"totals, {where}", "layer", "times", "what")
    for layer, what in LAYERS.items():
        sums.add(layer, log.counts[layer], what)
    sums.add("forks", log.forks, "requests on the prefix of the conversation")
    sums.add("marks", log.marks, "the most cache marks of a request")
    sums.add("question", log.buried, "requests in which the user's question did not stand last")
    sums.notes.append(
        f"{log.requests:,} requests of the conversation, {log.refused} refused; at the end of a turn at "
        f"most {log.most:,} tokens"
    )
    if log.shares:
        sums.notes.append(
            f"{len(log.shares)} forks read the cache: at least {min(log.shares):.1%} of the prefix that "
            "the conversation had marked"
        )
    if log.cold:
        sums.notes.append(f"{log.cold} forks asked without cache marks: the prefix was cold")
    return sums


def describe_difference(ours: Sequence[int], theirs: Sequence[int]) -> str:
    """Before which requests both acted, or how far apart they are."""
    if list(ours) == list(theirs):
        return "all" if ours else ""
    if len(ours) == len(theirs):
        apart = max(abs(one - other) for one, other in zip(ours, theirs, strict=True))
        return f"at most {apart} apart"
    return f"before {_join(ours)} and before {_join(theirs)}"


def _join(numbers: Sequence[int]) -> str:
    return ", ".join(f"{number:,}" for number in numbers) or "none"


def _span(first: int, last: int) -> str:
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def run(quick: bool = False, runs: Sequence[LadderRun] = ()) -> list[Table]:
    chosen = runs or (RUNS if quick else (*RUNS, *LARGE))
    tables = list[Table]()
    for policy, calls, window in chosen:
        every = 12 if window <= REFERENCE_WINDOW else 45  # rarer than the window gets full
        task = LongTask(calls, window, {"policy": policy}, long_every=every)
        with tempfile.TemporaryDirectory() as name:
            log = anyio.run(drive, Path(name).resolve(), task)
            predicted = predict_actions(log.path, policy)
        where = f"{policy}: {calls:,} calls on {window:,}"
        tables += [_make_action_table(where, log), _make_sum_table(where, log)]
        tables.append(_make_prediction_table(where, log, predicted))
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
