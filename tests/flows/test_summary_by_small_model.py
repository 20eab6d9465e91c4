"""On a real wire: a summary that pays is written by the small model when the user speaks, and by the model
of the conversation in the middle of a task or where the small model fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import pytest
from flows.test_session import Place
from flows.wire import SteadySimulator

from benchmarks.ladder.run import is_side_request
from sevenfold.core.events import CacheBroke, Compacted, Failed, SideWorkChosen
from sevenfold.models.anthropic import AnthropicSdk
from sevenfold.offline import encode_reply
from sevenfold.simulator import LedgerRow, ManualClock, Simulator, parse_steps

pytestmark = pytest.mark.anyio
Json = dict[str, Any]
MODEL, SMALL = "claude-opus-4-8", "claude-haiku-4-5"
WINDOW, CALLS = 40_000, 16
"""Sizes shrink with the window: 18,000 tokens when the user speaks, 28,000 in the middle of a task."""
FACT = "Never touch the table layout of the ledger."
NO_SIDE_WORK = {"notes": False, "extraction": False, "recall": False, "dream": False}
SETTINGS: Json = {"window": WINDOW, "flags": NO_SIDE_WORK, "maxSteps": CALLS + 10}


@dataclass
class Worker:
    """A model that reads a file `calls` times before it answers; what layers ask is answered by rule."""

    calls: int = CALLS
    bodies: list[Json] = field(default_factory=list)
    done: int = 0

    def __call__(self, body: Json) -> Any:
        self.bodies.append(body)
        if is_side_request(body):
            return encode_reply(body)
        self.done += 1
        if self.done % (self.calls + 1) == 0:
            return [{"type": "text", "text": "This part is done."}]
        args = {"file_path": "rows.py", "offset": self.done}
        return [{"type": "tool_use", "id": f"toolu_{self.done}", "name": "Read", "input": args}]

    @property
    def side(self) -> list[Json]:
        return [body for body in self.bodies if is_side_request(body)]


@dataclass
class Wire:
    here: Place
    simulator: Simulator
    worker: Worker

    async def work(self, *asks: str, model: Any = MODEL, **settings: Any) -> list[LedgerRow]:
        """A session with these questions; the requests for its summary."""
        async with self.here.session(model, settings={**SETTINGS, **settings}) as session:
            for text in asks:
                await session.ask(text)
        rows = [row for row in self.simulator.ledger.rows if row.source != "main"]
        assert all(broke.expected for broke in self.here.of(CacheBroke))
        return rows

    @property
    def shown(self) -> str:
        """All that the model of the conversation was sent last."""
        return str(next(body for body in reversed(self.worker.bodies) if not is_side_request(body)))


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wire]:
    worker = Worker()
    async with SteadySimulator(replies=worker, clock=ManualClock(), window=WINDOW) as simulator:
        here = Place(tmp_path, simulator.url)
        write_rows(here, 95)
        simulator.events = here.events
        yield Wire(here, simulator, worker)


def write_rows(here: Place, most: int) -> None:
    lines = (f"def step_{n}(value):  # what number {n} does with it\n" for n in range(most))
    (here.project / "rows.py").write_text("".join(lines), encoding="utf-8")


async def test_when_the_user_speaks_the_small_model_writes_it_from_a_record_of_its_own(wire: Wire) -> None:
    [asked] = await wire.work(FACT, "now test it")

    assert (asked.source, asked.model) == ("side:compact-plain", SMALL)
    assert asked.tokens.cache_write_5m == asked.tokens.cache_write_1h == asked.tokens.cache_read == 0
    [body] = wire.worker.side
    assert body["model"] == SMALL
    assert not body.get("tools")
    record = str(body["messages"])
    assert "cache_control" not in record
    assert FACT in record
    assert "bytes left out" in record, "what tools answered is cut"
    assert asked.tokens.input < 18_000

    [compacted] = wire.here.of(Compacted)
    assert (compacted.by, compacted.trigger) == ("summary", "price")
    [chosen] = wire.here.of(SideWorkChosen)
    assert (chosen.kind, chosen.way, chosen.model) == ("compact-plain", "lean", SMALL)
    assert chosen.lean < chosen.fork
    assert FACT in wire.shown


FAULTS = {
    "not found": '{"match": {"model": "%s"}, "times": 9, "error": {"status": 404}}',
    "no headings": '{"match": {"model": "%s"}, "times": 9, "reply": {"text": "Sure, I can do that."}}',
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_where_the_small_model_fails_the_model_of_the_conversation_writes_it(
    wire: Wire, fault: str
) -> None:
    wire.simulator.api.script.extend(parse_steps(FAULTS[fault] % SMALL))
    *failed, asked = await wire.work(FACT, "now test it")

    assert {(row.source, row.model) for row in failed} == {("side:compact-plain", SMALL)}
    assert len(failed) <= 2, "at most one nudge"
    assert (asked.source, asked.model, asked.status) == ("fork:compact", MODEL, 200)
    assert asked.hit_rate > 0.9, "the fork reads the prefix of the conversation"
    [compacted] = wire.here.of(Compacted)
    assert (compacted.by, compacted.trigger) == ("summary", "price")
    assert not wire.here.of(Failed)
    assert FACT in wire.shown


async def test_a_small_model_that_is_not_there_is_asked_once_in_a_session(wire: Wire) -> None:
    wire.simulator.api.script.extend(parse_steps(FAULTS["not found"] % SMALL))
    apart = {"repliesApart": 1}
    rows = await wire.work(FACT, "now test it", "and again", "and once more", compaction=apart)

    assert len(wire.here.of(Compacted)) >= 2
    assert [row.model for row in rows].count(SMALL) == 1
    assert {row.source for row in rows[1:]} == {"fork:compact"}


@pytest.mark.parametrize("spent", ["all", "no one knows"])
async def test_a_summary_that_the_user_waits_for_is_not_held_to_the_days_money(
    wire: Wire, spent: str
) -> None:
    wire.here.home.mkdir(exist_ok=True)
    if spent != "all":
        (wire.here.home / "spending.json").symlink_to(wire.here.home / "nowhere" / "spending.json")
    limit = 0.0 if spent == "all" else 5.0
    [asked] = await wire.work(FACT, "now test it", dailyBackgroundLimit=limit)

    assert (asked.source, asked.model, asked.status) == ("side:compact-plain", SMALL, 200)
    [compacted] = wire.here.of(Compacted)
    assert (compacted.by, compacted.trigger) == ("summary", "price")


async def test_where_the_small_model_has_no_key_the_turn_goes_on_without_it(wire: Wire) -> None:
    more = {"sideModel": "openai:gpt-5.4-nano", "compaction": {"repliesApart": 1}}
    rows = await wire.work(FACT, "now test it", "and again", "and once more", **more)

    assert len(wire.here.of(Compacted)) >= 2
    assert {(row.source, row.model) for row in rows} == {("fork:compact", MODEL)}
    tried, *later = wire.here.of(SideWorkChosen)
    assert tried.way == "lean"
    assert {(one.way, "needs a key" in one.why) for one in later} == {("fork", True)}


async def test_in_the_middle_of_a_task_a_fork_asks_the_model_of_the_conversation(wire: Wire) -> None:
    wire.worker.calls = 2 * CALLS
    [asked] = await wire.work(FACT, maxSteps=3 * CALLS)

    assert (asked.source, asked.model) == ("fork:compact", MODEL)
    assert asked.hit_rate > 0.9
    [body] = wire.worker.side
    assert body["tools"], "the prefix of the conversation, with its tools"
    [compacted] = wire.here.of(Compacted)
    assert (compacted.by, compacted.trigger) == ("summary", "price")
    assert not wire.here.of(SideWorkChosen)


async def test_without_the_setting_a_fork_asks_the_model_of_the_conversation(wire: Wire) -> None:
    [asked] = await wire.work(FACT, "now test it", compaction={"bySmallModel": False})

    assert (asked.source, asked.model) == ("fork:compact", MODEL)


async def test_a_client_of_the_callers_own_is_asked_for_its_own_model(wire: Wire) -> None:
    """Its window is its own, so the sizes are those of a large one. A short record is cheaper even so."""
    write_rows(wire.here, 5 * 95)
    wire.simulator.api.window = None
    async with anthropic.AsyncAnthropic(api_key="k", base_url=wire.simulator.url) as client:
        [asked] = await wire.work(FACT, "now test it", model=AnthropicSdk(client, MODEL))

    [chosen] = wire.here.of(SideWorkChosen)
    assert chosen.lean < chosen.fork
    assert (asked.source, asked.model) == ("side:compact-plain", MODEL)
    assert len(wire.here.of(Compacted)) == 1
