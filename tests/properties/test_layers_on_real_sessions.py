"""Layers 1 and 2 over every shared real session: the laws after each request, and after each death."""

from __future__ import annotations

import random
from collections import Counter
from itertools import cycle
from pathlib import Path

import pytest
from kit import make_parts
from msgspec.structs import replace
from properties.layered import Counting, Laws

from sevenfold.cache.ledger import Ledger
from sevenfold.cache.prices import Prices
from sevenfold.core.clock import run_without_waiting
from sevenfold.core.messages import Message, ToolResult
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import Frame, complete_changes
from sevenfold.core.tokens import Thresholds
from sevenfold.core.transcript import Entry, Id, Replace, Reply, Transcript, What
from sevenfold.layers.ladder import make_standard_layers
from sevenfold.layers.parts import LayerParts
from sevenfold.recordings.claude_code import read_session
from sevenfold.recordings.recorded_session import convert_recording
from sevenfold.settings.layers import ToolResultSettings
from sevenfold.settings.schema import Settings
from sevenfold.testing import FakeClock, FakeTools, NoAccounts, Postponed, ScriptedModel
from sevenfold.turn import Turn

SESSIONS = sorted((Path(__file__).parents[2] / "../shared/data/sessions").glob("*.jsonl.gz"))
FRAME = Frame("claude-opus-4-5", ("rules " * 3_000,))
PRICES = Prices.load()
DEATHS = 3
RECORDED = "recorded"
LIMITS = (
    ToolResultSettings(),
    ToolResultSettings(most_characters=2_000, most_per_message=6_000, preview_bytes=300),
)


class Replayed:
    """A recorded session through the layers: its words and its times, our view, a real folder."""

    def __init__(self, folder: Path, able: Capabilities) -> None:
        self.folder, self.file, self.able = folder, folder / "session.jsonl", able
        self.laws, self.counting = Laws(able.loses_thinking), Counting()
        self.clock = FakeClock(0.0)
        self.file.touch()
        self._ids: dict[Id, Id] = {}
        self._limits = cycle(LIMITS)
        self.open()

    def open(self) -> None:
        """A new process reads the log and goes on: new layers, a new ledger, other limits."""
        self.transcript = Transcript.load(self.file.read_bytes(), self.clock.now, self._write)
        self.ledger = Ledger(PRICES, self.clock, self.laws.heard)
        self.ledger.recall(FRAME, self.transcript)
        self.turn = Turn(
            model=ScriptedModel((), self.able),
            frame=FRAME,
            tools=FakeTools(),
            layers=make_standard_layers("main", self._parts()),
            transcript=self.transcript,
            background=Postponed(),
            accounts=NoAccounts(),
            clock=self.clock,
            emit=self.laws.heard,
            thresholds=Thresholds.of(self.able.window, self.able.max_output),
        )

    def _parts(self) -> LayerParts:
        def expect(why: str) -> None:
            self.laws.announced(why)
            self.ledger.expect(why)

        return make_parts(
            able=self.able,
            path=self.file,
            folder=self.folder / "tool-results",
            emit=self.laws.heard,
            expect=expect,
            settings=Settings(tool_results=next(self._limits)),
        )

    def _write(self, lines: bytes) -> None:
        with self.file.open("ab") as file:
            file.write(lines)

    def take(self, entry: Entry) -> None:
        self.clock.time = max(self.clock.time, entry.at)
        match entry.what:
            case Reply() as reply:
                self._replied(entry, reply)
            case Message() as message:
                self._add(entry, self._arriving(message) if entry.by == "tools" else message)
            case Replace() as compaction:
                self._compacted(entry, compaction)
            case _:
                pass

    def _replied(self, entry: Entry, reply: Reply) -> None:
        if not len(self.transcript.view):
            return
        run_without_waiting(self.turn.fit())
        request = self.turn.request
        self.ledger.before(request)
        self.laws.asked(request)
        usage = self.counting.usage(request, self.clock.now())
        self.counting.answered(self.clock.now())
        answer = replace(reply, usage=usage)
        self._add(entry, answer, by="model")
        self.ledger.after(request, answer)

    def _arriving(self, message: Message) -> Message:
        batch = message.results
        for result in batch:
            self.laws.given(result.tool_use_id, result.content)
        for layer in self.turn.layers.intake:
            batch = layer.intake(batch, self.transcript.view)
        rest = tuple(b for b in message.content if not isinstance(b, ToolResult))
        return Message("user", (*batch, *rest))

    def _compacted(self, entry: Entry, compaction: Replace) -> None:
        """What the recorded session did itself is a registered break too, where it still applies."""
        first, last = self._ids.get(compaction.first, -1), self._ids.get(compaction.last, -1)
        edit = replace(compaction, first=first, last=last)
        if whole := complete_changes((edit,), self.transcript, self.able.loses_thinking):
            self.laws.announced(RECORDED)
            self.ledger.expect(RECORDED)
            self.laws.since += ["told", "written"]
            ids = self.transcript.add(*whole, by=RECORDED)
            self._ids[entry.id] = ids[whole.index(edit)]

    def _add(self, entry: Entry, what: What, by: str = "") -> None:
        [self._ids[entry.id]] = self.transcript.add(what, by=by or entry.by)


def replayed(path: Path, folder: Path, able: Capabilities) -> Replayed:
    """The session from its first word to its last; the process dies three times on the way."""
    source = convert_recording(read_session(path)).entries
    deaths = random.Random(path.name).sample(range(1, len(source)), DEATHS)
    here = Replayed(folder, able)
    for n, entry in enumerate(source):
        if n in deaths:
            here.open()
        here.take(entry)
    here.laws.shows_what_is_there(here.transcript.view)
    return here


@pytest.mark.skipif(not SESSIONS, reason="the shared sessions are not beside this checkout")
def test_the_laws_hold_after_every_request_of_every_real_session(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for n, path in enumerate(SESSIONS):
        folder = tmp_path / path.name[:8]
        folder.mkdir()
        laws = replayed(path, folder, Capabilities(binds_thinking=n % 2 > 0)).laws
        assert laws.requests > 10, path.name
        registered = len(laws.breaks) - laws.breaks.count(RECORDED)
        seen.update(stored=laws.stored, cleared=laws.cleared, breaks=registered)
    assert min(seen["stored"], seen["cleared"], seen["breaks"]) > 50, seen
