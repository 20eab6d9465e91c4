"""Builds what a session gives its layers (`LayerParts`), and puts accounts around its ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sevenfold.cache.ledger import SIDE
from sevenfold.core.events import Emit, Failed
from sevenfold.core.messages import Message
from sevenfold.core.protocols import Accounts, Capabilities, Forker, Model, Tools
from sevenfold.core.tokens import Thresholds, Usage
from sevenfold.core.transcript import Entry, Transcript
from sevenfold.hooks.hooks import HookedTools
from sevenfold.layers.l2_microcompaction.provider import ProviderEdits
from sevenfold.layers.l4_compaction.server import SideRequestSender, SummaryAccounts
from sevenfold.layers.l6_dreaming.dreaming import DreamRunner
from sevenfold.layers.l7_agents.forks import ForkRunner
from sevenfold.layers.ladder import make_standard_layers
from sevenfold.layers.parts import (
    WITH_FILE_TOOLS,
    AllowCall,
    Conversation,
    DreamParts,
    ExtractionParts,
    ExtractionProgress,
    LayerParts,
    RecallParts,
    ServerSummaries,
    WordsTaker,
)
from sevenfold.layers.shared.restore import (
    TITLE,
    CompactionCut,
    RestoredFiles,
    RestoredNames,
    RestoredText,
    Restorer,
    RestoreSource,
    StartContext,
)
from sevenfold.layers.shared.side_work import SideWork, SmallModel, find_small_model
from sevenfold.models.capabilities import find_capabilities
from sevenfold.session.commands import make_compaction_hooks
from sevenfold.session.log import RESULTS
from sevenfold.session.spending import CacheWarmer, CappedForker, SpendingFile
from sevenfold.storage.results import ResultStore
from sevenfold.storage.waiting_notes import WaitingFolder
from sevenfold.tools.confined_tools import ConfinedTools
from sevenfold.tools.workspace import FileKeeper

if TYPE_CHECKING:
    from sevenfold.cache.ledger import Ledger
    from sevenfold.session.session import Session

_CHOICE: Final = Usage(input=1_500, output=200)  # What a choice of memories uses, about
_TITLED: Final = "What this session is called, by the notes on it."


class SessionConversation:
    """The session as its layers see it. Its model, its limits and its file may change."""

    reading_hint = WITH_FILE_TOOLS

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def model(self) -> Model:
        return self._session.model

    @property
    def capabilities(self) -> Capabilities:
        return self.model.capabilities

    @property
    def thresholds(self) -> Thresholds:
        return self._session.turn.thresholds

    @property
    def transcript_path(self) -> Path:
        return self._session.path

    @property
    def entries(self) -> Sequence[Entry]:
        return self._session.turn.transcript.entries


class SideConversation(SessionConversation):
    """The same with the model for side work, which may be another provider's."""

    def __init__(self, session: Session, wanted: Callable[[Session], str]) -> None:
        """`wanted`: the name of the model to ask."""
        super().__init__(session)
        self._wanted = wanted

    @property
    def model(self) -> Model:
        return self._session.spawning.connected(self._wanted(self._session))

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds.of(self.capabilities.window, self.capabilities.max_output)


_checks: tuple[type[Conversation], ...] = (SessionConversation, SideConversation)


def find_side_model(session: Session) -> str:
    """The small model of the moment. A client of the caller's own is asked for its own model alone."""
    main, wanted = session.model.name, session.settings.side_model
    if wanted is None and not session.owns_model:
        return main
    return find_small_model(session.ledger.prices, main, wanted)


def _find_window(session: Session, name: str) -> int:
    """The window of a model that side work is asked of, by the rule of the session."""
    settings, main = session.settings, session.model
    if name == main.name:
        return main.capabilities.window
    own = session.ledger.prices.limits(name)
    return find_capabilities(name, betas=settings.betas, window=settings.window, own=own).window


def _find_chooser(session: Session) -> tuple[str, str]:
    """The model that chooses memories, and why that one. It gets a request of its own in any case."""
    settings, main, small = session.settings, session.model.name, find_side_model(session)
    if settings.recall.model:
        return settings.recall.model, "the setting recall.model says so"
    if settings.side_work != "cheapest":
        return small if settings.side_work == "small" else main, "the setting sideWork says so"
    less, more = map(session.ledger.prices.of, (small, main))
    if less and more and less.cost(_CHOICE) < more.cost(_CHOICE):
        return small, f"it costs less than {main}"
    return main, "no small model is known to cost less"


def make_side_work(session: Session, fork: Forker, spending: SpendingFile) -> SideWork:
    """The side work of a session: by this fork, or by requests of its own to the small model."""
    settings, prices, clock, emit = session.settings, session.ledger.prices, session.clock, session.emit
    lean = ForkRunner(SideConversation(session, find_side_model), session.ledger, clock, emit, source=SIDE)
    same = replace(lean, conversation=SessionConversation(session))
    small = SmallModel(
        CappedForker(lean, prices, spending, emit, cached=False),
        lambda model: find_side_model(session),
        partial(_find_window, session),
        lean,
        CappedForker(same, prices, spending, emit, cached=False),
    )
    return SideWork(fork, prices, clock, emit, settings.side_work, small)


def make_layer_parts(session: Session, accounts: Accounts, summaries: ServerSummaries) -> LayerParts:
    """The parts of the main conversation: first its forks, then the parts, which hold the forks."""
    at, settings, ledger = session.at, session.settings, session.ledger
    clock, emit, by_server = session.clock, session.emit, session.flags.server_compact
    conversation = SessionConversation(session)
    spending = SpendingFile(at.environment.home, settings.daily_background_limit, clock)
    forks = ForkRunner(conversation, accounts, clock, emit)
    chooser = ForkRunner(SideConversation(session, lambda s: _find_chooser(s)[0]), accounts, clock, emit)
    capped = CappedForker(forks, ledger.prices, spending, emit)
    parts = LayerParts(
        conversation=conversation,
        settings=settings,
        switches=session.flags,
        emit=emit,
        clock=clock,
        prices=ledger.prices,
        expect=ledger.expect,
        results=ResultStore(lambda: session.folder / RESULTS),
        home=at.environment.home,
        one_shot=session.one_shot,
        fork=forks,
        background_fork=capped,
        side_work=make_side_work(session, capped, spending),
        restorer=Restorer(_list_restore_sources(session), session.knowledge),
        hooks=make_compaction_hooks(session.tools.hooks, session.stop_because),
        server=summaries if by_server else None,
        send=SideRequestSender(conversation, accounts, emit) if by_server else None,
        cached_until=ledger.warmth.until,
        idle_gaps=session.idle_gaps.gaps,
        keep_warm=CacheWarmer(conversation, ledger, ledger.prices, spending, emit),
        instructions=session.knowledge,
        mail=session.company.attach,
        memory_folders=(at.memory.folder,),
        recall=_make_recall_parts(session, chooser, CappedForker(chooser, ledger.prices, spending, emit)),
        extraction=_make_extraction_parts(session),
        dreams=_make_dream_parts(session),
    )
    forks.layers = make_standard_layers("fork", parts)  # tool results of a fork go through layer 1 too
    return parts


def _make_recall_parts(session: Session, chooser: ForkRunner, fork: CappedForker) -> RecallParts | None:
    store = session.knowledge.store
    if store is None:
        return None
    return RecallParts(
        store.path_of(),
        store.recall,
        newest=store.newest,
        fork=fork,
        model=lambda: chooser.conversation.model.name,
        why=lambda: _find_chooser(session)[1],
        start=session.tray.start,
    )


def _talks_to_person(session: Session) -> bool:
    return session.interactive and not session.environment.remote


def _make_extraction_parts(session: Session) -> ExtractionParts | None:
    """None where no person talks, unless the settings say so: no one asked a script to remember things.

    In assistant mode the agent keeps a daily log, and nothing else is written beside it.
    """
    store, tools, settings = session.knowledge.store, session.tools, session.settings
    if store is None or settings.assistant_mode:
        return None
    if not (_talks_to_person(session) or settings.extraction.non_interactive):
        return None

    def make_tools() -> tuple[Tools, AllowCall]:
        from sevenfold.layers.l5_durable_memory.extraction_tools import make_fork_tools

        return make_fork_tools(tools.workspace, tools.permissions, tools.hooks)

    waiting, backend = WaitingFolder(session.places.project), store.backend
    by_fleet = settings.extraction.by_fleet
    note = waiting.read(session.id)
    return ExtractionParts(
        store,
        session.id,
        make_tools,
        session.tray.start,
        tools.workspace.locate,
        team=session.flags.team,
        waiting=waiting,
        progress=ExtractionProgress(cursor=note.last if note else None, noted=note),
        hand_over=backend.take_words if by_fleet and isinstance(backend, WordsTaker) else None,
    )


def _make_dream_parts(session: Session) -> DreamParts | None:
    """Dreams begin by themselves where a person talks, or where the settings say so."""
    store, settings = session.knowledge.store, session.settings.dream
    if store is None:
        return None
    enabled = _talks_to_person(session) or settings.non_interactive
    runner = DreamRunner(
        store,
        session.places.project,
        session.clock,
        session.emit,
        settings,
        session=session.id,
        enabled=lambda: enabled,
    )
    return DreamParts(runner, partial(_confine_tools, session))


def _confine_tools(session: Session, folder: Path, keeper: FileKeeper) -> ConfinedTools:
    """The tools of a fork that keeps memory: it may look around, and change this folder."""
    return ConfinedTools(
        folder,
        session.tools.workspace,
        session.settings.permissions,
        readable=(session.at.memory.folder,),
        transcripts=session.places.project,
        keeper=keeper,
        wrap=lambda tools: HookedTools(tools, session.tools.hooks, take_seconds=tools.take_seconds),
    )


def _list_restore_sources(session: Session) -> tuple[RestoreSource, ...]:
    """All that the model is given back after a compaction, in order."""

    def is_kept_here(path: str) -> bool:
        """Stored results and notes are found by their own pointers."""
        return Path(path).is_relative_to(session.folder)

    again = session.settings.compaction
    return (
        RestoredTitle(),
        RestoredFiles(
            session.tools.read_again, is_kept_here, again.files, again.file_tokens, excerpts=again.excerpts
        ),
        StartContext(),
        *(CallerRestoreSource(one, session.emit) for one in session.restorables),
        RestoredNames(again.names),
    )


class RestoredTitle:
    """The title of the session, by the notes on it."""

    name = "session title"

    def restored(self, cut: CompactionCut, room: int) -> Message | None:
        title = cut.view.marks.get(TITLE)
        text = title if isinstance(title, str) else None
        return RestoredText(self.name, _TITLED, lambda: text).restored(cut, room)


class CallerRestoreSource:
    """A source of the caller's. When it raises, the rest is restored even so."""

    def __init__(self, one: RestoreSource, emit: Emit) -> None:
        self.name, self._one, self._emit = one.name, one, emit

    def restored(self, cut: CompactionCut, room: int) -> Message | None:
        try:
            return self._one.restored(cut, room)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
            self._emit(Failed("restore", f"{self.name} is not given back: {error!r}"))
            return None


def wrap_ledger(
    ledger: Ledger, emit: Emit, transcript: Transcript, summaries: ServerSummaries
) -> SummaryAccounts:
    """The accounts of a conversation, in the order in which they see a reply:

    1. `SummaryAccounts` (layer 4) notes a summary that the provider made.
    2. `ProviderEdits` (layer 2) notes what the provider cleared.
    3. The ledger counts, and knows from both why the prefix broke.
    """
    edits = ProviderEdits(ledger, ledger.expect, emit, transcript.entries)
    return SummaryAccounts(edits, summaries, ledger.expect, emit)
