"""A conversation with notes on it: written by hand, with a model that says what the test tells it to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from kit import ReplaceableScript, RestoredBy, make_forks, make_parts

from sevenfold.core.events import Event
from sevenfold.core.messages import Block, Message, Opaque, Text, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Capabilities, Change
from sevenfold.core.request import Frame, Request, measure_pressure
from sevenfold.core.tokens import Thresholds, Usage, measure_message
from sevenfold.core.transcript import Mark, Reply, Transcript, View
from sevenfold.layers.l3_session_memory.notes import Notebook, NotesForm
from sevenfold.layers.l3_session_memory.notes_compaction import NotesCompaction
from sevenfold.layers.l3_session_memory.notes_update import NotesUpdater
from sevenfold.layers.shared.restore import CompactionCut, Restorer
from sevenfold.settings.layers import NotesSettings
from sevenfold.settings.schema import Settings
from sevenfold.testing import FakeClock, ScriptedModel
from sevenfold.testing.doubles import Line
from sevenfold.tools.file_tools import EDIT_SCHEMA

E = TypeVar("E", bound=Event)
FRAME = Frame("m", ("static", "of this session"), (EDIT_SCHEMA,))
OURS = Path(__file__).parents[3] / "src/sevenfold/layers/l3_session_memory"
FORM = NotesForm.of((OURS / "template.md").read_text(encoding="utf-8"))
LOG = Path("/sessions/one.jsonl")


def described(title: str) -> str:
    """The line in italics under a heading."""
    [found] = [s.description for s in FORM.sections if s.title == title]
    return found


def noted(**texts: str) -> str:
    """Notes with these in their sections; a title is written with _ for its spaces."""
    bodies = [texts.get(s.title.replace(" ", "_"), "") for s in FORM.sections]
    return FORM.written(bodies)


@dataclass
class Noting:
    folder: Path
    script: Sequence[Line] = ()
    able: Capabilities = field(default_factory=Capabilities)
    settings: NotesSettings = field(default_factory=NotesSettings)
    frame: Frame = FRAME
    restore: Callable[[CompactionCut, int], Message | None] | None = None
    clock: FakeClock = field(default_factory=FakeClock)
    events: list[Event] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.answers = ReplaceableScript(self.script)
        self.model = ScriptedModel(self.answers, self.able)
        self.log = Transcript(self.clock.now, self.lines.append)
        self.open()

    @property
    def path(self) -> Path:
        return self.folder / "one" / "session-memory" / "summary.md"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds.of(self.able.window, self.able.max_output)

    def open(self) -> None:
        """Begin with new layers, as a process does."""
        self.parts = make_parts(
            self.model,
            able=self.able,
            path=LOG,
            events=self.events,
            expected=self.expected,
            clock=self.clock,
            home=self.home,
            settings=Settings(notes=self.settings),
            fork=make_forks(self.model, self.events.append, self.clock, thresholds=self.thresholds),
            restorer=Restorer([RestoredBy(self.restore)] if self.restore else ()),
        )
        self.book = Notebook(self.parts, self.path)
        self.keeping = NotesUpdater(self.parts, self.book)
        self.payout = NotesCompaction(self.parts, self.book)

    def resume(self) -> None:
        whole = b"".join(self.lines)
        self.log = Transcript.load(whole, self.clock.now, self.lines.append)
        assert not self.log.problems
        self.open()

    # --- what happens -----------------------------------------------------------------------------------

    def says(self, *lines: Line) -> None:
        """What the model says from now on."""
        self.answers.lines = iter(lines)

    def edit(self, title: str, text: str, **changed: Any) -> ToolUse:
        """The call that writes into an empty section."""
        old = described(title)
        args = {"file_path": str(self.path), "old_string": old, "new_string": f"{old}\n{text}"}
        return ToolUse(f"e-{title}", "Edit", {**args, **changed})

    def edits(self, **texts: str) -> Message:
        return assistant(*(self.edit(t.replace("_", " "), text) for t, text in texts.items()))

    def say(self, text: str) -> None:
        self.log.add(user(text))

    def answer(self, text: str, tokens: int = 0, *before: Block) -> None:
        """The model replies in words; `tokens`: how large the conversation is then."""
        self._reply(assistant(*before, Text(text)), tokens)

    def call(self, n: int, tokens: int = 0, size: int = 200, *before: Block) -> None:
        use = ToolUse(f"t{n}", "Read", {"file_path": f"src/f{n}.py"})
        result = Message("user", (ToolResult(use.id, f"{n} " * (size // 2)),))
        self._reply(assistant(*before, use), tokens, result)
        self.log.add(result, by="tools")

    def _reply(self, said: Message, tokens: int, *then: Message) -> None:
        """Before it comes something without words, so that the conversation is as large as it should be."""
        count = self.view.calibration.tokens
        spoken = count(sum(map(measure_message, (said, *then)), self.view.size))
        if tokens > spoken:
            raw = '{"type":"large","x":"%s"}'
            filled = raw % ("x" * (2 * (tokens - spoken) - len(raw) + 2))
            self.log.add(Message("user", (Opaque("large", filled),)), by="tools")
        sent, got = count(self.view.size), count(measure_message(said))
        usage = Usage(input=sent, output=got) if tokens else Usage()
        self.log.add(Reply(said, usage, stop="tool_use" if said.tool_uses else "end_turn"), by="model")

    def write(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text, encoding="utf-8")

    async def reply(self) -> list[Mark]:
        """The moment after a reply; what it hands back is written."""
        handed = await self.keeping(self.request)
        if handed:
            self.log.add(*handed, by="NotesKeeping")
        return list(handed)

    async def pay(self) -> list[Change]:
        pressure = measure_pressure(self.request, self.thresholds, self.clock.now())
        return list(await self.payout.fit(self.request, pressure))

    # --- what there is ----------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        return self.log.view

    @property
    def request(self) -> Request:
        return Request(self.frame, self.log.view)

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def asked(self) -> str:
        """What the last fork was asked."""
        return self.model.requests[-1].view[-1].message.text
