"""Long sessions on the real wire: which layer makes room, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic
import pytest
from layers.l2_microcompaction.talks import need_file

from benchmarks.ladder.run import LadderLog, LongTask, drive
from sevenfold.models.anthropic import AnthropicSdk

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
WINDOW = 40_000
SPECIFIED = {"policy": "specified"}
UNBOUND, BOUND = "claude-opus-4-8", "claude-opus-5-5"
ALONE = {"extraction": False, "recall": False, "dream": False}


async def test_notes_are_paid_out_again_and_again_and_no_summary_is_made_while_they_can(
    tmp_path: Path,
) -> None:
    settings = {**SPECIFIED, "flags": ALONE}
    log = await drive(tmp_path, LongTask(160, WINDOW, settings, length=5_000, long_every=1))

    assert len(log.order) >= 5
    assert set(log.order) == {"3 pays"}
    assert log.counts["3"] > len(log.order), "the notes go on to the end"
    assert log.counts["2"] >= 1, "after a long silence old results are cleared first"
    assert log.counts["failed"] == log.refused == 0
    cleared = [n for n, row in enumerate(log.rows) if row.layer == "2"]
    for n in cleared:
        same = [row.layer for row in log.rows[:n] if row.request == log.rows[n].request]
        assert "3 pays" not in same, "the cheaper layer is asked first"


@pytest.mark.parametrize(
    ("policy", "calls_per_turn", "length"),
    [("balanced", 8, 3_000), ("balanced", 80, 5_000), ("specified", 20, 5_000), ("specified", 80, 5_000)],
)
async def test_the_question_stands_last_and_forks_read_the_cache_with_the_provider_s_own_client(
    tmp_path: Path, policy: str, calls_per_turn: int, length: int
) -> None:
    task = LongTask(160, WINDOW, {"policy": policy}, length, calls_per_turn)
    clients = list[anthropic.AsyncAnthropic]()

    def connect(url: str, model: str) -> AnthropicSdk:
        clients.append(anthropic.AsyncAnthropic(api_key="k", base_url=url))
        return AnthropicSdk(clients[-1], model, window=WINDOW)

    log = await drive(tmp_path, task, connect)
    await clients[0].close()

    assert len(log.order) >= 3
    assert set(log.order) == {"3 pays" if policy == "specified" else "4"}
    assert log.buried == 0, "nothing that was restored stands behind the question"
    assert len(log.shares) >= 3
    assert min(log.shares) >= 0.99, "of the prefix that the conversation has marked"
    assert log.marks <= 4
    assert [row.text for row in log.rows if row.layer in ("cache", "failed")] == []
    assert log.refused == 0


async def loop(folder: Path, model: str, thinks: Any, *, drops: bool, clears: bool) -> LadderLog:
    """One question, and two hundred calls until it is answered."""
    micro = {"policy": "cost", "margin": 1, "leastFreed": 20_000, "needModel": str(need_file(folder))}
    flags = {**ALONE, "micro_cost": clears, "micro_api": False}
    settings = {**SPECIFIED, "micro": micro, "flags": flags, "dropThinking": drops}
    task = LongTask(200, WINDOW, settings, 3_000, calls_per_turn=200, model=model, thinks=thinks)
    log = await drive(folder, task)
    assert [row.text for row in log.rows if row.layer == "failed"] == []
    assert log.refused == 0
    assert log.requests == 201
    return log


@pytest.mark.parametrize("clears", [True, False])
@pytest.mark.parametrize(
    ("model", "thinks", "drops"),
    [
        (BOUND, "", False),
        (UNBOUND, "always", False),
        (UNBOUND, "first", False),
        (BOUND, "first", False),
        (BOUND, "always", True),
    ],
    ids=["no thinking", "unbound", "unbound, once", "bound, once", "bound, dropped by the provider"],
)
async def test_in_one_long_loop_the_cheap_layers_make_room(
    tmp_path: Path, model: str, thinks: str, drops: bool, clears: bool
) -> None:
    log = await loop(tmp_path, model, thinks, drops=drops, clears=clears)

    assert log.counts["4"] == 0
    assert log.counts["2" if clears else "3 pays"] >= 3


async def test_in_a_loop_of_thinking_that_is_bound_and_not_dropped_the_notes_stand_in_for_all_of_it(
    tmp_path: Path,
) -> None:
    log = await loop(tmp_path, BOUND, "always", drops=False, clears=True)

    assert log.counts["3 pays"] >= 2
    assert log.counts["2"] == log.counts["4"] == 0, "nothing can be cleared, and no summary is needed"
