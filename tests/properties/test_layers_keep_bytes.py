"""500 requests with layers 1 and 2 on: nothing already sent changes but by an edit that was announced."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio.lowlevel
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import make_parts
from properties.layered import Content, Counting, Laws

from sevenfold.cache.ledger import Ledger
from sevenfold.cache.prices import Prices
from sevenfold.core.errors import Overloaded, PromptTooLong, StepLimitReached
from sevenfold.core.messages import Image, Json, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import Frame, Request, Ttl
from sevenfold.core.tokens import Thresholds
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.layers.ladder import LayerRole, make_standard_layers
from sevenfold.layers.parts import LayerParts
from sevenfold.settings.layers import MicroSettings, ToolResultSettings
from sevenfold.settings.schema import Settings
from sevenfold.streaming import RetryPolicy, answer_interrupted_calls
from sevenfold.testing import FakeClock, NoAccounts, Postponed, ScriptedModel
from sevenfold.turn import Turn

REQUESTS = 500
LARGEST = 300_000
PRICES = Prices.load()
TOOLS = ("Read", "Read", "Bash", "Grep", "Glob", "Edit", "Agent", "mcp__web__get")


def _pool() -> dict[str, str]:
    """Texts to cut results from: code, Chinese, and one long line of JSON."""
    rng = random.Random(7)
    code = [f"    value_{i} = call_{rng.randrange(999)}(argument, {i})\n" for i in range(8_000)]
    chinese = [f"第{i}行：内容很长，编号{rng.randrange(9_999)}。\n" for i in range(20_000)]
    data = '{"rows": [' + ", ".join(str(rng.random()) for _ in range(16_000)) + "]}"
    return {"code": "".join(code), "chinese": "".join(chinese), "data": data}


POOL = _pool()


class Killed(BaseException):
    """The process is gone: nothing of it gets to do anything any more."""


@dataclass
class Giving:
    """Tools that answer with anything from nothing to 300,000 characters, and take their time."""

    rng: random.Random
    laws: Laws
    clock: FakeClock
    log: Transcript
    room: int
    """Characters of the longest result of a tool that bounds itself."""

    def safe(self, use: ToolUse) -> bool:
        return True

    async def call(self, use: ToolUse) -> ToolResult:
        while self.log.view[-1].by != "model":  # what takes long ends after the reply has
            await anyio.lowlevel.checkpoint()
        self.clock.time += self.rng.choice([0.1, 3, 30, 400])
        content = self._content(use)
        self.laws.given(use.id, content)
        return ToolResult(use.id, content, self.rng.random() < 0.1)

    def _content(self, use: ToolUse) -> Content:
        kind = self.rng.random()
        if kind < 0.03:
            return "" if kind < 0.01 else " \n\t\n" if kind < 0.02 else ()
        if kind < 0.06:
            return (Text("a picture"), Image({"type": "base64", "data": "AAAA"}))
        longest = self.rng.choice([400, 4_000, 4_000, 40_000, LARGEST])
        if use.name == "Read":
            longest = min(longest, self.room)
        text = POOL[self.rng.choice(["code", "code", "chinese", "data"])]
        length = self.rng.randint(0, longest)
        start = self.rng.randrange(max(1, len(text) - length))
        cut = text[start : start + length]
        return (Text(cut[: length // 2]), Text(cut[length // 2 :])) if kind < 0.1 else cut


@dataclass
class Life:
    """One conversation over 500 requests, with its deaths, resumes, forks and changes of mind."""

    seed: int
    folder: Path
    laws: Laws = field(default_factory=Laws)
    clock: FakeClock = field(default_factory=FakeClock)
    resumes: int = 0
    killed: int = 0
    """How often it died while it wrote down what had been cleared."""
    forks: int = 0
    safe: int = 0
    """Bytes of the log when the last request went out: what a crash cannot take any more."""

    def __post_init__(self) -> None:
        self.rng = rng = random.Random(self.seed)
        window = rng.choice([60_000, 200_000, 1_000_000])
        self.able = Capabilities(
            window,
            window // 8,
            binds_thinking=rng.random() < 0.5,
            drops_thinking=rng.random() < 0.2,
            edits_cache=rng.random() < 0.25,
        )
        self.laws.loses_thinking = self.able.loses_thinking
        self.numbers_calls = rng.random() < 0.25 and not self.able.edits_cache
        """Some models count the calls of each reply from one, so that ids come again and again."""
        ttl: Ttl = rng.choice(["5m", "1h"])
        self.frame = Frame(rng.choice(["claude-opus-4-5", "nobody-knows"]), ("rules " * 400,), ttl=ttl)
        self.limits, self.micro = self._settings(), self._micro()
        self.counting, self.names = Counting(), iter(range(10**9))
        self.file = self.folder / "conversation.jsonl"
        self.transcript = Transcript(self.clock.now, self._write)
        self.model = ScriptedModel(repeat(self._reply), self.able, self.frame.model)
        self._open()

    def _settings(self) -> ToolResultSettings:
        rng = self.rng
        return ToolResultSettings(
            most_characters=rng.choice([5_000, 50_000, 200_000]),
            limits=rng.choice([{}, {"Bash": 1_000}, {"Grep": 250_000}]),
            most_per_message=rng.choice([20_000, 200_000]),
            preview_bytes=rng.choice([0, 7, 2_000]),
        )

    def _micro(self) -> MicroSettings:
        return MicroSettings(
            policy=self.rng.choice(["cost", "cost", "plain"]),
            keep_recent=self.rng.choice([1, 5]),
            margin=self.rng.choice([1.0, 4.0]),
            least_freed=self.rng.choice([1_000, 30_000]),
        )

    def _write(self, lines: bytes) -> None:
        """Append; now and then the process dies while it writes down what was cleared."""
        records = lines.splitlines(keepends=True)
        dies = len(records) > 1 and b'"by":"Microcompaction"' in lines and self.rng.random() < 0.2
        with self.file.open("ab") as file:
            file.writelines(records[: self.rng.randrange(len(records))] if dies else records)
        if dies:
            raise Killed

    def _parts(self, ledger: Ledger) -> LayerParts:
        def expect(why: str) -> None:
            self.laws.announced(why)
            ledger.expect(why)

        return make_parts(
            able=self.able,
            path=self.file,
            folder=self.folder / "tool-results",
            emit=self.laws.heard,
            expect=expect,
            settings=Settings(tool_results=self.limits, micro=self.micro),
        )

    def _open(self) -> None:
        """Begin to talk: a new process has new layers and a new ledger."""
        ledger = Ledger(PRICES, self.clock, self.laws.heard)
        ledger.recall(self.frame, self.transcript)
        self.parts = self._parts(ledger)
        self.turn = self._turn("main", self.model, self.transcript)
        self.turn.accounts = ledger

    def _turn(self, role: LayerRole, model: ScriptedModel, transcript: Transcript) -> Turn:
        return Turn(
            model=model,
            frame=self.frame,
            tools=Giving(self.rng, self.laws, self.clock, transcript, self.able.window // 2),
            layers=make_standard_layers(role, self.parts),
            transcript=transcript,
            background=Postponed(),
            accounts=NoAccounts(),
            clock=self.clock,
            emit=self.laws.heard,
            thresholds=Thresholds.of(self.able.window, self.able.max_output),
            retry=RetryPolicy(chance=lambda: 1.0),
            source=role,
        )

    # --- what the model says ------------------------------------------------------------------------

    def _reply(self, request: Request) -> Reply:
        self.laws.asked(request)
        self.safe = self.file.stat().st_size
        if (chance := self.rng.random()) < 0.015:
            raise Overloaded("busy") if chance < 0.01 else PromptTooLong("too long")
        usage = self.counting.usage(request, self.clock.now())
        self.clock.time += self.rng.uniform(1, 20)
        self.counting.answered(self.clock.now())
        said = assistant(*self._thoughts(), Text("let me see"), *self._uses(0.85))
        return Reply(said, usage, "tool_use" if said.tool_uses else "end_turn")

    def _thoughts(self) -> tuple[Thinking, ...]:
        return (Thinking(f"hm {next(self.names)}", "sig"),) if self.rng.random() < 0.3 else ()

    def _uses(self, chance: float) -> tuple[ToolUse, ...]:
        many = self.rng.choice([1, 1, 1, 5]) if self.rng.random() < chance else 0
        return tuple(self._use(n) for n in range(many))

    def _use(self, n: int) -> ToolUse:
        id = f"call_{n}" if self.numbers_calls else f"toolu_{next(self.names)}"
        args: Json = {"file_path": f"src/f{self.rng.randrange(30)}.py"}
        return ToolUse(id, self.rng.choice(TOOLS), args)

    # --- what happens to it -------------------------------------------------------------------------

    async def live(self) -> None:
        while self.laws.requests < REQUESTS:
            self.clock.time += self.rng.choice([5, 60, 290, 310, 3_000, 3_700, 90_000])
            try:
                await self._go_on()
            except Killed:
                self.killed += 1
                self._resume(self.file.read_bytes())

    async def _go_on(self) -> None:
        with suppress(PromptTooLong, StepLimitReached):
            await self.turn.run(user(self.rng.choice(["go on", "fix it", "word " * 400])))
        if self.rng.random() < 0.2:
            await self._fork()
        if self.rng.random() < 0.3:  # it dies anywhere behind its last request
            whole = self.file.read_bytes()
            self._resume(whole[: self.rng.randint(self.safe, len(whole))])

    async def _fork(self) -> None:
        self.forks += 1
        child = Transcript.on(self.transcript.view, self.clock.now)

        def reply(request: Request) -> Reply:
            self.laws.fork(request)
            said = assistant(Text("aside"), *self._uses(0.7))
            return Reply(said, stop="tool_use" if said.tool_uses else "end_turn")

        model = ScriptedModel([reply, reply, reply, "done"], self.able, self.frame.model)
        await self._turn("fork", model, child).run(user("sum it up"))

    def _resume(self, left: bytes) -> None:
        """A new process, with other settings, goes on from what was left."""
        self.resumes += 1
        kept = left[: left.rfind(b"\n") + 1]
        assert len(kept) >= self.safe
        self.file.write_bytes(kept)
        self.laws.resumed()
        self.transcript = Transcript.load(kept, self.clock.now, self._write)
        assert self.transcript.problems == []
        if unanswered := answer_interrupted_calls(self.transcript.view):
            self.transcript.add(unanswered, by="resume")
        self.limits, self.micro = self._settings(), self._micro()
        self._open()


def lived(seed: int) -> Life:
    with TemporaryDirectory() as folder:
        life = Life(seed, Path(folder))
        anyio.run(life.live)
        stored, here = (Transcript.load(life.file.read_bytes(), life.clock.now).view, life.transcript.view)
        assert (list(stored), stored.pins) == (list(here), here.pins), "the log holds all there is"
        assert msgspec.json.encode(stored.marks) == msgspec.json.encode(here.marks)
        life.laws.shows_what_is_there(here)
        return life


def much_happened(life: Life) -> bool:
    """So that a test of what may not happen cannot pass because nothing did."""
    laws = life.laws
    acted = laws.stored > 50 and laws.cleared + laws.deleted > 0 and len(laws.breaks) > 3
    return acted and laws.requests >= REQUESTS and life.resumes > 3 and life.forks > 2


@settings(max_examples=4)
@given(st.integers(0, 10**9))
def test_nothing_that_was_sent_changes_but_by_an_announced_edit(seed: int) -> None:
    assert much_happened(lived(seed))


@pytest.mark.soak
def test_a_hundred_lives() -> None:
    for seed in range(100):
        assert much_happened(lived(seed)), seed
