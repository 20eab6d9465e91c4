"""The bills of benchmarks/compaction are right to the token, and what it compares is what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.compaction.accounting import (
    NotAnswered,
    charged,
    conversing,
    frame_tokens,
    said,
    shared_tokens,
    told,
)
from benchmarks.compaction.noting import Keeper
from benchmarks.compaction.ours import SUMMARY, Way, compacted, summary_of
from benchmarks.compaction.run import DRIVERS
from benchmarks.fit.environments import peers
from benchmarks.fit.peers.driving import SUMMARY as FAKE
from benchmarks.fit.workload import Json, conversation
from sevenfold.core.events import Event
from sevenfold.core.messages import ToolUse
from sevenfold.core.tokens import estimate_tokens
from sevenfold.layers.l3_session_memory.notes import NotesWording
from sevenfold.layers.l3_session_memory.notes_update import NotesEdits
from sevenfold.layers.l4_compaction.summary import parse_summary
from sevenfold.simulator.cache import count_text_tokens


def says(role: str, tokens: int, letter: str) -> Json:
    return {"role": role, "content": [{"type": "text", "text": letter * 4 * tokens}]}


HEARD = [
    says("user", 5_000, "a"),
    says("assistant", 100, "b"),
    says("user", 40, "c"),
    says("assistant", 10, "d"),
    says("user", 20, "e"),
]


def test_a_plain_call_pays_its_whole_input_and_what_is_kept_is_written_anew() -> None:
    call, after = [says("user", 4_000, "x")], [says("user", 300, "s"), *HEARD[-2:]]
    made = charged(HEARD, [call], after, summary=250)

    frame = frame_tokens()
    assert made.before == frame + 5_000 + 100 + 40
    assert made.shared == 0
    assert made.calls.units == pytest.approx(4_000 + 250 * 5)
    assert made.after.units == pytest.approx(frame * 0.1 + (300 + 10 + 20) * 1.25)
    assert made.units == pytest.approx(made.calls.units + made.after.units)
    assert made.cost == pytest.approx(made.units * 3 / 1_000_000)
    assert (made.told, made.said) == (1, 3)


def test_what_is_kept_at_the_beginning_is_read_as_far_as_it_was_marked_before() -> None:
    made = charged(HEARD, [], HEARD, summary=0)
    new = 10 + 20
    assert made.calls.units == 0
    assert made.after.units == pytest.approx((frame_tokens() + 5_140) * 0.1 + new * 1.25)


def test_a_request_the_provider_refuses_is_not_passed_over() -> None:
    orphan = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "of no call"}
    with pytest.raises(NotAnswered, match="tool_result"):
        charged(HEARD, [], [{"role": "user", "content": [orphan]}])


def test_only_the_very_beginning_is_shared_and_one_byte_ends_it() -> None:
    live = conversing(HEARD[:3])
    assert shared_tokens(conversing(HEARD), live) == frame_tokens() + 5_140
    changed = [HEARD[0], says("assistant", 100, "B"), *HEARD[2:]]
    assert shared_tokens(conversing(changed), live) == frame_tokens() + 5_000
    assert shared_tokens({**live, "system": "another"}, live) < frame_tokens()


def test_a_message_of_the_user_counts_only_when_all_of_it_is_there() -> None:
    words = said(HEARD)
    assert [len(one) for one in words] == [20_000, 160, 80]
    assert told(words, [says("user", 39, "c")]) == 0
    quoted = {"role": "user", "content": [{"type": "text", "text": f"they said {words[1]}!"}]}
    assert told(words, [quoted]) == 1


def test_summaries_are_as_long_as_announced_and_ours_would_be_taken() -> None:
    for tokens in (1_000, 2_800):
        assert count_text_tokens(summary_of(tokens)) == tokens
        assert not parse_summary(summary_of(tokens)).missing
    assert count_text_tokens(summary_of(1_000, analysis=500)) == 1_500
    assert not parse_summary(summary_of(1_000, analysis=500)).missing
    assert count_text_tokens(FAKE) == 1_000, "what the others' fake model says, and the table replaces"


@pytest.mark.anyio
async def test_the_keeper_of_notes_makes_edits_that_fit_and_arrives_at_the_length() -> None:
    def ignored(event: Event) -> None:
        return None

    path = Path("/sessions/one/summary.md")
    form = NotesWording.load(None, ignored).form
    keeper, notes = Keeper(path, 1_000, 30), NotesEdits(path, form.template)
    for n in range(30):
        for edit in keeper.edits():
            await notes.call(ToolUse(f"u{n}", edit["name"], edit["input"]))
    assert (notes.made, notes.failed, notes.denied) == (60, 0, 0)
    written = sum(map(estimate_tokens, form.bodies(notes.text)))
    assert 900 < written <= 1_000


@pytest.mark.anyio
async def test_our_summary_call_reads_the_whole_live_prefix_and_keeps_what_the_user_said(
    tmp_path: Path,
) -> None:
    made = await compacted(SUMMARY, conversation(), tmp_path, 1_000)
    one = made.compacted
    assert one.calls.requests == 1
    assert one.calls.tokens.cache_read == one.shared == one.before
    assert one.calls.tokens.cache_read > 0.98 * one.calls.prompt
    assert one.calls.tokens.output == 1_000
    assert one.after.tokens.cache_read == frame_tokens()
    assert one.told == one.said > 10


@pytest.mark.anyio
async def test_on_a_cold_cache_our_call_costs_what_anybody_pays(tmp_path: Path) -> None:
    made = await compacted(Way("cold", seconds=400), conversation(), tmp_path, 1_000)
    calls = made.compacted.calls
    assert calls.tokens.cache_read == 0
    assert calls.units >= calls.prompt + 5 * 1_000


def test_every_driver_is_one_that_benchmarks_fit_knows() -> None:
    assert set(DRIVERS) <= {peer.script for peer in peers().peers}
