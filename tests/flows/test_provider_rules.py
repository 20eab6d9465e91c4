"""What a provider's own rules do to the cache is told before it happens, with its reason."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from flows.test_session import Place
from flows.wire import SteadySimulator

from sevenfold.core.events import CacheBroke, Sending
from sevenfold.core.messages import Image, Json, Message, Text
from sevenfold.simulator import ManualClock

pytestmark = pytest.mark.anyio
OFF = ("dream", "extraction", "micro_cost", "compact")
SETTINGS = {"flags": dict.fromkeys(OFF, False), "thinkingBudget": 4_000}
PICTURE = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"\x89PNG" * 300).decode()}
WITH_PICTURE = Message("user", (Image(PICTURE), Text("What is wrong on this screen?")))
LONG = "One more line of what the command printed in the end.\n" * 400
READS = 4


def think_and_read(body: Json) -> Sequence[Json]:
    """Four calls for each question, with a thought before each."""
    said = [one["role"] == "user" and "tool_result" not in str(one["content"]) for one in body["messages"]]
    calls = len(said) - 1 - max(n for n, spoken in enumerate(said) if spoken)
    thought = {"type": "thinking", "thinking": f"After {len(said)} messages this is next. " * 40}
    if calls >= 2 * READS:
        return [thought, {"type": "text", "text": "Done."}]
    use = {
        "type": "tool_use",
        "id": f"t{len(said)}",
        "name": "Read",
        "input": {"file_path": f"{len(said)}.txt"},
    }
    return [thought, use]


@pytest.fixture
def here(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    for n in range(50):
        (place.project / f"{n}.txt").write_text(LONG, encoding="utf-8")
    return place


async def ask(here: Place, model: str, *questions: str | Message) -> list[Any]:
    """The rows of the ledger of a session with these questions."""
    async with SteadySimulator(replies=think_and_read, clock=ManualClock()) as simulator:
        simulator.events = here.events
        here.environ["ANTHROPIC_BASE_URL"] = simulator.url
        async with here.session(model, settings=SETTINGS) as session:
            for question in questions:
                await session.ask(question)
        return list(simulator.ledger.rows)


@pytest.mark.parametrize("model", ["claude-opus-4-8", "claude-opus-5-5"])
async def test_the_first_picture_costs_the_messages_and_the_session_goes_on(
    here: Place, model: str
) -> None:
    rows = await ask(here, model, "Look at the log.", WITH_PICTURE, WITH_PICTURE, "And now?")

    assert all(row.error is None for row in rows), "thinking is bound to words, not to settings"
    told = [event for event in here.of(Sending) if event.lost]
    assert [event.why.partition(":")[0] for event in told] == ["the first picture"]
    assert all(broke.why == told[0].why and broke.expected for broke in here.of(CacheBroke))


async def test_a_model_that_forgets_its_thinking_loses_the_turn_before_and_no_more(here: Place) -> None:
    rows = await ask(here, "claude-sonnet-4-5", *(f"Part {n}, please." for n in range(4)))

    told = [event for event in here.of(Sending) if event.lost]
    assert [event.why for event in told] == [
        "this model forgets what it thought when something new is said"
    ] * 3
    assert all(broke.why == told[0].why and broke.expected for broke in here.of(CacheBroke))
    begins = [n for n, row in enumerate(rows) if n and row.source == "main" and n % (READS + 1) == 0]
    kept = [rows[n].tokens.cache_read for n in begins]
    assert kept[1] > kept[0] + READS * len(LONG) // 5, "all turns but the last are still read"
    assert kept[2] > kept[1] + READS * len(LONG) // 5
