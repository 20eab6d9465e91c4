"""The one place where layers meet: who acts at which moment, cheapest first.

The last one asked before a request: warns in time, and stops what cannot fit, saying what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

from sevenfold.cache.prices import Prices
from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import ContextFull
from sevenfold.core.events import Emit, Notice
from sevenfold.core.messages import Message
from sevenfold.core.protocols import (
    Attach,
    BackgroundStep,
    Capabilities,
    Change,
    Clock,
    Fit,
    Forker,
    IdleStep,
    Intake,
    Layers,
)
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import Pressure, Thresholds
from sevenfold.core.transcript import View
from sevenfold.layers.l1_tool_results.preview import WITH_FILE_TOOLS
from sevenfold.layers.l1_tool_results.tool_results import ToolResults
from sevenfold.layers.l2_microcompaction.cache_expiry import CacheExpiry, GapCounts, KeepWarm
from sevenfold.layers.l2_microcompaction.microcompaction import Microcompaction
from sevenfold.layers.l2_microcompaction.provider import CacheEditing
from sevenfold.layers.l3_session_memory.notes import Notebook
from sevenfold.layers.l3_session_memory.notes_compaction import NotesCompaction
from sevenfold.layers.l3_session_memory.notes_update import NotesUpdater
from sevenfold.layers.l4_compaction.compaction import Compaction
from sevenfold.layers.l4_compaction.digest import Digest
from sevenfold.layers.l4_compaction.fold import Collapse, Snip, UnlessCollapsing
from sevenfold.layers.l4_compaction.server import Ask, RequestedCompaction, ServerCompaction
from sevenfold.layers.l4_compaction.summary_ahead import PrecomputedSummary, SummaryAhead, WarmSummary
from sevenfold.layers.l5_durable_memory.extraction import Extraction, ExtractionParts, LateExtraction
from sevenfold.layers.l5_durable_memory.recall import Recall
from sevenfold.layers.l5_durable_memory.selection import RecallParts
from sevenfold.layers.l6_dreaming.dream_run import DreamRunner
from sevenfold.layers.l6_dreaming.dreaming import Dreaming
from sevenfold.layers.shared.fidelity import measure_fidelity
from sevenfold.layers.shared.restore import (
    Afterwards,
    Before,
    CompactionHooks,
    Restore,
    Restorer,
    StandingMessages,
    agree_to_compaction,
    ignore_compaction,
)
from sevenfold.settings.layers import (
    CompactionSettings,
    ExtractionSettings,
    MicroSettings,
    NotesSettings,
    RecallSettings,
    Switches,
    ToolResultSettings,
)
from sevenfold.storage.results import ResultStore

if TYPE_CHECKING:
    from sevenfold.layers.l6_dreaming.workers import MakeTools

NEAR: Final = 0.75
"""Nobody is warned before this share of what is compacted: the limit may have been set very low."""


class BlockCheck:
    """Better no request than one that the provider will refuse and we cannot mend."""

    label: ClassVar[str] = "BlockCheck"

    def __init__(self, emit: Emit | None = None, *, compacts: bool = True) -> None:
        """`emit` is told once when the window gets full, and again each time that it gets full anew.

        `compacts`: whether anything makes room before there is none.
        """
        self._emit, self._compacts = emit, compacts
        self._warned = False

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        limit = pressure.thresholds.block
        if pressure.refused:
            return ()  # the provider has said it better than we could
        self._warn(pressure)
        if pressure.tokens <= limit:
            return ()
        fixed = request.frame.tokens
        if fixed > limit and limit < pressure.thresholds.effective // 2:
            raise ContextFull(
                f"system prompt and tools alone take about {fixed:,} tokens, and blockLimit allows "
                f"{limit:,}: raise it in the settings or in SEVENFOLD_BLOCK_LIMIT"
            )
        if fixed > limit:
            raise ContextFull(
                f"the window of {pressure.window:,} tokens is too small: system prompt and tools "
                f"alone take about {fixed:,}; use a model with a larger window"
            )
        raise ContextFull(
            f"the conversation is about {pressure.tokens:,} tokens and at most {limit:,} fit; "
            "compact it (/compact), begin a new one, or use a model with a larger window"
        )

    def _warn(self, pressure: Pressure) -> None:
        at = pressure.thresholds
        over = pressure.tokens >= max(at.warning, NEAR * at.auto_compact)
        if over and not self._warned and self._emit is not None:
            self._emit(_warning(pressure, self._compacts))
        self._warned = over


def _warning(pressure: Pressure, compacts: bool) -> Notice:
    at = pressure.thresholds
    full = f"the window is getting full: about {pressure.tokens:,} of {at.effective:,} tokens"
    if compacts:
        return Notice(
            f"{full}; at {at.auto_compact:,} the older part is compacted. To say what matters in it, "
            "compact it yourself before (/compact and what to keep)"
        )
    return Notice(
        f"{full}; compaction is off, and from {at.block:,} on nothing is sent any more. Compact it "
        "(/compact) or begin a new conversation",
        "warning",
    )


_check: type[Fit] = BlockCheck


NOTES: Final = Path("session-memory", "summary.md")
"""The notes on a session, in its folder."""
LayerRole: TypeAlias = Literal["main", "agent", "fork"]


@dataclass(frozen=True, slots=True)
class LayerParts:
    """What a conversation lends its layers, and how they are set."""

    emit: Emit
    expect: Callable[[str], object]
    """Tells the ledger that the next request breaks the prefix on purpose."""
    able: Callable[[], Capabilities]
    """What the model of the moment can do."""
    prices: Prices
    store: ResultStore
    """Where whole tool results go."""
    transcript: Callable[[], Path | None] = lambda: None
    """The file of this conversation, if it has one."""
    how: Callable[[], str] = lambda: WITH_FILE_TOOLS
    """Tells the model, in a sentence, how to read what is stored."""
    until: Callable[[Frame], float | None] = lambda frame: None
    """Until when the provider keeps the prefix of this frame."""
    gaps: Callable[[], GapCounts] = GapCounts
    """How long this user is usually silent."""
    keep_warm: KeepWarm | None = None
    """Sends a request that only keeps the cache warm."""
    clock: Clock = field(default_factory=SystemClock)
    forker: Forker | None = None
    """Asks the model beside the conversation. Without it nothing does: no notes, and no summary."""
    aside: Forker | None = None
    """The same for what nobody waits for; it may cost only so much in a day. Else `forker` is asked."""
    thresholds: Callable[[], Thresholds] | None = None
    """Where the window is nearly full, and full; None: nothing is summed up while nobody speaks."""
    waits: bool = True
    """Whether there is time to ask a model before a request; else summaries are only prepared ahead."""
    home: Path | None = None
    """Where a user's own template for notes would be."""
    restore: Restore = lambda view, gone, window, room: ()
    """What the model should see again after a compaction, as far as there is room ..."""
    standing: StandingMessages | None = None
    """... and what it has to see again."""
    before_compaction: Before = agree_to_compaction
    after_compaction: Afterwards = ignore_compaction
    """The user's hooks."""
    server: ServerCompaction | None = None
    """Takes down what the provider itself compacts."""
    ask_server: Ask | None = None
    """Sends a request by which the provider is asked to compact."""
    memories: RecallParts | None = None
    """What recall searches in; None: there is no memory."""
    learning: ExtractionParts | None = None
    """What extraction learns into; None: nothing is learned."""
    dreams: DreamRunner | None = None
    """The dreams of the memory folder; None: there is no memory."""
    dream_tools: MakeTools | None = None
    """The tools of the conversation, confined to the copy that a dream works on."""
    nightly: bool = False
    """Whether daily logs are kept, which the first rest of the next day distils."""
    instructions: Attach | None = None
    """Attaches the instruction files near what the model works on."""
    mail: tuple[Attach, ...] = ()
    """Attaches what other agents have to say."""
    memory: tuple[Path, ...] = ()
    """Folders of memory: what was read from them is never cleared."""
    switches: Switches = field(default_factory=Switches)
    tool_results: ToolResultSettings = field(default_factory=ToolResultSettings)
    micro: MicroSettings = field(default_factory=MicroSettings)
    notes: NotesSettings = field(default_factory=NotesSettings)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    recall: RecallSettings = field(default_factory=RecallSettings)
    extraction: ExtractionSettings = field(default_factory=ExtractionSettings)


def make_standard_layers(role: LayerRole, lent: LayerParts) -> Layers:
    """The layers of a conversation. A fork fits nothing: it lives on its parent's view."""
    if role == "fork":
        return Layers((*_nearby(lent), *lent.mail), _intake(lent))
    if role == "agent":
        fit = (*_compaction(lent, _hooks(lent)), BlockCheck())
        return Layers((*_nearby(lent), *lent.mail), _intake(lent), fit)
    hooks = _hooks(lent)
    replied, payout = _session_memory(lent, hooks)
    ahead, compaction = _compaction_ahead(lent, _compaction(lent, hooks))
    replied, summaries = (*replied, *ahead), (*payout, *compaction)
    if lent.switches.collapse:  # while it is on, nothing else compacts before it has to
        summaries = tuple(UnlessCollapsing(layer) for layer in summaries)
    folds = *_snip(lent), *_microcompaction(lent), *_collapse(lent)
    emit = lent.emit if lent.waits else None  # else nobody is there who could compact it
    block = BlockCheck(emit, compacts=lent.switches.compact)
    fit = (*folds, *_on_demand(lent, hooks), *summaries, block)
    if lent.server is not None:
        window = lambda: lent.able().window  # noqa: E731
        again = Restorer(lent.restore, lent.standing).at_once
        replied = (*replied, lent.server.lent(again, window, hooks))
    attach = (*_nearby(lent), *_recall(lent), *lent.mail)
    extraction = _extraction(lent)
    rest = (*extraction, *_dreaming(lent))
    idle = (*map(LateExtraction, extraction), *_pre_cold(lent, compaction))
    return Layers(attach, _intake(lent), fit, replied, rest, idle)


def _hooks(lent: LayerParts) -> CompactionHooks:
    """The user's, which all who compact ask together."""
    return CompactionHooks(lent.emit, lent.before_compaction, lent.after_compaction)


def _extraction(lent: LayerParts) -> tuple[Extraction, ...]:
    fork = lent.aside or lent.forker
    if not lent.switches.extraction or lent.learning is None or fork is None:
        return ()
    known = lent.learning, fork, lent.clock, lent.emit, lent.extraction, lent.prices
    return (Extraction(*known, lent.until),)


def _dreaming(lent: LayerParts) -> tuple[BackgroundStep, ...]:
    fork, tools = lent.aside or lent.forker, lent.dream_tools
    if not lent.switches.dream or lent.dreams is None or fork is None or tools is None:
        return ()
    return (Dreaming(lent.dreams, fork, tools, lent.able, lent.clock, nightly=lent.nightly),)


def _nearby(lent: LayerParts) -> tuple[Attach, ...]:
    return () if lent.instructions is None else (lent.instructions,)


def _recall(lent: LayerParts) -> tuple[Attach, ...]:
    if not lent.switches.recall or lent.memories is None:
        return ()
    return (Recall(lent.memories, lent.clock, lent.emit, lent.recall),)


def _intake(lent: LayerParts) -> tuple[Intake, ...]:
    on = lent.switches
    if not on.tool_results:
        return ()
    known = lent.store, lent.tool_results, lent.emit, lent.how, on.aggregate_budget
    return (ToolResults(*known, lambda: lent.able().window),)


def _microcompaction(lent: LayerParts) -> tuple[Fit, ...]:
    on, settings, plain = lent.switches, lent.micro, lent.micro.policy == "plain"
    clearing = Microcompaction(
        lent.store,
        settings,
        lent.prices,
        lent.able,
        lent.expect,
        lent.emit,
        lent.memory,
        by_cost=on.micro_cost and not plain,
        by_time=on.micro_time or plain,
        edits_cache=on.micro_cache_edit,
    )
    if not on.micro_cache_edit:
        return (clearing,)
    editing = CacheEditing(lent.store, settings, lent.prices, lent.able, lent.emit, lent.memory)
    return (clearing, editing)


def _pre_cold(lent: LayerParts, compaction: tuple[Fit, ...]) -> tuple[IdleStep, ...]:
    if not lent.switches.pre_cold or lent.keep_warm is None:
        return ()
    known = lent.micro, lent.prices, lent.able, lent.emit, lent.until, lent.gaps
    layer = next((layer for layer in compaction if isinstance(layer, Compaction)), None)
    fork, limits = lent.aside or lent.forker, lent.thresholds
    if layer is None or fork is None or limits is None or lent.switches.collapse:
        return (CacheExpiry(*known, lent.keep_warm),)
    return (CacheExpiry(*known, lent.keep_warm, WarmSummary(layer, fork, limits)),)


def _session_memory(
    lent: LayerParts, hooks: CompactionHooks
) -> tuple[tuple[BackgroundStep, ...], tuple[Fit, ...]]:
    on, path = lent.switches, lent.transcript()
    if not (on.notes and on.compact) or lent.forker is None or path is None:
        return (), ()
    book = Notebook(lambda: find_notes_path(lent), lent.clock, lent.emit, lent.home)
    fork = lent.aside or lent.forker
    keeping = NotesUpdater(book, fork, lent.able, lent.emit, lent.notes, lent.prices)
    if not on.payout:
        return (keeping,), ()

    def restore(view: View, cut: int, room: int) -> Sequence[Message]:
        return lent.restore(view, range(cut), lent.able().window, room)

    known = lent.emit, lent.expect, lent.transcript, lent.able, lent.notes
    return (keeping,), (NotesCompaction(book, *known, restore, hooks, lent.standing),)


def find_notes_path(lent: LayerParts) -> Path:
    """Where the notes on this conversation are."""
    path = lent.transcript() or Path()
    return path.with_suffix("") / NOTES


def _snip(lent: LayerParts) -> tuple[Fit, ...]:
    known = lent.emit, lent.expect, lent.transcript, lent.able
    return (Snip(*known),) if lent.switches.snip else ()


def _collapse(lent: LayerParts) -> tuple[Fit, ...]:
    known = lent.emit, lent.expect, lent.transcript, lent.able
    return (Collapse(*known),) if lent.switches.collapse else ()


def _on_demand(lent: LayerParts, hooks: CompactionHooks) -> tuple[Fit, ...]:
    if lent.ask_server is None or lent.compaction.server != "onDemand":
        return ()
    known = lent.able, lent.expect, lent.emit, Restorer(lent.restore, lent.standing).at_once
    return (RequestedCompaction(lent.ask_server, *known, hooks),)


def _compaction(lent: LayerParts, hooks: CompactionHooks) -> tuple[Fit, ...]:
    on = lent.switches
    if not (on.compact or on.reactive):
        return ()
    known = lent.emit, lent.expect, lent.transcript, lent.able
    digest = Digest(*known, auto=on.compact, reactive=on.reactive)
    if lent.forker is None:
        return (digest,)
    compaction = Compaction(
        lent.forker,
        digest,
        *known,
        lent.compaction,
        agreement=hooks,
        restore=lent.restore,
        standing=lent.standing,
        fidelity=lambda removed, there: measure_fidelity(removed, there).score,
        auto=on.compact,
        reactive=on.reactive,
        asks=lent.waits,
        prices=lent.prices,
    )
    return (compaction,)


def _compaction_ahead(
    lent: LayerParts, compaction: tuple[Fit, ...]
) -> tuple[tuple[BackgroundStep, ...], tuple[Fit, ...]]:
    """The summary is prepared where that is wanted, and where there is no other time to ask for it."""
    on = lent.switches
    wanted = on.compact and not on.collapse and (on.precompute or not lent.waits)
    layer = next((layer for layer in compaction if isinstance(layer, Compaction)), None)
    if layer is None or not wanted:
        return (), compaction
    ahead = SummaryAhead(layer, lent.able, lent.emit, lent.aside, waits=lent.waits)
    return (ahead,), (PrecomputedSummary(ahead), *compaction)
