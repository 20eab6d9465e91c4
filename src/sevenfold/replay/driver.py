"""One recorded session through the layers: the recorded words and times, our view, and what it costs.

    for each entry of the recording
        a message    goes through layer 1, and into our transcript
        a reply      our layers make the request fit; what is needed and gone is read back; the provider
                     counts; the recorded reply is written; the background layers run
        a compaction of the recording is carried out, or ignored if the policy compacts by itself

The layers are those of the product, in the turn of the product. They do not see later entries.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as with_fields
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import ClassVar, Final

from msgspec import convert
from msgspec.structs import replace

from sevenfold.cache.ledger import SIDE
from sevenfold.cache.prices import LimitsOf, ModelLimits, Price, Prices
from sevenfold.core.clock import run_sync
from sevenfold.core.events import Cleared, Emit, Event, get_label
from sevenfold.core.messages import Block, Json, Message, Text, ToolResult, assistant, user
from sevenfold.core.protocols import Capabilities, Change, Fit, Layers
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import TEXT_RATE, Pressure, Thresholds, Usage, measure_message
from sevenfold.core.transcript import (
    Entry,
    Id,
    Mark,
    Pin,
    PlacedMessage,
    Replace,
    Reply,
    Results,
    Transcript,
    Unthink,
)
from sevenfold.layers.l2_microcompaction.candidates import ViewScan, store_cleared_results
from sevenfold.layers.l3_session_memory.notes import Notebook, NotesCoverage
from sevenfold.layers.l7_agents.forks import ForkRunner
from sevenfold.layers.ladder import BlockCheck, LayerRole, make_standard_layers
from sevenfold.layers.parts import LayerParts, PlainConversation
from sevenfold.layers.shared.boundary import SPOKEN, STANDS_FOR, record_name
from sevenfold.layers.shared.facts import IdentityCache
from sevenfold.layers.shared.idle_gaps import GapCounts
from sevenfold.layers.shared.restore import RestoredFiles, RestoredNames, Restorer, StartContext
from sevenfold.models.capabilities import find_capabilities
from sevenfold.recordings.recorded_session import BY_RULE, LEFT
from sevenfold.recordings.windows import find_session_window
from sevenfold.replay.bookkeeping import COUNTING, RECORDING, EventWatch, ReplayBooks, ReplaySilence
from sevenfold.replay.costs import (
    LARGEST_FIXED,
    LEAST_INHERITED,
    CacheProvider,
    compute_token_rates,
    estimate_message,
    estimate_size,
    find_ttl,
    has_thinking,
    remove_thinking,
)
from sevenfold.replay.needs import AbsenceTracker, MissedSource, ReplyNeed, find_needs
from sevenfold.replay.outcome import Kind, ReplayOutcome, TimeSpent
from sevenfold.replay.policies import ClearRule, Policy
from sevenfold.replay.stand_ins import (
    LEAN_NOTES,
    NOTES,
    MemoryCharges,
    ReplayDisk,
    ReplayExtraction,
    RuleModel,
    make_replay_side_work,
)
from sevenfold.settings.layers import CLEARABLE
from sevenfold.storage.results import ResultStore
from sevenfold.testing.doubles import FakeClock, FakeTools, NoAccounts, Postponed
from sevenfold.tools.file_tools import EDIT_SCHEMA
from sevenfold.turn import Turn

# What layers tell of files: absolute paths of about the usual length
TRANSCRIPT: Final = Path("/home/a-user/.sevenfold/projects/a-project/20260101-120000-session.jsonl")
FOLDER: Final = TRANSCRIPT.with_suffix("") / "tool-results"


class UnwrittenResults(ResultStore):
    """Returns the path of a stored result, and writes nothing."""

    def __init__(self) -> None:
        super().__init__(lambda: FOLDER)

    def keep(self, use_id: str, content: str | tuple[Block, ...], *, lasting: bool = True) -> Path:
        return FOLDER / f"{use_id}.txt"


class UnwrittenNotes(Notebook):
    """Keeps the notes in memory, and tells the path that they would have."""

    def read(self, *, expected: bool = False) -> str | None:
        return self._good

    def write(self, text: str, before: str | None, covered: NotesCoverage) -> None:
        self._good, self._covered = text, covered


def make_policy_layers(policy: Policy, parts: LayerParts, role: LayerRole = "main") -> Layers:
    """The layers of the product under this policy, without the check that stops a session."""
    on, micro = policy.flags, policy.micro
    if not policy.compacts:
        on = replace(on, compact=False, reactive=False, notes=False, precompute=False)
    if policy.clear is not None:  # in place of layer 2; the plain rule of it is a setting, not a flag
        on = replace(on, micro_cost=False, micro_time=False)
        micro = replace(micro, policy="cost")
    settings = replace(
        parts.settings,
        tool_results=policy.tool_results,
        micro=micro,
        notes=policy.notes,
        compaction=policy.compaction,
    )
    made = make_standard_layers(role, with_fields(parts, switches=on, settings=settings))
    fit = tuple(layer for layer in made.fit if not isinstance(layer, BlockCheck))
    rule: tuple[Fit, ...] = (CountingClear(parts.emit, policy.clear),) if policy.clear else ()
    return with_fields(made, fit=(*rule, *fit), attach=(), rest=())


class CountingClear:
    """Clears old results by counting alone."""

    label: ClassVar[str] = COUNTING

    def __init__(self, emit: Emit, rule: ClearRule) -> None:
        self._emit, self._rule = emit, rule
        self._scan, self._store = ViewScan(CLEARABLE, ()), UnwrittenResults()

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        self._scan.follow(request.view)
        rule, old = self._rule, self._scan.found[: -self._rule.keep]
        many = rule.every and len(old) >= rule.every
        large = rule.tokens and sum(one.tokens for one in old) >= rule.tokens
        if not old or not (many or large):
            return ()
        shown = store_cleared_results(old, request.view, self._store, self._emit)
        self._emit(Cleared("rule", tuple(shown), 0, 0, 0.0, 0.0, "counted"))
        return (Results(shown),)


def forget_entries(log: Transcript) -> None:
    """Free the entries and the records of messages that left the view: a replay undoes nothing."""
    log.entries.clear()
    view = log.view
    records = [name for name in view.marks if name.startswith(STANDS_FOR)]
    if len(records) <= 1:
        return
    needed = {record_name(placed.message) for placed in view if placed.by not in SPOKEN}
    if gone := set(records) - needed:
        marks = {name: value for name, value in view.marks.items() if name not in gone}
        log.view = replace(view, marks=marks)


AFTERWARDS: Final = 7_200.0  # Seconds of silence after the last reply: what layers do in it is charged
CALL_OUTPUT: Final = 120  # Tokens of the call that reads something back
ANALYSIS: Final = 1.5  # Output tokens per token of a recorded summary: its analysis is not in the file
FILLER: Final = "x" * 199 + "\n"  # Stands for text that is not in the file

Make = Callable[[LayerParts], Layers]

_NEEDS: Final = {resets: IdentityCache(partial(find_needs, resets=resets), 1) for resets in (True, False)}
"""The needs of the session that was replayed last: its other policies have the same."""


def drive_session(
    entries: Sequence[Entry],
    policy: Policy,
    model: str,
    price: Price,
    *,
    window: int | None = None,
    prices: Prices | None = None,
    limits_of: LimitsOf = lambda model: ModelLimits(),
    fixed: int = LARGEST_FIXED,
    role: LayerRole = "main",
    copied: int = 0,
    tell: Callable[[int], None] = lambda done: None,
) -> ReplayOutcome:
    """Replay one session under one policy; `tell` is called with the number of entries done.

    `limits_of`: the limits in the user's own table. `fixed` is the largest system prompt with tools that it
    can have had; the first `copied` requests are replayed, and counted in another file.
    """
    lives = policy.cache_ttl, policy.system_ttl or "1h"
    ttl, system = (find_ttl(entries) if life == "recorded" else life for life in lives)
    frame = Frame(model, tools=({**EDIT_SCHEMA},), ttl=ttl, system_ttl=system)
    window = window or find_session_window(entries, model, limits_of=limits_of).tokens
    able = replace(find_capabilities(model, window=window, own=limits_of(model)), window=window)
    limits = Thresholds.of(able.window, able.max_output, compact_percent=policy.auto_compact_percent)
    # A drive has reference cycles that hold the texts of a view. They are looked for once, at its end, and
    # in what it has made alone: what was there before is many times as much, and stays.
    collects = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        made = SessionDrive(
            entries,
            policy,
            frame,
            limits,
            price,
            able=able,
            prices=prices,
            limits_of=limits_of,
            fixed=fixed,
            role=role,
        )
        outcome = made.run(tell, copied)
        del made
        return outcome
    finally:
        gc.collect()
        gc.unfreeze()
        if collects:
            gc.enable()


class SessionDrive:
    """Replays one session. `layers` makes its layers, in place of those of the policy."""

    def __init__(
        self,
        entries: Sequence[Entry],
        policy: Policy,
        frame: Frame,
        thresholds: Thresholds,
        price: Price,
        *,
        layers: Make | None = None,
        able: Capabilities | None = None,
        prices: Prices | None = None,
        limits_of: LimitsOf = lambda model: ModelLimits(),
        fixed: int = LARGEST_FIXED,
        role: LayerRole = "main",
    ) -> None:
        self._entries, self._policy, self._compacts = entries, policy, policy.compacts
        self._make, self._role = layers or partial(make_policy_layers, policy, role=role), role
        self._frame, self._thresholds, self._price = frame, thresholds, price
        self._able = able or Capabilities(window=thresholds.window)
        self._prices, self._limits_of = prices or Prices.load(), limits_of
        began = process_time()
        self._counted = compute_token_rates(entries, fixed)
        self._spent = TimeSpent(tracing=process_time() - began)
        self._needs: Mapping[Id, Sequence[ReplyNeed]] | None = None
        self._traced = 0.0  # Seconds that these took
        self._in_layers = 0.0  # Seconds that layers ran; of these ...
        self._inside = 0.0  # ... those of the simulator and of our books
        self._clock = FakeClock(entries[0].at if entries else 0.0)
        self._rates: dict[Id, float] = {}
        self._ours: dict[Id, Id] = {}  # Our entries by those of the recording
        self._theirs: dict[Id, Id] = {}  # Entries of the recording by ours
        self._turn_began: Id = 0
        self._inherited: Id | None = None
        self._prompt = self._compacted = 0  # Tokens of the last recorded request, our compactions so far
        self._deleted = set[str]()  # Uses whose results the provider took out of its cached prefix
        self._asked_for: Json = {}  # What is recorded about the next compaction
        self._gaps = GapCounts()
        self._disk = ReplayDisk()
        self._provider = CacheProvider(self._counted.fixed, self._weigh, self._counted.known)
        self._books = ReplayBooks(price, frame.ttl)
        self._transcript = Transcript(self._clock.now)
        self._absence = AbsenceTracker(self._counted.rate, self._theirs, lambda: self._transcript.view)
        self._watch = EventWatch(self._books, self._absence, self._transcript, self._provider)
        self._watch.weigh = self._weigh
        self._extraction = ReplayExtraction(
            policy,
            price,
            self._ask,
            self._books,
            self._clock,
            lambda: self._turn.request,
            self._counted.usual,
        )
        catch_up = self._extraction.catch_up
        self._silence = ReplaySilence(
            frame, self._clock, self._transcript, self._provider, self._books, policy.keep_warm, catch_up
        )
        self._memory = MemoryCharges(policy, price, frame.ttl)
        self._background = Postponed()
        self._model = RuleModel(self._able, self._charge_request, self._record_side_request)

    def run(self, tell: Callable[[int], None] = lambda done: None, copied: int = 0) -> ReplayOutcome:
        self._copied = copied
        run_sync(self._run, tell)
        dreamt = 0.0 if copied else self._memory.compute_dream_share(self._books.context)
        return replace(self._books.make_outcome(self._spent), recalled=self._memory.recalled, dreamt=dreamt)

    async def _run(self, tell: Callable[[int], None]) -> None:
        """Returns nothing: an event loop that ends formats what its task returned, however long it is."""
        began, wall = process_time(), perf_counter()
        self._turn = self._open()
        self._add_inherited()
        clears = not (self._compacts or self._policy.flags.micro_cost)  # as the recording did
        for done, entry in enumerate(self._entries):
            tell(done)
            match entry.what:
                case Reply() as reply:
                    await self._replay_reply(entry, reply)
                case Message() as message:
                    await self._replay_message(entry, message)
                case Mark(name) if name == LEFT:
                    await self._silence.pass_until_left(entry.at, lambda: self._turn)
                case Mark("compacted", dict() as facts):
                    self._asked_for = facts
                case Replace() as compaction:
                    self._replay_compaction(entry, compaction)
                case Pin(payload={"delete": deleted}) if clears:
                    self._deleted.update(deleted)
                    self._provider.reweigh(0, self._has_deleted)
                    self._books.record_action(RECORDING, "results were deleted from the cache")
                case Results() as cleared if clears:
                    self._carry_out(cleared, entry.by, "results were cleared")
                case Unthink(first, last) if clears and last is not None:
                    ours = Unthink(self._ours[first], self._ours[last])
                    self._carry_out(ours, entry.by, "thinking was cleared")
                case _:
                    pass
        await self._silence.pass_until(self._clock.time + AFTERWARDS, lambda: self._turn)
        self._extraction.end_session()
        # The parts are measured with the faster clock, and count as shares of the time of the processor.
        whole, wall = process_time() - began, perf_counter() - wall
        share = whole / wall if wall else 1.0
        asking, simulator = share * self._model.seconds, share * self._provider.seconds
        layers = max(0.0, share * (self._in_layers - self._inside) - asking)
        other = max(0.0, whole - layers - asking - simulator - self._traced)
        self._spent += TimeSpent(0.0, self._traced, layers, asking, simulator, other)

    def _open(self) -> Turn:
        return Turn(
            model=self._model,
            frame=self._frame,
            tools=FakeTools(),
            layers=self._make(self._make_parts()),
            transcript=self._transcript,
            background=self._background,
            accounts=NoAccounts(),
            clock=self._clock,
            emit=self._heard,
            thresholds=self._thresholds,
            source=self._role,
        )

    def _make_parts(self) -> LayerParts:
        conversation = PlainConversation(
            self._model, capabilities=self._able, thresholds=self._thresholds, transcript_path=TRANSCRIPT
        )
        forks = ForkRunner(conversation, NoAccounts(), self._clock, self._heard)
        again = self._policy.compaction
        sources = (
            RestoredFiles(
                self._disk.read, most=again.files, each=again.file_tokens, excerpts=again.excerpts
            ),
            StartContext(),
            RestoredNames(again.names),
        )
        side_work = make_replay_side_work(
            *(self._policy, self._prices, self._limits_of, conversation, self._clock, self._heard, forks)
        )
        self._extraction.side_work = side_work
        parts = LayerParts(
            conversation=conversation,
            emit=self._heard,
            clock=self._clock,
            prices=self._prices,
            results=UnwrittenResults(),
            make_notebook=UnwrittenNotes,
            fork=forks,
            side_work=side_work,
            restorer=Restorer(sources if self._role == "main" else ()),
            cached_until=self._silence.until,
            idle_gaps=lambda: self._gaps,
            keep_warm=self._silence.kept_warm,
        )
        forks.layers = make_standard_layers("fork", parts)
        return parts

    def _add_inherited(self) -> None:
        """Add filler for the history of a session that continued another: what was cached, and the rest."""
        cached = max(0, min(self._counted.known, self._counted.unseen) - self._counted.fixed)
        for tokens in (cached, self._counted.inherited - cached):
            if tokens < LEAST_INHERITED:
                continue
            message = user(FILLER * round(tokens / len(FILLER) / TEXT_RATE))
            [id] = self._transcript.add(message, by=RECORDING)
            self._rates[id] = tokens / max(1, estimate_size(measure_message(message)))
            self._inherited = id if self._inherited is None else self._inherited
        self._watch.view = self._transcript.view

    # --- entries of the recording -------------------------------------------------------------------------

    async def _replay_message(self, entry: Entry, message: Message) -> None:
        await self._silence.pass_until(entry.at, lambda: self._turn)
        self._absence.add_message(message, entry.id)
        if message.results and entry.by == "tools":
            self._add_entry(entry, self._take_in_results(message), entry.by)
            self._watch.record_stored(message)
            await self._run_replied_layers()
            return
        spoken = entry.by == "user" and any(isinstance(b, Text) for b in message.content)
        if spoken:
            self._extraction.note_message(message)
            self._memory.note_message(message)
        if spoken and (replied := self._transcript.view.replied_at) is not None:
            self._gaps = self._gaps.after(entry.at - replied)
        self._add_entry(entry, message, entry.by)
        if spoken and not self._price.keeps_thinking:
            before, self._turn_began = self._turn_began, self._ours[entry.id]
            self._provider.reweigh(before, has_thinking)

    def _take_in_results(self, message: Message) -> Message:
        for result in message.results:
            if (use := self._absence.find_use(result.tool_use_id)) is not None:
                self._disk.apply_call(use, result)
        began, batch = perf_counter(), message.results
        for layer in self._turn.layers.intake:
            batch = layer.intake(batch, self._transcript.view)
        self._add_layer_time(began)
        rest = tuple(b for b in message.content if not isinstance(b, ToolResult))
        return Message("user", (*batch, *rest))

    async def _replay_reply(self, entry: Entry, reply: Reply) -> None:
        self._absence.add_message(reply.message, entry.id)
        if self._copied and self._books.turns == self._copied:
            self._books.begin_anew()
            self._memory.recalled = self._compacted = 0
        if shrank := self._counted.shrank.get(entry.id):
            self._books.record_action(RECORDING, f"left out {shrank:,} tokens by itself")
            self._books.record_original_compaction(shrank)
        read = self._counted.breaks.get(entry.id) if self._policy.recorded_breaks else None
        if read is not None:
            self._provider.lose_cache(read, self._prompt)
        self._prompt = reply.usage.prompt or self._prompt
        if len(self._transcript.view):  # else the file begins with a reply, without its question
            began = perf_counter()
            self._turn.attach()
            await self._turn.fit()
            self._add_layer_time(began)
        if self._absence.gone and (missed := self._absence.find_missed(self._find_needs(entry.id))):
            self._read_back(missed)
        usage = replace(self._ask(), output=reply.usage.output)
        self._books.record_request("turn", self._clock.time, usage, reply.usage, model=reply.model)
        if self._compacted < len(self._books.compactions):
            self._compacted = len(self._books.compactions)
            self._memory.forget()
        self._memory.charge_request(usage)
        self._clock.time = max(self._clock.time, entry.at)
        self._provider.note_reply_end(self._clock.time)
        self._books.record_reply(self._clock.time)
        self._add_entry(entry, replace(reply, usage=usage), "model")
        if not reply.message.tool_uses:  # else they see its results, too
            await self._run_replied_layers()
            self._extraction.end_turn()
        forget_entries(self._transcript)

    def _find_needs(self, id: Id) -> Sequence[ReplyNeed]:
        """The needs of a reply. They are looked for when something is gone: in many sessions nothing is."""
        if self._needs is None:
            began = process_time()
            self._needs = _NEEDS[not self._compacts].of(self._entries)
            self._traced = process_time() - began
        return self._needs.get(id, ())

    async def _run_replied_layers(self) -> None:
        """Run the background layers; the turn collects their changes before the next request."""
        if not self._turn.layers.replied:
            return
        began, request = perf_counter(), self._turn.request
        for layer in self._turn.layers.replied:
            self._background.start(get_label(layer), partial(layer, request))
        await self._background.run()
        self._add_layer_time(began)

    def _carry_out(self, recorded: Results | Unthink, by: str, what: str) -> None:
        self._transcript.add(recorded, by=by)
        self._watch.view = self._transcript.view
        self._books.record_action(RECORDING, what, 0, "cleared")

    def _replay_compaction(self, entry: Entry, compaction: Replace) -> None:
        before = self._provider.unseen + sum(map(self._weigh, self._transcript.view))
        if self._compacts:
            if compaction.by:  # else it belongs to the one before
                freed = round(self._counted.freed[entry.id] * self._counted.usual)
                if (after := self._counted.resets.get(entry.id)) is not None:
                    freed = before - after
                self._books.record_action(RECORDING, "was compacted here, we were not")
                self._books.record_original_compaction(max(0, freed))
            return
        first, last = self._ours.get(compaction.first), self._ours.get(compaction.last)
        if first is None or last is None:
            return
        opening = next((placed.id for placed in self._transcript.view if placed.id in self._theirs), None)
        if self._inherited is not None and first == opening:
            first, self._inherited = self._inherited, None
        by = BY_RULE if entry.by == BY_RULE else "recorded"
        if compaction.by and by != BY_RULE:
            self._charge_recorded_summary(compaction.by[0], self._counted.rate(entry.id))
        self._provider.unseen = self._counted.resets.get(entry.id, self._provider.unseen)
        self._add_entry(entry, replace(compaction, first=first, last=last), entry.by)
        after = self._provider.unseen + sum(map(self._weigh, self._transcript.view))
        self._books.record_original_compaction(before - after)
        self._absence.gone.clear()
        made = self._books.compactions
        if made and not compaction.by:  # the rest of the one before, behind what the user said last
            made[-1] = replace(made[-1], tokens_after=after)
            return
        self._books.record_action(RECORDING, "was compacted", 0, "compacted")
        self._books.record_compaction(by, before, after)

    def _charge_recorded_summary(self, summary: Message, rate: float) -> None:
        """Charge it as it was asked for: by a request of its own, else on the whole view."""
        used = convert(self._asked_for.get("usage", {}), Usage)
        if 0 < used.input == used.prompt:
            price = self._prices.of(self._asked_for["model"])
            self._books.record_lean("summary", self._clock.time, used, price)
            return
        output = used.output or round(estimate_message(summary) * rate * ANALYSIS)
        self._books.record_request("summary", self._clock.time, replace(self._ask(), output=output))

    # --- our transcript -----------------------------------------------------------------------------------

    def _add_entry(self, entry: Entry, what: Message | Reply | Replace, by: str) -> None:
        [id] = self._transcript.add(what, by=by)
        self._ours[entry.id], self._theirs[id] = id, entry.id
        self._rates[id] = self._counted.rate(entry.id)
        self._watch.view = self._transcript.view

    def _weigh(self, placed: PlacedMessage) -> int:
        """Real tokens. Some models do not get their thinking from before the last user message."""
        size, message = placed.size, placed.message
        if self._deleted and self._has_deleted(message):
            left = (b for b in message.content if getattr(b, "tool_use_id", "") not in self._deleted)
            size = measure_message(Message(message.role, tuple(left)))
        elif placed.id < self._turn_began:
            size = measure_message(remove_thinking(message))
        return round(estimate_size(size) * self._rates.get(placed.id, self._counted.usual))

    def _has_deleted(self, message: Message) -> bool:
        return any(result.tool_use_id in self._deleted for result in message.results)

    def _ask(self) -> Usage:
        return self._provider.ask(self._turn.request, self._clock.time)

    def _heard(self, event: Event) -> None:
        began = perf_counter()
        self._watch.note_event(event)
        self._inside += perf_counter() - began

    def _add_layer_time(self, began: float) -> None:
        """Add the time of our layers; that of the simulator and the rule model is subtracted at the end."""
        self._in_layers += perf_counter() - began

    def _read_back(self, gone: Sequence[MissedSource]) -> None:
        """Do as the model would: ask for all of it at once, and have it in the view again."""
        lost = [self._absence.gone[one.use_id] for one in gone]
        for one, what in zip(gone, lost, strict=True):
            self._books.record_needed(one, what)
        uses, results = zip(*self._absence.read_back(gone), strict=True)
        usage = replace(self._ask(), output=CALL_OUTPUT * len(uses))
        robust = any(one.robust for one in gone)
        blame = lost[0].layer
        self._books.record_request("read back", self._clock.time, usage, blame=blame, robust=robust)
        self._transcript.add(Reply(assistant(*uses), usage), by="model")
        self._transcript.add(Message("user", tuple(results)), by="tools")
        self._watch.view = self._transcript.view

    def _charge_request(self, request: Request) -> Usage:
        if request.source.startswith(SIDE):
            return Usage(input=round(request.tokens * self._counted.usual))
        began = perf_counter()
        if request.frame.tools != self._frame.tools:  # it shares nothing with the conversation
            size = request.frame.size + request.view.size
            usage = Usage(input=round(estimate_size(size) * self._counted.usual))
        else:
            usage = self._provider.ask(request, self._clock.time)
        self._inside += perf_counter() - began
        return usage

    def _record_side_request(self, request: Request, usage: Usage) -> None:
        kind: Kind = "notes" if request.source in (NOTES, LEAN_NOTES) else "summary"
        if request.source.startswith(SIDE):
            self._books.record_lean(kind, self._clock.time, usage, self._prices.of(request.frame.model))
        else:
            self._books.record_request(kind, self._clock.time, usage)
