"""Keeps the books while a session is driven again: rows, breaks, and what each layer saved and cost.

A layer saves, with each request, what the tokens it took out of the view would have cost: read from the
cache, or written where it was lost. What the recording itself compacted later no longer counts. A layer
costs its cache breaks, its own requests, and reading back what it took.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from sevenfold.cache.ledger import SIDE
from sevenfold.cache.prices import Price
from sevenfold.core.events import Added, Compacted, Event, Stored, get_label
from sevenfold.core.messages import Message, Text, assistant
from sevenfold.core.request import KEPT_WARM, TTL_SECONDS, Frame, Request, Ttl, make_kept_until_mark
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import PlacedMessage, Replace, Reply, Results, Transcript, Unthink, View
from sevenfold.layers.l2_microcompaction.microcompaction import Microcompaction, OldThinking
from sevenfold.layers.l3_session_memory.notes_compaction import NotesCompaction
from sevenfold.layers.l3_session_memory.notes_update import NotesUpdater
from sevenfold.layers.l4_compaction.compaction import Compaction
from sevenfold.layers.l4_compaction.digest import Digest
from sevenfold.layers.l5_durable_memory.extraction import LULL
from sevenfold.replay.costs import CacheProvider, has_thinking
from sevenfold.replay.needs import AbsenceTracker, LostItem, MissedSource
from sevenfold.replay.outcome import (
    BESIDE,
    CacheBreak,
    Kind,
    LayerAction,
    LayerShare,
    ReplayCompaction,
    ReplayOutcome,
    ReplayRegret,
    RequestRow,
    TimeSpent,
)
from sevenfold.session.spending import make_minimal_request
from sevenfold.testing.doubles import FakeClock
from sevenfold.turn import Turn

TOOL_RESULTS, MICRO, NOTES, COMPACTION = ("tool results", "microcompaction", "session memory", "compaction")
READ_BACK, KEEP_WARM, RECORDING = "read back", "keep warm", "recording"
EXTRACTION: Final = "extraction"
WHO: Final[dict[Kind, str]] = {
    "keep warm": KEEP_WARM, "notes": NOTES, "summary": COMPACTION, "extraction": EXTRACTION,
}  # fmt: skip
NOTICED: Final = 2_000  # Fewer tokens paid again are no break
SHARE: Final = 0.95  # Nor is it one if the cache had at least this share of the request before


class ReplayBooks:
    """The books of one session."""

    def __init__(self, price: Price, ttl: Ttl) -> None:
        self._price, self._ttl = price, ttl
        self.rows: list[RequestRow] = []
        self.turns = 0  # The session's own requests so far, those before `begin_anew` included
        self.breaks: list[CacheBreak] = []
        self.compactions: list[ReplayCompaction] = []
        self._actions: list[LayerAction] = []
        self._break_reason = ""
        self._last: RequestRow | None = None
        self._replied = 0.0  # The end of the last reply; silence begins there
        self._warmed: float | None = None  # The last time that the cache was kept warm since then
        self._warmer = KEEP_WARM
        self._spared: dict[str, float] = defaultdict(float)
        self._saved: dict[str, float] = defaultdict(float)
        self._cost: dict[str, float] = defaultdict(float)
        self._removed_by_layer: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._regret = ReplayRegret()
        self._open = set[str]()  # What was counted as removed and not as needed yet

    def begin_anew(self) -> None:
        """Forget what was booked so far: those requests are counted in another file."""
        for known in (self.rows, self.breaks, self.compactions, self._actions, self._open):
            known.clear()
        for by_layer in (self._saved, self._cost, self._removed_by_layer):
            by_layer.clear()
        self._regret = ReplayRegret()

    def record_action(self, layer: str, what: str, tokens: int = 0, why: str = "") -> None:
        """Record an action before the next request. `why`: in a word, if it breaks the prefix."""
        self._actions.append(LayerAction(layer, what, tokens))
        self._spared[layer] += tokens
        if why:
            self._break_reason = f"{layer}: {why}"

    def record_removed(self, lost: Iterable[LostItem]) -> None:
        """Record what left the view and could be asked for again."""
        for one in lost:
            self._open.add(one.source)
            self._removed_by_layer[one.layer][0] += 1
            known = self._regret
            self._regret = replace(
                known,
                removed=known.removed + 1,
                removed_tokens=known.removed_tokens + one.tokens,
                large_removed=known.large_removed + one.is_large,
            )

    def record_needed(self, missed: MissedSource, lost: LostItem) -> None:
        self._actions.append(LayerAction(READ_BACK, f"needed again: {missed.use_id}", -lost.tokens))
        self._spared[lost.layer] -= lost.tokens
        if lost.source not in self._open:
            return
        self._open.remove(lost.source)
        self._removed_by_layer[lost.layer][1] += 1
        known = self._regret
        self._regret = replace(
            known,
            needed=known.needed + 1,
            robust=known.robust + missed.robust,
            needed_tokens=known.needed_tokens + lost.tokens,
            large_needed=known.large_needed + (missed.robust and lost.is_large),
        )

    def record_compaction(self, by: str, before: int, after: int, fidelity: float | None = None) -> None:
        self.compactions.append(ReplayCompaction(len(self.rows), by, before, after, fidelity))

    def record_original_compaction(self, freed: int) -> None:
        """Reduce the savings by what the recording itself removed from its view now."""
        spared = sum(max(0.0, tokens) for tokens in self._spared.values())
        left = max(0.0, 1 - freed / spared) if spared else 0.0
        for layer, tokens in self._spared.items():
            self._spared[layer] = tokens * left if tokens > 0 else tokens

    def record_request(
        self,
        kind: Kind,
        at: float,
        usage: Usage,
        recorded: Usage | None = None,
        blame: str = "",
        model: str = "",
        robust: bool = False,
    ) -> None:
        """Record an answered request. `blame`: the layer that pays for reading back."""
        row = RequestRow(at, kind, usage, recorded or Usage(), tuple(self._actions), robust, model)
        self._actions.clear()
        whose = WHO.get(kind, blame)
        if kind not in BESIDE:
            self._count_break(row)
            self._count_savings(row)
            self._last = row
            self.record_reply(row.at)
        elif kind in ("keep warm", "extraction"):
            self._warmed, self._warmer = row.at, whose
        if whose:
            self._cost[whose] += self._price.units(usage)
        self.rows.append(row)
        self.turns += kind == "turn"

    def record_lean(self, kind: Kind, at: float, usage: Usage, price: Price | None) -> None:
        """Record a request of its own to the small model, in tokens of the session's own price."""
        own, main = price or self._price, self._price
        sent = usage.input * (own.input / main.input if main.input else 1.0)
        said = usage.output * (own.output / main.output if main.output else 1.0)
        scaled = Usage(input=round(sent), output=round(said))
        row = RequestRow(at, kind, scaled, Usage(), tuple(self._actions), model=f"{SIDE}{own.model}")
        self._actions.clear()
        self._cost[WHO[kind]] += main.units(scaled)
        self.rows.append(row)

    def record_reply(self, at: float) -> None:
        """Set the end of the reply to the last request of the conversation."""
        self._replied, self._warmed = at, None

    def _count_break(self, row: RequestRow) -> None:
        last, why, self._break_reason = self._last, self._break_reason, ""
        if last is None:
            return
        should = min(last.context, row.context)
        again = should - row.usage.cache_read
        life, warmed = TTL_SECONDS[self._ttl], self._warmed
        silent = row.at - (warmed or self._replied) > life
        kept = warmed is not None and row.at - self._replied > life
        if kept and not silent and not again > NOTICED:
            self._saved[self._warmer] += should * self._lost_price
        if again < NOTICED or row.usage.cache_read >= SHARE * should:
            return
        reason = "silence" if silent else why or "the prefix changed"
        self.breaks.append(CacheBreak(len(self.rows), again, reason))
        if why and not silent:
            self._cost[why.partition(":")[0]] += again * self._lost_price

    @property
    def context(self) -> int:
        """Tokens of the last request of the conversation."""
        return self._last.context if self._last is not None else 0

    @property
    def _lost_price(self) -> float:
        return (self._price.write_1h if self._ttl == "1h" else self._price.write_5m) - self._price.read

    def _count_savings(self, row: RequestRow) -> None:
        """Count what is out of the view: it was neither read nor, after a break, written."""
        used = row.usage
        kept = used.cache_read / used.prompt if used.prompt else 1.0
        rate = self._price.read + (1 - kept) * self._lost_price
        for layer, tokens in self._spared.items():
            self._saved[layer] += tokens * rate

    def make_outcome(self, spent: TimeSpent) -> ReplayOutcome:
        layers = {*self._saved, *self._cost}
        by_layer = {name: (n, again) for name, (n, again) in sorted(self._removed_by_layer.items())}
        return ReplayOutcome(
            tuple(self.rows),
            tuple(self.breaks),
            replace(self._regret, by_layer=by_layer),
            tuple(self.compactions),
            {name: LayerShare(self._saved[name], self._cost[name]) for name in sorted(layers)},
            spent,
        )


COUNTING: Final = "Counting"  # The label of the rule that clears by counting
LAYER_NAMES: Final = {  # The names of layers in the books, by their labels
    Microcompaction.label: MICRO,
    OldThinking.label: MICRO,
    COUNTING: MICRO,
    NotesCompaction.label: NOTES,
    NotesUpdater.label: NOTES,
    Compaction.label: COMPACTION,
    Digest.label: COMPACTION,
}


class EventWatch:
    """Books the events of a session; `view` is the view before the next one."""

    def __init__(
        self, books: ReplayBooks, absence: AbsenceTracker, transcript: Transcript, provider: CacheProvider
    ) -> None:
        self._books, self._absence = books, absence
        self._transcript, self._provider = transcript, provider
        self.view: View = transcript.view
        self.weigh: Callable[[PlacedMessage], int] = lambda placed: 0
        self._compacted: Compacted | None = None
        self._stored: set[str] = set()  # Incoming results that layer 1 has put on disk

    def note_event(self, event: Event) -> None:
        match event:
            case Compacted():
                self._compacted = event
            case Stored():
                self._stored.add(event.use_id)
            case Added(by, whats):
                self._record_edits(LAYER_NAMES.get(by, by), by, whats)
            case _:
                pass

    def record_stored(self, whole: Message) -> None:
        """Record the results of this message that layer 1 has put on disk."""
        short = [r for r in whole.results if r.tool_use_id in self._stored]
        self._stored.clear()
        if not short:
            return
        ids = {r.tool_use_id for r in short}
        lost = self._absence.remove_results([r.tool_use_id for r in short], TOOL_RESULTS)
        self._books.record_removed(lost)
        placed = self._transcript.view[-1]
        left = self._absence.count_shown_tokens(r for r in placed.message.results if r.tool_use_id in ids)
        tokens = sum(one.tokens for one in lost) - left
        self._books.record_action(TOOL_RESULTS, f"stored {len(short)} results", max(0, tokens))

    def _record_edits(self, layer: str, by: str, whats: tuple[object, ...]) -> None:
        before, after = self.view, self._transcript.view
        self.view = after
        edits = [w for w in whats if isinstance(w, Results | Replace | Unthink)]
        if not edits:
            return
        freed = self._measure_freed(before, after)
        for edit in edits:
            if isinstance(edit, Results):
                self._books.record_removed(self._absence.remove_results(edit.shown, layer))
                self._books.record_action(layer, f"cleared {len(edit.shown)} results", freed, "cleared")
        if any(isinstance(edit, Unthink) for edit in edits):
            thought = ((p.id, after.where(p.id)) for p in before if has_thinking(p.message))
            went = [id for id, at in thought if at is not None and not has_thinking(after[at].message)]
            self._books.record_removed(self._absence.remove_thoughts(went, layer))
            if all(isinstance(edit, Unthink) for edit in edits):  # else it is freed with the others
                what = f"dropped the thinking of {len(went)} replies"
                self._books.record_action(layer, what, freed, "thinking dropped")
        if any(isinstance(edit, Replace) for edit in edits):
            self._record_replacement(before, after, layer, by, freed)

    def _measure_freed(self, before: View, after: View) -> int:
        old = {id(placed): placed for placed in before}
        kept = [placed for placed in after if old.pop(id(placed), None) is None]
        return sum(map(self.weigh, old.values())) - sum(map(self.weigh, kept))

    def _record_replacement(self, before: View, after: View, layer: str, by: str, freed: int) -> None:
        gone = [placed for placed in before if after.where(placed.id) is None]
        self._books.record_removed(self._absence.remove_messages(gone, layer))
        whole = self._provider.unseen + sum(map(self.weigh, before))
        told, self._compacted = self._compacted, None
        made = told.by if told else by
        self._books.record_action(layer, f"replaced the older part ({made})", freed, "compacted")
        self._books.record_compaction(made, whole, whole - freed, told.fidelity if told else None)


KEEP_WARM_AT: Final = 0.9  # Share of the cache's lifetime after which it is kept warm


class ReplaySilence:
    """Lets time pass. `times`: requests in a row that keep the cache warm in any silence."""

    def __init__(
        self,
        frame: Frame,
        clock: FakeClock,
        transcript: Transcript,
        provider: CacheProvider,
        books: ReplayBooks,
        times: int,
        catch_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """`catch_up`: extracts memories if there is need to, and so reads the prefix."""
        self._frame, self._clock, self._transcript = frame, clock, transcript
        self._provider, self._books, self._times = provider, books, times
        self._life = TTL_SECONDS[frame.ttl]
        self._catch_up = catch_up
        self._left_at = 0.0  # The last time that a branch was asked which the user left
        self._read_at = 0.0  # The last time that a request beside the conversation read the prefix

    def until(self, frame: Frame) -> float | None:
        """The time at which the cached prefix expires in a silence."""
        replied = self._transcript.view.replied_at
        return None if replied is None else max(replied, self._read_at) + self._life

    async def pass_until_left(self, at: float, turn: Callable[[], Turn]) -> None:
        """Let a silence pass until a request on a branch that was left.

        It reads the common prefix or writes it anew. That is in no row: such requests are counted apart.
        """
        await self.pass_until(at, turn)
        self._provider.ask(turn().request, at)
        self._books.record_reply(at)
        self._read_at = self._left_at = at

    async def pass_until(self, then: float, turn: Callable[[], Turn]) -> None:
        """Let a silence pass; the idle layers are asked as the session's timer would."""
        replied = self._transcript.view.replied_at
        last = None if replied is None else max(replied, self._left_at)
        rests = last is not None and is_at_rest(self._transcript.view)
        if last is not None and rests and last + LULL < then:
            self._clock.time = max(self._clock.time, last + LULL)
            if self._catch_up():
                self._read_at = self._clock.time
                mark = make_kept_until_mark(self._transcript.view, self._read_at + self._life)
                self._transcript.add(mark, by=EXTRACTION)
        for n in range(1, self._times + 1):
            at = (last or then) + n * KEEP_WARM_AT * self._life
            if at >= then:
                break
            self._clock.time = at
            await self.kept_warm(turn().request)
        if turn().layers.idle and replied is not None and rests:
            await self._ask_idle_layers(replied, then, turn())
        self._clock.time = max(self._clock.time, then)

    async def _ask_idle_layers(self, replied: float, then: float, turn: Turn) -> None:
        """Ask the idle layers each time the cache is about to expire."""
        ends, life = max(replied, self._read_at) + self._life, self._life
        while (at := ends - (1 - KEEP_WARM_AT) * life + 1.0) < then:
            self._clock.time = at
            request = turn.request
            for layer in turn.layers.idle:
                turn.append(get_label(layer), await layer(request, at - replied))
            kept = self._transcript.view.marks.get(KEPT_WARM) or {}
            until = kept.get("until", 0.0) if kept.get("since") == replied else 0.0
            if until <= ends:
                return
            life, ends = until - at, until

    async def kept_warm(self, request: Request) -> Reply | None:
        """Send a minimal request that reads the prefix; always with the frame's own lifetime."""
        request, now = replace(request, frame=self._frame), self._clock.time
        usage = replace(self._provider.ask(make_minimal_request(request), now), output=1)
        self._books.record_request("keep warm", now, usage)
        self._read_at = now
        mark = make_kept_until_mark(self._transcript.view, now + self._life)
        self._transcript.add(mark, by=KEEP_WARM)
        return Reply(assistant(Text("yes")), usage)


def is_at_rest(view: View) -> bool:
    """True if the model has answered, and no tool is running."""
    return bool(len(view)) and view[-1].by == "model" and not view[-1].message.tool_uses
