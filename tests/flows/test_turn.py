"""One turn: what is sent, what is written, and what stays whole when something goes wrong."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import anyio
import pytest
from kit import extends, make, use

from sevenfold.core.errors import (
    BadRequest,
    ContextFull,
    ModelFailure,
    Overloaded,
    PromptTooLong,
    RateLimited,
    StepLimitReached,
    StorageFailure,
    Unreachable,
)
from sevenfold.core.events import Declined, Delta, Event, Failed, Replied, Retrying, ToolStarted
from sevenfold.core.messages import Block, Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Capabilities, Change, Layers
from sevenfold.core.request import Request, has_paired_tools
from sevenfold.core.tokens import Pressure, Thresholds, Usage
from sevenfold.core.transcript import Mark, Replace, Reply, Results, Transcript, View
from sevenfold.layers.ladder import BlockCheck
from sevenfold.streaming import INTERRUPTED, RetryPolicy
from sevenfold.testing import FakeClock, FakeTools, ScriptedModel
from sevenfold.testing.doubles import Line

pytestmark = pytest.mark.anyio


async def test_each_request_extends_the_one_before() -> None:
    model = ScriptedModel([use("1"), use("2"), "done", "again"])
    turn = make(model)
    await turn.run(user("go"))
    await turn.run(user("more"))

    assert len(model.seen) == 4
    assert all(extends(a, b) for a, b in zip(model.seen, model.seen[1:], strict=False))


async def test_tools_start_while_the_model_still_talks_and_results_keep_the_order_asked() -> None:
    events: list[Event] = []
    tools = FakeTools(delays={"1": 0.05})
    said = assistant(ToolUse("1", "Read", {}), ToolUse("2", "Read", {}), Text("talking on and on"))
    turn = make(ScriptedModel([said, "end"], pause=0.01), events=events, tools=tools)
    await turn.run(user("go"))

    names = [type(e).__name__ for e in events]
    assert names.index("ToolStarted") < names.index("Delta")
    assert tools.log.index("end 2") < tools.log.index("end 1")
    assert [r.tool_use_id for r in turn.transcript.view[2].message.results] == ["1", "2"]


async def test_unsafe_tools_take_turns() -> None:
    tools = FakeTools(delays={"1": 0.03})
    both = assistant(ToolUse("1", "Write", {}), ToolUse("2", "Write", {}))
    await make([both, "x"], tools=tools).run(user("go"))

    assert tools.log == ["start 1", "end 1", "start 2", "end 2"]


class Shortening:
    """Shows at most a hundred characters of any result."""

    def intake(self, batch: tuple[ToolResult, ...], view: View) -> tuple[ToolResult, ...]:
        return tuple(ToolResult(r.tool_use_id, r.text[:100], r.is_error) for r in batch)


async def test_a_model_that_breaks_in_its_own_way_raises_its_own_error() -> None:
    with pytest.raises(ZeroDivisionError):
        await make([ZeroDivisionError("not one of ours")]).run(user("go"))


@pytest.mark.parametrize("after", [0.005, 0.035, 0.055, 0.075, 0.095, 0.3])
async def test_cut_anywhere_leaves_a_whole_view(after: float) -> None:
    disk: list[bytes] = []
    t = Transcript(lambda: 0.0, disk.append)
    said = assistant(
        Thinking("hm", "s"), Text("abcdef"), ToolUse("1", "Read", {}), ToolUse("2", "Read", {})
    )
    turn = make(
        ScriptedModel([said, "x"], pause=0.02),
        transcript=t,
        tools=FakeTools({"Read": "R" * 500}, delays={"2": 9}),
        layers=Layers(intake=(Shortening(),)),
    )
    with anyio.move_on_after(after) as scope:
        await turn.run(user("go"))

    assert scope.cancelled_caught
    assert has_paired_tools(t.view)
    assert Transcript.load(b"".join(disk), lambda: 0.0).view == t.view
    assert all(len(r.text) <= 100 for p in t.view for r in p.message.results), "intake ran even so"


class Dying(ScriptedModel):
    """Its first stream dies after these items."""

    first: tuple[str | Block, ...] = ()

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        if not self.requests:
            self.requests.append(request)
            for item in self.first:
                yield item
                await anyio.sleep(0.01)
            raise Overloaded("too busy")
        async for said in super().stream(request):
            yield said


async def test_a_stream_that_dies_after_a_tool_started_is_kept_not_asked_again() -> None:
    tools = FakeTools()
    model = Dying(["end"])
    model.first = (ToolUse("1", "Write", {}), "half a sen")
    turn = make(model, tools=tools)
    await turn.run(user("go"))

    assert tools.log == ["start 1", "end 1"]
    assert has_paired_tools(turn.transcript.view)
    assert turn.transcript.view[1].message.text == "half a sen"


async def test_a_stream_that_dies_before_any_tool_is_asked_again_and_leaves_no_trace() -> None:
    events: list[Event] = []
    model = Dying(["the whole sentence"])
    model.first = ("the whole sen",)
    turn = make(model, events=events)
    await turn.run(user("go"))

    assert [m.text for m in turn.transcript.view.messages] == ["go", "the whole sentence"]
    assert [e for e in events if isinstance(e, Retrying)] == [Retrying("too busy", 1, 0.5)]


async def test_an_error_from_inside_the_task_group_is_itself_not_a_group() -> None:
    with pytest.raises(BadRequest):
        await make([BadRequest("no")]).run(user("go"))


async def test_the_wait_the_provider_asks_for_is_honoured() -> None:
    clock = FakeClock(0.0)
    turn = make([RateLimited("slow down", retry_after=17.0), "ok"], clock=clock)
    await turn.run(user("go"))

    assert clock.time == 17.0


def test_waits_grow_with_jitter_up_to_a_limit_and_then_end() -> None:
    longest = RetryPolicy(tries=9, chance=lambda: 1.0)
    shortest = RetryPolicy(tries=9, chance=lambda: 0.0)
    error = Overloaded("busy")

    assert [longest.wait(error, n) for n in range(1, 10)] == [0.5, 1, 2, 4, 8, 16, 32, 32, None]
    assert shortest.wait(error, 3) == 1.0
    assert longest.wait(BadRequest("no"), 1) is None
    assert [longest.wait(Unreachable("no route"), n) for n in (3, 4)] == [2.0, None]
    assert longest.wait(RateLimited("x", retry_after=3_600.0), 1) is None


async def test_a_provider_that_stays_down_ends_the_turn_and_keeps_what_was_said() -> None:
    turn = make([Overloaded("down")] * 3, retry=RetryPolicy(tries=3))
    with pytest.raises(ModelFailure):
        await turn.run(user("go"))

    assert turn.transcript.view.messages == (user("go"),)


async def test_too_many_steps_is_said() -> None:
    turn = make([use(str(i)) for i in range(3)], max_steps=3)
    with pytest.raises(StepLimitReached, match="3 steps"):
        await turn.run(user("go"))
    assert has_paired_tools(turn.transcript.view)


async def test_a_tool_that_breaks_answers_with_its_error() -> None:
    def broken(use: ToolUse) -> str:
        raise KeyError("oops")

    events: list[Event] = []
    turn = make([use("1"), "sorry"], tools=FakeTools({"Read": broken}), events=events)
    await turn.run(user("go"))

    [result] = turn.transcript.view[2].message.results
    assert result.is_error
    assert "oops" in result.text
    assert any(isinstance(e, Failed) for e in events)


async def test_a_reply_without_words_is_paid_for_but_not_written() -> None:
    events: list[Event] = []
    empty = Reply(assistant(Thinking("hm", "sig")), Usage(input=10, output=32_000), "max_tokens")
    turn = make([empty, empty, "hello"], events=events, max_tokens=100)
    reply = await turn.run(user("go"))

    assert reply.message.text == "hello"
    said = [m.text for m in turn.transcript.view.messages if m.role == "assistant"]
    assert said == ["hello"]
    assert [e.usage.output for e in events if isinstance(e, Replied)] == [32_000, 32_000, 0]


async def test_when_asking_again_fails_the_text_that_was_cut_is_still_there() -> None:
    turn = make([cut_short("it is f"), BadRequest("no")], max_tokens=100)
    with pytest.raises(BadRequest):
        await turn.run(user("go"))

    assert [m.text for m in turn.transcript.view.messages] == ["go", "it is f"]


def cut_short(text: str) -> Reply:
    return Reply(assistant(Text(text)), Usage(), "max_tokens")


async def test_a_reply_cut_at_its_limit_is_asked_for_again_with_all_the_room_there_is() -> None:
    model = ScriptedModel([cut_short("it is f"), "it is forty-two"])
    turn = make(model, max_tokens=100)
    await turn.run(user("go"))

    assert [r.max_tokens for r in model.requests] == [100, 0]
    assert model.seen[0] == model.seen[1], "the second request is the first, with more room"
    assert [m.text for m in turn.transcript.view.messages] == ["go", "it is forty-two"]


async def test_a_reply_that_is_still_too_long_is_continued_three_times_at_most() -> None:
    model = ScriptedModel([cut_short(f"part {i}") for i in range(9)])
    turn = make(model, max_tokens=100)
    reply = await turn.run(user("go"))

    assert reply.stop == "max_tokens"
    assert reply.message.text == "part 1part 2part 3part 4", "the caller gets all of it"
    assert len(model.requests) == 5
    kept = [m.text for m in turn.transcript.view.messages if m.role == "assistant"]
    assert kept == ["part 1", "part 2", "part 3", "part 4"]


# --- layers -----------------------------------------------------------------------------------------


@dataclass
class Once:
    """A fit layer that hands this back, the first time it is asked under `when`."""

    handback: Sequence[Change] | Exception
    when_refused: bool = False
    asked: list[Pressure] = field(default_factory=list)

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        self.asked.append(pressure)
        if self.when_refused != pressure.refused or not self.handback:
            return ()
        handback, self.handback = self.handback, ()
        if isinstance(handback, Exception):
            raise handback
        return handback


async def test_a_layer_that_fails_hands_back_nothing_and_the_turn_goes_on() -> None:
    events: list[Event] = []
    turn = make(["hi"], Layers(fit=(Once(ZeroDivisionError("x")),)), events=events)
    await turn.run(user("go"))

    [failed] = [e for e in events if isinstance(e, Failed)]
    assert failed.by == "Once"
    assert "ZeroDivisionError" in failed.cause


async def test_what_refers_to_something_gone_is_declined_whole() -> None:
    events: list[Event] = []
    stale = Once([Replace(77, 78, (user("summary"),)), Mark("done", True)])
    turn = make(["hi"], Layers(fit=(stale,)), events=events)
    await turn.run(user("go"))

    assert [e.by for e in events if isinstance(e, Declined)] == ["Once"]
    assert "done" not in turn.transcript.view.marks


async def test_a_refused_request_is_made_smaller_and_sent_once_more() -> None:
    layer = Once([Replace(0, 0, (user("s"),))], when_refused=True)
    model = ScriptedModel([PromptTooLong("too long"), "ok"])
    turn = make(model, Layers(fit=(layer,)))
    await turn.run(user("x" * 4_000))

    assert layer.asked[1].tokens >= layer.asked[1].window
    assert [r.view.messages[0].text for r in model.requests] == ["x" * 4_000, "s"]


async def test_a_refused_request_that_nothing_can_shrink_is_not_sent_again() -> None:
    model = ScriptedModel([PromptTooLong("too long"), "never"])
    with pytest.raises(PromptTooLong):
        await make(model, Layers(fit=(Once([], when_refused=True),))).run(user("go"))
    assert len(model.requests) == 1


async def test_a_window_too_small_for_the_system_prompt_says_so() -> None:
    model = ScriptedModel([], capabilities=Capabilities(window=10, max_output=5))
    turn = make(model, Layers(fit=(BlockCheck(),)), thresholds=Thresholds.of(10, 5))
    with pytest.raises(ContextFull, match="larger window"):
        await turn.run(user("go"))


async def test_a_conversation_too_long_to_send_says_so() -> None:
    turn = make([], Layers(fit=(BlockCheck(),)))
    with pytest.raises(ContextFull, match="compact it"):
        await turn.run(user("x" * 4 * 200_000))


async def test_an_edit_drops_thinking_from_there_on_and_says_so_in_the_log() -> None:
    disk: list[bytes] = []
    t = Transcript(lambda: 0.0, disk.append)
    able = Capabilities(binds_thinking=True)

    def thinking(id: str) -> Message:
        return assistant(Thinking(f"about {id}", "sig"), ToolUse(id, "Read", {}))

    script: list[Line] = [thinking("a"), "one", thinking("b"), "two", "three"]
    turn = make(ScriptedModel(script, able), transcript=t)
    await turn.run(user("first"))
    await turn.run(user("second"))
    turn.layers = Layers(fit=(Once([Results({"a": "[cleared]"})]),))
    await turn.run(user("third"))

    kinds = [[type(b).__name__ for b in m.content] for m in t.view.messages]
    assert kinds[1] == ["Thinking", "ToolUse"], "before the edit: untouched"
    assert kinds[5] == ["ToolUse"], "after it: gone"
    assert Transcript.load(b"".join(disk), lambda: 0.0).view == t.view


async def test_an_edit_that_would_drop_thinking_inside_an_open_tool_loop_is_declined() -> None:
    events: list[Event] = []
    able = Capabilities(binds_thinking=True)
    step = assistant(Thinking("now", "sig"), ToolUse("b", "Read", {}))
    turn = make(ScriptedModel([use("a"), "ok", step, "done"], able), events=events)
    await turn.run(user("first"))
    clear = Once([Results({"a": "[cleared]"})], when_refused=False)

    class InLoop:
        async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
            return await clear.fit(request, pressure) if request.view[-1].message.results else ()

    turn.layers = Layers(fit=(InLoop(),))
    await turn.run(user("second"))

    assert [e.by for e in events if isinstance(e, Declined)] == ["InLoop"]
    assert any(isinstance(b, Thinking) for p in turn.transcript.view for b in p.message.content)


async def test_a_safe_call_does_not_overtake_an_unsafe_one() -> None:
    tools = FakeTools(delays={"w": 0.03, "r1": 0.01})
    names = {"r1": "Read", "r2": "Read", "w": "Write", "r3": "Read"}
    uses = tuple(ToolUse(id, name, {}) for id, name in names.items())
    await make([assistant(*uses), "x"], tools=tools).run(user("go"))

    assert tools.log[:2] == ["start r1", "start r2"], "reads run side by side"
    assert tools.log.index("end r1") < tools.log.index("start w")
    assert tools.log[-4:] == ["start w", "end w", "start r3", "end r3"]


async def test_a_subscriber_that_breaks_ends_the_turn_as_itself_with_every_use_answered() -> None:
    turn = make([use("1"), "x"])

    def broken(event: Event) -> None:
        if isinstance(event, ToolStarted):
            raise BrokenPipeError("nobody listens")

    turn.emit = broken
    with pytest.raises(BrokenPipeError):
        await turn.run(user("go"))
    assert has_paired_tools(turn.transcript.view)


async def test_a_tool_that_cannot_say_whether_it_is_safe_runs_alone() -> None:
    class Unsure(FakeTools):
        def safe(self, use: ToolUse) -> bool:
            raise KeyError("what?")

    tools = Unsure()
    both = assistant(ToolUse("1", "Read", {}), ToolUse("2", "Read", {}))
    await make([both, "x"], tools=tools).run(user("go"))

    assert tools.log == ["start 1", "end 1", "start 2", "end 2"]


async def test_results_the_disk_refused_are_answered_before_anything_else_is_said() -> None:
    full = False

    def write(lines: bytes) -> None:
        if full and b"tool_result" in lines:
            raise StorageFailure("the disk is full")

    turn = make([use("1"), "ok"], transcript=Transcript(lambda: 0.0, write))
    full = True
    with pytest.raises(StorageFailure):
        await turn.run(user("go"))
    full = False
    await turn.run(user("again"))

    assert has_paired_tools(turn.transcript.view)


async def test_an_edit_that_splits_a_pair_is_declined() -> None:
    events: list[Event] = []
    turn = make([use("1"), "ok", "ok"], events=events)
    await turn.run(user("go"))
    call = turn.transcript.view[1].id
    turn.layers = Layers(fit=(Once([Replace(call, call, (user("summary"),))]),))
    await turn.run(user("more"))

    assert [e.by for e in events if isinstance(e, Declined)] == ["Once"]
    assert has_paired_tools(turn.transcript.view)


async def test_a_refusal_says_by_how_much() -> None:
    layer = Once([Replace(0, 0, (user("s"),))], when_refused=True)
    refused = PromptTooLong("too long", tokens=203_000, limit=200_000)
    await make([refused, "ok"], Layers(fit=(layer,))).run(user("x" * 4_000))

    assert layer.asked[1].over == 3_000


async def test_interrupted_calls_are_answered_as_such() -> None:
    turn = make([use("1"), "x"], tools=FakeTools(delays={"1": 9}))
    with anyio.move_on_after(0.02):
        await turn.run(user("go"))

    [result] = turn.transcript.view[-1].message.results
    assert (result.text, result.is_error) == (INTERRUPTED, True)


async def test_deltas_are_the_text_of_the_reply() -> None:
    events: list[Event] = []
    await make(["a reply of several pieces"], events=events).run(user("go"))

    assert "".join(e.text for e in events if isinstance(e, Delta)) == "a reply of several pieces"
