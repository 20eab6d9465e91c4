"""Conversations that fill a window, and the layer that summarises them with a scripted model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from kit import make_forks, make_parts, use
from msgspec.structs import replace

from sevenfold.core.errors import PromptTooLong
from sevenfold.core.events import Event
from sevenfold.core.messages import Message, Text, ToolResult, assistant, user
from sevenfold.core.protocols import Capabilities, Change, Forker
from sevenfold.core.request import Frame, Request, complete_changes, has_paired_tools, measure_pressure
from sevenfold.core.tokens import Pressure, Thresholds
from sevenfold.core.transcript import Mark, Replace, Reply, Transcript
from sevenfold.layers.l4_compaction.compaction import Compaction, Score
from sevenfold.layers.shared.boundary import TITLES
from sevenfold.settings.layers import CompactionSettings
from sevenfold.settings.schema import Settings
from sevenfold.testing import FakeClock, ScriptedModel
from sevenfold.testing.doubles import Line

E = TypeVar("E", bound=Event)
FRAME = Frame("scripted", ("s" * 2_000,), ({"name": "Bash", "input_schema": {}},))
LOG = Path("/sessions/one.jsonl")


def summary(about: str = "the build", said: str = "<said>something</said>") -> str:
    """A reply as it should be."""
    parts = [
        f"## {n}. {title}\n{said if title == 'All user messages' else f'{title} of {about}.'}"
        for n, title in enumerate(TITLES, 1)
    ]
    body = "\n\n".join(parts)
    return f"<analysis>\nSECRET THOUGHTS\n</analysis>\n\n<summary>\n{body}\n</summary>"


def rounds(t: Transcript, n: int, size: int = 1_300, first: int = 0) -> None:
    for i in range(first, first + n):
        t.add(Reply(use(f"u{i}", "Bash", command=f"make part{i}")), by="model")
        t.add(Message("user", (ToolResult(f"u{i}", f"line {i}\n" * (size // 8)),)), by="tools")


def talked(size: int = 1_300) -> Transcript:
    """About 6,800 tokens; two questions, and work on the second still going on."""
    t = Transcript(lambda: 0.0)
    t.add(user("build everything, and never touch the file LICENSE"))
    rounds(t, 12, size)
    t.add(Reply(assistant(Text("All parts are built."))), by="model")
    t.add(user("now test it"))
    rounds(t, 4, size, first=12)
    return t


@dataclass
class Compacting:
    """The layer on its own, over a transcript, with what it said and did."""

    script: Sequence[Line] = ()
    log: Transcript = field(default_factory=talked)
    window: int = 8_000
    able: Capabilities = field(default_factory=Capabilities)
    settings: CompactionSettings = field(default_factory=CompactionSettings)
    frame: Frame = FRAME
    options: dict[str, Any] = field(default_factory=dict)
    """More of the parts that the layer is given."""
    score: Score = lambda removed, there: None
    fork: Forker | None = None
    events: list[Event] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = ScriptedModel(self.script, self.able)
        self.clock = FakeClock()
        thresholds = Thresholds.of(self.window, self.able.max_output)
        forks = make_forks(self.model, self.events.append, self.clock, thresholds=thresholds)
        self.parts = make_parts(
            self.model,
            able=self.able,
            thresholds=thresholds,
            path=LOG,
            events=self.events,
            expected=self.expected,
            clock=self.clock,
            settings=Settings(compaction=self.settings),
            fork=self.fork or forks,
            **self.options,
        )
        self.layer = Compaction(self.parts, self.score)

    @property
    def request(self) -> Request:
        return Request(self.frame, self.log.view)

    def pressure(self, refused: PromptTooLong | None = None, **fields: Any) -> Pressure:
        thresholds = Thresholds.of(self.window, self.able.max_output)
        return replace(measure_pressure(self.request, thresholds, 0.0, refused), **fields)

    @property
    def tokens(self) -> int:
        return self.pressure().tokens

    async def fit(self, refused: PromptTooLong | None = None) -> list[Change]:
        """What a turn does before a request: offer it, and write what comes back."""
        return self.write(await self.layer.fit(self.request, self.pressure(refused)))

    async def compact(self, trigger: str = "manual", **options: Any) -> list[Change]:
        handed = await self.layer.compact(self.request, self.pressure(), trigger=trigger, **options)
        return self.write(handed)

    def write(self, handed: Sequence[Change]) -> list[Change]:
        if handed:
            whole = complete_changes(handed, self.log, self.able.loses_thinking)
            assert whole is not None, "the turn would decline it"
            self.log.add(*whole, by="Compaction")
            assert has_paired_tools(self.log.view)
        return list(handed)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.log.view.messages]

    @property
    def whole(self) -> str:
        """All that the model is shown in words."""
        return "\n".join(self.texts)


def edits(handed: Sequence[Change]) -> list[Replace]:
    return [what for what in handed if isinstance(what, Replace)]


def marks(handed: Sequence[Change]) -> dict[str, Any]:
    return {what.name: what.value for what in handed if isinstance(what, Mark)}
