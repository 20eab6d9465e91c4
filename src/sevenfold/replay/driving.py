"""One recorded session through the layers: the recorded words and times, our view, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from sevenfold.events import Cleared, Event
from sevenfold.messages import Block, Message, ToolResult, ToolUse, assistant
from sevenfold.protocols import Layers
from sevenfold.replay.counting import counted, estimated
from sevenfold.replay.needs import Missed, missed, needs_of
from sevenfold.replay.provider import Provider
from sevenfold.request import TTL_SECONDS, Frame
from sevenfold.storage.results import ResultStore
from sevenfold.sync import finished
from sevenfold.testing import FakeClock, FakeTools, NoAccounts, Postponed, ScriptedModel
from sevenfold.tokens import Thresholds, Usage
from sevenfold.transcript import Entry, Id, Placed, Replace, Reply, Transcript
from sevenfold.turn import Turn

CALL_OUTPUT: Final = 120
"""Tokens of the call that reads something back."""
FOLDER: Final = Path("~/.sevenfold/projects/a-project/20260101-120000-session/tool-results")
"""About as long as such a path is."""
KEEP_WARM_AT: Final = 0.9
"""Of the cache's lifetime."""


@dataclass
class Outcome:
    """What a session would have used, and what was missing when it was needed."""

    requests: int = 0
    usage: Usage = field(default_factory=Usage)
    """Input of all requests, and the output of those that only read something back."""
    extra_requests: int = 0
    """Requests made only to read back what had been cleared."""
    kept_warm: int = 0
    clearings: int = 0
    cleared: int = 0
    cleared_tokens: int = 0
    needed: int = 0
    needed_robust: int = 0
    needed_tokens: int = 0
    context: int = 0
    """Tokens sent, summed over requests."""
    events: list[Event] = field(default_factory=list)


class Unwritten(ResultStore):
    """Names where a result would be kept, and writes nothing: a replay needs the words alone."""

    def __init__(self) -> None:
        super().__init__(lambda: FOLDER)

    def keep(self, use_id: str, content: str | tuple[Block, ...], *, lasting: bool = True) -> Path:
        return FOLDER / f"{use_id}.txt"


class Drive:
    """Drives one session. `layers` makes the layers, given whom to tell what happens."""

    def __init__(
        self,
        entries: Sequence[Entry],
        layers: Callable[[Callable[[Event], object]], Layers],
        frame: Frame,
        thresholds: Thresholds,
        *,
        keep_warm: int = 0,
    ) -> None:
        self._entries, self._keep_warm = entries, keep_warm
        self._needs = needs_of(entries)
        self._clock = FakeClock(entries[0].at if entries else 0.0)
        self.outcome = Outcome()
        self._counted = counted(entries)
        self._rates: dict[Id, float] = {}
        self._provider = Provider(self._counted.unseen, self._weigh, self._counted.known)
        self._transcript = Transcript(self._clock.now)
        self._ids: dict[Id, Id] = {}
        self._uses: dict[str, ToolUse] = {}
        self._results: dict[str, tuple[ToolResult, Id]] = {}
        self._first: dict[str, str] = {}
        """Whose result a result that was read back repeats."""
        self._gone: dict[str, int] = {}
        self._turn = Turn(
            model=ScriptedModel(),
            frame=frame,
            tools=FakeTools(),
            layers=layers(self._heard),
            transcript=self._transcript,
            background=Postponed(),
            accounts=NoAccounts(),
            clock=self._clock,
            emit=self._heard,
            thresholds=thresholds,
        )

    def run(self) -> Outcome:
        for entry in self._entries:
            match entry.what:
                case Reply() as reply:
                    self._reply(entry, reply)
                case Message() as message:
                    self._said(entry, message)
                case Replace() as compaction:
                    self._compacted(entry, compaction)
                case _:
                    pass
        return self.outcome

    # --- what happened ------------------------------------------------------------------------------------

    def _said(self, entry: Entry, message: Message) -> None:
        self._idle_until(entry.at)
        if message.results and entry.by == "tools":
            for result in message.results:
                self._results[result.tool_use_id] = result, entry.id
            batch = message.results
            for layer in self._turn.layers.intake:
                batch = layer.intake(batch, self._transcript.view)
            rest = tuple(b for b in message.content if not isinstance(b, ToolResult))
            message = Message("user", (*batch, *rest))
        self._add(entry, message, entry.by)

    def _reply(self, entry: Entry, reply: Reply) -> None:
        self._uses.update((use.id, use) for use in reply.message.tool_uses)
        if not len(self._transcript.view):
            self._add(entry, reply, "model")
            return
        self._fit()
        gone = missed(self._needs.get(entry.id, ()), self._gone.keys())
        if gone:
            self._read_back(gone)
        usage = self._ask()
        self._clock.time = max(self._clock.time, entry.at)
        self._provider.answered(self._clock.time)
        self._add(entry, replace(reply, usage=replace(usage, output=reply.usage.output)), "model")

    def _compacted(self, entry: Entry, compaction: Replace) -> None:
        first, last = self._ids.get(compaction.first), self._ids.get(compaction.last)
        if first is None or last is None:
            return
        self._ask()  # the summary is asked for on the whole view
        self._provider.unseen = self._counted.resets.get(entry.id, self._provider.unseen)
        self._add(entry, replace(compaction, first=first, last=last), entry.by)
        self._gone.clear()

    # --- what we do ---------------------------------------------------------------------------------------

    def _add(self, entry: Entry, what: Message | Reply | Replace, by: str) -> None:
        [id] = self._transcript.add(what, by=by)
        self._ids[entry.id] = id
        self._rates[id] = self._counted.rate(entry.id)

    def _weigh(self, placed: Placed) -> int:
        return round(estimated(placed.message) * self._rates.get(placed.id, self._counted.usual))

    def _fit(self) -> None:
        finished(self._turn.fit())

    def _ask(self) -> Usage:
        usage = self._provider.ask(self._turn.request, self._clock.time)
        self.outcome.requests += 1
        self.outcome.usage += usage
        self.outcome.context += usage.prompt
        return usage

    def _heard(self, event: Event) -> None:
        self.outcome.events.append(event)
        if isinstance(event, Cleared):
            self.outcome.clearings += 1
            self.outcome.cleared += len(event.use_ids)
            for use in event.use_ids:
                tokens = self._weight(use)
                self.outcome.cleared_tokens += tokens
                self._gone[self._first.get(use, use)] = tokens

    def _weight(self, use: str) -> int:
        result, id = self._results[use]
        return round(estimated(Message("user", (result,))) * self._counted.rate(id))

    def _read_back(self, gone: Sequence[Missed]) -> None:
        """What the model would do: ask for all of it at once, and have it in the view again."""
        self.outcome.extra_requests += 1
        uses, results = list[ToolUse](), list[ToolResult]()
        for one in gone:
            result, id = self._results[one.use_id]
            self.outcome.needed += 1
            self.outcome.needed_robust += one.robust
            self.outcome.needed_tokens += self._gone.pop(one.use_id)
            again = f"{one.use_id}.again{self.outcome.needed}"
            uses.append(replace(self._uses[one.use_id], id=again))
            self._uses[again], self._first[again] = uses[-1], one.use_id
            results.append(replace(result, tool_use_id=again))
            self._results[again] = results[-1], id
        usage = self._ask()
        self.outcome.usage += Usage(output=CALL_OUTPUT * len(uses))
        said = Reply(assistant(*uses), replace(usage, output=CALL_OUTPUT * len(uses)))
        self._transcript.add(said, by="model")
        self._transcript.add(Message("user", tuple(results)), by="tools")

    def _idle_until(self, then: float) -> None:
        """Nobody speaks; what keeps the cache warm happens meanwhile."""
        last, ttl = self._transcript.view.replied_at, TTL_SECONDS[self._turn.frame.ttl]
        for n in range(1, self._keep_warm + 1):
            at = (last or then) + n * KEEP_WARM_AT * ttl
            if at < then:
                self._clock.time = at
                self._ask()
                self.outcome.requests -= 1
                self.outcome.kept_warm += 1
        self._clock.time = max(self._clock.time, then)
