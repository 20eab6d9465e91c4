"""The one place where layers meet: which layer acts at which moment, cheapest first.

`BlockCheck` is asked last before a request: it warns in time, and stops what cannot fit, with what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, Literal, TypeAlias

from sevenfold.core.errors import ContextFull
from sevenfold.core.events import Emit, Notice
from sevenfold.core.protocols import Attach, BackgroundStep, Change, Fit, IdleStep, Layers
from sevenfold.core.request import Request
from sevenfold.core.tokens import Pressure
from sevenfold.layers.l1_tool_results.tool_results import ToolResults
from sevenfold.layers.l2_microcompaction.cache_expiry import CacheExpiry
from sevenfold.layers.l2_microcompaction.microcompaction import Microcompaction, OldThinking
from sevenfold.layers.l2_microcompaction.provider import CacheEditing
from sevenfold.layers.l3_session_memory.notes import Notebook
from sevenfold.layers.l3_session_memory.notes_compaction import NotesCompaction
from sevenfold.layers.l3_session_memory.notes_update import NotesUpdater
from sevenfold.layers.l4_compaction.compaction import Compaction
from sevenfold.layers.l4_compaction.digest import Digest
from sevenfold.layers.l4_compaction.fold import BLOCK, COMMIT, Collapse, Snip, UnlessCollapsing
from sevenfold.layers.l4_compaction.server import RequestedCompaction, ServerCompaction
from sevenfold.layers.l4_compaction.summary_ahead import PrecomputedSummary, SummaryAhead, WarmSummary
from sevenfold.layers.l5_durable_memory.extraction import Extraction, LateExtraction
from sevenfold.layers.l5_durable_memory.recall import Recall
from sevenfold.layers.l6_dreaming.dreaming import Dreaming
from sevenfold.layers.parts import LayerParts

NEAR: Final = 0.75
"""No warning below this share of the auto-compact threshold: the warning may be set very low."""


class BlockCheck:
    """Better no request than one that the provider will refuse and we cannot mend."""

    label: ClassVar[str] = "BlockCheck"

    def __init__(self, emit: Emit | None = None, *, compacts: bool = True, collapses: bool = False) -> None:
        """`emit` is told once when the window gets full, and again each time that it gets full anew.

        `compacts`: whether anything makes room before there is none. `collapses`: tool rounds are
        collapsed first.
        """
        self._emit, self._compacts, self._collapses = emit, compacts, collapses
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
            self._emit(_warning(pressure, self._compacts, self._collapses))
        self._warned = over


def _warning(pressure: Pressure, compacts: bool, collapses: bool) -> Notice:
    at = pressure.thresholds
    full = f"the window is getting full: about {pressure.tokens:,} of {at.effective:,} tokens"
    if collapses:
        then = f"and only above {int(BLOCK * at.effective):,} the older part is compacted"
        never = f"and from {at.block:,} on nothing is sent any more: compaction is off"
        return Notice(
            f"{full}; above {int(COMMIT * at.effective):,} finished tool rounds are collapsed, "
            f"{then if compacts else never}"
        )
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


LayerRole: TypeAlias = Literal["main", "agent", "fork"]


def make_standard_layers(role: LayerRole, parts: LayerParts) -> Layers:
    """The layers of a conversation. A fork fits nothing: it lives on its parent's view."""
    nearby = () if parts.instructions is None else (parts.instructions,)
    intake = (ToolResults(parts),) if parts.switches.tool_results else ()
    if role == "fork":
        return Layers((*nearby, *parts.mail), intake)
    if role == "agent":
        return Layers((*nearby, *parts.mail), intake, (*_compaction(parts), BlockCheck()))
    notes_kept, notes_used = _session_memory(parts)
    compaction = _compaction(parts)
    prepared, used = _compaction_ahead(parts, compaction)
    summaries: tuple[Fit, ...] = (*notes_used, *used, *compaction)
    if parts.switches.collapse:  # while it is on, nothing else compacts before it has to
        summaries = tuple(UnlessCollapsing(layer) for layer in summaries)
    block = BlockCheck(
        parts.emit if parts.can_wait else None,  # else no person is there who could compact it
        compacts=parts.switches.compact,
        collapses=parts.switches.collapse,
    )
    extraction = _extraction(parts)
    server = () if parts.server is None else (ServerCompaction(parts),)
    return Layers(
        attach=(*nearby, *_recall(parts), *parts.mail),
        intake=intake,
        fit=(*_folds(parts), *_on_demand(parts), *summaries, block),
        replied=(*notes_kept, *prepared, *server),
        rest=(*extraction, *_dreaming(parts)),
        idle=(*map(LateExtraction, extraction), *_cache_expiry(parts, compaction)),
    )


def _folds(parts: LayerParts) -> tuple[Fit, ...]:
    """The layers that take out old results and old rounds, cheapest first."""
    on = parts.switches
    snip = (Snip(parts),) if on.snip else ()
    editing = (CacheEditing(parts),) if on.micro_cache_edit else ()
    collapse = (Collapse(parts),) if on.collapse else ()
    return (*snip, Microcompaction(parts), OldThinking(parts), *editing, *collapse)


def _session_memory(parts: LayerParts) -> tuple[tuple[BackgroundStep, ...], tuple[Fit, ...]]:
    """The layer that keeps the notes, and the one that puts them in place of the older part."""
    on = parts.switches
    if not (on.notes and on.compact) or parts.fork is None or parts.conversation.transcript_path is None:
        return (), ()
    notebook = (parts.make_notebook or Notebook)(parts)
    used = (NotesCompaction(parts, notebook),) if on.payout else ()
    return (() if parts.one_shot else (NotesUpdater(parts, notebook),)), used


def _on_demand(parts: LayerParts) -> tuple[Fit, ...]:
    wanted = parts.send is not None and parts.settings.compaction.server == "onDemand"
    return (RequestedCompaction(parts),) if wanted else ()


def _compaction(parts: LayerParts) -> tuple[Compaction | Digest, ...]:
    if not (parts.switches.compact or parts.switches.reactive):
        return ()
    return (Digest(parts),) if parts.fork is None else (Compaction(parts),)


def _compaction_ahead(
    parts: LayerParts, compaction: tuple[Compaction | Digest, ...]
) -> tuple[tuple[BackgroundStep, ...], tuple[Fit, ...]]:
    """A summary is prepared if the user wants that, and if there is no other time to ask for it."""
    on = parts.switches
    wanted = on.compact and not on.collapse and (on.precompute or not parts.can_wait)
    for layer in compaction:
        if wanted and isinstance(layer, Compaction):
            ahead = SummaryAhead(parts, layer)
            return (ahead,), (PrecomputedSummary(ahead),)
    return (), ()


def _cache_expiry(parts: LayerParts, compaction: tuple[Compaction | Digest, ...]) -> tuple[IdleStep, ...]:
    if not parts.switches.pre_cold or parts.keep_warm is None:
        return ()
    for layer in compaction:
        if isinstance(layer, Compaction) and not parts.switches.collapse:
            return (CacheExpiry(parts, WarmSummary(parts, layer)),)
    return (CacheExpiry(parts),)


def _recall(parts: LayerParts) -> tuple[Attach, ...]:
    return (Recall(parts),) if parts.switches.recall and parts.recall is not None else ()


def _extraction(parts: LayerParts) -> tuple[Extraction, ...]:
    can_ask = parts.fork is not None and parts.extraction is not None
    return (Extraction(parts),) if parts.switches.extraction and can_ask else ()


def _dreaming(parts: LayerParts) -> tuple[BackgroundStep, ...]:
    can_ask = parts.fork is not None and parts.dreams is not None
    return (Dreaming(parts),) if parts.switches.dream and can_ask else ()
