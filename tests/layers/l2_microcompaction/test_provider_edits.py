"""The provider's context management: what is asked for, what comes back, and what we make of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from layers.simulated import FRAME, MODEL, conversation, reading
from msgspec.structs import replace

from sevenfold.core.events import CacheBroke, Cleared
from sevenfold.core.messages import assistant, user
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Mark, Reply, Transcript
from sevenfold.layers.l2_microcompaction.provider import (
    AT_LEAST,
    TRIGGER,
    ProviderEdits,
    add_context_management,
    find_newly_cleared,
    read_cleared_counts,
)
from sevenfold.models.anthropic_wire import collect_betas
from sevenfold.settings.layers import MicroSettings

pytestmark = pytest.mark.anyio
ABLE = Capabilities(context_management=True)
SETTINGS = MicroSettings()


def edits(frame: Frame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = frame.params["context_management"]["edits"]
    return found


# --- what is asked for ---------------------------------------------------------------------------------


def test_it_has_the_documented_shape() -> None:
    frame = add_context_management(FRAME, ABLE, SETTINGS)

    assert edits(frame) == [
        {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "input_tokens", "value": TRIGGER},
            "keep": {"type": "tool_uses", "value": SETTINGS.keep_recent},
            "clear_at_least": {"type": "input_tokens", "value": AT_LEAST},
            "exclude_tools": ["Edit", "Write"],
        }
    ]
    assert "context-management-2025-06-27" in collect_betas(frame)


@pytest.mark.parametrize(
    ("window", "trigger", "least"),
    [
        (8_000, 7_200, 5_600),
        (32_000, 28_800, 22_400),
        (128_000, 115_200, 89_600),
        (1_000_000, 180_000, 140_000),
    ],
)
def test_its_numbers_shrink_with_a_small_window(window: int, trigger: int, least: int) -> None:
    (edit,) = edits(add_context_management(FRAME, replace(ABLE, window=window), SETTINGS))
    assert (edit["trigger"]["value"], edit["clear_at_least"]["value"]) == (trigger, least)


@pytest.mark.parametrize("thinking", [{"type": "adaptive"}, {"type": "enabled", "budget_tokens": 2_000}])
def test_thinking_of_earlier_turns_stays_in_the_prefix(thinking: dict[str, Any]) -> None:
    first, second = edits(
        add_context_management(replace(FRAME, params={"thinking": thinking}), ABLE, SETTINGS)
    )
    assert first == {"type": "clear_thinking_20251015", "keep": "all"}
    assert second["type"] == "clear_tool_uses_20250919"


def test_a_model_that_does_not_think_is_asked_for_no_thinking() -> None:
    frame = replace(FRAME, params={"thinking": {"type": "disabled"}})
    assert len(edits(add_context_management(frame, ABLE, SETTINGS))) == 1


def test_tools_whose_results_we_never_clear_are_spared_by_the_provider_too() -> None:
    tools = tuple({"name": name} for name in ("Read", "mcp__jira__search", "Agent", "Edit"))
    (edit,) = edits(add_context_management(replace(FRAME, tools=tools), ABLE, SETTINGS))
    assert edit["exclude_tools"] == ["Edit", "Write", "mcp__jira__search", "Agent"]


def test_without_the_capability_and_over_what_the_user_set_nothing_is_changed() -> None:
    own = replace(FRAME, params={"context_management": {"edits": []}})
    assert add_context_management(FRAME, Capabilities(), SETTINGS) is FRAME
    assert add_context_management(own, ABLE, SETTINGS) is own


def test_it_comes_back_from_a_transcript_as_it_was() -> None:
    """What is stored is compared with what is sent: a list that comes back as a tuple is a break."""
    frame = add_context_management(FRAME, ABLE, SETTINGS)
    lines: list[bytes] = []
    log = Transcript(lambda: 0.0, lines.append)
    log.add(Mark("frame", msgspec.to_builtins(frame)))
    stored = Transcript.load(b"".join(lines), lambda: 0.0).view.marks["frame"]
    assert msgspec.convert(stored, Frame) == frame


# --- what comes back -----------------------------------------------------------------------------------


async def test_a_session_that_passes_the_trigger_is_cleared_and_the_count_follows() -> None:
    frame = add_context_management(FRAME, ABLE, SETTINGS)
    async with conversation(reading(12), frame=frame) as talk:
        accounts = ProviderEdits(talk.ledger, talk.ledger.expect, talk.events.append)
        turn = talk.turn(size=90_000, accounts=accounts)  # 12 times 22,500 tokens
        await turn.run(user("read them all"))

        rows = list(talk.sim.ledger.rows)
        first = next(i for i, row in enumerate(rows) if row.applied_edits)
        report = rows[first].applied_edits[0]
        cleared = talk.of(Cleared)
        assert report["cleared_input_tokens"] >= AT_LEAST
        assert cleared[0].by == "provider"
        assert cleared[0].tokens == report["cleared_input_tokens"]
        assert cleared[0].use_ids == tuple(f"t{i}" for i in range(report["cleared_tool_uses"]))

        # what the provider counted after clearing is what we count, and it is far below what was sent
        replies = [e.what for e in turn.transcript.entries if isinstance(e.what, Reply)]
        assert replies[first].applied[0] == report
        assert turn.transcript.view.tokens == replies[-1].usage.total
        assert turn.transcript.view.tokens < 0.6 * turn.transcript.view.calibration.tokens(
            turn.transcript.view.size
        )


async def test_the_break_is_expected_and_each_result_is_told_once() -> None:
    frame = add_context_management(FRAME, ABLE, SETTINGS)
    async with conversation(reading(12), frame=frame) as talk:
        accounts = ProviderEdits(talk.ledger, talk.ledger.expect, talk.events.append)
        turn = talk.turn(size=90_000, accounts=accounts)
        await turn.run(user("read them all"))

        ids = [id for event in talk.of(Cleared) for id in event.use_ids]
        assert ids == [f"t{i}" for i in range(len(ids))]
        assert ids
        assert all(broke.expected for broke in talk.of(CacheBroke))
        assert "the provider cleared" in talk.of(CacheBroke)[0].why

        # after a resume, what the transcript already reports is not told again
        known = len(talk.of(Cleared))
        again = ProviderEdits(talk.ledger, talk.ledger.expect, talk.events.append, turn.transcript.entries)
        resumed = talk.turn(transcript=turn.transcript, size=90_000, accounts=again)
        talk.sim.api.replies = reading(0)
        await resumed.run(user("thanks"))
        assert talk.sim.ledger[-1].applied_edits
        assert len(talk.of(Cleared)) == known


async def test_a_session_that_began_without_it_is_never_cleared() -> None:
    async with conversation(reading(12)) as talk:
        await talk.turn(size=90_000).run(user("read them all"))
        assert not any(row.applied_edits for row in talk.sim.ledger.rows)


def test_only_what_is_new_in_a_report_is_counted() -> None:
    told = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 3, "cleared_input_tokens": 900}
    reply = Reply(assistant(), Usage(input=10), applied=(told, {"type": "clear_thinking_20251015"}))
    request = Request(Frame(MODEL), Transcript(lambda: 0.0).view)

    assert read_cleared_counts(reply) == (3, 900)
    event = find_newly_cleared(request, reply, (2, 700))
    assert event is not None
    assert event.tokens == 200
    assert find_newly_cleared(request, reply, (3, 900)) is None


@pytest.mark.parametrize("odd", [{}, {"cleared_tool_uses": "many"}, {"cleared_tool_uses": None}])
def test_an_odd_report_counts_as_nothing(odd: dict[str, Any]) -> None:
    reply = Reply(assistant(), Usage(input=10), applied=({"type": "clear_tool_uses_20250919"} | odd,))
    assert read_cleared_counts(reply) == (0, 0)
