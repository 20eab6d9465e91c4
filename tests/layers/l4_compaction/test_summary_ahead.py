"""A summary that is ready before it is needed: prepared beside the work, in place when it is due."""

from __future__ import annotations

import random
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import anyio
import pytest
from flows.test_session import Place
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import RestoredBy, make_parts, use
from layers.l4_compaction.summaries import FRAME, LOG, Compacting, edits, marks, rounds, summary
from layers.l4_compaction.test_compaction import answering, layer_on
from layers.l4_compaction.test_digest import random_transcript
from layers.simulated import conversation
from msgspec.structs import replace

from sevenfold.core.clock import run_sync, run_without_waiting
from sevenfold.core.errors import Overloaded, PromptTooLong
from sevenfold.core.events import CacheBroke, Compacted, Failed, Progress
from sevenfold.core.messages import Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Capabilities, Change, Layers
from sevenfold.core.request import Frame, has_paired_tools
from sevenfold.core.tokens import Thresholds, Usage
from sevenfold.core.transcript import Replace, Reply, Results, Transcript, Undo, View
from sevenfold.hooks.hooks import HookOutcome
from sevenfold.layers.l4_compaction.compaction import Compaction
from sevenfold.layers.l4_compaction.plan import BREAKER, CompactionBreaker
from sevenfold.layers.l4_compaction.summary_ahead import SHARE, PrecomputedSummary, SummaryAhead
from sevenfold.layers.ladder import make_standard_layers
from sevenfold.layers.parts import LayerParts
from sevenfold.layers.shared.background import BackgroundTasks, open_task_group
from sevenfold.layers.shared.boundary import BOUNDARY, Boundary, find_last_boundary
from sevenfold.layers.shared.restore import CompactionCut, CompactionHooks, Restorer
from sevenfold.offline import OfflineEngine
from sevenfold.settings.layers import CompactionSettings, Switches

pytestmark = pytest.mark.anyio
TOO_LONG = PromptTooLong("prompt is too long", tokens=9_000, limit=8_000)
FIRST = "build everything, and never touch the file LICENSE"


class Preparing(Compacting):
    """Both halves of the layer, and the compaction behind them, over one transcript."""

    waits = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ahead = SummaryAhead(with_fields(self.parts, can_wait=self.waits), self.layer)
        self.prepared = PrecomputedSummary(self.ahead)

    async def fit(self, refused: PromptTooLong | None = None) -> list[Change]:
        handed = self.write(await self.prepared.fit(self.request, self.pressure(refused)))
        if not edits(handed):
            handed += await super().fit(refused)
        return handed

    async def reply(self) -> None:
        """What happens around a reply: the request before it was fitted, the work after it runs."""
        await self.fit()
        assert await self.ahead(self.request) == ()

    @property
    def asked(self) -> int:
        return len(self.model.requests)

    def said(self) -> list[str]:
        return [event.said for event in self.of(Progress) if event.by == "Ahead"]


def begun(parts: int, size: int = 1_300) -> Transcript:
    """About 410 tokens a part, and 540 before the first."""
    t = Transcript(lambda: 0.0)
    t.add(user(FIRST))
    rounds(t, parts, size)
    return t


def nearly_full(*script: Any, **fields: Any) -> Preparing:
    """Above 80 % of the threshold and below it."""
    talk = Preparing(script or [summary()], log=begun(13), **fields)
    assert SHARE * 6_680 < talk.tokens <= 6_680, talk.tokens
    return talk


async def prepared(*script: Any, **fields: Any) -> Preparing:
    talk = nearly_full(*script, **fields)
    await talk.reply()
    assert talk.ahead.ready is not None
    return talk


def go_on(talk: Preparing, more: int = 3) -> None:
    """The conversation goes on until the window is full."""
    talk.log.add(Reply(assistant(Text("So far so good."))), by="model")
    talk.log.add(user("and test it while you are at it"))
    rounds(talk.log, more, first=100)
    assert talk.tokens > 6_680


# --- preparing ----------------------------------------------------------------------------------------


async def test_a_summary_is_prepared_when_the_window_is_nearly_full_and_nothing_is_written() -> None:
    talk = nearly_full()
    before = talk.log.view
    await talk.reply()

    assert talk.asked == 1
    assert talk.log.view is before
    assert talk.of(Compacted) == []
    assert talk.said()[-1] == "a summary is prepared, for when the window is full"


async def test_nothing_is_prepared_while_there_is_room() -> None:
    talk = Preparing([summary()], log=begun(10))
    assert talk.tokens <= SHARE * 6_680
    await talk.reply()

    assert talk.asked == 0
    assert talk.events == []


async def test_nothing_is_prepared_before_a_request_has_said_how_large_the_window_is() -> None:
    talk = nearly_full()
    await talk.ahead(talk.request)

    assert talk.asked == 0


async def test_it_is_asked_for_on_the_very_prefix_of_the_conversation() -> None:
    talk = await prepared()
    [request] = talk.model.requests

    assert request.source == "fork:compact"
    assert request.frame is FRAME
    assert request.view.messages[:-1] == talk.log.view.messages


async def test_one_is_enough_and_two_at_once_are_none() -> None:
    talk = nearly_full()
    await talk.fit()
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(talk.ahead, talk.request)
    await talk.reply()

    assert talk.asked == 1


async def test_work_that_begins_late_sees_that_the_conversation_was_compacted_meanwhile() -> None:
    talk = await prepared()
    go_on(talk)
    late = talk.request
    await talk.fit()
    await talk.ahead(late)
    rounds(talk.log, 1, first=200)
    await talk.fit()
    await talk.ahead(late)

    assert talk.asked == 1


async def test_a_fork_or_an_agent_prepares_nothing() -> None:
    talk = nearly_full()
    await talk.fit()
    await talk.ahead(replace(talk.request, source="fork:notes"))
    await talk.ahead(replace(talk.request, source="agent"))

    assert talk.asked == 0


async def test_while_tools_are_running_what_came_before_their_call_is_summarised() -> None:
    talk = nearly_full()
    await talk.fit()
    talk.log.add(Reply(use("open", "Bash", command="make all")), by="model")
    await talk.ahead(talk.request)

    ready = talk.ahead.ready
    assert ready is not None
    talk.log.add(Message("user", (ToolResult("open", "done\n" * 600),)), by="tools")
    rounds(talk.log, 2, first=100)
    kept = talk.log.view.messages[len(ready.covers) :]
    await talk.fit()
    question, *rest = talk.log.view.messages[1:]
    assert question == user(FIRST)
    assert tuple(rest) == kept
    assert rest[2].tool_uses[0].id == "open"


async def test_what_is_hardly_more_than_the_users_own_words_is_not_worth_a_request() -> None:
    t = Transcript(lambda: 0.0)
    for n in range(6):
        t.add(user(f"{n}" * 3_800))
        t.add(Reply(assistant(Text("yes"))), by="model")
    talk = Preparing([summary()], log=t)
    assert talk.tokens > SHARE * 6_680
    await talk.reply()

    assert talk.asked == 0


# --- putting it in place --------------------------------------------------------------------------------


async def test_when_the_window_is_full_it_is_put_in_place_and_no_model_is_asked() -> None:
    talk = await prepared()
    covered = talk.log.view.messages[:-2]
    go_on(talk)
    was, before = talk.log.view, talk.tokens
    handed = await talk.fit()

    assert talk.asked == 1, "the one that prepared it"
    first, *kept = talk.log.view.messages
    assert first.text.startswith("<summary>")
    assert tuple(kept) == was.messages[len(covered) :], "all that came since, word for word"
    assert len(edits(handed)) == 1
    assert talk.tokens < SHARE * 6_680 < before
    assert talk.expected == ["the older part of the conversation was replaced by a summary"]
    assert talk.ahead.ready is None


async def test_the_boundary_and_the_event_say_that_it_was_made_ahead() -> None:
    talk = await prepared(score=lambda removed, there: 0.5)
    view = talk.log.view
    go_on(talk)
    before = talk.tokens
    await talk.fit()

    assert find_last_boundary(talk.log.view) == Boundary(
        by="summary",
        trigger="ahead",
        tokens_before=before,
        tokens_after=talk.tokens,
        last=view[-3].id,
        kept_from=view[-2].id,
        fidelity=0.5,
        model=talk.request.frame.model,
        usage=Usage(),
    )
    [event] = talk.of(Compacted)
    assert (event.by, event.trigger, event.fidelity) == ("summary", "ahead", 0.5)


async def test_what_the_user_said_in_the_covered_part_is_there_word_for_word_and_outlives_the_next() -> (
    None
):
    talk = await prepared(summary(said="<said>delete it</said>"), summary("more"))
    go_on(talk)
    await talk.fit()
    assert FIRST in talk.texts[0]
    assert "delete it" not in talk.texts[0]

    rounds(talk.log, 14, first=300)
    await talk.fit()
    assert talk.asked == 2
    assert "Current work of more." in talk.texts[0]
    assert FIRST in talk.texts[0]
    assert talk.texts[1] == "and test it while you are at it"


async def test_results_that_were_cleared_meanwhile_do_not_matter() -> None:
    talk = await prepared()
    talk.log.add(Results({"u3": "(cleared)"}), by="Microcompaction")
    go_on(talk, 4)
    await talk.fit()

    assert talk.asked == 1
    assert talk.texts[0].startswith("<summary>")


async def test_after_a_refusal_it_is_there_too() -> None:
    talk = await prepared()
    rounds(talk.log, 1, first=100)
    assert talk.tokens < 6_680
    await talk.fit(TOO_LONG)

    assert talk.asked == 1
    assert talk.texts[0].startswith("<summary>")
    [event] = talk.of(Compacted)
    assert event.trigger == "ahead"


async def test_what_should_be_seen_again_is_restored_then_and_not_before() -> None:
    views: list[View] = []

    def restore(cut: CompactionCut, room: int) -> Message:
        views.append(cut.view)
        return user("<context>\nas it is now\n</context>")

    talk = await prepared(options={"restorer": Restorer([RestoredBy(restore)])})
    assert views == []
    go_on(talk)
    full = talk.log.view
    await talk.fit()

    assert views == [full]
    assert talk.texts[0] == "<context>\nas it is now\n</context>"


async def test_the_next_time_the_window_fills_up_another_one_is_prepared() -> None:
    talk = await prepared(summary("one"), summary("two"))
    go_on(talk)
    await talk.fit()
    rounds(talk.log, 8, first=200)
    assert SHARE * 6_680 < talk.tokens < 6_680
    await talk.reply()
    rounds(talk.log, 3, first=300)
    await talk.fit()

    assert talk.asked == 2
    assert "Current work of two." in talk.texts[0]
    assert [event.trigger for event in talk.of(Compacted)] == ["ahead", "ahead"]


# --- one that is still on its way -----------------------------------------------------------------------


class Slow(Preparing):
    """Its summary is on its way until a hook lets it through."""

    def __post_init__(self) -> None:
        self.gate, self.held = anyio.Event(), False
        self.options = {**self.options, "hooks": CompactionHooks(self._hold_the_first)}
        super().__post_init__()

    async def _hold_the_first(self, trigger: str, instructions: str) -> HookOutcome:
        if not self.held:
            self.held = True
            await self.gate.wait()
        return HookOutcome()


async def test_one_that_is_on_its_way_is_waited_for_instead_of_asking_again() -> None:
    talk = Slow([summary()], log=begun(13))
    await talk.fit()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk.ahead, talk.request)
        await anyio.wait_all_tasks_blocked()
        go_on(talk)
        tasks.start_soon(talk.fit)
        await anyio.wait_all_tasks_blocked()
        assert not talk.texts[0].startswith("<summary>")
        talk.gate.set()

    assert talk.asked == 1
    assert [event.trigger for event in talk.of(Compacted)] == ["ahead"]


class Hurried(Slow):
    waits = False

    def __post_init__(self) -> None:
        self.options = {**self.options, "can_wait": False}
        super().__post_init__()


async def test_who_may_not_wait_gets_the_digest_and_the_late_summary_is_dropped() -> None:
    talk = Hurried([summary()], log=begun(13))
    await talk.fit()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk.ahead, talk.request)
        await anyio.wait_all_tasks_blocked()
        go_on(talk)
        run_without_waiting(talk.fit())
        assert talk.texts[0].startswith("<digest>")
        talk.gate.set()
    await talk.fit()

    assert talk.ahead.ready is None
    assert talk.said()[-1].endswith("the part that it covers is not in view any more")
    assert talk.texts[0].startswith("<digest>")


async def test_a_compaction_that_may_not_ask_never_does_and_keeps_what_the_user_said() -> None:
    talk = await prepared(options={"can_wait": False})
    go_on(talk)
    await talk.fit()
    assert talk.texts[0].startswith("<summary>")
    rounds(talk.log, 14, first=300)
    run_without_waiting(talk.fit())

    assert talk.asked == 1
    assert talk.tokens <= 6_680
    assert FIRST in talk.whole, "also what was said before the summary that is now in the digest"
    assert [event.by for event in talk.of(Compacted)] == ["summary", "digest"]


async def test_stopped_on_its_way_it_leaves_nothing_behind_and_may_be_tried_again() -> None:
    talk = Slow([summary()], log=begun(13))
    await talk.fit()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk.ahead, talk.request)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert talk.ahead.ready is None
    await talk.ahead.settled()


# --- dropped --------------------------------------------------------------------------------------------


async def test_another_model_drops_it() -> None:
    talk = await prepared(summary("old"), summary("new"))
    talk.frame = Frame("another", FRAME.system, FRAME.tools)
    await talk.fit()
    assert talk.said()[-1].endswith("another model has taken over")

    go_on(talk)
    await talk.fit()
    assert "Current work of new." in talk.texts[0]


async def test_another_window_drops_it() -> None:
    talk = await prepared()
    talk.window = 9_000
    await talk.fit()

    assert talk.ahead.ready is None
    assert talk.said()[-1].endswith("the window is another one")


async def test_going_back_in_the_conversation_drops_it() -> None:
    talk = await prepared()
    gone = frozenset(entry.id for entry in talk.log.entries[10:])
    talk.log.add(Undo(gone), by="rewind")
    await talk.fit()

    assert talk.ahead.ready is None
    assert talk.said()[-1].endswith("the part that it covers is not in view any more")


async def test_a_change_within_the_covered_part_drops_it_and_a_new_one_is_asked_for() -> None:
    talk = await prepared(summary("old"), summary("new"))
    view = talk.log.view
    talk.log.add(Replace(view[3].id, view[6].id, (user("[two rounds]"),)), by="Collapse")
    go_on(talk, 6)
    await talk.fit()

    assert talk.said()[-1].endswith("the part that it covers was changed")
    assert "Current work of new." in talk.texts[0]
    assert [event.trigger for event in talk.of(Compacted)] == ["auto"]


async def test_when_too_much_has_come_since_it_is_dropped_and_a_new_one_is_asked_for() -> None:
    talk = await prepared(summary("old"), summary("new"))
    go_on(talk, 14)
    await talk.fit()

    assert talk.said()[-1].endswith("with what has come since, too little would be freed")
    assert "Current work of new." in talk.texts[0]
    assert talk.asked == 2


async def test_thinking_that_a_tool_loop_still_needs_is_not_taken_from_it() -> None:
    able = Capabilities(binds_thinking=True)
    talk = await prepared(summary("old"), summary("new"), able=able)
    thought = assistant(Thinking("hm", "sig"), ToolUse("t1", "Bash", {"command": "make"}))
    talk.log.add(user("go on"))
    talk.log.add(Reply(thought), by="model")
    talk.log.add(Message("user", (ToolResult("t1", "x" * 5_000),)), by="tools")
    assert talk.tokens > 6_680
    await talk.fit()

    assert "Current work of new." in talk.texts[0]
    assert [event.trigger for event in talk.of(Compacted)] == ["auto"]


# --- failures -------------------------------------------------------------------------------------------


async def test_a_failure_is_told_to_the_breaker_once_and_not_tried_again_before_the_next_compaction() -> (
    None
):
    talk = nearly_full("no summary", "still none", summary("later"))
    await talk.reply()
    assert [event.by for event in talk.of(Failed)] == ["Ahead"]
    assert talk.asked == 2, "the question and one nudge"

    rounds(talk.log, 1, first=100)
    handed = await talk.fit()
    assert marks(handed)[BREAKER]["failures"] == 1
    await talk.reply()
    assert await talk.fit() == []
    assert talk.asked == 2

    rounds(talk.log, 3, first=200)
    await talk.fit()
    assert [event.trigger for event in talk.of(Compacted)] == ["auto"]
    assert CompactionBreaker.of(talk.log.view, "scripted").failures == 0


async def test_a_summary_that_is_too_large_to_help_is_a_failure_at_once() -> None:
    talk = nearly_full(summary("x" * 3_000))
    await talk.reply()

    assert talk.ahead.ready is None
    [failed] = talk.of(Failed)
    assert "would not be smaller" in failed.cause


async def test_an_open_breaker_is_respected() -> None:
    talk = nearly_full()
    talk.log.add(CompactionBreaker("scripted", failures=3).mark, by="Compaction")
    await talk.reply()

    assert talk.asked == 0


async def test_success_closes_the_breaker() -> None:
    talk = nearly_full()
    talk.log.add(CompactionBreaker("scripted", failures=2).mark, by="Compaction")
    await talk.reply()
    go_on(talk)
    await talk.fit()

    assert CompactionBreaker.of(talk.log.view, "scripted").failures == 0


async def test_a_provider_that_is_down_costs_the_conversation_nothing() -> None:
    talk = nearly_full(*(Overloaded("busy") for _ in range(30)), settings=CompactionSettings(failures=1))
    await talk.reply()
    asked = talk.asked
    go_on(talk)
    await talk.fit()

    assert talk.texts[0].startswith("<digest>")
    assert talk.asked == asked, "the breaker is open: it is not asked again"


# --- hooks ------------------------------------------------------------------------------------------------


async def test_hooks_are_asked_when_it_is_prepared_and_told_when_it_is_in_place() -> None:
    told: list[str] = []

    async def before(trigger: str, instructions: str) -> HookOutcome:
        told.append(f"before {trigger}")
        return HookOutcome(contexts=("mind the tests",))

    async def after(boundary: Boundary, text: str) -> tuple[()]:
        told.append(f"after {boundary.trigger}")
        return ()

    talk = await prepared(options={"hooks": CompactionHooks(before, after)})
    assert told == ["before auto"]
    assert "mind the tests" in talk.model.requests[0].view.messages[-1].text
    go_on(talk)
    await talk.fit()

    assert told == ["before auto", "after ahead"]
    boundary = find_last_boundary(talk.log.view)
    assert boundary is not None
    assert boundary.instructions == "mind the tests"


async def test_a_hook_that_refuses_is_no_failure_and_is_not_asked_at_every_reply() -> None:
    asked: list[str] = []

    async def before(trigger: str, instructions: str) -> HookOutcome:
        asked.append(trigger)
        return HookOutcome(block=True, reason="not now")

    talk = nearly_full(options={"hooks": CompactionHooks(before)})
    await talk.reply()
    await talk.reply()

    assert asked == ["auto"]
    assert talk.asked == 0
    assert talk.of(Failed) == []
    assert talk.said() == ["no summary is prepared: a hook refused it: not now"]
    assert BREAKER not in talk.log.view.marks


# --- whatever was said ------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1 << 30), st.sampled_from([8_000, 32_000, 200_000]), st.booleans())
def test_whatever_was_said_meanwhile_it_stays_word_for_word(seed: int, window: int, binds: bool) -> None:
    run_sync(_prepared_and_put_in_place, seed, window, binds)


def last_typed(view: View) -> int:
    return max(at for at, placed in enumerate(view) if placed.by == "user")


async def _prepared_and_put_in_place(seed: int, window: int, binds: bool) -> None:
    rng = random.Random(seed)
    whole = random_transcript(rng, int(window * rng.uniform(0.95, 1.2)))
    able = Capabilities(binds_thinking=binds)
    log = Transcript(lambda: 0.0)
    talk = Preparing([summary()] * 9, log=log, window=window, able=able)
    for entry in whole.entries:
        log.add(entry.what, by=entry.by)
        if not has_paired_tools(log.view):
            continue
        full = talk.tokens > Thresholds.of(window, able.max_output).auto_compact
        ready, view = talk.ahead.ready, log.view
        handed = talk.write(await talk.prepared.fit(talk.request, talk.pressure()))
        if full and edits(handed):
            assert ready is not None
            _, *rest = talk.log.view.messages
            asked_before = last_typed(view) < len(ready.covers)
            assert tuple(rest[asked_before:]) == view.messages[len(ready.covers) :] or binds
            assert not asked_before or rest[0] == user(view[last_typed(view)].message.text)
            assert marks(handed)[BOUNDARY]["trigger"] == "ahead"
            assert talk.tokens <= SHARE * Thresholds.of(window, able.max_output).auto_compact
            assert has_paired_tools(log.view)
            return
        if entry.by in ("model", "tools"):
            await talk.ahead(talk.request)


# --- where it is wired ------------------------------------------------------------------------------------


def parts_of(talk: Compacting, *, waits: bool = True, **flags: bool) -> LayerParts:
    return with_fields(talk.parts, can_wait=waits, switches=Switches(**flags))


def kinds(layers: Layers) -> set[type]:
    return {type(layer) for layer in (*layers.replied, *layers.fit)}


@pytest.mark.parametrize(
    ("waits", "flags", "there"),
    [
        (True, {}, False),
        (True, {"precompute": True}, True),
        (False, {}, True),
        (True, {"precompute": True, "compact": False}, False),
        (True, {"precompute": True, "collapse": True}, False),
    ],
)
def test_it_is_there_where_it_is_wanted_or_where_there_is_no_other_time(
    tmp_path: Path, waits: bool, flags: dict[str, bool], there: bool
) -> None:
    layers = make_standard_layers("main", parts_of(Compacting(), waits=waits, **flags))

    assert (SummaryAhead in kinds(layers)) is there
    assert (PrecomputedSummary in kinds(layers)) is there
    if there:
        fits = [type(layer) for layer in layers.fit]
        assert fits.index(PrecomputedSummary) == fits.index(Compaction) - 1


@pytest.mark.parametrize("role", ["agent", "fork"])
def test_agents_and_forks_have_none(tmp_path: Path, role: Any) -> None:
    layers = make_standard_layers(role, parts_of(Compacting(), precompute=True))

    assert not {SummaryAhead, PrecomputedSummary} & kinds(layers)


def test_without_a_model_to_ask_there_is_none(tmp_path: Path) -> None:
    alone = with_fields(parts_of(Compacting(), precompute=True), fork=None)
    assert not {SummaryAhead, PrecomputedSummary, Compaction} & kinds(make_standard_layers("main", alone))


async def test_in_a_session_the_window_fills_up_and_nobody_waits(tmp_path: Path) -> None:
    here = Place(tmp_path)
    flags = {"precompute": True, "notes": False, "micro_cost": False}
    async with here.session(OfflineEngine(24_000), settings={"flags": flags}) as session:
        for n in range(40):
            path = here.project / f"part{n}.txt"
            path.write_text(f"line of part {n}\n" * 200, encoding="utf-8")
            await session.ask(f"read part{n}.txt")
            await session.tray.drain(10)
            if here.of(Compacted):
                break

    [event] = here.of(Compacted)
    assert (event.by, event.trigger) == ("summary", "ahead")
    assert event.tokens_after < event.tokens_before
    summed_up = next(m.text for m in session.view.messages if m.text.startswith("<summary>"))
    assert "read part0.txt" in summed_up, "what the user said is still there"
    forked = [line.source for line in session.ledger.lines].count("fork:compact")
    assert forked == 1
    assert here.of(Failed) == []


# --- on the wire ------------------------------------------------------------------------------------------


async def test_on_the_wire_preparing_reads_what_the_conversation_had_cached() -> None:
    thresholds = Thresholds.of(40_000, 8_000)
    async with conversation(answering) as talk:
        ahead = SummaryAhead(make_parts(talk.model, events=talk.events), layer_on(talk, thresholds))
        turn = talk.turn(Layers(fit=(PrecomputedSummary(ahead),), replied=(ahead,)), size=5_500)
        turn.thresholds = thresholds
        async with open_task_group() as tasks:
            turn.background = BackgroundTasks(tasks, talk.events.append)
            await turn.run(user("read everything"))

    rows = list(talk.sim.ledger.rows)
    [at] = [i for i, row in enumerate(rows) if row.source == "fork:compact"]
    fork = rows[at].tokens
    cached = [row.tokens.cache_read + row.tokens.cache_write_5m for row in rows[:at]]
    assert fork.cache_read in cached[-2:], "all of its parent, beside which the next one may run"
    assert fork.cache_read > 15_000
    assert fork.cache_write_5m == 0
    [event] = talk.of(Compacted)
    assert event.trigger == "ahead"
    assert turn.transcript.view[0].message.text.startswith("<summary>")
    assert all(broke.expected for broke in talk.of(CacheBroke) if broke.source == "main")
    assert str(LOG) in turn.transcript.view[0].message.text
