"""Compaction by the provider: what is asked for, what comes back, and what we make of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from flows.test_session import Place
from kit import RestoredBy, make, make_parts
from layers.l4_compaction.foldable import copied, pressed, reloaded, rounds, sent, talked, written
from layers.simulated import FRAME, MODEL, Conversation, conversation, reading
from msgspec.structs import replace

from sevenfold.core.errors import Overloaded
from sevenfold.core.events import CacheBroke, Compacted, Declined, Event, Failed
from sevenfold.core.messages import Message, Opaque, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Capabilities, Change, Layers
from sevenfold.core.request import Frame, Request, encode_view
from sevenfold.core.tokens import Thresholds, Usage
from sevenfold.core.transcript import Mark, Replace, Reply, Transcript
from sevenfold.layers.l2_microcompaction.provider import add_context_management
from sevenfold.layers.l4_compaction.server import (
    BY,
    FAILURES,
    LEAST_TRIGGER,
    ON_DEMAND_BETA,
    RECORDED,
    SOURCE,
    RequestedCompaction,
    ServerCompaction,
    SideRequestSender,
    SummaryAccounts,
    add_requested_compaction,
    add_server_compaction,
    make_summary_request,
    quote_missing_words,
    read_compaction_block,
    read_summary_usage,
    remove_server_summaries,
)
from sevenfold.layers.parts import LayerParts, PlainConversation, ServerSummaries
from sevenfold.layers.shared.boundary import Boundary, collect_facts, find_last_boundary
from sevenfold.layers.shared.facts import Facts
from sevenfold.layers.shared.restore import CompactionCut, CompactionHooks, Restorer
from sevenfold.models.anthropic_wire import collect_betas, encode_body
from sevenfold.models.capabilities import find_capabilities
from sevenfold.settings.layers import MicroSettings
from sevenfold.simulator.api import Api
from sevenfold.simulator.server import ManualClock
from sevenfold.testing import NoAccounts, Postponed, ScriptedModel
from sevenfold.turn import Turn

pytestmark = pytest.mark.anyio
ABLE = Capabilities(server_compaction=True, context_management=True)
SMALL = Thresholds.of(100_000, 10_000)
"""Small enough to be filled in a test, large enough that the provider accepts the trigger."""


def edits(frame: Frame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = frame.params["context_management"]["edits"]
    return found


def summary(text: str, **more: Any) -> Opaque:
    raw = {"type": "compaction", "content": text, **more}
    return Opaque("compaction", msgspec.json.encode(raw).decode())


# --- the parameter --------------------------------------------------------------------------------------


def test_it_has_the_documented_shape_and_the_beta_that_goes_with_it() -> None:
    frame = add_server_compaction(FRAME, ABLE, SMALL)
    (edit,) = edits(frame)

    assert edit["type"] == "compact_20260112"
    assert edit["trigger"] == {"type": "input_tokens", "value": SMALL.warning}
    assert "Call no tool" in edit["instructions"]
    assert set(edit) == {"type", "trigger", "instructions"}
    assert "compact-2026-01-12" in collect_betas(frame)


def test_it_goes_behind_what_else_the_provider_is_to_manage() -> None:
    frame = add_server_compaction(add_context_management(FRAME, ABLE, MicroSettings()), ABLE, SMALL)
    assert [e["type"] for e in edits(frame)] == ["clear_tool_uses_20250919", "compact_20260112"]
    assert add_server_compaction(frame, ABLE, SMALL) is frame


@pytest.mark.parametrize("window", [8_000, 32_000, 64_000])
def test_a_window_too_small_for_the_least_trigger_does_without(window: int) -> None:
    thresholds = Thresholds.of(window, 32_000)
    assert thresholds.warning < LEAST_TRIGGER
    assert add_server_compaction(FRAME, ABLE, thresholds) is FRAME


def test_without_the_capability_nothing_is_changed() -> None:
    assert add_server_compaction(FRAME, Capabilities(), SMALL) is FRAME
    assert add_requested_compaction(FRAME, Capabilities()) is FRAME


def test_it_comes_back_from_a_transcript_as_it_was() -> None:
    frame = add_server_compaction(FRAME, ABLE, SMALL)
    lines: list[bytes] = []
    Transcript(lambda: 0.0, lines.append).add(Mark("frame", msgspec.to_builtins(frame)))
    assert msgspec.convert(reloaded(lines).view.marks["frame"], Frame) == frame


# --- at a threshold, on the simulator -------------------------------------------------------------------


@asynccontextmanager
async def compacted_session(reads: int = 8, **fields: Any) -> AsyncIterator[tuple[Conversation, Turn]]:
    """A session whose provider compacts while it reads files of 22,500 tokens each."""
    frame = add_server_compaction(FRAME, ABLE, SMALL)
    async with conversation(reading(reads), frame=frame) as talk:
        summaries = ServerSummaries()
        accounts = SummaryAccounts(talk.ledger, summaries, talk.ledger.expect, talk.events.append)
        layer = ServerCompaction(make_parts(events=talk.events, server=summaries, **fields))
        turn = talk.turn(Layers(replied=(layer,)), size=90_000, accounts=accounts)
        yield talk, turn


async def finish(turn: Turn) -> None:
    """Run what waits in the background, and write what it hands back."""
    assert isinstance(turn.background, Postponed)
    await turn.background.run()
    turn.collect()


async def test_the_block_comes_with_the_reply_and_goes_back_as_it_came() -> None:
    async with compacted_session() as (talk, turn):
        await turn.run(user("read them all, and mind the colour teal"))
        rows = list(talk.sim.ledger.rows)
        blocks = [b for m in turn.transcript.view.messages for b in m.content]
        summaries = [b for b in blocks if isinstance(b, Opaque)]

        assert summaries
        assert all(b.kind == "compaction" for b in summaries)
        assert all(row.status == 200 for row in rows)
        assert all("read them all" in b.raw for b in summaries)


async def test_the_prompt_stays_small_and_our_count_follows() -> None:
    async with compacted_session(12) as (_, turn):
        await turn.run(user("read them all"))
        view = turn.transcript.view

        assert view.tokens < SMALL.auto_compact
        assert view.calibration.tokens(view.size) > 2 * SMALL.auto_compact


async def test_a_boundary_is_recorded_once_for_each_and_the_event_says_what_it_used() -> None:
    async with compacted_session() as (talk, turn):
        await turn.run(user("read them all"))
        await finish(turn)
        view = turn.transcript.view
        boundary = find_last_boundary(view)
        made = [
            e
            for e in turn.transcript.entries
            if isinstance(e.what, Reply) and any(isinstance(b, Opaque) for b in e.what.message.content)
        ]
        assert boundary is not None
        assert (boundary.by, boundary.trigger) == ("server", "auto")
        assert boundary.kept_from == view.marks[RECORDED] == made[-1].id
        assert boundary.last < boundary.kept_from
        assert all(e.usage.prompt >= SMALL.warning for e in talk.of(Compacted))

        told = len(talk.of(Compacted))
        assert told == len(made)
        talk.sim.api.replies = reading(0)
        await turn.run(user("thanks"))
        await finish(turn)
        assert len(talk.of(Compacted)) == told


async def test_the_words_of_the_user_follow_a_summary_that_left_them_out() -> None:
    async with compacted_session() as (_, turn):
        turn.transcript.add(user("never touch the file LICENSE"))
        turn.transcript.add(Reply(assistant(Text("I will not."))), by="model")
        await turn.run(user("read them all"))
        await finish(turn)
        last = turn.transcript.view[-1]

        assert last.by == BY
        assert '<said n="1">\nnever touch the file LICENSE\n</said>' in last.message.text
        assert "read them all" not in last.message.text, "that is in the summary"


async def test_what_the_provider_ignores_from_now_on_is_restored_and_hooks_are_told() -> None:
    told: list[tuple[str, str]] = []
    asked: list[tuple[int, int, int]] = []

    async def after(boundary: Boundary, text: str) -> tuple[Message, ...]:
        told.append((boundary.by, text))
        return (user("<context>\nof a hook\n</context>"),)

    def restore(cut: CompactionCut, room: int) -> Message:
        asked.append((len(cut.gone), cut.window, room))
        return user("<context>\nthe instruction files\n</context>")

    fields: dict[str, Any] = {
        "able": Capabilities(window=100_000),
        "restorer": Restorer([RestoredBy(restore)]),
        "hooks": CompactionHooks(after=after),
    }
    async with compacted_session(**fields) as (talk, turn):
        await turn.run(user("read them all"))
        await finish(turn)
        made, view = len(talk.of(Compacted)), turn.transcript.view
        added = [p.message.text for p in view if p.by == BY and "<said" not in p.message.text]

    assert made
    assert len(told) == len(asked) == made, "once for each"
    assert told[-1][0] == "server"
    assert told[-1][1]
    assert [text.split("\n")[1] for text in added] == ["the instruction files", "of a hook"] * made
    for gone, window, room in asked:
        assert gone > 0
        assert 0 < room <= window // 2


async def test_the_break_is_expected_and_the_summary_is_paid_for_in_a_column_of_its_own() -> None:
    async with compacted_session() as (talk, turn):
        await turn.run(user("read them all"))
        accounts = talk.ledger.accounts

        assert all(broke.expected for broke in talk.of(CacheBroke) if broke.source == "main")
        assert accounts[SOURCE].usage.output > 0
        assert accounts[SOURCE].cost > 0
        paid = sum(row.cost or 0.0 for row in talk.sim.ledger.rows)
        assert talk.ledger.total.cost == pytest.approx(paid)


async def test_a_resumed_session_sends_the_same_bytes() -> None:
    async with compacted_session() as (_, turn):
        await turn.run(user("read them all"))
        await finish(turn)
        _, lines = copied(turn.transcript)
        assert sent(reloaded(lines)) == sent(turn.transcript)


async def test_a_summary_that_failed_changes_nothing_and_is_told() -> None:
    events: list[Event] = []
    summaries = ServerSummaries()
    accounts = SummaryAccounts(NoAccounts(), summaries, lambda why: None, events.append)
    layer = ServerCompaction(make_parts(events=events, server=summaries))
    log = talked()
    failed = Reply(assistant(summary_that_failed(), Text("Going on.")), Usage(input=5))
    accounts.after(Request(FRAME, log.view), failed)
    log.add(failed, by="model")

    assert [type(e) for e in events] == [Failed]
    assert await layer(Request(FRAME, log.view)) == ()


def summary_that_failed() -> Opaque:
    return Opaque("compaction", '{"type":"compaction","content":null}')


def test_what_the_provider_reports_oddly_counts_as_nothing() -> None:
    odds: list[Any] = [None, {}, [], [3], [{"type": "compaction", "input_tokens": "many"}]]
    for odd in odds:
        reply = Reply(assistant(Text("x")), diagnostics={"iterations": odd})
        assert read_summary_usage(reply) == Usage()


def test_a_model_that_cannot_read_the_blocks_gets_the_conversation_without_them() -> None:
    log = talked()
    log.add(Reply(assistant(summary("so far"), Text("Going on."))), by="model")
    log.add(*remove_server_summaries(log.view), by="session")

    assert not any(isinstance(b, Opaque) for m in log.view.messages for b in m.content)
    assert log.view[-1].message == assistant(Text("Going on."))
    alone = Transcript(lambda: 0.0)
    alone.add(assistant(summary("what was said so far")), user("and?"))
    alone.add(*remove_server_summaries(alone.view), by="session")
    assert alone.view[0].message == user("what was said so far")


def test_words_are_cut_only_where_there_is_no_end_of_them() -> None:
    log = Transcript(lambda: 0.0)
    for n in range(50):
        log.add(user(f"message {n} " + "word " * 100), Reply(assistant(Text("ok"))))
    facts = collect_facts(log.view, {})
    (small,) = quote_missing_words(facts, "", 2_000)
    (large,) = quote_missing_words(facts, "", 20_000)

    assert large.text.count("<said ") == 50
    assert "message 49" in small.text
    assert len(small.text) < 10_000
    assert "messages of the user are left out here" in small.text
    assert quote_missing_words(Facts(), "", 2_000) == ()


# --- the simulator --------------------------------------------------------------------------------------


def ask(api: Api, trigger: int, *messages: dict[str, Any]) -> Any:
    edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": trigger}}
    request = {
        "model": MODEL,
        "max_tokens": 100,
        "messages": list(messages),
        "context_management": {"edits": [edit]},
    }
    return api.answer(request)


def test_the_simulator_refuses_a_trigger_that_is_too_small() -> None:
    outcome = ask(Api(ManualClock()), 40_000, {"role": "user", "content": "hello"})
    assert outcome.status == 400
    assert "50000" in outcome.body["error"]["message"]


def test_the_simulator_sums_up_at_the_trigger_and_ignores_what_stands_before_a_block() -> None:
    api = Api(ManualClock())
    long = {"role": "user", "content": "x" * 4 * 60_000}
    below = ask(api, 70_000, long)
    above = ask(api, 50_000, long)
    block = above.body["content"][0]
    after = ask(
        api,
        50_000,
        long,
        {"role": "assistant", "content": above.body["content"]},
        {"role": "user", "content": "go on"},
    )

    assert below.body["content"][0]["type"] == "text"
    assert block["type"] == "compaction"
    first, second = above.body["usage"]["iterations"]
    assert (first["type"], second["type"]) == ("compaction", "message")
    assert first["input_tokens"] == 60_000
    assert above.body["usage"]["input_tokens"] < 1_000
    assert after.body["usage"]["input_tokens"] < 1_000
    assert "iterations" not in after.body["usage"]


# --- on demand ------------------------------------------------------------------------------------------

SIGNED = add_requested_compaction(Frame("m", ("s" * 800,), ({"name": "Bash", "input_schema": {}},)), ABLE)


def reply_with(*blocks: Opaque, stop: str = "compaction") -> Reply:
    used = [{"type": "compaction", "input_tokens": 10_000, "output_tokens": 300}]
    return Reply(assistant(*blocks), stop=stop, diagnostics={"iterations": used})


def requested(model: ScriptedModel, events: list[Event]) -> LayerParts:
    known = PlainConversation(model)
    send = SideRequestSender(known, NoAccounts(), lambda event: None)
    return make_parts(conversation=known, events=events, send=send)


async def demanded(
    log: Transcript, *script: Any, able: Capabilities = ABLE, window: int = 12_000
) -> tuple[list[Change], ScriptedModel, list[Event]]:
    model, events = ScriptedModel(script, able), list[Event]()
    layer = RequestedCompaction(requested(model, events))
    request = Request(SIGNED, log.view)
    return list(await layer.fit(request, pressed(request, window))), model, events


async def test_the_request_for_a_summary_is_the_prefix_and_the_documented_parameter() -> None:
    log = talked()
    _, model, _ = await demanded(log, reply_with(summary("all of it", signature="s1")))
    (asked,) = model.requests
    sent_as = msgspec.json.decode(encode_body(replace(asked, frame=replace(asked.frame, model=MODEL))))

    assert sent_as["compaction"]["type"] == "summarize"
    assert len(sent_as["compaction"]["instructions"]) <= 16_384
    assert "context_management" not in sent_as
    assert "compaction" not in SIGNED.params
    assert ON_DEMAND_BETA in collect_betas(asked.frame)
    assert ON_DEMAND_BETA in collect_betas(SIGNED), "and so in every request that carries the block"
    assert list(encode_view(asked.view)) == sent(log)[: len(asked.view)]
    assert (asked.frame.system, asked.frame.tools) == (SIGNED.system, SIGNED.tools)


def test_what_may_not_stand_beside_it_is_left_out() -> None:
    params = {
        "context_management": {"edits": []},
        "tool_choice": {"type": "any"},
        "output_config": {"format": {"type": "json"}, "effort": "high"},
    }
    request = Request(replace(SIGNED, params=params), talked().view)
    left = make_summary_request(request, 4, 200_000).frame.params

    assert set(left) == {"output_config", "compaction"}
    assert left["output_config"] == {"effort": "high"}


async def test_the_block_takes_the_place_of_what_it_sums_up_byte_for_byte() -> None:
    log, lines = copied(talked())
    newest = log.view.messages[-2:]
    block = summary("tasks were done", signature="s1")
    handed, _, events = await demanded(log, reply_with(block))
    written(log, handed, "OnDemand")
    view = log.view

    assert view[0].message == assistant(block)
    assert block.raw.encode() in sent(log)[0]
    assert "task 0: never touch the file LICENSE0" in view[1].message.text
    assert view.messages[-2:] == newest
    assert len(view) == 4
    boundary = find_last_boundary(view)
    assert boundary is not None
    assert (boundary.by, boundary.tokens_after < boundary.tokens_before) == ("server", True)
    assert [e.usage.prompt for e in events if isinstance(e, Compacted)] == [10_000]
    assert sent(reloaded(lines)) == sent(log)


async def test_compacting_again_sends_the_old_block_and_keeps_only_the_new_one() -> None:
    log = talked()
    handed, _, _ = await demanded(log, reply_with(summary("first", signature="s1")))
    written(log, handed, "OnDemand")
    rounds(log, 16, 2_000, 500)
    handed, model, _ = await demanded(log, reply_with(summary("second", signature="s2")))
    written(log, handed, "OnDemand")
    blocks = [b for m in log.view.messages for b in m.content if isinstance(b, Opaque)]

    assert b"first" in encode_view(model.requests[0].view)[0]
    assert blocks == [summary("second", signature="s2")]
    assert "never touch the file LICENSE0" in log.view[1].message.text


async def test_it_asks_only_above_the_threshold_and_only_where_it_is_offered() -> None:
    log = talked()
    cases: list[tuple[Capabilities, int]] = [(ABLE, 200_000), (Capabilities(), 12_000)]
    for able, window in cases:
        handed, model, _ = await demanded(log, able=able, window=window)
        assert (handed, model.requests) == ([], [])


@pytest.mark.parametrize(
    "said",
    [
        reply_with(stop="max_tokens"),
        reply_with(summary(""), stop="end_turn"),
        reply_with(summary("a"), summary("b")),
        reply_with(Opaque("compaction", "not JSON")),
        Reply(assistant(ToolUse("x", "Bash", {})), stop="tool_use"),
        Overloaded("the provider is too busy"),
    ],
)
async def test_without_a_summary_the_view_stays_and_the_next_layer_goes_on(said: Any) -> None:
    log = talked()
    before = sent(log)
    handed, _, events = await demanded(log, said)
    written(log, handed, "OnDemand")

    assert [type(e) for e in events] == [Failed]
    assert not [h for h in handed if isinstance(h, Replace)]
    assert sent(log) == before


async def test_a_summary_that_is_not_smaller_is_refused() -> None:
    log = talked()
    handed, _, events = await demanded(log, reply_with(summary("blah " * 40_000)))
    assert not [h for h in handed if isinstance(h, Replace)]
    assert [type(e) for e in events] == [Failed]


async def test_after_three_failures_in_a_row_it_is_not_asked_again() -> None:
    log, lines = copied(talked())
    for _ in range(FAILURES):
        handed, model, _ = await demanded(log, reply_with(stop="refusal"))
        assert model.requests
        written(log, handed, "OnDemand")
    for transcript in (log, reloaded(lines)):
        handed, model, _ = await demanded(transcript, reply_with(summary("never read")))
        assert (handed, model.requests) == ([], [])


async def test_bound_thinking_in_a_loop_that_is_going_on_is_left_alone() -> None:
    log = talked(tail=0)
    for n in range(8):
        uses = assistant(Thinking("hm", f"sig{n}"), ToolUse(f"w{n}", "Bash", {}))
        log.add(Reply(uses), by="model")
        log.add(Message("user", (ToolResult(f"w{n}", "line\n" * 200),)), by="tools")
    able = replace(ABLE, binds_thinking=True)
    handed, model, _ = await demanded(log, reply_with(summary("x")), able=able)
    assert (handed, model.requests) == ([], [])


async def test_a_turn_puts_it_in_and_goes_on() -> None:
    events: list[Event] = []
    block = summary("all of it", signature="s1")
    able = replace(ABLE, window=12_000)
    model = ScriptedModel([reply_with(block), "Done."], able)
    layer = RequestedCompaction(requested(model, events))
    turn = make(model, Layers(fit=(layer,)), events=events, transcript=talked())
    turn.frame = SIGNED
    reply = await turn.run()

    assert reply.message.text == "Done."
    assert not [e for e in events if isinstance(e, Declined)]
    assert read_compaction_block(reply_with(block)) == block
    assert model.requests[-1].view[0].message == assistant(block)


def test_the_models_that_offer_it_are_known() -> None:
    assert find_capabilities("claude-opus-4-8").server_compaction
    assert not find_capabilities("claude-opus-4-5").server_compaction


@pytest.mark.parametrize("how", ["threshold", "onDemand"])
async def test_a_session_has_one_of_the_two_ways_as_its_settings_say(tmp_path: Path, how: str) -> None:
    chosen = {"flags": {"server_compact": True}, "compaction": {"server": how}}
    model = ScriptedModel(["Hello."], ABLE, MODEL)
    async with Place(tmp_path).session(model, settings=chosen) as session:
        await session.ask("Hello?")
        frame = session.turn.frame
        asks = [layer for layer in session.turn.layers.fit if isinstance(layer, RequestedCompaction)]
    assert bool(asks) == (how == "onDemand")
    assert (ON_DEMAND_BETA in collect_betas(frame)) == (how == "onDemand")
    assert ("compact_20260112" in str(frame.params)) == (how == "threshold")
