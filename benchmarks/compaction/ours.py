"""Our own compactions: real turns with the layers of a main conversation, on the simulated provider."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.compaction.accounting import (
    KEY,
    MODEL,
    SECONDS,
    Compacted,
    NotAnswered,
    Spent,
    frame,
    frame_tokens,
    said,
    shared_tokens,
    told,
    usage_of,
)
from benchmarks.compaction.noting import Keeper
from benchmarks.fit.ours import Recorded, Seen, TimedTurn, parsed, watch
from benchmarks.fit.workload import Json
from sevenfold.cache.ledger import Ledger
from sevenfold.cache.prices import Prices
from sevenfold.core.errors import PromptTooLong, StepLimitReached
from sevenfold.core.messages import Block, Message, parse_message
from sevenfold.core.request import Request
from sevenfold.core.tokens import Thresholds, Usage
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.layers.l7_agents.forks import SOURCE, ForkRunner
from sevenfold.layers.ladder import make_standard_layers
from sevenfold.layers.parts import LayerParts, PlainConversation
from sevenfold.layers.shared.boundary import TITLES
from sevenfold.layers.shared.restore import RestoredFiles, Restorer
from sevenfold.models.anthropic_wire import encode_body
from sevenfold.models.capabilities import find_capabilities
from sevenfold.settings.layers import CompactionSettings, Switches
from sevenfold.settings.schema import Settings
from sevenfold.simulator import Api, LedgerRow
from sevenfold.simulator.api import SOURCE_HEADER
from sevenfold.simulator.cache import TEXT_BYTES, count_content_tokens
from sevenfold.storage.jsonl import JsonlLog
from sevenfold.storage.places import make_session_id
from sevenfold.storage.results import ResultStore
from sevenfold.testing import FakeClock, Postponed

ABLE: Final = find_capabilities(MODEL)
THRESHOLDS: Final = Thresholds.of(ABLE.window, ABLE.max_output)
NOTHING_ELSE: Final = Switches(tool_results=False, micro_cost=False, micro_cache_edit=False, notes=False)
"""Nothing is stored or cleared on the way: everybody compacts the same conversation."""
COLD: Final = 400.0
"""Seconds between two requests, where the provider has forgotten all by the next one."""
NOTES: Final = "session-memory/summary.md"
"""Where notes are, in the folder of a session."""
UPDATES: Final = 30
"""How often notes are brought up to date until this window is full."""
FILE: Final = 4_000
"""Tokens of each file that is given back, about what the conversation's files have."""


@dataclass(frozen=True)
class Way:
    """One way of ours to make room."""

    name: str
    asks: bool = True
    """Whether a model may be asked: without one it is the digest."""
    notes: bool = False
    seconds: float = SECONDS
    files: bool = False
    """Whether the files that were worked on last are shown again."""


SUMMARY: Final = Way("Sevenfold: summary on the warm prefix")
WAYS: Final = (
    SUMMARY,
    Way("Sevenfold: summary, 5 files shown again", files=True),
    Way("Sevenfold: summary on a cold cache", seconds=COLD),
    Way("Sevenfold: pay-out from notes", notes=True),
    Way("Sevenfold: digest, no model", asks=False),
)


@dataclass(frozen=True)
class Made:
    """A compaction of ours, what it took and where in the conversation it happened."""

    compacted: Compacted
    messages: int
    """So many there were when it happened."""
    seconds: float
    """Of our own code, the fake provider's time taken off."""


class WatchedTurn(TimedTurn):
    """A turn that takes the provider's time off the time of its passes."""

    provider: InProcess
    own: float = 0.0
    """Seconds that the newest pass took without the provider."""

    async def fit(self, refused: PromptTooLong | None = None) -> bool:
        before = self.provider.seconds
        gave = await super().fit(refused)
        self.own = self.seen.seconds[-1] - (self.provider.seconds - before)
        return gave


class InProcess:
    """The simulated provider as a model: bytes as they would be sent, and what its ledger says."""

    name = MODEL
    capabilities = ABLE

    def __init__(self, replies: Iterator[Json], summary: str, notes: Keeper, seconds: float) -> None:
        self.clock = FakeClock()
        self.api = Api(self.clock, replies=lambda body: self._says)
        self.bodies: list[Json] = []
        self.seconds = 0.0
        """What the provider itself took."""
        self._replies, self._summary, self._notes, self._wait = replies, summary, notes, seconds
        self._says: list[Json] = []

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        sent = encode_body(request)
        began = time.perf_counter()
        self.bodies.append(msgspec.json.decode(sent))
        self._says = self._content(request)
        outcome = self.api.answer(self.bodies[-1], {**KEY, SOURCE_HEADER: request.source})
        self.seconds += time.perf_counter() - began
        if outcome.status != 200:
            raise NotAnswered(str(outcome.row.error))
        message = parse_message("assistant", outcome.body["content"])
        for block in message.content:
            yield block
        yield Reply(message, usage_of(outcome.row.tokens), outcome.body["stop_reason"], model=MODEL)
        if request.source == "main":
            self.clock.time += self._wait  # so long do its tools take

    def _content(self, request: Request) -> list[Json]:
        if request.source == "main":
            return list(next(self._replies)["content"])
        if request.source == f"{SOURCE}notes":
            return self._notes.edits()
        return [{"type": "text", "text": self._summary}]


@dataclass
class Talk:
    """A conversation of ours, from some message on, and what it is made of."""

    way: Way
    folder: Path
    conversation: Sequence[Json]
    start: int
    summary: int
    """Tokens of a summary, or of the notes when the window is full."""
    analysis: int = 0
    """Tokens of what is said before the summary and thrown away."""
    seen: Seen = field(default_factory=Seen)

    def __post_init__(self) -> None:
        replies = (m for m in self.conversation[self.start :] if m["role"] == "assistant")
        self.path = self.folder / f"{make_session_id(0.0)}.jsonl"
        notes = Keeper(self.path.with_suffix("") / NOTES, self.summary, UPDATES)
        summary = summary_of(self.summary, self.analysis)
        self.model = InProcess(replies, summary, notes, self.way.seconds)
        clock = self.model.clock
        self.log = JsonlLog(self.path)
        ledger = Ledger(Prices.load(), clock, watch)
        known = PlainConversation(self.model, thresholds=THRESHOLDS, transcript_path=self.path)
        forks = ForkRunner(known, ledger, clock, watch)
        compaction = CompactionSettings(by_size=False)  # what a full window costs is compared
        parts = LayerParts(
            conversation=known,
            settings=Settings(compaction=compaction),
            switches=msgspec.structs.replace(NOTHING_ELSE, notes=self.way.notes),
            emit=watch,
            clock=clock,
            prices=ledger.prices,
            expect=ledger.expect,
            results=ResultStore(lambda: self.path.with_suffix("") / "tool-results"),
            fork=forks if self.way.asks else None,
            restorer=Restorer([FILES] if self.way.files else ()),
        )
        self.background = Postponed()
        messages = parsed(list(self.conversation))
        self.turn = WatchedTurn(
            model=self.model,
            frame=frame(),
            tools=Recorded({r.tool_use_id: r for m in messages for r in m.results}),
            layers=make_standard_layers("main", parts),
            transcript=Transcript(clock.now, self.log.append),
            background=self.background,
            accounts=ledger,
            clock=clock,
            emit=watch,
            thresholds=THRESHOLDS,
            max_steps=1,
        )
        self.turn.seen, self.turn.provider = self.seen, self.model
        self._heard(self.conversation[: self.start])

    def _heard(self, messages: Sequence[Json]) -> None:
        """The conversation so far, with the usage of one that only ever grew."""
        tokens = frame_tokens()
        for whole, message in zip(messages, parsed(list(messages)), strict=True):
            own = count_content_tokens(whole["content"])
            if message.role == "assistant":
                reply = Reply(message, Usage(cache_read=tokens, output=own))
                self.turn.transcript.add(reply, by="model")
            else:
                by = "tools" if message.results else "user"
                self.turn.transcript.add(message, by=by)
            tokens += own

    async def until_full(self) -> Made:
        """Step by step, until something made room and the next request was answered."""
        for message in parsed(list(self.conversation[self.start :])):
            if message.role == "user":
                words = None if message.results else message
                heard = len(self.turn.transcript.view) + bool(words)
                await self._step(words)
                if self.seen.fired[-1]:
                    return Made(self._compacted(heard), heard, self.turn.own)
                await self.background.run()
        raise NotAnswered("the conversation never filled the window")

    async def _step(self, words: Message | None) -> None:
        try:
            await self.turn.run(words)
        except StepLimitReached:  # one step at a time, so that work beside it can be done between
            return

    def _compacted(self, heard: int) -> Compacted:
        sent = list(zip(self.model.api.ledger.rows, self.model.bodies, strict=True))
        asked, shared, live = list[LedgerRow](), 0, sent[0]
        for row, whole in sent[:-1]:
            if row.source == "main":
                live = row, whole
            else:
                asked.append(row)
                shared += shared_tokens(whole, live[1])
        words, (last, after) = said(self.conversation[:heard]), sent[-1]
        return Compacted(
            before=Spent.on([live[0]]).prompt,
            calls=Spent.on(asked),
            shared=shared,
            after=Spent.on([last], output=False),
            told=told(words, after["messages"]),
            said=len(words),
        )


async def compacted(
    way: Way, conversation: Sequence[Json], folder: Path, summary: int, analysis: int = 0
) -> Made:
    """One compaction, before whichever request the window is full; a summary has so many tokens."""
    start = 0 if way.notes else nearly_full(conversation)
    talk = Talk(way, folder, conversation, start, summary, analysis)
    try:
        return await talk.until_full()
    finally:
        talk.log.close()


def nearly_full(conversation: Sequence[Json]) -> int:
    """Where the user speaks for the last time before the window is full."""
    tokens, start = frame_tokens(), 0
    for at, message in enumerate(conversation):
        if tokens > THRESHOLDS.auto_compact:
            break
        if said([message]):
            start = at
        tokens += count_content_tokens(message["content"])
    return start


def summary_of(tokens: int, analysis: int = 0) -> str:
    """A reply that is a summary with all its headings, as long as it is to be, tags and all."""
    head = "\n".join(f"## {n}. {title}\nAs it was." for n, title in enumerate(TITLES, 1))
    text = _filled(f"<summary>\n{head}\n", "\n</summary>", tokens)
    return _filled("<analysis>", "</analysis>", analysis) + text if analysis else text


def _filled(head: str, end: str, tokens: int) -> str:
    return head.ljust(tokens * TEXT_BYTES - len(end), ".") + end


FILES: Final = RestoredFiles(lambda path: f"{path}\n".ljust(FILE * TEXT_BYTES, "."))
"""Restored as `specified` does it, with files that are all equally long."""
