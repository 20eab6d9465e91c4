"""Conversations full of tool calls, and the layer that clears old results over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from kit import make, make_parts

from sevenfold.cache.prices import Prices
from sevenfold.core.clock import run_without_waiting
from sevenfold.core.events import Event
from sevenfold.core.messages import Block, Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Capabilities, Layers
from sevenfold.core.request import Frame, Ttl
from sevenfold.core.tokens import Thresholds
from sevenfold.core.transcript import Entry, Reply, Transcript, View
from sevenfold.layers.l2_microcompaction.candidates import CLEARED
from sevenfold.layers.l2_microcompaction.cost import FEATURES, NeedModel
from sevenfold.layers.l2_microcompaction.microcompaction import Microcompaction
from sevenfold.settings.layers import MicroSettings, Switches
from sevenfold.settings.schema import Settings
from sevenfold.testing import FakeClock, ScriptedModel
from sevenfold.turn import Turn

E = TypeVar("E", bound=Event)
PRICES = Prices.load()
MODEL = "claude-opus-4-5"
"""Five-minute writes at 1.25, writes for an hour at 2, reads at 0.1 of the input price."""
PLAIN_SUMS = MicroSettings(margin=4.0, least_freed=30_000, requests_ahead=50, keep_recent=5)
"""Numbers to do sums with, whatever the defaults are."""


def need(always: float = -30.0, **weights: float) -> NeedModel:
    """A model of need with these coefficients; -30 is never, 30 is always."""
    known = {"always": always, **weights}
    return NeedModel(tuple(known.get(name, 0.0) for name in FEATURES))


def need_file(folder: Path, always: float = -30.0, **weights: float) -> Path:
    """The same in a file, as a user has it."""
    known = {"always": always, **weights}
    lines = [f"{name} = {known.get(name, 0.0)}" for name in FEATURES]
    path = folder / "need.toml"
    path.write_text("\n".join(["[coefficients]", *lines]), encoding="utf-8")
    return path


@dataclass
class Talk:
    """A conversation that is written by hand, with a real turn that fits it."""

    folder: Path
    settings: MicroSettings = field(default_factory=MicroSettings)
    able: Capabilities = field(default_factory=Capabilities)
    memory: tuple[Path, ...] = ()
    ttl: Ttl = "5m"
    model: str = MODEL
    by_cost: bool = True
    by_time: bool = False
    clock: FakeClock = field(default_factory=FakeClock)
    events: list[Event] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    """The transcript as it is on disk."""

    def __post_init__(self) -> None:
        self.log = Transcript(self.clock.now, self.lines.append)
        self.calls = 0
        self.open()
        self.say("go")

    def open(self) -> None:
        """Begin with new layers, as a process does."""
        self.layer = Microcompaction(
            make_parts(
                able=self.able,
                folder=self.folder / "tool-results",
                events=self.events,
                expected=self.expected,
                settings=Settings(micro=self.settings),
                switches=Switches(micro_cost=self.by_cost, micro_time=self.by_time),
                memory_folders=self.memory,
            )
        )
        model = ScriptedModel((), self.able)
        layers = Layers(fit=(self.layer,))
        self.turn: Turn = make(model, layers, events=self.events, transcript=self.log, clock=self.clock)
        self.turn.frame = Frame(self.model, ttl=self.ttl)
        self.turn.thresholds = Thresholds.of(self.able.window, self.able.max_output)

    def resume(self) -> None:
        """The process ends, and another one reads the transcript."""
        whole = b"".join(self.lines)
        self.log = Transcript.load(whole, self.clock.now, self.lines.append)
        assert not self.log.problems
        self.open()

    # --- what happens -----------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        self.log.add(user(text))

    def answer(self, text: str = "Done.", *before: Block) -> None:
        self.log.add(Reply(assistant(*before, Text(text))), by="model")

    def call(
        self,
        tool: str = "Bash",
        content: str | int | tuple[Block, ...] = 4_000,
        *before: Block,
        id: str = "",
        **args: Any,
    ) -> str:
        """One call and its result: a text, blocks, or so many characters. Returns the id."""
        return self.calls_at_once([(tool, content, args)], *before, ids=[id] if id else [])[0]

    def calls_at_once(
        self,
        calls: list[tuple[str, str | int | tuple[Block, ...], dict[str, Any]]],
        *before: Block,
        ids: list[str] | None = None,
    ) -> list[str]:
        uses, results = list[ToolUse](), list[ToolResult]()
        for n, (tool, content, args) in enumerate(calls):
            self.calls += 1
            id = ids[n] if ids else f"t{self.calls}"
            whole = text_of(id, content) if isinstance(content, int) else content
            uses.append(ToolUse(id, tool, args or {"command": f"{self.calls:02}"}))
            results.append(ToolResult(id, whole))
        self.log.add(Reply(assistant(*before, *uses), stop="tool_use"), by="model")
        self.log.add(Message("user", tuple(results)), by="tools")
        return [use.id for use in uses]

    def think_and_call(self, tool: str = "Bash", content: str | int = 4_000, **args: Any) -> str:
        return self.call(tool, content, Thinking("hm", "signed"), **args)

    def fit(self) -> list[str]:
        """What a turn does before a request. Returns the ids of what was cleared by it."""
        before = set(self.cleared)
        run_without_waiting(self.turn.fit())
        return [id for id in self.cleared if id not in before]

    # --- what there is ----------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        return self.log.view

    @property
    def shown(self) -> dict[str, str]:
        """What the model sees of each result."""
        return {r.tool_use_id: r.text for placed in self.view for r in placed.message.results}

    @property
    def cleared(self) -> list[str]:
        return [id for id, text in self.shown.items() if text.startswith(CLEARED)]

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def writes(self) -> Iterator[list[Entry]]:
        """The entries of the layer, batch by batch as they were written."""
        batches = [Transcript.load(line, self.clock.now).entries for line in self.lines]
        return (b for b in batches if b and b[0].by == "Microcompaction")


def text_of(id: str, characters: int) -> str:
    """So many characters in lines, different for each id."""
    line = f"{id} is what this line is about, more or less, as far as anybody can tell\n"
    return (line * (characters // len(line) + 1))[:characters]
