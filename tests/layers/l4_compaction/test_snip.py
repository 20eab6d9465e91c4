"""Snipping: whole old rounds go at once, a note says so, and everything can be put back."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import make, make_parts
from layers.l4_compaction.foldable import (
    BINDS,
    FRAME,
    LOG,
    PLAIN,
    WINDOWS,
    copied,
    offered,
    pressed,
    random_talk,
    reloaded,
    rounds,
    sent,
    talked,
    written,
)
from layers.l4_compaction.foldable import expand_snip as expand

from sevenfold.core.errors import PromptTooLong
from sevenfold.core.events import Compacted, Declined, Event
from sevenfold.core.messages import THOUGHTS, Message, Text, Thinking, ToolResult, ToolUse, assistant, user
from sevenfold.core.protocols import Capabilities, Layers
from sevenfold.core.request import Request, has_paired_tools
from sevenfold.core.tokens import Thresholds
from sevenfold.core.transcript import Replace, Reply, Transcript
from sevenfold.layers.l4_compaction.fold import (
    BY,
    KEEP_ROUNDS,
    LEAST,
    LOW,
    TRIGGER,
    Snip,
    find_expanded,
    find_snips,
)
from sevenfold.layers.shared.boundary import find_last_boundary, find_record
from sevenfold.testing import FakeTools, ScriptedModel


def notes(log: Transcript) -> list[str]:
    return [m.text for m in log.view.messages if m.text.startswith("<snipped>")]


def limit(window: int) -> int:
    return Thresholds.of(window, 32_000).auto_compact


# --- when -----------------------------------------------------------------------------------------------


def test_below_its_trigger_nothing_goes() -> None:
    log = talked()
    tokens = pressed(Request(FRAME, log.view), 200_000).tokens
    over = next(w for w in range(8_000, 200_000, 500) if limit(w) * TRIGGER >= tokens)

    assert offered(Snip, log, over) == []
    assert offered(Snip, log, over - 1_000), "and just above it something does"


def test_it_comes_down_to_the_low_watermark_and_not_far_below() -> None:
    log = talked(turns=12, each=4, size=1_500, tail=6)
    window = 24_000
    written(log, offered(Snip, log, window), BY)
    after = pressed(Request(FRAME, log.view), window).tokens

    assert after <= limit(window) * LOW
    assert after > limit(window) * (LOW - 0.1), "no more goes than has to"


def test_it_is_never_a_rolling_snip() -> None:
    """Many steps of a long session: each snip is followed by many requests that change nothing."""
    log, n, window, when = talked(turns=3), 100, 24_000, list[int]()
    for step in range(200):
        rounds(log, 1, 800, n + step)
        if handed := offered(Snip, log, window):
            written(log, handed, BY)
            when.append(step)
    gaps = [b - a for a, b in pairwise(when)]

    assert len(when) > 3
    assert min(gaps) >= 10


def test_what_would_free_too_little_is_left_alone() -> None:
    log = Transcript(lambda: 0.0)
    log.add(user("look at this " + "x" * 22_000))  # the task alone is most of the window
    rounds(log, 8, 300)

    assert pressed(Request(FRAME, log.view), 8_000).tokens > limit(8_000) * TRIGGER
    assert offered(Snip, log, 8_000) == []


def test_after_a_refusal_it_frees_what_the_provider_asks_for_or_nothing() -> None:
    log = talked(turns=12)
    tokens = pressed(Request(FRAME, log.view), 200_000).tokens
    some = PromptTooLong("too long", tokens=tokens + 2_000, limit=tokens)
    impossible = PromptTooLong("too long", tokens=tokens * 20, limit=tokens)
    assert offered(Snip, log, 200_000, refused=impossible) == []
    written(log, offered(Snip, log, 200_000, refused=some), BY)
    boundary = find_last_boundary(log.view)

    assert boundary is not None
    assert boundary.trigger == "refused"
    assert boundary.tokens_before - boundary.tokens_after >= 2_000


# --- what -----------------------------------------------------------------------------------------------


def test_the_note_says_how_much_went_and_where_it_is() -> None:
    log = talked()
    written(log, offered(Snip, log, 12_000), BY)
    (note,) = notes(log)

    assert str(LOG) in note
    assert f"{find_snips(log)[0].rounds} older rounds" in note
    assert note.startswith("<snipped>\n")
    assert note.endswith("\n</snipped>")


def test_what_the_user_said_is_in_the_note_word_for_word_and_in_its_record() -> None:
    log = talked()
    said = [m.text for m in log.view.messages if m.text.startswith("task")]
    written(log, offered(Snip, log, 12_000), BY)
    everything = "\n".join(m.text for m in log.view.messages)
    note = next(placed for placed in log.view if placed.message.text.startswith("<snipped>"))
    record = find_record(note, log.view.marks)

    assert all(text in everything for text in said)
    assert record is not None
    assert {one.text for one in record.facts.said} <= set(said)
    assert record.facts.said


def test_the_task_the_last_message_and_the_newest_rounds_stay_as_they_were() -> None:
    log = talked(turns=8, tail=9)
    before = log.view.messages
    written(log, offered(Snip, log, 12_000), BY)
    after = log.view.messages

    assert after[0] == before[0]
    assert user("and now the last one, please") in after
    assert after[-2 * KEEP_ROUNDS :] == before[-2 * KEEP_ROUNDS :]


def test_a_long_loop_loses_its_oldest_rounds_on_both_sides_of_what_was_said_last() -> None:
    log = talked(turns=2, tail=60)
    handed = offered(Snip, log, 32_000)
    written(log, handed, BY)

    assert len([h for h in handed if isinstance(h, Replace)]) == 2
    assert len(notes(log)) == 2
    assert [fold.rounds for fold in find_snips(log)] == [10, find_snips(log)[1].rounds]


def test_a_second_snip_leaves_the_first_note_and_all_before_it_as_they_are() -> None:
    log = talked(turns=8)
    written(log, offered(Snip, log, 16_000), BY)
    first = sent(log)[:2]
    for turn in range(6):
        log.add(user(f"more {turn}"))
        rounds(log, 4, 2_000, 100 + 4 * turn)
        log.add(Reply(assistant(Text("Done."))), by="model")
    handed = offered(Snip, log, 16_000)
    written(log, handed, BY)

    assert handed
    assert sent(log)[:2] == first
    assert len(notes(log)) >= 2


def test_a_note_cannot_be_ended_by_what_is_quoted_in_it() -> None:
    log = Transcript(lambda: 0.0)
    log.add(user("begin"))
    rounds(log, 6)
    log.add(Reply(assistant(Text("Done."))), by="model")
    log.add(user("what does </snipped> mean, and </said>?"))
    rounds(log, 12, first=6)
    log.add(Reply(assistant(Text("Done again."))), by="model")
    log.add(user("last"))
    rounds(log, 6, first=40)
    written(log, offered(Snip, log, 12_000), BY)
    (note,) = notes(log)

    assert note.count("</snipped>") == 1
    assert note.count("</said>") == note.count("<said ")


def test_what_begins_a_session_is_not_dropped_with_the_old_rounds() -> None:
    log = Transcript(lambda: 0.0)
    log.add(user("<context>\nrules of this house\n</context>"), by="hooks")
    log.add(user("the task"))
    rounds(log, 20)
    written(log, offered(Snip, log, 12_000), BY)

    assert [m.text for m in log.view.messages[:2]] == [
        "<context>\nrules of this house\n</context>",
        "the task",
    ]


# --- thinking -------------------------------------------------------------------------------------------


def thinking(log: Transcript, n: int, first: int) -> None:
    for i in range(first, first + n):
        call = ToolUse(f"w{i}", "Bash", {"command": "x"})
        log.add(Reply(assistant(Thinking("hm", f"sig{i}"), call)), by="model")
        log.add(Message("user", (ToolResult(f"w{i}", "line\n" * 400),)), by="tools")


def test_bound_thinking_in_a_loop_that_is_going_on_is_never_touched() -> None:
    log = talked(turns=6, tail=0)
    thinking(log, 12, 0)

    assert offered(Snip, log, 12_000, BINDS) == []
    assert offered(Snip, log, 12_000, PLAIN), "where thinking is not bound it can be done"


def test_bound_thinking_of_finished_turns_goes_with_the_edit() -> None:
    log = Transcript(lambda: 0.0)
    log.add(user("begin"))
    thinking(log, 12, 0)
    log.add(Reply(assistant(Thinking("so", "sig"), Text("Done."))), by="model")
    log.add(user("next"))
    written(log, offered(Snip, log, 8_000, BINDS), BY, BINDS)

    assert not any(isinstance(b, THOUGHTS) for m in log.view.messages for b in m.content)


# --- putting back, resume -------------------------------------------------------------------------------


def test_what_is_put_back_is_what_was_there_byte_for_byte() -> None:
    log = talked(turns=2, tail=60)
    before = sent(log)
    written(log, offered(Snip, log, 32_000), BY)
    assert sent(log) != before
    written(log, expand(log), BY)

    assert sent(log) == before
    assert find_snips(log) == []
    assert find_last_boundary(log.view) is None


def test_what_was_put_back_is_left_alone_until_the_provider_refuses() -> None:
    log = talked(turns=8, tail=6)
    written(log, offered(Snip, log, 12_000), BY)
    written(log, expand(log), BY)
    refused = PromptTooLong("too long", tokens=14_000, limit=12_000)

    assert find_expanded(log.view)
    assert offered(Snip, log, 12_000) == []
    assert offered(Snip, log, 12_000, refused=refused)


def test_a_note_that_another_compaction_took_cannot_be_put_back() -> None:
    log = talked()
    written(log, offered(Snip, log, 12_000), BY)
    log.add(Replace(log.view[0].id, log.view[1].id, (user("a summary"),)), by="Compaction")

    assert expand(log) == ()


def test_expanding_what_was_never_snipped_gives_nothing() -> None:
    assert expand(talked(), 3) == ()


def test_a_resumed_session_sends_the_same_bytes_and_can_still_expand() -> None:
    log, lines = copied(talked(turns=2, tail=60))
    before = sent(log)
    written(log, offered(Snip, log, 32_000), BY)
    resumed = reloaded(lines)

    assert sent(resumed) == sent(log)
    assert resumed.view == log.view
    assert find_snips(resumed) == find_snips(log)
    written(resumed, expand(resumed), BY)
    assert sent(resumed) == before


# --- any conversation -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    window=st.sampled_from(WINDOWS),
    filled=st.floats(0.4, 1.0),
    thinks=st.booleans(),
    binds=st.booleans(),
)
def test_whatever_comes_the_laws_hold(
    seed: int, window: int, filled: float, thinks: bool, binds: bool
) -> None:
    able = Capabilities(binds_thinking=binds)
    log, lines = copied(random_talk(seed, int(limit(window) * filled), thinks=thinks))
    before, entries = sent(log), len(log.entries)
    tokens = pressed(Request(FRAME, log.view), window).tokens
    said = [p.message.text for p in log.view if p.by == "user"]
    handed = offered(Snip, log, window, able)
    if tokens <= limit(window) * TRIGGER:
        assert handed == []
    if not handed:
        return
    written(log, handed, BY, able)
    now = pressed(Request(FRAME, log.view), window).tokens
    everything = "\n".join(m.text for m in log.view.messages)

    assert tokens - now >= LEAST * limit(window)
    assert all(text in everything for text in said)
    assert offered(Snip, log, window, able) == [], "once is enough"
    assert log.view[-1].message.role == reloaded(lines).view[-1].message.role
    assert sent(reloaded(lines)) == sent(log)
    assert len(log.entries) > entries
    written(log, expand(log), BY, able)
    assert has_paired_tools(log.view)
    if not (thinks and binds):
        assert sent(log) == before


# --- in a turn ------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_turn_writes_it_and_goes_on() -> None:
    log, events, told = talked(turns=8), list[Event](), list[str]()
    model = ScriptedModel(["Everything is done."], Capabilities(window=12_000))
    layer = Snip(make_parts(model, events=events, expected=told))
    turn = make(model, Layers(fit=(layer,)), events=events, transcript=log, tools=FakeTools())
    reply = await turn.run()

    assert reply.message.text == "Everything is done."
    assert not [e for e in events if isinstance(e, Declined)]
    assert [e.by for e in events if isinstance(e, Compacted)] == ["snip"]
    assert told == ["old rounds were taken out of the conversation"]
    assert "has all of it on record" in notes(log)[0], "without a file it names none"
