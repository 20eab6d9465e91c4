"""Keeps the books while a session is driven again: rows, breaks, and what each layer saved and cost.

What a layer saved is worked out request by request: the tokens it has taken out of the view and that are
still out would have been read from the cache, or written to it where the cache was lost. What the recording
itself compacted later would have gone anyway and is saved no longer. Against that stand the breaks that the
layer made, its own requests, and reading back what it took.

Watches what layers do to the view of a session that is driven again, and puts it into the books.
While nobody speaks in a recorded session: what keeps the provider's cache warm, and what that
costs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from sevenfold.cache.prices import Price
from sevenfold.core.events import Added, Compacted, Event, Stored, get_label
from sevenfold.core.messages import THOUGHTS, Message, Text, assistant
from sevenfold.core.request import KEPT_WARM, TTL_SECONDS, Frame, Request, Ttl, make_kept_until_mark
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Id, PlacedMessage, Replace, Reply, Results, Transcript, Unthink, View
from sevenfold.layers.l5_durable_memory.extraction import LULL
from sevenfold.replay.costs import CacheProvider
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
    "keep warm": KEEP_WARM,
    "notes": NOTES,
    "summary": COMPACTION,
    "extraction": EXTRACTION,
}
NOTICED: Final = 2_000
"""Tokens paid again below which nobody speaks of a break."""
SHARE: Final = 0.95
"""Nor when so much of the request before was found in the cache."""


class ReplayBooks:
    """The books of one session."""

    def __init__(self, price: Price, ttl: Ttl) -> None:
        self._price, self._ttl = price, ttl
        self.rows: list[RequestRow] = []
        self.breaks: list[CacheBreak] = []
        self.compactions: list[ReplayCompaction] = []
        self._waiting: list[LayerAction] = []
        self._why = ""
        self._last: RequestRow | None = None
        self._replied = 0.0
        """When the last reply had ended: silence begins there."""
        self._warmed: float | None = None
        """When the cache was last kept warm since then, and by whom."""
        self._warmer = KEEP_WARM
        self._spared: dict[str, float] = defaultdict(float)
        self._saved: dict[str, float] = defaultdict(float)
        self._cost: dict[str, float] = defaultdict(float)
        self._removed: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._regret = ReplayRegret()

    # --- what layers do ---------------------------------------------------------------------------------

    def happened(self, layer: str, what: str, tokens: int = 0, why: str = "") -> None:
        """Something was done before the next request. `why`: it breaks the prefix, in a word."""
        self._waiting.append(LayerAction(layer, what, tokens))
        self._spared[layer] += tokens
        if why:
            self._why = f"{layer}: {why}"

    def removed(self, lost: Iterable[LostItem]) -> None:
        """What left the view and could be asked for again."""
        for one in lost:
            self._removed[one.layer][0] += 1
            tokens = self._regret.removed_tokens + one.tokens
            self._regret = replace(self._regret, removed=self._regret.removed + 1, removed_tokens=tokens)

    def needed(self, missed: MissedSource, lost: LostItem) -> None:
        self._removed[lost.layer][1] += 1
        self._spared[lost.layer] -= lost.tokens
        known = self._regret
        self._regret = replace(
            known,
            needed=known.needed + 1,
            robust=known.robust + missed.robust,
            needed_tokens=known.needed_tokens + lost.tokens,
        )
        self._waiting.append(LayerAction(READ_BACK, f"needed again: {missed.use_id}", -lost.tokens))

    def compacted(self, by: str, before: int, after: int, fidelity: float | None = None) -> None:
        self.compactions.append(ReplayCompaction(len(self.rows), by, before, after, fidelity))

    def recording_compacted(self, freed: int) -> None:
        """So much would have left the view now without us."""
        spared = sum(max(0.0, tokens) for tokens in self._spared.values())
        left = max(0.0, 1 - freed / spared) if spared else 0.0
        for layer, tokens in self._spared.items():
            self._spared[layer] = tokens * left if tokens > 0 else tokens

    # --- requests ---------------------------------------------------------------------------------------

    def asked(
        self,
        kind: Kind,
        at: float,
        usage: Usage,
        recorded: Usage | None = None,
        blame: str = "",
        model: str = "",
    ) -> None:
        """A request was answered. `blame`: the layer on whose account one goes that reads back."""
        row = RequestRow(at, kind, usage, recorded or Usage(), tuple(self._waiting), model)
        self._waiting.clear()
        whose = WHO.get(kind, blame)
        if kind not in BESIDE:
            self._count_break(row)
            self._count_savings(row)
            self._last = row
            self.answered(row.at)
        elif kind in ("keep warm", "extraction"):
            self._warmed, self._warmer = row.at, whose
        if whose:
            self._cost[whose] += self._price.units(usage)
        self.rows.append(row)

    def answered(self, at: float) -> None:
        """The reply to the last request of the conversation ended then."""
        self._replied, self._warmed = at, None

    def _count_break(self, row: RequestRow) -> None:
        last, why, self._why = self._last, self._why, ""
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
    def _lost_price(self) -> float:
        write = self._price.write_1h if self._ttl == "1h" else self._price.write_5m
        return write - self._price.read

    def _count_savings(self, row: RequestRow) -> None:
        """What is out of the view was neither read nor, after a loss, written."""
        used = row.usage
        kept = used.cache_read / used.prompt if used.prompt else 1.0
        rate = self._price.read + (1 - kept) * self._lost_price
        for layer, tokens in self._spared.items():
            self._saved[layer] += tokens * rate

    # --- in the end -------------------------------------------------------------------------------------

    def outcome(self, spent: TimeSpent) -> ReplayOutcome:
        layers = {*self._saved, *self._cost}
        by_layer = {name: (n, again) for name, (n, again) in sorted(self._removed.items())}
        return ReplayOutcome(
            tuple(self.rows),
            tuple(self.breaks),
            replace(self._regret, by_layer=by_layer),
            tuple(self.compactions),
            {name: LayerShare(self._saved[name], self._cost[name]) for name in sorted(layers)},
            spent,
        )


NAMES: Final = {
    "Microcompaction": MICRO,
    "Counting": MICRO,
    "PayOut": NOTES,
    "NotesKeeping": NOTES,
    "Compaction": COMPACTION,
    "Digest": COMPACTION,
}


class EventWatch:
    """Told of every event; `view` is what was there before it."""

    def __init__(
        self, tally: ReplayBooks, absence: AbsenceTracker, transcript: Transcript, provider: CacheProvider
    ) -> None:
        self._tally, self._absence = tally, absence
        self._transcript, self._provider = transcript, provider
        self.view: View = transcript.view
        self.weigh: Callable[[PlacedMessage], int] = lambda placed: 0
        self._compacted: Compacted | None = None
        self._stored: set[str] = set()
        """Results that layer 1 has put on disk, of those that are just coming in."""

    def heard(self, event: Event) -> None:
        match event:
            case Compacted():
                self._compacted = event
            case Stored():
                self._stored.add(event.use_id)
            case Added(by, whats):
                self._added(NAMES.get(by, by), by, whats)
            case _:
                pass

    def stored(self, whole: Message) -> None:
        """Results of this message that layer 1 has put on disk; another wording of one is no removal."""
        short = [r for r in whole.results if r.tool_use_id in self._stored]
        self._stored.clear()
        if not short:
            return
        ids = {r.tool_use_id for r in short}
        lost = self._absence.results_went([r.tool_use_id for r in short], TOOL_RESULTS)
        self._tally.removed(lost)
        placed = self._transcript.view[-1]
        left = self._absence.as_shown(r for r in placed.message.results if r.tool_use_id in ids)
        tokens = sum(one.tokens for one in lost) - left
        self._tally.happened(TOOL_RESULTS, f"stored {len(short)} results", max(0, tokens))

    def _added(self, layer: str, by: str, whats: tuple[object, ...]) -> None:
        before, after = self.view, self._transcript.view
        self.view = after
        edits = [w for w in whats if isinstance(w, Results | Replace | Unthink)]
        if not edits:
            return
        freed = self._freed(before, after)
        for edit in edits:
            if isinstance(edit, Results):
                lost = self._absence.results_went(edit.shown, layer)
                self._tally.removed(lost)
                self._tally.happened(layer, f"cleared {len(lost)} results", freed, "cleared")
        if any(isinstance(edit, Unthink) for edit in edits):
            self._thoughts(before, after, layer)
        if any(isinstance(edit, Replace) for edit in edits):
            self._replaced(before, after, layer, by, freed)

    def _freed(self, before: View, after: View) -> int:
        old = {id(placed): placed for placed in before}
        kept = [placed for placed in after if old.pop(id(placed), None) is None]
        return sum(map(self.weigh, old.values())) - sum(map(self.weigh, kept))

    def _thoughts(self, before: View, after: View, layer: str) -> None:
        went = [p.id for p in before if _thinks(p) and self._unthought(after, p.id)]
        self._absence.thoughts_went(went, layer)

    @staticmethod
    def _unthought(after: View, id: Id) -> bool:
        at = after.where(id)
        return at is not None and not _thinks(after[at])

    def _replaced(self, before: View, after: View, layer: str, by: str, freed: int) -> None:
        gone = [placed for placed in before if after.where(placed.id) is None]
        self._tally.removed(self._absence.messages_went(gone, layer))
        whole = self._provider.unseen + sum(map(self.weigh, before))
        told, self._compacted = self._compacted, None
        made = told.by if told else by
        self._tally.happened(layer, f"replaced the older part ({made})", freed, "compacted")
        self._tally.compacted(made, whole, whole - freed, told.fidelity if told else None)


def _thinks(placed: PlacedMessage) -> bool:
    return any(isinstance(block, THOUGHTS) for block in placed.message.content)


KEEP_WARM_AT: Final = 0.9
"""Of the cache's lifetime."""


class ReplaySilence:
    """Lets time pass. `times`: so many requests in a row keep the cache warm in any silence."""

    def __init__(
        self,
        frame: Frame,
        clock: FakeClock,
        transcript: Transcript,
        provider: CacheProvider,
        tally: ReplayBooks,
        times: int,
        catch_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """`catch_up`: looks through the conversation, if there is need to, and so reads the prefix."""
        self._frame, self._clock, self._transcript = frame, clock, transcript
        self._provider, self._tally, self._times = provider, tally, times
        self._life = TTL_SECONDS[frame.ttl]
        self._catch_up = catch_up
        self._read = 0.0
        """When the prefix was last read beside the conversation."""

    def until(self, frame: Frame) -> float | None:
        """When the prefix is lost, if nobody speaks."""
        replied = self._transcript.view.replied_at
        return None if replied is None else max(replied, self._read) + self._life

    async def pass_until(self, then: float, turn: Callable[[], Turn]) -> None:
        """Nobody speaks; the layers that act on silence are asked, as the session's timer would."""
        last = self._transcript.view.replied_at
        rests = last is not None and is_at_rest(self._transcript.view)
        if last is not None and rests and last + LULL < then:
            self._clock.time = max(self._clock.time, last + LULL)
            if self._catch_up():
                self._read = self._clock.time
                mark = make_kept_until_mark(self._transcript.view, self._read + self._life)
                self._transcript.add(mark, by=EXTRACTION)
        for n in range(1, self._times + 1):
            at = (last or then) + n * KEEP_WARM_AT * self._life
            if at >= then:
                break
            self._clock.time = at
            await self.kept_warm(turn().request)
        if turn().layers.idle and last is not None and rests:
            await self._watched(last, then, turn())
        self._clock.time = max(self._clock.time, then)

    async def _watched(self, last: float, then: float, turn: Turn) -> None:
        """Each time the cache is about to be lost."""
        ends, life = max(last, self._read) + self._life, self._life
        while (at := ends - (1 - KEEP_WARM_AT) * life + 1.0) < then:
            self._clock.time = at
            request = turn.request
            for layer in turn.layers.idle:
                turn.append(get_label(layer), await layer(request, at - last))
            kept = self._transcript.view.marks.get(KEPT_WARM) or {}
            until = kept.get("until", 0.0) if kept.get("since") == last else 0.0
            if until <= ends:
                return
            life, ends = until - at, until

    async def kept_warm(self, request: Request) -> Reply | None:
        """For an hour is as good as not at all: nothing promises that an older prefix lives so long."""
        request = replace(request, frame=self._frame)
        usage = replace(self._provider.ask(make_minimal_request(request), self._clock.time), output=1)
        self._tally.asked("keep warm", self._clock.time, usage)
        return Reply(assistant(Text("yes")), usage)


def is_at_rest(view: View) -> bool:
    """Whether the model has answered, and no tool is at work."""
    return bool(len(view)) and view[-1].by == "model" and not view[-1].message.tool_uses
