"""What a session lends its layers: its store, its forks, its hooks, and how to read a file again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sevenfold.cache.ledger import Ledger
from sevenfold.core.events import Emit, Failed
from sevenfold.core.messages import Message
from sevenfold.core.protocols import Clock, Model, Tools
from sevenfold.core.tokens import Thresholds
from sevenfold.core.transcript import Entry, Transcript, View
from sevenfold.hooks.hooks import HookedTools
from sevenfold.layers.l2_microcompaction.provider import ProviderEdits
from sevenfold.layers.l4_compaction.server import ServerCompaction, SideRequestSender
from sevenfold.layers.l5_durable_memory.extraction import ExtractionParts
from sevenfold.layers.l5_durable_memory.selection import RecallParts, Start
from sevenfold.layers.l6_dreaming.dream_run import DreamRunner
from sevenfold.layers.l7_agents.forks import ForkRunner
from sevenfold.layers.ladder import LayerParts, make_standard_layers
from sevenfold.layers.shared.restore import (
    TITLE,
    Afterwards,
    Before,
    CompactionCut,
    RestoredFiles,
    RestoredNames,
    RestoredText,
    RestoreSource,
    StartContext,
    restore_messages,
)
from sevenfold.session.log import RESULTS
from sevenfold.session.memory import SessionMemory
from sevenfold.session.project import Project, Toolset
from sevenfold.session.spending import CacheWarmer, CappedForker, SpendingFile
from sevenfold.session.user_stats import IdleGapFile
from sevenfold.settings.flags import Flags
from sevenfold.storage.results import ResultStore
from sevenfold.tools.confined_tools import ConfinedTools
from sevenfold.tools.workspace import FileKeeper

if TYPE_CHECKING:
    from sevenfold.layers.l5_durable_memory.extraction_tools import AllowCall

_TITLED: Final = "What this session is called, by the notes on it."


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionParts:
    """The parts of a session that its layers use."""

    at: Project
    flags: Flags
    ledger: Ledger
    accounts: ServerCompaction
    tools: Toolset
    knowledge: SessionMemory
    start: Start
    """Starts work beside the conversation."""
    session: str
    entries: Callable[[], Sequence[Entry]]
    interactive: bool
    """Whether somebody sits in front of it."""
    model: Callable[[], Model]
    thresholds: Callable[[], Thresholds]
    transcript: Callable[[], Path]
    habits: IdleGapFile
    clock: Clock
    emit: Emit
    hooks: tuple[Before, Afterwards]
    """Of the user: before and after a compaction."""
    restorables: Sequence[RestoreSource] = ()
    """What else the model is given back after a compaction."""
    connect: Callable[[str], Model] | None = None
    """Another model, by its name."""

    def lent(self) -> LayerParts:
        """Forks come last: what their tools give back goes through layer 1 as well."""
        settings, ledger = self.at.settings, self.ledger
        spending = SpendingFile(self.at.environment.home, settings.daily_background_limit, self.clock)
        alone = LayerParts(
            emit=self.emit,
            expect=ledger.expect,
            able=lambda: self.model().capabilities,
            until=ledger.warmth.until,
            gaps=self.habits.gaps,
            thresholds=self.thresholds,
            keep_warm=CacheWarmer(self.model, ledger, ledger.prices, spending, self.emit),
            prices=ledger.prices,
            store=ResultStore(lambda: self.transcript().with_suffix("") / RESULTS),
            transcript=self.transcript,
            clock=self.clock,
            home=self.at.environment.home,
            server=self.accounts if self.flags.server_compact else None,
            ask_server=SideRequestSender(self.model, self.accounts, self.emit)
            if self.flags.server_compact
            else None,
            restore=self._restored,
            standing=self.knowledge,
            before_compaction=self.hooks[0],
            after_compaction=self.hooks[1],
            memory=(self.at.memory.folder,),
            instructions=self.knowledge,
            recall=settings.recall,
            dreams=self._dreams(),
            dream_tools=self._confined,
            nightly=settings.assistant_mode,
            extraction=settings.extraction,
            learning=self._learning(),
            switches=self.flags,
            tool_results=settings.tool_results,
            micro=settings.micro,
            notes=settings.notes,
            compaction=settings.compaction,
        )
        known = self.model, self.accounts, self.clock, self.emit, self.thresholds
        forks = ForkRunner(*known, make_standard_layers("fork", alone))
        aside = CappedForker(forks, ledger.prices, spending, self.emit)
        memories = self._memories(forks, spending)
        return with_fields(alone, forker=forks, aside=aside, memories=memories)

    def _memories(self, forks: ForkRunner, spending: SpendingFile) -> RecallParts | None:
        """What recall searches in, and who chooses where a model does."""
        limits = lambda: _limits(self._chooser())  # noqa: E731
        asks = with_fields(forks, model=self._chooser, thresholds=limits)
        chooser = CappedForker(asks, self.ledger.prices, spending, self.emit)
        able, name = lambda: self.model().capabilities, lambda: self._chooser().name
        return self.knowledge.sources(able, chooser, name, self.start)

    def _chooser(self) -> Model:
        """The model that chooses memories. It may be another provider's than the conversation's."""
        name = self.at.settings.recall.model
        return self.connect(name) if name and self.connect else self.model()

    def _learning(self) -> ExtractionParts | None:
        """Nobody asked a script to remember things: where no person talks, only if it is set.

        In assistant mode the agent keeps a daily log, and nothing else is written beside it.
        """
        store, tools = self.knowledge.store, self.tools
        if self.at.settings.assistant_mode:
            return None
        talks = self.interactive and not self.at.environment.remote
        if store is None or not (talks or self.at.settings.extraction.non_interactive):
            return None

        def make_tools() -> tuple[Tools, AllowCall]:
            from sevenfold.layers.l5_durable_memory.extraction_tools import make_fork_tools

            return make_fork_tools(tools.workspace, tools.permissions, tools.hooks)

        return ExtractionParts(
            store,
            self.session,
            make_tools,
            self.entries,
            self.start,
            tools.workspace.locate,
            team=self.flags.team,
        )

    def _dreams(self) -> DreamRunner | None:
        """Without somebody in front of it no dream begins by itself, unless the settings say so."""
        store, settings = self.knowledge.store, self.at.settings.dream
        if store is None:
            return None
        talks = self.interactive and not self.at.environment.remote
        return DreamRunner(
            store,
            self.at.places.project,
            self.clock,
            self.emit,
            settings,
            session=self.session,
            enabled=lambda: talks or settings.non_interactive,
        )

    def _confined(self, folder: Path, keeper: FileKeeper) -> ConfinedTools:
        """What a fork may do that keeps memory: look around, and change this folder."""
        at, workspace = self.at, self.tools.workspace
        return ConfinedTools(
            folder,
            workspace,
            at.settings.permissions,
            readable=(at.memory.folder,),
            transcripts=at.places.project,
            keeper=keeper,
            wrap=lambda tools: HookedTools(tools, self.tools.hooks),
        )

    def _restored(self, view: View, gone: range, window: int, room: int) -> Sequence[Message]:
        files = RestoredFiles(self.tools.read_again, skip=self._kept_here)
        title = RestoredText("session title", _TITLED, lambda: _text(view.marks.get(TITLE)))
        theirs = (CallerRestoreSource(one, self.emit) for one in self.restorables)
        again: tuple[RestoreSource, ...] = (title, files, StartContext(), *theirs)
        again = (*again, RestoredNames(self.at.settings.compaction.names))
        return restore_messages(view, gone, again, window, room)

    def _kept_here(self, path: str) -> bool:
        """Stored results and notes are found by their own pointers."""
        return Path(path).is_relative_to(self.transcript().with_suffix(""))


class CallerRestoreSource:
    """Something of the caller's that is to be restored. When it breaks, the rest is restored even so."""

    def __init__(self, one: RestoreSource, emit: Emit) -> None:
        self.name, self._one, self._emit = one.name, one, emit

    def restored(self, cut: CompactionCut, room: int) -> Message | None:
        try:
            return self._one.restored(cut, room)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
            self._emit(Failed("restore", f"{self.name} is not given back: {error!r}"))
            return None


def _limits(model: Model) -> Thresholds:
    able = model.capabilities
    return Thresholds.of(able.window, able.max_output)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def wrap_ledger(ledger: Ledger, emit: Emit, transcript: Transcript) -> ServerCompaction:
    """The ledger, and in front of it who takes down what the provider itself clears and compacts."""
    edits = ProviderEdits(ledger, ledger.expect, emit, transcript.entries)
    return ServerCompaction(edits, ledger.expect, emit)
