"""Promise: whatever the summariser does, the session goes on, loses nothing the user said, and pays little.

A session three windows long, whose model works as it should but fails at every summary, in one way after
the other. Each time the window is full the older part must leave the view in good order all the same.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
import pytest
from kit import FRAME, make, make_forks, make_parts, use
from layers.l4_compaction.summaries import LOG, summary
from msgspec.structs import replace

from sevenfold.core.errors import BadReply, KeyRefused, ModelFailure, Overloaded, PromptTooLong
from sevenfold.core.events import Compacted, Declined, Event, Failed, Notice
from sevenfold.core.messages import Block, Message, Text, assistant, user
from sevenfold.core.protocols import Capabilities, Layers
from sevenfold.core.request import Request, has_paired_tools, measure_pressure
from sevenfold.core.tokens import Thresholds
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.layers.l4_compaction.compaction import Compaction
from sevenfold.layers.l4_compaction.plan import BREAKER
from sevenfold.layers.ladder import BlockCheck
from sevenfold.settings.layers import CompactionSettings
from sevenfold.settings.schema import Settings
from sevenfold.streaming import RetryPolicy
from sevenfold.testing import FakeClock, FakeTools, ScriptedModel
from sevenfold.turn import Turn

pytestmark = pytest.mark.anyio
E = TypeVar("E", bound=Event)
WINDOW = 16_000
LENGTH = 3 * WINDOW
"""Tokens of the whole session."""
RETRIES = RetryPolicy().tries
Way = Callable[[Request], "str | Message | Reply"]


def failing(error: ModelFailure) -> Way:
    def way(request: Request) -> str:
        raise error

    return way


WAYS: dict[str, tuple[Way, int]] = {
    "a wrong key": (failing(KeyRefused("the key is wrong")), 1),
    "always busy": (failing(Overloaded("busy")), RETRIES),
    "nonsense on the wire": (failing(BadReply("not JSON")), RETRIES),
    "an empty reply": (lambda request: assistant(), 2),
    "blanks": (lambda request: "  \n ", 2),
    "no tags": (lambda request: summary().replace("summary>", "b>"), 2),
    "tags and nothing in them": (lambda request: "<summary></summary>", 2),
    "half of the headings": (lambda request: summary()[: len(summary()) // 2], 2),
    "a tool call instead": (lambda request: use("x", "Read", path="a"), 4),
    "too long, by so much": (failing(PromptTooLong("long", tokens=19_000, limit=16_000)), 4),
    "too long, nobody says by how much": (failing(PromptTooLong("long")), 4),
    "cut at its length every time": (
        lambda request: Reply(assistant(Text(summary()[:300])), stop="max_tokens"),
        10,
    ),
    "larger than its input": (lambda request: summary("x" * 80_000), 1),
}
"""How a summariser fails, and the most requests that a summary may then cost."""


@dataclass
class Worker(ScriptedModel):
    """Calls a tool five times for each thing the user says; what it does when asked for a summary is
    given.
    """

    way: Way | None = None
    """None: never answers."""
    asked: anyio.Event = field(default_factory=anyio.Event)
    summaries: int = 0
    steps: int = 0

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        assert has_paired_tools(request.view), "no request holds half a pair"
        self.requests.append(request)
        if request.source.startswith("fork:compact"):
            self.summaries += 1
            self.asked.set()
            if self.way is None:
                await anyio.sleep_forever()
                raise AssertionError
            said = self.way(request)
            if isinstance(said, Reply):
                yield said
                return
        else:
            self.steps += 1
            done = self.steps % 6 == 0
            said = "Done." if done else use(f"u{self.steps}", "Read", path=f"src/f{self.steps}.py")
        message = assistant(Text(said)) if isinstance(said, str) else said
        for block in message.content:
            yield block
        yield Reply(message, stop="tool_use" if message.tool_uses else "end_turn")


@dataclass
class Conversation:
    """A session of real parts, but for its model."""

    way: Way | None
    timeout: float = 300.0
    events: list[Event] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    """The transcript as it is on disk."""

    def __post_init__(self) -> None:
        able = Capabilities(window=WINDOW)
        self.model = Worker(capabilities=able, way=self.way)
        self.clock = FakeClock()
        emit = self.events.append
        thresholds = Thresholds.of(WINDOW, able.max_output)
        known = CompactionSettings(timeout_seconds=self.timeout)
        self.layer = Compaction(
            make_parts(
                self.model,
                able=able,
                path=LOG,
                events=self.events,
                settings=Settings(compaction=known),
                fork=make_forks(self.model, emit, self.clock, thresholds=thresholds),
            )
        )
        self.log = Transcript(self.clock.now, self.lines.append)
        self.turn: Turn = make(
            self.model,
            Layers(fit=(self.layer, BlockCheck())),
            events=self.events,
            transcript=self.log,
            clock=self.clock,
            tools=FakeTools({"Read": lambda use: f"{use.input['path']}\n" * 100}),
        )

    async def say(self, text: str) -> None:
        self.said.append(text)
        reply = await self.turn.run(user(text))
        assert reply.message.text == "Done."
        assert has_paired_tools(self.log.view)

    async def work(self, tokens: int) -> None:
        """Until the transcript has grown by so much."""
        while (tokens := tokens - 2_000) > 0:
            n = len(self.said)
            await self.say(f"request number {n}: change part {n}, and mind rule {n}")

    @property
    def tokens(self) -> int:
        return measure_pressure(self.turn.request, self.turn.thresholds, 0.0).tokens

    @property
    def shown(self) -> str:
        return "\n".join(message.text for message in self.log.view.messages)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def check(self) -> None:
        """What must hold after anything."""
        assert self.of(Declined) == []
        assert all(text in self.shown for text in self.said), "all that the user ever said"
        assert self.tokens <= self.turn.thresholds.block
        compacted = self.of(Compacted)
        told = [n.text for n in self.of(Notice) if "the window was full" in n.text]
        assert len(told) == sum(event.by == "digest" for event in compacted), "once each"
        assert all(event.tokens_after < event.tokens_before for event in compacted)


@pytest.mark.parametrize("name", WAYS)
async def test_the_session_goes_on_however_the_summariser_fails(name: str) -> None:
    way, most = WAYS[name]
    talk = Conversation(way)
    await talk.work(LENGTH)
    talk.check()

    digests = talk.of(Compacted)
    assert len(digests) >= 3, "the window was full at least three times"
    assert {event.by for event in digests} == {"digest"}
    assert talk.model.summaries <= 3 * most, "after three failures nobody is asked any more"
    assert len([f for f in talk.of(Failed) if f.by == "Compaction"]) == 3
    assert len([n for n in talk.of(Notice) if "in a row have failed" in n.text]) == 1
    assert len(talk.of(Notice)) == len(digests) + 1, "and nothing else is said to the user"


async def test_the_session_goes_on_when_the_summariser_never_answers() -> None:
    talk = Conversation(None, timeout=0.02)
    await talk.work(LENGTH)
    talk.check()

    assert talk.model.summaries == 3
    assert {f.cause for f in talk.of(Failed)} == {"the model gave no summary within 0.02 s"}


async def test_one_way_after_the_other_with_good_summaries_in_between() -> None:
    talk = Conversation(lambda request: summary("the work"))
    for way, _ in WAYS.values():
        talk.model.way = way
        compactions = len(talk.of(Compacted))
        while len(talk.of(Compacted)) == compactions:
            await talk.work(3_000)
        talk.check()
        talk.model.way = lambda request: summary("the work")
        while talk.of(Compacted)[-1].by != "summary":
            await talk.work(3_000)
        talk.check()

    by = [event.by for event in talk.of(Compacted)]
    assert by.count("digest") == len(WAYS)
    assert not [n for n in talk.of(Notice) if "in a row" in n.text], "never three in a row"


async def test_a_session_that_is_killed_while_it_compacts_is_resumed_as_it_was() -> None:
    talk = Conversation(None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk.work, LENGTH)
        with anyio.fail_after(10):
            await talk.model.asked.wait()
        before = len(talk.lines)
        tasks.cancel_scope.cancel()
    assert len(talk.lines) == before, "nothing was written after it was stopped"
    assert talk.of(Compacted) == []
    assert BREAKER not in talk.log.view.marks, "being stopped is no failure"

    again = Conversation(lambda request: summary("the work"))
    again.log = Transcript.load(b"".join(talk.lines), again.clock.now)
    again.turn.transcript, again.said = again.log, talk.said
    assert again.log.view.messages == talk.log.view.messages
    await again.work(3_000)
    again.check()
    assert [event.by for event in again.of(Compacted)] == ["summary"]


async def test_after_a_new_model_summaries_are_tried_again_and_the_words_are_still_there() -> None:
    talk = Conversation(failing(KeyRefused("no")))
    await talk.work(LENGTH)
    assert talk.log.view.marks[BREAKER]["failures"] == 3
    talk.model.way = lambda request: summary("the work")
    talk.turn.frame = replace(FRAME, model="another")
    await talk.work(LENGTH)
    talk.check()

    assert talk.of(Compacted)[-1].by == "summary"
    assert talk.log.view.marks[BREAKER].get("failures", 0) == 0
