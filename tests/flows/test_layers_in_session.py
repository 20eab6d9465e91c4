"""Layers 1 and 2 in whole sessions: real tools, real files, our client on the simulator's port."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import anyio
import pytest
from flows.test_session import Place
from flows.wire import SteadySimulator

from sevenfold.core.events import CacheBroke, Cleared, Event, Sending, Stored
from sevenfold.core.messages import Json, ToolResult, ToolUse, assistant
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import encode_prefix
from sevenfold.core.transcript import Edit, Transcript, View
from sevenfold.layers.l1_tool_results.preview import parse_envelope
from sevenfold.layers.l2_microcompaction.provider import PARAMETER
from sevenfold.session.session import Session
from sevenfold.settings.layers import LATCHED
from sevenfold.simulator import ManualClock, Simulator
from sevenfold.simulator.ledger import LedgerRow
from sevenfold.storage.jsonl import read_log
from sevenfold.testing import FakeClock, ScriptedModel
from sevenfold.testing.doubles import Line

pytestmark = pytest.mark.anyio
MODEL = "claude-sonnet-4-5"
ALONE = {"notes": False}
"""No layer but the first two asks the model anything."""
RUNS_SEQ = {"permissions": {"allow": ["Bash(seq:*)"]}, "flags": ALONE}


class Clock(ManualClock):
    """The simulator's clock, for the session as well; waiting moves it."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


class Provider:
    """The simulator, whose model says what a function makes of each request."""

    def __init__(self, says: Callable[[Json], Sequence[Json]]) -> None:
        self._says, self.clock = says, Clock()
        self.shown: list[dict[str, str]] = []
        """The tool results of each of the first requests, as they came over the wire."""

    def __call__(self, body: Json) -> Sequence[Json]:
        if len(self.shown) < 10:
            self.shown.append(results(body))
        self.clock.advance(10)
        return self._says(body)


@asynccontextmanager
async def provided(folder: Path, provider: Provider) -> AsyncIterator[tuple[Place, Simulator]]:
    async with SteadySimulator(replies=provider, clock=provider.clock) as simulator:
        here = Place(folder, simulator.url)
        simulator.events = here.events
        yield here, simulator


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def call(id: str, name: str, **args: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": args}


def results(body: Json) -> dict[str, str]:
    """What the provider was shown of each tool result."""
    blocks = [b for m in body["messages"] for b in m["content"] if b["type"] == "tool_result"]
    return {b["tool_use_id"]: as_text(b["content"]) for b in blocks}


def as_text(content: str | list[Json]) -> str:
    return content if isinstance(content, str) else "".join(b["text"] for b in content)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def kept(folder: Path) -> dict[Path, str]:
    """The files of a folder, and what each holds; they are for this user alone."""
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    return {path: sha(path.read_text("utf-8")) for path in folder.iterdir()}


# --- layer 1 --------------------------------------------------------------------------------------------


@pytest.mark.real
async def test_a_long_result_is_whole_on_disk_and_the_model_reads_it_back(tmp_path: Path) -> None:
    printed = "\n".join(str(n) for n in range(1, 35_186))
    assert 200_000 <= len(printed) < 200_010

    def says(body: Json) -> Sequence[Json]:
        shown = results(body)
        if "count" not in shown:
            return [call("count", "Bash", command="seq 1 35185")]
        if "look" not in shown:
            pointer = parse_envelope(shown["count"])
            assert pointer is not None
            return [call("look", "Read", file_path=pointer.path, offset=20_000, limit=3)]
        return [text("the twenty thousandth line is 20000")]

    async with (
        provided(tmp_path, provider := Provider(says)) as (here, simulator),
        here.session(settings=RUNS_SEQ, clock=provider.clock) as session,
    ):
        await session.ask("count")

    [event] = here.of(Stored)
    path = Path(event.path)
    assert kept(session.folder / "tool-results") == {path: sha(printed)}
    envelope = provider.shown[1]["count"]
    assert envelope.startswith("<persisted-output>\nToo long to show here: 200,00")
    assert f"{path}\nTo see more, Read that file with offset and limit, or Grep in it." in envelope
    assert "The first 527 lines:\n1\n2\n3\n" in envelope
    assert len(envelope) < 2_500
    assert provider.shown[2]["look"].startswith("20000\t20000\n20001\t20001\n20002\t")
    assert provider.shown[2]["count"] == envelope
    assert simulator.ledger.total.errors == 0


class Fetch:
    """A tool of somebody else's, which gives as many characters as it is asked for."""

    name = "Fetch"
    schema: ClassVar[Json] = {
        "name": "Fetch",
        "description": "Gives so many characters.",
        "input_schema": {"type": "object", "properties": {"characters": {"type": "integer"}}},
    }

    def safe(self, args: Json) -> bool:
        return True

    async def run(self, args: Json, use_id: str) -> str:
        return given(use_id, args["characters"])


def given(use_id: str, characters: int) -> str:
    return (f"{use_id}: " + "one two\n" * characters)[:characters]


FETCHES: Json = {"permissions": {"allow": ["Fetch"]}, "flags": ALONE}


def answers(view: View) -> list[ToolResult]:
    return [result for placed in view for result in placed.message.results]


HOSTILE = ("../../etc/passwd", "a/b\\c:d*?", "con", "", "." * 40, "ü" * 300, "x\x00y\nz", "-rf ~")


async def test_of_nine_results_the_right_ones_go_to_disk_whatever_their_ids(tmp_path: Path) -> None:
    """Eight of 29,000 and one of 200,000: the long one by itself, then the message by its sum."""
    sizes = {**dict.fromkeys(HOSTILE, 29_000), "the long one": 200_000}
    uses = [ToolUse(id, "Fetch", {"characters": n}) for id, n in sizes.items()]
    again = [ToolUse("later", "Fetch", {"characters": 29_000})]
    here = Place(tmp_path)
    options: Json = {"tools": [Fetch()], "settings": {"permissions": {"allow": ["Fetch"]}, "flags": ALONE}}
    model = ScriptedModel([assistant(*uses), "so much"])
    async with here.session(model, **options) as session:
        await session.ask("fetch")
        before, id = encode_prefix(session.request), session.id

    stored = {event.use_id: Path(event.path) for event in here.of(Stored)}
    assert list(stored) == ["the long one", HOSTILE[0], HOSTILE[1]], "as few as will do"
    whole = {path: sha(given(use_id, sizes[use_id])) for use_id, path in stored.items()}
    assert kept(session.folder / "tool-results") == whole

    tighter = {"toolResults": {"mostCharacters": 1_000, "mostPerMessage": 2_000}}
    model = ScriptedModel([assistant(*again), "so much"])
    options["settings"] = {**FETCHES, **tighter}
    async with here.session(model, resume=id, **options) as session:
        assert encode_prefix(session.request) == before
        await session.ask("and once more")
        assert encode_prefix(session.request)[: len(before)] == before, "what was decided stands"
    assert here.of(Stored)[-1].use_id == "later", "what is new is decided anew"


# --- layer 2 --------------------------------------------------------------------------------------------


async def test_nothing_is_cleared_that_the_model_has_not_had_a_chance_to_read(tmp_path: Path) -> None:
    """Ten results in one message, and the cache went cold while the last of them was fetched."""
    clock = FakeClock(2_000_000_000.0)

    class Slow(Fetch):
        async def run(self, args: Json, use_id: str) -> str:
            clock.time += 60
            return given(use_id, args["characters"])

    sizes = {f"u{n}": 9_000 for n in range(10)}
    uses = [ToolUse(id, "Fetch", {"characters": n}) for id, n in sizes.items()]
    model = ScriptedModel([assistant(*uses), "so much", "fine"])
    here = Place(tmp_path)
    settings = {**FETCHES, "micro": {"tools": ["Fetch"]}}
    async with here.session(model, clock=clock, tools=[Slow()], settings=settings) as session:
        await session.ask("fetch")
        whole = {id: given(id, n) for id, n in sizes.items()}
        assert {r.tool_use_id: r.text for r in answers(model.requests[1].view)} == whole
        assert here.of(Cleared) == []
        clock.time += 400
        await session.ask("and now?")
    assert [len(event.use_ids) for event in here.of(Cleared)] == [5], "now it has been read"


async def test_every_marker_of_a_batch_names_a_path_that_can_be_read(tmp_path: Path) -> None:
    clock = FakeClock(2_000_000_000.0)
    steps = [assistant(ToolUse(f"u{n}", "Fetch", {"characters": 9_000})) for n in range(9)]
    model = ScriptedModel([*steps, "so much", "fine"])
    here = Place(tmp_path)
    settings = {**FETCHES, "micro": {"tools": ["Fetch"]}}
    async with here.session(model, clock=clock, tools=[Fetch()], settings=settings) as session:
        await session.ask("fetch")
        clock.time += 400
        await session.ask("and now?")
        shown = {r.tool_use_id: r.text for r in answers(session.view)}

    [event] = here.of(Cleared)
    assert len(event.use_ids) == 4
    for id in event.use_ids:
        found = re.fullmatch(r"\(cleared: [\d,]+ tokens, kept in (.+) lines (\d+)-(\d+)\)", shown[id])
        assert found
        lines = (await anyio.Path(found[1]).read_text(encoding="utf-8")).split("\n")
        assert len("\n".join(lines[int(found[2]) - 1 : int(found[3])])) == 9_000


# --- five hundred requests ------------------------------------------------------------------------------


class Working:
    """A model that reads files all day, runs a long command now and then, and reports every 25 steps."""

    def __init__(self) -> None:
        self.step = 0

    def __call__(self, body: Json) -> Sequence[Json]:
        self.step += 1
        n, id = self.step, f"toolu_{self.step}"
        if n % 25 == 0:
            return [text(f"done with {n} steps")]
        if n % 20 == 7:
            return [call(id, "Bash", command=f"seq {n} {n + 9_000}")]
        return [call(id, "Read", file_path=f"src/module_{n * 7 % 60}.py")]


def broke(before: LedgerRow, row: LedgerRow) -> bool:
    """Whether more than a twentieth of what the request before had sent was not sent again."""
    assert row.shared is not None
    sent = before.tokens
    total = sent.input + sent.cache_read + sent.cache_write_5m + sent.cache_write_1h
    return row.shared.tokens < 0.95 * total


async def test_of_500_requests_few_break_the_prefix_and_all_of_those_were_announced(tmp_path: Path) -> None:
    async with provided(tmp_path, provider := Provider(Working())) as (here, simulator):
        (here.project / "src").mkdir()
        for n in range(60):
            source = f"def f{n}(x):\n    return x + {n}\n\n\n" * 20
            (here.project / f"src/module_{n}.py").write_text(source, encoding="utf-8")
        alone = {**RUNS_SEQ, "flags": {**ALONE, "compact": False}}
        async with here.session(settings=alone, clock=provider.clock) as session:
            for turn in range(20):
                provider.clock.advance(400 if turn in (9, 15) else 30)
                await session.ask("go on")

    rows, sendings = list(simulator.ledger.rows), here.of(Sending)
    assert (len(rows), len(sendings), simulator.ledger.total.errors) == (500, 500, 0)
    broken = [n for n in range(1, 500) if broke(rows[n - 1], rows[n])]
    assert 1 <= len(broken) <= 3
    assert all(sendings[n].expected for n in broken)
    assert [sendings[n].why for n in broken] == [event.why for event in here.of(Cleared)]
    assert all(event.expected for event in here.of(CacheBroke))
    changed = [n for n, row in enumerate(rows) if row.shared and row.shared.diverged]
    assert changed == broken, "all other requests begin with all of the one before"


# --- a process that is killed -----------------------------------------------------------------------------

WORKER = Path(__file__).with_name("working.py")


class Said(NamedTuple):
    """What the worker says of a request: the last entry of its log, and what it begins with."""

    session: str
    last: int
    beginnings: tuple[str, ...]


def killed_after(requests: int, folder: Path, resume: str) -> list[Said]:
    """Let the worker send this many requests and kill it; what it said of them, and of later ones."""
    command = [sys.executable, str(WORKER), str(folder / "project"), str(folder / "home"), resume]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout
        lines = [worker.stdout.readline() for _ in range(requests)]
        worker.kill()
        lines += worker.stdout.read().splitlines(keepends=True)
    told = [line.split() for line in lines if line.endswith("\n")]
    return [Said(session, int(last), tuple(parts)) for session, last, *parts in told]


@pytest.mark.real
def test_a_killed_process_goes_on_with_the_very_bytes_it_had_sent(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    said: list[Said] = []
    for requests in (40, 1, 23, 30):
        said += killed_after(requests, tmp_path, said[-1].session if said else "")
    [path] = (tmp_path / "home").rglob(f"{said[0].session}.jsonl")
    log = Transcript.load(read_log(path), lambda: 0.0)
    edits = [e.id for e in log.entries if isinstance(e.what, Edit)]

    registered = 0
    for before, after in pairwise(said):
        if after.beginnings[: len(before.beginnings)] != before.beginnings:
            assert any(before.last < id <= after.last for id in edits), "a break without an edit"
            registered += 1
    assert len(said) >= 94
    assert 1 <= registered <= len(edits)
    shown = [r.text for p in log.view for r in p.message.results]
    pointers = [pointer for text in shown if (pointer := parse_envelope(text))]
    assert len(pointers) > 5
    for pointer in pointers:
        assert len(Path(pointer.path).read_text("utf-8")) == pointer.characters


# --- switches -------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """How one mechanism is brought to act, and how one sees that it has."""

    flag: str
    acted: Callable[[Session, Sequence[Event]], bool]
    able: Capabilities = Capabilities()
    sizes: tuple[int, ...] = (60_000,)
    """Characters of the results of each step."""
    steps: int = 1


def stored(session: Session, events: Sequence[Event]) -> bool:
    return any(isinstance(event, Stored) for event in events)


def cleared(session: Session, events: Sequence[Event]) -> bool:
    return any(isinstance(event, Cleared) and event.by == "cost" for event in events)


def deleted(session: Session, events: Sequence[Event]) -> bool:
    return len(session.view.pins) > 0


def asks_the_provider(session: Session, events: Sequence[Event]) -> bool:
    return PARAMETER in session.request.frame.params


CASES = (
    Case("tool_results", stored),
    Case("aggregate_budget", stored, sizes=(45_000,) * 5),
    Case("micro_cost", cleared, sizes=(9_000,), steps=30),
    Case("micro_cache_edit", deleted, Capabilities(edits_cache=True), (5_000,), 30),
    Case("micro_api", asks_the_provider, Capabilities(context_management=True)),
)


class Talk:
    """Sessions in which a mechanism has every reason to act."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.here, self.case, self.asked = Place(folder), case, 0

    async def ask(self, on: bool, resume: str | None = None) -> tuple[bool, str]:
        """Whether the mechanism has acted, and the id of the session."""
        case, seen = self.case, len(self.here.events)
        model = ScriptedModel([*map(self._step, range(case.steps)), "done"], case.able)
        self.asked += 1
        settings = {
            "permissions": {"allow": ["Fetch"]},
            # The provider is asked to clear only where we do not clear by cost ourselves.
            "flags": {**ALONE, "micro_cost": case.flag != "micro_api", case.flag: on},
            "micro": {"tools": ["Fetch"], "margin": 1, "leastFreed": 1_000},
        }
        options: Json = {"settings": settings, "tools": [Fetch()]}
        async with self.here.session(model, resume=resume, **options) as session:
            await session.ask("go on")
            return case.acted(session, self.here.events[seen:]), session.id

    def _step(self, n: int) -> Line:
        uses = (
            ToolUse(f"u{self.asked}_{n}_{i}", "Fetch", {"characters": size})
            for i, size in enumerate(self.case.sizes)
        )
        return assistant(*uses)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.flag)
async def test_a_flag_switches_its_mechanism_and_only_what_shapes_every_request_is_held(
    tmp_path: Path, case: Case
) -> None:
    on, off = tmp_path / "on", tmp_path / "off"
    on.mkdir()
    off.mkdir()
    acted, id = await Talk(on, case).ask(on=True)
    assert acted
    talk = Talk(off, case)
    acted, id = await talk.ask(on=False)
    assert not acted
    acted, _ = await talk.ask(on=True, resume=id)
    assert acted == (case.flag not in LATCHED), "what every request begins with stays"
